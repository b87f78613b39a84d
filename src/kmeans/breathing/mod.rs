//! Breathing k-means: adds centers and removes others, to leave a local minimum of exact k-means.

mod centers;
mod params;
mod passes;
mod solver;
mod state;
#[cfg(test)]
mod tests;

pub use params::{Breathing, BreathingParams, BreathingRun};
pub use solver::BreathingSolver;
