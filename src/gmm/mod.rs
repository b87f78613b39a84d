//! Gaussian mixtures, fitted in time that barely grows with the number of components.

mod cells;
mod covariance;
mod densities;
mod estep;
mod factors;
mod matrices;
mod mixture;
mod model;
mod model_file;
mod nearest;
mod neighborhoods;
mod params;
mod scores;
mod solver;
mod space;
mod state;
mod truncated;
mod whole;

use crate::centers::CenterMethod;
use crate::data::Access;
use crate::error::{Error, Result};
use crate::fit::{Method, Run, Steps, either, require};
use crate::kernel::Compute;
pub use covariance::Covariance;
pub use model::GaussianMixture;
#[cfg(feature = "python")]
pub(crate) use model::KnownComponents;
pub use params::{CoresetSize, MixtureParams, Start, Stopping, TruncatedGaussianMixture};
pub use solver::MixtureStarts;

/// A fit of a mixture that advances step by step. It does not hold the data.
///
/// See [`MixtureParams::start`] for an example.
pub type MixtureRun = Run<TruncatedGaussianMixture>;

/// The steps of a fit of a mixture. See [`MixtureParams::solve`].
pub type MixtureSteps<S> = Steps<TruncatedGaussianMixture, S>;

impl MixtureRun {
    /// The lower bound after each iteration of the best start.
    pub fn lower_bounds(&self) -> &[f64] {
        either!(self.solver(), solver => solver.lower_bounds())
    }

    /// Whether a variance was raised to the floor that keeps densities finite.
    pub fn is_floored(&self) -> bool {
        either!(self.solver(), solver => solver.is_floored())
    }
}

impl Method for TruncatedGaussianMixture {
    const NAME: &'static str = "mixture";
    type Params = MixtureParams;
    type Model = GaussianMixture;
    type Solver<T: Compute> = MixtureStarts<T>;

    fn admit(params: &MixtureParams, has: Access, sparse: bool) -> Result<()> {
        require(Access::Replay, has)?;
        if sparse && params.covariance.is_by_column() {
            let expected = "\"spherical\" or \"tied_spherical\" for sparse rows";
            return Err(Error::param("covariance", expected, format!("{:?}", params.covariance.name())));
        }
        Ok(())
    }
}

impl CenterMethod for TruncatedGaussianMixture {}
