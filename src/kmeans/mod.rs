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

/// Parameters of exact k-means, from those of a method that has them too, except the named ones.
macro_rules! exact_params {
    ($params:expr, $($name:ident: $value:expr),+) => {
        KMeansParams {
            $($name: $value,)+
            seeding: $params.seeding.clone(),
            rng_seed: $params.rng_seed,
            tolerance: $params.tolerance,
            metric: $params.metric,
            algorithm: $params.algorithm,
            bounds_memory: Some($params.bounds_memory),
            threads: $params.threads,
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
mod sketches;
mod stored_sums;
mod sweeps;
mod variance_reduced;

pub use backward_euler::{BackwardEuler, BackwardEulerParams, BackwardEulerRun, BackwardEulerSolver};
pub use balanced::{Balanced, BalancedParams, BalancedRun, BalancedSolver, Size};
pub use breathing::{Breathing, BreathingParams, BreathingRun, BreathingSolver};
pub use lloyd::{Algorithm, KMeans, KMeansParams, KMeansRun, KMeansSteps, Lloyd, LloydStarts};
pub use minibatch::{MiniBatch, MiniBatchParams, MiniBatchRun, MiniBatchSolver};
pub use nested::{Bounds, Nested, NestedMiniBatch, NestedParams, NestedRun, NestedSteps};
pub(crate) use stored_sums::{keep_sums, sums_of};
pub(crate) use sweeps::Sweeps;
pub use variance_reduced::{
    EpochSize, VarianceReduced, VarianceReducedParams, VarianceReducedRun, VarianceReducedSolver, Variant,
};
