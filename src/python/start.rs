//! Starts the runs of all methods, with parameters that Python passes by name.

use std::any::Any;
use std::collections::BTreeMap;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use super::array::{Centers, vector};
use super::enter::enter;
use super::error::{in_python, in_rust};
use super::persist::of_python;
use super::rows::{AnyRows, Input};
use super::run::{AnyRun, AnySnapshot, AnyStream, Run};
use super::source::Source;
use crate::error::{Error, Result};
use crate::fit::{self, FitSolver, Method, Params, StopReason, StreamMethod, Value};
use crate::gmm::TruncatedGaussianMixture;
use crate::hierarchical::HierarchicalKMeans;
use crate::kmeans::{
    BackwardEuler, Balanced, Breathing, KMeans, MiniBatch, NestedMiniBatch, VarianceReduced,
};
use crate::kmodes::{KModesParams, LaplacianKModes};
use crate::names::unknown_name;
use crate::parallel::Executor;
use crate::persist::Contents;

/// The kind, arrays and texts of a state, as `Run.state` returns them.
pub(super) type StoredState<'py> = (String, BTreeMap<String, Bound<'py, PyAny>>, BTreeMap<String, String>);

/// A method that Python can start, and what only this method shows.
pub(super) trait PythonMethod: Method {
    /// Parameters with `k` clusters. Takes out of `given` what is not a parameter of the method.
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::Params::new(k))
    }

    /// About how many rows the first step works on, seeding included, and a later one.
    fn rows_of_steps(_params: &Self::Params, _given: &Given, rows: &AnyRows) -> (f64, f64) {
        let all = rows.whole_effort();
        // Seeding may cost more than a sweep.
        (4.0 * all, all)
    }

    /// Starts a run.
    fn start(call: Call<'_, '_>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, call.fit::<Self>(py)?)?.into_any())
    }

    /// Adds what only this method shows, by name.
    fn details(_run: &fit::Run<Self>, _to: &Bound<'_, PyDict>) -> PyResult<()> {
        Ok(())
    }

    /// The run as one that takes batches, if the method does.
    fn stream(_run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        None
    }

    /// Merges another state into the run, if the method can.
    fn merge(_run: &mut fit::Run<Self>, _other: &Contents) -> Result<()> {
        Err(Error::Source("states of this method cannot be merged".into()))
    }
}

impl<M: PythonMethod> AnyRun for fit::Run<M> {
    fn advance(&mut self, rows: &Input, cx: &Executor) -> Result<Option<fit::Step>> {
        self.advance_on(rows, cx)
    }
    fn finish(&mut self, rows: &Input, cx: &Executor) -> Result<f64> {
        self.finish_on(rows, cx)
    }
    fn end(&mut self, reason: StopReason) {
        self.end(reason);
    }
    fn history(&self) -> &[fit::Step] {
        self.history()
    }
    fn know_rows(&mut self, rows: &Input) -> Result<()> {
        self.know_rows(rows)
    }
    fn zero_rows(&self) -> u64 {
        self.zero_rows()
    }
    fn checkpoint(&mut self, rows: &Input) -> Result<Contents> {
        self.checkpoint(rows)
    }
    fn compare_rows(&mut self, checkpoint: &Contents, rows: &Input) -> Result<()> {
        self.compare_rows(checkpoint, rows)
    }
    fn snapshot(&self) -> AnySnapshot<'_> {
        self.snapshot()
    }
    fn details(&self, to: &Bound<'_, PyDict>) -> PyResult<()> {
        M::details(self, to)
    }
    fn stream(&mut self) -> Option<&mut dyn AnyStream> {
        M::stream(self)
    }
    fn merge(&mut self, other: &Contents) -> Result<()> {
        M::merge(self, other)
    }
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// A method by its name: how a run of it starts, and its parameters with their defaults.
struct Registered {
    name: &'static str,
    start: for<'a, 'py> fn(Call<'a, 'py>, Python<'py>) -> PyResult<Py<PyAny>>,
    defaults: fn(&Bound<'_, PyDict>) -> PyResult<()>,
}

impl Registered {
    const fn of<M: PythonMethod>() -> Self {
        Self { name: M::NAME, start: M::start, defaults: defaults::<M> }
    }
}

/// All methods.
static METHODS: [Registered; 10] = [
    Registered::of::<KMeans>(),
    Registered::of::<MiniBatch>(),
    Registered::of::<NestedMiniBatch>(),
    Registered::of::<HierarchicalKMeans>(),
    Registered::of::<BackwardEuler>(),
    Registered::of::<VarianceReduced>(),
    Registered::of::<Breathing>(),
    Registered::of::<Balanced>(),
    Registered::of::<TruncatedGaussianMixture>(),
    Registered::of::<LaplacianKModes>(),
];

/// The method with this name.
fn method_of(name: &str) -> PyResult<&'static Registered> {
    METHODS.iter().find(|method| method.name == name).ok_or_else(|| {
        let listed = METHODS.each_ref().map(|method| format!("{:?}", method.name)).join(", ");
        PyValueError::new_err(format!("method must be one of {listed}, got '{name}'"))
    })
}

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

/// A plain Python value, a list of numbers, or an array of centers.
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
    } else if let Ok(values) = value.extract::<PyReadonlyArray1<'_, f64>>() {
        Value::Floats(vector(&values))
    } else {
        let cols = cols.map_or_else(|| value.getattr("shape")?.get_item(1)?.extract(), Ok)?;
        Value::Floats(Centers::new(value, cols)?.into_f64())
    })
}

