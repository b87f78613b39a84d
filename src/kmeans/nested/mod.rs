//! Nested mini-batch k-means: each batch contains the previous one, every row counts once, and the batch
//! doubles when the centers move less than their statistical error.
//!
//! Source: Newling and Fleuret, "Nested mini-batch k-means", NIPS 2016 (algorithm 5, with the error of a
//! center as in the text before it). Two deviations keep the paper's own invariants: sums start at zero and
//! seeds do not count twice, so that fixed points are those of Lloyd's algorithm; and a cluster takes part in
//! the growth rule only from an effective number of two rows. Bounds are per group of panels, and groups
//! widen as the batch grows; bounds do not change results.
//!
//! The rows of a batch are read in ascending order, for any order of the draws. The full batch is read in a
//! plain pass over the source.

mod batch;
mod file;
mod params;
mod stream;
#[cfg(test)]
mod tests;

use std::time::Instant;

pub use params::{Bounds, NestedMiniBatch, NestedParams, NestedRun, NestedSteps};

use batch::with_batch;
use stream::Kept;

use super::bounds::PanelBounds;
use super::labels::{Carried, Labels, all_labels};
use crate::centers::{KMeansModel, LabelList, LabelsRef, Snapshot, inertia, project};
use crate::data::{Access, DataSource, count_rows};
use crate::error::Result;
use crate::fit::{Facts, FitSolver, Metric, Solver, Step, StopReason, StreamSolver, Timings};
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::stats::{ClusterSums, mean_variance, to_means};

/// After this many sweeps over a batch without a new lowest energy, the batch grows or the fit ends, because
/// ties can alternate forever.
const PATIENCE: u64 = 30;

/// Nested mini-batch k-means as a state. Memory is `O(b)` labels and row numbers for a batch of `b` rows, and
/// `O(k d)` sums.
///
/// `Step::objective` is the inertia of the batch, for the labels of the step and the centers at its start.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a state, not a choice of behaviors")]
pub struct Nested<T> {
    params: NestedParams,
    dim: usize,
    centers: Vec<T>,
    /// Labels of the batch, by ascending row.
    labels: Labels,
    /// Row numbers of the batch; empty if the batch is the first rows of the source, or all of them.
    rows: Vec<u64>,
    /// Size of the batch in the next sweep.
    due: u64,
    /// Sums of all votes, with squared errors about `centers`. The vote of a row is its current label.
    sums: Option<Carried>,
    /// Whether the next sweep may start from `sums`; otherwise it recomputes them.
    carry: bool,
    /// Rows of the fit that have a vote in `sums`, as of the last complete sweep.
    voted: u64,
    /// Whether the rows come from [`Nested::feed`] and are kept in `kept`.
    fed: bool,
    kept: Kept<T>,
    /// Votes of retired rows.
    gone: Option<ClusterSums>,
    retired: u64,
    /// Weight per cluster.
    weights: Vec<f64>,
    /// Energy of the last sweep.
    energy: f64,
    /// The lowest energy over this batch, and the sweeps since then.
    lowest: f64,
    stalled: u64,
    /// `energy` was summed row by row.
    exact: bool,
    /// `labels` and `energy` belong to `centers`.
    current: bool,
    changed: u64,
    /// The run ends when the squared length of the centers' move is at most this limit. Set by the first sweep.
    threshold: Option<f64>,
    iteration: u64,
    rows_seen: u64,
    /// The bounds of the run that was resumed, reported until new bounds begin.
    known_as: Option<Bounds>,
    /// Labels, cluster weights and inertia of all rows about `centers`, after a pass has computed them.
    finished: Option<(LabelList, Vec<f64>, f64)>,
    seeded_by: String,
    timings: Timings,
}

impl<T: Compute> Nested<T> {
    /// The state before the first step, which chooses the first centers.
    fn plan(params: NestedParams) -> Self {
        let k = params.n_clusters;
        Self {
            params,
            dim: 0,
            centers: Vec::new(),
            labels: Labels::new(0, k),
            rows: Vec::new(),
            due: 0,
            sums: None,
            carry: false,
            voted: 0,
            fed: false,
            kept: Kept::default(),
            gone: None,
            retired: 0,
            weights: Vec::new(),
            energy: f64::NAN,
            lowest: f64::INFINITY,
            stalled: 0,
            exact: false,
            current: false,
            changed: 0,
            threshold: None,
            iteration: 0,
            rows_seen: 0,
            known_as: None,
            finished: None,
            seeded_by: String::new(),
            timings: Timings::default(),
        }
    }

