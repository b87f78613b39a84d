//! This module knows Laplacian K-modes as Python drives it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use numpy::PyReadonlyArray1;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::array::{Centers, array1, array2, signed, vector, with_centers};
use super::enter::enter;
use super::graph::method_of;
use super::kmeans::seeding_of;
use super::persist::of_python;
use super::rows::Input;
use super::run::reason_of;
use super::source::Source;
use super::step::Step;
use crate::error::{Error, Result};
use crate::kmodes::{
    Affinity, Collapse, KModesRun, Known, LaplacianKModes, ModeUpdate, Pull, Shares, Shift, Snapshot,
    responsibilities,
};
use crate::persist;

/// A fit on its way, with its rows.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct ModesRun {
    input: Input,
    threads: Option<usize>,
    /// About how many multiplications the first step takes, and a later one.
    costs: (f64, f64),
    state: Mutex<KModesRun>,
}

impl ModesRun {
    fn locked(&self) -> PyResult<MutexGuard<'_, KModesRun>> {
        self.state
            .try_lock()
            .map_err(|_| PyRuntimeError::new_err("this run is in use by another thread, or failed by a bug"))
    }
}

/// What is asked of a state without a word about its type.
macro_rules! ask {
    ($run:expr, $state:ident => $body:expr) => {
        $run.locked()?.with(|$state: Snapshot<'_, f32>| $body, |$state: Snapshot<'_, f64>| $body)
    };
}

#[pymethods]
impl ModesRun {
    /// One more step; None when the run is over.
    fn step(&self, py: Python<'_>) -> PyResult<Option<Step>> {
        let mut run = self.locked()?;
        let cost = if run.history().is_empty() { self.costs.0 } else { self.costs.1 };
        let run = &mut *run;
        let step = enter(py, self.threads, cost, |cx| run.advance(&self.input, cx))?;
        Ok(step.map(Step::from))
    }

