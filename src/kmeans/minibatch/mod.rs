//! Mini-batch k-means: every center is the mean of all rows that were ever assigned to it.

mod params;
mod progress;
mod solver;
mod starving;
mod state;
mod tolerance;

use crate::centers::{CenterMethod, KMeansModel};
use crate::fit::{Method, Run};
use crate::kernel::Compute;
pub use params::{MiniBatch, MiniBatchParams};
pub use solver::MiniBatchSolver;

/// A mini-batch fit that advances step by step. It does not hold the data.
///
/// See [`MiniBatchParams::start`] and [`MiniBatchParams::stream`].
pub type MiniBatchRun = Run<MiniBatch>;

impl Method for MiniBatch {
    const NAME: &'static str = "minibatch";
    type Params = MiniBatchParams;
    type Model = KMeansModel;
    type Solver<T: Compute> = MiniBatchSolver<T>;

    fn labels_at_end(params: &MiniBatchParams) -> bool {
        params.compute_labels
    }
}

impl CenterMethod for MiniBatch {}
