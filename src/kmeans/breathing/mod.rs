//! Breathing k-means: adds centers and removes others, to leave a local minimum of exact k-means.

mod centers;
mod params;
mod passes;
mod solver;
mod state;
#[cfg(test)]
mod tests;

use crate::centers::{CenterMethod, KMeansModel};
use crate::fit::{Method, Run, either};
use crate::kernel::Compute;
pub use params::{Breathing, BreathingParams};
pub use solver::BreathingSolver;

/// A fit by breathing k-means that advances step by step. It does not hold the data.
///
/// See [`BreathingParams::start`].
pub type BreathingRun = Run<Breathing>;

impl BreathingRun {
    /// The number of breaths so far.
    ///
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let mut run = shoal::Breathing::params(1).start(&rows).unwrap();
    /// while run.advance(&rows).unwrap().is_some() {}
    /// // The mean of all rows cannot be improved.
    /// assert_eq!((run.n_breaths(), run.start_inertia()), (0, run.inertia()));
    /// ```
    pub fn n_breaths(&self) -> u64 {
        either!(self.solver(), solver => solver.n_breaths())
    }

    /// The inertia before the first breath; NaN until exact k-means has ended for the first time.
    ///
    /// See [`BreathingRun::n_breaths`] for an example.
    pub fn start_inertia(&self) -> f64 {
        either!(self.solver(), solver => solver.start_inertia())
    }
}

impl Method for Breathing {
    const NAME: &'static str = "breathing";
    type Params = BreathingParams;
    type Model = KMeansModel;
    type Solver<T: Compute> = BreathingSolver<T>;

    fn memory_per_row(params: &BreathingParams, n: u64) -> (&'static str, usize) {
        ("labels and seeding", 12 + params.seeding.bytes_per_row(n))
    }
}

impl CenterMethod for Breathing {}
