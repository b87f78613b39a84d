//! k-means: the sum of squared distances to the nearest center, made small.
//!
//! One file an algorithm; all exact ones have the same fixed points and give the same labels.

mod assign;
mod backward_euler;
mod batches;
mod checkpoint;
mod choice;
mod costs;
mod empty;
mod file;
mod labels;
mod lloyd;
mod minibatch;
mod model;
mod nested;
mod panel_bounds;
mod params;
mod run;
mod starts;
pub(crate) mod state;
mod variance_reduced;

#[cfg(feature = "python")]
pub(crate) use assign::transform;
pub(crate) use assign::{for_all_rows, inertia, label, nearest, predict};
pub use backward_euler::{BackwardEuler, BackwardEulerParams, BackwardEulerRun, BackwardEulerSolver};
pub(crate) use checkpoint::{check_same_rows, describe_rows, fingerprint_of};
pub use lloyd::{Lloyd, Timings};
pub use minibatch::{MiniBatch, MiniBatchParams, MiniBatchRun, MiniBatchSolver};
pub use model::KMeansModel;
pub use nested::{Bounds, Nested, NestedMiniBatch, NestedParams, NestedRun, NestedSteps};
pub use params::{Algorithm, KMeans, KMeansParams, KMeansRun, KMeansSteps, Metric};
pub(crate) use run::shape;
pub use run::{CenterSolver, FitRun, FitSteps, Method, Snapshot, StreamSolver};
pub use starts::LloydStarts;
pub use variance_reduced::{
    EpochSize, VarianceReduced, VarianceReducedParams, VarianceReducedRun, VarianceReducedSolver, Variant,
};
