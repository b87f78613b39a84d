//! What a clustering method consists of: parameters, a solver for either compute type, a model.

use super::driver::require;
use super::{Metric, Params, Step};
use crate::data::{Access, DataSource, Own};
use crate::error::Result;
use crate::float::Float;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::Contents;

/// A compute type of rows: `f32` or `f64`.
///
/// ```
/// fn bytes<T: shoal::fit::Element>() -> usize {
///     size_of::<T>()
/// }
/// assert_eq!((bytes::<f32>(), bytes::<f64>()), (4, 8));
/// ```
pub trait Element: Compute + Own {}
impl<T: Compute + Own> Element for T {}

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

    /// Whether the method maximizes its objective. [`StopRules`](super::StopRules) depend on it.
    fn maximizes(&self) -> bool {
        false
    }

    /// One unit of progress; the model is valid afterwards. The step's `stop_reason` is set when the method
    /// itself has ended.
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

/// What a run needs to know of its solver.
///
/// ```
/// use shoal::fit::{FitSolver, Method};
/// let facts = shoal::KMeans::solver::<f32>(&shoal::KMeans::params(2)).facts();
/// assert_eq!((facts.dim, facts.metric, facts.has_weight), (0, shoal::Metric::Euclidean, false));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Columns of a row; 0 before the first step.
    pub dim: usize,
    /// The metric: with [`Metric::Cosine`], the run passes rows of length 1.
    pub metric: Metric,
    /// Whether any row seen so far has weight.
    pub has_weight: bool,
}

/// A solver that a [`Run`](super::Run) can drive, finish and checkpoint.
///
/// ```
/// use shoal::fit::{FitSolver, Method, Solver};
/// use shoal::{Executor, KMeans};
/// let (rows, cx) = ([[0.0f64], [1.0], [8.0], [9.0]], Executor::new(Some(1))?);
/// let mut solver = KMeans::solver::<f64>(&KMeans::params(2));
/// solver.step(&rows, &cx)?;
/// assert_eq!(solver.finish(&rows, &cx)?, solver.model().inertia());
/// assert!(solver.has_begun() && solver.fits(Some(4)));
/// # Ok::<(), shoal::Error>(())
/// ```
pub trait FitSolver<T: Float>: Solver<T> {
    /// What a run needs to know of the solver.
    fn facts(&self) -> Facts;

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

    /// Everything that the next step depends on, except the rows and what can be recomputed from them.
    fn checkpoint(&self) -> Contents;

    /// Whether the first centers are chosen, so that a checkpoint before the first step holds them.
    fn has_begun(&self) -> bool {
        self.facts().dim > 0
    }

    /// Whether the per-row state can belong to `n` rows, if their number is known.
    fn fits(&self, n: Option<u64>) -> bool;
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
    /// Takes one batch of any size. Returns `None` while there are too few rows to start. After an error the
    /// state is unchanged, except for rows that were discarded to make room for others.
    ///
    /// # Errors
    /// Those of the source, [`Error::NotFinite`](crate::Error::NotFinite).
    fn partial_fit(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>>;

    /// Everything that the next batch depends on.
    fn state(&self) -> Contents;

    /// Rows of earlier batches that are still in memory, and are worked on again with the next one.
    fn rows_kept(&self) -> u64 {
        0
    }
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
pub trait Method: Sized {
    /// All parameters of the method.
    type Params: Params;
    /// The result of a fit.
    type Model;
    /// The state for rows that are computed as `T`.
    type Solver<T: Element>: FitSolver<T, Model = Self::Model> + Send;

    /// The access that a fit needs of a source.
    fn needs(params: &Self::Params) -> Access;

    /// Checks a source before reading it: its access, and whether its rows are dense if the method needs dense rows.
    ///
    /// # Errors
    /// [`Error::Source`](crate::Error::Source) and [`Error::InvalidParam`](crate::Error::InvalidParam), with
    /// the remedy.
    fn admit(params: &Self::Params, has: Access, _sparse: bool) -> Result<()> {
        require(Self::needs(params), has)
    }

    /// Whether a fit ends with [`FitSolver::finish`], if the rows can be read again.
    fn labels_at_end(_params: &Self::Params) -> bool {
        false
    }

    /// Checks the parameters against `n` rows, if their number is known, of `dim` columns.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) with every problem;
    /// [`Error::Memory`](crate::Error::Memory) for a fit whose state does not fit into memory.
    fn check(params: &Self::Params, n: Option<u64>, dim: usize) -> Result<()>;

    /// The number of threads that the parameters ask for; `None` for the default.
    fn threads(params: &Self::Params) -> Option<usize>;

    /// The state before the first step.
    fn solver<T: Element>(params: &Self::Params) -> Self::Solver<T>;

    /// The state that [`FitSolver::checkpoint`] wrote.
    ///
    /// # Errors
    /// The problem, as text.
    fn of_checkpoint<T: Element>(
        params: &Self::Params,
        contents: &Contents,
    ) -> Result<Self::Solver<T>, String>;
}

/// A method that learns from batches. Only its runs have [`partial_fit`](super::Run::partial_fit) and
/// [`state`](super::Run::state):
///
/// ```compile_fail
/// let mut run = shoal::KMeans::params(1).start(&[[1.0f32]]).unwrap();
/// // Exact k-means has no `partial_fit`.
/// run.partial_fit(&[[1.0f32]]).unwrap();
/// ```
pub trait StreamMethod: Method {
    /// The solver as one that takes batches.
    fn stream<T: Element>(solver: &Self::Solver<T>) -> &dyn StreamSolver<T, Model = Self::Model>;

    /// The same, to be advanced.
    fn stream_mut<T: Element>(solver: &mut Self::Solver<T>) -> &mut dyn StreamSolver<T, Model = Self::Model>;

    /// The parameters as a run without rows of its own uses them.
    fn for_batches(params: &Self::Params) -> Self::Params {
        params.clone()
    }

    /// The state that [`StreamSolver::state`] wrote.
    ///
    /// # Errors
    /// The problem, as text.
    fn of_state<T: Element>(params: &Self::Params, state: &Contents) -> Result<Self::Solver<T>, String>;
}

/// A method whose states can be merged. Only its runs have [`merge`](super::Run::merge).
///
/// See [`Run::merge`](super::Run::merge) for an example.
pub trait MergeMethod: StreamMethod {
    /// Merges another state into this one.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for a state of another shape. This state is then unchanged.
    fn merge<T: Element>(solver: &mut Self::Solver<T>, other: &Contents) -> Result<()>;
}
