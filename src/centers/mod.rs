//! What all center-based methods share: assignment passes with known centers, the model, its file, and what a run shows of its centers.

#[cfg(feature = "ndarray")]
mod arrays;
mod assign;
mod file;
mod model;
mod run;
mod snapshot;

#[cfg(feature = "python")]
pub(crate) use assign::transform;
pub(crate) use assign::{inertia, label, nearest, predict};
pub use model::KMeansModel;
pub use run::CenterMethod;
pub use snapshot::Snapshot;