/// What a run is started from.
pub(super) struct Call<'a, 'py> {
    source: Option<&'a Source>,
    given: Given,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    state: Option<StoredState<'py>>,
    stream: bool,
}

impl Call<'_, '_> {
    fn source(&self) -> PyResult<&Source> {
        self.source.ok_or_else(|| PyValueError::new_err("rows or a state are needed to start from"))
    }

    /// The parameters of the method, as far as they were given.
    fn params<M: PythonMethod>(&mut self) -> PyResult<M::Params> {
        let mut params = M::params(self.given.n_clusters(), &mut self.given)?;
        self.given.apply(&mut params)?;
        Ok(params)
    }

    /// A run over rows, from its beginning or from a state.
    pub(super) fn fit<M: PythonMethod>(mut self, py: Python<'_>) -> PyResult<Run> {
        let params = self.params::<M>()?;
        self.fit_with::<M>(py, &params)
    }

    fn fit_with<M: PythonMethod>(mut self, py: Python<'_>, params: &M::Params) -> PyResult<Run> {
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
        Ok(Run::new(run, input, steps, self.given.n_clusters(), self.given.threads()))
    }

    /// A run over rows, or one that takes batches.
    pub(super) fn fit_or_stream<M: PythonMethod + StreamMethod>(
        mut self,
        py: Python<'_>,
    ) -> PyResult<Py<PyAny>> {
        let params = self.params::<M>()?;
        let (k, threads) = (self.given.n_clusters(), self.given.threads());
        let run = if self.source.is_none()
            && let Some((kind, arrays, meta)) = self.state.take()
        {
            let state = of_python(&kind, arrays, meta)?;
            Run::of_batches(fit::Run::<M>::resume(&params, &state)?, k, threads)
        } else if self.stream {
            let input = Input::new(&self.source()?.0, self.weights.as_ref())?;
            let run = started(py, &input, || fit::Run::<M>::stream(&params, &input))?;
            Run::of_batches(run, k, threads)
        } else {
            self.fit_with::<M>(py, &params)?
        };
        Ok(Py::new(py, run)?.into_any())
    }
}

/// Calls `start`, which may count the rows of a stream in a pass.
fn started<R: Send>(py: Python<'_>, input: &Input, start: impl FnOnce() -> Result<R> + Send) -> PyResult<R> {
    enter(py, Some(1), input.rows().effort(0.0), |_| start())
}

/// Starts or resumes a run of the method with this name; `state` is a checkpoint or the state of a stream.
/// With `stream`, or with a `state` without rows, the run takes batches; otherwise it runs over the rows of
/// `source`.
#[pyfunction]
#[pyo3(signature = (method, source, params, *, weights = None, state = None, stream = false))]
pub(super) fn start<'py>(
    py: Python<'py>,
    method: &str,
    source: Option<&Source>,
    params: &Bound<'py, PyDict>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    state: Option<StoredState<'py>>,
    stream: bool,
) -> PyResult<Py<PyAny>> {
    let method = method_of(method)?;
    let given = Given::new(params, source.map(|source| source.0.cols()))?;
    (method.start)(Call { source, given, weights, state, stream }, py)
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
    let all = PyDict::new(py);
    (method_of(method)?.defaults)(&all)?;
    Ok(all)
}

/// Adds the parameters of a method to `all`.
fn defaults<M: PythonMethod>(all: &Bound<'_, PyDict>) -> PyResult<()> {
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