    /// Makes the neighbour graph, if it is not there.
    fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        let mut run = self.locked()?;
        let run = &mut *run;
        enter(py, self.threads, self.costs.0, |cx| run.prepare(&self.input, cx))
    }

    /// Begins with labels, below 0 for rows without one, that were found by `name` in so many seconds.
    #[expect(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn begin_with(&self, labels: PyReadonlyArray1<'_, i32>, name: &str, seconds: f64) -> PyResult<()> {
        let labels = vector(&labels).into_iter().map(|label| u32::try_from(label).ok()).collect();
        Ok(self.locked()?.begin_with_named(labels, (name, seconds))?)
    }

    /// Ends the run after its last step.
    fn stop(&self, reason: &str) -> PyResult<()> {
        let reason = reason_of(reason)?;
        self.locked()?.end(reason);
        Ok(())
    }

    /// All steps so far.
    fn history(&self) -> PyResult<Vec<Step>> {
        Ok(self.locked()?.history().iter().copied().map(Step::from).collect())
    }

    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(array1(py, signed(self.locked()?.labels().to_vec())))
    }

    fn modes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        ask!(self, state => array2(py, state.modes.to_vec(), state.dim))
    }

    /// The rows that the modes are; none where they are means.
    fn mode_rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rows = self.locked()?.mode_rows().iter().map(|&row| row.cast_signed()).collect();
        Ok(array1::<i64>(py, rows))
    }

    /// The responsibilities that are kept, a row each, and their clusters; none where all are kept.
    fn responsibilities<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        ask!(self, state => {
            let (kept, clusters) = state.responsibilities.kept();
            let width = (kept.len() / state.labels.len().max(1)).max(1);
            Ok((array2(py, kept, width)?, array1(py, signed(clusters.to_vec()))))
        })
    }

    /// The affinity's beginnings, columns and weights.
    fn affinity<'py>(&self, py: Python<'py>) -> PyResult<[Bound<'py, PyAny>; 3]> {
        ask!(self, state => {
            let (starts, columns, weights) = state.affinity.map_or((&[0][..], &[][..], &[][..]), Affinity::parts);
            let starts: Vec<i64> = starts.iter().map(|&start| start as i64).collect();
            Ok([array1(py, starts), array1(py, signed(columns.to_vec())), array1(py, weights.to_vec())])
        })
    }

    /// What was watched in each inner loop.
    fn relaxed_energies<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        ask!(self, state => Ok(state.relaxed.iter().map(|values| array1(py, values.clone())).collect()))
    }

    /// The energy after each iteration.
    fn energies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        ask!(self, state => Ok(array1(py, state.energies.to_vec())))
    }

    /// Kernel width, weight of the Laplacian, recall of the graph.
    fn figures(&self) -> PyResult<(f64, f64, f64)> {
        ask!(self, state => Ok((state.variance.sqrt(), state.lambda, state.recall)))
    }

    /// Whether a cluster has collapsed, the diagonal is shifted, all kernel values were 0.
    fn flags(&self) -> PyResult<(bool, bool, bool)> {
        ask!(self, state => Ok((state.collapsed, state.shifted, state.blind)))
    }

    /// How the first modes were chosen, and how neighbours were found.
    fn methods(&self) -> PyResult<(String, String)> {
        ask!(self, state => Ok((state.seeded_by.to_owned(), state.about.to_owned())))
    }

    #[getter]
    fn n_iter(&self) -> PyResult<u64> {
        ask!(self, state => Ok(state.n_iter))
    }

    /// Seconds by phase.
    fn timings(&self) -> PyResult<BTreeMap<&'static str, f64>> {
        ask!(self, state => Ok(["graph", "seeding", "iterations"].into_iter().zip(state.timings).collect()))
    }

    /// Looks at some of the rows, by which a checkpoint knows them again.
    fn know_rows(&self, py: Python<'_>) -> PyResult<()> {
        let mut run = self.locked()?;
        let run = &mut *run;
        enter(py, Some(1), 0.0, |_| run.know_rows(&self.input))
    }

    /// Writes all that the next step depends on, with more arrays and texts.
    fn write_checkpoint(
        &self,
        py: Python<'_>,
        path: PathBuf,
        arrays: BTreeMap<String, Bound<'_, PyAny>>,
        meta: BTreeMap<String, String>,
    ) -> PyResult<()> {
        let mut run = self.locked()?;
        let more = of_python("", arrays, meta)?;
        let run = &mut *run;
        enter(py, Some(1), 0.0, |_| {
            let mut contents = run.checkpoint(&self.input)?;
            contents.arrays.extend(more.arrays);
            contents.meta.extend(more.meta);
            persist::write(path, &contents)
        })
    }
}

/// A sparse matrix as Python hands it over.
type Matrix<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, f64>);

/// Kind, arrays and texts of a state.
type State<'py> = (String, BTreeMap<String, Bound<'py, PyAny>>, BTreeMap<String, String>);

