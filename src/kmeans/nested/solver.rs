//! Solver of nested mini-batch k-means.

use std::time::Instant;

use super::super::batches::batch_seeding_sample;
use super::kept::Kept;
use super::members::Members;
use super::params::{Bounds, NestedParams, make_distinct};
use super::reading::with_batch;
use crate::centers::{KMeansModel, LabelList, LabelsRef, Snapshot, inertia, project};
use crate::data::{Access, DataSource, count_rows, row_bytes};
use crate::error::Result;
use crate::fit::{FitSolver, Metric, Solver, Step, StopReason, Timings};
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::bounds::PanelBounds;
use crate::kmeans::labels::{Carried, Labels, Sweep, all_labels};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::seeding::{Seeding, Seeds};
use crate::stats::{ClusterSums, mean_variance, to_means};

/// After this many sweeps over a batch without a new lowest energy, the batch grows or the fit ends, because
/// ties can alternate forever.
pub(super) const PATIENCE: u64 = 30;

/// Nested mini-batch k-means as a state. Memory is `O(b)` labels and row numbers for a batch of `b` rows, and
/// `O(k d)` sums. By default, choosing the first centers among all rows takes 16 bytes per row, but at most 1 GiB.
///
/// `Step::objective` is the inertia of the batch, for the labels of the step and the centers at its start.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a state, not a choice of behaviors")]
pub struct Nested<T> {
    pub(super) params: NestedParams,
    pub(super) dim: usize,
    pub(super) centers: Vec<T>,
    /// Labels of the batch, by ascending row.
    pub(super) labels: Labels,
    /// The centers that the labels belong to.
    pub(super) labeled_by: Vec<T>,
    pub(super) rows: Members,
    /// Size of the batch in the next sweep.
    pub(super) due: u64,
    /// Sums of all votes, with squared errors about `centers`. The vote of a row is its current label.
    pub(super) sums: Option<Carried>,
    /// Whether the next sweep may start from `sums`; otherwise it recomputes them.
    pub(super) carry: bool,
    /// Rows of the fit that have a vote in `sums`, as of the last complete sweep.
    pub(super) voted: u64,
    /// Whether the rows come from [`StreamSolver::partial_fit`](crate::fit::StreamSolver::partial_fit) and are kept in
    /// `kept`.
    pub(super) fed: bool,
    pub(super) kept: Kept<T>,
    /// Votes of retired rows.
    pub(super) gone: Option<ClusterSums>,
    pub(super) retired: u64,
    /// Weight per cluster.
    pub(super) weights: Vec<f64>,
    /// Energy of the last sweep.
    pub(super) energy: f64,
    /// The lowest energy over this batch, and the sweeps since then.
    pub(super) lowest: f64,
    pub(super) stalled: u64,
    /// `energy` was summed row by row.
    pub(super) exact: bool,
    /// `labels` and `energy` belong to `centers`.
    pub(super) current: bool,
    pub(super) changed: u64,
    /// The run ends when the squared length of the centers' move is at most this limit. Set by the first sweep.
    pub(super) threshold: Option<f64>,
    pub(super) iteration: u64,
    pub(super) rows_seen: u64,
    /// The bounds of the run that was resumed, reported until new bounds begin.
    pub(super) known_as: Option<Bounds>,
    /// Labels, cluster weights and inertia of all rows about `centers`, after a pass has computed them.
    pub(super) finished: Option<(LabelList, Vec<f64>, f64)>,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
}

