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

use crate::centers::{CenterMethod, KMeansModel};
use crate::fit::{Method, Run, either};
use crate::kernel::Compute;
pub use params::{EpochSize, VarianceReduced, VarianceReducedParams, Variant};
pub use solver::VarianceReducedSolver;

/// A variance-reduced fit that advances step by step. It does not hold the data.
///
/// See [`VarianceReducedParams::start`].
pub type VarianceReducedRun = Run<VarianceReduced>;

impl VarianceReducedRun {
    /// The learning rate of the last epoch; `None` before the first.
    ///
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let params = shoal::VarianceReduced::params(2).learning_rate(Some(0.25));
    /// let mut run = params.start(&rows).unwrap();
    /// run.advance(&rows).unwrap();
    /// assert_eq!(run.learning_rate(), Some(0.25));
    /// ```
    pub fn learning_rate(&self) -> Option<f64> {
        either!(self.solver(), solver => solver.learning_rate())
    }
}

impl Method for VarianceReduced {
    const NAME: &'static str = "variance-reduced";
    type Params = VarianceReducedParams;
    type Model = KMeansModel;
    type Solver<T: Compute> = VarianceReducedSolver<T>;

    fn labels_at_end(_params: &VarianceReducedParams) -> bool {
        true
    }

    fn memory_per_row(params: &VarianceReducedParams, n: u64) -> (&'static str, usize) {
        ("labels and seeding", 8 + params.seeding.bytes_per_row(n))
    }
}

impl CenterMethod for VarianceReduced {}
