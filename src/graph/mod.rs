//! Nearest-neighbor graphs: exact by brute force or k-d tree, or approximate by a coarse partition.
//!
//! For every method, distances are computed by difference in `f64`, a row is not its own neighbor, and the
//! lower index comes first among equal distances. All exact methods therefore return the same graph.

mod brute;
mod cells;
mod lists;
mod tree;

use crate::data::{Access, DataSource, Source, count_rows};
use crate::error::Result;
use crate::fit::{Problems, require};
use crate::float::either;
use crate::kernel::Compute;
use crate::names::names;
use crate::parallel::Executor;

pub(crate) use brute::{frame, nearest_rows, packed};

/// Whether a k-d tree finds the neighbors of `n` rows faster than brute force: with more columns it visits
/// more of the rows.
pub(crate) fn tree_pays(n: u64, dim: usize) -> bool {
    dim <= 16 && n as f64 >= 256.0 * 2f64.powf(dim as f64 / 2.0)
}

/// Whether brute force for `n` rows takes at most minutes, by its number of multiplications.
fn brute_force_pays(n: u64, dim: usize) -> bool {
    0.5 * n as f64 * n as f64 * dim as f64 <= 1e13
}

/// The method that finds neighbors.
///
/// ```
/// use shoal::graph::GraphMethod;
/// assert_eq!((GraphMethod::Cells.to_string(), "kd-tree".parse().ok()), ("ivf".to_owned(), Some(GraphMethod::Tree)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphMethod {
    /// The default: the tree for few columns, brute force if it takes at most minutes, else cells.
    #[default]
    Auto,
    /// For many columns: brute force over all pairs of rows.
    Exact,
    /// For dense rows with few columns: a k-d tree. Exact.
    Tree,
    /// For very many rows: rows search only the nearest cells of a coarse k-means partition. Approximate.
    Cells,
}

names! {
    GraphMethod("graph_method") {
        Auto = "auto",
        Exact = "exact",
        Tree = "kd-tree",
        Cells = "ivf",
    }
}

impl GraphMethod {
    /// The method used for `n` rows of `d` columns, sparse or not.
    fn chosen(self, n: u64, d: usize, sparse: bool) -> Self {
        match self {
            Self::Auto if !sparse && tree_pays(n, d) => Self::Tree,
            Self::Auto if brute_force_pays(n, d) => Self::Exact,
            Self::Auto => Self::Cells,
            given => given,
        }
    }
}

/// The nearest neighbors of every row.
///
/// ```
/// use shoal::graph::{GraphMethod, KnnGraph};
/// let rows = [[0.0f64], [1.0], [5.0]];
/// let graph = KnnGraph::of(&rows, 1, GraphMethod::Auto, 0.95, &shoal::Executor::new(None).unwrap()).unwrap();
/// assert_eq!((graph.neighbors(), graph.sq_dists()), (&[1, 0, 1][..], &[1.0, 1.0, 16.0][..]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct KnnGraph {
    pub(crate) n_neighbors: usize,
    pub(crate) neighbors: Vec<u32>,
    pub(crate) sq_dists: Vec<f64>,
    pub(crate) about: About,
}

/// How a graph was computed.
///
/// ```
/// use shoal::graph::{GraphMethod, KnnGraph};
/// let graph = KnnGraph::of(&[[0.0f32], [2.0]], 1, GraphMethod::Exact, 0.95, &shoal::Executor::new(None).unwrap()).unwrap();
/// assert_eq!((graph.about().method, graph.about().recall), (GraphMethod::Exact, 1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct About {
    /// The method that found the neighbors.
    pub method: GraphMethod,
    /// The share of true neighbors that was found, measured on a sample of the rows. 1 for exact methods.
    pub recall: f64,
    /// Number of cells of the partition; 0 without a partition.
    pub n_cells: usize,
    /// Number of cells that each row searched; 0 without a partition.
    pub n_probes: usize,
}

