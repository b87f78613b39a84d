//! Balanced k-means: limits of the sizes of clusters.

mod ascent;
mod assign;
mod limits;
mod lists;
mod params;
mod repair;
mod solver;
mod state;
#[cfg(test)]
mod tests;
mod transport;

pub use limits::Size;
pub use params::{Balanced, BalancedParams, BalancedRun};
pub use solver::BalancedSolver;
