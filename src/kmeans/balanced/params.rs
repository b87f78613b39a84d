//! The parameters of balanced k-means.

use super::limits::{self, Size};
use crate::error::{Error, Result};
use crate::fit::{Metric, parameters, run_methods};
use crate::kmeans::lloyd::params::{Algorithm, KMeansParams};
use crate::seeding::Seeding;
use crate::tuning::DEFAULT_MEMORY;

/// K-means with limits of the sizes of clusters. Begin with [`Balanced::params`].
///
/// After exact k-means, sweeps assign rows to the centers at the least total cost at which every cluster keeps the
/// limits, and move the centers to the means, or beyond them while many labels change. If many rows have to leave their
/// nearest center, centers and prices first settle on samples. A price per cluster, added to squared distances, makes
/// the rows of full clusters choose others. The prices also give a lower bound of the inertia of all assignments that
/// keep the limits, so a fit reports how far its own is from the best one: see
/// [`BalancedRun::gap`](super::BalancedRun::gap).
///
/// The labels of a model keep the limits. [`KMeansModel::predict`](crate::KMeansModel::predict) labels rows by the
/// nearest center, without limits.
///
/// Sources: k-means with size constraints as a transportation problem: Bradley, Bennett and Demiriz, "Constrained
/// k-means clustering", 2000. Newton's method on prices: Kitagawa, Mérigot and Thibert, "Convergence of a Newton
/// algorithm for semi-discrete optimal transport", 2019. Successive shortest paths: Ahuja, Magnanti and Orlin, "Network
/// flows", 1993.
///
/// ```
/// use shoal::{Balanced, kmeans::Size};
/// let rows: Vec<[f64; 1]> = (0..90).map(|i| [f64::from(if i < 60 { i } else { 10 * i })]).collect();
/// let model = Balanced::params(3).size_min(Size::Rows(30)).size_max(Size::TimesMean(1.0)).rng_seed(7).fit(&rows)?;
/// assert_eq!(model.cluster_weights(), [30.0; 3]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[doc(alias = "BalancedKMeans")]
#[derive(Clone, Copy, Debug)]
pub struct Balanced;

parameters! {
    /// The parameters of balanced k-means. A fit checks all of them before it starts.
    ///
    /// See [`Balanced`] for an example.
    BalancedParams,
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    Balanced::params(n_clusters) {
        /// The smallest size of a cluster (default `None`: no limit). With weights, a size is a sum of weights, and a
        /// cluster may miss a limit by at most the weight of one row.
        size_min: Option<Size> as impl Into<Option<Size>> = None => Range(Size::is_valid, "a finite number of at least 0"),
        /// The largest size of a cluster (default `None`: no limit), as [`BalancedParams::size_min`]. Without any
        /// limit, a fit is one of [`KMeans`](crate::KMeans), bit for bit.
        size_max: Option<Size> as impl Into<Option<Size>> = None => Range(Size::is_valid, "a finite number of at least 0"),
        /// How the first centers are chosen (default [`Seeding::Auto`]).
        #[doc(alias = "init")]
        seeding: Seeding = Seeding::Auto,
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
        /// Number of starts of exact k-means (default 1). The one with the lowest inertia is balanced.
        n_init: u64 = 1 => at_least_1(),
        /// Maximum number of sweeps per start of exact k-means, and of sweeps with limits (default 300).
        max_iter: u64 = 300 => at_least_1(),
        /// As in [`KMeansParams::tolerance`] (default 1e-4). A fit also ends when a sweep with limits lowers the
        /// inertia by at most this share.
        #[doc(alias = "tol")]
        tolerance: f64 = 1e-4 => finite_at_least_0(),
        /// The distance (default [`Metric::Euclidean`]).
        metric: Metric = Metric::Euclidean,
        /// How sweeps of exact k-means find the nearest centers (default [`Algorithm::Auto`]). The result does not
        /// depend on it.
        algorithm: Algorithm = Algorithm::Auto,
        /// Upper limit for the bytes of the bounds (default 1 GB), as [`KMeansParams::bounds_memory`], and of the
        /// centers that rows may choose from in sweeps with limits: 52 bytes each. Every row has two of them in any
        /// case. With fewer than eight, the gap may be larger.
        bounds_memory: u64 = DEFAULT_MEMORY,
    }
}

impl BalancedParams {
    /// Checks the parameters against data of `n` rows without weights, if their number is known, and `dim` columns.
    ///
    /// ```
    /// use shoal::{Balanced, kmeans::Size};
    /// let params = Balanced::params(3).size_max(Size::Rows(30)).max_iter(0);
    /// let refused = params.check(Some(91), 2).unwrap_err().to_string();
    /// assert!(refused.starts_with("max_iter must be at least 1, got 0"));
    /// assert!(refused.ends_with("`n_clusters` * `size_max` >= 91, the number of rows, got 30, where 3 * 30 = 90"));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) that lists every problem.
    pub fn check(&self, n: Option<u64>, dim: usize) -> Result<()> {
        let checked = self.check_alone(n, dim);
        let (Some(n), true) = (n, self.n_clusters > 0) else { return checked };
        let more = limits::problems(self.asked(), self.n_clusters, n as f64, true);
        match checked {
            Err(Error::InvalidParam(mut problems)) => {
                problems.extend(more);
                Err(Error::InvalidParam(problems))
            }
            Ok(()) if !more.is_empty() => Err(Error::InvalidParam(more)),
            other => other,
        }
    }

    /// Like [`BalancedParams::check`], but does not compare the limits with the number of rows.
    pub(super) fn check_alone(&self, n: Option<u64>, dim: usize) -> Result<()> {
        let mut problems = self.problems(n, dim);
        if let (Some(n), true) = (n, self.has_limits()) {
            // Row numbers take 32 bits.
            let most = u64::from(u32::MAX) - 1;
            problems.require(n <= most, "number of rows", format!("at most {most}"), n);
        }
        problems.into_result()
    }

    pub(super) fn asked(&self) -> limits::Asked {
        (self.size_min, self.size_max)
    }

    pub(super) fn has_limits(&self) -> bool {
        self.size_min.is_some() || self.size_max.is_some()
    }

    /// The parameters of exact k-means.
    pub(super) fn exact(&self) -> KMeansParams {
        exact_params!(self, n_clusters: self.n_clusters, n_init: self.n_init, max_iter: self.max_iter)
    }
}

run_methods! {
    BalancedParams, Balanced;
    fit;
    /// A step is a sweep, at first of exact k-means.
    start;
    /// See [`KMeansParams::resume_fit`](crate::kmeans::KMeansParams::resume_fit) for an example.
    resume_fit;
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// for step in shoal::Balanced::params(2).solve(&rows).unwrap() {
    ///     println!("{:?}", step.unwrap());
    /// }
    /// ```
    solve;
}
