//! Exact k-means: label every row with its nearest center, move every center to the mean of its rows, repeat.
//!
//! Sources: Lloyd, "Least squares quantization in PCM", 1982. Tolerance and empty clusters follow
//! scikit-learn. With the cosine metric, rows are normalized and centers are projected back to the unit
//! sphere (Dhillon and Modha, 2001).

pub(super) mod params;
pub(super) mod solver;
pub(super) mod starts;
mod state;

use crate::centers::{CenterMethod, KMeansModel};
use crate::fit::{Method, Run, Steps};
use crate::kernel::Compute;
pub use params::{Algorithm, KMeans, KMeansParams};
pub use solver::Lloyd;
pub use starts::LloydStarts;

/// A k-means fit that advances step by step. It does not hold the data.
///
/// See [`KMeansParams::start`] for an example.
pub type KMeansRun = Run<KMeans>;

/// The steps of a k-means fit. See [`KMeansParams::solve`].
pub type KMeansSteps<S> = Steps<KMeans, S>;

impl KMeansRun {
    /// The algorithm in use: of [`Algorithm::Auto`], what it has chosen so far.
    pub fn algorithm(&self) -> Algorithm {
        self.found_by().parse().unwrap_or_default()
    }
}

impl Method for KMeans {
    const NAME: &'static str = "kmeans";
    type Params = KMeansParams;
    type Model = KMeansModel;
    type Solver<T: Compute> = LloydStarts<T>;

    fn memory_per_row(params: &KMeansParams, n: u64) -> (&'static str, usize) {
        ("labels and seeding", 8 + params.seeding.bytes_per_row(n))
    }
}

impl CenterMethod for KMeans {}
