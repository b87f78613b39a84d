//! A fit in progress, of any method, over rows of either type.

use std::sync::Arc;

use serde_json::json;

use super::driver::{Driver, Observer, require};
use super::method::{Element, FitSolver, MergeMethod, Method, StreamMethod};
use super::{Metric, Step, StopReason, StopRules};
use crate::data::{Access, Counted, DataSource, Normalized, Source, ZeroRows, no_weight};
use crate::error::{Error, Result};
use crate::float::{Typed, either};
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::persist::kept::count;

/// A fit in progress by the method `M`. It does not hold the data, so it can be stored anywhere.
///
/// See [`KMeansParams::start`](crate::kmeans::KMeansParams::start) for an example.
pub struct Run<M: Method> {
    pub(super) typed: TypedDriver<M>,
    /// Number of rows of a source of unknown length, counted once at the start if the source can be read again.
    pub(super) rows: Option<u64>,
    /// Identifies the rows. Computed on first use.
    pub(super) fingerprint: Option<u64>,
    /// Threads of steps that are not given an executor.
    pub(super) threads: Option<usize>,
    /// Rows of zeros, if the metric normalizes rows.
    pub(super) zeros: Arc<ZeroRows>,
    /// Rows of zeros in the batches of [`Run::partial_fit`].
    pub(super) zeros_of_batches: u64,
}

pub(super) type TypedDriver<M> =
    Typed<Driver<<M as Method>::Solver<f32>>, Driver<<M as Method>::Solver<f64>>>;

/// How the rows can be read.
pub(crate) fn access<S: Source + ?Sized>(rows: &S) -> Access {
    either!(rows.any(), data => data.access())
}

/// Whether the rows are sparse.
fn is_sparse<S: Source + ?Sized>(rows: &S) -> bool {
    either!(rows.any(), data => data.most_values().is_some())
}

/// Columns of the rows.
pub(super) fn columns<S: Source + ?Sized>(rows: &S) -> usize {
    either!(rows.any(), data => data.dim())
}

/// Checks that the source has the access that a method needs. Returns the number of rows, if it can be known
/// before a single-pass stream is read, and the number of columns.
///
/// # Errors
/// [`Error::Source`] for too little access, [`Error::Empty`] for no rows, those of the source.
pub(crate) fn shape<S: Source + ?Sized>(rows: &S, needs: Access) -> Result<(Option<u64>, usize)> {
    fn of<T: Element>(data: &dyn DataSource<T>, needs: Access) -> Result<(Option<u64>, usize)> {
        // Check before reading a row: an error leaves a single-pass stream untouched.
        require(needs, data.access())?;
        let n = match data.access() {
            Access::Once => data.rows(),
            _ => Some(crate::data::count_rows(data)?),
        };
        Ok((n, data.dim()))
    }
    let (n, d) = either!(rows.any(), data => of(data, needs)?);
    if n == Some(0) { Err(Error::no_rows()) } else { Ok((n, d)) }
}

impl<M: Method> Run<M> {
    /// A run over `rows` that the caller advances step by step.
    ///
    /// # Errors
    /// [`Error::InvalidParam`], [`Error::Source`], [`Error::Empty`], [`Error::Memory`].
    pub(crate) fn start<S: Source + ?Sized>(params: &M::Params, rows: &S) -> Result<Self> {
        let n = Self::checked(params, rows)?.0;
        Ok(Self::new(params, rows, n))
    }

    /// The shape of `rows`, once they and the parameters are known to fit.
    pub(super) fn checked<S: Source + ?Sized>(params: &M::Params, rows: &S) -> Result<(Option<u64>, usize)> {
        M::admit(params, access(rows), is_sparse(rows))?;
        let (n, d) = shape(rows, M::needs(params))?;
        M::check(params, n, d)?;
        Ok((n, d))
    }

    pub(super) fn new<S: Source + ?Sized>(params: &M::Params, rows: &S, n: Option<u64>) -> Self {
        let typed = either!(rows.any(), _ => Typed(Driver::new(M::solver(params))));
        Self::of(typed, n, None, M::threads(params))
    }

    /// A run without rows of zeros so far.
    pub(super) fn of(
        typed: TypedDriver<M>,
        rows: Option<u64>,
        fingerprint: Option<u64>,
        threads: Option<usize>,
    ) -> Self {
        Self { typed, rows, fingerprint, threads, zeros: Arc::default(), zeros_of_batches: 0 }
    }

    /// A fit from its first step to its end.
    ///
    /// # Errors
    /// As [`Run::start`] and [`Run::advance`].
    pub(crate) fn fit<S: Source + ?Sized>(params: &M::Params, rows: &S) -> Result<M::Model> {
        let mut run = Self::start(params, rows)?;
        let cx = Executor::new(M::threads(params))?;
        while run.advance_on(rows, &cx)?.is_some() {}
        if M::labels_at_end(params) && access(rows) > Access::Once {
            run.finish_on(rows, &cx)?;
        }
        Ok(run.into_model())
    }

