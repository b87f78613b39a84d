//! This module knows variance-reduced k-means as a state: an epoch is a sweep, the means of what it labels, and steps from there.

use std::ops::ControlFlow;
use std::time::Instant;

use super::draws::{Draws, Origin};
use super::inner::{Done, Inner, Start};
use super::{VarianceReducedParams, Variant};
use crate::data::{Access, Converted, DataSource, count_rows, row_bytes};
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::choice::Choice;
use crate::kmeans::labels::{Carried, Labels, Swept, sum_labelled};
use crate::kmeans::lloyd::{Timings, to_means};
use crate::kmeans::model::KMeansModel;
use crate::kmeans::params::{Algorithm, Metric};
use crate::kmeans::run::{CenterSolver, Snapshot};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::rng::{Purpose, Rng};
use crate::seeding::{Odds, enough_rows};
use crate::solver::{Solver, Step, StopReason};
use crate::stats::ClusterSums;
use crate::tuning::stretch_rows;

/// The most bytes of bounds.
const BOUNDS_MEMORY: u64 = 1_000_000_000;

/// The share by which an epoch may make the energy worse. What is more is taken back: steps that are too long leave all of the noise of their
/// rows in the centers.
const WORSE: f64 = 0.01;

/// Epochs in a row without enough progress after which a fit ends.
const STALLED: u64 = 2;

/// Variance-reduced k-means as a state: centers, labels, counts. `O(n)` labels and `O(k d)` sums.
///
/// `Step::objective` is the inertia that the sweep of the epoch measured: of its labels about the centers that the epoch started from.
/// `Step::n_changed` counts the labels that differ from those of the sweep before, `Step::rows_seen` the rows of sweeps and the steps.
#[derive(Clone, Debug)]
pub struct VarianceReducedSolver<T> {
    pub(super) params: VarianceReducedParams,
    pub(super) dim: usize,
    pub(super) centers: Vec<T>,
    /// The means that the last epoch stepped from: what it falls back to.
    pub(super) means: Vec<T>,
    pub(super) labels: Labels,
    /// Weight of each cluster at the last sweep, and its energy.
    pub(super) weights: Vec<f64>,
    pub(super) energy: f64,
    /// Sums of the rows by `labels`, with their squared error about `centers`: what the next sweep may start from.
    pub(super) carried: Option<Carried>,
    pub(super) choice: Choice,
    /// Known after the first sweep.
    pub(super) rate: Option<f64>,
    /// Epochs in a row without enough progress.
    pub(super) stalled: u64,
    /// `centers` are `means`: no step was made from there.
    pub(super) settled: bool,
    pub(super) iteration: u64,
    pub(super) rows_seen: u64,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
    pub(super) finished: Option<Finished<T>>,
}

/// What a fit ends in.
#[derive(Clone, Debug)]
pub(super) struct Finished<T> {
    centers: Vec<T>,
    labels: Vec<u32>,
    weights: Vec<f64>,
    inertia: f64,
}

/// A sweep by some centers, and the means of what it labelled.
struct Pass<T> {
    swept: Swept,
    means: Vec<T>,
}

impl<T: Compute> VarianceReducedSolver<T> {
    /// A plan: the first centers are chosen with the first epoch.
    pub(super) fn plan(params: VarianceReducedParams) -> Self {
        Self {
            params,
            dim: 0,
            centers: Vec::new(),
            means: Vec::new(),
            labels: Labels::default(),
            weights: Vec::new(),
            energy: f64::NAN,
            carried: None,
            choice: Choice::new(Algorithm::Auto, BOUNDS_MEMORY),
            rate: None,
            stalled: 0,
            settled: false,
            iteration: 0,
            rows_seen: 0,
            seeded_by: String::new(),
            timings: Timings::default(),
            finished: None,
        }
    }

