//! k-means: minimizes the sum of squared distances from rows to their nearest centers.
//!
//! One file or folder per algorithm. All exact algorithms have the same fixed points and return the same
//! labels.

/// The snapshot of a solver whose sweeps label all rows, from its fields.
macro_rules! snapshot_of_sweeps {
    ($solver:expr) => {
        Snapshot {
            dim: $solver.dim,
            metric: $solver.params.metric,
            centers: &$solver.centers,
            weights: &$solver.weights,
            labels: $solver.labels.of_rows.view(),
            inertia: $solver.energy,
            n_iter: $solver.iteration,
            n_steps: $solver.iteration,
            seeded_by: &$solver.seeded_by,
            algorithm: $solver.choice.algorithm.name(),
            timings: $solver.timings,
        }
    };
}

mod backward_euler;
mod balanced;
mod batches;
mod blocks;
mod bounds;
mod breathing;
mod choice;
mod costs;
mod empty;
mod labels;
mod lloyd;
mod minibatch;
mod nested;
mod stored_sums;
mod variance_reduced;

pub use backward_euler::{BackwardEuler, BackwardEulerParams, BackwardEulerRun, BackwardEulerSolver};
pub use balanced::{Balanced, BalancedParams, BalancedRun, BalancedSolver, Size};
pub use breathing::{Breathing, BreathingParams, BreathingRun, BreathingSolver};
pub use lloyd::{Algorithm, KMeans, KMeansParams, KMeansRun, KMeansSteps, Lloyd, LloydStarts};
pub use minibatch::{MiniBatch, MiniBatchParams, MiniBatchRun, MiniBatchSolver};
pub use nested::{Bounds, Nested, NestedMiniBatch, NestedParams, NestedRun, NestedSteps};
pub(crate) use stored_sums::{keep_sums, sums_of};
pub use variance_reduced::{
    EpochSize, VarianceReduced, VarianceReducedParams, VarianceReducedRun, VarianceReducedSolver, Variant,
};
