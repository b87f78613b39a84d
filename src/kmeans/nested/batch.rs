//! The batch of nested mini-batch k-means: which rows it holds, and when it grows.

use super::members::Members;
use super::reading::with_batch;
use super::solver::Nested;
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{self, Compute};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::stats::ClusterSums;

impl<T: Compute> Nested<T> {
    /// Number of rows in the batch.
    pub(super) fn batch(&self) -> usize {
        self.labels.len()
    }

    /// Recomputes what a checkpoint does not hold, and labels that were dropped.
    pub(super) fn complete(&mut self, data: &dyn DataSource<T>, n: u64, cx: &Executor) -> Result<()> {
        if self.labels.are_lost() && !self.fed {
            // Rows that a failed sweep had admitted have no labels yet.
            self.labels.lose(self.voted as usize);
            self.rows = Members::First;
        }
        let (batch, drawn) = (self.batch() as u64, self.params.shuffle && !self.fed);
        if drawn && self.rows.are_first() && batch > 0 {
            self.rows = Members::First.grown(n, (0, batch), self.params.rng_seed)?;
        }
        if self.labels.are_lost() {
            let about = MatRef::new(&self.labeled_by, self.dim);
            let labels = &mut self.labels;
            with_batch(data, &self.rows, batch as usize, |rows| labels.recover(about, rows, cx))?;
        }
        Ok(())
    }

    /// Grows the batch to `due` of the `n` rows.
    pub(super) fn admit(&mut self, n: u64) -> Result<()> {
        let (old, due) = (self.batch(), self.due as usize);
        if due <= old {
            return Ok(());
        }
        self.labels.make_room(due)?;
        let rows = if self.params.shuffle && !self.fed {
            self.rows.grown(n, (old as u64, self.due), self.params.rng_seed)?
        } else {
            Members::First
        };
        let before = std::mem::replace(&mut self.rows, rows);
        let rows = &self.rows;
        self.labels.grow(|i| rows.place_of(before.row(i)), due, self.params.bounds_memory);
        // New rows have no vote yet, so the next sweep recomputes the sums.
        self.carry = false;
        (self.lowest, self.stalled) = (f64::INFINITY, 0);
        Ok(())
    }

    /// Whether the batch should grow: the smallest ratio of a center's statistical error to its last move
    /// exceeds `rho`, or nothing changes any more. `before` are the centers that the squared errors in `sums`
    /// refer to.
    pub(super) fn settled(&self, sums: &ClusterSums, before: MatRef<'_, T>) -> bool {
        let now = MatRef::new(&self.centers, self.dim);
        let mut ratio = f64::INFINITY;
        let mut still = true;
        for (j, (before, now)) in before.iter().zip(now.iter()).enumerate() {
            let moved = kernel::sq_dist(before, now).sqrt();
            still &= moved == 0.0;
            let rows = sums.effective_rows(j);
            if moved > 0.0 && rows >= 2.0 {
                let variance = sums.energies()[j].max(0.0) / sums.weights()[j];
                ratio = ratio.min((variance / (rows - 1.0)).sqrt() / moved);
            }
        }
        self.changed == 0 || still || ratio > self.params.rho
    }
}