    /// Chooses the first centers.
    fn begin(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        let k = self.params.n_clusters;
        let seeds = self.params.seeding.choose(data, k, self.params.seed, 0, cx)?;
        let n = count_rows(data)?;
        enough_rows(n, k)?;
        self.dim = data.dim();
        self.seeded_by = seeds.method;
        self.centers = seeds.centers;
        self.labels = Labels::new(n as usize);
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Labels all rows by `centers`. After an error the labels are those of the sweep before.
    fn pass(
        labels: &mut Labels,
        centers: MatRef<'_, T>,
        carried: Option<Carried>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Pass<T>> {
        let packed = labels.pack(centers, data.most_values().is_some());
        let swept = labels.sweep(&packed, None, (carried, None), data, cx)?;
        // A center without rows stays.
        let mut means = centers.data().to_vec();
        to_means(&mut means, centers.cols(), Metric::Euclidean, &swept.clusters);
        Ok(Pass { swept, means })
    }

    /// One epoch.
    fn epoch(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let (n, dim, k) = (self.labels.of_rows.len() as u64, self.dim, self.params.n_clusters);
        let sparse = data.most_values().is_some();
        let mut rate = self.rate.unwrap_or_else(|| self.params.first_rate(n));
        let (mut distances, mut visited) = (0, n);
        let mut centers = self.centers.clone();
        self.choice.begin(&mut self.labels, MatRef::new(&centers, dim), self.iteration, sparse);
        let mut pass =
            Self::pass(&mut self.labels, MatRef::new(&centers, dim), self.carried.clone(), data, cx)?;
        if self.iteration > 0 && self.is_worse(pass.swept.clusters.energy()) {
            // As if the epoch before had made no steps, and with shorter ones from now on.
            distances += pass.swept.distances;
            visited += n;
            rate /= 2.0;
            self.labels.undo();
            centers.clone_from(&self.means);
            let carried = self.carried_about(MatRef::new(&centers, dim));
            pass = Self::pass(&mut self.labels, MatRef::new(&centers, dim), carried, data, cx)?;
        }
        let Pass { mut swept, means } = pass;
        distances += swept.distances;
        let energy = swept.clusters.energy();
        let stalled = self.stalled_by(energy);
        let stop = if self.iteration > 0 && swept.changed == 0 && means == self.means {
            Some(StopReason::LabelsStable)
        } else if stalled >= STALLED {
            Some(StopReason::Tolerance)
        } else {
            None
        };
        let steps = if stop.is_some() || rate == 0.0 { 0 } else { self.params.epoch_size.steps(n) };
        let mut now = means.clone();
        if steps > 0 {
            let done = self.steps(&swept, (&centers, &means), (rate, steps), data, cx);
            let done = done.inspect_err(|_| self.labels.undo())?;
            visited += steps;
            distances += done.distances;
            now = done.centers;
            // Steps that leave the range of numbers lead nowhere.
            if !now.iter().all(|x| x.finite()) {
                now.clone_from(&means);
                rate /= 2.0;
            }
        }
        let (before, after) = (MatRef::new(&centers, dim), MatRef::new(&now, dim));
        swept.clusters.follow(before, after);
        if let Some(bounds) = &mut self.labels.bounds {
            bounds.follow(before, after);
        }
        let moved: f64 = centers.iter().zip(&now).map(|(c, new)| (new.to_f64() - c.to_f64()).powi(2)).sum();
        self.weights = swept.clusters.weights().to_vec();
        self.iteration += 1;
        self.rows_seen += visited;
        let changed = swept.changed;
        self.choice.watch(&mut self.labels, k, self.iteration, (changed, swept.distances));
        // To sum stored values afresh costs less than to keep sums of all columns.
        let carry = !sparse && swept.pays_to_carry(n);
        self.carried = carry.then(|| swept.into_carried());
        self.settled = now == means;
        (self.centers, self.means) = (now, means);
        (self.energy, self.rate, self.stalled, self.finished) = (energy, Some(rate), stalled, None);
        let last = self.iteration >= self.params.max_iter;
        Ok(Step {
            iteration: self.iteration,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: energy,
            center_shift: moved.sqrt(),
            n_changed: changed,
            n_distances: distances,
            elapsed: 0.0,
            stop_reason: stop.or(last.then_some(StopReason::MaxIterations)),
        })
    }

    /// Whether this is so much more than the energy of the epoch before that its steps are not worth having.
    fn is_worse(&self, energy: f64) -> bool {
        !self.settled && energy > self.energy * (1.0 + WORSE)
    }

    /// Epochs in a row without enough progress, with one of that energy.
    fn stalled_by(&self, energy: f64) -> u64 {
        let enough = self.params.tolerance * self.energy;
        if self.iteration > 0 && self.params.tolerance > 0.0 && self.energy - energy < enough {
            self.stalled + 1
        } else {
            0
        }
    }

    /// The sums that are carried, with their squared errors about other centers.
    fn carried_about(&self, centers: MatRef<'_, T>) -> Option<Carried> {
        self.carried.as_ref().map(|carried| carried.about(MatRef::new(&self.centers, self.dim), centers))
    }

    /// The steps of an epoch: from the sweep by `centers` and the `means` of what it labelled.
    fn steps(
        &self,
        swept: &Swept,
        (centers, means): (&[T], &[T]),
        (rate, steps): (f64, u64),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Done<T>> {
        let dim = self.dim;
        let sums = &swept.clusters;
        let precise = precise_means(sums, centers, dim);
        let weight: f64 = sums.weights().iter().sum();
        let start = Start {
            labels: &self.labels.of_rows,
            bounds: self.labels.bounds.as_ref(),
            swept: MatRef::new(centers, dim),
            rounded: MatRef::new(means, dim),
            rate,
            gradient: match self.params.variant {
                Variant::PlusPlus => None,
                Variant::Plain => Some(self.gradient(&precise, means, data, cx)?),
            },
            means: precise,
            spread: (sums.energy().max(0.0) / weight).sqrt(),
            values: data.most_values(),
            row_bytes: row_bytes(data),
            search_always: self.params.search_always,
        };
        let mut inner = Inner::new(start, cx);
        let rng = &mut Rng::keyed(self.params.seed, Purpose::Epoch, self.iteration);
        if data.access() == Access::Random {
            let n = self.labels.of_rows.len() as u64;
            let odds = data.weights().map(Odds::new);
            let odds = odds.as_ref().zip(data.weights());
            inner.run(&mut Draws::new((0, n), odds, rng, steps), Origin::Source(data))?;
        } else {
            stretch_by_stretch(&mut inner, (steps, weight), rng, data, cx)?;
        }
        Ok(inner.done())
    }

    /// The gradient about the means, cluster by cluster, in a pass of its own: zero, but for rounding.
    fn gradient(
        &self,
        precise: &[f64],
        means: &[T],
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Vec<f64>> {
        let packed = PackedCenters::for_rows(MatRef::new(means, self.dim), data.most_values().is_some());
        let sums = sum_labelled(&self.labels.of_rows, &packed, data, cx)?;
        let mut gradient = precise.to_vec();
        for (j, gradient) in gradient.chunks_exact_mut(self.dim).enumerate() {
            let weight = sums.weights()[j];
            if weight > 0.0 {
                gradient.iter_mut().zip(sums.sum(j)).for_each(|(g, s)| *g -= s / weight);
            } else {
                gradient.fill(0.0);
            }
        }
        Ok(gradient)
    }

    /// Labels, weights and inertia for the centers that a fit ends with, which are means if that is wanted.
    fn finished(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Finished<T>> {
        let dim = self.dim;
        // The next epoch goes on from the labels as they are; bounds begin anew.
        let mut labels = Labels::default();
        labels.bounds = self.labels.bounds.take();
        labels.of_rows.clone_from(&self.labels.of_rows);
        let mut centers = self.centers.clone();
        if self.params.polish && !self.settled {
            let (from, carried) = (MatRef::new(&self.centers, dim), self.carried.clone());
            let pass = Self::pass(&mut labels, from, carried, data, cx)?;
            let to =
                if self.is_worse(pass.swept.clusters.energy()) { self.means.clone() } else { pass.means };
            if let Some(bounds) = &mut labels.bounds {
                bounds.follow(from, MatRef::new(&to, dim));
            }
            centers = to;
        }
        let Pass { swept, .. } = Self::pass(&mut labels, MatRef::new(&centers, dim), None, data, cx)?;
        let (weights, inertia) = (swept.clusters.weights().to_vec(), swept.clusters.energy());
        Ok(Finished { centers, labels: labels.of_rows, weights, inertia })
    }
}

/// Means in `f64`; a center without rows stays.
fn precise_means<T: Compute>(sums: &ClusterSums, centers: &[T], dim: usize) -> Vec<f64> {
    let mut means: Vec<f64> = centers.iter().map(|c| c.to_f64()).collect();
    for (j, mean) in means.chunks_exact_mut(dim).enumerate() {
        let weight = sums.weights()[j];
        if weight > 0.0 {
            mean.iter_mut().zip(sums.sum(j)).for_each(|(mean, s)| *mean = s / weight);
        }
    }
    means
}

/// Steps by rows that come in a pass: stretches of a fixed length, as many draws from each as it has of all rows' weight.
fn stretch_by_stretch<T: Compute>(
    inner: &mut Inner<'_, T>,
    (steps, weight): (u64, f64),
    rng: &mut Rng,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<()> {
    let length = stretch_rows(row_bytes(data));
    let (mut passed, mut made, mut buffer) = (0.0, 0, Converted::default());
    data.for_each_block(length, &mut |block| {
        for start in (0..block.len).step_by(length) {
            cx.check()?;
            let range = start..block.len.min(start + length);
            let weights = block.weights.map(|weights| &weights[range.clone()]);
            let share = weights.map_or(range.len() as f64, |weights| weights.iter().sum());
            passed += share;
            let due = ((steps as f64 * (passed / weight)).round() as u64).clamp(made, steps);
            if due == made || share <= 0.0 {
                continue;
            }
            let odds = weights.map(Odds::new);
            let odds = odds.as_ref().zip(weights);
            let rows = buffer.read(block.rows, range.clone(), None);
            let first = block.first_row + start as u64;
            let mut draws = Draws::new((first, range.len() as u64), odds, rng, due - made);
            inner.run(&mut draws, Origin::Stretch(first, rows))?;
            made = due;
        }
        Ok(ControlFlow::Continue(()))
    })
}

impl<T: Compute> Solver<T> for VarianceReducedSolver<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        Access::Replay
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if self.centers.is_empty() {
            self.begin(data, cx)?;
        }
        let begun = Instant::now();
        let step = self.epoch(data, cx)?;
        self.timings.sweeps += begun.elapsed().as_secs_f64();
        Ok(step)
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> CenterSolver<T> for VarianceReducedSolver<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let now = Snapshot {
            dim: self.dim,
            metric: Metric::Euclidean,
            centers: &self.centers,
            weights: &self.weights,
            labels: &self.labels.of_rows,
            inertia: self.energy,
            n_iter: self.iteration,
            n_steps: self.iteration,
            seeded_by: &self.seeded_by,
            algorithm: self.choice.algorithm.name(),
            timings: self.timings,
        };
        match &self.finished {
            Some(Finished { centers, labels, weights, inertia }) => {
                Snapshot { centers, labels, weights, inertia: *inertia, ..now }
            }
            None => now,
        }
    }

    fn checkpoint(&self) -> Contents {
        self.to_file()
    }

    fn rate(&self) -> f64 {
        self.rate.unwrap_or(f64::NAN)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        n.is_none_or(|n| self.labels.of_rows.len() as u64 == n)
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        let finished = match self.finished.take() {
            Some(finished) => finished,
            None => self.finished(data, cx)?,
        };
        let inertia = finished.inertia;
        self.finished = Some(finished);
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(inertia)
    }
}
