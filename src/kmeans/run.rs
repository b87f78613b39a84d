//! This module knows a fit on its way, of any k-means method: over rows of either type, a step at a time.

use super::lloyd::Timings;
use super::model::KMeansModel;
use super::params::Metric;
use crate::data::{Access, AnySource, Counted, DataSource, Normalized, Source, no_weight};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::solver::{Run, Solver, Step, StopReason, StopRules, require};
use crate::stats::Coreset;

/// What a method shows between two of its steps.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a, T> {
    /// Columns of a row.
    pub dim: usize,
    /// What "near" means.
    pub metric: Metric,
    /// The centers as they are now; empty before the first step.
    pub centers: &'a [T],
    /// Weight of each cluster, as the method counts it.
    pub weights: &'a [f64],
    /// The label of each row, as far as the method keeps labels: those of the present centers after [`CenterSolver::finish`].
    pub labels: &'a [u32],
    /// Weighted sum of squared distances that goes with `labels`; NaN where no pass has measured it.
    pub inertia: f64,
    /// Units of work that the method counts.
    pub n_iter: u64,
    /// Steps that the centers have made.
    pub n_steps: u64,
    /// How the first centers were chosen.
    pub seeded_by: &'a str,
    /// How steps find the nearest centers.
    pub algorithm: &'static str,
    /// Seconds by phase.
    pub timings: Timings,
}

/// A solver that moves centers.
pub trait CenterSolver<T: Compute>: Solver<T> {
    /// What it shows now.
    fn snapshot(&self) -> Snapshot<'_, T>;

    /// What only this method knows, for those who show it: small arrays and texts.
    fn details(&self) -> Contents {
        Contents::new("")
    }

    /// The few rows with weights that it works on in place of all, where it does.
    fn coreset(&self) -> Option<&Coreset<T>> {
        None
    }

    /// All that the next step depends on, but for the rows and what can be made anew from them.
    fn checkpoint(&self) -> Contents;

    /// How far a step of the method goes now, where it has such a rate, and it is known; NaN elsewhere.
    fn rate(&self) -> f64 {
        f64::NAN
    }

    /// Whether what it keeps of rows can be that of `n` rows, if that is their number.
    fn fits(&self, n: Option<u64>) -> bool;

    /// The step size of each step of a fit, of a method that has such.
    fn step_sizes(&self) -> &[f64] {
        &[]
    }

    /// The clusters that have hardly any rows of the last batches, of a method whose centers stay where they are then.
    fn starved(&self) -> Vec<u32> {
        Vec::new()
    }

    /// What there is to do about the centers once, after the last step of a run that was not left before; nothing when it was done already.
    ///
    /// # Errors
    /// Those of the source; the centers are then what they were.
    fn conclude(&mut self, _data: &dyn DataSource<T>, _cx: &Executor) -> Result<()> {
        Ok(())
    }

    /// Makes labels and inertia those of the present centers, which stay, with a pass over `data` if it takes one; gives the inertia. The run
    /// can go on afterwards.
    ///
    /// # Errors
    /// Those of the source.
    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64>;
}