/// Laplacian K-modes over the rows of `source`, from its beginning or from a `state`; with an `affinity` no graph is made.
#[pyfunction]
#[pyo3(signature = (source, *, n_clusters, laplacian_weight, mode_update, n_neighbors, bandwidth, gaussian, diagonal_shift, on_collapse, normalize, seeding, centers, max_iter, graph_method, responsibilities_memory, seed, threads, affinity, state))]
#[expect(clippy::too_many_arguments, reason = "as Python passes them")]
pub(super) fn kmodes(
    py: Python<'_>,
    source: &Source,
    n_clusters: usize,
    laplacian_weight: Option<f64>,
    mode_update: &str,
    n_neighbors: usize,
    bandwidth: Option<f64>,
    gaussian: bool,
    diagonal_shift: Option<f64>,
    on_collapse: &str,
    normalize: bool,
    seeding: &str,
    centers: Option<&Bound<'_, PyAny>>,
    max_iter: u64,
    graph_method: &str,
    responsibilities_memory: Option<u64>,
    seed: u64,
    threads: Option<usize>,
    affinity: Option<Matrix<'_>>,
    state: Option<State<'_>>,
) -> PyResult<ModesRun> {
    let params = LaplacianKModes::params(n_clusters)
        .laplacian_weight(laplacian_weight)
        .mode_update(match mode_update {
            "byproduct" => ModeUpdate::ByProduct,
            "mean-shift" => ModeUpdate::MeanShift,
            _ => return Err(PyValueError::new_err(format!("no such mode update: {mode_update:?}"))),
        })
        .n_neighbors(n_neighbors)
        .bandwidth(bandwidth)
        .gaussian(gaussian)
        .shift(diagonal_shift.map_or(Shift::Auto, Shift::By))
        .on_collapse(if on_collapse == "reduce" { Collapse::Reduce } else { Collapse::Restore })
        .normalize(normalize)
        .seeding(seeding_of(seeding, centers, source.0.cols())?)
        .max_iter(max_iter)
        .graph_method(method_of(graph_method)?)
        .responsibilities_memory(responsibilities_memory)
        .rng_seed(seed);
    let input = Input::new(&source.0, None)?;
    let state = state.map(|(kind, arrays, meta)| of_python(&kind, arrays, meta)).transpose()?;
    let affinity = affinity.map(|(starts, columns, weights)| {
        // What is negative becomes large, and is refused.
        let starts: Vec<usize> = vector(&starts).into_iter().map(|start| start as usize).collect();
        let columns: Vec<u32> = vector(&columns).into_iter().map(i32::cast_unsigned).collect();
        Affinity::symmetrised(&starts, &columns, &vector(&weights))
    });
    let rows = source.0.whole_effort();
    let pass = rows * source.0.cols() as f64 * n_clusters as f64;
    let affinity = affinity.transpose()?;
    let graph = if affinity.is_some() { 0.0 } else { rows * rows * source.0.cols() as f64 };
    let run = enter(py, Some(1), 0.0, |_| match &state {
        Some(state) => params.resume(state, &input),
        None => params.start(&input, affinity),
    })?;
    let loops = rows * n_clusters as f64 * 100.0;
    Ok(ModesRun { input, threads, costs: (4.0 * pass + graph + loops, pass + loops), state: Mutex::new(run) })
}

/// Responsibilities of rows that were not in a fit, whose rows are `known`. Its own are those that were kept, and their clusters; a neighbour weighs
/// `pull`, or as much as the kernel says.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "as Python passes them")]
pub(super) fn kmodes_responsibilities<'py>(
    py: Python<'py>,
    source: &Source,
    known: &Source,
    modes: &Bound<'py, PyAny>,
    responsibilities_of_known: (Bound<'py, PyAny>, PyReadonlyArray1<'py, i32>),
    n_neighbors: usize,
    pull: Option<f64>,
    bandwidth: f64,
    laplacian_weight: f64,
    normalize: bool,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let (rows, fitted) = (Input::new(&source.0, None)?, Input::new(&known.0, None)?);
    let modes = Centers::new(modes, source.0.cols())?;
    let k = modes.len() / source.0.cols();
    let (z, clusters) = responsibilities_of_known;
    let width: usize = z.getattr("shape")?.get_item(1)?.extract()?;
    let z = Centers::new(&z, width)?;
    let clusters: Vec<u32> = vector(&clusters).into_iter().map(i32::cast_unsigned).collect();
    let pull = pull.map_or(Pull::Kernel, Pull::Each);
    let cost = source.0.whole_effort() * known.0.whole_effort() * source.0.cols() as f64;
    with_centers!(&modes, values => {
        let z = Shares::of_kept(k, z.converted(), clusters, z.len() / width.max(1));
        let z = z.ok_or_else(|| PyValueError::new_err("the responsibilities of the fit do not fit its modes"))?;
        let found = enter(py, threads, cost, |cx| {
            LaplacianKModes::seen(normalize, rows.of(), |rows| {
                LaplacianKModes::seen(normalize, fitted.of(), |fitted| -> Result<_, Error> {
                    let known = Known {
                        rows: fitted,
                        modes: values,
                        responsibilities: &z,
                        n_neighbors,
                        pull,
                        bandwidth,
                        lambda: laplacian_weight,
                    };
                    responsibilities(rows, &known, cx)
                })
            })
        })?;
        array2(py, found, k)
    })
}
