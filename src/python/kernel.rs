//! Passes with known centers or labels for Python: nearest, predict, transform, inertia, sums per cluster.
//! Computes in the type of the centers.

use std::collections::BTreeMap;

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyAny;

use super::array::{Centers, array1, array2, signed, unsigned};
use super::enter::enter;
use super::rows::{AnyRows, Input};
use super::source::Source;
use crate::centers;
use crate::data::{DataSource, Source as _};
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::float::either;
use crate::kernel::Compute;
use crate::parallel::Executor;

/// Rows and centers as the metric sees them, and the approximate number of multiplications of a pass.
struct Prepared {
    rows: AnyRows,
    centers: Centers,
    cost: f64,
}

fn prepared(source: &Source, centers: &Bound<'_, PyAny>, metric: &str) -> PyResult<Prepared> {
    let (cols, metric) = (source.0.cols(), metric.parse()?);
    let mut centers = Centers::new(centers, cols)?;
    match &mut centers {
        Centers::F32(values) => centers::project(values, cols, metric),
        Centers::F64(values) => centers::project(values, cols, metric),
    }
    let cost = source.0.whole_effort() * centers.len() as f64;
    Ok(Prepared { rows: source.0.seen_by(metric), centers, cost })
}

/// Adds `first_row` to row numbers in errors, for a source that is part of a larger one.
pub(super) fn from_row(first_row: u64) -> impl Fn(Error) -> Error {
    move |error| error.renumbered(|row| first_row + row)
}

#[pyfunction]
#[pyo3(signature = (source, centers, n_nearest, metric, threads, first_row = 0))]
pub(super) fn nearest<'py>(
    py: Python<'py>,
    source: &Source,
    centers: &Bound<'py, PyAny>,
    n_nearest: usize,
    metric: &str,
    threads: Option<usize>,
    first_row: u64,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let Prepared { rows, centers, cost } = prepared(source, centers, metric)?;
    let input = Input::new(&rows, None)?;
    let (labels, sq_dists) = either!(&centers, values => enter(py, threads, cost, |cx| {
        centers::nearest(values, n_nearest, Metric::Euclidean, input.of(), cx).map_err(from_row(first_row))
    }))?;
    nearest_arrays(py, labels, sq_dists, n_nearest)
}

/// Labels and squared distances, with a column per neighbor if there are several.
fn nearest_arrays(
    py: Python<'_>,
    labels: Vec<u32>,
    sq_dists: Vec<f64>,
    n_nearest: usize,
) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    let labels = signed(labels);
    Ok(if n_nearest == 1 {
        (array1(py, labels), array1(py, sq_dists))
    } else {
        (array2(py, labels, n_nearest)?, array2(py, sq_dists, n_nearest)?)
    })
}

/// Labels, squared distances, and the figures of the search.
type Search<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, BTreeMap<&'static str, f64>);

#[pyfunction]
pub(super) fn nearest_approximately<'py>(
    py: Python<'py>,
    source: &Source,
    centers: &Bound<'py, PyAny>,
    n_nearest: usize,
    recall: f64,
    metric: &str,
    threads: Option<usize>,
) -> PyResult<Search<'py>> {
    let Prepared { rows, centers, cost } = prepared(source, centers, metric)?;
    let input = Input::new(&rows, None)?;
    let (labels, sq_dists, search) = either!(&centers, values => enter(py, threads, cost, |cx| {
        centers::nearest_approximately(values, n_nearest, recall, Metric::Euclidean, input.of(), cx)
    }))?;
    let figures = [
        ("exact", f64::from(search.exact)),
        ("recall", search.recall),
        ("n_cells", search.n_cells as f64),
        ("n_probes", search.n_probes as f64),
    ];
    let (labels, sq_dists) = nearest_arrays(py, labels, sq_dists, n_nearest)?;
    Ok((labels, sq_dists, figures.into()))
}

