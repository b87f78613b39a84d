//! This module knows a fit on its way, of any k-means method, as Python drives it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use numpy::PyReadonlyArray1;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::array::{Centers, array1, array2, signed};
use super::coreset::{AnyCoreset, Parts};
use super::enter::enter;
use super::persist::{Loaded, as_python, of_python};
use super::rows::Input;
use super::source::Source;
use super::step::Step;
use crate::data::AnySource;
use crate::error::Result;
use crate::fit::{self, FitSolver, Method, Run, StopReason, Timings};
use crate::parallel::Executor;
use crate::persist::{self, Contents};

/// What Python asks of a fit, whatever the method.
trait AnyRun: Send {
    fn advance(&mut self, rows: &Input, cx: &Executor) -> Result<Option<solver::Step>>;
    fn finish(&mut self, rows: &Input, cx: &Executor) -> Result<f64>;
    fn end(&mut self, reason: StopReason);
    fn is_new(&self) -> bool;
    fn dim(&self) -> usize;
    fn centers(&self) -> Centers;
    fn counts(&self) -> Vec<f64>;
    fn labels(&self) -> Vec<u32>;
    fn inertia(&self) -> f64;
    fn n_iter(&self) -> u64;
    fn n_steps(&self) -> u64;
    fn step_sizes(&self) -> Vec<f64>;
    fn starved(&self) -> Vec<u32>;
    fn seeded_by(&self) -> String;
    fn algorithm(&self) -> &'static str;
    fn rate(&self) -> f64;
    fn timings(&self) -> Timings;
    fn partial_fit(&mut self, batch: &Input, cx: &Executor) -> Result<Option<solver::Step>>;
    fn state(&mut self) -> Option<Contents>;
    fn rows(&mut self) -> (u64, u64);
    fn kept(&mut self) -> u64;
    fn merge(&mut self, other: &Contents) -> Result<()>;
    fn know_rows(&mut self, rows: &Input) -> Result<()>;
    fn checkpoint(&mut self, rows: &Input) -> Result<Contents>;
    fn details(&self) -> Contents;
    fn coreset(&self) -> Option<AnyCoreset>;
    fn history(&self) -> Vec<solver::Step>;
}

impl<M: Method> AnyRun for Run<M> {
    fn advance(&mut self, rows: &Input, cx: &Executor) -> Result<Option<solver::Step>> {
        self.advance(rows, cx)
    }
    fn finish(&mut self, rows: &Input, cx: &Executor) -> Result<f64> {
        self.finish(rows, cx)
    }
    fn end(&mut self, reason: StopReason) {
        self.end(reason);
    }
    fn is_new(&self) -> bool {
        self.cluster_weights().is_empty()
    }
    fn dim(&self) -> usize {
        self.dim()
    }
    fn centers(&self) -> Centers {
        if self.is_wide() { Centers::F64(self.centers()) } else { Centers::F32(self.centers()) }
    }
    fn counts(&self) -> Vec<f64> {
        self.cluster_weights().to_vec()
    }
    fn labels(&self) -> Vec<u32> {
        self.labels().to_vec()
    }
    fn inertia(&self) -> f64 {
        self.inertia()
    }
    fn n_iter(&self) -> u64 {
        self.n_iter()
    }
    fn n_steps(&self) -> u64 {
        self.n_steps()
    }
    fn step_sizes(&self) -> Vec<f64> {
        self.step_sizes().to_vec()
    }
    fn starved(&self) -> Vec<u32> {
        self.starved()
    }
    fn seeded_by(&self) -> String {
        self.seeded_by().to_owned()
    }
    fn algorithm(&self) -> &'static str {
        self.found_by()
    }
    fn rate(&self) -> f64 {
        self.rate()
    }
    fn timings(&self) -> Timings {
        self.timings()
    }
    fn partial_fit(&mut self, batch: &Input, cx: &Executor) -> Result<Option<solver::Step>> {
        // As prediction does: in the type of the centers, whatever the storage.
        let rows = if self.is_wide() { AnySource::F64(batch.of()) } else { AnySource::F32(batch.of()) };
        self.partial_fit(&rows, cx)
    }
    fn state(&mut self) -> Option<Contents> {
        self.state()
    }
    fn rows(&mut self) -> (u64, u64) {
        self.rows()
    }
    fn kept(&mut self) -> u64 {
        self.kept()
    }
    fn merge(&mut self, other: &Contents) -> Result<()> {
        self.merge_state(other)
    }
    fn know_rows(&mut self, rows: &Input) -> Result<()> {
        self.know_rows(rows)
    }
    fn checkpoint(&mut self, rows: &Input) -> Result<Contents> {
        self.checkpoint(rows)
    }
    fn details(&self) -> Contents {
        self.details()
    }
    fn coreset(&self) -> Option<AnyCoreset> {
        self.with_solver(
            |solver| solver.coreset().cloned().map(AnyCoreset::F32),
            |solver| solver.coreset().cloned().map(AnyCoreset::F64),
        )
    }
    fn history(&self) -> Vec<solver::Step> {
        self.history().to_vec()
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

/// A fit on its way, with the rows that it is over, or without for batches that come one by one.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct Run {
    input: Option<Input>,
    n_clusters: usize,
    threads: Option<usize>,
    /// Rows of the first step, seeding included, and of a later one.
    steps: (f64, f64),
    state: Mutex<Box<dyn AnyRun>>,
}

