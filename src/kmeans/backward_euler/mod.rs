//! Stochastic backward Euler: implicit steps, whose ends are found by inner iterations on mini-batches.

mod fit;
mod params;
mod solver;
mod state;
#[cfg(test)]
mod tests;
mod trajectory;

pub use params::{BackwardEuler, BackwardEulerParams, BackwardEulerRun};
pub use solver::BackwardEulerSolver;
