//! Mixtures of Gaussians as Python calls them: parameters, what runs show, and scores of a fitted mixture.

use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array::{Centers, array1, array2, signed, vector};
use super::coreset::{AnyCoreset, Parts};
use super::enter::enter;
use super::kernel::from_row;
use super::rows::{AnyRows, Input};
use super::run::Run;
use super::seeding::{SeedingOptions, named};
use super::source::Source;
use super::start::{Call, Given, PythonMethod};
use crate::fit::{self, Typed, Value, either};
use crate::gmm::{GaussianMixture, KnownComponents, TruncatedGaussianMixture};

/// A run of a mixture: it also has a coreset.
#[pyclass(frozen, extends = Run, module = "shoal._core")]
pub(super) struct MixtureRun;

#[pymethods]
impl MixtureRun {
    /// A copy of the coreset that the fit works on; None if it works on all rows.
    #[expect(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn coreset<'py>(this: PyRef<'py, Self>, py: Python<'py>) -> PyResult<Option<Parts<'py>>> {
        let coreset =
            this.as_super().with(|run: &mut fit::Run<TruncatedGaussianMixture>| match run.solver() {
                Typed::F32(solver) => solver.coreset().cloned().map(AnyCoreset::F32),
                Typed::F64(solver) => solver.coreset().cloned().map(AnyCoreset::F64),
            })?;
        coreset.map(|coreset| coreset.into_parts(py)).transpose()
    }
}

impl PythonMethod for TruncatedGaussianMixture {
    fn params(k: usize, given: &mut Given) -> PyResult<Self::Params> {
        let mut params = Self::params(k);
        if let Some(Value::Int(chain)) = given.take("chain")
            && let Some(Value::Text(name)) = given.get("seeding")
        {
            let options = SeedingOptions(usize::try_from(chain).ok(), None, None);
            params = params.seeding(named(name, options)?);
            given.take("seeding");
        }
        Ok(params)
    }

    fn rows_of_steps(_params: &Self::Params, given: &Given, rows: &AnyRows) -> (f64, f64) {
        let all = rows.whole_effort();
        let coreset = given.count("coreset_size");
        // A search evaluates few of the components.
        let k = given.count("n_components");
        let looks = (given.count("n_active") * given.count("n_neighbors")).min(k) / k;
        (4.0 * all, all.min(coreset) * looks)
    }

    fn start(call: Call<'_, '_>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let run = PyClassInitializer::from(call.fit::<Self>(py)?);
        Ok(Py::new(py, run.add_subclass(MixtureRun))?.into_any())
    }

    fn details(run: &fit::Run<Self>, to: &Bound<'_, PyDict>) -> PyResult<()> {
        let found = either!(run.solver(), solver => solver.components());
        to.set_item("variances", array1(to.py(), found.variances))?;
        to.set_item("loadings", array1(to.py(), found.loadings))?;
        to.set_item("weights", array1(to.py(), found.weights.to_vec()))?;
        let neighbors = array2(to.py(), signed(found.neighbors.to_vec()), found.neighborhood)?;
        to.set_item("neighbors", neighbors)?;
        to.set_item("lower_bounds", array1(to.py(), run.lower_bounds().to_vec()))?;
        to.set_item("floored", run.is_floored())?;
        to.set_item("converged", found.converged)
    }
}

/// A fitted mixture of Gaussians. It computes in the type of its means.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct Mixture {
    model: GaussianMixture,
    wide: bool,
}

impl Mixture {
    /// About how many multiplications all densities of the rows of `source` take.
    fn cost(&self, source: &Source) -> f64 {
        source.0.whole_effort() * (self.model.n_components() * self.model.dim()) as f64
    }
}

/// The same expression for either type of scores and rows.
macro_rules! scored {
    ($this:expr, $input:expr, |$scores:ident, $data:ident| $body:expr) => {
        if $this.wide {
            $this.model.scoring::<f64, _>(|$scores| {
                let $data = $input.of::<f64>();
                $body
            })
        } else {
            $this.model.scoring::<f32, _>(|$scores| {
                let $data = $input.of::<f32>();
                $body
            })
        }
    };
}

#[pymethods]
impl Mixture {
    #[new]
    #[pyo3(signature = (means, variances, weights, covariance, n_active, neighbors, loadings = None))]
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn new(
        means: &Bound<'_, PyAny>,
        variances: PyReadonlyArray1<'_, f64>,
        weights: PyReadonlyArray1<'_, f64>,
        covariance: &str,
        n_active: usize,
        neighbors: Option<PyReadonlyArray2<'_, i32>>,
        loadings: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Self> {
        let cols: usize = means.getattr("shape")?.get_item(1)?.extract()?;
        let means = Centers::new(means, cols)?;
        let wide = means.is_wide();
        // Negative numbers become large ones, which the check below reports.
        let neighbors = neighbors
            .map(|ids| (ids.as_array().iter().map(|&j| j.cast_unsigned()).collect(), ids.shape()[1]));
        let components = KnownComponents {
            means,
            dim: cols,
            covariance: covariance.parse()?,
            variances: vector(&variances),
            weights: vector(&weights),
            loadings: loadings.map_or_else(Vec::new, |loadings| vector(&loadings)),
            active: n_active,
            neighbors,
        };
        Ok(Self { model: GaussianMixture::of_known(components)?, wide })
    }

    /// The component of every row.
    #[pyo3(signature = (source, walk, threads, first_row = 0))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        source: &Source,
        walk: bool,
        threads: Option<usize>,
        first_row: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let input = Input::new(&source.0, None)?;
        let labels = enter(py, threads, self.cost(source), |cx| {
            scored!(self, input, |scores, data| scores.predict(walk, data, cx)).map_err(from_row(first_row))
        })?;
        Ok(array1(py, signed(labels)))
    }

    /// The components that share each row, and its shares of them.
    fn shares<'py>(
        &self,
        py: Python<'py>,
        source: &Source,
        walk: bool,
        threads: Option<usize>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (input, m) = (Input::new(&source.0, None)?, self.model.n_active());
        let (ids, shares) = enter(py, threads, self.cost(source), |cx| {
            scored!(self, input, |scores, data| scores.shares(m, walk, data, cx))
        })?;
        Ok((array2(py, signed(ids), m)?, array2(py, shares, m)?))
    }

    /// The logarithm of the density of every row.
    fn log_densities<'py>(
        &self,
        py: Python<'py>,
        source: &Source,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let input = Input::new(&source.0, None)?;
        let found = enter(py, threads, self.cost(source), |cx| {
            scored!(self, input, |scores, data| scores.log_densities(data, cx))
        })?;
        Ok(array1(py, found))
    }

    /// The weighted sum of the logarithms of the densities of all rows, and the weight of these.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn log_likelihood(
        &self,
        py: Python<'_>,
        source: &Source,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        threads: Option<usize>,
    ) -> PyResult<(f64, f64)> {
        let input = Input::new(&source.0, weights.as_ref())?;
        enter(py, threads, self.cost(source), |cx| {
            scored!(self, input, |scores, data| scores.log_likelihood(data, cx))
        })
    }
}
