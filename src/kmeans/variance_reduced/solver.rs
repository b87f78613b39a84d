//! Solver of variance-reduced k-means. An epoch is a sweep, the means of its clusters, and steps from these
//! means.

use std::time::Instant;

use super::params::VarianceReducedParams;
use crate::centers::{KMeansModel, LabelList, Snapshot, project};
use crate::data::{Access, DataSource, count_rows};
use crate::error::Result;
use crate::fit::{FitSolver, Metric, Solver, Step, StopReason, Timings};
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::choice::Choice;
use crate::kmeans::empty;
use crate::kmeans::labels::{Carried, Labels, Sweep, Swept};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::seeding::enough_rows;
use crate::stats::to_means;
use crate::tuning::MOST_SQ_MOVE;

/// Share by which an epoch may increase the energy. A larger increase is undone: steps that are too long
/// leave the full noise of their rows in the centers.
const MAX_INCREASE: f64 = 0.01;

/// Consecutive epochs without enough progress that end a fit.
const MAX_STALLED: u64 = 2;

/// Variance-reduced k-means as a state: centers, labels, sums. Memory is `O(n)` labels and `O(k d)` sums.
///
/// `Step::objective` is the inertia that the epoch's sweep measured: of its labels about the centers that the
/// epoch started from. `Step::n_changed` counts labels that differ from those of the previous sweep.
/// `Step::rows_seen` counts the rows of sweeps and the steps.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Clone, Debug)]
pub struct VarianceReducedSolver<T> {
    pub(super) params: VarianceReducedParams,
    pub(super) dim: usize,
    pub(super) centers: Vec<T>,
    /// The means that the last epoch stepped from, restored if its steps are undone.
    pub(super) means: Vec<T>,
    pub(super) labels: Labels,
    /// Weight per cluster in the last sweep, and the energy of that sweep.
    pub(super) weights: Vec<f64>,
    pub(super) energy: f64,
    /// Sums of the rows by `labels`, with squared errors about `centers`, for the next sweep to start from.
    pub(super) carried: Option<Carried>,
    pub(super) choice: Choice,
    /// The learning rate; known after the first sweep.
    pub(super) rate: Option<f64>,
    /// Consecutive epochs without enough progress.
    pub(super) stalled: u64,
    /// `centers` equal `means`: no step was made from there.
    pub(super) settled: bool,
    pub(super) iteration: u64,
    pub(super) rows_seen: u64,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
    pub(super) finished: Option<FinishedCenters<T>>,
}

/// Centers, and the labels, weights and inertia about them.
#[derive(Clone, Debug)]
pub(super) struct FinishedCenters<T> {
    pub(super) centers: Vec<T>,
    pub(super) labels: LabelList,
    pub(super) weights: Vec<f64>,
    pub(super) inertia: f64,
    /// Whether these are the final centers of the fit, and not those of an unfinished run.
    pub(super) closed: bool,
}

/// A sweep, and the means of its clusters.
pub(super) struct SweptMeans<T: Compute> {
    pub(super) packed: PackedCenters<T>,
    pub(super) swept: Swept,
    pub(super) means: Vec<T>,
}

