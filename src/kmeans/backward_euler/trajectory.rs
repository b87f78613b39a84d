//! The implicit step: a fixed-point iteration about an anchor, and the running average of its iterates.

use crate::centers::project;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::stats::{ClusterSums, divisor};
use crate::tuning::MOST_SQ_MOVE;

/// A step of backward Euler has diverged when the mean squared distance of a batch to its centers is this
/// many times the scale of the rows. On Iris the longest useful step (2 per cluster) reaches 100 times, the
/// longest step that converges (2.7) reaches 1300, and values beyond a million grow without limit.
const DIVERGED: f64 = 1e6;

/// Parameters of an inner iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerStep {
    /// gamma in the paper.
    pub(super) step_size: f64,
    /// Upper limit on the fraction of the way from a center to the mean of its rows that one iteration moves
    /// it.
    pub(super) cap: f64,
    /// Weight of the old average when an iterate is added: alpha in the paper.
    pub(super) averaging: f64,
    /// With the cosine metric, the mean of rows is the direction of their sum, and iterates and averages are
    /// projected to the unit sphere.
    pub(super) metric: Metric,
}

/// Anchor, iterate and average, `dim` values per center: x, y and x-bar in the paper.
#[derive(Clone, Debug, Default)]
pub(super) struct Trajectory {
    pub(super) dim: usize,
    pub(super) anchor: Vec<f64>,
    pub(super) iterate: Vec<f64>,
    pub(super) mean: Vec<f64>,
    /// Inner iterations since the anchor was set.
    pub(super) inner: u64,
    pub(super) scale: Scale,
}

/// Spread of the rows, estimated from the batches so far. Independent of the centers; an outlying row widens
/// it.
#[derive(Clone, Debug, Default)]
pub(super) struct Scale {
    /// Mean of the first batch; empty before it.
    pub(super) middle: Vec<f64>,
    /// Maximum, over the batches so far, of the weighted mean squared distance of the cluster means from
    /// `middle`. Starts at the mean squared error of the first batch.
    pub(super) sq_dist: f64,
}

impl Scale {
    fn widen(&mut self, sums: &ClusterSums, weight: f64) {
        if self.middle.is_empty() {
            self.middle = vec![0.0; sums.sum(0).len()];
            for j in 0..sums.weights().len() {
                self.middle.iter_mut().zip(sums.sum(j)).for_each(|(middle, sum)| *middle += sum / weight);
            }
            self.sq_dist = sums.energy() / weight;
        }
        let middles = self.middle.iter().copied().cycle();
        self.sq_dist = self.sq_dist.max(mean_sq_dist(sums, weight, middles));
    }
}

/// Weighted mean over clusters of the squared distance from the cluster's mean to its entry in `centers`, for
/// a batch of total weight `weight`.
fn mean_sq_dist(sums: &ClusterSums, weight: f64, mut centers: impl Iterator<Item = f64>) -> f64 {
    let mut total = 0.0;
    for (j, &of_j) in sums.weights().iter().enumerate() {
        let pairs = sums.sum(j).iter().zip(&mut centers);
        if of_j > 0.0 {
            total += of_j / weight * pairs.map(|(sum, c)| (sum / of_j - c).powi(2)).sum::<f64>();
        } else {
            pairs.for_each(drop);
        }
    }
    total
}

impl Trajectory {
    pub(super) fn new<T: Compute>(dim: usize, centers: &[T]) -> Self {
        let anchor: Vec<f64> = centers.iter().map(|c| c.to_f64()).collect();
        Self { dim, iterate: anchor.clone(), mean: anchor.clone(), anchor, inner: 0, scale: Scale::default() }
    }

    /// The iterate, rounded to the compute type of the rows.
    pub(super) fn rounded<T: Compute>(&self) -> Vec<T> {
        self.iterate.iter().map(|&y| T::from_f64(y)).collect()
    }

    /// One inner iteration, from the sums of a batch of total weight `weight` that was labeled with the
    /// iterate.
    ///
    /// The step moves the anchor against the mini-batch gradient `(weight of j / weight) (y_j - mean of j)`.
    /// The product of step size and cluster share is limited by `cap`. A center without rows returns to the
    /// anchor. Returns `false` if the iterate or the average diverged: not finite in `T`, or too far from the
    /// rows.
    pub(super) fn pull<T: Compute>(&mut self, sums: &ClusterSums, weight: f64, by: &InnerStep) -> bool {
        self.scale.widen(sums, weight);
        let Self { dim, anchor, iterate, mean, .. } = self;
        for (j, &of_j) in sums.weights().iter().enumerate() {
            let range = j * *dim..(j + 1) * *dim;
            let (x, y) = (&anchor[range.clone()], &mut iterate[range.clone()]);
            let divisor = divisor(by.metric, sums.sum(j), of_j);
            if divisor > 0.0 {
                let t = (by.step_size * (of_j / weight)).min(by.cap);
                for ((y, x), sum) in y.iter_mut().zip(x).zip(sums.sum(j)) {
                    *y = x - t * (*y - sum / divisor);
                }
                project(y, *dim, by.metric);
            } else {
                y.copy_from_slice(x);
            }
            // Written as an increment, so that an iterate at the average leaves it bit-identical.
            for (mean, y) in mean[range.clone()].iter_mut().zip(y) {
                *mean += (1.0 - by.averaging) * (*y - *mean);
            }
            project(&mut mean[range], *dim, by.metric);
        }
        self.inner += 1;
        self.is_finite::<T>() && !self.is_far(sums, weight)
    }

    /// Whether the batch is more than `DIVERGED` times the spread of the rows away from the iterate or the
    /// average.
    fn is_far(&self, sums: &ClusterSums, weight: f64) -> bool {
        let limit = DIVERGED * self.scale.sq_dist;
        let far = |centers: &[f64]| mean_sq_dist(sums, weight, centers.iter().copied()) > limit;
        // If all rows are equal, there is no spread to compare with.
        limit > 0.0 && (far(&self.iterate) || far(&self.mean))
    }

    /// Whether the iterate and the average are finite in `T` and the move is short enough to square.
    fn is_finite<T: Compute>(&self) -> bool {
        let finite = |values: &[f64]| values.iter().all(|&v| T::from_f64(v).finite());
        let moved: f64 = self.iterate.iter().zip(&self.anchor).map(|(y, x)| (y - x).powi(2)).sum();
        finite(&self.iterate) && finite(&self.mean) && moved <= MOST_SQ_MOVE
    }

    /// Ends the outer step: the average becomes the anchor.
    pub(super) fn close(&mut self) {
        self.anchor.clone_from(&self.mean);
        self.begin_again();
    }

    /// Discards the iterations since the anchor was set.
    pub(super) fn reject(&mut self) {
        self.mean.clone_from(&self.anchor);
        self.begin_again();
    }

    fn begin_again(&mut self) {
        self.iterate.clone_from(&self.anchor);
        self.inner = 0;
    }
}
