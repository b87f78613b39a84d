//! Starving centers of mini-batch k-means: finds them and picks rows of the batch to move them to.

use super::solver::MiniBatchSolver;
use crate::data::{DataSource, take};
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters, Scratch, nearest_m};
use crate::matrix::MatRef;
use crate::parallel::Executor;
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

/// Rows of a batch whose distance is measured, at most.
const SAMPLE: u64 = 256;

/// Centers whose nearest other center a thread finds at a time, and all threads together.
const BLOCK: (usize, usize) = (32, 1024);

impl<T: Compute> MiniBatchSolver<T> {
    /// Whether a search for starving centers is due after a batch of `rows` rows.
    pub(super) fn looks_for_starving(&self, rows: u64) -> bool {
        self.state.since_reassigned + rows >= 10 * self.params.n_clusters as u64
    }

    /// The centers that starve once the rows of a batch are `added`, and a row of the batch for each. At most half as
    /// many as the batch has rows, the lightest.
    ///
    /// A center with few rows starves only if removing it costs at most what one more center elsewhere saves: that of a
    /// rare group, far from all others, stays.
    pub(super) fn places(
        &self,
        batch: &dyn DataSource<T>,
        rows: u64,
        added: &ClusterSums,
        cx: &Executor,
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
        let starving: Vec<usize> = (0..weights.len()).filter(|&j| weights[j] < enough).collect();
        let fed = weights.iter().copied().filter(|&weight| weight >= enough).fold(f64::INFINITY, f64::min);
        if starving.is_empty() {
            return Ok(None);
        }
        let packed = PackedCenters::new(MatRef::new(&self.state.centers, self.state.dim));
        // What one more of `k` centers saves: squared errors fall as `k^(-2 / dim)` (Zador, 1982).
        let share = (2.0 / self.state.dim as f64).min(1.0) / weights.len() as f64;
        let saved = share * weights.iter().sum::<f64>() * usual_error(batch, rows, &packed)?;
        // A given center counts as a row that does not exist. With a half-life, this row fades like all others.
        let given = self.state.seeded_by == "given" && self.params.half_life.is_none();
        let own = if given { 1.0 } else { 0.0 };
        let cheap = |j: usize, sq_dist: f64| (weights[j] - own).max(0.0) * sq_dist <= saved;
        let most = (rows / 2) as usize;
        let mut starving = worthless(&packed, starving, &weights, most, cx, cheap)?;
        let rng = &mut Rng::keyed(self.state.seed, Purpose::Reassignment, self.state.n_steps);
        let mut drawn = draw(rows, batch.weights(), starving.len(), rng);
        if let Some(weights) = batch.weights() {
            drawn.retain(|&row| weights[row as usize] > 0.0);
            starving.truncate(drawn.len());
        }
        Ok(Some(Starving { rows: take(batch, &drawn)?, centers: starving, weight: fed }))
    }
}

