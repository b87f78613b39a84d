//! The k-means methods as Python calls them: parameters, and what their runs show.

use std::collections::BTreeMap;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array::{Centers, array1};
use super::enter::enter;
use super::persist::of_python;
use super::rows::Input;
use super::run::{AnySnapshot, AnyStream, Run, Shown};
use super::seeding::named;
use super::source::Source;
use crate::error::Result;
use crate::fit;
use crate::kmeans::{
    Algorithm, BackwardEuler, Bounds, EpochSize, KMeans, MiniBatch, NestedMiniBatch, VarianceReduced, Variant,
};
use crate::persist::Contents;
use crate::seeding::Seeding;
use crate::tuning::batch_seeding_sample;

/// Kind, arrays and texts of a state, as `Run.state` gives them.
pub(super) type State<'py> = (String, BTreeMap<String, Bound<'py, PyAny>>, BTreeMap<String, String>);

/// The seeding of that name; `"given"` takes the centers, for rows of `cols` columns.
pub(super) fn seeding_of(name: &str, centers: Option<&Bound<'_, PyAny>>, cols: usize) -> PyResult<Seeding> {
    match (name, centers) {
        ("given", Some(centers)) => Ok(Seeding::Given(Centers::new(centers, cols)?.into_f64())),
        (name, None) => named(name, None, None, None),
        _ => Err(PyValueError::new_err(format!("no such seeding: {name:?}"))),
    }
}

/// Columns of the rows, or of the centers where there are no rows.
fn columns(source: Option<&Source>, centers: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
    match (source, centers) {
        (Some(source), _) => Ok(source.0.cols()),
        (None, Some(centers)) => centers.getattr("shape")?.get_item(1)?.extract(),
        (None, None) => Ok(0),
    }
}

/// What `start` makes, which may take a pass over a stream.
pub(super) fn begun<R: Send>(
    py: Python<'_>,
    input: &Input,
    start: impl FnOnce() -> Result<R> + Send,
) -> PyResult<R> {
    enter(py, Some(1), input.rows().effort(0.0), |_| start())
}

/// Exact k-means; from a `state`, a run that goes on.
#[pyfunction]
#[pyo3(signature = (source, *, n_clusters, seeding, centers, n_init, max_iter, tol, metric, algorithm, bounds_memory, seed, threads, weights, state))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python passes them")]
pub(super) fn kmeans(
    py: Python<'_>,
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
    state: Option<State<'_>>,
) -> PyResult<Run> {
    let algorithm: Algorithm = algorithm.parse()?;
    let params = KMeans::params(n_clusters)
        .seeding(seeding_of(seeding, centers, source.0.cols())?)
        .rng_seed(seed)
        .n_init(n_init)
        .max_iter(max_iter)
        .tolerance(tol)
        .metric(metric.parse()?)
        .algorithm(algorithm)
        .bounds_memory(bounds_memory)
        .threads(threads);
    let input = Input::new(&source.0, weights.as_ref())?;
    let state = state.map(|(kind, arrays, meta)| of_python(&kind, arrays, meta)).transpose()?;
    let run = begun(py, &input, || match &state {
        Some(state) => params.resume_fit(state, &input),
        None => params.start(&input),
    })?;
    Ok(Run::new(run, input, n_clusters, threads))
}

