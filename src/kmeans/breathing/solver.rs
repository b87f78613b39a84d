//! Solver of breathing k-means: runs of exact k-means, between which centers are added and removed.

use std::time::Instant;

use super::centers::{drawn, largest, with_copies, without_useless};
use super::params::{BREATH_RUN_SWEEPS, BreathingParams};
use super::passes::utilities;
use crate::centers::{KMeansModel, LabelList, Snapshot, errors, project};
use crate::data::{Access, DataSource};
use crate::error::Result;
use crate::fit::{FitSolver, Metric, Restartable, Solver, Step, StopReason, Timings};
use crate::kernel::{Compute, MAX_CENTERS};
use crate::kmeans::blocks::Shared;
use crate::kmeans::lloyd::solver::Lloyd;
use crate::matrix::MatRef;
use crate::names::names;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};

/// How far the centers that breathing k-means adds lie from those they copy, in root mean squared distances of rows to
/// their centers (Fritzke, 2020).
const BREATH_OFFSET: f64 = 0.01;

/// Breaths in a row that may fail before fewer centers are added: the first splits the clusters with the largest
/// errors, the others split drawn ones (`breathing.py`, known).
const BREATH_TRIES: u64 = 3;

/// The factor on the tolerance of the run that ends a fit (`breathing.py`, known).
const BREATH_LAST_TOLERANCE: f64 = 0.01;

/// The share by which a run must lower the inertia to become the best. Runs that end at the same clusters, in another
/// order, differ by less.
const NEGLIGIBLE: f64 = 1e-9;

/// What a run of exact k-means is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreathPhase {
    /// It starts the fit.
    Start,
    /// It spreads the added centers.
    In,
    /// It follows the removal of centers.
    Out,
    /// It ends the fit, with a lower tolerance.
    Last,
}

names! {
    BreathPhase("phase") {
        Start = "start",
        In = "in",
        Out = "out",
        Last = "last",
    }
}

/// Breathing k-means as a state: the best clustering so far, and the run of exact k-means in progress. Memory is
/// `O(n)` labels and `O(k d)` sums.
///
/// A step is a sweep. `Step::objective` is the inertia of the best clustering so far; before the first breath, that of
/// the sweep.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Clone, Debug)]
pub struct BreathingSolver<T> {
    pub(super) params: BreathingParams,
    /// The run before the first step.
    pub(super) plan: Lloyd<T>,
    /// The run of exact k-means in progress. With `None`, the next step begins one.
    pub(super) current: Option<Lloyd<T>>,
    pub(super) phase: BreathPhase,
    /// The finished run with the lowest inertia.
    pub(super) best: Option<Lloyd<T>>,
    /// Centers that the present breath adds and removes.
    pub(super) m: usize,
    pub(super) breaths: u64,
    /// Breaths in a row that have not lowered the inertia enough.
    pub(super) failures: u64,
    /// The inertia before the first breath.
    pub(super) start_inertia: f64,
    /// The limit of the squared length of the centers' move at which the first and the last run end.
    pub(super) threshold: f64,
    /// The last sweep of a run that has not yet been followed by the next run.
    pub(super) ended: Option<Step>,
    pub(super) iteration: u64,
    pub(super) rows_seen: u64,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
    /// The tree of blocks that all runs share.
    pub(super) shared: Shared<T>,
}

impl<T: Compute> BreathingSolver<T> {
    /// A run of a state that was stored, which gets the tree of this fit.
    pub(super) fn sharing(self) -> Self {
        let current = self.current.map(|run| run.sharing(&self.shared));
        Self { current, ..self }
    }

    pub(super) fn n_breaths(&self) -> u64 {
        self.breaths
    }

    pub(super) fn start_inertia(&self) -> f64 {
        self.start_inertia
    }

