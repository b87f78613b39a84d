//! A source that notes whether its rows have weights: a stream tells only when it is read.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::data::source::forward;
use crate::data::{Access, Block, DataSource, Origin, Visit};
use crate::error::Result;
use crate::float::Float;
use crate::rows::RowBuf;

/// The rows of `source`.
pub(crate) struct Watched<'a, T: Float> {
    source: &'a dyn DataSource<T>,
    weighted: AtomicBool,
}

impl<'a, T: Float> Watched<'a, T> {
    pub(crate) fn new(source: &'a dyn DataSource<T>) -> Self {
        Self { source, weighted: AtomicBool::new(source.has_weights()) }
    }

    /// Whether the rows that were read have weights.
    pub(crate) fn weighted(&self) -> bool {
        self.weighted.load(Ordering::Relaxed)
    }

    fn note(&self, block: &Block<'_, T>) {
        if block.weights.is_some() {
            self.weighted.store(true, Ordering::Relaxed);
        }
    }
}

impl<T: Float> DataSource<T> for Watched<'_, T> {
    forward!(|this| this.source =>
        dim rows access weights always_finite scarce_memory origin first_row most_values gather copy);

    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.source.for_each_block(tile_rows, &mut |block| {
            self.note(&block);
            f(block)
        })
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.source.for_each_block_from(row, tile_rows, &mut |block| {
            self.note(&block);
            f(block)
        })
    }
}