/// Mini-batch k-means: a fit to the rows of `source`, from its beginning or from a `state`; with `stream`, or from a `state` without
/// rows, a run that takes batches.
#[pyfunction]
#[pyo3(signature = (source, *, n_clusters, seeding, centers, batch_size, max_iter, tol, max_no_improvement, reassignment_ratio, half_life, n_init, init_size, seed, threads, weights, stream, state))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python passes them")]
pub(super) fn minibatch(
    py: Python<'_>,
    source: Option<&Source>,
    n_clusters: usize,
    seeding: &str,
    centers: Option<&Bound<'_, PyAny>>,
    batch_size: u64,
    max_iter: u64,
    tol: f64,
    max_no_improvement: Option<u64>,
    reassignment_ratio: f64,
    half_life: Option<f64>,
    n_init: usize,
    init_size: Option<u64>,
    seed: u64,
    threads: Option<usize>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    stream: bool,
    state: Option<State<'_>>,
) -> PyResult<Run> {
    let params = MiniBatch::params(n_clusters)
        .seeding(seeding_of(seeding, centers, columns(source, centers)?)?)
        .rng_seed(seed)
        .batch_size(batch_size)
        .max_iter(max_iter)
        .tolerance(tol)
        .max_no_improvement(max_no_improvement)
        .reassignment_ratio(reassignment_ratio)
        .half_life(half_life)
        .n_init(n_init)
        .init_size(init_size)
        .threads(threads);
    let state = state.map(|(kind, arrays, meta)| of_python(&kind, arrays, meta)).transpose()?;
    let source = match (source, &state) {
        (Some(source), _) => source,
        (None, Some(state)) => return Ok(Run::of_batches(params.resume(state)?, n_clusters, threads)),
        (None, None) => return Err(PyValueError::new_err("rows or a state are needed to begin with")),
    };
    let input = Input::new(&source.0, weights.as_ref())?;
    if stream {
        let run = begun(py, &input, || params.stream(&input))?;
        return Ok(Run::of_batches(run, n_clusters, threads));
    }
    let run = begun(py, &input, || match &state {
        Some(state) => params.resume_fit(state, &input),
        None => params.start(&input),
    })?;
    let rows = source.0.len().map_or(u64::MAX, |rows| rows as u64);
    let batch = batch_size.min(rows);
    let sample = init_size.unwrap_or_else(|| batch_seeding_sample(batch, n_clusters, 4 * source.0.cols()));
    let first = sample.min(rows) as f64 * n_init as f64;
    Ok(Run::new(run, input, n_clusters, threads).with_steps(4.0 * first, batch as f64))
}

/// Nested mini-batch k-means: a fit to the rows of `source`, from its beginning or from a `state`; with `stream`, or from a `state` without
/// rows, a run that takes batches.
#[pyfunction]
#[pyo3(signature = (source, *, n_clusters, seeding, centers, batch_size, rho, bounds, bounds_memory, buffer_memory, max_iter, tol, shuffle, seed, threads, weights, stream, state))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python passes them")]
pub(super) fn nested(
    py: Python<'_>,
    source: Option<&Source>,
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
    stream: bool,
    state: Option<State<'_>>,
) -> PyResult<Run> {
    let bounds: Bounds = bounds.parse()?;
    let params = NestedMiniBatch::params(n_clusters)
        .seeding(seeding_of(seeding, centers, columns(source, centers)?)?)
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
    let state = state.map(|(kind, arrays, meta)| of_python(&kind, arrays, meta)).transpose()?;
    let source = match (source, &state) {
        (Some(source), _) => source,
        (None, Some(state)) => return Ok(Run::of_batches(params.resume(state)?, n_clusters, threads)),
        (None, None) => return Err(PyValueError::new_err("rows or a state are needed to begin with")),
    };
    let input = Input::new(&source.0, weights.as_ref())?;
    if stream {
        let run = begun(py, &input, || params.stream(&input))?;
        return Ok(Run::of_batches(run, n_clusters, threads));
    }
    let run = begun(py, &input, || match &state {
        Some(state) => params.resume_fit(state, &input),
        None => params.start(&input),
    })?;
    let rows = source.0.whole_effort();
    let batch = source.0.len().map_or(0, |rows| params.first_batch(rows as u64));
    Ok(Run::new(run, input, n_clusters, threads).with_steps(4.0 * batch as f64, rows))
}