    /// The run of exact k-means that the next step begins, if none is in progress.
    fn begin(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Lloyd<T>> {
        let Some(best) = &self.best else {
            return Ok(self.plan.begin(0, data, cx)?.sharing(&self.shared));
        };
        let labels = LabelList::of(best.labels().to_vec(), self.params.n_clusters);
        Ok(self.run(best.centers().to_vec(), best.dim(), labels, BREATH_LAST_TOLERANCE))
    }

    /// A run of exact k-means from these centers, that ends at `loosened` times the final tolerance. `labels` are
    /// those of the rows before.
    fn run(&self, centers: Vec<T>, dim: usize, labels: LabelList, loosened: f64) -> Lloyd<T> {
        let params = self.params.run_of(centers.len() / dim);
        Lloyd::of_centers(params, (centers, dim), labels, loosened * self.threshold).sharing(&self.shared)
    }

    /// A run that follows `base`, with up to `m` more centers: copies of those with the largest errors, or of drawn
    /// ones after `failures` breaths that failed. `None` if no cluster has an error above the rounding of its center.
    fn breathe_in(
        &self,
        base: &Lloyd<T>,
        (m, failures): (usize, u64),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Option<Lloyd<T>>> {
        let centers = MatRef::new(base.centers(), base.dim());
        // The run has scaled the rows as its metric requires.
        let mut errors = errors(base.centers(), Some(base.labels()), Metric::Euclidean, data, cx)?;
        let weight: f64 = base.cluster_weights().iter().sum();
        let offset = BREATH_OFFSET * (errors.iter().sum::<f64>() / weight).sqrt();
        let rng = &mut Rng::keyed(self.params.rng_seed, Purpose::Breathing, self.breaths);
        let rounding = 4.0 * T::EPSILON + (base.labels().len() as f64).sqrt() * f64::EPSILON;
        for ((error, center), weight) in errors.iter_mut().zip(centers.iter()).zip(base.cluster_weights()) {
            let sq_norm: f64 = center.iter().map(|c| c.to_f64().powi(2)).sum();
            if *error <= weight * sq_norm * rounding * rounding {
                *error = 0.0;
            }
        }
        let copied = if failures == 0 { largest(&errors, m) } else { drawn(&errors, m, rng) };
        if copied.is_empty() {
            return Ok(None);
        }
        let mut more = with_copies(centers, &copied, offset, rng);
        project(&mut more, base.dim(), self.params.metric);
        let labels = LabelList::of(base.labels().to_vec(), centers.rows() + copied.len());
        Ok(Some(self.run(more, base.dim(), labels, 1.0)))
    }

    /// A run that follows `wide`, with only `n_clusters` of its centers.
    fn breathe_out(&self, wide: &Lloyd<T>, data: &dyn DataSource<T>, cx: &Executor) -> Result<Lloyd<T>> {
        let (k, centers) = (self.params.n_clusters, MatRef::new(wide.centers(), wide.dim()));
        let heirs = without_useless(centers, &utilities(centers, data, cx)?, k);
        let left: Vec<usize> = (0..heirs.len()).filter(|&j| heirs[j] == j).collect();
        let numbers: Vec<u32> = heirs.iter().map(|heir| left.partition_point(|j| j < heir) as u32).collect();
        let labels = wide.labels().iter().map(|j| numbers[j as usize]).collect();
        let fewer = left.iter().flat_map(|&j| centers.row(j)).copied().collect();
        Ok(self.run(fewer, wide.dim(), LabelList::of(labels, k), 1.0))
    }

    /// The number of centers that the first breath adds to the centers of `start`.
    fn first_m(&self, start: &Lloyd<T>) -> usize {
        let (k, n) = (self.params.n_clusters, start.rows());
        // A single center is the mean of all rows.
        let most = if k == 1 { 0 } else { k };
        self.params.m.min(most).min(n.min(MAX_CENTERS) - k)
    }

    /// Begins the run after the one in progress, which ended with the step `last`. Returns why the fit ends,
    /// if it does. After an error, the next call does the same.
    fn close(&mut self, last: &Step, data: &dyn DataSource<T>, cx: &Executor) -> Result<Option<StopReason>> {
        let cut = StopReason::after(self.iteration, self.params.max_iter);
        let ended = "a run has ended";
        if self.phase == BreathPhase::In {
            if cut.is_none() {
                let next = self.breathe_out(self.current.as_ref().expect(ended), data, cx)?;
                (self.current, self.phase) = (Some(next), BreathPhase::Out);
            }
            return Ok(cut);
        }
        let inertia = self.current.as_mut().expect(ended).finish(data, cx)?;
        let run = self.current.as_ref().expect(ended);
        if self.phase == BreathPhase::Start {
            self.threshold = run.threshold();
            self.start_inertia = inertia;
        }
        let before = self.best.as_ref().map(Lloyd::inertia);
        let (m, failures) = match before {
            None => (self.first_m(run), 0),
            Some(before) if inertia < before * (1.0 - self.params.tolerance.max(NEGLIGIBLE)) => (self.m, 0),
            Some(_) if self.failures + 1 < BREATH_TRIES => (self.m, self.failures + 1),
            Some(_) => (self.m.saturating_sub(1), 0),
        };
        let better = before.is_none_or(|before| inertia < before * (1.0 - NEGLIGIBLE));
        let base = self.best.as_ref().filter(|_| !better).unwrap_or(run);
        let wanted = m > 0 && self.phase != BreathPhase::Last;
        let next =
            if wanted && cut.is_none() { self.breathe_in(base, (m, failures), data, cx)? } else { None };
        // Nothing fails from here on.
        let settled = base.threshold() <= BREATH_LAST_TOLERANCE * self.threshold;
        let loose = self.phase != BreathPhase::Last && self.breaths > 0 && !settled;
        let is_over = next.is_none() && !loose && !(wanted && cut.is_some());
        if better {
            self.best = self.current.take();
        }
        self.phase = if next.is_some() { BreathPhase::In } else { BreathPhase::Last };
        self.breaths += u64::from(next.is_some());
        (self.current, self.m, self.failures) = (next, m, failures);
        Ok(if is_over { last.stop_reason.or(Some(StopReason::MaxIterations)) } else { cut })
    }

    /// One sweep of the run in progress.
    fn sweep(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if self.current.is_none() {
            let run = self.begin(data, cx)?;
            if self.best.is_none() {
                self.timings.seeding = run.timings().seeding;
                run.seeded_by().clone_into(&mut self.seeded_by);
            }
            self.current = Some(run);
        }
        let step = self.current.as_mut().expect("begun above").step(data, cx)?;
        self.iteration += 1;
        self.rows_seen += step.batch_size;
        Ok(Step { iteration: self.iteration, rows_seen: self.rows_seen, ..step })
    }

    /// Whether the run in progress has ended with this sweep.
    fn has_ended(&self, step: &Step) -> bool {
        let swept = self.current.as_ref().map_or(0, Lloyd::n_iter);
        step.stop_reason.is_some() || swept >= BREATH_RUN_SWEEPS || self.iteration >= self.params.max_iter
    }
}

impl<T: Compute> Solver<T> for BreathingSolver<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        Access::Replay
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let (begun, seeding) = (Instant::now(), self.timings.seeding);
        let mut step = match self.ended.take() {
            Some(step) => step,
            None => self.sweep(data, cx)?,
        };
        if self.has_ended(&step) {
            // After an error, the next call tries again.
            self.ended = Some(step);
            step.stop_reason = self.close(&step, data, cx)?;
            self.ended = None;
        }
        if let Some(best) = &self.best {
            step.objective = best.inertia();
        }
        self.timings.sweeps += begun.elapsed().as_secs_f64() - (self.timings.seeding - seeding);
        Ok(step)
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> FitSolver<T> for BreathingSolver<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let shown = self.best.as_ref().or(self.current.as_ref()).unwrap_or(&self.plan);
        Snapshot {
            n_iter: self.iteration,
            n_steps: self.iteration,
            seeded_by: &self.seeded_by,
            timings: self.timings,
            ..shown.snapshot()
        }
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        let inertia = match (&self.best, &mut self.current) {
            (Some(best), _) => best.inertia(),
            (None, Some(start)) => start.finish(data, cx)?,
            (None, None) => f64::NAN,
        };
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(inertia)
    }
}