/// A solver that takes its rows a batch at a time, for as long as there are any, in bounded memory.
pub trait StreamSolver<T: Compute>: CenterSolver<T> + Solver<T, Model = KMeansModel> {
    /// Takes one batch of any size; `None` while there are too few rows to begin with. After an error the state is what it
    /// was, but for rows that had to make room for others meanwhile.
    ///
    /// # Errors
    /// Those of the source, [`Error::NotFinite`].
    fn partial_fit(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>>;

    /// All that the next batch depends on, to be kept.
    fn state(&self) -> Contents;

    /// Rows that are looked at again, and rows that are not, but whose votes count.
    fn rows(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Rows that the next batch is worked on together with.
    fn kept(&self) -> u64 {
        0
    }

    /// Takes over what another state has learned.
    ///
    /// # Errors
    /// [`Error::Shape`] for a state that does not fit, [`Error::Source`] from a method whose states cannot be put together; nothing has
    /// changed then.
    fn merge(&mut self, _other: &Contents) -> Result<()> {
        Err(Error::Source("states of this method cannot be put together".into()))
    }
}

/// A k-means method: its parameters, and the state that it has for rows of either type.
///
/// ```
/// use shoal::kmeans::{FitRun, Method};
/// fn steps<M: Method>(run: &FitRun<M>) -> usize {
///     run.history().len()
/// }
/// let run = shoal::KMeans::params(2).start(&[[0.0f64], [1.0]]).unwrap();
/// assert_eq!(steps(&run), 0);
/// ```
pub trait Method {
    /// All of its parameters.
    type Params: Clone + Send;
    /// Its state for rows that are computed as `T`.
    type Solver<T: Compute>: CenterSolver<T> + Send;

    /// The state before the first step.
    fn solver<T: Compute>(params: &Self::Params) -> Self::Solver<T>;

    /// The state that [`CenterSolver::checkpoint`] gave.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    fn of_checkpoint<T: Compute>(
        params: &Self::Params,
        contents: &Contents,
    ) -> Result<Self::Solver<T>, String>;

    /// Its state as one that takes batches, if it can.
    fn stream<T: Compute>(_solver: &mut Self::Solver<T>) -> Option<&mut dyn StreamSolver<T>> {
        None
    }
}

/// A fit on its way, by the method `M`. It does not hold the data.
///
/// See [`KMeansParams::start`](super::KMeansParams::start) for an example.
pub struct FitRun<M: Method> {
    pub(super) typed: Typed<M>,
    /// Rows of a source that does not know how many it has: counted once, at the start, where it can be read again.
    pub(super) rows: Option<u64>,
    /// By which the rows are known again, once somebody has asked.
    pub(super) print: Option<u64>,
}

pub(super) enum Typed<M: Method> {
    F32(Run<M::Solver<f32>>),
    F64(Run<M::Solver<f64>>),
}

/// The same expression for either type of run.
macro_rules! either {
    ($typed:expr, $run:ident => $body:expr) => {
        match $typed {
            Typed::F32($run) => $body,
            Typed::F64($run) => $body,
        }
    };
}

/// How the rows can be read.
pub(crate) fn access<S: Source + ?Sized>(rows: &S) -> Access {
    match rows.any() {
        AnySource::F32(data) => data.access(),
        AnySource::F64(data) => data.access(),
    }
}

/// The number of rows, where it can be told before they are used up, and of columns, once the source is known to give the access that a
/// method needs.
///
/// # Errors
/// [`Error::Source`] for too little access, [`Error::Empty`] for no rows, those of the source.
pub(crate) fn shape<S: Source + ?Sized>(rows: &S, needs: Access) -> Result<(Option<u64>, usize)> {
    fn of<T: Compute>(data: &dyn DataSource<T>, needs: Access) -> Result<(Option<u64>, usize)> {
        // Before a row is read: a stream that can be read once is still whole when it is refused.
        require(needs, data.access())?;
        let n = match data.access() {
            Access::Once => data.rows(),
            _ => Some(crate::data::count_rows(data)?),
        };
        Ok((n, data.dim()))
    }
    let (n, d) = match rows.any() {
        AnySource::F32(data) => of(data, needs)?,
        AnySource::F64(data) => of(data, needs)?,
    };
    if n == Some(0) { Err(Error::Empty("X holds no rows".into())) } else { Ok((n, d)) }
}

impl<M: Method> FitRun<M> {
    /// A run over `rows`, of which there are `n` where that is known; their parameters were checked.
    pub(crate) fn new<S: Source + ?Sized>(params: &M::Params, rows: &S, n: Option<u64>) -> Self {
        let typed = match rows.any() {
            AnySource::F32(_) => Typed::F32(Run::new(M::solver(params))),
            AnySource::F64(_) => Typed::F64(Run::new(M::solver(params))),
        };
        Self { typed, rows: n, print: None }
    }

    /// A run that goes on from a solver of `f32` rows.
    pub(super) fn from_f32(solver: M::Solver<f32>) -> Self {
        Self { typed: Typed::F32(Run::new(solver)), rows: None, print: None }
    }

    /// A run that goes on from a solver of `f64` rows.
    pub(super) fn from_f64(solver: M::Solver<f64>) -> Self {
        Self { typed: Typed::F64(Run::new(solver)), rows: None, print: None }
    }

    /// Rules that stop the run, beside those of the parameters.
    #[must_use]
    pub fn stop(self, rules: StopRules) -> Self {
        let typed = match self.typed {
            Typed::F32(run) => Typed::F32(run.stop(rules)),
            Typed::F64(run) => Typed::F64(run.stop(rules)),
        };
        Self { typed, ..self }
    }

