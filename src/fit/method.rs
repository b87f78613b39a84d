//! What a clustering method consists of: parameters, a solver for either compute type, a model.

use super::{Facts, Metric, Params, Snapshot, Step};
use crate::data::{Access, AnySource, DataSource};
use crate::error::Result;
use crate::float::Float;
use crate::kernel::Compute;
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::persist::Contents;

/// A method as a state that can be advanced. It owns no data and no lifetime.
///
/// ```
/// use shoal::data::{Access, DataSource};
/// use shoal::fit::{Driver, Solver, Step};
/// use shoal::{Executor, Result};
/// /// Counts passes.
/// struct Passes(u64);
/// impl Solver<f32> for Passes {
///     type Model = u64;
///     fn needs(&self) -> Access {
///         Access::Replay
///     }
///     fn step(&mut self, rows: &dyn DataSource<f32>, _cx: &Executor) -> Result<Step> {
///         self.0 += 1;
///         let mut step = Step::default();
///         (step.iteration, step.batch_size) = (self.0, rows.rows().unwrap_or(0));
///         Ok(step)
///     }
///     fn model(&self) -> u64 {
///         self.0
///     }
/// }
/// let (rows, cx) = ([[1.0f32], [2.0]], Executor::new(Some(1))?);
/// let mut driver = Driver::new(Passes(0));
/// assert_eq!(driver.advance(&rows, &cx)?.unwrap().batch_size, 2);
/// assert_eq!(driver.solver().model(), 1);
/// # Ok::<(), shoal::Error>(())
/// ```
pub trait Solver<T: Float> {
    /// The result of the method.
    type Model;

    /// The access that the method needs of a source.
    fn needs(&self) -> Access;

    /// One unit of progress; the model is valid afterwards. The step's `stop_reason` is set when the method
    /// itself has ended. After an error, further steps lead to the result of a run without the error, bit for bit.
    ///
    /// # Errors
    /// Those of the source, [`Error::NotFinite`](crate::Error::NotFinite),
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step>;

    /// The model in its present state.
    fn model(&self) -> Self::Model;

    /// The model, once no more steps are to be made. A solver with large state moves it instead of copying it.
    fn into_model(self) -> Self::Model
    where
        Self: Sized,
    {
        self.model()
    }
}

/// The state of a solver: how it begins, and how a checkpoint stores it.
///
/// ```
/// use shoal::fit::{Solver, SolverState};
/// use shoal::{Executor, KMeans, kmeans::LloydStarts};
/// let (rows, cx) = ([[0.0f64], [1.0], [8.0], [9.0]], Executor::new(Some(1))?);
/// let params = KMeans::params(2);
/// let mut solver = LloydStarts::<f64>::plan(&params);
/// solver.step(&rows, &cx)?;
/// let again = LloydStarts::<f64>::restore(&params, &solver.checkpoint()).unwrap();
/// assert_eq!(again.best().centers(), solver.best().centers());
/// assert!(again.fits(Some(4)) && !again.fits(Some(5)));
/// # Ok::<(), shoal::Error>(())
/// ```
pub trait SolverState: Sized {
    /// The parameters of the method.
    type Params: Params;

    /// The state before the first step.
    fn plan(params: &Self::Params) -> Self;

    /// Everything that the next step depends on, except the rows and what can be recomputed from them.
    fn checkpoint(&self) -> Contents;

    /// The state that [`SolverState::checkpoint`] wrote.
    ///
    /// # Errors
    /// The problem, as text.
    fn restore(params: &Self::Params, checkpoint: &Contents) -> Result<Self, String>;

    /// Whether the per-row state can belong to `n` rows, if their number is known.
    fn fits(&self, n: Option<u64>) -> bool;
}

/// A solver that a [`Run`](super::Run) can drive, show, finish and checkpoint.
///
/// ```
/// use shoal::fit::{FitSolver, Method, Solver};
/// use shoal::{Executor, KMeans};
/// let (rows, cx) = ([[0.0f64], [1.0], [8.0], [9.0]], Executor::new(Some(1))?);
/// let mut solver = KMeans::solver::<f64>(&KMeans::params(2));
/// solver.step(&rows, &cx)?;
/// assert_eq!(solver.finish(&rows, &cx)?, solver.model().inertia());
/// assert!(solver.has_begun() && solver.snapshot().labels.len() == 4);
/// # Ok::<(), shoal::Error>(())
/// ```
pub trait FitSolver<T: Float>: Solver<T> + SolverState {
    /// What the solver shows between two steps.
    fn snapshot(&self) -> Snapshot<'_, T>;

    /// What a run needs to know of the solver.
    fn facts(&self) -> Facts {
        self.snapshot().facts()
    }

    /// Updates labels and objective for the current model, with a further pass if one is needed, and returns
    /// the objective. The model does not change, and the run can continue.
    ///
    /// # Errors
    /// Those of the source.
    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64>;

    /// Concludes the model once, after the last step of a run. Does nothing when called again.
    ///
    /// # Errors
    /// Those of the source; the model is then unchanged.
    fn conclude(&mut self, _data: &dyn DataSource<T>, _cx: &Executor) -> Result<()> {
        Ok(())
    }

    /// Whether the first centers are chosen, so that a checkpoint before the first step holds them.
    fn has_begun(&self) -> bool {
        self.facts().dim > 0
    }
}

