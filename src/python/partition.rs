//! Updates of partitions for Python. The cells lie in arrays of the estimator.

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array::{Centers, array1, array2, vector};
use super::enter::enter;
use super::source::Source;
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::float::{Float, either};
use crate::kernel::Compute;
use crate::partition::{Cells, Fetched, PartitionChange, Rules};

/// Centers, ids, sizes, shifts, the next id, the target, the inertia now and per row at the fit.
type State<'py> = (
    Bound<'py, PyAny>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray2<'py, f64>,
    u64,
    u64,
    f64,
    f64,
);

/// The same after an update, except for the target.
type NewState<'py> =
    (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, u64, u64, f64, f64);

fn unsigned(values: &PyReadonlyArray1<'_, i64>) -> Vec<u64> {
    vector(values).into_iter().map(i64::cast_unsigned).collect()
}

fn signed(values: &[u64]) -> Vec<i64> {
    values.iter().map(|value| value.cast_signed()).collect()
}

/// Calls `fetch` of the user, and names the rows by their numbers among all that it returned.
fn fetched<T: Float>(fetch: &Py<PyAny>, ids: &[u64], first: u64, dim: usize) -> Result<Fetched<T>> {
    Python::attach(|py| {
        let (cells, rows): (PyReadonlyArray1<'_, i64>, Bound<'_, PyAny>) =
            fetch.bind(py).call1((array1(py, signed(ids)),))?.extract()?;
        let (cells, rows) = (unsigned(&cells), Centers::new(&rows, dim)?.get());
        Ok(Fetched { keys: (first..first + cells.len() as u64).collect(), cells, rows })
    })
    .map_err(|error: PyErr| Error::foreign(error))
}

/// Takes in the rows of `source`. Returns the state and the change.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
pub(super) fn update_partition<'py>(
    py: Python<'py>,
    source: &Source,
    state: State<'py>,
    metric: &str,
    fetch: Option<Py<PyAny>>,
    threads: Option<usize>,
) -> PyResult<(NewState<'py>, Bound<'py, PyDict>)> {
    let (cols, metric) = (source.0.cols(), metric.parse()?);
    let centers = Centers::new(&state.0, cols)?;
    // The call waits for user code.
    let cost = if fetch.is_some() { f64::INFINITY } else { source.0.whole_effort() * centers.len() as f64 };
    either!(centers, centers => {
        let mut cells = cells_of(centers, &state, cols, metric)?;
        let rows = source.0.clone();
        let change = enter(py, threads, cost, |cx| {
            let mut first = 0;
            let mut given = |ids: &[u64]| {
                let fetch = fetch.as_ref().expect("only called with a function");
                let rows = fetched(fetch, ids, first, cols)?;
                first += rows.keys.len() as u64;
                Ok(rows)
            };
            let rules = Rules::default();
            let asked = fetch.is_some();
            cells.update(&rules, &rows, if asked { Some(&mut given) } else { None }, cx)
        })?;
        Ok((state_of(py, cells)?, as_dict(py, &change)?))
    })
}

fn cells_of<T: Compute>(
    centers: Vec<T>,
    state: &State<'_>,
    dim: usize,
    metric: Metric,
) -> PyResult<Cells<T>> {
    let (_, ids, sizes, shifts, next_id, target, inertia, inertia_at_fit) = state;
    let cells = Cells {
        dim,
        metric,
        target: *target,
        ids: unsigned(ids),
        next_id: *next_id,
        centers,
        sizes: unsigned(sizes),
        shifts: shifts.as_array().iter().copied().collect(),
        inertia: *inertia,
        inertia_at_fit: *inertia_at_fit,
    };
    Ok(cells.checked().map_err(|problem| Error::Source(format!("the partition {problem}")))?)
}

fn state_of<T: Compute + numpy::Element>(py: Python<'_>, cells: Cells<T>) -> PyResult<NewState<'_>> {
    let dim = cells.dim;
    Ok((
        array2(py, cells.centers, dim)?,
        array1(py, signed(&cells.ids)),
        array1(py, signed(&cells.sizes)),
        array2(py, cells.shifts, dim)?,
        cells.next_id,
        cells.target,
        cells.inertia,
        cells.inertia_at_fit,
    ))
}

fn as_dict<'py>(py: Python<'py>, change: &PartitionChange) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    let lists = [
        ("labels", &change.labels),
        ("new_ids", &change.new_ids),
        ("split_ids", &change.split_ids),
        ("joined_ids", &change.joined_ids),
        ("recentered_ids", &change.recentered_ids),
        ("oversized_ids", &change.oversized_ids),
    ];
    for (name, ids) in lists {
        found.set_item(name, array1(py, signed(ids)))?;
    }
    let moved = &change.moved;
    found.set_item("moved_rows", array1(py, moved.iter().map(|moved| moved.key.cast_signed()).collect()))?;
    found.set_item("moved_from", array1(py, moved.iter().map(|moved| moved.from.cast_signed()).collect()))?;
    found.set_item("moved_to", array1(py, moved.iter().map(|moved| moved.to.cast_signed()).collect()))?;
    found.set_item("n_fetched", change.n_fetched)?;
    Ok(found)
}