impl About {
    /// The description of an exact graph.
    fn exact(method: GraphMethod) -> Self {
        Self { method, recall: 1.0, n_cells: 0, n_probes: 0 }
    }
}

impl KnnGraph {
    /// The `n_neighbors` nearest other rows of every row. An approximate method probes enough cells to find
    /// the share `recall` of them, as measured on a sample.
    ///
    /// See [`KnnGraph`] for an example.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if `n_neighbors` is 0 or not below the number of
    /// rows, or `recall` is outside `(0, 1]`. [`Error::Source`](crate::Error::Source) for a source without
    /// [`Access::Random`]. [`Error::NotFinite`](crate::Error::NotFinite) for NaN or infinite values. Errors of
    /// the source.
    pub fn of<S: Source>(
        rows: S,
        n_neighbors: usize,
        method: GraphMethod,
        recall: f64,
        cx: &Executor,
    ) -> Result<Self> {
        either!(rows.any(), data => knn_graph(data, n_neighbors, method, recall, cx))
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.neighbors.len() / self.n_neighbors
    }

    /// Number of neighbors per row.
    pub fn n_neighbors(&self) -> usize {
        self.n_neighbors
    }

    /// The neighbors of all rows, row by row, nearest first.
    pub fn neighbors(&self) -> &[u32] {
        &self.neighbors
    }

    /// Their squared distances, in the same order.
    pub fn sq_dists(&self) -> &[f64] {
        &self.sq_dists
    }

    /// The graph of the `m` nearest of these neighbors.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub(crate) fn nearest(self, m: usize) -> Self {
        let width = self.n_neighbors;
        assert!(m <= width, "at most as many neighbors as there are");
        if m == width {
            return self;
        }
        let neighbors = self.neighbors.chunks_exact(width).flat_map(|of_row| &of_row[..m]).copied().collect();
        let sq_dists = self.sq_dists.chunks_exact(width).flat_map(|of_row| &of_row[..m]).copied().collect();
        Self { n_neighbors: m, neighbors, sq_dists, ..self }
    }

    /// How the graph was computed.
    pub fn about(&self) -> About {
        self.about
    }
}

/// Implements [`KnnGraph::of`].
pub(crate) fn knn_graph<T: Compute>(
    data: &dyn DataSource<T>,
    m: usize,
    method: GraphMethod,
    recall: f64,
    cx: &Executor,
) -> Result<KnnGraph> {
    require(Access::Random, data.access())?;
    let n = count_rows(data)?;
    let sparse = data.most_values().is_some();
    let mut problems = Problems::new();
    problems.columns(data.dim());
    problems.neighbors(m, Some(n));
    problems.require(recall > 0.0 && recall <= 1.0, "recall", "above 0 and at most 1", recall);
    let most = format!("at most {} for a graph", u32::MAX - 1);
    problems.require(n < u64::from(u32::MAX), "number of rows", most, n);
    let fits = !(sparse && method == GraphMethod::Tree);
    problems.require(
        fits,
        "graph_method",
        "\"exact\" or \"ivf\" for sparse rows",
        format!("{:?}", method.name()),
    );
    problems.into_result()?;
    let method = method.chosen(n, data.dim(), sparse);
    let (lists, about) = match method {
        GraphMethod::Tree => (tree::neighbors(data, m, cx)?, About::exact(method)),
        GraphMethod::Cells => cells::neighbors(data, m, recall, cx)?,
        _ => (brute::neighbors(data, m, cx)?, About::exact(GraphMethod::Exact)),
    };
    Ok(lists.into_graph(about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_need_columns() {
        let cx = Executor::new(Some(1)).unwrap();
        for method in [GraphMethod::Auto, GraphMethod::Exact, GraphMethod::Tree, GraphMethod::Cells] {
            let error = KnnGraph::of(&[[0.0f32; 0]; 3], 1, method, 0.95, &cx).unwrap_err();
            assert_eq!(error.to_string(), "columns must be at least 1, got 0");
        }
    }
}