    /// Rules that stop the run, in addition to those of the parameters.
    #[must_use]
    pub fn stop(self, rules: StopRules) -> Self {
        let typed = either!(self.typed, driver => Typed(driver.stop(rules)));
        Self { typed, ..self }
    }

    /// Calls `observer` after every step; it may end the run.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use shoal::{KMeans, fit::{Step, StopReason}};
    /// let rows: Vec<[f64; 2]> = (0..100).map(|i| [f64::from(i * i % 97), f64::from(i)]).collect();
    /// let watch = |step: &Step| {
    ///     println!("sweep {}: inertia {}", step.iteration, step.objective);
    ///     if step.iteration < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// };
    /// let mut run = KMeans::params(8).start(&rows)?.observe(watch);
    /// while run.advance(&rows)?.is_some() {}
    /// assert_eq!(run.history().len(), 2);
    /// assert_eq!(run.history()[1].stop_reason, Some(StopReason::Observer));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    #[must_use]
    pub fn observe(self, observer: impl Observer + 'static) -> Self {
        let typed = either!(self.typed, driver => Typed(driver.observe(observer)));
        Self { typed, ..self }
    }

    /// Makes one step over the rows of the run, with the number of threads in the parameters. Returns `None`
    /// once the run has ended and the model is final.
    ///
    /// # Errors
    /// [`Error::Source`] for rows of another type, [`Error::Shape`] for another number of rows than before,
    /// [`Error::InvalidParam`] if all rows have weight 0, and those of the solver.
    pub fn advance<S: Source>(&mut self, rows: S) -> Result<Option<Step>> {
        self.advance_on(rows, &Executor::new(self.threads)?)
    }

    /// As [`Run::advance`], on the threads of `cx`, whose interrupt stops the step.
    ///
    /// ```
    /// use shoal::{Error, Executor, KMeans};
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let mut run = KMeans::params(2).start(&rows).unwrap();
    /// let cx = Executor::new(Some(2)).unwrap();
    /// let stop = cx.interrupt().clone();
    /// stop.set(); // From another thread, or a signal handler.
    /// assert!(matches!(run.advance_on(&rows, &cx), Err(Error::Interrupted)));
    /// stop.clear();
    /// assert!(run.advance_on(&rows, &cx).unwrap().is_some());
    /// ```
    ///
    /// # Errors
    /// As [`Run::advance`]; [`Error::Interrupted`], after which the run can continue.
    pub fn advance_on<S: Source>(&mut self, rows: S, cx: &Executor) -> Result<Option<Step>> {
        fn of<T: Element, S: FitSolver<T>>(
            driver: &mut Driver<S>,
            data: &dyn DataSource<T>,
            (n, zeros): (Option<u64>, &Arc<ZeroRows>),
            cx: &Executor,
        ) -> Result<Option<Step>> {
            // Also when there are no more steps.
            driver.meet(n)?;
            driver.meet(data.rows())?;
            let step = seen_by((driver.solver().facts().metric, zeros), data, n, |data| {
                let step = driver.advance(data, cx)?;
                if step.is_none() {
                    driver.solver_mut().conclude(data, cx)?;
                }
                Ok(step)
            })?;
            // Not every source knows its weights before a pass.
            if step.is_some() && !driver.solver().facts().has_weight {
                return Err(no_weight());
            }
            Ok(step)
        }
        let about = (self.rows, &self.zeros);
        either!((&mut self.typed, rows.any()), (driver, data) => of(driver, data, about, cx), else Err(other_type()))
    }

    /// Updates labels and objective for the current model, with a further pass if the run was stopped before
    /// its end. Returns the objective: the inertia of a center-based method, the energy of Laplacian K-modes.
    ///
    /// # Errors
    /// As [`Run::advance`]; [`Error::Source`] before the first step.
    pub fn finish<S: Source>(&mut self, rows: S) -> Result<f64> {
        self.finish_on(rows, &Executor::new(self.threads)?)
    }

    /// As [`Run::finish`], on the threads of `cx`.
    ///
    /// # Errors
    /// As [`Run::finish`]; [`Error::Interrupted`].
    pub fn finish_on<S: Source>(&mut self, rows: S, cx: &Executor) -> Result<f64> {
        if self.history().is_empty() {
            return Err(Error::Source("a model needs at least one step: advance the run first".into()));
        }
        let _phase = cx.phase("labels", 0);
        self.with_solver(&rows, cx, Finish)
    }

