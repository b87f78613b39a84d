//! The search for duplicates and balanced samples, for Python.

use std::path::PathBuf;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::array::{array1, unsigned, vector};
use super::enter::enter;
use super::rows::Input;
use super::source::Source;
use crate::curation::{self, Deduplication, Pick, Search};
use crate::data::Source as _;
use crate::error::Error;
use crate::float::{Typed, either};
use crate::persist;

/// The kept row of every row, the number of pairs, the number of cells, the share of compared pairs, and the recall.
type GroupedRows<'py> = (Bound<'py, PyAny>, u64, usize, f64, f64);

/// The cost of writing a file, which can be interrupted.
const LONG: f64 = 1e9;

/// A search for duplicates, which advances step by step. `source` is always the same rows, as the metric sees them.
#[pyclass(module = "shoal._core")]
pub(super) struct DuplicateSearch(Option<Typed<Search<f32>, Search<f64>>>);

fn over() -> PyErr {
    PyRuntimeError::new_err("the search is over")
}

fn other_type() -> Error {
    Error::Source("the rows have another compute type than at the start of the search".into())
}

#[pymethods]
impl DuplicateSearch {
    #[new]
    #[pyo3(signature = (source, threshold, *, metric, keep, linkage, n_clusters, n_probes, seed, memory, weights, threads, checkpoint))]
    /// Starts a search, or resumes the one in the file `checkpoint`.
    #[expect(clippy::too_many_arguments, reason = "the parameters of a search")]
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn new(
        py: Python<'_>,
        source: &Source,
        threshold: f64,
        metric: &str,
        keep: &str,
        linkage: &str,
        n_clusters: Option<usize>,
        n_probes: Option<usize>,
        seed: u64,
        memory: u64,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        threads: Option<usize>,
        checkpoint: Option<PathBuf>,
    ) -> PyResult<Self> {
        let how = Deduplication::within(threshold)
            .metric(metric.parse()?)
            .keep(keep.parse()?)
            .linkage(linkage.parse()?)
            .n_clusters(n_clusters)
            .n_probes(n_probes)
            .rng_seed(seed)
            .memory(memory);
        let input = Input::new(&source.0, weights.as_ref())?;
        let rows = source.0.whole_effort();
        let cost = rows * rows.sqrt() * source.0.cols() as f64;
        let search = enter(py, threads, cost, |cx| {
            let known = checkpoint.map(persist::read).transpose()?;
            Ok(either!(input.any(), data => Typed(match &known {
                Some(known) => Search::restore(how, known, data, cx)?,
                None => Search::start(how, data, cx)?,
            })))
        })?;
        Ok(Self(Some(search)))
    }

    /// Writes the state of the search to a file.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands paths over")]
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let search = self.0.as_ref().ok_or_else(over)?;
        enter(py, Some(1), LONG, |cx| {
            persist::write(&path, &either!(search, search => search.checkpoint(cx)?))
        })
    }

    /// The share of all pairs that is expected to be compared.
    #[getter]
    fn expected(&self) -> PyResult<f64> {
        Ok(either!(self.0.as_ref().ok_or_else(over)?, search => search.expected()))
    }

    /// The share of the cells that are done.
    #[getter]
    fn done(&self) -> PyResult<f64> {
        Ok(either!(self.0.as_ref().ok_or_else(over)?, search => search.done()))
    }

    /// Finds the pairs of the next cells. Returns whether cells are left. After an exception the step can be repeated.
    fn advance(&mut self, py: Python<'_>, source: &Source, threads: Option<usize>) -> PyResult<bool> {
        let search = self.0.as_mut().ok_or_else(over)?;
        let input = Input::new(&source.0, None)?;
        let rows = source.0.whole_effort();
        let cost = rows * rows.sqrt() * source.0.cols() as f64;
        enter(
            py,
            threads,
            cost,
            |cx| either!((search, input.any()), (search, data) => search.advance(data, cx), else Err(other_type())),
        )
    }

    /// Groups the rows by the pairs that were found. The search is over.
    fn finish<'py>(
        &mut self,
        py: Python<'py>,
        source: &Source,
        threads: Option<usize>,
    ) -> PyResult<GroupedRows<'py>> {
        let search = self.0.take().ok_or_else(over)?;
        let input = Input::new(&source.0, None)?;
        let cost = source.0.whole_effort() * source.0.cols() as f64;
        let found = enter(
            py,
            threads,
            cost,
            move |cx| either!((search, input.any()), (search, data) => search.finish(data, cx), else Err(other_type())),
        )?;
        let kept = found.representatives.into_iter().map(i64::from).collect();
        Ok((array1(py, kept), found.n_pairs, found.n_clusters, found.compared, found.recall))
    }
}

/// Counts, which Python checks. Negative ones would become large ones.
fn counts(values: &PyReadonlyArray1<'_, i64>) -> Vec<u64> {
    vector(values).into_iter().map(i64::cast_unsigned).collect()
}

/// The rows that every cell gives to a balanced sample.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
pub(super) fn balanced_quotas<'py>(
    py: Python<'py>,
    sizes: PyReadonlyArray1<'_, i64>,
    parents: Vec<PyReadonlyArray1<'_, i32>>,
    n_samples: u64,
    seed: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let (sizes, parents) = (counts(&sizes), parents.iter().map(unsigned).collect::<Vec<_>>());
    let quotas = enter(py, Some(1), sizes.len() as f64, |_| {
        curation::balanced_quotas(&sizes, &parents, n_samples, seed)
    })?;
    Ok(array1(py, quotas.into_iter().map(u64::cast_signed).collect::<Vec<_>>()))
}

/// Takes rows of every cell: the nearest ones if there are distances, else random ones.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
pub(super) fn pick_rows<'py>(
    py: Python<'py>,
    labels: PyReadonlyArray1<'_, i32>,
    quotas: PyReadonlyArray1<'_, i64>,
    sq_dists: Option<PyReadonlyArray1<'_, f64>>,
    seed: u64,
    weights: Option<PyReadonlyArray1<'_, f64>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (labels, quotas) = (unsigned(&labels), counts(&quotas));
    let (sq_dists, weights) = (sq_dists.as_ref().map(vector), weights.as_ref().map(vector));
    let by = match &sq_dists {
        Some(sq_dists) => Pick::Nearest { sq_dists },
        None => Pick::Random { rng_seed: seed },
    };
    // About ten operations per row.
    let rows = enter(py, Some(1), 10.0 * labels.len() as f64, |cx| {
        curation::pick_rows(&labels, &quotas, by, weights.as_deref(), cx)
    })?;
    Ok(array1(py, rows.into_iter().map(u64::cast_signed).collect::<Vec<_>>()))
}
