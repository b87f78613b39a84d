//! Labels the rows of a batch and sums them by label.

use std::sync::{Mutex, PoisonError};

use crate::data::{DataSource, row_values};
use crate::error::{Error, Result};
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::stats::ClusterSums;
use crate::tuning::batch_tile_rows;

/// Pool of sums reused across batches, so that a batch need not clear `k d` values per thread.
///
/// A failed batch leaves partial sums in the pool: drop the pool then.
#[derive(Default)]
pub(in crate::kmeans) struct Spare(Mutex<Vec<ClusterSums>>);

/// Sums borrowed from a [`Spare`]. Dropping the loan returns them; they must be empty then.
pub(in crate::kmeans) struct Loan<'a> {
    sums: Option<ClusterSums>,
    home: &'a Spare,
}

impl Spare {
    /// Empty sums. `k` and `dim` must be the same for every call.
    pub(in crate::kmeans) fn lend(&self, k: usize, dim: usize) -> Loan<'_> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Loan { sums: Some(kept.unwrap_or_else(|| ClusterSums::part(k, dim))), home: self }
    }

    /// Labels the rows of a batch with their nearest centers and adds them to `total`. Returns the number of
    /// rows.
    pub(in crate::kmeans) fn label_and_sum<T: Compute>(
        &self,
        batch: &dyn DataSource<T>,
        packed: &PackedCenters<T>,
        total: &mut Loan<'_>,
        cx: &Executor,
    ) -> Result<u64> {
        let (k, dim) = (packed.n_centers(), packed.dim());
        let absorb = |chunk: Chunk<'_, T>,
                      (): (),
                      (part, rows): &mut (Loan<'_>, u64),
                      (labels, scratch): &mut (Vec<u32>, Scratch<T>)| {
            *rows += chunk.rows.rows() as u64;
            labels.resize(chunk.rows.rows(), 0);
            kernel::nearest(chunk.rows, packed, labels, scratch);
            let part = part.sums();
            part.absorb(chunk.rows, labels, chunk.weights, packed);
            if part.energy().is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
        };
        let merge = |(total, rows): &mut (Loan<'_>, u64), (part, more): &mut (Loan<'_>, u64)| {
            total.sums().collect(part.sums());
            *rows += std::mem::take(more);
        };
        let make = (|| (self.lend(k, dim), 0), <(Vec<u32>, Scratch<T>)>::default);
        let mut sums = (Loan { sums: total.sums.take(), home: total.home }, 0);
        let tile_rows = batch_tile_rows(k, row_values(batch).min(dim));
        let done = sweep(batch, cx, tile_rows, (), &mut sums, make, absorb, merge);
        total.sums = sums.0.sums.take();
        done?;
        if sums.1 == 0 { Err(Error::no_rows()) } else { Ok(sums.1) }
    }
}

impl Loan<'_> {
    /// The borrowed sums. Weights and squared errors are current, but sparse rows may still be buffered:
    /// merge before reading the sums themselves.
    pub(in crate::kmeans) fn sums(&mut self) -> &mut ClusterSums {
        self.sums.as_mut().expect("taken only when dropped")
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if let Some(sums) = self.sums.take() {
            self.home.0.lock().unwrap_or_else(PoisonError::into_inner).push(sums);
        }
    }
}
