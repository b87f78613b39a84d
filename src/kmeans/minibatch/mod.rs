//! This module knows the parameters of mini-batch k-means, and how a fit is put together from them.

mod file;
mod progress;
mod solver;

use crate::centers::{CenterMethod, KMeansModel, Snapshot};
use crate::data::Access;
use crate::error::{Error, Result};
use crate::fit::{
    Element, MergeMethod, Method, Run, StreamMethod, StreamSolver, run_methods, stream_methods,
};
use crate::kernel::MAX_CENTERS;
use crate::persist::Contents;
use crate::seeding::Seeding;

pub use solver::MiniBatchSolver;

/// Mini-batch k-means: every center is the mean of all rows that were ever assigned to it. [`MiniBatch::params`] is where it starts.
///
/// A batch is labelled as a whole with the present centers; then its rows are added to the sums. A center begins as one row, its seed. With a
/// batch of one row this is online stochastic gradient descent (Bottou and Bengio, 1995).
///
/// Source: Sculley, "Web-scale k-means clustering", 2010. Early stopping and the reassignment of starving centers as in scikit-learn, the
/// half-life as in Spark's streaming k-means.
///
/// ```
/// use shoal::MiniBatch;
/// let rows: Vec<[f32; 2]> = (0..400).map(|i| [(i % 2) as f32 * 9.0 + (i % 7) as f32 / 10.0, 1.0]).collect();
/// let model = MiniBatch::params(2).batch_size(50).rng_seed(7).fit(&rows).unwrap();
/// assert_eq!(model.labels()[0], model.labels()[2]);
/// assert_ne!(model.labels()[0], model.labels()[1]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MiniBatch;

impl MiniBatch {
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    pub fn params(n_clusters: usize) -> MiniBatchParams {
        MiniBatchParams {
            n_clusters,
            seeding: Seeding::Auto,
            seed: 0,
            batch_size: 1024,
            max_iter: 100,
            tolerance: 0.0,
            max_no_improvement: Some(10),
            reassignment_ratio: 0.01,
            half_life: None,
            n_init: 1,
            init_size: None,
            compute_labels: true,
            threads: None,
        }
    }
}

/// The parameters of mini-batch k-means; checked all together before any work.
///
/// See [`MiniBatch`] for an example.
#[derive(Clone, Debug)]
pub struct MiniBatchParams {
    n_clusters: usize,
    seeding: Seeding,
    seed: u64,
    batch_size: u64,
    max_iter: u64,
    tolerance: f64,
    max_no_improvement: Option<u64>,
    reassignment_ratio: f64,
    half_life: Option<f64>,
    n_init: usize,
    init_size: Option<u64>,
    compute_labels: bool,
    threads: Option<usize>,
}

impl MiniBatchParams {
    /// How the first centers are chosen (default [`Seeding::Auto`]: greedy k-means++ on a sample of a few batches).
    #[must_use]
    pub fn seeding(mut self, seeding: Seeding) -> Self {
        self.seeding = seeding;
        self
    }

    /// Seed of all random draws (default 0).
    #[must_use]
    pub fn rng_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Rows of a batch of a fit (default 1024); more than there are rows is all of them, drawn with replacement.
    #[must_use]
    pub fn batch_size(mut self, rows: u64) -> Self {
        self.batch_size = rows;
        self
    }

    /// Most passes: a fit draws at most this many times as many rows as there are (default 100).
    #[must_use]
    pub fn max_iter(mut self, n: u64) -> Self {
        self.max_iter = n;
        self
    }

    /// A fit ends when the squared length of all centers' moves, smoothed over a pass, is at most this times the mean variance of the columns
    /// in the first batch (default 0: no such rule).
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// A fit ends after this many batches in a row without a new lowest inertia a row, smoothed over a pass (default 10; `None`: no such
    /// rule).
    #[must_use]
    pub fn max_no_improvement(mut self, batches: Option<u64>) -> Self {
        self.max_no_improvement = batches;
        self
    }

