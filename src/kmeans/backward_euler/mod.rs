//! Stochastic backward Euler: implicit steps, whose ends are found by inner iterations on mini-batches.

mod fit;
mod params;
mod solver;
mod state;
#[cfg(test)]
mod tests;
mod trajectory;

use crate::centers::{CenterMethod, KMeansModel};
use crate::fit::{Method, Run, either};
use crate::kernel::Compute;
pub use params::{BackwardEuler, BackwardEulerParams};
pub use solver::BackwardEulerSolver;

/// A fit by stochastic backward Euler that advances step by step. It does not hold the data.
///
/// See [`BackwardEulerParams::start`] and [`BackwardEulerParams::stream`].
pub type BackwardEulerRun = Run<BackwardEuler>;

impl BackwardEulerRun {
    /// The step size of each outer step of a fit.
    pub fn step_sizes(&self) -> &[f64] {
        either!(self.solver(), solver => solver.step_sizes())
    }

    /// Clusters that get fewer than a hundredth of the rows of the mean cluster, measured over some 100
    /// batches. Their centers hardly move, because steps are shorter for clusters with fewer rows. Empty
    /// until enough rows have been seen, and after sweeps over all rows.
    ///
    /// ```
    /// use shoal::{BackwardEuler, Seeding};
    /// let rows: Vec<[f64; 1]> = (0..2000).map(|i| [f64::from(i % 7)]).collect();
    /// let start = Seeding::Given(vec![1.0, 4.0, 99.0]);
    /// let mut run = BackwardEuler::params(3).seeding(start).polish(false).start(&rows).unwrap();
    /// while run.advance(&rows).unwrap().is_some() {}
    /// assert_eq!(run.starved(), [2]);
    /// ```
    pub fn starved(&self) -> Vec<u32> {
        either!(self.solver(), solver => solver.starved())
    }
}

impl Method for BackwardEuler {
    const NAME: &'static str = "backward-euler";
    type Params = BackwardEulerParams;
    type Model = KMeansModel;
    type Solver<T: Compute> = BackwardEulerSolver<T>;

    fn labels_at_end(params: &BackwardEulerParams) -> bool {
        params.compute_labels
    }
}

impl CenterMethod for BackwardEuler {}
