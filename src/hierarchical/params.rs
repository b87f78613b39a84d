//! The parameters of hierarchical k-means.

use crate::error::Result;
use crate::fit::{Metric, parameters, run_methods};
use crate::tuning::DEFAULT_MEMORY;

/// K-means for thousands to millions of clusters. Begin with [`HierarchicalKMeans::params`].
///
/// A tree of small k-means fits gives the first centers. Sweeps then compare every row only with the centers around
/// its own, so their cost hardly grows with the number of clusters. The labels of the model are exact: those of the
/// nearest of all centers.
///
/// ```
/// use shoal::HierarchicalKMeans;
/// let rows: Vec<[f32; 2]> = (0..4000).map(|i| [(i % 40) as f32 * 9.0, (i % 7) as f32 / 10.0]).collect();
/// let model = HierarchicalKMeans::params(40).rng_seed(7).fit(&rows)?;
/// assert_eq!(model.n_clusters(), 40);
/// assert_eq!(model.predict(&rows)?, model.labels());
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HierarchicalKMeans;

parameters! {
    /// The parameters of hierarchical k-means. A fit checks all of them before it starts.
    ///
    /// See [`HierarchicalKMeans`] for an example.
    HierarchicalParams,
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    HierarchicalKMeans::params(n_clusters) {
        /// Largest number of children of a node of the tree, at least 2 (default `None`: for two levels).
        branching_factor: Option<usize> as impl Into<Option<usize>> = None => Range(|children| children >= 2, "at least 2, or none"),
        /// Number of centers around its own that a row is compared with, at least 1 (default `None`: 32, or 128 in
        /// sweeps by lists with more than 64 features). With at least
        /// `n_clusters - 1`, sweeps are those of exact k-means.
        n_candidates: Option<usize> as impl Into<Option<usize>> = None => Range(|centers| centers >= 1, "at least 1, or none"),
        /// Maximum number of sweeps after the tree (default 20); 0 for the tree alone.
        max_iter: u64 = 20,
        /// A fit ends when at most this share of the labels changes in a sweep (default `None`: 0.001, or 0.02 in
        /// sweeps by cells). With 0 it ends when no label changes.
        #[doc(alias = "tol")]
        tolerance: Option<f64> as impl Into<Option<f64>> = None => Range(|share| share.is_finite() && share >= 0.0, "finite and at least 0, or none"),
        /// The distance (default [`Metric::Euclidean`]).
        metric: Metric = Metric::Euclidean,
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
        /// Upper limit for the bytes of the rows that a node of the tree is fitted to (default 1 GB). Larger nodes
        /// are fitted to a coreset; [`HierarchicalRun::sample_rows`](super::HierarchicalRun::sample_rows) reports
        /// its size. It also limits the rows that are copied together from a mapped file larger than memory, which is
        /// read in order.
        memory_limit: u64 = DEFAULT_MEMORY => at_least_1(),
        /// Whether a fit ends with exact labels (default true). If not, the model has no labels and inertia NaN, its
        /// weights are those of the last sweep or of the tree, and a center may be nearest to no row.
        ///
        /// ```
        /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i)]).collect();
        /// let model = shoal::HierarchicalKMeans::params(9).compute_labels(false).fit(&rows)?;
        /// assert!(model.labels().is_empty() && model.inertia().is_nan());
        /// assert_eq!(model.predict(&rows)?.len(), 60);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        compute_labels: bool = true,
    }
}

impl HierarchicalParams {
    /// Checks the parameters against data of `n` rows, if their number is known, and `dim` columns.
    ///
    /// ```
    /// let params = shoal::HierarchicalKMeans::params(8).branching_factor(1).n_candidates(0).tolerance(-1.0);
    /// let refused = params.check(Some(5), 2).unwrap_err().to_string();
    /// assert!(refused.contains("n_clusters") && refused.contains("branching_factor"));
    /// assert!(refused.contains("n_candidates") && refused.contains("tolerance"));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) that lists every problem.
    pub fn check(&self, n: Option<u64>, dim: usize) -> Result<()> {
        let mut problems = self.problems(n, dim);
        if let Some(n) = n {
            // Row numbers and labels take 32 bits each.
            let most = u64::from(u32::MAX) - 1;
            problems.require(n <= most, "number of rows", format!("at most {most}"), n);
        }
        problems.into_result()
    }
}

run_methods! {
    HierarchicalParams, HierarchicalKMeans;
    /// Rows must be in memory or in a mapped file, because the tree and the sweeps visit rows in the order of their
    /// clusters.
    fit;
    /// ```
    /// use shoal::HierarchicalKMeans;
    /// let rows: Vec<[f64; 1]> = (0..600).map(|i| [f64::from(i * i % 599)]).collect();
    /// let mut run = HierarchicalKMeans::params(50).start(&rows).unwrap();
    /// while let Some(step) = run.advance(&rows).unwrap() {
    ///     println!("{}: {}", step.iteration, step.objective);
    /// }
    /// run.finish(&rows).unwrap();
    /// assert_eq!(run.certified(), Some(1.0));
    /// ```
    start;
    /// See [`KMeansParams::resume_fit`](crate::kmeans::KMeansParams::resume_fit) for an example.
    resume_fit;
    /// ```
    /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i)]).collect();
    /// for step in shoal::HierarchicalKMeans::params(9).solve(&rows).unwrap() {
    ///     println!("{:?}", step.unwrap());
    /// }
    /// ```
    solve;
}