    /// About every `10 n_clusters` rows, centers that count less than this share of the one that counts most begin anew at random rows of
    /// the batch (default 0.01; 0: never, which is Sculley's algorithm and nothing else).
    #[must_use]
    pub fn reassignment_ratio(mut self, ratio: f64) -> Self {
        self.reassignment_ratio = ratio;
        self
    }

    /// Rows after which what came before counts half (default `None`: nothing is forgotten).
    #[must_use]
    pub fn half_life(mut self, rows: Option<f64>) -> Self {
        self.half_life = rows;
        self
    }

    /// Number of seedings; the one with the lowest inertia on a random sample wins (default 1). Given centers are used once.
    ///
    /// ```
    /// use shoal::{MiniBatch, Seeding};
    /// let rows: Vec<[f64; 1]> = (0..300).map(|i| [f64::from(i % 3) * 50.0 + f64::from(i) / 300.0]).collect();
    /// let params = MiniBatch::params(3).seeding(Seeding::Random).n_init(30).reassignment_ratio(0.0);
    /// assert!(params.fit(&rows).unwrap().inertia() < 100.0);
    /// ```
    #[must_use]
    pub fn n_init(mut self, starts: usize) -> Self {
        self.n_init = starts;
        self
    }

    /// Rows of the random samples that first centers are chosen from and compared on, at least `n_clusters` (default `None`: 3 batches, or 16
    /// rows a cluster if that is more, for [`Seeding::Auto`] and for comparing, and all rows for other seedings).
    ///
    /// ```
    /// let params = shoal::MiniBatch::params(3).init_size(Some(2));
    /// assert!(params.check(None, 1).unwrap_err().to_string().contains("init_size must be at least n_clusters=3, got 2"));
    /// ```
    #[must_use]
    pub fn init_size(mut self, rows: Option<u64>) -> Self {
        self.init_size = rows;
        self
    }

    /// Whether [`MiniBatchParams::fit`] ends with a pass for labels and inertia (default true).
    #[must_use]
    pub fn compute_labels(mut self, wanted: bool) -> Self {
        self.compute_labels = wanted;
        self
    }

    /// Number of threads (default: as [`Executor::new`] with `None`). The result does not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: Option<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// Checks the parameters against data of `d` columns and, where that is known, `n` rows.
    ///
    /// ```
    /// let refused = shoal::MiniBatch::params(8).batch_size(0).half_life(Some(-1.0)).check(Some(5), 2).unwrap_err().to_string();
    /// assert!(refused.contains("n_clusters=8") && refused.contains("batch_size") && refused.contains("half_life"));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`] that lists everything that is wrong.
    pub fn check(&self, n: Option<u64>, d: usize) -> Result<()> {
        let mut wrong = Vec::new();
        if self.n_clusters == 0 || self.n_clusters > MAX_CENTERS {
            wrong.push(format!("n_clusters must be in 1..={MAX_CENTERS}, got {}", self.n_clusters));
        } else if n.is_some_and(|n| self.n_clusters as u64 > n) {
            let n = n.unwrap_or_default();
            wrong.push(format!("n_clusters={} must be at most the number of rows, {n}", self.n_clusters));
        }
        for (name, value) in [("batch_size", self.batch_size), ("max_iter", self.max_iter)] {
            if value == 0 {
                wrong.push(format!("{name} must be at least 1, got 0"));
            }
        }
        if self.n_init == 0 {
            wrong.push("n_init must be at least 1, got 0".into());
        }
        if let Some(rows) = self.init_size.filter(|&rows| rows < self.n_clusters as u64) {
            wrong.push(format!("init_size must be at least n_clusters={}, got {rows}", self.n_clusters));
        }
        if !self.tolerance.is_finite() || self.tolerance < 0.0 {
            wrong.push(format!("tol must be a finite number of at least 0, got {}", self.tolerance));
        }
        if !(0.0..=1.0).contains(&self.reassignment_ratio) {
            wrong.push(format!("reassignment_ratio must be from 0 to 1, got {}", self.reassignment_ratio));
        }
        if let Some(rows) = self.half_life.filter(|&rows| !(rows.is_finite() && rows > 0.0)) {
            wrong.push(format!("half_life must be a finite number of rows above 0, or none, got {rows}"));
        }
        if d == 0 {
            wrong.push("X must have at least 1 column, got 0".into());
        }
        if wrong.is_empty() { Ok(()) } else { Err(Error::InvalidParam(wrong)) }
    }
}

