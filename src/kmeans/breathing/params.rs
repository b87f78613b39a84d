//! The parameters of breathing k-means.

use crate::fit::{Metric, parameters, run_methods};
use crate::kmeans::lloyd::params::{Algorithm, KMeansParams};
use crate::seeding::Seeding;
use crate::tuning::DEFAULT_MEMORY;

/// Most sweeps of any other run of exact k-means of a breathing fit, as of a start of k-means.
pub(super) const BREATH_RUN_SWEEPS: u64 = 300;

/// Breathing k-means: exact k-means that leaves its local minimum. Begin with [`Breathing::params`].
///
/// After exact k-means, a fit breathes. It adds `m` centers to the clusters with the largest squared error, and runs
/// exact k-means. Then it removes the `m` centers that are missed least, and runs exact k-means again. A breath that
/// does not lower the inertia is undone. After three such breaths in a row `m` is lowered by one, until it is 0. The
/// inertia is never above that of [`KMeans`](crate::KMeans) with the same seed.
///
/// Source: Fritzke, "The breathing k-means algorithm", 2020 (arXiv 2006.15666). There, `m` is lowered after each breath
/// that fails. Here, the second and the third try add centers to clusters drawn by their error.
///
/// ```
/// use shoal::{Breathing, KMeans};
/// let rows: Vec<[f64; 2]> = (0..600).map(|i| [f64::from(i % 20 * 9 + i * i % 5), f64::from(i % 3)]).collect();
/// let breathing = Breathing::params(20).rng_seed(3).fit(&rows)?;
/// assert!(breathing.inertia() <= KMeans::params(20).rng_seed(3).fit(&rows)?.inertia());
/// # Ok::<(), shoal::Error>(())
/// ```
#[doc(alias = "BreathingKMeans")]
#[derive(Clone, Copy, Debug)]
pub struct Breathing;

parameters! {
    /// The parameters of breathing k-means. A fit checks all of them before it starts.
    ///
    /// See [`Breathing`] for an example.
    BreathingParams,
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    Breathing::params(n_clusters) {
        /// Centers that the first breath adds and removes (default 5), at most as many as there are clusters. More
        /// of them find lower minima and take longer. With 0, a fit is one start of [`KMeans`](crate::KMeans).
        m: usize = 5,
        /// How the first centers are chosen (default [`Seeding::Auto`]).
        #[doc(alias = "init")]
        seeding: Seeding = Seeding::Auto,
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
        /// Maximum number of sweeps, over all breaths (default 3000).
        max_iter: u64 = 3000 => at_least_1(),
        /// As in [`KMeansParams::tolerance`], for all runs of exact k-means but the last, which continues to a
        /// hundredth of it (default 1e-4). A breath that lowers the inertia by at most this share counts as one that
        /// fails.
        #[doc(alias = "tol")]
        tolerance: f64 = 1e-4 => finite_at_least_0(),
        /// The distance (default [`Metric::Euclidean`]).
        ///
        /// ```
        /// use shoal::{Breathing, Metric};
        /// let rows: Vec<[f64; 2]> = (1..99).map(|i| if i % 2 == 0 { [f64::from(i), 0.0] } else { [0.0, 1.0] }).collect();
        /// let model = Breathing::params(2).metric(Metric::Cosine).fit(&rows)?;
        /// assert_eq!(model.inertia(), 0.0);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        metric: Metric = Metric::Euclidean,
        /// How a sweep finds the nearest centers (default [`Algorithm::Auto`]). The result does not depend on it.
        algorithm: Algorithm = Algorithm::Auto,
        /// Upper limit for the bytes of the bounds (default 1 GB). See [`KMeansParams::bounds_memory`].
        bounds_memory: u64 = DEFAULT_MEMORY,
    }
    /// ```
    /// let params = shoal::Breathing::params(8).max_iter(0).tolerance(-1.0);
    /// let refused = params.check(Some(5), 2).unwrap_err().to_string();
    /// assert!(["n_clusters", "max_iter", "tolerance"].iter().all(|name| refused.contains(name)));
    /// ```
    check;
}

impl BreathingParams {
    /// The parameters of a run of exact k-means with `k` centers.
    pub(super) fn run_of(&self, k: usize) -> KMeansParams {
        exact_params!(self, n_clusters: k, n_init: 1, max_iter: BREATH_RUN_SWEEPS)
    }
}

run_methods! {
    BreathingParams, Breathing;
    fit;
    /// A step is a sweep. The model of a run is the best clustering so far.
    start;
    /// See [`KMeansParams::resume_fit`](crate::kmeans::KMeansParams::resume_fit) for an example.
    resume_fit;
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// for step in shoal::Breathing::params(2).solve(&rows).unwrap() {
    ///     println!("{:?}", step.unwrap());
    /// }
    /// ```
    solve;
}
