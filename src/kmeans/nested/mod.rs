//! This module knows nested mini-batch k-means: batches that contain the ones before, every row with one vote, twice as many rows once the
//! centers move less than their statistical error.
//!
//! Source: Newling and Fleuret, "Nested mini-batch k-means", NIPS 2016 (algorithm 5, with the error of a center as in the text before it).
//! It differs from the paper where the paper's own invariants ask for it: sums begin at zero, without a second vote for the seeds, so that
//! the fixed point is one of Lloyd's; a cluster counts in the rule for growth from an effective number of two rows on. Bounds stand
//! for panels of centers, and for more of them as the batch grows; they change no result.
//!
//! A batch is a set: its rows are read in ascending order, whichever were drawn. At full size that is a plain pass over the source.

mod file;
mod params;
mod stream;
#[cfg(test)]
mod tests;

use std::time::Instant;

pub use params::{Bounds, NestedMiniBatch, NestedParams, NestedRun, NestedSteps};

use stream::Kept;

use super::bounds::PanelBounds;
use super::labels::{Carried, Labels, all_labels, mean_variance};
use super::lloyd::to_means;
use crate::centers::{KMeansModel, Snapshot, inertia};
use crate::data::{Access, DataSource, RowRange, Subset, count_rows};
use crate::error::{Error, Result};
use crate::fit::{Facts, FitSolver, Metric, Solver, Step, StopReason, StreamSolver, Timings};
use crate::kernel::{self, Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::shuffle::Shuffle;
use crate::stats::ClusterSums;

/// Rounds over a batch without a new lowest energy after which it settles no further: ties may go back and forth for ever.
const PATIENCE: u64 = 30;

/// Nested mini-batch k-means as a state. `O(b)` labels and row numbers for a batch of `b` rows, and `O(k d)` sums.
///
/// `Step::objective` is the inertia of the batch: of the labels of the step about the centers that it started from.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a state, not a choice of behaviours")]
pub struct Nested<T> {
    params: NestedParams,
    dim: usize,
    centers: Vec<T>,
    /// Of the rows of the batch, in ascending order.
    labels: Labels,
    /// The rows of the batch; none where it is the first rows of the source, or all of them.
    rows: Vec<u64>,
    /// Rows of the next round: those of the batch, or more.
    due: u64,
    /// Sums of all votes, with their squared errors about `centers`.
    sums: Option<Carried>,
    /// `sums` may be carried on: else the next round makes them afresh.
    carry: bool,
    /// Rows of a fit that have a vote in `sums`: those of its last whole round.
    voted: u64,
    /// The rows of the source are those that [`Nested::feed`] was given, and kept.
    fed: bool,
    kept: Kept<T>,
    /// Votes of rows that are no longer there.
    gone: Option<ClusterSums>,
    retired: u64,
    /// Weight of each cluster.
    weights: Vec<f64>,
    /// Of the last round.
    energy: f64,
    /// The lowest of the rounds over this batch, and rounds since then.
    lowest: f64,
    stalled: u64,
    /// `energy` was summed row by row.
    exact: bool,
    /// `labels` and `energy` belong to `centers`.
    current: bool,
    changed: u64,
    /// Squared length below which the centers' move ends the run; known after the first round.
    threshold: Option<f64>,
    iteration: u64,
    rows_seen: u64,
    /// The name of the bounds of a run that was gone on with, before it has new ones.
    known_as: Option<Bounds>,
    /// Labels, cluster weights and inertia of all rows about `centers`, once a pass has made them.
    finished: Option<(Vec<u32>, Vec<f64>, f64)>,
    seeded_by: String,
    timings: Timings,
}

/// Runs `f` on the batch as a source.
fn with_batch<T: Compute, R>(
    data: &dyn DataSource<T>,
    rows: &[u64],
    batch: usize,
    f: impl FnOnce(&dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    if !rows.is_empty() {
        return f(&Subset::new(data, rows)).map_err(|e| named(e, rows));
    }
    if data.rows() == Some(batch as u64) { f(data) } else { f(&RowRange::new::<T>(data, 0..batch as u64)?) }
}

/// An error about a row of the batch as one about a row of the source.
fn named(error: Error, rows: &[u64]) -> Error {
    match error {
        Error::NotFinite { what, value, row, column } => {
            Error::NotFinite { what, value, row: rows.get(row as usize).copied().unwrap_or(row), column }
        }
        other => other,
    }
}

/// Two ascending lists in one, and the places of the first one's entries there.
fn merged(old: &[u64], fresh: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (mut all, mut places) = (Vec::with_capacity(old.len() + fresh.len()), Vec::with_capacity(old.len()));
    let mut fresh = fresh.iter().copied().peekable();
    for &row in old {
        while let Some(earlier) = fresh.next_if(|&other| other < row) {
            all.push(earlier);
        }
        places.push(all.len() as u64);
        all.push(row);
    }
    all.extend(fresh);
    (all, places)
}

impl<T: Compute> Nested<T> {
    /// A plan: the first centers are chosen with the first round.
    fn plan(params: NestedParams) -> Self {
        Self {
            params,
            dim: 0,
            centers: Vec::new(),
            labels: Labels::default(),
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

    /// Rows of the batch.
    fn batch(&self) -> usize {
        self.labels.of_rows.len()
    }

    /// Takes the rows that are due into the batch, of `n` that there are.
    fn admit(&mut self, n: u64) -> Result<()> {
        let (old, due) = (self.batch(), self.due as usize);
        if due <= old {
            return Ok(());
        }
        self.labels.make_room(due)?;
        let mut places = None;
        if self.params.shuffle && !self.fed {
            let before = std::mem::take(&mut self.rows);
            if self.due == n {
                // All rows: each has its own number.
                places = Some(before);
            } else {
                let order = Shuffle::new(n, self.params.rng_seed);
                let mut fresh: Vec<u64> = (old as u64..self.due).map(|i| order.at(i)).collect();
                fresh.sort_unstable();
                let (rows, of_old) = merged(&before, &fresh);
                self.rows = rows;
                places = Some(of_old);
            }
        }
        self.labels.grow(|i| places.as_ref().map_or(i, |at| at[i] as usize), due, self.params.bounds_memory);
        // New rows are summed with all others.
        self.carry = false;
        (self.lowest, self.stalled) = (f64::INFINITY, 0);
        Ok(())
    }

    /// Chooses the first centers among the rows of the first batch.
    fn seed(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        let (k, seed) = (self.params.n_clusters, self.params.rng_seed);
        let seeding = &self.params.seeding;
        let seeds = with_batch(data, &self.rows, self.batch(), |batch| {
            let mut seeds = seeding.choose(batch, k, seed, 0, cx)?;
            // Of rows, not of centers that were given.
            if !seeds.rows.is_empty() {
                params::make_distinct(&mut seeds, batch, seed)?;
            }
            Ok(seeds)
        })?;
        self.dim = data.dim();
        self.seeded_by = seeds.method;
        self.centers = seeds.centers;
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Begins bounds, if it is time for them.
    fn choose_bounds(&mut self, sparse: bool) {
        let begun = self.labels.bounds.is_some();
        // Before the first update nothing is known of where centers will be, and which of them are near each other.
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

    /// Whether the batch is to grow: the smallest ratio of a center's statistical error to its last move exceeds `rho`, or nothing
    /// happens any more. `before` are the centers that `sums` has the squared errors about.
    fn settled(&self, sums: &ClusterSums, before: MatRef<'_, T>) -> bool {
        let now = MatRef::new(&self.centers, self.dim);
        let mut ratio = f64::INFINITY;
        let mut still = true;
        for (j, (before, now)) in before.iter().zip(now.iter()).enumerate() {
            let moved = kernel::sq_dist(before, now).sqrt();
            still &= moved == 0.0;
            let rows = sums.effective_rows(j);
            if moved > 0.0 && rows >= 2.0 {
                let variance = sums.energies()[j].max(0.0) / sums.weights()[j];
                ratio = ratio.min((variance / (rows - 1.0)).sqrt() / moved);
            }
        }
        self.changed == 0 || still || ratio > self.params.rho
    }

    /// The first `m` rows of the batch leave: their votes stay. `data` are the rows.
    fn retire(&mut self, data: &dyn DataSource<T>, m: usize, cx: &Executor) -> Result<()> {
        let sparse = data.most_values().is_some();
        let packed = PackedCenters::for_rows(MatRef::new(&self.centers, self.dim), sparse);
        let labels = &self.labels.of_rows[..m];
        let mut votes =
            with_batch(data, &[], m, |rows| super::labels::sum_labelled(labels, &packed, rows, cx))?;
        match &mut self.gone {
            Some(gone) => gone.merge(&mut votes),
            None => self.gone = Some(votes),
        }
        self.labels.of_rows.drain(..m);
        self.labels.bounds = None;
        self.due -= m as u64;
        self.retired += m as u64;
        (self.lowest, self.stalled) = (f64::INFINITY, 0);
        Ok(())
    }

    /// All rows leave; their votes stay.
    fn retire_all(&mut self) {
        if let Some(sums) = self.sums.take() {
            self.gone = Some(sums.into_clusters());
            self.retired += self.voted;
        }
        self.labels = Labels::default();
        (self.rows, self.due, self.carry, self.finished) = (Vec::new(), 0, false, None);
        self.current = false;
    }

    /// One round over the batch.
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
            labels.sweep(&packed, packed_origin.as_ref(), (carried, gone), rows, cx)
        })?;
        swept.clusters.check_means::<T>().inspect_err(|_| self.labels.undo())?;
        self.exact = swept.exact();
        // A small difference of large sums may come out negative.
        self.energy = (swept.clusters.energy() - gone.map_or(0.0, ClusterSums::energy)).max(0.0);
        // A sum that is made afresh has lost the rounding of those that were carried: it begins a new row of them.
        if self.energy < self.lowest || (carries && self.exact) {
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
        let moved = to_means(&mut self.centers, self.dim, Metric::Euclidean, &swept.clusters);
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
        // Unchanged labels have unchanged means, bit for bit, unless the sums were made afresh.
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
    /// What the solver shows between two steps.
    pub(crate) fn snapshot(&self) -> Snapshot<'_, T> {
        let (labels, weights, inertia) = match &self.finished {
            Some((labels, weights, inertia)) => (&labels[..], &weights[..], *inertia),
            None => (&[][..], &self.weights[..], f64::NAN),
        };
        Snapshot {
            dim: self.dim,
            metric: Metric::Euclidean,
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
                    // Where all centers are in one panel, all kinds of bounds are the same one.
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
        // The rows of a batch are listed, where it is not the first ones, or all of them.
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
                inertia(&self.centers, Some(&labels), Metric::Euclidean, data, cx)?
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
