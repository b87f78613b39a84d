//! Laplacian K-modes as Python calls it: parameters, what runs show, and responsibilities of new rows.

use std::collections::BTreeMap;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array::{Centers, array1, array2, signed, vector};
use super::enter::enter;
use super::persist::of_python;
use super::rows::Input;
use super::run::Run;
use super::source::Source;
use super::start::{Call, PythonMethod, StoredState, modes_of};
use crate::fit::{FitSolver, Metric, either};
use crate::kmodes::{
    Affinity, FittedRows, KModesRun, LaplacianKModes, NeighborWeight, Shares, responsibilities,
};

/// A run of Laplacian K-modes: it can also prepare its graph and begin with labels.
#[pyclass(frozen, extends = Run, module = "shoal._core")]
pub(super) struct ModesRun;

#[pymethods]
impl ModesRun {
    /// Makes the neighbor graph, if it does not exist.
    #[expect(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn prepare(this: PyRef<'_, Self>, py: Python<'_>) -> PyResult<()> {
        let run = this.as_super();
        run.enter_with(py, |run: &mut KModesRun, input, cx| run.prepare_on(input, cx))
    }

    /// Begins with labels, below 0 for rows without one. The method `name` found them in `seconds` seconds.
    #[expect(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn begin_with(
        this: PyRef<'_, Self>,
        labels: PyReadonlyArray1<'_, i32>,
        name: &str,
        seconds: f64,
    ) -> PyResult<()> {
        let labels = vector(&labels).into_iter().map(|label| u32::try_from(label).ok()).collect();
        this.as_super().with(|run: &mut KModesRun| run.begin_with_named(labels, (name, seconds)))??;
        Ok(())
    }

    /// The affinity's row starts, columns and weights.
    #[expect(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn affinity<'py>(this: PyRef<'py, Self>, py: Python<'py>) -> PyResult<[Bound<'py, PyAny>; 3]> {
        this.as_super().with(|run: &mut KModesRun| {
            let (starts, columns, weights) =
                run.affinity().map_or((&[0][..], &[][..], &[][..]), Affinity::parts);
            let starts: Vec<i64> = starts.iter().map(|&start| start as i64).collect();
            [array1(py, starts), array1(py, signed(columns.to_vec())), array1(py, weights.to_vec())]
        })
    }
}

impl PythonMethod for LaplacianKModes {
    fn start(_call: Call<'_, '_>, _py: Python<'_>) -> PyResult<Py<PyAny>> {
        Err(PyValueError::new_err("use start_modes for Laplacian K-modes"))
    }

    fn details(run: &KModesRun, to: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = to.py();
        let rows = run.mode_rows().iter().map(|&row| row.cast_signed()).collect();
        to.set_item("mode_rows", array1::<i64>(py, rows))?;
        either!(run.solver(), solver => {
            let (kept, clusters) = solver.z.kept();
            let width = (kept.len() / solver.labels.len().max(1)).max(1);
            to.set_item("responsibilities", array2(py, kept, width)?)?;
            to.set_item("responsibilities_clusters", array1(py, signed(clusters.to_vec())))?;
            let relaxed: Vec<_> = solver.relaxed.iter().map(|values| array1(py, values.clone())).collect();
            to.set_item("relaxed_energies", relaxed)?;
            to.set_item("energies", array1(py, solver.energies.clone()))?;
            to.set_item("bandwidth", solver.variance.sqrt())?;
            to.set_item("laplacian_weight", solver.lambda)?;
            to.set_item("normalize", solver.facts().metric == Metric::Cosine)?;
            to.set_item("n_neighbors", solver.n_neighbors)?;
            to.set_item("graph_method", &solver.about)?;
            to.set_item("graph_recall", solver.recall)?;
            to.set_item("collapsed", solver.collapsed)?;
            to.set_item("shifted", solver.shifted)?;
            to.set_item("blind", solver.blind)?;
            let phases: BTreeMap<_, _> = ["graph", "seeding", "iterations"].into_iter().zip(solver.timings).collect();
            to.set_item("timings", phases)
        })
    }
}

/// A sparse matrix as Python hands it over.
type Matrix<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, f64>);

