//! A fit in progress, of any method, over rows of either type.

use crate::kernel::Compute;
use std::fmt;
use std::sync::Arc;

use serde_json::json;

#[cfg(feature = "python")]
use super::Snapshot;
use super::driver::{Driver, require};
use super::method::{FitSolver, MergeMethod, MergeSolver, Method, Solver, StreamMethod, StreamSolver};
use super::{Metric, Params, Step, StopReason};
use crate::data::{Access, DataSource, Source, ZeroRows, no_weight};
use crate::error::{Error, Result};
use crate::float::{Typed, either};
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::persist::kept::count;

/// A fit in progress by the method `M`. It does not hold the data, so it can be stored anywhere.
///
/// See [`KMeansParams::start`](crate::kmeans::KMeansParams::start) for an example.
pub struct Run<M: Method> {
    pub(crate) typed: TypedDriver<M>,
    /// Number of rows of a source of unknown length, counted once at the start if the source can be read again.
    pub(crate) rows: Option<u64>,
    /// Identifies the rows. Computed on first use.
    pub(super) fingerprint: Option<u64>,
    /// Threads of steps that are not given an executor.
    pub(super) threads: Option<usize>,
    /// Rows of zeros, if the metric normalizes rows.
    pub(crate) zeros: Arc<ZeroRows>,
    /// Rows of zeros in the batches of [`Run::partial_fit`].
    pub(super) zeros_of_batches: u64,
}

