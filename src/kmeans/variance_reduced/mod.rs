//! Variance-reduced k-means: sweeps, with many small steps between them.

mod draws;
mod ending;
mod inner;
mod moving;
mod packing;
mod params;
mod solver;
mod state;
mod stepping;
#[cfg(test)]
mod tests;

pub use params::{EpochSize, VarianceReduced, VarianceReducedParams, VarianceReducedRun, Variant};
pub use solver::VarianceReducedSolver;
