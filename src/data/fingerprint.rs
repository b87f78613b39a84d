//! Recognizes the rows of an earlier run without reading all of them.

use std::ops::ControlFlow;

use super::{Access, DataSource, copy_to, gather, read, single_row};
use crate::error::Result;
use crate::float::Float;
use crate::rng::mix;
use crate::rows::{RowBuf, SparseRef};

/// Rows that a fingerprint reads.
const ROWS: u64 = 1024;
/// Number of rows that the fingerprint of a batch reads. Few suffice, because a refilled batch differs in every row.
#[cfg(feature = "python")]
const ROWS_OF_A_BATCH: u64 = 4;
/// Values per gather.
const VALUES: usize = 1 << 16;

/// A hash of the number of rows and columns, of all weights, and of the values of up to [`ROWS`] rows: evenly
/// spaced rows with random access, else the first rows of a pass. For a source that can be read only once, a
/// hash of the number of columns.
pub(crate) fn fingerprint<T: Float>(data: &dyn DataSource<T>) -> Result<u64> {
    of_rows(data, ROWS)
}

/// As [`fingerprint`], but reads only [`ROWS_OF_A_BATCH`] rows, because batches are small or numerous.
#[cfg(feature = "python")]
pub(crate) fn fingerprint_of_batch<T: Float>(data: &dyn DataSource<T>) -> Result<u64> {
    of_rows(data, ROWS_OF_A_BATCH)
}

fn of_rows<T: Float>(data: &dyn DataSource<T>, most: u64) -> Result<u64> {
    let dim = data.dim();
    let mut print = mix(dim as u64);
    let mut add = |bits: u64| print = mix(print ^ bits);
    if data.access() > Access::Once {
        data.rows().into_iter().for_each(&mut add);
        data.weights().into_iter().flatten().for_each(|weight| add(weight.to_bits()));
    }
    match (data.access(), data.rows()) {
        (Access::Random, Some(n)) => {
            let some = n.min(most);
            let rows: Vec<u64> =
                (0..some).map(|i| (u128::from(i) * u128::from(n) / u128::from(some)) as u64).collect();
            if data.most_values().is_some() {
                let mut copied = RowBuf::sparse(dim);
                copy_to(data, &rows, &mut copied)?;
                for (columns, values) in copied.as_sparse().iter().flat_map(SparseRef::iter) {
                    for (&column, x) in columns.iter().zip(values) {
                        add(u64::from(column.cast_unsigned()));
                        add(x.to_f64().to_bits());
                    }
                }
                return Ok(print);
            }
            let mut look_at = |values: &[T]| values.iter().for_each(|x| add(x.to_f64().to_bits()));
            let mut values = Vec::new();
            for rows in rows.chunks((VALUES / dim.max(1)).max(1)) {
                values.clear();
                gather(data, rows, &mut values)?;
                look_at(&values);
            }
        }
        (Access::Once, _) => {}
        _ => {
            let mut look_at = |values: &[T]| values.iter().for_each(|x| add(x.to_f64().to_bits()));
            let (mut left, mut scratch) = (most as usize, Vec::new());
            read(data, 1, &mut |block| {
                let some = left.min(block.len);
                for row in 0..some {
                    look_at(single_row(block.rows, row, dim, &mut scratch)?);
                }
                left -= some;
                Ok(if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
        }
    }
    Ok(print)
}

#[cfg(test)]
mod tests {
    use super::super::{Chunk, Chunks, Dense, Weighted};
    use super::*;

    #[test]
    fn it_changes_with_values_shape_and_weights() {
        let of = |values: &[f32], dim: usize| fingerprint(&Dense::new(values, dim).unwrap()).unwrap();
        let values: Vec<f32> = (0..6000).map(|i| i as f32).collect();
        let known = of(&values, 2);
        assert_eq!(known, of(&values.clone(), 2));
        assert_ne!(known, of(&values, 3));
        assert_ne!(known, of(&values[..5998], 2));
        let mut other = values.clone();
        other[1] = -1.0;
        assert_ne!(known, of(&other, 2));
        let weighted = |last: f64| {
            let mut weights = vec![1.0; 3000];
            weights[2999] = last;
            let rows = Dense::new(&values, 2).unwrap();
            fingerprint::<f32>(&Weighted::new::<f32>(rows, weights).unwrap()).unwrap()
        };
        assert_eq!(known, weighted(1.0));
        assert_ne!(known, weighted(2.0));
        assert_ne!(weighted(2.0), weighted(3.0));
    }

    #[test]
    fn passes_are_known_by_their_first_rows_however_they_are_cut() {
        let of = |first: f32, cut: usize| {
            let values: Vec<f32> = std::iter::once(first).chain((1..9000).map(|i| i as f32)).collect();
            let pass = || values.chunks(3 * cut).map(|rows| Ok(Chunk::from(rows.to_vec())));
            fingerprint(&Chunks::replay(3, pass)).unwrap()
        };
        assert_eq!(of(0.0, 1), of(0.0, 700));
        assert_ne!(of(0.0, 1), of(1.0, 1));
    }
}