    /// Calls `f` with the solver of this run and the rows as the solver sees them.
    pub(crate) fn with_solver<S: Source + ?Sized, F: WithSolver<M>>(
        &mut self,
        rows: &S,
        cx: &Executor,
        f: F,
    ) -> Result<F::Output> {
        let (n, zeros) = (self.rows, &self.zeros);
        either!((&mut self.typed, rows.any()), (driver, data) => {
            driver.meet(n)?;
            driver.meet(data.rows())?;
            let metric = driver.solver().facts().metric;
            seen_by((metric, zeros), data, n, |data| f.call(driver.solver_mut(), data, cx))
        }, else Err(other_type()))
    }

    /// The solver of this run, for methods that show more than the model.
    pub(crate) fn solver(&self) -> Typed<&M::Solver<f32>, &M::Solver<f64>> {
        either!(&self.typed, driver => Typed(driver.solver()))
    }

    /// The same, to change its state between two steps.
    pub(crate) fn solver_mut(&mut self) -> Typed<&mut M::Solver<f32>, &mut M::Solver<f64>> {
        either!(&mut self.typed, driver => Typed(driver.solver_mut()))
    }

    /// Rows that the run is over, if their number is known.
    pub(crate) fn n_rows(&self) -> Option<u64> {
        self.rows
    }

    /// The number of different rows of zeros among the rows read so far, which have no direction. Rows of all batches of
    /// [`Run::partial_fit`] are included. 0 unless rows are scaled to length 1, as with [`Metric::Cosine`].
    ///
    /// ```
    /// use shoal::{KMeans, Metric};
    /// let rows = [[0.0f64, 2.0], [0.0, 0.0], [3.0, 0.0], [0.0, 0.0]];
    /// let mut run = KMeans::params(2).metric(Metric::Cosine).start(&rows)?;
    /// run.advance(&rows)?;
    /// assert_eq!(run.zero_rows(), 2);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn zero_rows(&self) -> u64 {
        self.zeros.count().saturating_add(self.zeros_of_batches)
    }

    /// The metric of the solver.
    fn metric(&self) -> Metric {
        either!(&self.typed, driver => driver.solver().facts().metric)
    }

    /// Ends the run after its last step.
    pub fn end(&mut self, reason: StopReason) {
        either!(&mut self.typed, driver => driver.end(reason));
    }

    /// All steps so far.
    pub fn history(&self) -> &[Step] {
        either!(&self.typed, driver => driver.history())
    }

    /// The model in its current state. Its labels and inertia are up to date after the last step or after
    /// [`Run::finish`].
    pub fn model(&self) -> M::Model {
        use super::Solver;
        either!(&self.typed, driver => driver.solver().model())
    }

    /// The model, once the run is over.
    pub fn into_model(self) -> M::Model {
        use super::Solver;
        either!(self.typed, driver => driver.into_solver().into_model())
    }
}

impl<M: StreamMethod> Run<M> {
    /// A run without rows, for batches of the type of `rows`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`].
    pub(crate) fn stream<S: Source + ?Sized>(params: &M::Params, rows: &S) -> Result<Self> {
        M::check(params, None, columns(rows))?;
        Ok(Self::new(&M::for_batches(params), rows, None))
    }

    /// A run without rows that continues from `state`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`]; [`Error::Source`] for a state that is damaged, of another method, or of
    /// another number of clusters.
    pub(crate) fn resume(params: &M::Params, state: &Contents) -> Result<Self> {
        M::check(params, None, 1)?;
        let params = M::for_batches(params);
        let typed = || {
            let wide = state.array("centers")?.dtype() == crate::data::Dtype::F64;
            Ok::<_, String>(if wide {
                Typed::F64(Driver::new(M::of_state(&params, state)?))
            } else {
                Typed::F32(Driver::new(M::of_state(&params, state)?))
            })
        };
        let invalid = |problem| Error::Source(format!("invalid state: {problem}"));
        let metric = M::solver::<f32>(&params).facts().metric;
        let zeros_of_batches = zeros_of(state, metric).map_err(invalid)?;
        let typed = typed().map_err(invalid)?;
        Ok(Self { zeros_of_batches, ..Self::of(typed, None, None, M::threads(&params)) })
    }

    /// Takes one batch of rows of the compute type of the run. Returns `None` while there are too few rows to
    /// start. The history does not record these steps, because it would grow without bound.
    ///
    /// # Errors
    /// [`Error::Source`] for rows of another type, and errors of the solver. The state is then unchanged.
    pub fn partial_fit<S: Source>(&mut self, rows: S) -> Result<Option<Step>> {
        self.partial_fit_on(rows, &Executor::new(self.threads)?)
    }

