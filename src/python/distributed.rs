//! Passes over partitions and their partial results for Python.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::array::{Centers, array1, array2, vector};
use super::coreset::{AnyCoreset, Parts};
use super::enter::enter;
use super::kernel::from_row;
use super::rows::AnyRows;
use super::source::Source;
use super::step::Step;
use crate::data::{DataSource, Weighted};
use crate::distributed::{self, CoresetPass, KMeansPass, MiniBatchPass, Place, SeedPass};
use crate::error::{Error, Result};
use crate::fit::{self, Element};
use crate::parallel::Executor;

/// What a pass found in some of the rows.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct Partial(distributed::Partial);

#[pymethods]
impl Partial {
    /// The rows of both.
    fn merge(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        Ok(Self(py.detach(|| self.0.merge(&other.0))?))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.to_bytes())?;
        Ok(PyBytes::new(py, &bytes))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        Ok(Self(py.detach(|| distributed::Partial::from_bytes(data))?))
    }

    #[getter]
    fn n_rows(&self) -> u64 {
        self.0.rows()
    }

    #[getter]
    fn n_partitions(&self) -> u64 {
        self.0.partitions()
    }

    #[getter]
    fn zero_rows(&self) -> u64 {
        self.0.zero_rows()
    }

    #[getter]
    fn inertia(&self) -> f64 {
        self.0.inertia()
    }

    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        array1(py, self.0.weights())
    }
}

enum AnyPass {
    KMeans(KMeansPass),
    MiniBatch(MiniBatchPass),
    Seed(SeedPass),
    Coreset(CoresetPass),
}

/// Evaluates one expression for a pass of any kind.
macro_rules! each {
    ($pass:expr, $of:ident => $body:expr) => {
        match $pass {
            AnyPass::KMeans($of) => $body,
            AnyPass::MiniBatch($of) => $body,
            AnyPass::Seed($of) => $body,
            AnyPass::Coreset($of) => $body,
        }
    };
}

impl AnyPass {
    /// Whether rows must be computed as `f64`; `None` if any type will do.
    fn is_wide(&self) -> Option<bool> {
        match self {
            Self::KMeans(pass) => Some(pass.is_wide()),
            Self::MiniBatch(pass) => Some(pass.pass().is_wide()),
            Self::Seed(pass) => pass.is_wide(),
            Self::Coreset(pass) => pass.is_wide(),
        }
    }

    /// The pass with centers, if it is one.
    fn with_centers(&self) -> Option<&KMeansPass> {
        match self {
            Self::KMeans(pass) => Some(pass),
            Self::MiniBatch(pass) => Some(pass.pass()),
            Self::Seed(_) | Self::Coreset(_) => None,
        }
    }

    /// The rows of the pass before.
    fn extent(&self) -> Option<&distributed::Extent> {
        match self {
            Self::KMeans(pass) => pass.extent(),
            Self::MiniBatch(pass) => pass.pass().extent(),
            Self::Seed(pass) => pass.extent(),
            Self::Coreset(pass) => pass.extent(),
        }
    }

    /// About the bytes of one partial result, at most.
    fn result_bytes(&self) -> usize {
        match self {
            Self::Seed(pass) => pass.result_bytes(),
            Self::Coreset(pass) => pass.result_bytes(),
            other => other.with_centers().map_or(0, |pass| 8 * pass.n_clusters() * (pass.dim() + 2)),
        }
    }

    fn absorb<T: Element>(
        &self,
        rows: &AnyRows,
        weights: Option<&[f64]>,
        place: Place,
        cx: &Executor,
    ) -> Result<distributed::Partial> {
        let absorb = |data: &dyn DataSource<T>| each!(self, pass => pass.absorb_typed(data, place, cx));
        match weights {
            None => absorb(rows),
            // The other partitions may have weight.
            Some(weights) if weights.iter().all(|&w| w == 0.0) => {
                absorb(&Weighted::vouched::<T>(rows.clone(), weights))
            }
            Some(weights) => absorb(&Weighted::new::<T>(rows.clone(), weights)?),
        }
    }
}

/// A pass over partitions: immutable.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct Pass(AnyPass);

/// Centers of a new pass.
fn centers_of(centers: &Bound<'_, PyAny>) -> PyResult<(Centers, usize)> {
    let cols: usize = centers.getattr("shape")?.get_item(1)?.extract()?;
    Ok((Centers::new(centers, cols)?, cols))
}

