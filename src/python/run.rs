//! This module knows a fit on its way, of any k-means method, as Python drives it.

use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::array::{array1, array2, signed};
use super::enter::enter;
use super::rows::Input;
use super::step::Step;
use crate::data::{AnySource, Source as _};
use crate::error::Result;
use crate::kmeans::{FitRun, Method, Timings};
use crate::parallel::Executor;
use crate::solver::{self, StopReason};

/// What Python asks of a fit, whatever the method.
trait AnyRun: Send {
    fn advance(&mut self, rows: &Input, cx: &Executor) -> Result<Option<solver::Step>>;
    fn finish(&mut self, rows: &Input, cx: &Executor) -> Result<f64>;
    fn end(&mut self, reason: StopReason);
    fn centers_f32(&self) -> Vec<f32>;
    fn centers_f64(&self) -> Vec<f64>;
    fn counts(&self) -> Vec<f64>;
    fn labels(&self) -> Vec<u32>;
    fn inertia(&self) -> f64;
    fn n_iter(&self) -> u64;
    fn seeded_by(&self) -> String;
    fn algorithm(&self) -> &'static str;
    fn timings(&self) -> Timings;
}

impl<M: Method> AnyRun for FitRun<M> {
    fn advance(&mut self, rows: &Input, cx: &Executor) -> Result<Option<solver::Step>> {
        self.advance(rows, cx)
    }
    fn finish(&mut self, rows: &Input, cx: &Executor) -> Result<f64> {
        self.finish(rows, cx)
    }
    fn end(&mut self, reason: StopReason) {
        self.end(reason);
    }
    fn centers_f32(&self) -> Vec<f32> {
        self.centers()
    }
    fn centers_f64(&self) -> Vec<f64> {
        self.centers()
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
    fn seeded_by(&self) -> String {
        self.seeded_by().to_owned()
    }
    fn algorithm(&self) -> &'static str {
        self.found_by()
    }
    fn timings(&self) -> Timings {
        self.timings()
    }
}

/// A fit on its way; holds its rows.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct Run {
    input: Input,
    n_columns: usize,
    threads: Option<usize>,
    /// About how many multiplications the first step takes, seeding included, and a pass over all rows.
    cost: f64,
    state: Mutex<Box<dyn AnyRun>>,
}

impl Run {
    /// A run that was made for `input`, for `n_clusters` clusters.
    pub(super) fn new<M: Method + 'static>(
        run: FitRun<M>,
        input: Input,
        n_clusters: usize,
        threads: Option<usize>,
    ) -> Self {
        let layout = input.layout();
        let cost = layout.rows as f64 * layout.cols as f64 * n_clusters as f64;
        Self { input, n_columns: layout.cols, threads, cost, state: Mutex::new(Box::new(run)) }
    }

    /// The state, if no other thread is at work on it: waiting for it, attached, would keep that thread from ever attaching.
    fn state(&self) -> PyResult<MutexGuard<'_, Box<dyn AnyRun>>> {
        self.state
            .try_lock()
            .map_err(|_| PyRuntimeError::new_err("this run is in use by another thread, or failed by a bug"))
    }
}

#[pymethods]
impl Run {
    /// One more step; None when the run is over.
    fn step(&self, py: Python<'_>) -> PyResult<Option<Step>> {
        let mut state = self.state()?;
        let run = &mut *state;
        // The first step chooses the first centers too, which may cost more than a sweep.
        let step = enter(py, self.threads, 4.0 * self.cost, |cx| run.advance(&self.input, cx))?;
        Ok(step.map(Step::from))
    }

    /// Ends the run after its last step.
    fn stop(&self, reason: &str) -> PyResult<()> {
        let reason = match reason {
            "callback" => StopReason::Observer,
            "deadline" => StopReason::Deadline,
            "patience" => StopReason::Patience,
            _ => return Err(PyValueError::new_err(format!("no reason to stop: {reason:?}"))),
        };
        self.state()?.end(reason);
        Ok(())
    }

    /// Makes labels and inertia those of the centers.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state()?;
        let run = &mut *state;
        enter(py, self.threads, self.cost, |cx| run.finish(&self.input, cx))?;
        Ok(())
    }

    fn centers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.state()?;
        match self.input.any() {
            AnySource::F32(_) => array2(py, state.centers_f32(), self.n_columns),
            AnySource::F64(_) => array2(py, state.centers_f64(), self.n_columns),
        }
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(array1(py, self.state()?.counts()))
    }

    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(array1(py, signed(self.state()?.labels())))
    }

    fn inertia(&self) -> PyResult<f64> {
        Ok(self.state()?.inertia())
    }

    #[getter]
    fn n_iter(&self) -> PyResult<u64> {
        Ok(self.state()?.n_iter())
    }

    #[getter]
    fn init(&self) -> PyResult<String> {
        Ok(self.state()?.seeded_by())
    }

    #[getter]
    fn algorithm(&self) -> PyResult<&'static str> {
        Ok(self.state()?.algorithm())
    }

    /// Seconds by phase.
    fn timings(&self) -> PyResult<std::collections::BTreeMap<&'static str, f64>> {
        let timings = self.state()?.timings();
        Ok([("seeding", timings.seeding), ("sweeps", timings.sweeps), ("final", timings.finish)].into())
    }
}
