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
use super::run::{AnySnapshot, Run, Shown};
use super::source::Source;
use super::start::{Given, State, modes_of};
use crate::centers::Snapshot;
use crate::fit::{Metric, Timings, Typed, either};
use crate::kmodes::{Affinity, KModesRun, Known, LaplacianKModes, Pull, Shares, View, responsibilities};

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

impl Shown for LaplacianKModes {
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::params(k))
    }

    fn snapshot(run: &KModesRun) -> AnySnapshot<'_> {
        // Modes in place of centers; phases and energies are details.
        fn of<'a, T>(view: &View<'a, T>) -> Snapshot<'a, T> {
            Snapshot {
                dim: view.dim,
                metric: Metric::Euclidean,
                centers: view.modes,
                weights: &[],
                labels: view.labels.into(),
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

/// Starts or resumes a run of Laplacian K-modes over the rows of `source`; `state` is a checkpoint.
/// `affinity` replaces the neighbor graph.
#[pyfunction]
#[pyo3(signature = (source, params, affinity, *, state = None))]
pub(super) fn start_modes(
    py: Python<'_>,
    source: &Source,
    params: &Bound<'_, PyDict>,
    affinity: Option<Matrix<'_>>,
    state: Option<State<'_>>,
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
    let run = Run::new(run, input, k, given.threads()).with_steps(first, rows + loops);
    Py::new(py, PyClassInitializer::from(run).add_subclass(ModesRun))
}

/// Responsibilities of new rows. `known` are the rows of the fit, with their stored responsibilities and
/// clusters. A neighbor has the weight `pull`, or its kernel value.
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
    let metric = if normalize { Metric::Cosine } else { Metric::Euclidean };
    let seen = |source: &Source| Input::new(&source.0.seen_by(metric), None);
    let (rows, fitted) = (seen(source)?, seen(known)?);
    let modes = Centers::new(modes, source.0.cols())?;
    let k = modes.len() / source.0.cols();
    let (z, clusters) = responsibilities_of_known;
    let width: usize = z.getattr("shape")?.get_item(1)?.extract()?;
    let z = Centers::new(&z, width)?;
    let clusters: Vec<u32> = vector(&clusters).into_iter().map(i32::cast_unsigned).collect();
    let pull = pull.map_or(Pull::Kernel, Pull::Each);
    let cost = source.0.whole_effort() * known.0.whole_effort() * source.0.cols() as f64;
    either!(&modes, values => {
        let z = Shares::of_kept(k, z.get(), clusters, z.len() / width.max(1));
        let z = z.ok_or_else(|| PyValueError::new_err("the responsibilities of the fit do not fit its modes"))?;
        let found = enter(py, threads, cost, |cx| {
            let known = Known {
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
