//! Thousands to millions of centers: a tree of small k-means fits, then sweeps that compare every row only with the
//! centers around its own.
//!
//! 1. Every level splits the nodes of the tree by k-means, until there are as many as clusters.
//! 2. A sweep compares every row with its own center and with centers near it, and moves centers to the means of
//!    their rows. With many rows per cluster, or in few columns, these are the centers around its own; otherwise the
//!    centers in the cells nearest to the row, and rows move if the squared error falls by moving them alone.
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

pub use params::{HierarchicalKMeans, HierarchicalParams, HierarchicalRun};
pub use solver::HierarchicalSolver;
