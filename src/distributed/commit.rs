//! How the sums of a sweep move the centers: for all clusters at once, or range by range on the workers that hold the sums.
//!
//! A range reports what it found ([`Found`]). The driver decides from the reports what follows ([`Plan`]), every range
//! moves its centers ([`Moved`]), and [`Head::commit`] adds up the moves. Numbers per cluster are added in the order of
//! the clusters, and all other sums are exact, so that results do not depend on the ranges.

use serde_json::json;

use super::clusters::ClusterTotals;
use super::errors::of_others;
use super::extent::Before;
use super::message::Message;
use super::numbers::size_of_object;
use super::picked::Picked;
use crate::data::no_weight;
use crate::error::{Error, Result};
use crate::fit::{Metric, Step, StopReason};
use crate::kernel::{self, Compute};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::persist::kept::{flag, keep, list, number};
use crate::persist::state::are_weights;
use crate::persist::{Array, Contents};
use crate::seeding::enough_rows;
use crate::stats::{ClusterSums, check_energy, check_mean, sum_of, to_mean};

/// A distributed sweep sums squared errors about the centers of an earlier sweep while the moves since then, squared and
/// weighted, add up to at most this share of the squared errors. Converting the sums to the centers then rounds away about
/// one bit.
const CARRIED_MOVES: f64 = 1.0;

/// What a sweep of k-means knows besides its centers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) dim: usize,
    pub(super) metric: Metric,
    pub(crate) before: Before,
    /// The weighted variance of the rows, averaged over the columns, as the last sweep measured it; NaN before.
    pub(crate) variance: f64,
    /// The weight per cluster in the last sweep; zeros before.
    pub(crate) weights: Vec<f64>,
    /// Squared errors may be summed about centers of an earlier sweep.
    pub(super) carries: bool,
}

/// The clusters of a range, whose centers move. Squared errors are about the points.
pub(super) struct Moving<T> {
    first: usize,
    centers: Vec<T>,
    points: Vec<T>,
    clusters: ClusterSums,
    far: Picked,
}

/// What a range of clusters reports before its centers move.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) first: usize,
    pub(super) weights: Vec<f64>,
    /// Squared errors per cluster, about the points and about the centers.
    pub(super) about_points: Vec<f64>,
    pub(super) about_centers: Vec<f64>,
    /// All clusters of the range as one.
    pub(super) together: ClusterSums,
    /// The farthest rows of all clusters, from one range.
    pub(super) far: Picked,
}

/// What follows from the reports of all ranges.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(super) now: Before,
    pub(crate) objective: f64,
    /// The weight per cluster, before rows move to empty clusters.
    #[cfg_attr(not(any(test, feature = "python")), expect(dead_code, reason = "for Python"))]
    pub(crate) weights: Vec<f64>,
    /// The squared errors about the points.
    pub(super) about_points: f64,
    /// The weight of all rows.
    pub(super) weight: f64,
    pub(crate) moves: Moves,
}

/// What every range must know to move its centers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moves {
    /// The mean of all rows.
    pub(super) mean: Vec<f64>,
    pub(super) far: Picked,
    /// The empty clusters to which the first of the farthest rows move.
    pub(super) to: Vec<u32>,
}

/// What a range reports of its moves.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moved {
    pub(super) first: usize,
    pub(super) weights: Vec<f64>,
    /// The squared length of every move.
    pub(super) shifts: Vec<f64>,
    /// The weighted squared distance of every new center from its point.
    pub(super) off: Vec<f64>,
    /// What the squared error of every cluster about the mean of all rows is above that about its point.
    pub(super) spread: Vec<f64>,
    /// Whether a new center differs from its point.
    pub(super) differs: bool,
}

impl<T: Compute> Moving<T> {
    /// The clusters of `total` at these centers and points.
    pub(super) fn new(total: ClusterTotals, centers: Vec<T>, points: Vec<T>) -> Result<Self> {
        let ClusterTotals { first, dim, clusters, far, .. } = total;
        let values = clusters.weights().len() * dim;
        if (centers.len(), points.len()) != (values, values) {
            return Err(of_others());
        }
        Ok(Self { first, centers, points, clusters, far })
    }