impl Run {
    /// A run that was made for `input`, and whose steps are passes.
    pub(super) fn new<M: Method + 'static>(
        run: Run<M>,
        input: Input,
        n_clusters: usize,
        threads: Option<usize>,
    ) -> Self {
        let rows = input.rows().whole_effort();
        // The first step chooses the first centers too, which may cost more than a sweep.
        let state = Mutex::new(Box::new(run) as Box<dyn AnyRun>);
        Self { input: Some(input), n_clusters, threads, steps: (4.0 * rows, rows), state }
    }

    /// As `new`, with steps of about so many rows: the first one, seeding included, and later ones.
    pub(super) fn with_steps(mut self, first: f64, later: f64) -> Self {
        self.steps = (first, later);
        self
    }

    /// A run without rows of its own.
    pub(super) fn of_batches<M: Method + 'static>(
        run: Run<M>,
        n_clusters: usize,
        threads: Option<usize>,
    ) -> Self {
        Self { input: None, n_clusters, threads, steps: (0.0, 0.0), state: Mutex::new(Box::new(run)) }
    }

    /// The state, if no other thread is at work on it: waiting for it, attached, would keep that thread from ever attaching.
    fn locked(&self) -> PyResult<MutexGuard<'_, Box<dyn AnyRun>>> {
        self.state
            .try_lock()
            .map_err(|_| PyRuntimeError::new_err("this run is in use by another thread, or failed by a bug"))
    }

    fn input(&self) -> PyResult<&Input> {
        self.input.as_ref().ok_or_else(|| PyRuntimeError::new_err("this run has no rows of its own"))
    }

    /// About how many multiplications it takes to label so many rows of `input`.
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
        let rows = if run.is_new() { self.steps.0 } else { self.steps.1 };
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
        let run = &mut *state;
        let batch = Input::new(&source.0, weights.as_ref())?;
        // A first batch is seeded from too.
        let rows = batch.rows().whole_effort() + run.kept() as f64;
        let rows = if run.is_new() { 4.0 * rows } else { rows };
        let step = enter(py, self.threads, self.cost(&batch, rows), |cx| run.partial_fit(&batch, cx))?;
        Ok(step.map(Step::from))
    }

    /// All that the next batch depends on, as arrays and texts; None from a method that takes no single batches.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Option<Loaded<'py>>> {
        let contents = self.locked()?.state();
        contents.map(|contents| as_python(py, contents)).transpose()
    }

    /// Looks at some of the rows, by which a checkpoint knows them again.
    fn know_rows(&self, py: Python<'_>) -> PyResult<()> {
        let (mut state, input) = (self.locked()?, self.input()?);
        let run = &mut *state;
        enter(py, Some(1), input.rows().effort(0.0), |_| run.know_rows(input))
    }

    /// All that the next step depends on, but for the rows, as arrays and texts.
    fn checkpoint<'py>(&self, py: Python<'py>) -> PyResult<Loaded<'py>> {
        let (mut state, input) = (self.locked()?, self.input()?);
        let run = &mut *state;
        let contents = enter(py, Some(1), 0.0, |_| run.checkpoint(input))?;
        as_python(py, contents)
    }

    /// The same as a file, with more arrays and texts; an older one of that name is replaced at the end, at once.
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

    /// What only this method knows, as arrays and texts.
    fn details<'py>(&self, py: Python<'py>) -> PyResult<Loaded<'py>> {
        let contents = self.locked()?.details();
        as_python(py, contents)
    }

    /// A copy of the few rows that it works on in place of all; None where it works on all.
    fn coreset<'py>(&self, py: Python<'py>) -> PyResult<Option<Parts<'py>>> {
        let coreset = self.locked()?.coreset();
        coreset.map(|coreset| coreset.into_parts(py)).transpose()
    }

    /// All steps so far.
    fn history(&self) -> PyResult<Vec<Step>> {
        Ok(self.locked()?.history().into_iter().map(Step::from).collect())
    }

    /// Rows that are looked at again, and rows that are not, but whose votes count.
    fn rows(&self) -> PyResult<(u64, u64)> {
        Ok(self.locked()?.rows())
    }

    /// Takes over what another state has learned.
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

    /// Makes labels and inertia those of the centers.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let (mut state, input) = (self.locked()?, self.input()?);
        let run = &mut *state;
        enter(py, self.threads, self.cost(input, input.rows().whole_effort()), |cx| run.finish(input, cx))?;
        Ok(())
    }

    fn centers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.locked()?;
        match state.centers() {
            Centers::F32(values) => array2(py, values, state.dim()),
            Centers::F64(values) => array2(py, values, state.dim()),
        }
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(array1(py, self.locked()?.counts()))
    }

    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(array1(py, signed(self.locked()?.labels())))
    }

    fn inertia(&self) -> PyResult<f64> {
        Ok(self.locked()?.inertia())
    }

    /// The step size of each step of a fit, of a method that has such.
    fn step_sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(array1(py, self.locked()?.step_sizes()))
    }

    /// The clusters that get hardly any rows of batches, of a method whose centers stay where they are then.
    fn starved(&self) -> PyResult<Vec<u32>> {
        Ok(self.locked()?.starved())
    }

    #[getter]
    fn n_iter(&self) -> PyResult<u64> {
        Ok(self.locked()?.n_iter())
    }

    #[getter]
    fn n_steps(&self) -> PyResult<u64> {
        Ok(self.locked()?.n_steps())
    }

    #[getter]
    fn init(&self) -> PyResult<String> {
        Ok(self.locked()?.seeded_by())
    }

    #[getter]
    fn algorithm(&self) -> PyResult<&'static str> {
        Ok(self.locked()?.algorithm())
    }

    /// How far a step of the method goes now; NaN where it has no such rate.
    #[getter]
    fn rate(&self) -> PyResult<f64> {
        Ok(self.locked()?.rate())
    }

    /// Seconds by phase.
    fn timings(&self) -> PyResult<BTreeMap<&'static str, f64>> {
        let timings = self.locked()?.timings();
        Ok([("seeding", timings.seeding), ("sweeps", timings.sweeps), ("final", timings.finish)].into())
    }
}
