//! Starving centers of mini-batch k-means: finds them and picks rows of the batch to move them to.

use super::solver::MiniBatchSolver;
use crate::data::{DataSource, take};
use crate::error::Result;
use crate::kernel::{Compute, sq_dist};
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};
use crate::seeding::draw;
use crate::stats::ClusterSums;

/// Centers that starve, and where they go.
pub(super) struct Starving<T> {
    pub(super) centers: Vec<usize>,
    /// A row for each, one after the other.
    pub(super) rows: Vec<T>,
    /// The smallest weight that is enough. They get it, so that they do not starve again at once.
    pub(super) weight: f64,
}

impl<T: Compute> MiniBatchSolver<T> {
    /// Whether a search for starving centers is due after a batch of `rows` rows.
    pub(super) fn looks_for_starving(&self, rows: u64) -> bool {
        self.state.since_reassigned + rows >= 10 * self.params.n_clusters as u64
    }

    /// The centers that starve once the rows of a batch are `added`, and a row of the batch for each. At most half as many
    /// as the batch has rows.
    ///
    /// A center with few rows starves only if removing it costs at most what a mean cluster adds to the squared error: a
    /// center of a rare group, far from all others, is worth more than one more center elsewhere.
    pub(super) fn places(
        &self,
        batch: &dyn DataSource<T>,
        rows: u64,
        added: &ClusterSums,
    ) -> Result<Option<Starving<T>>> {
        if self.params.reassignment_ratio <= 0.0 || !self.looks_for_starving(rows) {
            return Ok(None);
        }
        let fade = self.fade(rows).unwrap_or(1.0);
        let weights: Vec<f64> = self
            .state
            .clusters
            .weights()
            .iter()
            .zip(added.weights())
            .map(|(old, new)| old * fade + new)
            .collect();
        let enough = self.params.reassignment_ratio * weights.iter().copied().fold(0.0, f64::max);
        let mut starving: Vec<usize> = (0..weights.len()).filter(|&j| weights[j] < enough).collect();
        let fed = weights.iter().copied().filter(|&weight| weight >= enough).fold(f64::INFINITY, f64::min);
        self.keep_worthless(&mut starving, &weights, added);
        let most = (rows / 2) as usize;
        if starving.len() > most {
            // Keep the lightest, the lower index first among equals.
            starving.sort_by(|&i, &j| weights[i].total_cmp(&weights[j]).then(i.cmp(&j)));
            starving.truncate(most);
            starving.sort_unstable();
        }
        if starving.is_empty() {
            return Ok(None);
        }
        let rng = &mut Rng::keyed(self.state.seed, Purpose::Reassignment, self.state.n_steps);
        let mut drawn = draw(rows, batch.weights(), starving.len(), rng);
        if let Some(weights) = batch.weights() {
            drawn.retain(|&row| weights[row as usize] > 0.0);
            starving.truncate(drawn.len());
        }
        Ok(Some(Starving { rows: take(batch, &drawn)?, centers: starving, weight: fed }))
    }

    /// Drops the centers whose removal costs more than the squared error of a mean cluster, estimated from a batch.
    fn keep_worthless(&self, starving: &mut Vec<usize>, weights: &[f64], batch: &ClusterSums) {
        let per_row = batch.energy() / batch.weights().iter().sum::<f64>();
        let mean = per_row * weights.iter().sum::<f64>() / weights.len() as f64;
        let centers = MatRef::new(&self.state.centers, self.state.dim);
        // A given center may be far from all rows: the row that it counts as is none.
        let own = f64::from(u8::from(self.state.seeded_by == "given"));
        starving.retain(|&j| {
            let weight = (weights[j] - own).max(0.0);
            let cheap = |l: usize| weight * sq_dist(centers.row(j), centers.row(l)) <= mean;
            (0..centers.rows()).any(|l| l != j && cheap(l))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::SolverState;
    use crate::kmeans::MiniBatch;

    #[test]
    fn it_looks_once_per_ten_rows_of_each_center() {
        let mut solver = MiniBatchSolver::<f64>::plan(&MiniBatch::params(3));
        assert!(!solver.looks_for_starving(29) && solver.looks_for_starving(30));
        solver.state.since_reassigned = 25;
        assert!(!solver.looks_for_starving(4) && solver.looks_for_starving(5));
    }
}