    /// What the driver must know.
    ///
    /// # Errors
    /// If a mean overflows.
    pub(super) fn found(&mut self) -> Result<Found> {
        let (first, clusters) = (self.first, &mut self.clusters);
        let (weights, dim) = (clusters.weights().to_vec(), clusters.shape().1);
        for (j, &weight) in weights.iter().enumerate().filter(|&(_, &weight)| weight > 0.0) {
            check_mean::<T>(first + j, weight, clusters.sum(j).iter().copied())?;
        }
        let about_points = clusters.energies().to_vec();
        if self.points != self.centers {
            let (points, centers) = (MatRef::new(&self.points, dim), MatRef::new(&self.centers, dim));
            clusters.follow(points, centers, Executor::caller());
        }
        let (about_centers, together) = (clusters.energies().to_vec(), clusters.together());
        Ok(Found { first, weights, about_points, about_centers, together, far: self.far.clone() })
    }

    /// The new centers, and what the driver must know of their moves.
    pub(super) fn moved(self, head: &Head, moves: &Moves) -> (Vec<T>, Moved) {
        let Self { first, mut centers, points, mut clusters, .. } = self;
        let (k, dim) = clusters.shape();
        let spread = |(j, point)| spread::<T>(point, (clusters.sum(j), clusters.weights()[j]), &moves.mean);
        let spread = points.chunks_exact(dim).enumerate().map(spread).collect();
        for (i, (&to, entry)) in moves.to.iter().zip(&moves.far.entries).enumerate() {
            let row = moves.far.row::<T>(i);
            for (j, weight) in [(entry.label, -entry.weight), (to, entry.weight)] {
                if let Some(own) = (j as usize).checked_sub(first).filter(|&own| own < k) {
                    clusters.add_row(&row, weight, own);
                }
            }
        }
        let weights = clusters.weights().to_vec();
        let mut shifts = vec![0.0; k];
        for (j, center) in centers.chunks_exact_mut(dim).enumerate() {
            to_mean(center, head.metric, (clusters.sum(j), weights[j]), &mut shifts[j]);
        }
        let mut off = Vec::new();
        if head.carries {
            let pairs = points.chunks_exact(dim).zip(centers.chunks_exact(dim)).zip(&weights);
            off = pairs.map(|((point, center), weight)| weight * kernel::sq_dist(point, center)).collect();
        }
        let differs = points != centers;
        (centers, Moved { first, weights, shifts, off, spread, differs })
    }
}

/// What the squared error about `mean` is above that about `point`, for rows with this sum and weight.
fn spread<T: Compute>(point: &[T], (sum, weight): (&[f64], f64), mean: &[f64]) -> f64 {
    let (n, sum, mean) = (point.len(), &sum[..point.len()], &mean[..point.len()]);
    sum_of(n, |t| {
        let point = point[t].to_f64();
        let off = point - mean[t];
        off * (2.0 * (sum[t] - weight * point) + weight * off)
    })
}

/// The numbers of all clusters from those of the ranges, in order.
fn in_order<'a>(k: usize, ranges: impl Iterator<Item = (usize, &'a Vec<f64>)>) -> Result<Vec<f64>> {
    let mut all = Vec::with_capacity(k);
    for (first, numbers) in ranges {
        if first != all.len() {
            return Err(of_others());
        }
        all.extend(numbers);
    }
    if all.len() == k { Ok(all) } else { Err(of_others()) }
}

impl Head {
    pub(crate) fn n_clusters(&self) -> usize {
        self.weights.len()
    }

    /// The same for a sweep of workers that keep state.
    pub(crate) fn carrying(self) -> Self {
        Self { carries: true, ..self }
    }

