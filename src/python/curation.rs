//! Samples of rows for Python.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use super::array::{array1, unsigned, vector};
use super::enter::enter;
use crate::curation::{self, Pick};

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
