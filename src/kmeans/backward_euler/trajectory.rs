//! This module knows the implicit step: a fixed-point iteration about an anchor, and the average of its iterates.

use crate::kernel::Compute;
use crate::stats::ClusterSums;
use crate::tuning::{DIVERGED, MOST_SQ_MOVE};

/// How far a batch moves the iterate, and how much of it the average takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pull {
    /// The paper's gamma.
    pub(super) step_size: f64,
    /// The most that a center is pulled to the mean of its rows, in parts of its distance from it.
    pub(super) cap: f64,
    /// The share of the average that stays: the paper's alpha.
    pub(super) averaging: f64,
}

/// Anchor, iterate and average, `dim` values a center: the paper's x, y and the x with a bar.
#[derive(Clone, Debug, Default)]
pub(super) struct Trajectory {
    pub(super) dim: usize,
    pub(super) anchor: Vec<f64>,
    pub(super) iterate: Vec<f64>,
    pub(super) mean: Vec<f64>,
    /// Inner iterations that were made about this anchor.
    pub(super) inner: u64,
    pub(super) scale: Scale,
}

/// How far rows are spread, from what batches came to so far: it knows nothing of where centers went, and a row far from all others widens it.
#[derive(Clone, Debug, Default)]
pub(super) struct Scale {
    /// The mean of the first batch; empty before.
    pub(super) middle: Vec<f64>,
    /// The most that means of clusters were ever away from there, as a mean of squares over a batch, and the squared error of the first one.
    pub(super) sq_dist: f64,
}

impl Scale {
    /// Takes in a batch of that `weight`.
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

/// The mean squared distance of the mean of each cluster to its one of `centers`, over a batch of that `weight`.
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
    /// Before the first iteration.
    pub(super) fn new<T: Compute>(dim: usize, centers: &[T]) -> Self {
        let anchor: Vec<f64> = centers.iter().map(|c| c.to_f64()).collect();
        Self { dim, iterate: anchor.clone(), mean: anchor.clone(), anchor, inner: 0, scale: Scale::default() }
    }

    /// The iterate in the type that rows are labelled in.
    pub(super) fn rounded<T: Compute>(&self) -> Vec<T> {
        self.iterate.iter().map(|&y| T::from_f64(y)).collect()
    }

    /// One inner iteration: `sums` are those of a batch of weight `weight`, labelled by the iterate.
    ///
    /// What the mini-batch gradient `(weight of j / weight) (y_j - mean of j)` and the step size make is a pull to the mean of the rows by a
    /// share `t`, from the anchor on. A center without rows is pulled by nothing: it is back at the anchor.
    /// Gives whether iterate and average are still where rows of type `T` can be labelled by them, and to some purpose.
    pub(super) fn pull<T: Compute>(&mut self, sums: &ClusterSums, weight: f64, by: &Pull) -> bool {
        self.scale.widen(sums, weight);
        let Self { dim, anchor, iterate, mean, .. } = self;
        for (j, &of_j) in sums.weights().iter().enumerate() {
            let range = j * *dim..(j + 1) * *dim;
            let (x, y) = (&anchor[range.clone()], &mut iterate[range.clone()]);
            if of_j > 0.0 {
                let t = (by.step_size * (of_j / weight)).min(by.cap);
                for ((y, x), sum) in y.iter_mut().zip(x).zip(sums.sum(j)) {
                    *y = x - t * (*y - sum / of_j);
                }
            } else {
                y.copy_from_slice(x);
            }
            // An iterate that has not moved leaves the average as it is, to the bit.
            for (mean, y) in mean[range].iter_mut().zip(y) {
                *mean += (1.0 - by.averaging) * (*y - *mean);
            }
        }
        self.inner += 1;
        self.is_finite::<T>() && !self.is_far(sums, weight)
    }

    /// Whether the batch is so far from the iterate or the average that there is no way back: nothing that is measured on the way to there is
    /// near.
    fn is_far(&self, sums: &ClusterSums, weight: f64) -> bool {
        let limit = DIVERGED * self.scale.sq_dist;
        let far = |centers: &[f64]| mean_sq_dist(sums, weight, centers.iter().copied()) > limit;
        // Equal rows have no scale.
        limit > 0.0 && (far(&self.iterate) || far(&self.mean))
    }

    /// Whether the iterate and the average are centers that rows of type `T` can be labelled by.
    fn is_finite<T: Compute>(&self) -> bool {
        let finite = |values: &[f64]| values.iter().all(|&v| T::from_f64(v).finite());
        let moved: f64 = self.iterate.iter().zip(&self.anchor).map(|(y, x)| (y - x).powi(2)).sum();
        finite(&self.iterate) && finite(&self.mean) && moved <= MOST_SQ_MOVE
    }

    /// Ends the outer step: the average is the new anchor.
    pub(super) fn close(&mut self) {
        self.anchor.clone_from(&self.mean);
        self.begin_again();
    }

    /// Drops what was done about this anchor.
    pub(super) fn reject(&mut self) {
        self.mean.clone_from(&self.anchor);
        self.begin_again();
    }

    fn begin_again(&mut self) {
        self.iterate.clone_from(&self.anchor);
        self.inner = 0;
    }
}
