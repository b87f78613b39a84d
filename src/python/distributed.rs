//! Passes over partitions and their partial results for Python.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::array::{Centers, array1, array2, signed, vector};
use super::coreset::{AnyCoreset, Parts};
use super::enter::enter;
use super::kernel::from_row;
use super::rows::AnyRows;
use super::source::Source;
use super::step::Step;
use crate::data::{AnySource, DataSource, Weighted};
use crate::distributed::{self, CoresetPass, KMeansPass, Message, Place, SeedPass};
use crate::error::{Error, Result};
use crate::fit::{self, Typed};
use crate::float::either;
use crate::parallel::Executor;
use crate::persist::kept::Values;

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

    /// The bytes of the merged result of partial results, which are read one after the other.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands lists over")]
    fn merged(py: Python<'_>, parts: Vec<PyBackedBytes>) -> PyResult<Bound<'_, PyBytes>> {
        let bytes = py.detach(|| {
            let read = |bytes: &PyBackedBytes| distributed::Partial::from_bytes(bytes);
            let mut rest = parts.iter();
            let first = rest.next().map_or_else(|| Ok(distributed::Partial::default()), read)?;
            rest.try_fold(first, |total, bytes| total.and(read(bytes)?))?.to_bytes()
        })?;
        Ok(PyBytes::new(py, &bytes))
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

    /// The sums of each of `n` ranges of clusters, as bytes.
    fn ranges<'py>(&self, py: Python<'py>, n: usize) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        (0..n).map(|i| Ok(PyBytes::new(py, &py.detach(|| self.0.range(i, n)?.to_bytes())?))).collect()
    }
}

/// What the driver of a sweep in ranges of clusters knows besides the centers.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct Head(distributed::Head);

/// What the driver decided from the reports of all ranges.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct Plan {
    plan: distributed::Plan,
    #[pyo3(get)]
    zero_rows: u64,
}

/// Centers, and the points about which squared errors are summed, if these are others.
fn centers_and_points(
    centers: &Bound<'_, PyAny>,
    points: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Centers, Option<Centers>)> {
    let points = points.map(centers_of).transpose()?;
    Ok((centers_of(centers)?.0, points.map(|(points, _)| points)))
}

#[pymethods]
impl Head {
    /// The sweep with these centers.
    #[pyo3(signature = (centers, points))]
    fn with_centers(&self, centers: &Bound<'_, PyAny>, points: Option<&Bound<'_, PyAny>>) -> PyResult<Pass> {
        let (py, (centers, points)) = (centers.py(), centers_and_points(centers, points)?);
        Ok(Pass::new(py.detach(|| self.0.with(centers, points))?))
    }

    /// What the range of `total`, a partial result as bytes, reports as bytes.
    #[pyo3(signature = (total, centers, points))]
    fn report<'py>(
        &self,
        total: &[u8],
        centers: &Bound<'py, PyAny>,
        points: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (py, (centers, points)) = (centers.py(), centers_and_points(centers, points)?);
        let bytes =
            py.detach(|| self.0.report(distributed::Partial::from_bytes(total)?, &centers, points.as_ref()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// What follows from the reports of all ranges, in order.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands lists over")]
    fn decide(&self, py: Python<'_>, reports: Vec<PyBackedBytes>, partitions: u64) -> PyResult<Plan> {
        let (plan, zero_rows) = py.detach(|| self.0.decide(&reports, partitions))?;
        Ok(Plan { plan, zero_rows })
    }

    /// The new centers of the range of `total`, and what it reports of their moves, as bytes.
    #[pyo3(signature = (total, centers, points, moves))]
    fn moved<'py>(
        &self,
        total: &[u8],
        centers: &Bound<'py, PyAny>,
        points: Option<&Bound<'py, PyAny>>,
        moves: &[u8],
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyBytes>)> {
        let (py, (centers, points)) = (centers.py(), centers_and_points(centers, points)?);
        let (centers, moved) = py.detach(|| {
            self.0.moved(distributed::Partial::from_bytes(total)?, &centers, points.as_ref(), moves)
        })?;
        Ok((array_of(py, centers, self.0.dim)?, PyBytes::new(py, &moved)))
    }

    /// What the next sweep knows, the figures of this one, and whether the next one has the points of this one.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands lists over")]
    fn end(&self, py: Python<'_>, plan: &Plan, moved: Vec<PyBackedBytes>) -> PyResult<(Self, Step, bool)> {
        let (next, step, keeps_points) = py.detach(|| self.0.end(&plan.plan, &moved))?;
        Ok((Self(next), step.into(), keeps_points))
    }

    /// The names of the columns in the pass before; None if they have none, or if there was no pass before.
    #[getter]
    fn names(&self) -> Option<Vec<String>> {
        self.0.before.names()
    }

    /// Number of columns.
    #[getter]
    fn dim(&self) -> usize {
        self.0.dim
    }

    #[getter]
    fn iteration(&self) -> u64 {
        self.0.before.passes
    }

    #[getter]
    fn variance(&self) -> f64 {
        self.0.variance
    }

    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        array1(py, self.0.weights.clone())
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.to_bytes()?))
    }

    #[staticmethod]
    fn from_bytes(data: &[u8]) -> PyResult<Self> {
        Ok(Self(distributed::Head::from_bytes(data)?))
    }
}

