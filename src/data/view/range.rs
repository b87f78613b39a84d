//! Consecutive rows of a source.

use std::ops::{ControlFlow, Range};

use super::forward;
use crate::data::any::ComputeType;
use crate::data::reblock::Reblock;
use crate::data::weights::check_announced;
use crate::data::{Access, AnySource, DataSource, Source, Visit, no_such_row, weights_of_rows};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::rows::RowBuf;

/// Consecutive rows of a source, numbered from 0.
///
/// ```
/// use shoal::KMeans;
/// use shoal::data::{DataSource, RowRange};
/// let last = RowRange::new([[1.0f32], [2.0], [3.0]], 1..3)?;
/// let mut found = Vec::new();
/// last.gather(&[0], &mut found)?;
/// assert_eq!((last.rows(), found), (Some(2), vec![2.0]));
/// assert_eq!(KMeans::params(1).fit(&last)?.centers::<f32>(), [2.5]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RowRange<S> {
    source: S,
    rows: Range<u64>,
    compute: ComputeType<Self>,
}

impl<S> RowRange<S> {
    /// The rows `rows` of `source`. If the source does not know its number of rows, the range may reach
    /// beyond its end and then holds fewer rows. For the type parameter see
    /// [`Weighted::new`](super::Weighted::new).
    ///
    /// # Errors
    /// [`Error::Shape`] for a range that does not lie within the rows; [`Error::Source`] when the source has
    /// not one weight per row.
    ///
    /// ```
    /// use shoal::data::RowRange;
    /// let refused = RowRange::new([[1.0f32], [2.0], [3.0]], 1..5).unwrap_err();
    /// assert_eq!(refused.to_string(), "rows 1..5 do not lie within 0..3");
    /// ```
    pub fn new<T: Float>(source: S, rows: Range<u64>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let all = source.rows();
        if rows.start > rows.end || all.is_some_and(|all| rows.end > all) {
            let all = all.map_or(String::new(), |all| all.to_string());
            return Err(Error::Shape(format!("rows {rows:?} do not lie within 0..{all}")));
        }
        if let Some(all) = all {
            check_announced(source.weights(), all)?;
        }
        Ok(Self { source, rows, compute: ComputeType::of::<T>() })
    }

    /// Converts row numbers of the range to row numbers of the source.
    fn of_source(&self, rows: &[u64]) -> Result<Vec<u64>> {
        let n = self.rows.end - self.rows.start;
        match rows.iter().find(|&&row| row >= n) {
            Some(&beyond) => Err(no_such_row(beyond)),
            None => Ok(rows.iter().map(|row| row + self.rows.start).collect()),
        }
    }
}

impl<T: Float, S: DataSource<T>> DataSource<T> for RowRange<S> {
    forward!(source: dim access always_finite most_values);

    fn rows(&self) -> Option<u64> {
        self.source.rows().map(|_| self.rows.end - self.rows.start)
    }
    fn has_weights(&self) -> bool {
        self.source.has_weights()
    }
    fn weights(&self) -> Option<&[f64]> {
        self.source.weights()?.get(self.rows.start as usize..self.rows.end as usize)
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        // Tiles begin at the first row of the range: results do not depend on the rows before it.
        let mut blocks = Reblock::new(self.source.dim(), tile_rows, 1, f);
        let mut ended = false;
        self.source.for_each_block(tile_rows, &mut |block| {
            let end = block.first_row + block.len as u64;
            let start = self.rows.start.max(block.first_row);
            let stop = self.rows.end.min(end);
            if start >= stop {
                return Ok(ControlFlow::Continue(()));
            }
            let within = (start - block.first_row) as usize..(stop - block.first_row) as usize;
            let last = end >= self.rows.end;
            let weights = weights_of_rows(&block, within.clone())?;
            ended = blocks.push(block.rows, within, weights, last)?.is_break();
            Ok(if last || ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if ended { Ok(()) } else { blocks.finish() }
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.source.gather(&self.of_source(rows)?, out)
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        self.source.copy(&self.of_source(rows)?, out)
    }
}

impl<S> Source for RowRange<S> {
    fn any(&self) -> AnySource<'_> {
        self.compute.any(self)
    }
}