impl<T: Compute> VarianceReducedSolver<T> {
    fn begin(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        let k = self.params.n_clusters;
        let seeds = self.params.seeding.choose(data, k, self.params.rng_seed, 0, cx)?;
        let n = count_rows(data)?;
        enough_rows(n, k)?;
        self.dim = data.dim();
        self.seeded_by = seeds.method;
        self.centers = seeds.centers;
        project(&mut self.centers, self.dim, self.params.metric);
        self.labels = Labels::new(n as usize, k).always_noted();
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Labels all rows by `centers`. After an error the labels are those before the sweep.
    pub(super) fn pass(
        labels: &mut Labels,
        (centers, metric): (MatRef<'_, T>, Metric),
        carried: Option<Carried>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<SweptMeans<T>> {
        let packed = labels.pack(centers, data.most_values().is_some(), cx);
        let swept = labels.sweep(Sweep { carried, ..Sweep::about(&packed) }, data, cx)?;
        swept.clusters.check_means::<T>(cx).inspect_err(|_| labels.undo())?;
        // A center without rows stays.
        let mut means = centers.data().to_vec();
        to_means(&mut means, centers.cols(), metric, &swept.clusters, cx);
        Ok(SweptMeans { packed, swept, means })
    }

    fn epoch(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let (n, dim, metric) = (self.labels.of_rows.len() as u64, self.dim, self.params.metric);
        let sparse = data.most_values().is_some();
        let mut rate = self.rate.unwrap_or_else(|| self.params.first_rate(n));
        let (mut distances, mut visited) = (0, n);
        let mut centers = self.centers.clone();
        self.choice.begin(&mut self.labels, MatRef::new(&centers, dim), self.iteration, data);
        let from = (MatRef::new(&centers, dim), metric);
        let mut pass = Self::pass(&mut self.labels, from, self.carried.clone(), data, cx)?;
        if self.iteration > 0 && self.is_worse(pass.swept.clusters.energy()) {
            // Undo the steps of the previous epoch and halve the learning rate.
            distances += pass.swept.distances;
            visited += n;
            rate /= 2.0;
            self.labels.undo();
            centers.clone_from(&self.means);
            let carried = self.carried_about(MatRef::new(&centers, dim));
            pass = Self::pass(&mut self.labels, (MatRef::new(&centers, dim), metric), carried, data, cx)?;
        }
        distances += pass.swept.distances;
        let energy = pass.swept.clusters.energy();
        // An empty cluster begins anew at a far row. That row belongs to its old cluster until the next sweep.
        let found = empty::farthest(data, cx, &pass.packed, self.labels.of_rows.view(), &pass.swept.clusters);
        let relocated = found.inspect_err(|_| self.labels.undo())?;
        for (j, _, row, _) in &relocated {
            pass.means[j * dim..][..dim].copy_from_slice(row);
        }
        let stalled = if relocated.is_empty() { self.stalled_by(energy) } else { 0 };
        let stable = relocated.is_empty() && pass.swept.changed == 0 && pass.means == self.means;
        let stop = if self.iteration > 0 && stable {
            Some(StopReason::LabelsStable)
        } else {
            (stalled >= MAX_STALLED).then_some(StopReason::Tolerance)
        };
        let idle = stop.is_some() || rate == 0.0;
        let steps = if idle { 0 } else { self.params.epoch_size.steps(n, self.iteration + 1) };
        let mut now = pass.means.clone();
        if steps > 0 {
            let done = self.steps(&pass, &centers, (rate, steps), data, cx);
            let done = done.inspect_err(|_| self.labels.undo())?;
            visited += steps;
            distances += done.distances;
            now = done.centers;
            project(&mut now, dim, metric);
            // Discard steps whose centers or moves are not finite.
            let away: f64 = now.iter().zip(&pass.means).map(|(c, m)| (c.to_f64() - m.to_f64()).powi(2)).sum();
            if !(now.iter().all(|x| x.finite()) && away <= MOST_SQ_MOVE) {
                now.clone_from(&pass.means);
                rate /= 2.0;
            }
        }
        let SweptMeans { packed, mut swept, means } = pass;
        let (before, after) = (MatRef::new(&centers, dim), MatRef::new(&now, dim));
        swept.clusters.follow(before, after, cx);
        if let Some(bounds) = &mut self.labels.bounds {
            bounds.follow(before, after, cx);
        }
        let moved: f64 = centers.iter().zip(&now).map(|(c, new)| (new.to_f64() - c.to_f64()).powi(2)).sum();
        self.weights = swept.clusters.weights().to_vec();
        self.iteration += 1;
        self.rows_seen += visited;
        let changed = swept.changed;
        self.choice.watch(&mut self.labels, &packed, &swept, self.iteration);
        // For sparse rows, recomputing the sums costs less than carrying sums over all columns.
        self.carried = (!sparse && swept.pays_to_carry(n)).then(|| swept.into_carried());
        self.settled = now == means;
        (self.centers, self.means) = (now, means);
        (self.energy, self.rate, self.stalled, self.finished) = (energy, Some(rate), stalled, None);
        Ok(Step {
            iteration: self.iteration,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: energy,
            center_shift: moved.sqrt(),
            n_changed: changed,
            n_distances: distances,
            elapsed: 0.0,
            stop_reason: stop.or(StopReason::after(self.iteration, self.params.max_iter)),
        })
    }

    /// Whether `energy` exceeds that of the previous epoch by so much that its steps should be undone.
    pub(super) fn is_worse(&self, energy: f64) -> bool {
        let bounded = energy <= self.energy * (1.0 + MAX_INCREASE);
        // NaN counts as worse.
        !self.settled && !bounded
    }

    /// The number of consecutive epochs without enough progress, including one with this energy.
    fn stalled_by(&self, energy: f64) -> u64 {
        let enough = self.params.tolerance * self.energy;
        // A short epoch is little more than a sweep: its lack of progress does not mean that longer epochs
        // make none.
        let n = self.labels.of_rows.len() as u64;
        let whole = self.params.epoch_size.is_whole(n, self.iteration);
        if self.iteration > 0 && whole && self.params.tolerance > 0.0 && self.energy - energy < enough {
            self.stalled + 1
        } else {
            0
        }
    }

    /// The carried sums, with squared errors about `centers`.
    fn carried_about(&self, centers: MatRef<'_, T>) -> Option<Carried> {
        self.carried.as_ref().map(|carried| carried.about(MatRef::new(&self.centers, self.dim), centers))
    }
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

impl<T: Compute> VarianceReducedSolver<T> {
    /// The learning rate of the last epoch; `None` before the first.
    pub(super) fn learning_rate(&self) -> Option<f64> {
        self.rate
    }
}

impl<T: Compute> FitSolver<T> for VarianceReducedSolver<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let now = snapshot_of_sweeps!(self);
        match &self.finished {
            Some(FinishedCenters { centers, labels, weights, inertia, .. }) => {
                Snapshot { centers, labels: labels.view(), weights, inertia: *inertia, ..now }
            }
            None => now,
        }
    }

    fn conclude(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        if self.finished.as_ref().is_some_and(|finished| finished.closed) {
            return Ok(());
        }
        let begun = Instant::now();
        self.finished = Some(self.finished(true, data, cx)?);
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(())
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        if let Some(finished) = &self.finished {
            return Ok(finished.inertia);
        }
        let begun = Instant::now();
        let finished = self.finished(false, data, cx)?;
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(self.finished.insert(finished).inertia)
    }
}
