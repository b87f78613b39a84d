//! Neighbor graphs for Python.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use super::array::{array1, signed};
use super::enter::enter;
use super::rows::Input;
use super::source::Source;
use crate::graph::{GraphMethod, KnnGraph};

/// Neighbors and squared distances, row by row, then the method and its figures.
type GraphParts<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, &'static str, BTreeMap<&'static str, f64>);

#[pyfunction]
pub(super) fn knn_graph<'py>(
    py: Python<'py>,
    source: &Source,
    n_neighbors: usize,
    method: &str,
    recall: f64,
    threads: Option<usize>,
) -> PyResult<GraphParts<'py>> {
    let method: GraphMethod = method.parse()?;
    let input = Input::new(&source.0, None)?;
    let rows = source.0.whole_effort();
    let cost = rows * rows * source.0.cols() as f64;
    let graph = enter(py, threads, cost, |cx| KnnGraph::of(&input, n_neighbors, method, recall, cx))?;
    let about = graph.about();
    let figures =
        [("recall", about.recall), ("n_cells", about.n_cells as f64), ("n_probes", about.n_probes as f64)];
    let KnnGraph { neighbors, sq_dists, .. } = graph;
    Ok((array1(py, signed(neighbors)), array1(py, sq_dists), about.method.name(), figures.into()))
}
