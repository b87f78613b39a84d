//! Thousands to millions of centers: a tree of small k-means fits, then sweeps that compare every row only with the
//! centers around its own.
//!
//! 1. Every level splits the nodes of the tree by k-means, until there are as many as clusters.
//! 2. A sweep compares every row with its own center and with centers near it, and moves centers to the means of
//!    their rows. With many rows per cluster, or in few columns, these are the centers around its own; otherwise the
//!    centers in the cells nearest to the row, and rows move if the squared error falls by moving them alone. Before
//!    new lists are made, near clusters are merged where splitting others saves more.
//! 3. The last pass labels all rows exactly. The triangle inequality proves some labels without it: no center outside
//!    the list of a row can be nearer than the best of the list.
//!
//! Sources: quota trees as in vector databases; refinement by neighbor lists after Deng and Zhao, "Fast k-means based
//! on k-NN graph", 2018; moves of single rows: Hartigan, "Clustering Algorithms", 1975.

mod ending;
mod lists;
mod moves;
mod params;
mod solver;
mod state;
#[cfg(test)]
mod tests;

use self::solver::LISTED;
use crate::centers::{CenterMethod, KMeansModel};
use crate::error::Result;
use crate::fit::{Method, Run, either};
use crate::kernel::Compute;
use crate::matrix::make_room;
pub use params::{HierarchicalKMeans, HierarchicalParams};
pub use solver::HierarchicalSolver;

/// A hierarchical k-means fit that advances step by step: a step is a level of the tree, or a sweep. It does not hold
/// the data.
///
/// See [`HierarchicalParams::start`] for an example.
pub type HierarchicalRun = Run<HierarchicalKMeans>;

impl HierarchicalRun {
    /// The share of the rows whose label was proven by the lists of centers alone, before the last pass compared the
    /// other rows with all centers. `None` before [`Run::finish`]. 0 after sweeps by cells, which prove nothing.
    ///
    /// See [`HierarchicalParams::start`] for an example.
    pub fn certified(&self) -> Option<f64> {
        either!(self.solver(), solver => solver.certified())
    }

    /// The largest number of rows that a node of the tree was fitted to: the number of all rows, unless the first
    /// level used a coreset.
    ///
    /// ```
    /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i)]).collect();
    /// let mut run = shoal::HierarchicalKMeans::params(9).start(&rows).unwrap();
    /// run.advance(&rows).unwrap();
    /// assert_eq!(run.sample_rows(), 60);
    /// ```
    pub fn sample_rows(&self) -> u64 {
        either!(self.solver(), solver => solver.sample_rows())
    }
}

impl Method for HierarchicalKMeans {
    const NAME: &'static str = "hierarchical";
    type Params = HierarchicalParams;
    type Model = KMeansModel;
    type Solver<T: Compute> = HierarchicalSolver<T>;

    fn labels_at_end(params: &HierarchicalParams) -> bool {
        params.compute_labels
    }

    fn check_memory(params: &HierarchicalParams, n: Option<u64>) -> Result<()> {
        make_room(&mut Vec::<u8>::new(), "labels and groups of rows", n.unwrap_or_default(), 32)?;
        let lists = 32 * params.n_candidates.unwrap_or(LISTED).min(params.n_clusters);
        make_room(&mut Vec::<u8>::new(), "lists of centers", params.n_clusters as u64, lists)
    }
}

impl CenterMethod for HierarchicalKMeans {}
