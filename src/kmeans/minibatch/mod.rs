//! Mini-batch k-means: every center is the mean of all rows that were ever assigned to it.

mod params;
mod progress;
mod solver;
mod starving;
mod state;
mod tolerance;

pub use params::{MiniBatch, MiniBatchParams, MiniBatchRun};
pub use solver::MiniBatchSolver;