    /// One more step over the rows that the run was made for; `None` once it is over, and everything is done that a method does about its
    /// centers in the end.
    ///
    /// # Errors
    /// [`Error::Source`] for rows of another type, [`Error::InvalidParam`] for rows that all have weight 0, and those of the solver.
    pub fn advance<S: Source + ?Sized>(&mut self, rows: &S, cx: &Executor) -> Result<Option<Step>> {
        let step = self.with(rows, |typed| match typed {
            WithData::F32(run, data) => advance_or_conclude(run, data, cx),
            WithData::F64(run, data) => advance_or_conclude(run, data, cx),
        })?;
        // Not every source knows its weights before a pass.
        if step.is_some() && self.cluster_weights().iter().all(|&w| w <= 0.0) {
            return Err(no_weight());
        }
        Ok(step)
    }

    /// Takes one batch of rows of the type that the run was made for, whatever came before; `None` while there are too few rows to begin
    /// with. Such steps are not part of the history, which would grow for ever.
    ///
    /// # Errors
    /// [`Error::Source`] for rows of another type and for a method that has no such steps, and those of the solver; the state is then what
    /// it was.
    pub fn partial_fit<S: Source + ?Sized>(&mut self, rows: &S, cx: &Executor) -> Result<Option<Step>> {
        let none = || Error::Source("this method takes no single batches".into());
        match (&mut self.typed, rows.any()) {
            (Typed::F32(run), AnySource::F32(data)) => {
                M::stream(run.solver_mut()).ok_or_else(none)?.partial_fit(data, cx)
            }
            (Typed::F64(run), AnySource::F64(data)) => {
                M::stream(run.solver_mut()).ok_or_else(none)?.partial_fit(data, cx)
            }
            _ => Err(other_type()),
        }
    }

    /// All that the next batch depends on; `None` from a method that takes no single batches.
    ///
    /// See [`MiniBatchParams::resume`](super::MiniBatchParams::resume) for an example.
    pub fn state(&mut self) -> Option<Contents> {
        either!(&mut self.typed, run => M::stream(run.solver_mut()).map(|stream| stream.state()))
    }

    /// As [`StreamSolver::rows`]; none from a method that takes no single batches.
    #[cfg(feature = "python")]
    pub(crate) fn rows(&mut self) -> (u64, u64) {
        either!(&mut self.typed, run => M::stream(run.solver_mut()).map_or((0, 0), |stream| stream.rows()))
    }

    /// As [`StreamSolver::kept`].
    #[cfg(feature = "python")]
    pub(crate) fn kept(&mut self) -> u64 {
        either!(&mut self.typed, run => M::stream(run.solver_mut()).map_or(0, |stream| stream.kept()))
    }

    /// Takes over what another state has learned.
    ///
    /// # Errors
    /// As [`StreamSolver::merge`].
    #[cfg(feature = "python")]
    pub(crate) fn merge_state(&mut self, other: &Contents) -> Result<()> {
        either!(&mut self.typed, run => {
            let stream = M::stream(run.solver_mut());
            stream.ok_or_else(|| Error::Source("this method takes no single batches".into()))?.merge(other)
        })
    }

    /// All steps that are left.
    ///
    /// # Errors
    /// As [`FitRun::advance`].
    pub(super) fn exhaust<S: Source + ?Sized>(mut self, rows: &S, cx: &Executor) -> Result<KMeansModel> {
        while self.advance(rows, cx)?.is_some() {}
        Ok(self.into_model())
    }

    /// Makes labels and inertia those of the present centers: a further pass, where the run was left before its end.
    ///
    /// # Errors
    /// As [`FitRun::advance`].
    pub fn finish<S: Source + ?Sized>(&mut self, rows: &S, cx: &Executor) -> Result<f64> {
        if self.history().is_empty() {
            return Err(Error::Source("no step was made yet: there are no centers to finish with".into()));
        }
        self.with(rows, |typed| match typed {
            WithData::F32(run, data) => run.solver_mut().finish(data, cx),
            WithData::F64(run, data) => run.solver_mut().finish(data, cx),
        })
    }

    /// Ends the run after its last step.
    pub fn end(&mut self, reason: StopReason) {
        either!(&mut self.typed, run => run.end(reason));
    }