#[pymethods]
impl Plan {
    /// What every range must know to move its centers.
    fn moves<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.plan.moves.to_bytes()?))
    }

    #[getter]
    fn inertia(&self) -> f64 {
        self.plan.objective
    }

    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        array1(py, self.plan.weights.clone())
    }
}

/// What a process keeps of a partition between the sweeps of a fit.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct Kept(Mutex<distributed::Kept>);

impl Kept {
    fn lock(&self) -> MutexGuard<'_, distributed::Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Kept {
    /// Nothing yet, of a fit of at most `max_iter` sweeps.
    #[new]
    fn new(max_iter: u64) -> Self {
        Self(Mutex::new(distributed::Kept::new(max_iter)))
    }

    /// The bytes that are kept; 0 if nothing is.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// Distances that the last sweep measured.
    #[getter]
    fn n_distances(&self) -> u64 {
        self.lock().distances()
    }

    /// The labels of the last sweep, if it had these centers; else None.
    fn labels<'py>(&self, centers: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, (centers, _)) = (centers.py(), centers_of(centers)?);
        let labels = either!(centers, values => self.lock().labels(&values));
        Ok(labels.map(|labels| array1(py, signed(labels))))
    }
}

/// A [`distributed::Pass`] whose kind is not known when the crate is compiled.
trait DynPass: Any + Send + Sync {
    fn absorb(&self, rows: AnySource<'_>, place: Place, cx: &Executor) -> Result<distributed::Partial>;
    fn absorb_nothing(&self, place: Place) -> distributed::Partial;
    fn commit(&self, total: &distributed::Partial) -> Result<(Box<dyn DynPass>, fit::Step)>;
    fn to_bytes(&self) -> Result<Vec<u8>>;
    fn after(&self, before: &distributed::Before) -> Box<dyn DynPass>;
    fn facts(&self) -> distributed::PassFacts<'_>;
}

impl<P: distributed::Pass> DynPass for P {
    fn absorb(&self, rows: AnySource<'_>, place: Place, cx: &Executor) -> Result<distributed::Partial> {
        distributed::Pass::absorb(self, rows, place, cx)
    }

    fn absorb_nothing(&self, place: Place) -> distributed::Partial {
        distributed::Pass::absorb_nothing(self, place)
    }

    fn commit(&self, total: &distributed::Partial) -> Result<(Box<dyn DynPass>, fit::Step)> {
        let (next, step) = distributed::Pass::commit(self, total)?;
        Ok((Box::new(next), step))
    }

    fn to_bytes(&self) -> Result<Vec<u8>> {
        Message::to_bytes(self)
    }

    fn after(&self, before: &distributed::Before) -> Box<dyn DynPass> {
        Box::new(self.clone().after(before.extent.as_ref()))
    }

    fn facts(&self) -> distributed::PassFacts<'_> {
        distributed::Pass::facts(self)
    }
}

/// A pass over partitions: immutable.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct Pass(Box<dyn DynPass>);

/// Centers of a new pass.
fn centers_of(centers: &Bound<'_, PyAny>) -> PyResult<(Centers, usize)> {
    let cols: usize = centers.getattr("shape")?.get_item(1)?.extract()?;
    Ok((Centers::new(centers, cols)?, cols))
}

