//! The batch of nested mini-batch k-means: which rows it holds, and when it grows.

use super::solver::Nested;
use crate::error::Result;
use crate::kernel::{self, Compute};
use crate::matrix::MatRef;
use crate::shuffle::Shuffle;
use crate::stats::ClusterSums;

/// Merges two ascending lists. Also returns the new positions of the entries of `old`.
fn merged(old: &[u64], fresh: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (mut all, mut places) = (Vec::with_capacity(old.len() + fresh.len()), Vec::with_capacity(old.len()));
    let mut fresh = fresh.iter().copied().peekable();
    for &row in old {
        while let Some(earlier) = fresh.next_if(|&other| other < row) {
            all.push(earlier);
        }
        places.push(all.len() as u64);
        all.push(row);
    }
    all.extend(fresh);
    (all, places)
}

impl<T: Compute> Nested<T> {
    /// Number of rows in the batch.
    pub(super) fn batch(&self) -> usize {
        self.labels.of_rows.len()
    }

    /// Grows the batch to `due` of the `n` rows.
    pub(super) fn admit(&mut self, n: u64) -> Result<()> {
        let (old, due) = (self.batch(), self.due as usize);
        if due <= old {
            return Ok(());
        }
        self.labels.make_room(due)?;
        let mut places = None;
        if self.params.shuffle && !self.fed {
            let before = std::mem::take(&mut self.rows);
            if self.due == n {
                // The batch is all rows: row `i` moves to position `i`.
                places = Some(before);
            } else {
                let order = Shuffle::new(n, self.params.rng_seed);
                let mut fresh: Vec<u64> = (old as u64..self.due).map(|i| order.at(i)).collect();
                fresh.sort_unstable();
                let (rows, of_old) = merged(&before, &fresh);
                self.rows = rows;
                places = Some(of_old);
            }
        }
        self.labels.grow(|i| places.as_ref().map_or(i, |at| at[i] as usize), due, self.params.bounds_memory);
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
