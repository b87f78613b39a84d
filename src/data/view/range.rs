//! Consecutive rows of a source.

use std::ops::{ControlFlow, Range};

use super::selected::{Selected, Selection};
use crate::data::reblock::Reblock;
use crate::data::weights::check_announced;
use crate::data::{DataSource, Visit, weights_of_rows};
use crate::error::{Error, Result};
use crate::float::Float;

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
pub type RowRange<S> = Selected<S, Range<u64>>;

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
        Ok(Self::of(source, rows))
    }
}

impl Selection for Range<u64> {
    fn len(&self) -> u64 {
        self.end - self.start
    }
    fn row(&self, place: u64) -> u64 {
        self.start + place
    }
    fn weights<'a>(&'a self, all: Option<&'a [f64]>) -> Option<&'a [f64]> {
        all?.get(self.start as usize..self.end as usize)
    }
    fn has_weights(&self, weighted: bool) -> bool {
        weighted
    }
    fn for_each_block<T: Float>(
        &self,
        source: &dyn DataSource<T>,
        tile_rows: usize,
        f: &mut Visit<'_, T>,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // Tiles begin at the first row of the range: results do not depend on the rows before it.
        let mut blocks = Reblock::new(source.dim(), tile_rows, 1, f);
        let mut ended = false;
        source.for_each_block(tile_rows, &mut |block| {
            let end = block.first_row + block.len as u64;
            let start = self.start.max(block.first_row);
            let stop = self.end.min(end);
            if start >= stop {
                return Ok(ControlFlow::Continue(()));
            }
            let within = (start - block.first_row) as usize..(stop - block.first_row) as usize;
            let last = end >= self.end;
            let weights = weights_of_rows(&block, within.clone())?;
            ended = blocks.push(block.rows, within, weights, last)?.is_break();
            Ok(if last || ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if ended { Ok(()) } else { blocks.finish() }
    }
}
