//! The nearest neighbours of every row: exact by brute force or by a tree, or approximate by way of a coarse partition.
//!
//! Whatever finds them, distances are by difference in `f64`, a row is no neighbour of its own, and among equal distances the lower index comes
//! first: an exact graph is one graph, whoever makes it.

mod brute;
mod cells;
mod lists;
mod tree;

use crate::data::{Access, AnySource, DataSource, Own, Source, count_rows};
use crate::error::{Error, Result};
use crate::fit::require;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::tuning::{brute_force_pays, tree_pays};

pub(crate) use brute::nearest_rows;

/// How neighbours are found.
///
/// ```
/// use shoal::graph::GraphMethod;
/// assert_eq!(GraphMethod::named("kd-tree"), Some(GraphMethod::Tree));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphMethod {
    /// Choose when in doubt: the tree in few columns, brute force while that takes minutes at most, else cells.
    #[default]
    Auto,
    /// Choose for many columns: every pair of rows is looked at once, at the speed of the processor.
    Exact,
    /// Choose for few columns, dense ones: exact too.
    Tree,
    /// Choose for very many rows: rows look only into the cells of a coarse k-means partition that are nearest to them. Approximate.
    Cells,
}

impl GraphMethod {
    /// The method of that name.
    ///
    /// ```
    /// assert_eq!(shoal::graph::GraphMethod::named("magic"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        [Self::Auto, Self::Exact, Self::Tree, Self::Cells].into_iter().find(|method| method.name() == name)
    }

    /// The name that Python and the command line show.
    ///
    /// ```
    /// assert_eq!(shoal::graph::GraphMethod::Cells.name(), "ivf");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Exact => "exact",
            Self::Tree => "kd-tree",
            Self::Cells => "ivf",
        }
    }

    /// The method that is used for `n` rows of `d` columns, sparse or not.
    fn chosen(self, n: u64, d: usize, sparse: bool) -> Self {
        match self {
            Self::Auto if !sparse && tree_pays(n, d) => Self::Tree,
            Self::Auto if brute_force_pays(n, d) => Self::Exact,
            Self::Auto => Self::Cells,
            given => given,
        }
    }
}

/// The nearest neighbours of every row.
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

/// How a graph was made.
///
/// ```
/// use shoal::graph::{GraphMethod, KnnGraph};
/// let graph = KnnGraph::of(&[[0.0f32], [2.0]], 1, GraphMethod::Exact, 0.95, &shoal::Executor::new(None).unwrap()).unwrap();
/// assert_eq!((graph.about().method, graph.about().recall), (GraphMethod::Exact, 1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct About {
    /// What found the neighbours.
    pub method: GraphMethod,
    /// The share of the true neighbours that was found, as measured on a sample of the rows; 1 where all of them are found for sure.
    pub recall: f64,
    /// Cells of the partition, and how many of them each row looked into; 0 where there is none.
    pub n_cells: usize,
    /// See `n_cells`.
    pub n_probes: usize,
}

impl About {
    /// That of a graph that is exact.
    fn exact(method: GraphMethod) -> Self {
        Self { method, recall: 1.0, n_cells: 0, n_probes: 0 }
    }
}

impl KnnGraph {
    /// The `n_neighbors` nearest other rows of every row. An approximate method looks until it finds the share `recall` of them, as
    /// measured on a sample.
    ///
    /// See [`KnnGraph`] for an example.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] for an `n_neighbors` that is 0 or not below the number of rows, and for a `recall` outside `(0, 1]`;
    /// [`Error::Source`] for a source without [`Access::Random`]; [`Error::NotFinite`], and those of the source.
    pub fn of<S: Source>(
        rows: S,
        n_neighbors: usize,
        method: GraphMethod,
        recall: f64,
        cx: &Executor,
    ) -> Result<Self> {
        match rows.any() {
            AnySource::F32(data) => knn_graph(data, n_neighbors, method, recall, cx),
            AnySource::F64(data) => knn_graph(data, n_neighbors, method, recall, cx),
        }
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.neighbors.len() / self.n_neighbors
    }

    /// Neighbours of a row.
    pub fn n_neighbors(&self) -> usize {
        self.n_neighbors
    }

    /// The neighbours of all rows, row by row, nearest first.
    pub fn neighbors(&self) -> &[u32] {
        &self.neighbors
    }

    /// Their squared distances, in the same order.
    pub fn sq_dists(&self) -> &[f64] {
        &self.sq_dists
    }

    /// How the graph was made.
    pub fn about(&self) -> About {
        self.about
    }
}

/// See [`KnnGraph::of`].
pub(crate) fn knn_graph<T: Compute + Own>(
    data: &dyn DataSource<T>,
    m: usize,
    method: GraphMethod,
    recall: f64,
    cx: &Executor,
) -> Result<KnnGraph> {
    require(Access::Random, data.access())?;
    let n = count_rows(data)?;
    let mut problems = Vec::new();
    if m == 0 || m as u64 >= n {
        problems
            .push(format!("n_neighbors must be at least 1 and less than the number of rows, {n}, got {m}"));
    }
    if !(recall > 0.0 && recall <= 1.0) {
        problems.push(format!("recall must be above 0 and at most 1, got {recall}"));
    }
    if n >= u64::from(u32::MAX) {
        problems.push(format!("a graph of {n} rows is too large: at most {} are possible", u32::MAX - 1));
    }
    let sparse = data.most_values().is_some();
    if sparse && method == GraphMethod::Tree {
        problems
            .push("method=\"kd-tree\" is for dense rows: use \"exact\" or \"ivf\" for sparse ones".into());
    }
    if !problems.is_empty() {
        return Err(Error::InvalidParam(problems));
    }
    let method = method.chosen(n, data.dim(), sparse);
    let (lists, about) = match method {
        GraphMethod::Tree => (tree::neighbors(data, m, cx)?, About::exact(method)),
        GraphMethod::Cells => cells::neighbors(data, m, recall, cx)?,
        _ => (brute::neighbors(data, m, cx)?, About::exact(GraphMethod::Exact)),
    };
    Ok(lists.into_graph(about))
}
