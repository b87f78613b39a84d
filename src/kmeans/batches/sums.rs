//! Labels the rows of a batch and sums them by label.

use crate::data::{DataSource, row_values};
use crate::error::{Error, Result};
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::parallel::Executor;
use crate::pass::{Chunk, Loan, Pool, sweep};
use crate::stats::ClusterSums;
use crate::tuning::{STRIP_ROWS, tile_rows};

/// Rows of a batch that one worker labels between two merges of sums: about 2 million multiplications, some
/// 30 microseconds. They hide the cost of scheduling a tile, and give a batch of a thousand rows enough tiles
/// for several threads.
fn batch_tile_rows(k: usize, dim: usize) -> usize {
    let rows = (1usize << 21) / (k * dim).max(1);
    (rows / STRIP_ROWS * STRIP_ROWS).clamp(STRIP_ROWS, tile_rows(k))
}

/// Pool of sums reused across batches, so that a batch need not clear `k d` values per thread.
///
/// A failed batch leaves partial sums in the pool: drop the pool then.
#[derive(Debug, Default)]
pub(in crate::kmeans) struct Spare(Pool<ClusterSums>);

impl Spare {
    /// Empty sums. `k` and `dim` must be the same for every call. Weights and squared errors are current, but sparse
    /// rows may still be buffered: merge before reading the sums themselves.
    pub(in crate::kmeans) fn lend(&self, k: usize, dim: usize) -> Loan<'_, ClusterSums> {
        self.0.lend(|| ClusterSums::part(k, dim))
    }

    /// Labels the rows of a batch with their nearest centers and adds them to `total`. Returns the number of
    /// rows.
    pub(in crate::kmeans) fn label_and_sum<T: Compute>(
        &self,
        batch: &dyn DataSource<T>,
        packed: &PackedCenters<T>,
        total: &mut ClusterSums,
        cx: &Executor,
    ) -> Result<u64> {
        let (k, dim) = (packed.n_centers(), packed.dim());
        let absorb =
            |chunk: Chunk<'_, T>,
             (): (),
             rows: &mut u64,
             (part, labels, scratch): &mut (Loan<'_, ClusterSums>, Vec<u32>, Scratch<T>)| {
                *rows += chunk.rows.rows() as u64;
                labels.resize(chunk.rows.rows(), 0);
                kernel::nearest(chunk.rows, packed, labels, scratch);
                part.absorb(chunk.rows, labels, chunk.weights, packed);
                if part.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
            };
        let make = (|| 0, || (self.lend(k, dim), Vec::new(), Scratch::default()));
        let tile_rows = batch_tile_rows(k, row_values(batch).min(dim));
        let mut rows = 0;
        sweep(batch, cx, tile_rows, (), &mut rows, make, absorb, |total, more| {
            *total += std::mem::take(more);
        })?;
        // What the workers returned, and others that are empty.
        total.collect(&mut *self.0.kept(), cx);
        if rows == 0 { Err(Error::no_rows()) } else { Ok(rows) }
    }
}
