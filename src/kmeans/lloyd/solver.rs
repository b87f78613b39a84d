//! One start of exact k-means.

use std::time::Instant;

use super::params::{Algorithm, KMeansParams};
use crate::centers::{KMeansModel, LabelList, LabelsRef, Snapshot, inertia, project};
use crate::data::{Access, DataSource};
use crate::error::Result;
use crate::fit::{Metric, Restartable, Solver, Step, StopReason, Timings};
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::blocks::{Blocks, Shared};
#[cfg(test)]
use crate::kmeans::bounds::PanelBounds;
use crate::kmeans::choice::Choice;
use crate::kmeans::empty;
use crate::kmeans::labels::{Carried, Labels, Sweep};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::stats::{ClusterSums, mean_variance, to_means};

/// Lloyd's algorithm as a state: centers, labels, sums. Memory is `O(n)` labels and `O(k d)` sums.
///
/// `Step::objective` is the inertia of the sweep, for its labels and the centers at its start. When
/// few labels change, the objective is carried from sweep to sweep and agrees with a sum over all rows to
/// about 1e-12. The inertia of the model is always summed over all rows.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Clone, Debug)]
pub struct Lloyd<T> {
    pub(super) params: KMeansParams,
    pub(super) dim: usize,
    pub(super) centers: Vec<T>,
    pub(super) labels: Labels,
    /// The centers that the labels belong to: those at the start of the last sweep. Empty before the first one.
    pub(super) labeled_by: Vec<T>,
    /// Weight per cluster in the last sweep.
    pub(super) weights: Vec<f64>,
    /// Energy of the last sweep; the inertia of the model if `current`.
    pub(super) energy: f64,
    /// `energy` was summed row by row, not carried from sweep to sweep.
    pub(super) exact: bool,
    /// Sums of the rows by `labels`, with squared errors about `centers`, for the next sweep to start from.
    pub(super) carried: Option<Carried>,
    /// The sums before the last sweep; the next sweep reuses their memory.
    spare: Option<Carried>,
    pub(super) choice: Choice,
    /// Blocks of rows, if sweeps are by blocks.
    pub(super) blocks: Option<Blocks<T>>,
    /// The tree that the starts of a fit share.
    pub(super) shared: Shared<T>,
    /// `labels`, `weights` and `energy` belong to `centers`.
    pub(super) current: bool,
    /// The run ends when the squared length of the centers' move is at most this limit. Set by the first sweep.
    pub(super) threshold: Option<f64>,
    pub(super) iteration: u64,
    pub(super) rows_seen: u64,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
}

impl<T: Compute> Lloyd<T> {
    /// The state before the first step, which chooses the first centers.
    pub(in crate::kmeans) fn plan(params: KMeansParams) -> Self {
        let choice = Choice::new(params.algorithm, params.bounds_memory, params.max_iter);
        Self {
            params,
            choice,
            blocks: None,
            shared: Shared::default(),
            dim: 0,
            centers: Vec::new(),
            labels: Labels::new(0, 1),
            labeled_by: Vec::new(),
            weights: Vec::new(),
            energy: f64::NAN,
            exact: false,
            carried: None,
            spare: None,
            current: false,
            threshold: None,
            iteration: 0,
            rows_seen: 0,
            seeded_by: String::new(),
            timings: Timings::default(),
        }
    }

    /// A start from `centers`, of `dim` columns each. It ends at this `threshold`. `labels` are those of the rows
    /// before.
    pub(in crate::kmeans) fn of_centers(
        params: KMeansParams,
        (centers, dim): (Vec<T>, usize),
        labels: LabelList,
        threshold: f64,
    ) -> Self {
        // No centers are known from which these labels could be recomputed.
        let labels = Labels::of(labels).always_noted();
        Self { dim, centers, labels, threshold: Some(threshold), ..Self::plan(params) }
    }

    /// The same start, which takes the tree of blocks from `shared` and leaves it to others.
    pub(in crate::kmeans) fn sharing(self, shared: &Shared<T>) -> Self {
        Self { shared: shared.for_start(false), ..self }
    }

    /// The squared length of the centers' move at which the start ends; 0 before the first sweep.
    pub(in crate::kmeans) fn threshold(&self) -> f64 {
        self.threshold.unwrap_or(0.0)
    }