    /// Chooses the first centers among the rows of the first batch.
    fn seed(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        let (k, seed) = (self.params.n_clusters, self.params.rng_seed);
        let seeding = &self.params.seeding;
        let seeds = with_batch(data, &self.rows, self.batch(), |batch| {
            let mut seeds = seeding.choose(batch, k, seed, 0, cx)?;
            // Only for centers drawn from rows, not for given ones.
            if !seeds.rows.is_empty() {
                params::make_distinct(&mut seeds, batch, seed)?;
            }
            Ok(seeds)
        })?;
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
        let packed = self.labels.pack(centers, sparse);
        let origin = &before[..self.dim];
        let wanted = self.threshold.is_none() && self.params.tolerance > 0.0;
        let packed_origin = wanted.then(|| PackedCenters::for_rows(MatRef::new(origin, self.dim), sparse));
        let carries = self.carry;
        let carried = self.sums.as_ref().filter(|_| carries).cloned();
        let batch = self.batch();
        let (labels, gone) = (&mut self.labels, self.gone.as_ref());
        let mut swept = with_batch(data, &self.rows, batch, |rows| {
            labels.sweep(None, &packed, packed_origin.as_ref(), (carried, gone), rows, cx)
        })?;
        swept.clusters.check_means::<T>().inspect_err(|_| self.labels.undo())?;
        self.exact = swept.exact();
        // Cancellation can make the difference slightly negative.
        self.energy = (swept.clusters.energy() - gone.map_or(0.0, ClusterSums::energy)).max(0.0);
        // Strictly: a cycle of ties ends, also where rounding makes the sums of each of its sweeps recomputed.
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
        let moved = to_means(&mut self.centers, self.dim, self.params.metric, &swept.clusters);
        let grows = (batch as u64) < n && (stalled || self.settled(&swept.clusters, centers));
        let now = MatRef::new(&self.centers, self.dim);
        swept.clusters.follow(centers, now);
        if let Some(gone) = &mut self.gone {
            gone.follow(centers, now);
        }
        if let Some(bounds) = &mut self.labels.bounds {
            bounds.follow(centers, now);
        }
        self.weights = swept.clusters.weights().to_vec();
        self.iteration += 1;
        self.rows_seen += batch as u64;
        let distances = swept.distances;
        self.carry = !sparse && swept.pays_to_carry(batch as u64);
        self.sums = Some(swept.into_carried());
        self.voted = batch as u64;
        // Unchanged labels give unchanged means, bit for bit, unless the sums were recomputed.
        self.current = self.changed == 0 && moved == 0.0;
        if grows {
            self.due = (2 * self.due).min(n);
        }
        self.timings.sweeps += begun.elapsed().as_secs_f64();
        let full = batch as u64 == n;
        let stop_reason = if full && self.current {
            Some(StopReason::LabelsStable)
        } else if full && self.params.tolerance > 0.0 && self.threshold.is_some_and(|t| moved <= t) {
            Some(StopReason::Tolerance)
        } else if full && stalled {
            Some(StopReason::Patience)
        } else if self.params.max_iter.is_some_and(|most| self.iteration >= most) {
            Some(StopReason::MaxIterations)
        } else {
            None
        };
        Ok(Step {
            iteration: self.iteration,
            rows_seen: self.rows_seen,
            batch_size: batch as u64,
            objective: self.energy,
            center_shift: moved.sqrt(),
            n_changed: self.changed,
            n_distances: distances,
            elapsed: 0.0,
            stop_reason,
        })
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

impl<T: Compute> Nested<T> {
    /// The solver's public state between two steps.
    pub(crate) fn snapshot(&self) -> Snapshot<'_, T> {
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
}

impl<T: Compute> FitSolver<T> for Nested<T> {
    fn facts(&self) -> Facts {
        self.snapshot().facts()
    }

    fn checkpoint(&self) -> Contents {
        self.to_checkpoint()
    }

    fn fits(&self, n: Option<u64>) -> bool {
        let (batch, n) = (self.batch() as u64, n.unwrap_or(u64::MAX));
        // Row numbers are stored only if the batch is a proper random subset.
        let listed = self.params.shuffle && batch > 0 && batch < n;
        !self.fed
            && batch <= n
            && self.due <= n
            && self.rows.len() as u64 == if listed { batch } else { 0 }
            && self.rows.last().is_none_or(|&last| last < n)
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        if let Some((_, _, inertia)) = self.finished {
            return Ok(inertia);
        }
        let begun = Instant::now();
        let n = count_rows(data)?;
        let finished = if self.current && self.batch() as u64 == n && self.rows.is_empty() {
            let labels = self.labels.of_rows.clone();
            let energy = if self.exact {
                self.energy
            } else {
                inertia(&self.centers, Some(labels.view()), Metric::Euclidean, data, cx)?
            };
            (labels, self.weights.clone(), energy)
        } else {
            all_labels(MatRef::new(&self.centers, self.dim), data, cx)?
        };
        let inertia = finished.2;
        self.finished = Some(finished);
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(inertia)
    }
}

impl<T: Compute> StreamSolver<T> for Nested<T> {
    fn partial_fit(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>> {
        self.feed(batch, cx)
    }

    fn state(&self) -> Contents {
        self.to_file()
    }

    fn rows_kept(&self) -> u64 {
        self.n_kept()
    }
}
