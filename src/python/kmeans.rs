//! This module knows how Python's parameters become a fit of a k-means method.

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::array::Centers;
use super::kernel::metric_of;
use super::rows::Input;
use super::run::Run;
use super::source::Source;
use crate::kmeans::{Algorithm, Bounds, KMeans, NestedMiniBatch};
use crate::seeding::Seeding;

/// The seeding of that name; `"given"` takes the centers, for rows of `cols` columns.
pub(super) fn seeding_of(name: &str, centers: Option<&Bound<'_, PyAny>>, cols: usize) -> PyResult<Seeding> {
    Ok(match (name, centers) {
        ("auto", None) => Seeding::Auto,
        ("random", None) => Seeding::Random,
        ("k-means++", None) => Seeding::PlusPlus { greedy: true },
        ("plain-k-means++", None) => Seeding::PlusPlus { greedy: false },
        ("given", Some(centers)) => Seeding::Given(Centers::new(centers, cols)?.into_f64()),
        _ => return Err(PyValueError::new_err(format!("no such seeding: {name:?}"))),
    })
}

/// Exact k-means.
#[pyfunction]
#[pyo3(signature = (source, *, n_clusters, seeding, centers, n_init, max_iter, tol, metric, algorithm, bounds_memory, seed, threads, weights))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python passes them")]
pub(super) fn kmeans(
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
) -> PyResult<Run> {
    let algorithm = Algorithm::named(algorithm)
        .ok_or_else(|| PyValueError::new_err(format!("no such algorithm: {algorithm:?}")))?;
    let params = KMeans::params(n_clusters)
        .seeding(seeding_of(seeding, centers, source.0.layout().cols)?)
        .rng_seed(seed)
        .n_init(n_init)
        .max_iter(max_iter)
        .tolerance(tol)
        .metric(metric_of(metric)?)
        .algorithm(algorithm)
        .bounds_memory(bounds_memory)
        .threads(threads);
    let input = Input::new(&source.0, weights.as_ref())?;
    Ok(Run::new(params.start(&input)?, input, n_clusters, threads))
}

/// Nested mini-batch k-means.
#[pyfunction]
#[pyo3(signature = (source, *, n_clusters, seeding, centers, batch_size, rho, bounds, bounds_memory, buffer_memory, max_iter, tol, shuffle, seed, threads, weights))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python passes them")]
pub(super) fn nested(
    source: &Source,
    n_clusters: usize,
    seeding: &str,
    centers: Option<&Bound<'_, PyAny>>,
    batch_size: u64,
    rho: f64,
    bounds: &str,
    bounds_memory: u64,
    buffer_memory: u64,
    max_iter: Option<u64>,
    tol: f64,
    shuffle: bool,
    seed: u64,
    threads: Option<usize>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
) -> PyResult<Run> {
    let bounds =
        Bounds::named(bounds).ok_or_else(|| PyValueError::new_err(format!("no such bounds: {bounds:?}")))?;
    let params = NestedMiniBatch::params(n_clusters)
        .seeding(seeding_of(seeding, centers, source.0.layout().cols)?)
        .rng_seed(seed)
        .batch_size(batch_size)
        .rho(rho)
        .bounds(bounds)
        .bounds_memory(bounds_memory)
        .buffer_memory(buffer_memory)
        .max_iter(max_iter)
        .tolerance(tol)
        .shuffle(shuffle)
        .threads(threads);
    let input = Input::new(&source.0, weights.as_ref())?;
    Ok(Run::new(params.start(&input)?, input, n_clusters, threads))
}
