//! Coresets for Python.

use std::collections::BTreeMap;
use std::sync::Mutex;

use numpy::{Element, PyReadonlyArray1};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::array::{array1, array2};
use super::enter::{enter, locked};
use super::persist::{Loaded, as_python, of_python};
use super::rows::Input;
use super::source::Source;
use crate::data::Source as _;
use crate::error::Error;
use crate::float::{Float, Typed, either};
use crate::kernel::Compute;
use crate::seeding;
use crate::stats::{Coreset, Lightweight, MergeReduce};

/// Points, weights and row numbers. Sparse points are a tuple of three arrays: values, columns, row starts.
pub(super) type Parts<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Converts a coreset to arrays.
fn parts<T: Compute + Element>(py: Python<'_>, coreset: Coreset<T>) -> PyResult<Parts<'_>> {
    let Coreset { points, weights, rows } = coreset;
    let points = if points.is_sparse() {
        let starts = points.starts.into_iter().map(|start| start as i64).collect();
        let arrays = (array1(py, points.values), array1(py, points.columns), array1(py, starts));
        arrays.into_pyobject(py)?.into_any()
    } else {
        let cols = points.cols();
        array2(py, points.values, cols)?
    };
    let rows: Vec<i64> = rows.into_iter().map(u64::cast_signed).collect();
    Ok((points, array1(py, weights), array1(py, rows)))
}

/// A coreset in either compute type.
pub(super) type AnyCoreset = Typed<Coreset<f32>, Coreset<f64>>;

impl AnyCoreset {
    /// Converts the coreset to arrays.
    pub(super) fn into_parts(self, py: Python<'_>) -> PyResult<Parts<'_>> {
        either!(self, coreset => parts(py, coreset))
    }
}

/// A lightweight coreset under construction, with its source.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct LightweightCoreset {
    input: Input,
    threads: Option<usize>,
    state: Mutex<Option<Typed<Lightweight<f32>, Lightweight<f64>>>>,
}

fn finished() -> PyErr {
    PyRuntimeError::new_err("this coreset is finished, or an earlier step failed")
}

#[pymethods]
impl LightweightCoreset {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn new(
        source: &Source,
        n_samples: usize,
        seed: u64,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let input = Input::new(&source.0, weights.as_ref())?;
        let state = either!(input.any(), data => Typed(Lightweight::new(data, n_samples, seed)?));
        Ok(Self { input, threads, state: Mutex::new(Some(state)) })
    }

    /// Processes some rows and returns how many; None when all are done.
    fn step(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let mut state = locked(&self.state, "coreset")?;
        let mut run = state.take().ok_or_else(finished)?;
        let rows = self.input.rows();
        let cost = rows.whole_effort() * rows.cols() as f64;
        let seen = either!(
            (&mut run, self.input.any()),
            (run, data) => enter(py, self.threads, cost, |cx| run.step(data, cx))?,
            else return Err(finished())
        );
        *state = Some(run);
        Ok(seen)
    }

    /// The coreset, after the last step.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Parts<'py>> {
        let run = locked(&self.state, "coreset")?.take().ok_or_else(finished)?;
        either!(run, run => parts(py, enter(py, Some(1), 0.0, |_| run.finish())?))
    }
}

/// A coreset for fits of `n_clusters` clusters.
#[pyfunction]
#[pyo3(signature = (source, n_samples, n_clusters, seed, weights, threads))]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
pub(super) fn sensitivity_coreset<'py>(
    source: &Bound<'py, Source>,
    n_samples: usize,
    n_clusters: usize,
    seed: u64,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    threads: Option<usize>,
) -> PyResult<Parts<'py>> {
    let (py, source) = (source.py(), source.get());
    let input = Input::new(&source.0, weights.as_ref())?;
    let cost = source.0.whole_effort() * source.0.cols() as f64 * n_clusters as f64 * 1.5;
    either!(input.any(), data => parts(
        py,
        enter(py, threads, cost, |cx| seeding::sensitivity_coreset(data, n_clusters, n_samples, seed, cx))?,
    ))
}

type AnyStreaming = Typed<MergeReduce<f32>, MergeReduce<f64>>;

/// A coreset of a stream, by merge and reduce.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct StreamingCoreset(Mutex<AnyStreaming>);

#[pymethods]
impl StreamingCoreset {
    /// An empty coreset; `compute` is the compute type of the rows.
    #[new]
    fn new(n_samples: usize, seed: u64, compute: &str) -> PyResult<Self> {
        let state = if compute == f64::NAME {
            AnyStreaming::F64(MergeReduce::new(n_samples, seed)?)
        } else {
            AnyStreaming::F32(MergeReduce::new(n_samples, seed)?)
        };
        Ok(Self(Mutex::new(state)))
    }

    /// Restores a coreset from `state`.
    #[staticmethod]
    fn of_state(
        compute: &str,
        kind: &str,
        arrays: BTreeMap<String, Bound<'_, PyAny>>,
        meta: BTreeMap<String, String>,
    ) -> PyResult<Self> {
        let contents = of_python(kind, arrays, meta)?;
        let state = if compute == f64::NAME {
            MergeReduce::of_state(&contents).map(AnyStreaming::F64)
        } else {
            MergeReduce::of_state(&contents).map(AnyStreaming::F32)
        };
        Ok(Self(Mutex::new(state.map_err(PyValueError::new_err)?)))
    }

    /// Adds rows.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn partial_fit(
        &self,
        py: Python<'_>,
        source: &Source,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        threads: Option<usize>,
    ) -> PyResult<()> {
        let mut state = locked(&self.0, "coreset")?;
        let input = Input::new(&source.0, weights.as_ref())?;
        let rows = input.rows();
        let cost = rows.whole_effort() * rows.cols() as f64 * 4.0;
        either!(&mut *state, of => enter(py, threads, cost, |cx| of.absorb(input.of(), cx)))
    }

    /// Merges another coreset into this one.
    fn merge(&self, py: Python<'_>, other: &Self, threads: Option<usize>) -> PyResult<()> {
        let (mut state, other) = (locked(&self.0, "coreset")?, locked(&other.0, "coreset")?);
        let other_type = "the coresets must have the same compute type, got float32 and float64: convert the rows to \
                          one type";
        either!(
            (&mut *state, &*other),
            (of, other) => enter(py, threads, f64::MAX, |cx| of.merge(other, cx)),
            else Err(Error::Shape(other_type.into()).into())
        )
    }

    /// The coreset so far.
    fn result<'py>(&self, py: Python<'py>, threads: Option<usize>) -> PyResult<Parts<'py>> {
        let state = locked(&self.0, "coreset")?;
        either!(&*state, of => {
            let coreset = enter(py, threads, of.kept() as f64 * of.dim() as f64, |cx| of.result(cx))?;
            parts(py, coreset)
        })
    }

    /// Everything that the next row depends on, as arrays and strings.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Loaded<'py>> {
        let contents = either!(&*locked(&self.0, "coreset")?, of => of.state());
        as_python(py, contents)
    }

    /// The compute type of the rows.
    #[getter]
    fn compute(&self) -> PyResult<&'static str> {
        Ok(locked(&self.0, "coreset")?.name())
    }

    /// Rows so far, rows kept, columns.
    #[getter]
    fn size(&self) -> PyResult<(u64, usize, usize)> {
        Ok(either!(&*locked(&self.0, "coreset")?, of => (of.rows(), of.kept(), of.dim())))
    }
}