    /// All steps so far.
    pub fn history(&self) -> &[Step] {
        either!(&self.typed, run => run.history())
    }

    /// Columns of a row; 0 before the first step.
    #[cfg(feature = "python")]
    pub(crate) fn dim(&self) -> usize {
        either!(&self.typed, run => run.solver().snapshot().dim)
    }

    /// Whether rows are computed in `f64`.
    #[cfg(feature = "python")]
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self.typed, Typed::F64(_))
    }

    /// The centers as they are now, `n_clusters` rows; empty before the first step.
    pub fn centers<T: Compute>(&self) -> Vec<T> {
        either!(&self.typed, run => run.solver().snapshot().centers.iter().map(|&c| T::from_f64(Float::to_f64(c))).collect())
    }

    /// The labels that the method keeps, those of the present centers after [`FitRun::finish`].
    pub fn labels(&self) -> &[u32] {
        either!(&self.typed, run => run.solver().snapshot().labels)
    }

    /// Weight of each cluster, as the method counts it.
    pub fn cluster_weights(&self) -> &[f64] {
        either!(&self.typed, run => run.solver().snapshot().weights)
    }

    /// Weighted sum of squared distances that goes with the labels; NaN where no pass has measured it.
    pub fn inertia(&self) -> f64 {
        either!(&self.typed, run => run.solver().snapshot().inertia)
    }

    /// Units of work that the method counts, of the best start where there are several.
    pub fn n_iter(&self) -> u64 {
        either!(&self.typed, run => run.solver().snapshot().n_iter)
    }

    /// Steps that the centers have made, of the best start where there are several.
    pub fn n_steps(&self) -> u64 {
        either!(&self.typed, run => run.solver().snapshot().n_steps)
    }

    /// The step size of each step of a fit, of a method that has such.
    pub fn step_sizes(&self) -> &[f64] {
        either!(&self.typed, run => run.solver().step_sizes())
    }

    /// The clusters that get hardly any rows of batches, of stochastic backward Euler: fewer than a hundredth of what the mean cluster got, over
    /// some 100 batches. Their centers stay about where they are, as a step is the shorter the fewer rows a cluster has. None as long as too
    /// few rows came to tell, and after sweeps over all rows.
    ///
    /// ```
    /// use shoal::{BackwardEuler, Executor, Seeding};
    /// let rows: Vec<[f64; 1]> = (0..2000).map(|i| [f64::from(i % 7)]).collect();
    /// let start = Seeding::Given(vec![1.0, 4.0, 99.0]);
    /// let mut run = BackwardEuler::params(3).seeding(start).polish(false).start(&rows).unwrap();
    /// let cx = Executor::new(None).unwrap();
    /// while run.advance(&rows, &cx).unwrap().is_some() {}
    /// assert_eq!(run.starved(), [2]);
    /// ```
    pub fn starved(&self) -> Vec<u32> {
        either!(&self.typed, run => run.solver().starved())
    }

    /// How the first centers were chosen.
    pub fn seeded_by(&self) -> &str {
        either!(&self.typed, run => run.solver().snapshot().seeded_by)
    }

    /// How steps find the nearest centers.
    pub(crate) fn found_by(&self) -> &'static str {
        either!(&self.typed, run => run.solver().snapshot().algorithm)
    }

    /// How far a step of the method goes now, where it has such a rate, and it is known; NaN elsewhere.
    ///
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let params = shoal::VarianceReduced::params(2).learning_rate(Some(0.25));
    /// let mut run = params.start(&rows).unwrap();
    /// run.advance(&rows, &shoal::Executor::new(None).unwrap()).unwrap();
    /// assert_eq!(run.rate(), 0.25);
    /// ```
    pub fn rate(&self) -> f64 {
        either!(&self.typed, run => run.solver().rate())
    }

    /// Seconds spent so far.
    pub fn timings(&self) -> Timings {
        either!(&self.typed, run => run.solver().snapshot().timings)
    }

    /// The model as it is now; its labels and inertia are current after the last step or [`FitRun::finish`].
    pub fn model(&self) -> KMeansModel {
        either!(&self.typed, run => KMeansModel::new(&run.solver().snapshot()))
    }

    /// The model, once the run is over.
    pub fn into_model(self) -> KMeansModel {
        self.model()
    }

    /// As [`CenterSolver::details`].
    #[cfg(feature = "python")]
    pub(crate) fn details(&self) -> Contents {
        either!(&self.typed, run => run.solver().details())
    }

    /// What the one of two functions gives that takes the solver of this run.
    pub(crate) fn with_solver<R>(
        &self,
        narrow: impl FnOnce(&M::Solver<f32>) -> R,
        wide: impl FnOnce(&M::Solver<f64>) -> R,
    ) -> R {
        match &self.typed {
            Typed::F32(run) => narrow(run.solver()),
            Typed::F64(run) => wide(run.solver()),
        }
    }

    /// What the one of two functions gives that takes the solvers of this run and of another; `None` when their types differ.
    pub(super) fn with_other<R>(
        &mut self,
        other: &Self,
        narrow: impl FnOnce(&mut M::Solver<f32>, &M::Solver<f32>) -> R,
        wide: impl FnOnce(&mut M::Solver<f64>, &M::Solver<f64>) -> R,
    ) -> Option<R> {
        match (&mut self.typed, &other.typed) {
            (Typed::F32(run), Typed::F32(other)) => Some(narrow(run.solver_mut(), other.solver())),
            (Typed::F64(run), Typed::F64(other)) => Some(wide(run.solver_mut(), other.solver())),
            _ => None,
        }
    }

    /// Runs `f` on the typed run and the rows in its type, normalised where the metric asks for it.
    fn with<S: Source + ?Sized, R>(
        &mut self,
        rows: &S,
        f: impl FnOnce(WithData<'_, M>) -> Result<R>,
    ) -> Result<R> {
        let n = self.rows;
        match (&mut self.typed, rows.any()) {
            (Typed::F32(run), AnySource::F32(data)) => {
                seen_by(run.solver().snapshot().metric, data, n, |data| f(WithData::F32(run, data)))
            }
            (Typed::F64(run), AnySource::F64(data)) => {
                seen_by(run.solver().snapshot().metric, data, n, |data| f(WithData::F64(run, data)))
            }
            _ => Err(other_type()),
        }
    }
}

