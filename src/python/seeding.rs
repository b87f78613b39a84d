//! This module knows the choice of first centers as Python calls it.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use super::array::{array1, array2};
use super::enter::enter;
use super::rows::Input;
use super::source::Source;
use crate::data::{AnySource, Source as _};
use crate::seeding::Seeding;

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
pub(super) fn kmeans_plusplus<'py>(
    py: Python<'py>,
    source: &Source,
    n_clusters: usize,
    greedy: bool,
    seed: u64,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    threads: Option<usize>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let input = Input::new(&source.0, weights.as_ref())?;
    let cols = source.0.cols();
    let cost = source.0.whole_effort() * cols as f64 * n_clusters as f64 * 4.0;
    let how = Seeding::PlusPlus { greedy };
    let (centers, rows) = match input.any() {
        AnySource::F32(data) => {
            let seeds = enter(py, threads, cost, |cx| how.choose(data, n_clusters, seed, 0, cx))?;
            (array2(py, seeds.centers, cols)?, seeds.rows)
        }
        AnySource::F64(data) => {
            let seeds = enter(py, threads, cost, |cx| how.choose(data, n_clusters, seed, 0, cx))?;
            (array2(py, seeds.centers, cols)?, seeds.rows)
        }
    };
    Ok((centers, array1(py, rows.into_iter().map(u64::cast_signed).collect())))
}
