//! Gaussian mixtures, fitted in time that barely grows with the number of components.

mod cells;
mod estep;
mod factors;
mod file;
mod method;
mod mixture;
mod model;
mod model_file;
mod neighborhoods;
mod params;
mod scores;
mod space;
mod starts;
mod truncated;

pub use method::{MixtureRun, MixtureSteps};
pub use mixture::Covariance;
pub use model::GaussianMixture;
pub use params::{CoresetSize, MixtureParams, Start, Stopping, TruncatedGaussianMixture};
pub use starts::MixtureStarts;
