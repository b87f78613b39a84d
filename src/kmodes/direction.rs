//! Whether only the directions of rows count: the default of `normalize`.

use crate::data::{DataSource, copy, count_rows};
use crate::error::Result;
use crate::kernel::Compute;
use crate::matrix::MatRef;
use crate::rows::RowBuf;
use crate::stats::Moments;

/// Columns from which on Laplacian K-modes scales rows to length 1 unless told otherwise. Shapes in two and three
/// columns must not be scaled. With 5 to 15 columns, some sets are better scaled and some are not (`shapes.py`).
const DIRECTION_COLUMNS: usize = 8;

/// The fewest and the most rows that decide whether rows are scaled, and about how many values they may have.
const DIRECTION_ROWS: [u64; 2] = [64, 1024];
const DIRECTION_VALUES: u64 = 1 << 24;

/// The share of nonzero values up to which rows are counts of rare things, whose lengths say little: word counts, at
/// most 1%.
const DIRECTION_FILLED: f64 = 0.1;

/// The share of the variance that lengths must have for rows not to be scaled: scaling would leave nearly nothing.
/// Images and sounds have up to 49% (`shapes.py`).
const DIRECTION_LENGTHS: f64 = 0.99;

/// Whether rows are to be scaled to length 1.
///
/// Scaling removes one dimension. In few columns it folds shapes onto each other. In many columns most of the
/// variance stays, and the lengths mostly measure brightness, loudness or the number of words. The exception are
/// rows whose lengths are nearly all of the variance: multiples of one row, or tables in which one column is much
/// larger than the others.
///
/// # Errors
/// Errors of the source.
pub(super) fn matters_most<T: Compute>(data: &dyn DataSource<T>) -> Result<bool> {
    let d = data.dim();
    if d < DIRECTION_COLUMNS {
        return Ok(false);
    }
    let n = count_rows(data)?;
    let [fewest, most] = DIRECTION_ROWS;
    let count = n.min((DIRECTION_VALUES / d as u64).clamp(fewest, most));
    let evenly = |i: u64| (u128::from(i) * u128::from(n) / u128::from(count)) as u64;
    let sample = copy(data, &(0..count).map(evenly).collect::<Vec<_>>())?;
    Ok(filled(&sample) <= DIRECTION_FILLED || variance_of_lengths(&sample) < DIRECTION_LENGTHS)
}

/// The share of values that are not 0.
fn filled<T: Compute>(rows: &RowBuf<T>) -> f64 {
    let nonzero = rows.values.iter().filter(|&&x| x != T::ZERO).count();
    nonzero as f64 / (rows.len() * rows.cols()) as f64
}

/// The variance of the lengths of rows, as a share of the variance of the rows.
fn variance_of_lengths<T: Compute>(rows: &RowBuf<T>) -> f64 {
    let lengths: Vec<f64> = (0..rows.len())
        .map(|i| rows.rows().stored(i).iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt())
        .collect();
    let (mut of_lengths, mut of_rows) = (Moments::new(1), Moments::new(rows.cols()));
    of_lengths.absorb(MatRef::new(&lengths, 1), None);
    of_rows.absorb(rows.rows(), None);
    of_lengths.spread() / of_rows.spread()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Csr, Index, RawRows};
    use crate::rng::{Purpose, Rng};

    /// Rows of `d` columns whose entries are `value(uniform, column)`.
    fn rows(d: usize, value: impl Fn(f64, usize) -> f64) -> Vec<f64> {
        let mut rng = Rng::keyed(5, Purpose::Seeding, 0);
        (0..300 * d).map(|i| value(rng.unit() - 0.5, i % d)).collect()
    }

    fn scaled(values: &[f64], d: usize) -> bool {
        matters_most::<f64>(&RawRows::new(values, d).unwrap()).unwrap()
    }

    #[test]
    fn few_columns_are_positions_and_many_are_directions() {
        for d in [1, 2, 3, 7] {
            assert!(!scaled(&rows(d, |x, _| x), d) && !scaled(&rows(d, |x, _| x + 0.5), d), "{d} columns");
        }
        for d in [8, 100] {
            assert!(scaled(&rows(d, |x, _| x), d) && scaled(&rows(d, |x, _| x + 0.5), d), "{d} columns");
        }
    }

    #[test]
    fn lengths_that_are_nearly_all_of_the_variance_are_kept() {
        // One column in other units, and multiples of one row.
        assert!(!scaled(&rows(20, |x, column| if column == 3 { 1000.0 * (x + 0.6) } else { x }), 20));
        let mut multiples = rows(20, |_, column| column as f64 + 1.0);
        multiples
            .chunks_exact_mut(20)
            .enumerate()
            .for_each(|(i, row)| row.iter_mut().for_each(|x| *x *= 1.0 + i as f64));
        assert!(!scaled(&multiples, 20));
        assert!(!scaled(&vec![2.0; 400], 20), "equal rows");
    }

    #[test]
    fn mostly_zeros_are_directions_however_they_are_stored() {
        // A count per row, of very different sizes: nearly all of the variance is that of the lengths.
        let d = 40;
        let mut dense = vec![0.0; 300 * d];
        for i in 0..300 {
            dense[i * d + i % 2] = if i % 50 == 0 { 1e4 } else { 1.0 };
        }
        assert!(scaled(&dense, d));
        let (starts, columns): (Vec<i64>, Vec<i32>) =
            ((0..=300).collect(), (0..300).map(|i| i % 2).collect());
        let values: Vec<f64> = (0..300).map(|i| dense[i * d + i % 2]).collect();
        let (starts, columns) = (Index::I64(&starts), Index::I32(&columns));
        let sparse = Csr::new((300, d), starts, columns, &values).unwrap();
        assert!(matters_most::<f64>(&sparse).unwrap());
        let filled: Vec<f64> = dense.iter().map(|x| x + 0.01).collect();
        assert!(!scaled(&filled, d));
    }
}