enum WithData<'a, M: Method> {
    F32(&'a mut Run<M::Solver<f32>>, &'a dyn DataSource<f32>),
    F64(&'a mut Run<M::Solver<f64>>, &'a dyn DataSource<f64>),
}

/// One more step, or the end.
fn advance_or_conclude<T: Compute, S: CenterSolver<T>>(
    run: &mut Run<S>,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Option<Step>> {
    let step = run.advance(data, cx)?;
    if step.is_none() {
        run.solver_mut().conclude(data, cx)?;
    }
    Ok(step)
}

fn other_type() -> Error {
    Error::Source("the run was made for rows of the other floating-point type".into())
}

/// Runs `f` on `data` as the metric sees it; where its length is unknown, it is `rows`.
fn seen_by<T: Compute, R>(
    metric: Metric,
    data: &dyn DataSource<T>,
    rows: Option<u64>,
    f: impl FnOnce(&dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    let counted = rows.filter(|_| data.rows().is_none()).map(|rows| Counted::new(data, rows));
    let data = counted.as_ref().map_or(data, |counted| counted as &dyn DataSource<T>);
    match metric {
        Metric::Euclidean => f(data),
        Metric::Cosine => f(&Normalized::new(data)),
    }
}

/// The steps of a fit. See [`KMeansParams::solve`](super::KMeansParams::solve).
pub struct FitSteps<'a, M: Method, S: ?Sized> {
    run: FitRun<M>,
    rows: &'a S,
    cx: Executor,
    failed: bool,
}

impl<'a, M: Method, S: Source + ?Sized> FitSteps<'a, M, S> {
    pub(crate) fn new(run: FitRun<M>, rows: &'a S, cx: Executor) -> Self {
        Self { run, rows, cx, failed: false }
    }

    /// The model as it is now, labels and inertia brought up to date.
    ///
    /// # Errors
    /// Those of the source.
    pub fn model(&mut self) -> Result<KMeansModel> {
        self.run.finish(self.rows, &self.cx)?;
        Ok(self.run.model())
    }
}

impl<M: Method, S: Source + ?Sized> Iterator for FitSteps<'_, M, S> {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        if self.failed {
            return None;
        }
        let step = self.run.advance(self.rows, &self.cx).transpose();
        self.failed = matches!(step, Some(Err(_)));
        step
    }
}
