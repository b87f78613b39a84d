//! Starts the runs of all methods, with parameters that Python passes by name.

use std::collections::BTreeMap;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use super::array::Centers;
use super::enter::enter;
use super::error::{in_python, in_rust};
use super::mixture::MixtureRun;
use super::persist::of_python;
use super::rows::Input;
use super::run::{Run, Shown};
use super::source::Source;
use crate::error::{Error, Result};
use crate::fit::{self, FitSolver, Params, StreamMethod, Value};
use crate::gmm::TruncatedGaussianMixture;
use crate::hierarchical::HierarchicalKMeans;
use crate::kmeans::{
    BackwardEuler, Balanced, Breathing, KMeans, MiniBatch, NestedMiniBatch, VarianceReduced,
};
use crate::kmodes::{KModesParams, LaplacianKModes};
use crate::names::unknown_name;

/// The kind, arrays and texts of a state, as `Run.state` returns them.
pub(super) type State<'py> = (String, BTreeMap<String, Bound<'py, PyAny>>, BTreeMap<String, String>);

/// The methods, by the names that Python uses.
const METHODS: [&str; 10] = [
    "kmeans",
    "minibatch",
    "nested",
    "hierarchical",
    "backward-euler",
    "variance-reduced",
    "breathing",
    "balanced",
    "mixture",
    "kmodes",
];

/// Parameters as Python gave them, under their Rust names.
pub(super) struct Given(BTreeMap<String, Value>);

impl Given {
    /// Converts the parameters of a run over rows of `cols` columns. If `cols` is unknown, given centers define it.
    fn new(params: &Bound<'_, PyDict>, cols: Option<usize>) -> PyResult<Self> {
        let of = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok((in_rust(&name.extract::<String>()?).to_owned(), value_of(&value, cols)?))
        };
        params.iter().map(of).collect::<PyResult<_>>().map(Self)
    }

    /// Takes a parameter out that the method does not have.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// Sets all parameters.
    fn apply<P: Params>(&mut self, params: &mut P) -> PyResult<()> {
        for (name, value) in &mut self.0 {
            if !P::NAMES.contains(&name.as_str()) {
                let names: Vec<&str> = P::NAMES.iter().map(|&name| in_python(name)).collect();
                return Err(Error::from(unknown_name("parameter", in_python(name), &names)).into());
            }
            // Centers may be large: they are moved, not copied.
            let given = match value {
                Value::Floats(_) => std::mem::replace(value, Value::None),
                other => other.clone(),
            };
            params.set(name, given)?;
        }
        Ok(())
    }

    /// The value of a parameter that is a count; infinite for none.
    pub(super) fn count(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(Value::Int(value)) => *value as f64,
            _ => f64::INFINITY,
        }
    }

    /// The value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The number of clusters.
    pub(super) fn n_clusters(&self) -> usize {
        let name = if self.0.contains_key("n_components") { "n_components" } else { "n_clusters" };
        self.count(name) as usize
    }

    /// The number of threads, if one was given.
    pub(super) fn threads(&self) -> Option<usize> {
        match self.0.get("threads") {
            Some(Value::Int(value)) => usize::try_from(*value).ok(),
            _ => None,
        }
    }
}

/// A plain Python value, or an array of centers.
fn value_of(value: &Bound<'_, PyAny>, cols: Option<usize>) -> PyResult<Value> {
    Ok(if value.is_none() {
        Value::None
    } else if let Ok(value) = value.cast::<PyBool>() {
        Value::Bool(value.is_true())
    } else if value.is_instance_of::<PyInt>() {
        match value.extract::<u64>() {
            Ok(value) => value.into(),
            Err(_) => value.extract::<i64>()?.into(),
        }
    } else if value.is_instance_of::<PyFloat>() {
        value.extract::<f64>()?.into()
    } else if value.is_instance_of::<PyString>() {
        value.extract::<String>()?.into()
    } else {
        let cols = cols.map_or_else(|| value.getattr("shape")?.get_item(1)?.extract(), Ok)?;
        Value::Floats(Centers::new(value, cols)?.into_f64())
    })
}

/// What a run is started from.
struct Call<'a, 'py> {
    source: Option<&'a Source>,
    given: Given,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    state: Option<State<'py>>,
    stream: bool,
}

impl Call<'_, '_> {
    fn source(&self) -> PyResult<&Source> {
        self.source.ok_or_else(|| PyValueError::new_err("rows or a state are needed to start from"))
    }

    /// The parameters of the method, as far as they were given.
    fn params<M: Shown>(&mut self) -> PyResult<M::Params> {
        let mut params = M::params(self.given.n_clusters(), &mut self.given)?;
        self.given.apply(&mut params)?;
        Ok(params)
    }

