//! Rows that are vectors of their own.

use super::raw::one_block;
use super::source::forward;
use super::{Access, DataSource, Tile, TileReader, Visit, Wanted, no_such_row};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::make_room;
use crate::rows::RowBuf;

/// Appends a row of `dim` values to `out`.
fn push<T: Float>(index: usize, row: &[T], dim: usize, out: &mut Vec<T>) -> Result<()> {
    if row.len() != dim {
        let problem = format!("row {index} has {} values, the first row has {dim}", row.len());
        return Err(Error::Shape(format!("rows must have equal lengths: {problem}")));
    }
    out.extend_from_slice(row);
    Ok(())
}

impl<T: Float> TileReader<T> for &[Vec<T>] {
    fn read(&self, wanted: Wanted<'_>, buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        buffer.clear(self.dim());
        for (index, row) in wanted.rows.clone().zip(&self[wanted.rows]) {
            push(index, row, self.dim(), &mut buffer.values)?;
        }
        Ok(Some(Tile::Copied))
    }
}

/// Every pass copies the rows, a tile at a time: a flat slice with [`Dense`](super::Dense) or a slice of
/// arrays is faster.
///
/// ```
/// use shoal::KMeans;
/// let rows = vec![vec![0.0f32, 1.0], vec![2.0, 3.0]];
/// assert_eq!(KMeans::params(1).fit(&rows)?.centers::<f32>(), [1.0, 2.0]);
/// assert_eq!(KMeans::params(1).fit(&rows[..1])?.centers::<f32>(), [0.0, 1.0]);
///
/// let ragged = vec![vec![0.0f32, 1.0], vec![2.0]];
/// let refused = KMeans::params(1).fit(&ragged).unwrap_err().to_string();
/// assert_eq!(refused, "rows must have equal lengths: row 1 has 1 values, the first row has 2");
/// # Ok::<(), shoal::Error>(())
/// ```
impl<T: Float> DataSource<T> for [Vec<T>] {
    fn dim(&self) -> usize {
        self.first().map_or(0, Vec::len)
    }
    fn rows(&self) -> Option<u64> {
        Some(self.len() as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn for_each_block(&self, _tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        one_block(&self, self.len(), f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let dim = self.dim();
        make_room(out, "copied rows", rows.len() as u64, dim)?;
        for &index in rows {
            let row = usize::try_from(index).ok().and_then(|i| self.get(i));
            push(index as usize, row.ok_or_else(|| no_such_row(index))?, dim, out)?;
        }
        Ok(())
    }
}

/// As a slice of vectors.
impl<T: Float> DataSource<T> for Vec<Vec<T>> {
    forward!(|this| this[..] => dim rows access for_each_block gather);
}

#[cfg(test)]
mod tests {
    use crate::data::{check_finite, take};
    use crate::parallel::Executor;

    #[test]
    fn rows_of_other_lengths_are_named() {
        let cx = Executor::new(Some(2)).unwrap();
        let mut rows: Vec<Vec<f64>> = (0..100_000).map(|i| vec![f64::from(i), 1.0]).collect();
        check_finite(&rows, &cx).unwrap();
        assert_eq!(take(&&rows[..], &[7, 0]).unwrap(), [7.0, 1.0, 0.0, 1.0]);
        assert_eq!(take(&rows, &[100_000]).unwrap_err().to_string(), "row 100000 does not exist");
        for ragged in [99_998, 70_000, 3] {
            rows[ragged].push(2.0);
            let refused = check_finite(&rows, &cx).unwrap_err().to_string();
            assert_eq!(
                refused,
                format!("rows must have equal lengths: row {ragged} has 3 values, the first row has 2")
            );
            assert_eq!(take(&rows, &[0, ragged as u64]).unwrap_err().to_string(), refused);
        }
    }
}
