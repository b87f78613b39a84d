//! Solver of balanced k-means: exact k-means, then sweeps whose labels keep the limits.

use std::time::Instant;

use super::assign::{BALANCED_ROUNDS, assign, is_close};
use super::coarse::{coarse, lengthen};
use super::limits::SizeLimits;
use super::params::BalancedParams;
use crate::centers::{KMeansModel, LabelList, LabelsRef, Snapshot};
use crate::data::{Access, DataSource};
use crate::error::Result;
use crate::fit::{FitSolver, Solver, Step, StopReason, Timings};
use crate::kernel::Compute;
use crate::kmeans::lloyd::starts::LloydStarts;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::stats::{ClusterSums, to_means};

/// The share of the weight that exact k-means puts into wrong clusters from which on balanced k-means begins on
/// samples.
const BALANCED_COARSE: f64 = 0.05;

/// Share of the rows that change their clusters in a sweep with limits up to which centers move to the means, and no
/// farther.
const BALANCED_RELAXED: f64 = 0.002;

/// Clusters that keep the limits.
#[derive(Clone, Debug)]
pub(super) struct Balance<T> {
    pub(super) centers: Vec<T>,
    /// Of the last sweep: its prices, and its labels, empty before the first.
    pub(super) prices: Vec<f64>,
    pub(super) labels: LabelList,
    /// Prices where the next sweep begins.
    pub(super) settled: Vec<f64>,
    pub(super) sizes: Vec<f64>,
    /// The energy of these labels about the centers before they moved, and its lower bound.
    pub(super) energy: f64,
    pub(super) bound: f64,
    /// The labels are those of the centers.
    pub(super) current: bool,
    pub(super) sweeps: u64,
}

impl<T> Balance<T> {
    /// `k` clusters before the first sweep.
    pub(super) fn new(centers: Vec<T>, labels: LabelList, k: usize) -> Self {
        Self {
            centers,
            prices: vec![0.0; k],
            labels,
            settled: vec![0.0; k],
            sizes: Vec::new(),
            energy: f64::NAN,
            bound: f64::NAN,
            current: false,
            sweeps: 0,
        }
    }

    /// The labels with the lower energy, and the higher bound, of two searches for the same centers.
    pub(super) fn or_better(self, other: Self) -> Self {
        let (bound, prices) = if self.bound >= other.bound {
            (self.bound, self.prices.clone())
        } else {
            (other.bound, other.prices.clone())
        };
        let better = if other.energy < self.energy { other } else { self };
        Self { bound: bound.min(better.energy), prices, ..better }
    }
}

/// Balanced k-means as a state: exact k-means, then centers, prices and labels. Memory is `O(n)` candidates and `O(k
/// d)` sums.
///
/// A step is a sweep. `Step::objective` is its inertia: without limits until exact k-means has ended, then with limits.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Debug)]
pub struct BalancedSolver<T> {
    pub(super) params: BalancedParams,
    pub(super) start: LloydStarts<T>,
    /// `None` until exact k-means has ended.
    pub(super) balance: Option<Balance<T>>,
    /// What [`FitSolver::finish`] found for the last centers.
    pub(super) finished: Option<Balance<T>>,
    /// Sweeps of all starts.
    pub(super) iteration: u64,
    pub(super) rows_seen: u64,
    /// Seconds in sweeps with limits.
    pub(super) timings: Timings,
}

impl<T: Compute> BalancedSolver<T> {
    /// The clusters that are shown.
    fn shown(&self) -> Option<&Balance<T>> {
        self.finished.as_ref().or(self.balance.as_ref())
    }

    /// The prices of the clusters; empty before the first sweep with limits.
    pub(super) fn prices(&self) -> &[f64] {
        self.shown().map_or(&[], |balance| &balance.prices)
    }

    /// The lower bound of the energy that belongs to the labels.
    pub(super) fn lower_bound(&self) -> f64 {
        match self.shown() {
            Some(balance) => balance.bound,
            // The nearest centers have the least energy.
            None if !self.params.has_limits() => self.start.snapshot().inertia,
            None => f64::NAN,
        }
    }

    fn limits(&self, data: &dyn DataSource<T>) -> Result<SizeLimits> {
        SizeLimits::new(self.params.asked(), self.params.n_clusters, data)
    }