/// An array of rows of `dim` values.
fn array_of(py: Python<'_>, values: Values, dim: usize) -> PyResult<Bound<'_, PyAny>> {
    either!(values, values => array2(py, values, dim))
}

impl Pass {
    fn new(pass: impl distributed::Pass) -> Self {
        Self(Box::new(pass))
    }

    /// The pass, if it is of this kind.
    fn get<P: distributed::Pass>(&self) -> Option<&P> {
        let pass: &dyn Any = &*self.0;
        pass.downcast_ref()
    }

    /// The pass of k-means, if it is one.
    fn with_centers(&self) -> Option<&KMeansPass> {
        self.get()
    }

    /// The pass of k-means.
    fn kmeans_pass(&self) -> Result<&KMeansPass> {
        self.get().ok_or_else(|| Error::Source("the pass has no centers".into()))
    }
}

#[pymethods]
impl Pass {
    #[staticmethod]
    fn kmeans(centers: &Bound<'_, PyAny>, metric: &str) -> PyResult<Self> {
        let ((centers, cols), metric) = (centers_of(centers)?, metric.parse()?);
        Ok(Self::new(either!(centers, values => KMeansPass::new(&values, cols, metric)?)))
    }

    #[staticmethod]
    fn seed(n_clusters: usize, oversampling: f64, rounds: usize, metric: &str, seed: u64) -> PyResult<Self> {
        Ok(Self::new(SeedPass::new(n_clusters, oversampling, rounds, metric.parse()?, seed)?))
    }

    #[staticmethod]
    fn coreset(n_samples: usize, metric: &str, seed: u64) -> PyResult<Self> {
        Ok(Self::new(CoresetPass::new(n_samples, metric.parse()?, seed)?))
    }

    /// Runs the pass over a partition, or a block of numbered rows if `partition` is None. A `source` of None has no
    /// rows. `names` are those of the columns, if they have any.
    /// `kept` is what this process keeps of the partition, in at most `budget` bytes; only sweeps of k-means use it.
    #[pyo3(signature = (source, weights, names, partition, first_row, threads, kept=None, budget=0))]
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
        kept: Option<&Kept>,
        budget: u64,
    ) -> PyResult<Partial> {
        let place = partition.map_or(Place::FirstRow(first_row), Place::Partition);
        let Some(source) = source else {
            place.check()?;
            return Ok(Partial(self.0.absorb_nothing(place)));
        };
        let (rows, weights) = (&source.0, weights.as_ref().map(vector));
        let centers = self.with_centers().map_or(1, KMeansPass::n_clusters);
        let cost = rows.whole_effort() * (rows.cols() * centers) as f64;
        let wide = self.0.facts().shape.map_or_else(|| rows.dtype().computed_as_f64(), |(_, wide)| wide);
        let part = enter(py, threads, cost, |cx| {
            let absorb = |rows: AnySource<'_>| match (kept, self.with_centers()) {
                (Some(kept), Some(pass)) => pass.absorb_any(rows, place, (&mut kept.lock(), budget), cx),
                _ => self.0.absorb(rows, place, cx),
            };
            let found = match weights.as_deref() {
                None => absorb(computed(rows, wide)),
                Some(weights) => absorb(computed(&weighted_rows(rows, weights)?, wide)),
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
    fn after(&self, other: &Self) -> Self {
        Self(self.0.after(other.0.facts().before))
    }

    /// The same sweep, for workers that keep state.
    fn carrying(&self) -> PyResult<Self> {
        Ok(Self::new(self.kmeans_pass()?.clone().carrying()))
    }

    /// What the driver of a sweep in ranges knows besides the centers.
    fn head(&self) -> PyResult<Head> {
        Ok(Head(self.kmeans_pass()?.head().clone()))
    }

    /// The centers of an earlier sweep about which squared errors are summed; None if these are the centers.
    #[getter]
    fn points<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let points = self.with_centers().and_then(KMeansPass::other_points);
        points.map(|points| array_of(py, points.clone(), self.dim())).transpose()
    }

    /// Whether squared errors are summed about the centers of an earlier sweep.
    #[getter]
    fn has_points(&self) -> bool {
        self.with_centers().is_some_and(|pass| pass.other_points().is_some())
    }

    /// The names of the columns in the pass before; None if they have none, or if there was no pass before.
    #[getter]
    fn names(&self) -> Option<Vec<String>> {
        self.0.facts().before.names()
    }

    /// The next pass, and the figures of this one. `total` must have all of `partitions`, if their number is given.
    #[pyo3(signature = (total, partitions))]
    fn commit(&self, py: Python<'_>, total: &Partial, partitions: Option<u64>) -> PyResult<(Self, Step)> {
        if let Some(partitions) = partitions {
            total.0.check_partitions(partitions)?;
        }
        let (next, step) = enter(py, Some(1), f64::MAX, |_| self.0.commit(&total.0))?;
        Ok((Self(next), step.into()))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.to_bytes())?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Reads a pass of the Python class `kind`.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8], kind: &str) -> PyResult<Self> {
        let read = || {
            Ok::<_, Error>(match kind {
                "KMeansPass" => Self::new(KMeansPass::from_bytes(data)?),
                "SeedPass" => Self::new(SeedPass::from_bytes(data)?),
                "CoresetPass" => Self::new(CoresetPass::from_bytes(data)?),
                _ => return Err(Error::param("kind", "the name of a class of passes", kind)),
            })
        };
        Ok(py.detach(read)?)
    }

    /// The first sweep from the centers that a seeding has chosen.
    fn first_sweep(&self) -> PyResult<Self> {
        let pass = self.get::<SeedPass>();
        let pass = pass.ok_or_else(|| Error::Source("the pass chooses no centers".into()))?;
        Ok(Self::new(pass.first_sweep()?))
    }

    /// Approximate upper limit of the bytes of one partial result.
    #[getter]
    fn result_bytes(&self) -> usize {
        self.0.facts().result_bytes
    }

    /// Whether there is a result: the centers of a seeding, a coreset.
    #[getter]
    fn done(&self) -> bool {
        self.0.facts().is_done
    }

    /// The centers; None if there are none yet.
    #[getter]
    fn centers<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let centers = self.0.facts().centers.cloned();
        centers.map(|centers| array_of(py, centers, self.dim())).transpose()
    }

    /// Number of columns; 0 before the first pass of a seeding or a coreset.
    #[getter]
    fn dim(&self) -> usize {
        self.0.facts().shape.map_or(0, |(dim, _)| dim)
    }

    #[getter]
    fn metric(&self) -> Option<&'static str> {
        self.with_centers().map(|pass| pass.metric().name())
    }

    #[getter]
    fn iteration(&self) -> Option<u64> {
        self.with_centers().map(KMeansPass::iteration)
    }

    #[getter]
    fn variance(&self) -> Option<f64> {
        self.with_centers().map(KMeansPass::variance)
    }

    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.with_centers().map(|pass| array1(py, pass.weights().to_vec()))
    }

    /// Points, weights and row numbers of a complete coreset, as `StreamingCoreset.result` returns them.
    #[getter]
    fn coreset_parts<'py>(&self, py: Python<'py>) -> PyResult<Option<Parts<'py>>> {
        let found = self.get().and_then(CoresetPass::any_coreset).cloned();
        let found = found.map(|coreset| match coreset {
            Typed::F32(coreset) => AnyCoreset::F32(coreset),
            Typed::F64(coreset) => AnyCoreset::F64(coreset),
        });
        found.map(|coreset| coreset.into_parts(py)).transpose()
    }
}

/// Rows that are computed as `f64` if `wide`, else as `f32`.
fn computed<S: DataSource<f32> + DataSource<f64>>(rows: &S, wide: bool) -> AnySource<'_> {
    if wide { AnySource::F64(rows) } else { AnySource::F32(rows) }
}

/// The rows with their weights. All weights may be 0: other partitions may have weight.
fn weighted_rows<'a>(rows: &AnyRows, weights: &'a [f64]) -> Result<Weighted<'a, AnyRows>> {
    let rows = rows.clone();
    if weights.iter().all(|&w| w == 0.0) {
        Ok(Weighted::vouched::<f64>(rows, weights))
    } else {
        Weighted::new::<f64>(rows, weights)
    }
}