    /// A run over rows, from its beginning or from a state.
    fn fit<M: Shown + 'static>(mut self, py: Python<'_>) -> PyResult<Run>
    where
        fit::Run<M>: Send,
    {
        let params = self.params::<M>()?;
        self.fit_with::<M>(py, &params)
    }

    fn fit_with<M: Shown + 'static>(mut self, py: Python<'_>, params: &M::Params) -> PyResult<Run>
    where
        fit::Run<M>: Send,
    {
        let source = self.source()?;
        let metric = M::solver::<f32>(params).facts().metric;
        let input = Input::new(source.0.before(metric), self.weights.as_ref())?;
        let steps = M::rows_of_steps(params, &self.given, &source.0);
        let state =
            self.state.take().map(|(kind, arrays, meta)| of_python(&kind, arrays, meta)).transpose()?;
        let run = started(py, &input, || match &state {
            Some(state) => fit::Run::<M>::resumed(params, state, &input),
            None => fit::Run::<M>::start(params, &input),
        })?;
        let (first, later) = steps;
        Ok(Run::new(run, input, self.given.n_clusters(), self.given.threads()).with_steps(first, later))
    }

    /// A run over rows, or one that takes batches.
    fn fit_or_stream<M: Shown + StreamMethod + 'static>(mut self, py: Python<'_>) -> PyResult<Run>
    where
        fit::Run<M>: Send,
    {
        let params = self.params::<M>()?;
        let (k, threads) = (self.given.n_clusters(), self.given.threads());
        if self.source.is_none()
            && let Some((kind, arrays, meta)) = self.state.take()
        {
            let state = of_python(&kind, arrays, meta)?;
            return Ok(Run::of_batches(fit::Run::<M>::resume(&params, &state)?, k, threads));
        }
        if self.stream {
            let input = Input::new(&self.source()?.0, self.weights.as_ref())?;
            let run = started(py, &input, || fit::Run::<M>::stream(&params, &input))?;
            return Ok(Run::of_batches(run, k, threads));
        }
        self.fit_with::<M>(py, &params)
    }
}

/// Calls `start`, which may count the rows of a stream in a pass.
fn started<R: Send>(py: Python<'_>, input: &Input, start: impl FnOnce() -> Result<R> + Send) -> PyResult<R> {
    enter(py, Some(1), input.rows().effort(0.0), |_| start())
}

fn unknown_method(name: &str) -> PyErr {
    let listed = METHODS.map(|name| format!("{name:?}")).join(", ");
    PyValueError::new_err(format!("method must be one of {listed}, got '{name}'"))
}

/// Starts or resumes a run of the method with this name; `state` is a checkpoint or the state of a stream.
/// With `stream`, or with a `state` without rows, the run takes batches; otherwise it runs over the rows of
/// `source`.
#[pyfunction]
#[pyo3(signature = (method, source, params, *, weights = None, state = None, stream = false))]
pub(super) fn start(
    py: Python<'_>,
    method: &str,
    source: Option<&Source>,
    params: &Bound<'_, PyDict>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    state: Option<State<'_>>,
    stream: bool,
) -> PyResult<Py<PyAny>> {
    if !METHODS.contains(&method) {
        return Err(unknown_method(method));
    }
    let given = Given::new(params, source.map(|source| source.0.cols()))?;
    let call = Call { source, given, weights, state, stream };
    let run = match method {
        "kmeans" => call.fit::<KMeans>(py)?,
        "minibatch" => call.fit_or_stream::<MiniBatch>(py)?,
        "nested" => call.fit_or_stream::<NestedMiniBatch>(py)?,
        "hierarchical" => call.fit::<HierarchicalKMeans>(py)?,
        "backward-euler" => call.fit_or_stream::<BackwardEuler>(py)?,
        "variance-reduced" => call.fit::<VarianceReduced>(py)?,
        "breathing" => call.fit::<Breathing>(py)?,
        "balanced" => call.fit::<Balanced>(py)?,
        "mixture" => {
            let run = PyClassInitializer::from(call.fit::<TruncatedGaussianMixture>(py)?);
            return Ok(Py::new(py, run.add_subclass(MixtureRun))?.into_any());
        }
        _ => return Err(PyValueError::new_err("use start_modes for Laplacian K-modes")),
    };
    Ok(Py::new(py, run)?.into_any())
}

/// The parameters and the input of a run of Laplacian K-modes.
pub(super) fn modes_of(source: &Source, params: &Bound<'_, PyDict>) -> PyResult<(KModesParams, Given)> {
    let mut given = Given::new(params, Some(source.0.cols()))?;
    let mut params = LaplacianKModes::params(given.n_clusters());
    given.apply(&mut params)?;
    Ok((params, given))
}

/// The parameters of a method with their defaults, under the names that Python has. The number of clusters is 1.
#[pyfunction]
pub(super) fn parameters<'py>(py: Python<'py>, method: &str) -> PyResult<Bound<'py, PyDict>> {
    fn of<M: Shown>(all: &Bound<'_, PyDict>) -> PyResult<()> {
        let params = M::params(1, &mut Given(BTreeMap::new()))?;
        for &rust in M::Params::NAMES {
            let name = in_python(rust);
            match params.get(rust)? {
                Value::None => all.set_item(name, all.py().None())?,
                Value::Bool(value) => all.set_item(name, value)?,
                Value::Int(value) => all.set_item(name, value)?,
                Value::Float(value) => all.set_item(name, value)?,
                Value::Text(value) => all.set_item(name, value)?,
                Value::Floats(values) => all.set_item(name, values)?,
            }
        }
        Ok(())
    }
    let all = PyDict::new(py);
    match method {
        "kmeans" => of::<KMeans>(&all),
        "minibatch" => of::<MiniBatch>(&all),
        "nested" => of::<NestedMiniBatch>(&all),
        "hierarchical" => of::<HierarchicalKMeans>(&all),
        "backward-euler" => of::<BackwardEuler>(&all),
        "variance-reduced" => of::<VarianceReduced>(&all),
        "breathing" => of::<Breathing>(&all),
        "balanced" => of::<Balanced>(&all),
        "mixture" => of::<TruncatedGaussianMixture>(&all),
        "kmodes" => of::<LaplacianKModes>(&all),
        _ => Err(unknown_method(method)),
    }?;
    Ok(all)
}