    /// Clusters that have not been labeled, with prices from samples if many rows have to leave their nearest center;
    /// their centers move there too, if `moving`.
    fn prepared(
        &self,
        mut balance: Balance<T>,
        moving: bool,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Balance<T>> {
        let limits = self.limits(data)?;
        let excess = limits.excess(self.start.snapshot().weights);
        if excess > BALANCED_COARSE {
            balance.settled = coarse(&mut balance.centers, &limits, &self.params, moving, data, cx)?;
        }
        Ok(balance)
    }

    /// The clusters with limits from which the fit continues after exact k-means.
    fn begin(&self) -> Balance<T> {
        let k = self.params.n_clusters;
        Balance::new(self.start.snapshot().centers.to_vec(), LabelList::new(0, k), k)
    }

    /// The same clusters with labels for their centers, found in `rounds` rounds, and the sums of the rows.
    fn labeled(
        &self,
        before: &Balance<T>,
        rounds: usize,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<(Balance<T>, ClusterSums)> {
        let centers = MatRef::new(&before.centers, data.dim());
        let bounds = (self.params.bounds_memory, rounds);
        let found = assign(centers, &before.settled, &self.limits(data)?, bounds, data, cx)?;
        let balance = Balance {
            centers: before.centers.clone(),
            prices: found.prices,
            labels: LabelList::of(found.labels, centers.rows()),
            settled: found.settled,
            sizes: found.sums.weights().to_vec(),
            energy: found.sums.energy(),
            bound: found.bound,
            current: true,
            sweeps: before.sweeps,
        };
        Ok((balance, found.sums))
    }

    /// A sweep with limits: labels, then centers.
    fn sweep(&mut self, before: &Balance<T>, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let prepared = match before.sweeps {
            0 => Some(self.prepared(before.clone(), true, data, cx)?),
            _ => None,
        };
        let before = prepared.as_ref().unwrap_or(before);
        let (mut balance, sums) = self.labeled(before, 1, data, cx)?;
        sums.check_means::<T>(cx)?;
        let moved = to_means(&mut balance.centers, data.dim(), self.params.metric, &sums, cx);
        let changed = changes(before.labels.view(), balance.labels.view());
        balance.current = moved == 0.0;
        balance.sweeps += 1;
        let n = balance.labels.len() as u64;
        self.iteration += 1;
        self.rows_seen += n;
        // NaN before the first sweep.
        let lowered =
            before.energy.is_nan() || balance.energy < before.energy * (1.0 - self.params.tolerance);
        let stop_reason = if balance.current && changed == 0 {
            Some(StopReason::LabelsStable)
        } else if moved <= self.start.best().threshold() || !lowered {
            Some(StopReason::Tolerance)
        } else {
            StopReason::after(balance.sweeps, self.params.max_iter)
        };
        // The fit ends at means.
        if stop_reason.is_none() && changed as f64 > BALANCED_RELAXED * n as f64 {
            lengthen(&before.centers, &mut balance.centers, self.params.metric);
        }
        let step = Step {
            iteration: self.iteration,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: balance.energy,
            center_shift: moved.sqrt(),
            n_changed: changed,
            n_distances: n * self.params.n_clusters as u64,
            elapsed: 0.0,
            stop_reason,
        };
        self.balance = Some(balance);
        Ok(step)
    }
}

/// Rows with another label, all of them if there were none.
fn changes(before: LabelsRef<'_>, now: LabelsRef<'_>) -> u64 {
    if before.is_empty() {
        return now.len() as u64;
    }
    before.iter().zip(now.iter()).filter(|(before, now)| before != now).count() as u64
}

impl<T: Compute> Solver<T> for BalancedSolver<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        Access::Replay
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if let Some(before) = self.balance.take() {
            let begun = Instant::now();
            let step = self.sweep(&before, data, cx);
            if step.is_err() {
                self.balance = Some(before);
            } else {
                self.finished = None;
            }
            self.timings.sweeps += begun.elapsed().as_secs_f64();
            return step;
        }
        if self.params.has_limits() && self.iteration == 0 {
            // Limits that no clustering keeps are an error before any work.
            self.limits(data)?;
        }
        let mut step = self.start.step(data, cx)?;
        (self.iteration, self.rows_seen, self.finished) = (step.iteration, step.rows_seen, None);
        if step.stop_reason.is_some() && self.params.has_limits() {
            step.stop_reason = None;
            self.balance = Some(self.begin());
        }
        Ok(step)
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> FitSolver<T> for BalancedSolver<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let start = self.start.snapshot();
        let sweeps = self.balance.as_ref().map_or(0, |balance| balance.sweeps);
        let start = Snapshot {
            n_iter: start.n_iter + sweeps,
            n_steps: start.n_steps + sweeps,
            timings: start.timings + self.timings,
            ..start
        };
        match self.shown() {
            Some(balance) if balance.labels.len() > 0 => Snapshot {
                centers: &balance.centers,
                weights: &balance.sizes,
                labels: balance.labels.view(),
                inertia: balance.energy,
                ..start
            },
            _ => start,
        }
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        if !self.params.has_limits() {
            return self.start.finish(data, cx);
        }
        let good = |found: &&Balance<T>| found.current && is_close(found.energy, found.bound);
        if let Some(found) = self.finished.as_ref().or(self.balance.as_ref().filter(good)) {
            return Ok(found.energy);
        }
        if self.start.best().centers().is_empty() {
            return Ok(f64::NAN);
        }
        let begun = Instant::now();
        let mut before = self.balance.clone().unwrap_or_else(|| self.begin());
        if before.sweeps == 0 {
            before = self.prepared(before, false, data, cx)?;
        }
        let (mut found, _) = self.labeled(&before, BALANCED_ROUNDS, data, cx)?;
        if before.current {
            found = found.or_better(before);
        }
        let energy = found.energy;
        self.finished = Some(found);
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(energy)
    }
}
