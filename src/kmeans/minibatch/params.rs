//! The parameters of mini-batch k-means.

use crate::error::Result;
use crate::fit::{Metric, parameters, run_methods, stream_methods};
use crate::seeding::Seeding;

/// Mini-batch k-means: every center is the mean of all rows that were ever assigned to it. Begin with
/// [`MiniBatch::params`].
///
/// Each step labels a whole batch with the current centers, then adds its rows to the sums. A center starts
/// as one row, its seed. With batches of one row, this method is online stochastic gradient descent (Bottou
/// and Bengio, 1995).
///
/// Source: Sculley, "Web-scale k-means clustering", 2010. Early stopping and the reassignment of centers with
/// few rows are as in scikit-learn, the half-life is as in Spark's streaming k-means.
///
/// ```
/// use shoal::MiniBatch;
/// let rows: Vec<[f32; 2]> = (0..400).map(|i| [(i % 2) as f32 * 9.0 + (i % 7) as f32 / 10.0, 1.0]).collect();
/// let model = MiniBatch::params(2).batch_size(50).rng_seed(7).fit(&rows).unwrap();
/// assert_eq!(model.labels()[0], model.labels()[2]);
/// assert_ne!(model.labels()[0], model.labels()[1]);
/// ```
#[doc(alias = "MiniBatchKMeans")]
#[derive(Clone, Copy, Debug)]
pub struct MiniBatch;

parameters! {
    /// The parameters of mini-batch k-means. A fit checks all of them before it starts.
    ///
    /// See [`MiniBatch`] for an example.
    MiniBatchParams,
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    MiniBatch::params(n_clusters) {
        /// How the first centers are chosen. The default, [`Seeding::Auto`], is greedy k-means++ on up to 3 batches of
        /// rows, or 16 rows per cluster if that is more. On more rows it is k-means|| with an oversampling of 1 and 3
        /// rounds, which takes 16 bytes per row. More than 67,108,864 rows take as long and at most 1 GiB.
        #[doc(alias = "init")]
        seeding: Seeding = Seeding::Auto,
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
        /// Rows per batch of a fit (default 1024), at most the number of rows.
        batch_size: u64 = 1024 => at_least_1(),
        /// The distance (default [`Metric::Euclidean`]). With [`Metric::Cosine`] a center is the direction of the
        /// sum of all rows that were ever assigned to it, each scaled to length 1.
        ///
        /// ```
        /// use shoal::{Metric, MiniBatch};
        /// let rows: Vec<[f64; 2]> = (1..99).map(|i| if i % 2 == 0 { [f64::from(i), 0.0] } else { [0.0, 1.0] }).collect();
        /// let model = MiniBatch::params(2).metric(Metric::Cosine).fit(&rows)?;
        /// let mut centers = model.centers::<f64>();
        /// centers.sort_by(f64::total_cmp);
        /// assert_eq!(centers, [0.0, 0.0, 1.0, 1.0]);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        metric: Metric = Metric::Euclidean,
        /// Maximum number of epochs: a fit draws at most this many times the number of rows (default 100).
        max_iter: u64 = 100 => at_least_1(),
        /// A fit ends after a batch whose squared center movements sum up to at most this times the mean
        /// variance of the columns in the first batch (default 0: the rule is off). Every movement is short
        /// after a batch of few rows: use `max_no_improvement` for such batches.
        #[doc(alias = "tol")]
        tolerance: f64 = 0.0 => finite_at_least_0(),
        /// A fit ends after this many consecutive batches without a new lowest inertia per row, smoothed over
        /// an epoch, but not before it has drawn as many rows as there are (default 10; `None`: the rule is off).
        max_no_improvement: Option<u64> = Some(10),
        /// About every `10 n_clusters` rows, centers whose weight is below this share of the largest weight
        /// restart at random rows of the batch (default 0.01), unless removing them would cost more squared error than
        /// one more center elsewhere saves. With 0 no center restarts, as in Sculley's algorithm.
        reassignment_ratio: f64 = 0.01 => from_0_to_1(),
        /// Number of rows after which the weight of earlier rows has halved (default `None`: weights do not decay).
        half_life: Option<f64> = None => Range(|rows| rows.is_finite() && rows > 0.0, "a finite number of rows above 0, or none"),
        /// Number of seedings (default 1). The seeding with the lowest inertia on a random sample wins. Given
        /// centers are used once.
        ///
        /// ```
        /// use shoal::{MiniBatch, Seeding};
        /// let rows: Vec<[f64; 1]> = (0..300).map(|i| [f64::from(i % 3) * 50.0 + f64::from(i) / 300.0]).collect();
        /// let params = MiniBatch::params(3).seeding(Seeding::Random).n_init(30).reassignment_ratio(0.0);
        /// assert!(params.fit(&rows).unwrap().inertia() < 100.0);
        /// ```
        n_init: u64 = 1 => at_least_1(),
        /// Number of rows of the random samples for seeding and for comparing seedings, at least
        /// `n_clusters`. Default `None`: all rows for seeding (see `seeding`), and 3 batches, or 16 rows
        /// per cluster if that is more, for the comparison.
        ///
        /// ```
        /// let params = shoal::MiniBatch::params(3).init_size(Some(2));
        /// let refused = params.check(None, 1).unwrap_err().to_string();
        /// assert_eq!(refused, "init_size must be at least n_clusters, 3, or none, got 2");
        /// ```
        init_size: Option<u64> = None,
        /// Whether [`MiniBatchParams::fit`] ends with a pass for labels and inertia (default true).
        compute_labels: bool = true,
    }
}

