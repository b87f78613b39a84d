//! Thousands to millions of centers: a tree of small k-means fits, then sweeps that compare every row only with the
//! centers around its own.
//!
//! 1. Every level splits the nodes of the tree by k-means, until there are as many as clusters.
//! 2. A sweep compares the rows of a cluster with its center and the centers around it, and moves the
//!    centers to the means of their rows.
//! 3. The last pass labels all rows exactly. The triangle inequality proves some labels without it: no center outside
//!    the list of a row can be nearer than the best of the list.
//!
//! Sources: quota trees as in vector databases; refinement by neighbor lists after Deng and Zhao, "Fast k-means based
//! on k-NN graph", 2018.

mod ending;
mod file;
mod lists;
mod moves;
mod params;
mod solver;
#[cfg(test)]
mod tests;

pub use params::{HierarchicalKMeans, HierarchicalParams, HierarchicalRun};
pub use solver::HierarchicalSolver;