    /// As [`Run::partial_fit`], on the threads of `cx`.
    ///
    /// # Errors
    /// As [`Run::partial_fit`]; [`Error::Interrupted`].
    pub fn partial_fit_on<S: Source>(&mut self, rows: S, cx: &Executor) -> Result<Option<Step>> {
        let zeros = Arc::default();
        let step = either!((&mut self.typed, rows.any()), (driver, data) => {
            let metric = driver.solver().facts().metric;
            seen_by((metric, &zeros), data, None, |data| {
                M::stream_mut(driver.solver_mut()).partial_fit(data, cx)
            })
        }, else Err(other_type()))?;
        self.zeros_of_batches = self.zeros_of_batches.saturating_add(zeros.count());
        Ok(step)
    }

    /// Returns everything that the next batch depends on.
    ///
    /// See [`MiniBatchParams::resume`](crate::kmeans::MiniBatchParams::resume) for an example.
    pub fn state(&self) -> Contents {
        let mut state = either!(&self.typed, driver => M::stream(driver.solver()).state());
        let about = json!({ "metric": self.metric().name(), "zero_rows": self.zero_rows() });
        state.meta.insert(STREAM.into(), about.to_string());
        state
    }

    /// Rows of earlier batches that are still in memory, and are worked on again with the next one.
    pub fn rows_kept(&self) -> u64 {
        either!(&self.typed, driver => M::stream(driver.solver()).rows_kept())
    }
}

impl<M: MergeMethod> Run<M> {
    /// Merges another run into this one: sums and counts are added per center. Both runs should start from
    /// the same first centers, whose counts of 1 are added too.
    ///
    /// ```
    /// use shoal::{MiniBatch, Seeding};
    /// let params = MiniBatch::params(2).seeding(Seeding::Given(vec![0.0, 10.0]));
    /// let (left, right) = ([[1.0f64], [2.0]], [[9.0], [7.0]]);
    /// let (mut one, mut other) = (params.stream(&left).unwrap(), params.stream(&right).unwrap());
    /// one.partial_fit(&left).unwrap();
    /// other.partial_fit(&right).unwrap();
    /// one.merge(&other).unwrap();
    /// assert_eq!((one.cluster_weights(), one.centers::<f64>()), (&[4.0, 4.0][..], vec![0.75, 9.0]));
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the centers differ in number, columns or type, or one of the runs has none yet.
    /// The run is then unchanged.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.merge_state(&other.state())
    }

    /// Merges the run that `state` was taken from.
    ///
    /// # Errors
    /// As [`Run::merge`].
    pub fn merge_state(&mut self, state: &Contents) -> Result<()> {
        let zeros = zeros_of(state, self.metric()).map_err(Error::Shape)?;
        either!(&mut self.typed, driver => M::merge(driver.solver_mut(), state))?;
        self.zeros_of_batches = self.zeros_of_batches.saturating_add(zeros);
        Ok(())
    }
}

/// A function of a method's solver and its rows, for either compute type.
pub(crate) trait WithSolver<M: Method> {
    /// What the function returns.
    type Output;

    /// Calls the function.
    fn call<T: Element>(
        self,
        solver: &mut M::Solver<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Self::Output>;
}

struct Finish;

impl<M: Method> WithSolver<M> for Finish {
    type Output = f64;

    fn call<T: Element>(
        self,
        solver: &mut M::Solver<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<f64> {
        solver.finish(data, cx)
    }
}

/// What a state says about the run: its metric, and the number of rows of zeros.
const STREAM: &str = "stream";

/// The number of rows of zeros in the batches of a state, whose metric must be `metric`.
fn zeros_of(state: &Contents, metric: Metric) -> Result<u64, String> {
    if !state.meta.contains_key(STREAM) {
        Metric::Euclidean.must_be(metric)?;
        return Ok(0);
    }
    let stored = state.object(STREAM)?;
    Metric::of_object(&stored)?.must_be(metric)?;
    count(&stored, "zero_rows")
}

fn other_type() -> Error {
    Error::Source("the rows must have the compute type of the run: convert them".into())
}

/// Calls `f` with the rows, normalized if the metric requires it; `zeros` takes the rows of zeros. A source of unknown length is assumed to
/// have `rows` rows.
fn seen_by<T: Element, R>(
    (metric, zeros): (Metric, &Arc<ZeroRows>),
    data: &dyn DataSource<T>,
    rows: Option<u64>,
    f: impl FnOnce(&dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    let counted = rows.filter(|_| data.rows().is_none()).map(|rows| Counted::new(data, rows));
    let data = counted.as_ref().map_or(data, |counted| counted as &dyn DataSource<T>);
    match metric {
        Metric::Euclidean => f(data),
        Metric::Cosine => f(&Normalized::by(data, zeros.clone())),
    }
}
