//! Gaussian mixtures, fitted in time that barely grows with the number of components.

mod cells;
mod estep;
mod factors;
mod mixture;
mod model;
mod model_file;
mod neighborhoods;
mod params;
mod scores;
mod solver;
mod space;
mod state;
mod truncated;

pub use mixture::Covariance;
pub use model::GaussianMixture;
#[cfg(feature = "python")]
pub(crate) use model::KnownComponents;
pub use params::{
    CoresetSize, MixtureParams, MixtureRun, MixtureSteps, Start, Stopping, TruncatedGaussianMixture,
};
pub use solver::MixtureStarts;
