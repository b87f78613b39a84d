//! A source of unknown length whose rows were counted.

use crate::data::source::forward;
use crate::data::{Access, DataSource, Origin, Visit};
use crate::error::Result;
use crate::float::Float;
use crate::rows::RowBuf;

/// A source of unknown length with the number of rows that an earlier pass counted, which saves further
/// counting passes. If a later pass gives another number, [`read`](crate::data::read) raises the error.
pub(crate) struct Counted<S> {
    source: S,
    rows: u64,
}

impl<S> Counted<S> {
    pub(crate) fn new(source: S, rows: u64) -> Self {
        Self { source, rows }
    }
}

impl<T: Float, S: DataSource<T>> DataSource<T> for Counted<S> {
    forward!(|this| this.source =>
        dim access weights always_finite scarce_memory origin most_values for_each_block for_each_block_from
        gather copy);

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }
}