#[pyfunction]
#[pyo3(signature = (source, centers, metric, threads, first_row = 0))]
pub(super) fn predict<'py>(
    py: Python<'py>,
    source: &Source,
    centers: &Bound<'py, PyAny>,
    metric: &str,
    threads: Option<usize>,
    first_row: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let Prepared { rows, centers, cost } = prepared(source, centers, metric)?;
    let input = Input::new(&rows, None)?;
    let labels = either!(&centers, values => enter(py, threads, cost, |cx| {
        centers::predict(values, Metric::Euclidean, input.of(), cx).map_err(from_row(first_row))
    }))?;
    Ok(array1(py, signed(labels)))
}

/// Distances in the type of the centers.
fn as_wide<T: Compute>(centers: &[T], data: &dyn DataSource<T>, cx: &Executor) -> Result<Vec<T>> {
    centers::transform(centers, Metric::Euclidean, data, cx)
}

#[pyfunction]
pub(super) fn transform<'py>(
    py: Python<'py>,
    source: &Source,
    centers: &Bound<'py, PyAny>,
    metric: &str,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let Prepared { rows, centers, cost } = prepared(source, centers, metric)?;
    let input = Input::new(&rows, None)?;
    let k = centers.len() / source.0.cols();
    either!(&centers, values => {
        let distances = enter(py, threads, cost, |cx| as_wide(values, input.of(), cx))?;
        array2(py, distances, k)
    })
}

#[pyfunction]
#[pyo3(signature = (source, centers, labels, metric, threads, first_row = 0))]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
pub(super) fn sq_dists_to<'py>(
    py: Python<'py>,
    source: &Source,
    centers: &Bound<'py, PyAny>,
    labels: PyReadonlyArray1<'_, i32>,
    metric: &str,
    threads: Option<usize>,
    first_row: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let Prepared { rows, centers, .. } = prepared(source, centers, metric)?;
    let (input, labels) = (Input::new(&rows, None)?, unsigned(&labels));
    let cost = source.0.whole_effort() * source.0.cols() as f64;
    let sq_dists = either!(&centers, values => enter(py, threads, cost, |cx| {
        centers::sq_dists_to(values, &labels, input.of(), cx).map_err(from_row(first_row))
    }))?;
    Ok(array1(py, sq_dists))
}

/// Weights and sums of the rows, per cluster of given labels.
#[pyfunction]
#[pyo3(signature = (source, labels, n_clusters, weights, metric, threads, first_row = 0))]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
pub(super) fn sums_of<'py>(
    source: &Bound<'py, Source>,
    labels: PyReadonlyArray1<'_, i32>,
    n_clusters: usize,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    metric: &str,
    threads: Option<usize>,
    first_row: u64,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let (py, source) = (source.py(), source.get());
    let rows = source.0.seen_by(metric.parse()?);
    let (input, labels) = (Input::new(&rows, weights.as_ref())?, unsigned(&labels));
    let cost = source.0.whole_effort() * source.0.cols() as f64;
    let sums = enter(py, threads, cost, |cx| {
        either!(input.any(), data => centers::sums_of(&labels, n_clusters, data, cx))
            .map_err(from_row(first_row))
    })?;
    let of_clusters = array2(py, sums.sums().to_vec(), source.0.cols())?;
    Ok((array1(py, sums.weights().to_vec()), of_clusters))
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
pub(super) fn inertia(
    py: Python<'_>,
    source: &Source,
    centers: &Bound<'_, PyAny>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    labels: Option<PyReadonlyArray1<'_, i32>>,
    metric: &str,
    threads: Option<usize>,
) -> PyResult<f64> {
    let Prepared { rows, centers, cost } = prepared(source, centers, metric)?;
    let input = Input::new(&rows, weights.as_ref())?;
    let labels = labels.as_ref().map(unsigned);
    either!(&centers, values => enter(py, threads, cost, |cx| {
        centers::inertia(values, labels.as_deref().map(Into::into), Metric::Euclidean, input.of(), cx)
    }))
}
