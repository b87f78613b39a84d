//! Starving centers of mini-batch k-means: finds them and picks rows of the batch to move them to.

use super::solver::MiniBatchSolver;
use super::state::MiniBatchState;
use crate::data::{DataSource, take};
use crate::error::Result;
use crate::kernel::Compute;
use crate::rng::{Purpose, Rng};
use crate::seeding::draw;

impl<T: Compute> MiniBatchSolver<T> {
    /// Whether a search for starving centers is due after a batch of `rows` rows.
    pub(super) fn looks_for_starving(&self, rows: u64) -> bool {
        self.state.since_reassigned + rows >= 10 * self.params.n_clusters as u64
    }

    /// The centers that starve once the weights `added` of a batch are in, and a row of the batch for each.
    /// At most half as many as the batch has rows.
    pub(super) fn places(
        &self,
        batch: &dyn DataSource<T>,
        rows: u64,
        added: &[f64],
    ) -> Result<Option<(Vec<usize>, Vec<T>)>> {
        if self.params.reassignment_ratio <= 0.0 || !self.looks_for_starving(rows) {
            return Ok(None);
        }
        let fade = self.fade(rows).unwrap_or(1.0);
        let weights: Vec<f64> =
            self.state.clusters.weights().iter().zip(added).map(|(old, new)| old * fade + new).collect();
        let enough = self.params.reassignment_ratio * weights.iter().copied().fold(0.0, f64::max);
        let mut starving: Vec<usize> = (0..weights.len()).filter(|&j| weights[j] < enough).collect();
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
        Ok(Some((starving, take(batch, &drawn)?)))
    }
}

impl<T: Compute> MiniBatchState<T> {
    /// The smallest weight among the centers that do not starve. Restarted centers get this weight, so that
    /// they do not starve again at once.
    pub(super) fn least_but(&self, starving: &[usize]) -> f64 {
        let others = self.clusters.weights().iter().enumerate();
        let others = others.filter(|(j, _)| starving.binary_search(j).is_err()).map(|(_, &weight)| weight);
        others.fold(f64::INFINITY, f64::min)
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