#[pymethods]
impl Pass {
    #[staticmethod]
    fn kmeans(centers: &Bound<'_, PyAny>, metric: &str) -> PyResult<Self> {
        let (centers, cols) = centers_of(centers)?;
        let metric = metric.parse()?;
        Ok(Self(AnyPass::KMeans(match centers {
            Centers::F32(values) => KMeansPass::new(&values, cols, metric)?,
            Centers::F64(values) => KMeansPass::new(&values, cols, metric)?,
        })))
    }

    #[staticmethod]
    fn minibatch(centers: &Bound<'_, PyAny>, batch_size: usize, metric: &str) -> PyResult<Self> {
        let (centers, cols) = centers_of(centers)?;
        let metric = metric.parse()?;
        Ok(Self(AnyPass::MiniBatch(match centers {
            Centers::F32(values) => MiniBatchPass::new(&values, cols, batch_size, metric)?,
            Centers::F64(values) => MiniBatchPass::new(&values, cols, batch_size, metric)?,
        })))
    }

    #[staticmethod]
    fn seed(n_clusters: usize, oversampling: f64, rounds: usize, metric: &str, seed: u64) -> PyResult<Self> {
        Ok(Self(AnyPass::Seed(SeedPass::new(n_clusters, oversampling, rounds, metric.parse()?, seed)?)))
    }

    #[staticmethod]
    fn coreset(n_samples: usize, metric: &str, seed: u64) -> PyResult<Self> {
        Ok(Self(AnyPass::Coreset(CoresetPass::new(n_samples, metric.parse()?, seed)?)))
    }

    /// Runs the pass over a partition, or a block of numbered rows if `partition` is None. A `source` of None has no
    /// rows. `names` are those of the columns, if they have any.
    #[pyo3(signature = (source, weights, names, partition, first_row, threads))]
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    #[expect(clippy::too_many_arguments, reason = "Python passes the parts of a block one by one")]
    fn absorb(
        &self,
        py: Python<'_>,
        source: Option<&Source>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        names: Option<Vec<String>>,
        partition: Option<u64>,
        first_row: u64,
        threads: Option<usize>,
    ) -> PyResult<Partial> {
        let place = partition.map_or(Place::FirstRow(first_row), Place::Partition);
        let Some(source) = source else {
            place.check()?;
            return Ok(Partial(each!(&self.0, pass => pass.absorb_nothing(place))));
        };
        let (rows, weights) = (&source.0, weights.as_ref().map(vector));
        let centers = self.0.with_centers().map_or(1, KMeansPass::n_clusters);
        let cost = rows.whole_effort() * (rows.cols() * centers) as f64;
        let wide = self.0.is_wide().unwrap_or_else(|| rows.dtype().computed_as_f64());
        let part = enter(py, threads, cost, |cx| {
            let weights = weights.as_deref();
            let found = if wide {
                self.0.absorb::<f64>(rows, weights, place, cx)
            } else {
                self.0.absorb::<f32>(rows, weights, place, cx)
            };
            found.map_err(from_row(first_row))
        })?;
        let part = part.stored_as(rows.dtype().name());
        Ok(Partial(match names {
            Some(names) => part.named(names)?,
            None => part,
        }))
    }

    /// The same pass, which expects the rows, the partitions and the names of columns of another pass.
    fn after(&self, other: &Self) -> PyResult<Self> {
        Ok(Self(match &self.0 {
            AnyPass::KMeans(pass) => AnyPass::KMeans(pass.after(other.0.extent())),
            AnyPass::MiniBatch(pass) => AnyPass::MiniBatch(pass.after(other.0.extent())),
            AnyPass::Seed(_) | AnyPass::Coreset(_) => {
                return Err(Error::Source("the pass has no centers".into()).into());
            }
        }))
    }

    /// The names of the columns in the pass before; None if they have none, or if there was no pass before.
    #[getter]
    fn names(&self) -> Option<Vec<String>> {
        Some(self.0.extent()?.names.as_deref()?.to_vec())
    }

