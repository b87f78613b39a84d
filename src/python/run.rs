//! A fit in progress, of any method, as Python drives it.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use numpy::PyReadonlyArray1;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array::{array1, array2, signed};
use super::enter::{enter, locked};
use super::persist::{Loaded, as_python, of_python};
use super::rows::Input;
use super::source::Source;
use super::step::Step;
use crate::data::AnySource;
use crate::error::Result;
use crate::fit::{self, Method, Snapshot, StopReason, StreamMethod, Typed, either};
use crate::parallel::Executor;
use crate::persist::{self, Contents};

/// The run of any method, as Python uses it.
pub(super) trait AnyRun: Send {
    fn advance(&mut self, rows: &Input, cx: &Executor) -> Result<Option<fit::Step>>;
    fn finish(&mut self, rows: &Input, cx: &Executor) -> Result<f64>;
    fn end(&mut self, reason: StopReason);
    fn history(&self) -> &[fit::Step];
    fn know_rows(&mut self, rows: &Input) -> Result<()>;
    fn zero_rows(&self) -> u64;
    fn checkpoint(&mut self, rows: &Input) -> Result<Contents>;
    fn compare_rows(&mut self, checkpoint: &Contents, rows: &Input) -> Result<()>;
    fn snapshot(&self) -> AnySnapshot<'_>;
    fn details(&self, to: &Bound<'_, PyDict>) -> PyResult<()>;
    fn stream(&mut self) -> Option<&mut dyn AnyStream>;
    fn merge(&mut self, other: &Contents) -> Result<()>;
    fn as_any(&mut self) -> &mut dyn Any;
}

/// What Python asks of a fit that takes batches.
pub(super) trait AnyStream: Send {
    fn partial_fit(&mut self, batch: &Input, cx: &Executor) -> Result<Option<fit::Step>>;
    fn state(&self) -> Contents;
    fn rows_kept(&self) -> u64;
}

/// The snapshot of a run over rows of either type.
pub(super) type AnySnapshot<'a> = Typed<Snapshot<'a, f32>, Snapshot<'a, f64>>;

fn no_batches() -> PyErr {
    PyRuntimeError::new_err("this method takes no single batches")
}

impl<M: StreamMethod> AnyStream for fit::Run<M> {
    fn partial_fit(&mut self, batch: &Input, cx: &Executor) -> Result<Option<fit::Step>> {
        // Computed in the type of the centers for any storage, as in prediction.
        let rows = match self.solver() {
            Typed::F32(_) => AnySource::F32(batch.of()),
            Typed::F64(_) => AnySource::F64(batch.of()),
        };
        self.partial_fit_on(&rows, cx)
    }
    fn state(&self) -> Contents {
        self.state()
    }
    fn rows_kept(&self) -> u64 {
        self.rows_kept()
    }
}

/// The reason of that name for which a run is ended from outside.
pub(super) fn reason_of(name: &str) -> PyResult<StopReason> {
    match name {
        "callback" => Ok(StopReason::Observer),
        "deadline" => Ok(StopReason::Deadline),
        "patience" => Ok(StopReason::Patience),
        _ => Err(PyValueError::new_err(format!("no reason to stop: {name:?}"))),
    }
}

/// A running fit with its rows, or without rows if batches are passed one by one.
#[pyclass(frozen, subclass, module = "shoal._core")]
pub(super) struct Run {
    input: Option<Input>,
    n_clusters: usize,
    threads: Option<usize>,
    /// Rows of the first step, seeding included, and of a later one.
    steps: (f64, f64),
    state: Mutex<Box<dyn AnyRun>>,
}

impl Run {
    /// A run over the rows of `input`. `steps` are the numbers of rows that the first step works on, seeding included,
    /// and a later one.
    pub(super) fn new(
        run: impl AnyRun + 'static,
        input: Input,
        steps: (f64, f64),
        n_clusters: usize,
        threads: Option<usize>,
    ) -> Self {
        Self { input: Some(input), n_clusters, threads, steps, state: Mutex::new(Box::new(run)) }
    }

