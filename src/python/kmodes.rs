//! Laplacian K-modes as Python calls it: parameters, what runs show, and responsibilities of new rows.

use std::collections::BTreeMap;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array::{Centers, array1, array2, signed, vector, with_centers};
use super::enter::enter;
use super::graph::method_of;
use super::kmeans::{State, seeding_of};
use super::persist::of_python;
use super::rows::Input;
use super::run::{AnySnapshot, Run, Shown};
use super::source::Source;
use crate::centers::Snapshot;
use crate::error::{Error, Result};
use crate::fit::{Metric, Timings, Typed, either};
use crate::kmodes::{
    Affinity, Collapse, KModesRun, Known, LaplacianKModes, ModeUpdate, Pull, Shares, Shift, View,
    responsibilities, seen,
};

/// A run of Laplacian K-modes: it can also prepare its graph and begin with labels.
#[pyclass(frozen, extends = Run, module = "shoal._core")]
pub(super) struct ModesRun;

#[pymethods]
impl ModesRun {
    /// Makes the neighbor graph, if it does not exist.
    fn prepare(this: PyRef<'_, Self>, py: Python<'_>) -> PyResult<()> {
        let run = this.as_super();
        run.enter_with(py, |run: &mut KModesRun, input, cx| run.prepare_on(input, cx))
    }

    /// Begins with labels, below 0 for rows without one, that were found by `name` in so many seconds.
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
    fn affinity<'py>(this: PyRef<'py, Self>, py: Python<'py>) -> PyResult<[Bound<'py, PyAny>; 3]> {
        this.as_super().with(|run: &mut KModesRun| {
            let (starts, columns, weights) =
                run.affinity().map_or((&[0][..], &[][..], &[][..]), Affinity::parts);
            let starts: Vec<i64> = starts.iter().map(|&start| start as i64).collect();
            [array1(py, starts), array1(py, signed(columns.to_vec())), array1(py, weights.to_vec())]
        })
    }
}

impl Shown for LaplacianKModes {
    fn snapshot(run: &KModesRun) -> AnySnapshot<'_> {
        // Modes in place of centers; phases and energies are details.
        fn of<'a, T>(view: &View<'a, T>) -> Snapshot<'a, T> {
            Snapshot {
                dim: view.dim,
                metric: Metric::Euclidean,
                centers: view.modes,
                weights: &[],
                labels: view.labels,
                inertia: f64::NAN,
                n_iter: view.n_iter,
                n_steps: view.n_iter,
                seeded_by: view.seeded_by,
                algorithm: "slk",
                timings: Timings::default(),
            }
        }
        match run.solver() {
            Typed::F32(solver) => Typed::F32(of(&solver.view())),
            Typed::F64(solver) => Typed::F64(of(&solver.view())),
        }
    }

    fn details<'py>(run: &KModesRun, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        let rows = run.mode_rows().iter().map(|&row| row.cast_signed()).collect();
        details.set_item("mode_rows", array1::<i64>(py, rows))?;
        either!(run.solver(), solver => {
            let view = solver.view();
            let (kept, clusters) = view.responsibilities.kept();
            let width = (kept.len() / view.labels.len().max(1)).max(1);
            details.set_item("responsibilities", array2(py, kept, width)?)?;
            details.set_item("responsibilities_clusters", array1(py, signed(clusters.to_vec())))?;
            let relaxed: Vec<_> = view.relaxed.iter().map(|values| array1(py, values.clone())).collect();
            details.set_item("relaxed_energies", relaxed)?;
            details.set_item("energies", array1(py, view.energies.to_vec()))?;
            details.set_item("bandwidth", view.variance.sqrt())?;
            details.set_item("laplacian_weight", view.lambda)?;
            details.set_item("graph_method", view.about)?;
            details.set_item("graph_recall", view.recall)?;
            details.set_item("collapsed", view.collapsed)?;
            details.set_item("shifted", view.shifted)?;
            details.set_item("blind", view.blind)?;
            let phases: BTreeMap<_, _> = ["graph", "seeding", "iterations"].into_iter().zip(view.timings).collect();
            details.set_item("timings", phases)?;
        });
        Ok(details)
    }
}

/// A sparse matrix as Python hands it over.
type Matrix<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, f64>);

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
) -> PyResult<Py<ModesRun>> {
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
    let cols = source.0.cols() as f64;
    let affinity = affinity.transpose()?;
    let graph = if affinity.is_some() { 0.0 } else { rows * rows * cols };
    let run = enter(py, Some(1), 0.0, |_| match &state {
        Some(state) => params.resume_fit(state, &input),
        None => match affinity {
            Some(affinity) => params.start_with(&input, affinity),
            None => params.start(&input),
        },
    })?;
    // In rows that are labelled: the inner loop looks at some hundred responsibilities for each row and cluster.
    let loops = 100.0 * rows / cols;
    let run = Run::new(run, input, n_clusters, threads)
        .with_steps(4.0 * rows + graph / (cols * n_clusters as f64) + loops, rows + loops);
    Py::new(py, PyClassInitializer::from(run).add_subclass(ModesRun))
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
            seen(normalize, rows.of(), |rows| {
                seen(normalize, fitted.of(), |fitted| -> Result<_, Error> {
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
