//! This module knows a k-means fit on its way, as Python drives it.

use std::sync::{Mutex, MutexGuard};

use numpy::PyReadonlyArray1;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::array::{Centers, array1, array2, signed};
use super::enter::enter;
use super::kernel::metric_of;
use super::rows::Input;
use super::source::Source;
use super::step::Step;
use crate::data::{AnySource, Source as _};
use crate::kmeans::{self, Algorithm, KMeans};
use crate::seeding::Seeding;
use crate::solver::StopReason;

/// A k-means fit on its way; holds its rows.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct KMeansRun {
    input: Input,
    n_columns: usize,
    threads: Option<usize>,
    /// About how many multiplications a sweep takes.
    cost: f64,
    state: Mutex<kmeans::KMeansRun>,
}

impl KMeansRun {
    /// The state, if no other thread is at work on it: waiting for it, attached, would keep that thread from ever attaching.
    fn state(&self) -> PyResult<MutexGuard<'_, kmeans::KMeansRun>> {
        self.state
            .try_lock()
            .map_err(|_| PyRuntimeError::new_err("this run is in use by another thread, or failed by a bug"))
    }
}

#[pymethods]
impl KMeansRun {
    #[new]
    #[pyo3(signature = (source, *, n_clusters, seeding, centers, n_init, max_iter, tol, metric, algorithm, bounds_memory, seed, threads, weights))]
    #[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python passes them")]
    fn new(
        source: &Source,
        n_clusters: usize,
        seeding: &str,
        centers: Option<&Bound<'_, PyAny>>,
        n_init: u64,
        max_iter: u64,
        tol: f64,
        metric: &str,
        algorithm: &str,
        bounds_memory: u64,
        seed: u64,
        threads: Option<usize>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Self> {
        let layout = source.0.layout();
        let seeding = match (seeding, centers) {
            ("auto", None) => Seeding::Auto,
            ("random", None) => Seeding::Random,
            ("k-means++", None) => Seeding::PlusPlus { greedy: true },
            ("plain-k-means++", None) => Seeding::PlusPlus { greedy: false },
            ("given", Some(centers)) => Seeding::Given(Centers::new(centers, layout.cols)?.into_f64()),
            _ => return Err(PyValueError::new_err(format!("no such seeding: {seeding:?}"))),
        };
        let algorithm = Algorithm::named(algorithm)
            .ok_or_else(|| PyValueError::new_err(format!("no such algorithm: {algorithm:?}")))?;
        let params = KMeans::params(n_clusters)
            .seeding(seeding)
            .rng_seed(seed)
            .n_init(n_init)
            .max_iter(max_iter)
            .tolerance(tol)
            .metric(metric_of(metric)?)
            .algorithm(algorithm)
            .bounds_memory(bounds_memory)
            .threads(threads);
        let input = Input::new(&source.0, weights.as_ref())?;
        let run = params.start(&input)?;
        let cost = layout.rows as f64 * layout.cols as f64 * n_clusters as f64;
        Ok(Self { input, n_columns: layout.cols, threads, cost, state: Mutex::new(run) })
    }

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
            AnySource::F32(_) => array2(py, state.centers::<f32>(), self.n_columns),
            AnySource::F64(_) => array2(py, state.centers::<f64>(), self.n_columns),
        }
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(array1(py, self.state()?.cluster_weights().to_vec()))
    }

    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(array1(py, signed(self.state()?.labels().to_vec())))
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
        Ok(self.state()?.seeded_by().to_owned())
    }

    #[getter]
    fn algorithm(&self) -> PyResult<&'static str> {
        Ok(self.state()?.algorithm().name())
    }

    /// Seconds by phase.
    fn timings(&self) -> PyResult<std::collections::BTreeMap<&'static str, f64>> {
        let timings = self.state()?.timings();
        Ok([("seeding", timings.seeding), ("sweeps", timings.sweeps), ("final", timings.finish)].into())
    }
}