/// Stochastic backward Euler: a fit to the rows of `source`, from its beginning or from a `state`; with `stream`, or from a `state` without
/// rows, a run that takes batches.
#[pyfunction]
#[pyo3(signature = (source, *, n_clusters, seeding, centers, batch_size, step_size, step_decay, averaging, n_inner, max_iter, step_cap, polish, seed, threads, weights, stream, state))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python passes them")]
pub(super) fn backward_euler(
    py: Python<'_>,
    source: Option<&Source>,
    n_clusters: usize,
    seeding: &str,
    centers: Option<&Bound<'_, PyAny>>,
    batch_size: u64,
    step_size: Option<f64>,
    step_decay: Option<f64>,
    averaging: f64,
    n_inner: u64,
    max_iter: u64,
    step_cap: Option<f64>,
    polish: Option<bool>,
    seed: u64,
    threads: Option<usize>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    stream: bool,
    state: Option<State<'_>>,
) -> PyResult<Run> {
    let params = BackwardEuler::params(n_clusters)
        .seeding(seeding_of(seeding, centers, columns(source, centers)?)?)
        .rng_seed(seed)
        .batch_size(batch_size)
        .step_size(step_size)
        .step_decay(step_decay)
        .averaging(averaging)
        .n_inner(n_inner)
        .max_iter(max_iter)
        .step_cap(step_cap)
        .polish(polish)
        .threads(threads);
    let state = state.map(|(kind, arrays, meta)| of_python(&kind, arrays, meta)).transpose()?;
    let source = match (source, &state) {
        (Some(source), _) => source,
        (None, Some(state)) => return Ok(Run::of_batches(params.resume(state)?, n_clusters, threads)),
        (None, None) => return Err(PyValueError::new_err("rows or a state are needed to begin with")),
    };
    let input = Input::new(&source.0, weights.as_ref())?;
    if stream {
        let run = begun(py, &input, || params.stream(&input))?;
        return Ok(Run::of_batches(run, n_clusters, threads));
    }
    let run = begun(py, &input, || match &state {
        Some(state) => params.resume_fit(state, &input),
        None => params.start(&input),
    })?;
    let rows = source.0.len().map_or(u64::MAX, |rows| rows as u64);
    let batch = batch_size.min(rows);
    let first = batch_seeding_sample(batch, n_clusters, 4 * source.0.cols()).min(rows) as f64;
    let step = n_inner as f64 * batch as f64;
    // A sweep of the polish is a step too.
    let later = if polish == Some(false) { step } else { step.max(source.0.whole_effort()) };
    Ok(Run::new(run, input, n_clusters, threads).with_steps(4.0 * first + step, later))
}

/// Variance-reduced k-means; from a `state`, a run that goes on. An epoch has `epoch_share` times as many steps as there are rows, or
/// `epoch_steps`; with neither, twice as many as the one before.
#[pyfunction]
#[pyo3(signature = (source, *, n_clusters, seeding, centers, variant, learning_rate, epoch_share, epoch_steps, max_iter, tol, polish, search_always, seed, threads, weights, state))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python passes them")]
pub(super) fn variance_reduced(
    py: Python<'_>,
    source: &Source,
    n_clusters: usize,
    seeding: &str,
    centers: Option<&Bound<'_, PyAny>>,
    variant: &str,
    learning_rate: Option<f64>,
    epoch_share: Option<f64>,
    epoch_steps: Option<u64>,
    max_iter: u64,
    tol: f64,
    polish: bool,
    search_always: bool,
    seed: u64,
    threads: Option<usize>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    state: Option<State<'_>>,
) -> PyResult<Run> {
    let variant: Variant = variant.parse()?;
    let params = VarianceReduced::params(n_clusters)
        .seeding(seeding_of(seeding, centers, source.0.cols())?)
        .rng_seed(seed)
        .variant(variant)
        .learning_rate(learning_rate)
        .epoch_size(match (epoch_share, epoch_steps) {
            (Some(share), _) => EpochSize::Share(share),
            (None, Some(steps)) => EpochSize::Steps(steps),
            (None, None) => EpochSize::Doubling,
        })
        .max_iter(max_iter)
        .tolerance(tol)
        .polish(polish)
        .search_always(search_always)
        .threads(threads);
    let input = Input::new(&source.0, weights.as_ref())?;
    let state = state.map(|(kind, arrays, meta)| of_python(&kind, arrays, meta)).transpose()?;
    let run = begun(py, &input, || match &state {
        Some(state) => params.resume_fit(state, &input),
        None => params.start(&input),
    })?;
    Ok(Run::new(run, input, n_clusters, threads))
}

impl Shown for KMeans {
    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }
}

impl Shown for MiniBatch {
    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn stream(run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        Some(run)
    }

    fn merge(run: &mut fit::Run<Self>, other: &Contents) -> Result<()> {
        run.merge_state(other)
    }
}

impl Shown for NestedMiniBatch {
    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn stream(run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        Some(run)
    }

    fn details<'py>(run: &fit::Run<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        details.set_item("rows_used", run.rows_used())?;
        details.set_item("rows_retired", run.rows_retired())?;
        Ok(details)
    }
}

impl Shown for BackwardEuler {
    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn stream(run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        Some(run)
    }

    fn details<'py>(run: &fit::Run<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        details.set_item("step_sizes", array1(py, run.step_sizes().to_vec()))?;
        details.set_item("starved", run.starved())?;
        Ok(details)
    }
}

impl Shown for VarianceReduced {
    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn details<'py>(run: &fit::Run<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        details.set_item("learning_rate", run.learning_rate().unwrap_or(f64::NAN))?;
        Ok(details)
    }
}