/// A solver that takes its rows a batch at a time, for as long as there are any, in bounded memory.
///
/// ```
/// use shoal::fit::{Method, Solver, StreamSolver};
/// use shoal::{Executor, MiniBatch};
/// let cx = Executor::new(Some(1))?;
/// let mut solver = MiniBatch::solver::<f32>(&MiniBatch::params(2));
/// for batch in [[[0.0f32], [9.0]], [[1.0], [8.0]]] {
///     solver.partial_fit(&batch, &cx)?;
/// }
/// assert_eq!((solver.model().n_clusters(), solver.rows_kept()), (2, 0));
/// # Ok::<(), shoal::Error>(())
/// ```
pub trait StreamSolver<T: Float>: FitSolver<T> {
    /// The parameters as a run without rows of its own uses them.
    fn for_batches(params: &Self::Params) -> Self::Params {
        params.clone()
    }

    /// The state that [`StreamSolver::state`] wrote.
    ///
    /// # Errors
    /// The problem, as text.
    fn restore_state(params: &Self::Params, state: &Contents) -> Result<Self, String>;

    /// Everything that the next batch depends on.
    fn state(&self) -> Contents;

    /// Takes one batch of any size. Returns `None` while there are too few rows to start. After an error the
    /// state is unchanged, except for rows that were discarded to make room for others.
    ///
    /// # Errors
    /// Those of the source, [`Error::NotFinite`](crate::Error::NotFinite).
    fn partial_fit(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>>;

    /// Rows of earlier batches that are still in memory, and are worked on again with the next one.
    fn rows_kept(&self) -> u64 {
        0
    }
}

/// A solver whose states can be merged.
///
/// See [`Run::merge`](super::Run::merge) for an example.
pub trait MergeSolver<T: Float>: StreamSolver<T> {
    /// Merges another state into this one.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for a state of another shape. This state is then unchanged.
    fn merge(&mut self, other: &Contents) -> Result<()>;
}

/// A clustering method: its parameters, its state for rows of either type, and its model.
///
/// ```
/// use shoal::fit::{Method, Run};
/// fn steps<M: Method>(run: &Run<M>) -> usize {
///     run.history().len()
/// }
/// let run = shoal::KMeans::params(2).start(&[[0.0f64], [1.0]]).unwrap();
/// assert_eq!(steps(&run), 0);
/// ```
pub trait Method: Sized + 'static {
    /// The name of the method.
    const NAME: &'static str;
    /// All parameters of the method.
    type Params: Params;
    /// The result of a fit.
    type Model;
    /// The state for rows that are computed as `T`.
    type Solver<T: Compute>: FitSolver<T, Params = Self::Params, Model = Self::Model> + Send;

    /// The state before the first step.
    fn solver<T: Compute>(params: &Self::Params) -> Self::Solver<T> {
        SolverState::plan(params)
    }

    /// Checks a source before reading it, in addition to the access that [`Solver::needs`] asks for: for example
    /// whether its rows are dense if the method needs dense rows.
    ///
    /// # Errors
    /// [`Error::Source`](crate::Error::Source) and [`Error::InvalidParam`](crate::Error::InvalidParam), with
    /// the remedy.
    fn admit(_params: &Self::Params, _has: Access, _sparse: bool) -> Result<()> {
        Ok(())
    }

    /// The parameters with those filled in that the method chooses from the rows before a run begins; `None` if there
    /// are none. `known` is the metric of the run that is resumed, if this is one: it must not be chosen again.
    ///
    /// # Errors
    /// Those of the source.
    fn settled(
        _params: &Self::Params,
        _rows: AnySource<'_>,
        _known: Option<Metric>,
    ) -> Result<Option<Self::Params>> {
        Ok(None)
    }

    /// Whether a fit ends with [`FitSolver::finish`], if the rows can be read again.
    fn labels_at_end(_params: &Self::Params) -> bool {
        false
    }

    /// What a fit to `n` rows allocates per row, and how many bytes.
    fn memory_per_row(_params: &Self::Params, _n: u64) -> (&'static str, usize) {
        ("rows", 0)
    }

    /// Checks the parameters against `n` rows, if their number is known, of `dim` columns.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) with every problem;
    /// [`Error::Memory`](crate::Error::Memory) for a fit whose state does not fit into memory.
    fn check(params: &Self::Params, n: Option<u64>, dim: usize) -> Result<()> {
        params.check(n, dim)?;
        Self::check_memory(params, n)
    }

    /// Checks that a fit to `n` rows finds the memory that it allocates later, where failure would end the process.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory).
    fn check_memory(params: &Self::Params, n: Option<u64>) -> Result<()> {
        let n = n.unwrap_or_default();
        let (what, bytes) = Self::memory_per_row(params, n);
        make_room(&mut Vec::<u8>::new(), what, n, bytes)
    }
}

/// A method that learns from batches: its solvers are [`StreamSolver`]s. Only its runs have
/// [`partial_fit`](super::Run::partial_fit) and [`state`](super::Run::state):
///
/// ```compile_fail
/// let mut run = shoal::KMeans::params(1).start(&[[1.0f32]]).unwrap();
/// // Exact k-means has no `partial_fit`.
/// run.partial_fit(&[[1.0f32]]).unwrap();
/// ```
pub trait StreamMethod: Method<Solver<f32>: StreamSolver<f32>, Solver<f64>: StreamSolver<f64>> {}
impl<M: Method<Solver<f32>: StreamSolver<f32>, Solver<f64>: StreamSolver<f64>>> StreamMethod for M {}

/// A method whose states can be merged: its solvers are [`MergeSolver`]s. Only its runs have
/// [`merge`](super::Run::merge).
///
/// See [`Run::merge`](super::Run::merge) for an example.
pub trait MergeMethod:
    StreamMethod + Method<Solver<f32>: MergeSolver<f32>, Solver<f64>: MergeSolver<f64>>
{
}
impl<M: StreamMethod + Method<Solver<f32>: MergeSolver<f32>, Solver<f64>: MergeSolver<f64>>> MergeMethod
    for M
{
}
