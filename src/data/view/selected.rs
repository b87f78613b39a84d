//! Views of selected rows: a range of the rows of a source, or a list of them in any order.

use crate::data::any::ComputeType;
use crate::data::source::forward;
use crate::data::{Access, AnySource, DataSource, Origin, Source, Visit, check_rows};
use crate::error::Result;
use crate::float::Float;
use crate::rows::RowBuf;

/// The rows of a source that `R` selects: see [`RowRange`](super::RowRange) and [`Permuted`](super::Permuted).
#[derive(Clone, Debug)]
pub struct Selected<S, R> {
    pub(super) source: S,
    pub(super) rows: R,
    compute: ComputeType<Self>,
}

/// Which rows of a source a view has, and in which order.
pub trait Selection: Sync {
    /// Number of rows.
    fn len(&self) -> u64;

    /// The row of the source at a place of the view, which is below the number of rows.
    fn row(&self, place: u64) -> u64;

    /// The weights of the rows, from those of all rows of the source.
    fn weights<'a>(&'a self, all: Option<&'a [f64]>) -> Option<&'a [f64]>;

    /// Whether the rows have weights, if those of the source are known to have some.
    fn has_weights(&self, weighted: bool) -> bool;

    /// One pass: see [`DataSource::for_each_block`].
    ///
    /// # Errors
    /// Those of the source, and those of `f`.
    fn for_each_block<T: Float>(
        &self,
        source: &dyn DataSource<T>,
        tile_rows: usize,
        f: &mut Visit<'_, T>,
    ) -> Result<()>;
}

impl<S, R: Selection> Selected<S, R> {
    /// The rows `rows` of `source`, which exist.
    pub(super) fn of<T: Float>(source: S, rows: R) -> Self
    where
        S: DataSource<T>,
    {
        Self { source, rows, compute: ComputeType::of::<T>() }
    }

    /// The rows of the source at some places of the view.
    fn of_source(&self, places: &[u64]) -> Result<Vec<u64>> {
        check_rows(places, self.rows.len())?;
        Ok(places.iter().map(|&place| self.rows.row(place)).collect())
    }
}

impl<T: Float, S: DataSource<T>, R: Selection> DataSource<T> for Selected<S, R> {
    forward!(|this| this.source => dim access always_finite most_values);

    fn rows(&self) -> Option<u64> {
        self.source.rows().map(|_| self.rows.len())
    }
    fn weights(&self) -> Option<&[f64]> {
        self.rows.weights(self.source.weights())
    }
    fn has_weights(&self) -> bool {
        self.rows.has_weights(self.source.has_weights())
    }
    fn origin(&self, row: u64, column: usize) -> Origin {
        if row < self.rows.len() { self.source.origin(self.rows.row(row), column) } else { Origin::default() }
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.rows.for_each_block(&self.source, tile_rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.source.gather(&self.of_source(rows)?, out)
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        self.source.copy(&self.of_source(rows)?, out)
    }
}

impl<S, R> Source for Selected<S, R> {
    fn any(&self) -> AnySource<'_> {
        self.compute.any(self)
    }
}