run_methods! {
    MiniBatchParams, MiniBatch;
    /// Rows with random access are drawn with replacement, by weight where there are weights; a drawn row counts 1. Rows that come in passes
    /// are taken in consecutive batches, and count their weight; those that can be read once are left without labels and inertia.
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
    /// use shoal::MiniBatch;
    /// let batches = [vec![[0.0f64], [9.0]], vec![[1.0], [8.0], [0.5]]];
    /// let mut run = MiniBatch::params(2).rng_seed(1).stream(&batches[0]).unwrap();
    /// for batch in &batches {
    ///     run.partial_fit(batch).unwrap();
    /// }
    /// let mut centers = run.centers::<f64>();
    /// centers.sort_by(f64::total_cmp);
    /// assert_eq!(centers, [(0.0 + 0.0 + 1.0 + 0.5) / 4.0, (9.0 + 9.0 + 8.0) / 3.0]);
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

/// A mini-batch fit on its way. It does not hold the data.
///
/// See [`MiniBatchParams::start`] and [`MiniBatchParams::stream`].
pub type MiniBatchRun = Run<MiniBatch>;

impl Method for MiniBatch {
    type Params = MiniBatchParams;
    type Model = KMeansModel;
    type Solver<T: Element> = MiniBatchSolver<T>;

    fn needs(_params: &MiniBatchParams) -> Access {
        Access::Once
    }

    fn labels_at_end(params: &MiniBatchParams) -> bool {
        params.compute_labels
    }

    fn check(params: &MiniBatchParams, n: Option<u64>, dim: usize) -> Result<()> {
        params.check(n, dim)
    }

    fn threads(params: &MiniBatchParams) -> Option<usize> {
        params.threads
    }

    fn solver<T: Element>(params: &MiniBatchParams) -> MiniBatchSolver<T> {
        MiniBatchSolver::new(params.clone())
    }

    fn of_checkpoint<T: Element>(
        params: &MiniBatchParams,
        contents: &Contents,
    ) -> Result<MiniBatchSolver<T>, String> {
        MiniBatchSolver::of_checkpoint(params.clone(), contents)
    }
}

impl CenterMethod for MiniBatch {
    fn snapshot<T: Element>(solver: &MiniBatchSolver<T>) -> Snapshot<'_, T> {
        solver.snapshot()
    }
}

impl StreamMethod for MiniBatch {
    fn stream<T: Element>(solver: &MiniBatchSolver<T>) -> &dyn StreamSolver<T, Model = KMeansModel> {
        solver
    }

    fn stream_mut<T: Element>(
        solver: &mut MiniBatchSolver<T>,
    ) -> &mut dyn StreamSolver<T, Model = KMeansModel> {
        solver
    }

    fn for_batches(params: &MiniBatchParams) -> MiniBatchParams {
        params.clone().n_init(1)
    }

    fn of_state<T: Element>(
        params: &MiniBatchParams,
        state: &Contents,
    ) -> Result<MiniBatchSolver<T>, String> {
        MiniBatchSolver::restored(params.clone(), state)
    }
}

impl MergeMethod for MiniBatch {
    fn merge<T: Element>(solver: &mut MiniBatchSolver<T>, other: &Contents) -> Result<()> {
        solver.merge(other)
    }
}