/// The squared distance of a usual row of a batch to its center: the median over some rows. A mean would be large if a
/// single row were far from all centers.
fn usual_error<T: Compute>(batch: &dyn DataSource<T>, rows: u64, packed: &PackedCenters<T>) -> Result<f64> {
    let has_weight = |&row: &u64| batch.weights().is_none_or(|weights| weights[row as usize] > 0.0);
    let some: Vec<u64> = (0..rows).step_by(rows.div_ceil(SAMPLE) as usize).filter(has_weight).collect();
    if some.is_empty() {
        return Ok(0.0);
    }
    let rows = take(batch, &some)?;
    let (mut labels, mut sq_dists) = (vec![0; some.len()], vec![0.0; some.len()]);
    nearest_m(
        MatRef::new(&rows, batch.dim()),
        packed,
        1,
        &mut labels,
        &mut sq_dists,
        &mut Scratch::default(),
    );
    let middle = sq_dists.len() / 2;
    Ok(*sq_dists.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The lightest `most` of the centers `starving` that are `cheap` to remove, ascending. `cheap` takes a center and its
/// squared distance to the nearest other center.
fn worthless<T: Compute>(
    packed: &PackedCenters<T>,
    mut starving: Vec<usize>,
    weights: &[f64],
    most: usize,
    cx: &Executor,
    cheap: impl Fn(usize, f64) -> bool,
) -> Result<Vec<usize>> {
    let centers = packed.centers();
    // The lower index first among equals.
    starving.sort_by(|&i, &j| weights[i].total_cmp(&weights[j]).then(i.cmp(&j)));
    let mut kept = Vec::new();
    for block in starving.chunks(BLOCK.1) {
        let mut sq_dists = vec![f64::INFINITY; block.len()];
        let parts = block.chunks(BLOCK.0).zip(sq_dists.chunks_mut(BLOCK.0));
        cx.for_each(parts, Scratch::default, |(block, sq_dists), scratch| {
            let rows: Vec<T> = block.iter().flat_map(|&j| centers.row(j)).copied().collect();
            // A center is among the two nearest to itself, or coincides with both.
            let (mut near, mut both) = (vec![0; 2 * block.len()], vec![0.0; 2 * block.len()]);
            nearest_m(MatRef::new(&rows, centers.cols()), packed, 2, &mut near, &mut both, scratch);
            for (i, &j) in block.iter().enumerate() {
                sq_dists[i] = both[2 * i + usize::from(near[2 * i] as usize == j)];
            }
            Ok(())
        })?;
        kept.extend(block.iter().zip(&sq_dists).filter(|&(&j, &sq_dist)| cheap(j, sq_dist)).map(|(&j, _)| j));
        if kept.len() >= most {
            kept.truncate(most);
            break;
        }
    }
    kept.sort_unstable();
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::fit::SolverState;
    use crate::kernel::sq_dist;
    use crate::kmeans::MiniBatch;

    #[test]
    fn it_looks_once_per_ten_rows_of_each_center() {
        let mut solver = MiniBatchSolver::<f64>::plan(&MiniBatch::params(3));
        assert!(!solver.looks_for_starving(29) && solver.looks_for_starving(30));
        solver.state.since_reassigned = 25;
        assert!(!solver.looks_for_starving(4) && solver.looks_for_starving(5));
    }

    #[test]
    fn the_lightest_centers_that_are_cheap_by_definition() {
        let rng = &mut Rng::keyed(3, Purpose::Seeding, 0);
        let (k, dim) = (2500, 3);
        let mut values: Vec<f64> = (0..k * dim).map(|_| rng.unit()).collect();
        // Centers that coincide.
        values.copy_within(0..12, 12);
        values.copy_within(0..12, 24);
        let weights: Vec<f64> = (0..k).map(|_| (rng.unit() * 50.0).floor()).collect();
        let centers = MatRef::new(&values, dim);
        let starving: Vec<usize> = (0..k).filter(|&j| weights[j] < 45.0).collect();
        let packed = PackedCenters::new(centers);
        let cheap = |j: usize, sq_dist: f64| weights[j] * sq_dist <= 0.01;
        let mut expected: Vec<usize> = starving
            .iter()
            .copied()
            .filter(|&j| (0..k).any(|l| l != j && cheap(j, sq_dist(centers.row(j), centers.row(l)))))
            .collect();
        expected.sort_by(|&i, &j| weights[i].total_cmp(&weights[j]).then(i.cmp(&j)));
        assert!(expected.len() > 100 && expected.len() < starving.len() - 100);
        for threads in [1, 3] {
            let cx = Executor::new(Some(threads)).unwrap();
            for most in [0, 60, k] {
                let found = worthless(&packed, starving.clone(), &weights, most, &cx, cheap).unwrap();
                let mut lightest = expected[..most.min(expected.len())].to_vec();
                lightest.sort_unstable();
                assert_eq!(found, lightest);
            }
            cx.interrupt().set();
            let stopped = worthless(&packed, starving.clone(), &weights, k, &cx, cheap);
            assert!(matches!(stopped, Err(Error::Interrupted)));
        }
    }
}