impl MiniBatchParams {
    /// Checks the parameters against data of `n` rows, if their number is known, and `dim` columns.
    ///
    /// ```
    /// let refused = shoal::MiniBatch::params(8).batch_size(0).half_life(Some(-1.0)).check(Some(5), 2).unwrap_err().to_string();
    /// assert!(refused.contains("n_clusters") && refused.contains("batch_size") && refused.contains("half_life"));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) that lists every problem.
    pub fn check(&self, n: Option<u64>, dim: usize) -> Result<()> {
        let (k, mut problems) = (self.n_clusters as u64, self.problems(n, dim));
        if let Some(rows) = self.init_size {
            problems.require(rows >= k, "init_size", format!("at least n_clusters, {k}, or none"), rows);
        }
        problems.into_result()
    }
}

run_methods! {
    MiniBatchParams, MiniBatch;
    /// Rows with random access are drawn with replacement, with odds proportional to their weights; a drawn
    /// row counts 1. Rows of a stream are taken in consecutive batches and count their weight. For a stream
    /// that can be read only once, the model has no labels and no inertia.
    fit;
    start;
    /// See [`KMeansParams::resume_fit`](crate::kmeans::KMeansParams::resume_fit) for an example.
    resume_fit;
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// for step in shoal::MiniBatch::params(2).max_iter(3).solve(&rows).unwrap() {
    ///     println!("{:?}", step.unwrap());
    /// }
    /// ```
    solve;
}

stream_methods! {
    MiniBatchParams, MiniBatch;
    /// ```
    /// use shoal::{MiniBatch, Seeding};
    /// // Every first center counts as one row.
    /// let params = MiniBatch::params(2).seeding(Seeding::Given(vec![0.0, 10.0]));
    /// let batches = [vec![[1.0f64], [9.0]], vec![[2.0], [8.0], [0.5]]];
    /// let mut run = params.stream(&batches[0]).unwrap();
    /// for batch in &batches {
    ///     run.partial_fit(batch).unwrap();
    /// }
    /// assert_eq!(run.centers::<f64>(), [(0.0 + 1.0 + 2.0 + 0.5) / 4.0, (10.0 + 9.0 + 8.0) / 3.0]);
    /// ```
    stream;
    /// ```
    /// use shoal::MiniBatch;
    /// let params = MiniBatch::params(2);
    /// let mut run = params.stream(&[[0.0f64], [9.0]]).unwrap();
    /// run.partial_fit(&[[0.0f64], [9.0]]).unwrap();
    /// let mut again = params.resume(&run.state()).unwrap();
    /// for run in [&mut run, &mut again] {
    ///     run.partial_fit(&[[1.0f64], [8.0]]).unwrap();
    /// }
    /// assert_eq!(run.centers::<f64>(), again.centers::<f64>());
    /// ```
    resume;
}