    /// A run without rows of its own.
    pub(super) fn of_batches(run: impl AnyRun + 'static, n_clusters: usize, threads: Option<usize>) -> Self {
        Self { input: None, n_clusters, threads, steps: (0.0, 0.0), state: Mutex::new(Box::new(run)) }
    }

    pub(super) fn locked(&self) -> PyResult<MutexGuard<'_, Box<dyn AnyRun>>> {
        locked(&self.state, "fit")
    }

    pub(super) fn input(&self) -> PyResult<&Input> {
        self.input.as_ref().ok_or_else(|| PyRuntimeError::new_err("this run takes batches and has no rows"))
    }

    /// Calls `f` with this run, which must be of the method `M`.
    pub(super) fn with<M: Method, R>(&self, f: impl FnOnce(&mut fit::Run<M>) -> R) -> PyResult<R> {
        let mut state = self.locked()?;
        let run = state.as_any().downcast_mut().expect("the class was made for this method");
        Ok(f(run))
    }

    /// Calls `f` with this run, which must be of the method `M`, and its rows, detached from the interpreter.
    /// `f` costs about as much as the first step.
    pub(super) fn enter_with<M: Method, R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut fit::Run<M>, &Input, &Executor) -> Result<R> + Send,
    ) -> PyResult<R> {
        let (mut state, input) = (self.locked()?, self.input()?);
        let run = state.as_any().downcast_mut().expect("the class was made for this method");
        enter(py, self.threads, self.cost(input, self.steps.0), |cx| f(run, input, cx))
    }

    /// Whether no step has been made yet.
    fn is_new(state: &dyn AnyRun) -> bool {
        either!(state.snapshot(), shown => shown.centers.is_empty())
    }

    /// About how many multiplications it takes to label `rows` rows of `input`.
    fn cost(&self, input: &Input, rows: f64) -> f64 {
        input.rows().effort(rows) * input.rows().cols() as f64 * self.n_clusters as f64
    }
}

#[pymethods]
impl Run {
    /// One more step; None when the run is over.
    fn step(&self, py: Python<'_>) -> PyResult<Option<Step>> {
        let (mut state, input) = (self.locked()?, self.input()?);
        let run = &mut *state;
        let rows = if Self::is_new(&**run) { self.steps.0 } else { self.steps.1 };
        let step = enter(py, self.threads, self.cost(input, rows), |cx| run.advance(input, cx))?;
        Ok(step.map(Step::from))
    }

    /// Takes one batch; None while there are too few rows to begin with.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn partial_fit(
        &self,
        py: Python<'_>,
        source: &Source,
        weights: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Option<Step>> {
        let mut state = self.locked()?;
        let run = &mut **state;
        let is_new = Self::is_new(run);
        let stream = run.stream().ok_or_else(no_batches)?;
        let batch = Input::new(&source.0, weights.as_ref())?;
        let rows = batch.rows().whole_effort() + stream.rows_kept() as f64;
        // The first batch is seeded from too.
        let rows = if is_new { 4.0 * rows } else { rows };
        let step = enter(py, self.threads, self.cost(&batch, rows), |cx| stream.partial_fit(&batch, cx))?;
        Ok(step.map(Step::from))
    }