    /// The next pass, and the figures of this one. `total` must have all of `partitions`, if their number is given.
    #[pyo3(signature = (total, partitions))]
    fn commit(&self, py: Python<'_>, total: &Partial, partitions: Option<u64>) -> PyResult<(Self, Step)> {
        if let Some(partitions) = partitions {
            total.0.check_partitions(partitions)?;
        }
        let (next, step) = enter(py, Some(1), f64::MAX, |_| {
            Ok::<(AnyPass, fit::Step), Error>(match &self.0 {
                AnyPass::KMeans(pass) => pass.commit(&total.0).map(|(next, s)| (AnyPass::KMeans(next), s))?,
                AnyPass::MiniBatch(pass) => {
                    pass.commit(&total.0).map(|(next, s)| (AnyPass::MiniBatch(next), s))?
                }
                AnyPass::Seed(pass) => pass.commit(&total.0).map(|(next, s)| (AnyPass::Seed(next), s))?,
                AnyPass::Coreset(pass) => {
                    pass.commit(&total.0).map(|(next, s)| (AnyPass::Coreset(next), s))?
                }
            })
        })?;
        Ok((Self(next), step.into()))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| each!(&self.0, pass => pass.to_bytes()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Reads a pass of the Python class `kind`.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8], kind: &str) -> PyResult<Self> {
        let read = || {
            Ok::<_, Error>(match kind {
                "KMeansPass" => AnyPass::KMeans(KMeansPass::from_bytes(data)?),
                "MiniBatchPass" => AnyPass::MiniBatch(MiniBatchPass::from_bytes(data)?),
                "SeedPass" => AnyPass::Seed(SeedPass::from_bytes(data)?),
                "CoresetPass" => AnyPass::Coreset(CoresetPass::from_bytes(data)?),
                _ => return Err(Error::param("kind", "the name of a class of passes", kind)),
            })
        };
        Ok(Self(py.detach(read)?))
    }

    /// The first sweep from the centers that a seeding has chosen.
    fn first_sweep(&self) -> PyResult<Self> {
        let AnyPass::Seed(pass) = &self.0 else {
            return Err(Error::Source("the pass chooses no centers".into()).into());
        };
        Ok(Self(AnyPass::KMeans(pass.first_sweep()?)))
    }

    /// About the bytes of one partial result, at most.
    #[getter]
    fn result_bytes(&self) -> usize {
        self.0.result_bytes()
    }

    /// Whether there is a result: the centers of a seeding, a coreset.
    #[getter]
    fn done(&self) -> bool {
        match &self.0 {
            AnyPass::KMeans(_) | AnyPass::MiniBatch(_) => true,
            AnyPass::Seed(pass) => pass.centers::<f32>().is_some(),
            AnyPass::Coreset(pass) => pass.is_done(),
        }
    }

    /// The centers; None if there are none yet.
    #[getter]
    fn centers<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let wide = self.0.is_wide().unwrap_or(false);
        let (narrow, full, cols) = match &self.0 {
            AnyPass::Seed(pass) if wide => (None, pass.centers::<f64>(), pass.dim()),
            AnyPass::Seed(pass) => (pass.centers::<f32>(), None, pass.dim()),
            other => {
                let Some(pass) = other.with_centers() else { return Ok(None) };
                let centers = (!wide).then(|| pass.centers::<f32>());
                (centers, wide.then(|| pass.centers::<f64>()), pass.dim())
            }
        };
        match (narrow, full) {
            (Some(values), _) => array2(py, values, cols).map(Some),
            (None, Some(values)) => array2(py, values, cols).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Number of columns; 0 before the first pass of a seeding or a coreset.
    #[getter]
    fn dim(&self) -> usize {
        match &self.0 {
            AnyPass::Seed(pass) => pass.dim(),
            AnyPass::Coreset(pass) => pass.dim(),
            other => other.with_centers().map_or(0, KMeansPass::dim),
        }
    }

    #[getter]
    fn metric(&self) -> Option<&'static str> {
        self.0.with_centers().map(|pass| pass.metric().name())
    }

    #[getter]
    fn iteration(&self) -> Option<u64> {
        self.0.with_centers().map(KMeansPass::iteration)
    }

    #[getter]
    fn variance(&self) -> Option<f64> {
        self.0.with_centers().map(KMeansPass::variance)
    }

    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.0.with_centers().map(|pass| array1(py, pass.weights().to_vec()))
    }

    /// Points, weights and row numbers of a complete coreset, as `StreamingCoreset.result` returns them.
    #[getter]
    fn coreset_parts<'py>(&self, py: Python<'py>) -> PyResult<Option<Parts<'py>>> {
        let AnyPass::Coreset(pass) = &self.0 else { return Ok(None) };
        let found = pass.with_coreset(AnyCoreset::F32, AnyCoreset::F64);
        found.map(|coreset| coreset.into_parts(py)).transpose()
    }
}