    /// What follows from the reports of all ranges, in order. `now` is what the next pass knows of this one.
    ///
    /// # Errors
    /// If there are fewer rows than clusters, if no row has weight, or if the squared error overflows.
    pub(super) fn plan(&self, now: Before, found: &[Found]) -> Result<Plan> {
        let numbers =
            |of: fn(&Found) -> &Vec<f64>| in_order(self.n_clusters(), found.iter().map(|f| (f.first, of(f))));
        let weights = numbers(|found| &found.weights)?;
        enough_rows(now.rows(), weights.len())?;
        if weights.iter().sum::<f64>() <= 0.0 {
            return Err(no_weight());
        }
        let about_points = numbers(|found| &found.about_points)?.iter().sum();
        check_energy(about_points)?;
        // Rounding can make the converted squared errors slightly negative.
        let objective = numbers(|found| &found.about_centers)?.iter().sum::<f64>().max(0.0);
        let mut together = ClusterSums::new(1, self.dim);
        let mut far = Picked::new(self.dim, 0, false);
        for range in found {
            if range.together.shape() != (1, self.dim) {
                return Err(of_others());
            }
            together.merge(&mut range.together.clone());
            if !range.far.entries.is_empty() {
                far = range.far.clone();
            }
        }
        let weight = together.weights()[0];
        let mean = together.sum(0).iter().map(|sum| sum / weight).collect();
        let empty = (0u32..).zip(&weights).filter(|&(_, &weight)| weight <= 0.0).map(|(j, _)| j);
        let to: Vec<u32> = empty.take(far.entries.len()).collect();
        if to.is_empty() {
            far.clear();
        }
        Ok(Plan { now, objective, weights, about_points, weight, moves: Moves { mean, far, to } })
    }

    /// What the next sweep knows besides its centers, the figures of this one, and whether the next one sums squared errors
    /// about the points of this one.
    pub(super) fn commit(&self, plan: Plan, moved: &[Moved]) -> Result<(Self, Step, bool)> {
        let Plan { now, objective, about_points, weight, moves, .. } = plan;
        let k = self.n_clusters();
        let numbers =
            |of: fn(&Moved) -> &Vec<f64>| in_order(k, moved.iter().map(|moved| (moved.first, of(moved))));
        let sum = |of| Ok::<_, Error>(numbers(of)?.iter().fold(0.0, |sum, number| sum + number));
        let by = sum(|moved| &moved.shifts)?;
        let about_mean = about_points + sum(|moved| &moved.spread)?;
        let variance = (about_mean / weight / self.dim as f64).max(0.0);
        let differs = self.carries && moved.iter().any(|moved| moved.differs);
        let keeps_points = differs && sum(|moved| &moved.off)? <= CARRIED_MOVES * objective;
        let stop_reason = (by == 0.0 && moves.to.is_empty()).then_some(StopReason::LabelsStable);
        let step = Step { center_shift: by.sqrt(), stop_reason, ..now.step(k, objective) };
        let weights = numbers(|moved| &moved.weights)?;
        Ok((Self { before: now, variance, weights, ..self.clone() }, step, keeps_points))
    }
}

impl Message for Head {
    const KIND: &'static str = "distributed-kmeans-head";

    fn put(&self, contents: &mut Contents) {
        let mut numbers = json!({
            "dim": self.dim,
            "metric": self.metric.name(),
            "variance": self.variance.to_bits(),
            "carries": self.carries,
        });
        self.before.put("iteration", &mut numbers);
        contents.meta.insert("pass".into(), numbers.to_string());
        keep(contents, "weights", Array::new(&[self.weights.len()], &self.weights));
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let numbers = contents.object("pass")?;
        let (dim, metric) = (size_of_object(&numbers, "dim")?, Metric::of_object(&numbers)?);
        let weights: Vec<f64> = list(contents, "weights")?;
        if !are_weights(&weights) {
            return Err("its weights are damaged".into());
        }
        let before = Before::of_object("iteration", &numbers, dim)?;
        let variance = number(&numbers, "variance")?;
        // Passes of earlier versions carry nothing.
        let carries = numbers.contains_key("carries") && flag(&numbers, "carries")?;
        Ok(Self { dim, metric, before, variance, weights, carries })
    }
}