/// Starts or resumes a run of Laplacian K-modes over the rows of `source`; `state` is a checkpoint.
/// `affinity` replaces the neighbor graph.
#[pyfunction]
#[pyo3(signature = (source, params, affinity, *, state = None))]
pub(super) fn start_modes(
    py: Python<'_>,
    source: &Source,
    params: &Bound<'_, PyDict>,
    affinity: Option<Matrix<'_>>,
    state: Option<StoredState<'_>>,
) -> PyResult<Py<ModesRun>> {
    let (params, given) = modes_of(source, params)?;
    let input = Input::new(&source.0, None)?;
    let state = state.map(|(kind, arrays, meta)| of_python(&kind, arrays, meta)).transpose()?;
    let affinity = affinity.map(|(starts, columns, weights)| {
        // Negative numbers become large ones, which the check below reports.
        let starts: Vec<usize> = vector(&starts).into_iter().map(|start| start as usize).collect();
        let columns: Vec<u32> = vector(&columns).into_iter().map(i32::cast_unsigned).collect();
        Affinity::symmetrized(&starts, &columns, &vector(&weights))
    });
    let affinity = affinity.transpose()?;
    let (rows, cols, k) = (source.0.whole_effort(), source.0.cols() as f64, given.n_clusters());
    let graph = if affinity.is_some() { 0.0 } else { rows * rows * cols };
    let run = enter(py, Some(1), 0.0, |_| match &state {
        Some(state) => params.resume_fit(state, &input),
        None => match affinity {
            Some(affinity) => params.start_with(&input, affinity),
            None => params.start(&input),
        },
    })?;
    // The unit is the cost of labeling a row. The inner loop visits some hundred responsibilities per row and cluster.
    let loops = 100.0 * rows / cols;
    let first = 4.0 * rows + graph / (cols * k as f64) + loops;
    let run = Run::new(run, input, (first, rows + loops), k, given.threads());
    Py::new(py, PyClassInitializer::from(run).add_subclass(ModesRun))
}

/// Stored responsibilities, and their clusters.
#[derive(FromPyObject)]
pub(super) struct StoredShares<'py>(Bound<'py, PyAny>, PyReadonlyArray1<'py, i32>);

/// The number of neighbors, the weight of each or `None` for its kernel value, the bandwidth, and the weight
/// of the Laplacian.
#[derive(Clone, Copy, FromPyObject)]
pub(super) struct Influence(usize, Option<f64>, f64, f64);

/// Responsibilities of new rows. `known` are the rows of the fit.
#[pyfunction]
pub(super) fn kmodes_responsibilities<'py>(
    source: &Bound<'py, Source>,
    known: &Source,
    modes: &Bound<'py, PyAny>,
    responsibilities_of_known: StoredShares<'py>,
    influence: Influence,
    normalize: bool,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, source) = (source.py(), source.get());
    let Influence(n_neighbors, pull, bandwidth, laplacian_weight) = influence;
    let metric = if normalize { Metric::Cosine } else { Metric::Euclidean };
    let seen = |source: &Source| Input::new(&source.0.seen_by(metric), None);
    let (rows, fitted) = (seen(source)?, seen(known)?);
    let modes = Centers::new(modes, source.0.cols())?;
    let k = modes.len() / source.0.cols();
    let StoredShares(z, clusters) = responsibilities_of_known;
    let width: usize = z.getattr("shape")?.get_item(1)?.extract()?;
    let z = Centers::new(&z, width)?;
    let clusters: Vec<u32> = vector(&clusters).into_iter().map(i32::cast_unsigned).collect();
    let pull = pull.map_or(NeighborWeight::Kernel, NeighborWeight::Each);
    let cost = source.0.whole_effort() * known.0.whole_effort() * source.0.cols() as f64;
    either!(&modes, values => {
        let z = Shares::of_kept(k, z.get(), clusters, z.len() / width.max(1));
        let z = z.ok_or_else(|| PyValueError::new_err("the responsibilities of the fit do not fit its modes"))?;
        let found = enter(py, threads, cost, |cx| {
            let known = FittedRows {
                rows: fitted.of(),
                modes: values,
                responsibilities: &z,
                n_neighbors,
                pull,
                bandwidth,
                lambda: laplacian_weight,
            };
            responsibilities(rows.of(), &known, cx)
        })?;
        array2(py, found, k)
    })
}