impl<T: Compute> Nested<T> {
    /// Chooses the first centers: by default among all rows, because the first batch may hold none of a rare group;
    /// otherwise, and for streams, among the rows of the first batch.
    fn seed(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        let (k, seed) = (self.params.n_clusters, self.params.rng_seed);
        let (seeding, most) = (&self.params.seeding, self.batch() as u64);
        // Seeds that are rows are made distinct; given centers are not.
        let distinct = |mut seeds: Seeds<T>, rows: &dyn DataSource<T>| {
            if !seeds.rows.is_empty() {
                make_distinct(&mut seeds, rows, (seed, most))?;
            }
            Ok(seeds)
        };
        let seeds = if *seeding == Seeding::Auto && !self.fed {
            let few = batch_seeding_sample(most, k, row_bytes(data));
            distinct(seeding.choose_briefly(data, k, seed, 0, few, cx)?, data)?
        } else {
            with_batch(data, &self.rows, self.batch(), |batch| {
                distinct(seeding.choose(batch, k, seed, 0, cx)?, batch)
            })?
        };
        self.dim = data.dim();
        self.seeded_by = seeds.method;
        self.centers = seeds.centers;
        project(&mut self.centers, self.dim, self.params.metric);
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Starts bounds if they are due.
    fn choose_bounds(&mut self, sparse: bool) {
        let begun = self.labels.bounds.is_some();
        // Before the first update, the seeds say little about which centers are near each other.
        if begun || self.iteration == 0 {
            return;
        }
        let wanted = self.params.bounds.begin(self.dim, self.changed, self.batch() as u64, sparse);
        if let Some(least_panels) = wanted {
            let centers = MatRef::new(&self.centers, self.dim);
            let budget = self.params.bounds_memory;
            self.labels.bounds = PanelBounds::grouped(centers, self.batch(), budget, least_panels);
        }
    }

    /// One sweep over the batch.
    fn round(&mut self, data: &dyn DataSource<T>, n: u64, cx: &Executor) -> Result<Step> {
        let begun = Instant::now();
        self.current = false;
        let sparse = data.most_values().is_some();
        self.choose_bounds(sparse);
        let before = self.centers.clone();
        let centers = MatRef::new(&before, self.dim);
        let packed = self.labels.pack(centers, sparse, cx);
        let origin = &before[..self.dim];
        let wanted = self.threshold.is_none() && self.params.tolerance > 0.0;
        let packed_origin = wanted.then(|| PackedCenters::for_rows(MatRef::new(origin, self.dim), sparse));
        let carries = self.carry;
        let carried = self.sums.as_ref().filter(|_| carries).cloned();
        let batch = self.batch();
        let (labels, gone) = (&mut self.labels, self.gone.as_ref());
        let mut swept = with_batch(data, &self.rows, batch, |rows| {
            let moments = packed_origin.as_ref();
            labels.sweep(Sweep { moments, carried, gone, ..Sweep::about(&packed) }, rows, cx)
        })?;
        swept.clusters.check_means::<T>(cx).inspect_err(|_| self.labels.undo())?;
        self.labeled_by.clone_from(&before);
        self.exact = swept.exact;
        // Cancellation can make the difference slightly negative.
        self.energy = (swept.clusters.energy() - gone.map_or(0.0, ClusterSums::energy)).max(0.0);
        // Strictly: a cycle of ties ends.
        if self.energy < self.lowest {
            (self.lowest, self.stalled) = (self.energy, 0);
        } else {
            self.stalled += 1;
        }
        let stalled = self.stalled >= PATIENCE;
        if self.threshold.is_none() {
            let variance = swept.moments.as_ref().map_or(0.0, |all| mean_variance(all, origin));
            self.threshold = Some(self.params.tolerance * variance);
        }
        self.changed = swept.changed;
        let moved = to_means(&mut self.centers, self.dim, self.params.metric, &swept.clusters, cx);
        let grows = (batch as u64) < n && (stalled || self.settled(&swept.clusters, centers));
        let now = MatRef::new(&self.centers, self.dim);
        swept.clusters.follow(centers, now, cx);
        if let Some(gone) = &mut self.gone {
            gone.follow(centers, now, cx);
        }
        if let Some(bounds) = &mut self.labels.bounds {
            bounds.follow(centers, now, cx);
        }
        self.weights = swept.clusters.weights().to_vec();
        self.iteration += 1;
        self.rows_seen += batch as u64;
        let distances = swept.distances;
        self.carry = !sparse && swept.pays_to_carry(batch as u64);
        self.sums = Some(swept.into_carried());
        self.voted = batch as u64;
        // Unchanged labels give unchanged means, bit for bit, unless the batch has grown.
        self.current = self.changed == 0 && moved == 0.0;
        if grows {
            self.due = (2 * self.due).min(n);
        }
        self.timings.sweeps += begun.elapsed().as_secs_f64();
        Ok(Step {
            iteration: self.iteration,
            rows_seen: self.rows_seen,
            batch_size: batch as u64,
            objective: self.energy,
            center_shift: moved.sqrt(),
            n_changed: self.changed,
            n_distances: distances,
            elapsed: 0.0,
            stop_reason: self.ended(batch as u64 == n, moved, stalled),
        })
    }

    /// Why the fit ends after a sweep in which the centers moved by the squared length `moved`; `full` if the batch
    /// holds all rows.
    fn ended(&self, full: bool, moved: f64, stalled: bool) -> Option<StopReason> {
        if full && self.current {
            Some(StopReason::LabelsStable)
        } else if full && self.params.tolerance > 0.0 && self.threshold.is_some_and(|t| moved <= t) {
            Some(StopReason::Tolerance)
        } else if full && stalled {
            Some(StopReason::Patience)
        } else {
            self.params.max_iter.and_then(|most| StopReason::after(self.iteration, most))
        }
    }
}

impl<T: Compute> Solver<T> for Nested<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        if self.params.shuffle { Access::Random } else { Access::Replay }
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let n = count_rows(data)?;
        (self.finished, self.known_as) = (None, None);
        if self.due == 0 {
            crate::seeding::enough_rows(n, if self.centers.is_empty() { self.params.n_clusters } else { 1 })?;
            self.due = self.params.first_batch(n);
        }
        self.complete(data, n, cx)?;
        self.admit(n)?;
        if self.centers.is_empty() {
            self.seed(data, cx)?;
        }
        self.round(data, n, cx)
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> FitSolver<T> for Nested<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let (labels, weights, inertia) = match &self.finished {
            Some((labels, weights, inertia)) => (labels.view(), &weights[..], *inertia),
            None => (LabelsRef::from(&[][..]), &self.weights[..], f64::NAN),
        };
        Snapshot {
            dim: self.dim,
            metric: self.params.metric,
            centers: &self.centers,
            weights,
            labels,
            inertia,
            n_iter: self.iteration,
            n_steps: self.iteration,
            seeded_by: &self.seeded_by,
            algorithm: self.labels.bounds.as_ref().map_or(
                self.known_as.map_or("none", Bounds::name),
                |bounds| {
                    // With a single panel all kinds of bounds coincide; report the requested one.
                    let (asked, one) =
                        (self.params.bounds, self.params.n_clusters <= PackedCenters::<T>::panel_centers());
                    if one && asked != Bounds::Auto { asked.name() } else { bounds.name() }
                },
            ),
            timings: self.timings,
        }
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        if let Some((_, _, inertia)) = self.finished {
            return Ok(inertia);
        }
        let begun = Instant::now();
        let n = count_rows(data)?;
        let finished = if self.current && self.batch() as u64 == n {
            self.complete(data, n, cx)?;
            let labels = self.labels.lend();
            let energy = if self.exact {
                self.energy
            } else {
                inertia(&self.centers, Some(labels.view()), Metric::Euclidean, data, cx)?
            };
            (labels, self.weights.clone(), energy)
        } else {
            self.labels.make_way();
            all_labels(MatRef::new(&self.centers, self.dim), data, cx)?
        };
        let inertia = finished.2;
        self.finished = Some(finished);
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(inertia)
    }
}