    /// The number of centers.
    pub(in crate::kmeans) fn n_clusters(&self) -> usize {
        self.params.n_clusters
    }

    /// Whether labels, weights and inertia belong to the centers, as after [`Restartable::finish`].
    pub(in crate::kmeans) fn is_finished(&self) -> bool {
        self.current
            && self.exact
            && self.energy >= 0.0
            && self.energy.is_finite()
            && !self.labels.are_missing()
    }

    /// The current centers, row by row; empty before the first step.
    pub fn centers(&self) -> &[T] {
        &self.centers
    }

    /// Columns of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The metric.
    pub fn metric(&self) -> Metric {
        self.params.metric
    }

    /// The number of rows.
    pub(in crate::kmeans) fn rows(&self) -> usize {
        self.labels.len()
    }

    /// The label per row in the last sweep. Of more than 2^24 rows, a resumed run has none before the next one.
    pub fn labels(&self) -> LabelsRef<'_> {
        self.labels.of_rows.view()
    }

    /// The weight per cluster in the last sweep.
    pub fn cluster_weights(&self) -> &[f64] {
        &self.weights
    }

    /// The weighted sum of squared distances in the last sweep.
    pub fn inertia(&self) -> f64 {
        self.energy
    }

    /// The number of sweeps that moved the centers.
    pub fn n_iter(&self) -> u64 {
        self.iteration
    }

    /// The method that chose the first centers.
    pub fn seeded_by(&self) -> &str {
        &self.seeded_by
    }

    /// Seconds by phase.
    pub fn timings(&self) -> Timings {
        self.timings
    }

    pub(in crate::kmeans) fn seed(&self) -> u64 {
        self.params.rng_seed
    }

    /// The solver's public state between two steps.
    pub(in crate::kmeans) fn snapshot(&self) -> Snapshot<'_, T> {
        snapshot_of_sweeps!(self)
    }

    /// The algorithm in use. With [`Algorithm::Auto`], its current choice.
    pub fn algorithm(&self) -> Algorithm {
        self.choice.algorithm
    }

    #[cfg(test)]
    pub(in crate::kmeans) fn bounds(&self) -> Option<&PanelBounds> {
        self.labels.bounds.as_ref()
    }

    /// Restores the labels before the last sweep.
    fn undo(&mut self) {
        self.labels.undo();
        self.blocks.iter_mut().for_each(Blocks::forget);
    }

    /// Moves the centers with [`to_means`] and updates the bounds. If `carried`, shifts the squared errors of
    /// `sums` to the new centers. Returns the squared length of all moves.
    fn update(&mut self, sums: &mut ClusterSums, carried: bool, cx: &Executor) -> f64 {
        let moved = to_means(&mut self.centers, self.dim, self.params.metric, sums, cx);
        if !carried && self.labels.bounds.is_none() && self.labels.sketches.is_none() {
            return moved;
        }
        let (before, now) = (MatRef::new(&self.labeled_by, self.dim), MatRef::new(&self.centers, self.dim));
        sums.follow(before, now, cx);
        self.labels.follow(before, now, cx);
        moved
    }
}