    /// Everything that the next batch depends on, as arrays and texts.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Loaded<'py>> {
        let contents = self.locked()?.stream().ok_or_else(no_batches)?.state();
        as_python(py, contents)
    }

    /// Computes the fingerprint of the rows that a checkpoint stores.
    fn know_rows(&self, py: Python<'_>) -> PyResult<()> {
        let (mut state, input) = (self.locked()?, self.input()?);
        let run = &mut *state;
        enter(py, Some(1), input.rows().effort(0.0), |_| run.know_rows(input))
    }

    /// Raises an error if the rows are not those of a checkpoint.
    fn compare_rows(
        &self,
        py: Python<'_>,
        kind: &str,
        arrays: BTreeMap<String, Bound<'_, PyAny>>,
        meta: BTreeMap<String, String>,
    ) -> PyResult<()> {
        let checkpoint = of_python(kind, arrays, meta)?;
        let (mut state, input) = (self.locked()?, self.input()?);
        let run = &mut *state;
        enter(py, Some(1), input.rows().effort(0.0), |_| run.compare_rows(&checkpoint, input))
    }

    /// Everything that the next step depends on, except the rows, as arrays and texts.
    fn checkpoint<'py>(&self, py: Python<'py>) -> PyResult<Loaded<'py>> {
        let (mut state, input) = (self.locked()?, self.input()?);
        let run = &mut *state;
        let contents = enter(py, Some(1), 0.0, |_| run.checkpoint(input))?;
        as_python(py, contents)
    }

    /// Writes the checkpoint to a file, with more arrays and texts. An existing file is replaced atomically.
    fn write_checkpoint(
        &self,
        py: Python<'_>,
        path: PathBuf,
        arrays: BTreeMap<String, Bound<'_, PyAny>>,
        meta: BTreeMap<String, String>,
    ) -> PyResult<()> {
        let (mut state, input) = (self.locked()?, self.input()?);
        let more = of_python("", arrays, meta)?;
        let run = &mut *state;
        enter(py, Some(1), 0.0, |_| {
            let mut contents = run.checkpoint(input)?;
            contents.arrays.extend(more.arrays);
            contents.meta.extend(more.meta);
            persist::write(path, &contents)
        })
    }

    /// What only this method shows, by name.
    fn details<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        self.locked()?.details(&details)?;
        Ok(details)
    }

    /// All steps so far.
    fn history(&self) -> PyResult<Vec<Step>> {
        Ok(self.locked()?.history().iter().copied().map(Step::from).collect())
    }

    /// Merges another state into the run.
    fn merge(
        &self,
        kind: &str,
        arrays: BTreeMap<String, Bound<'_, PyAny>>,
        meta: BTreeMap<String, String>,
    ) -> PyResult<()> {
        let other = of_python(kind, arrays, meta)?;
        Ok(self.locked()?.merge(&other)?)
    }

    /// Ends the run after its last step.
    fn stop(&self, reason: &str) -> PyResult<()> {
        self.locked()?.end(reason_of(reason)?);
        Ok(())
    }

    /// Recomputes labels and inertia for the final centers.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let (mut state, input) = (self.locked()?, self.input()?);
        let run = &mut *state;
        enter(py, self.threads, self.cost(input, input.rows().whole_effort()), |cx| run.finish(input, cx))?;
        Ok(())
    }

    /// The present centers, `(k, d)`.
    fn centers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        either!(self.locked()?.snapshot(), shown => array2(py, shown.centers.to_vec(), shown.dim))
    }

    /// Weight per cluster.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        either!(self.locked()?.snapshot(), shown => Ok(array1(py, shown.weights.to_vec())))
    }

    /// Label per row, after `finish`.
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        either!(self.locked()?.snapshot(), shown => Ok(array1(py, signed(shown.labels.to_vec()))))
    }

    /// Weighted sum of squared distances, after `finish`.
    fn inertia(&self) -> PyResult<f64> {
        either!(self.locked()?.snapshot(), shown => Ok(shown.inertia))
    }

    #[getter]
    fn n_iter(&self) -> PyResult<u64> {
        either!(self.locked()?.snapshot(), shown => Ok(shown.n_iter))
    }

    #[getter]
    fn n_steps(&self) -> PyResult<u64> {
        either!(self.locked()?.snapshot(), shown => Ok(shown.n_steps))
    }

    /// Rows of zeros among the rows read so far, if they are scaled to length 1.
    #[getter]
    fn zero_rows(&self) -> PyResult<u64> {
        Ok(self.locked()?.zero_rows())
    }

    /// How the first centers were chosen.
    #[getter]
    fn init(&self) -> PyResult<String> {
        either!(self.locked()?.snapshot(), shown => Ok(shown.seeded_by.to_owned()))
    }

    /// How steps find the nearest centers.
    #[getter]
    fn algorithm(&self) -> PyResult<&'static str> {
        either!(self.locked()?.snapshot(), shown => Ok(shown.algorithm))
    }

    /// Seconds by phase.
    fn timings(&self) -> PyResult<BTreeMap<&'static str, f64>> {
        let timings = either!(self.locked()?.snapshot(), shown => shown.timings);
        Ok([("seeding", timings.seeding), ("sweeps", timings.sweeps), ("final", timings.finish)].into())
    }
}