impl<M: Method> fmt::Debug for Run<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Run");
        shown.field("method", &M::NAME).field("rows", &self.rows).field("last_step", &self.history().last());
        shown.finish_non_exhaustive()
    }
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
    fn of<T: Compute>(data: &dyn DataSource<T>, needs: Access) -> Result<(Option<u64>, usize)> {
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

/// Evaluates one expression for a [`TypedDriver`] and for rows as its solver sees them, in either compute type: with
/// the number `n` if their own number is unknown, and normalized if the metric requires it; `zeros` takes the rows of
/// zeros.
macro_rules! over_rows {
    ($typed:expr, $rows:expr, ($n:expr, $zeros:expr), |$driver:ident, $data:ident| $body:expr) => {
        match ($typed, $rows.any()) {
            ($crate::float::Typed::F32($driver), $crate::data::AnySource::F32($data)) => {
                $crate::fit::over_rows!(@seen $driver, $data, $n, $zeros => $body)
            }
            ($crate::float::Typed::F64($driver), $crate::data::AnySource::F64($data)) => {
                $crate::fit::over_rows!(@seen $driver, $data, $n, $zeros => $body)
            }
            _ => Err($crate::error::Error::Source(
                "the rows must have the compute type of the run: convert them".into(),
            )),
        }
    };
    (@seen $driver:ident, $data:ident, $n:expr, $zeros:expr => $body:expr) => {{
        let (counted, normalized);
        let mut $data = $data;
        if let (Some(n), None) = ($n, $data.rows()) {
            counted = $crate::data::Counted::new($data, n);
            $data = &counted;
        }
        if $crate::fit::FitSolver::facts($driver.solver()).metric == $crate::fit::Metric::Cosine {
            normalized = $crate::data::Normalized::by($data, $zeros.clone());
            $data = &normalized;
        }
        $body
    }};
}
pub(crate) use over_rows;

impl<M: Method> Run<M> {
    /// A run over `rows` that the caller advances step by step.
    ///
    /// # Errors
    /// [`Error::InvalidParam`], [`Error::Source`], [`Error::Empty`], [`Error::Memory`].
    pub(crate) fn start<S: Source + ?Sized>(params: &M::Params, rows: &S) -> Result<Self> {
        Ok(Self::checked(params, rows)?.0)
    }

    /// As [`Run::start`], with the number of columns.
    pub(super) fn checked<S: Source + ?Sized>(params: &M::Params, rows: &S) -> Result<(Self, usize)> {
        let typed = Self::planned(params, rows);
        M::admit(params, access(rows), is_sparse(rows))?;
        let (n, d) = shape(rows, either!(&typed, driver => driver.solver().needs()))?;
        M::check(params, n, d)?;
        let settled = M::settled(params, rows.any(), None)?;
        let typed = settled.map_or(typed, |params| Self::planned(&params, rows));
        Ok((Self::of(typed, (n, Some(d)), None, params.threads()), d))
    }

    /// A new solver for rows of this type.
    fn planned<S: Source + ?Sized>(params: &M::Params, rows: &S) -> TypedDriver<M> {
        either!(rows.any(), _ => Typed(Driver::new(M::solver(params))))
    }

    /// A run without rows of zeros so far.
    pub(super) fn of(
        mut typed: TypedDriver<M>,
        (rows, columns): (Option<u64>, Option<usize>),
        fingerprint: Option<u64>,
        threads: Option<usize>,
    ) -> Self {
        either!(&mut typed, driver => (driver.rows, driver.columns) = (rows, columns));
        Self { typed, rows, fingerprint, threads, zeros: Arc::default(), zeros_of_batches: 0 }
    }

    /// A fit from its first step to its end.
    ///
    /// # Errors
    /// As [`Run::start`] and [`Run::advance`].
    pub(crate) fn fit<S: Source + ?Sized>(params: &M::Params, rows: &S) -> Result<M::Model> {
        let mut run = Self::start(params, rows)?;
        let cx = Executor::of_call(params.threads())?;
        while run.advance_on(rows, &cx)?.is_some() {}
        if M::labels_at_end(params) && access(rows) > Access::Once {
            run.finish_on(rows, &cx)?;
        }
        Ok(run.into_model())
    }

    /// Makes one step over the rows of the run, with the number of threads in the parameters. Returns `None`
    /// once the run has ended and the centers, modes or components are final. `fit` then calls [`Run::finish`], because
    /// some methods do not label rows in their steps.
    ///
    /// # Errors
    /// [`Error::Source`] for rows of another type, [`Error::Shape`] for another number of rows or columns
    /// than before, [`Error::InvalidParam`] if all rows have weight 0, and those of the solver.
    pub fn advance<S: Source>(&mut self, rows: S) -> Result<Option<Step>> {
        self.advance_on(rows, &Executor::of_call(self.threads)?)
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
        let step = over_rows!(&mut self.typed, rows, (self.rows, &self.zeros), |driver, data| {
            // Also when there are no more steps.
            driver.note_shape(data)?;
            let step = driver.advance(data, cx)?;
            if step.is_none() {
                driver.solver_mut().conclude(data, cx)?;
            }
            Ok(step)
        })?;
        // Not every source knows its weights before a pass.
        if step.is_some() && !either!(&self.typed, driver => driver.solver().facts().has_weight) {
            return Err(no_weight());
        }
        Ok(step)
    }

    /// Updates labels and objective for the current model, with a further pass if the last step did not label all rows
    /// with this model. Returns the objective: the inertia of a center-based method, the energy of Laplacian K-modes.
    ///
    /// # Errors
    /// As [`Run::advance`]; [`Error::Source`] before the first step.
    pub fn finish<S: Source>(&mut self, rows: S) -> Result<f64> {
        self.finish_on(rows, &Executor::of_call(self.threads)?)
    }

    /// As [`Run::finish`], on the threads of `cx`.
    ///
    /// # Errors
    /// As [`Run::finish`]; [`Error::Interrupted`].
    pub fn finish_on<S: Source>(&mut self, rows: S, cx: &Executor) -> Result<f64> {
        if self.history().is_empty() {
            return Err(Error::no_step());
        }
        let _phase = cx.phase("labels", 0);
        over_rows!(&mut self.typed, rows, (self.rows, &self.zeros), |driver, data| {
            driver.note_shape(data)?;
            driver.solver_mut().finish(data, cx)
        })
    }

    /// The solver of this run, for methods that show more than the model.
    pub(crate) fn solver(&self) -> Typed<&M::Solver<f32>, &M::Solver<f64>> {
        either!(&self.typed, driver => Typed(driver.solver()))
    }

    /// The same, to change its state between two steps.
    pub(crate) fn solver_mut(&mut self) -> Typed<&mut M::Solver<f32>, &mut M::Solver<f64>> {
        either!(&mut self.typed, driver => Typed(driver.solver_mut()))
    }

    /// What the solver shows, in its own type.
    #[cfg(feature = "python")]
    pub(crate) fn snapshot(&self) -> Typed<Snapshot<'_, f32>, Snapshot<'_, f64>> {
        either!(self.solver(), solver => Typed(solver.snapshot()))
    }

    /// Rows that the run is over, if their number is known.
    pub(crate) fn n_rows(&self) -> Option<u64> {
        self.rows
    }

    /// The number of different rows of zeros among the rows read so far, which have no direction. Rows of all batches
    /// of [`Run::partial_fit`] are included. 0 unless rows are scaled to length 1, as with [`Metric::Cosine`].
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
    pub(super) fn metric(&self) -> Metric {
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

    /// The model in its current state. Its labels and inertia are up to date after [`Run::finish`].
    pub fn model(&self) -> M::Model {
        either!(&self.typed, driver => driver.solver().model())
    }

    /// The model, once the run is over. Call [`Run::finish`] first for labels and inertia as `fit` returns them.
    /// Without it, methods that do not label all rows in their last step, as mini-batch k-means, have no labels and
    /// an inertia of NaN.
    ///
    /// ```
    /// use shoal::MiniBatch;
    /// let rows: Vec<[f64; 1]> = (0..100).map(|i| [f64::from(i * i % 31)]).collect();
    /// let params = MiniBatch::params(4);
    /// let mut run = params.start(&rows)?;
    /// while run.advance(&rows)?.is_some() {}
    /// assert!(run.model().labels().is_empty());
    /// let inertia = run.finish(&rows)?;
    /// let (model, fitted) = (run.into_model(), params.fit(&rows)?);
    /// assert_eq!((model.labels(), inertia), (fitted.labels(), fitted.inertia()));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn into_model(self) -> M::Model {
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
        let typed = Self::planned(&<M::Solver<f32>>::for_batches(params), rows);
        Ok(Self::of(typed, (None, None), None, params.threads()))
    }

    /// A run without rows that continues from `state`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`]; [`Error::Source`] for a state that is damaged, of another method, or of
    /// another number of clusters.
    pub(crate) fn resume(params: &M::Params, state: &Contents) -> Result<Self> {
        M::check(params, None, 1)?;
        let params = <M::Solver<f32>>::for_batches(params);
        let typed = || {
            let wide = state.array("centers")?.dtype() == crate::data::Dtype::F64;
            Ok::<_, String>(if wide {
                Typed::F64(Driver::new(<M::Solver<f64>>::restore_state(&params, state)?))
            } else {
                Typed::F32(Driver::new(<M::Solver<f32>>::restore_state(&params, state)?))
            })
        };
        let invalid = |problem| Error::Source(format!("invalid state: {problem}"));
        let metric = M::solver::<f32>(&params).facts().metric;
        let zeros_of_batches = zeros_of(state, metric).map_err(invalid)?;
        let typed = typed().map_err(invalid)?;
        Ok(Self { zeros_of_batches, ..Self::of(typed, (None, None), None, params.threads()) })
    }

    /// Takes one batch of rows of the compute type of the run. Returns `None` while there are too few rows to
    /// start. The history does not record these steps, because it would grow without bound.
    ///
    /// # Errors
    /// [`Error::Source`] for rows of another type, and errors of the solver. The state is then unchanged.
    pub fn partial_fit<S: Source>(&mut self, rows: S) -> Result<Option<Step>> {
        self.partial_fit_on(rows, &Executor::of_call(self.threads)?)
    }

    /// As [`Run::partial_fit`], on the threads of `cx`.
    ///
    /// # Errors
    /// As [`Run::partial_fit`]; [`Error::Interrupted`].
    pub fn partial_fit_on<S: Source>(&mut self, rows: S, cx: &Executor) -> Result<Option<Step>> {
        let zeros = Arc::<ZeroRows>::default();
        let step = over_rows!(&mut self.typed, rows, (None, &zeros), |driver, data| {
            driver.solver_mut().partial_fit(data, cx)
        })?;
        self.zeros_of_batches = self.zeros_of_batches.saturating_add(zeros.count());
        Ok(step)
    }

    /// Returns everything that the next batch depends on.
    ///
    /// See [`MiniBatchParams::resume`](crate::kmeans::MiniBatchParams::resume) for an example.
    pub fn state(&self) -> Contents {
        let mut state = either!(&self.typed, driver => driver.solver().state());
        let about = json!({ "metric": self.metric().name(), "zero_rows": self.zero_rows() });
        state.meta.insert(STREAM.into(), about.to_string());
        state
    }

    /// Rows of earlier batches that are still in memory, and are worked on again with the next one.
    pub fn rows_kept(&self) -> u64 {
        either!(&self.typed, driver => driver.solver().rows_kept())
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
        either!(&mut self.typed, driver => driver.solver_mut().merge(state))?;
        self.zeros_of_batches = self.zeros_of_batches.saturating_add(zeros);
        Ok(())
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