impl<T: Compute> Solver<T> for Lloyd<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        Access::Replay
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let begun = Instant::now();
        let sparse = data.most_values().is_some();
        self.labels.recover(MatRef::new(&self.labeled_by, self.dim), data, cx)?;
        let n = self.labels.of_rows.len();
        let (centers, blocks) = (MatRef::new(&self.centers, self.dim), (&mut self.blocks, &self.shared));
        let packed = self.choice.prepare(&mut self.labels, blocks, centers, self.iteration, data, cx)?;
        let origin = self.centers[..self.dim].to_vec();
        let wanted = self.threshold.is_none() && self.params.tolerance > 0.0;
        let packed_origin = wanted.then(|| PackedCenters::for_rows(MatRef::new(&origin, self.dim), sparse));
        // A failed sweep must leave the state unchanged.
        let carried = self.carried.as_ref().map(|carried| carried.copy(self.spare.take()));
        let (blocks, moments) = (self.blocks.as_mut(), packed_origin.as_ref());
        let sweep = Sweep { blocks, moments, carried, ..Sweep::about(&packed) };
        let mut swept = self.labels.sweep(sweep, data, cx)?;
        swept.clusters.check_means::<T>(cx).inspect_err(|_| self.undo())?;
        let energy = swept.clusters.energy();
        // Those of the labels: relocating a cluster moves a row to it, which gets that label only in the next sweep.
        let weights = swept.clusters.weights().to_vec();
        let relocated = empty::relocate(data, cx, &packed, self.labels.of_rows.view(), &mut swept.clusters)
            .inspect_err(|_| self.undo())?;
        (self.energy, self.exact) = (energy, swept.exact);
        self.labeled_by.clone_from(&self.centers);
        if self.threshold.is_none() {
            let variance = swept.moments.as_ref().map_or(0.0, |all| mean_variance(all, &origin));
            self.threshold = Some(self.params.tolerance * variance);
        }
        let n = n as u64;
        // For sparse rows, recomputing the sums costs less than carrying sums over all columns.
        let carry = relocated == 0 && !sparse && swept.pays_to_carry(n);
        let moved = self.update(&mut swept.clusters, carry, cx);
        self.weights = weights;
        let (changed, distances) = (swept.changed, swept.distances);
        self.iteration += 1;
        self.choice.watch(&mut self.labels, &packed, &swept, self.iteration);
        self.choice.watch_sketches(&mut self.labels, &swept);
        let of_rows = self.labels.of_rows.view();
        let watched = (&swept, self.iteration);
        self.choice.watch_blocks(&mut self.blocks, &self.shared, &packed, of_rows, watched);
        self.rows_seen += n;
        self.spare = self.carried.take().filter(|_| carry);
        self.carried = carry.then(|| swept.into_carried());
        // Unchanged labels give bit-identical means, unless a cluster was relocated or `finish` changed the labels in
        // between.
        self.current = changed == 0 && moved == 0.0 && relocated == 0;
        self.timings.sweeps += begun.elapsed().as_secs_f64();
        let stop_reason = if self.current {
            Some(StopReason::LabelsStable)
        } else if self.threshold.is_some_and(|t| moved <= t) {
            Some(StopReason::Tolerance)
        } else {
            None
        };
        Ok(Step {
            iteration: self.iteration,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: self.energy,
            center_shift: moved.sqrt(),
            n_changed: changed,
            n_distances: distances,
            elapsed: 0.0,
            stop_reason,
        })
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> Restartable<T> for Lloyd<T> {
    fn begin(&self, start: u64, data: &dyn DataSource<T>, cx: &Executor) -> Result<Self> {
        let begun = Instant::now();
        let mut new = Self::plan(self.params.clone());
        new.shared = self.shared.for_start(start + 1 >= self.params.seeding.n_starts(self.params.n_init));
        new.dim = data.dim();
        let seeds =
            self.params.seeding.choose(data, self.params.n_clusters, self.params.rng_seed, start, cx)?;
        new.seeded_by = seeds.method;
        new.centers = seeds.centers;
        project(&mut new.centers, new.dim, self.params.metric);
        let n = crate::data::count_rows(data)?;
        crate::seeding::enough_rows(n, self.params.n_clusters)?;
        new.labels = Labels::new(n as usize, self.params.n_clusters);
        new.timings.seeding = begun.elapsed().as_secs_f64();
        Ok(new)
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        self.spare = None;
        self.labels.recover(MatRef::new(&self.labeled_by, self.dim), data, cx)?;
        if !self.current {
            let sparse = data.most_values().is_some();
            // The bounds are those of the moved centers.
            let packed = self.labels.pack(MatRef::new(&self.centers, self.dim), sparse, cx);
            let blocks = self.blocks.as_mut();
            let swept = self.labels.sweep(Sweep { blocks, ..Sweep::about(&packed) }, data, cx)?;
            self.energy = swept.clusters.energy();
            self.exact = true;
            self.weights = swept.clusters.weights().to_vec();
            self.labeled_by.clone_from(&self.centers);
            self.current = true;
        } else if !self.exact {
            self.energy =
                inertia(&self.centers, Some(self.labels.of_rows.view()), Metric::Euclidean, data, cx)?;
            self.exact = true;
        }
        (self.carried, self.blocks) = (None, None);
        self.labels.forget_sweeps();
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(self.energy)
    }

    fn timings(&self) -> Timings {
        self.timings
    }

    fn model_of_all(&self, timings: Timings) -> KMeansModel {
        KMeansModel { timings, ..self.model() }
    }
}
