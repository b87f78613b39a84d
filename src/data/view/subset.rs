//! Some rows of a source in ascending order, which are read forwards.

use super::listed::{Listed, RowNumbers};
use super::marks::RowMarks;
use super::selected::Selected;
use crate::data::DataSource;
use crate::float::Float;

/// Distinct rows of a source with random access, in ascending order.
///
/// A large subset is read in a pass that reads ahead, a small one row by row.
pub(crate) type Subset<'a, T> = Selected<&'a dyn DataSource<T>, Listed<&'a [u64]>>;

/// As [`Subset`], for rows that are marked.
pub(crate) type MarkedRows<'a, T> = Selected<&'a dyn DataSource<T>, Listed<&'a RowMarks>>;

impl<'a, T: Float> Subset<'a, T> {
    /// The rows `rows` of `source`, which must ascend and exist.
    pub(crate) fn new(source: &'a dyn DataSource<T>, rows: &'a [u64]) -> Self {
        debug_assert!(rows.is_sorted());
        ascending(source, rows)
    }
}

impl<'a, T: Float> MarkedRows<'a, T> {
    /// The rows of `source` that are marked, which must exist.
    pub(crate) fn new(source: &'a dyn DataSource<T>, rows: &'a RowMarks) -> Self {
        ascending(source, rows)
    }
}

fn ascending<T: Float, L: RowNumbers>(
    source: &dyn DataSource<T>,
    rows: L,
) -> Selected<&dyn DataSource<T>, Listed<L>> {
    let mut rows = Listed::ascending(rows);
    rows.take_weights(source.weights());
    Selected::of(source, rows)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::super::Weighted;
    use super::*;
    use crate::data::RawRows;

    #[test]
    fn few_rows_and_many_are_the_same_rows() {
        let values: Vec<u8> = (0..3 * 80).collect();
        let weights: Vec<f64> = (0..80).map(f64::from).collect();
        let source = Weighted::new::<f32>(RawRows::new(&values, 3).unwrap(), &weights).unwrap();
        for step in [1u64, 2, 7, 50] {
            let rows: Vec<u64> = (0..80).filter(|row| row % step < step.div_ceil(2)).collect();
            let subset = Subset::<f32>::new(&source, &rows);
            let (mut seen, mut scratch, mut some) = (Vec::new(), Vec::new(), Vec::new());
            subset
                .for_each_block(4, &mut |block| {
                    assert_eq!((block.first_row, block.len), (0, rows.len()));
                    let heavy: Vec<f64> = rows.iter().map(|&row| row as f64).collect();
                    assert_eq!(block.weights, Some(&heavy[..]));
                    for start in (0..block.len).step_by(5) {
                        let tile = block.rows.tile(start..block.len.min(start + 5), &mut scratch)?;
                        tile.iter().for_each(|row| seen.extend_from_slice(row));
                        // One row of them, and all of them.
                        let n = block.len.min(start + 5) - start;
                        for picked in [vec![n as u32 / 2], (0..n as u32).collect()] {
                            let tile = block.rows.tile_of(start..start + n, &picked, &mut some)?;
                            assert_eq!(tile.rows(), n);
                            for &r in &picked {
                                assert_eq!(tile.row(r as usize), &seen[3 * (start + r as usize)..][..3]);
                            }
                        }
                    }
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
            let expected: Vec<f32> =
                rows.iter().flat_map(|&r| [0, 1, 2].map(|c| (3 * r + c) as f32)).collect();
            assert_eq!(seen, expected, "{step}");
            let mut last = Vec::new();
            subset.gather(&[rows.len() as u64 - 1], &mut last).unwrap();
            assert_eq!(last, expected[expected.len() - 3..]);
            assert!(subset.gather(&[rows.len() as u64], &mut last).is_err());
        }
    }
}
