//! This module knows the parameters of k-means, and how a fit is put together from them.

use super::starts::LloydStarts;
use crate::centers::{CenterMethod, KMeansModel, Snapshot};
use crate::data::Access;
use crate::error::{Error, Result};
use crate::fit::{Element, Method, Metric, Run, Steps, run_methods};
use crate::kernel::MAX_CENTERS;
use crate::matrix::make_room;
use crate::persist::Contents;
use crate::seeding::Seeding;

/// Exact k-means. [`KMeans::params`] is where it starts.
///
/// ```
/// use shoal::{KMeans, Seeding};
/// let rows = [[0.0f32, 0.0], [0.2, 0.0], [9.0, 9.0], [9.0, 9.2]];
/// let model = KMeans::params(2).seeding(Seeding::PlusPlus { greedy: true }).rng_seed(7).fit(&rows).unwrap();
/// assert_eq!(model.predict(&rows).unwrap(), model.labels());
/// assert!((model.inertia() - 0.04).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KMeans;

impl KMeans {
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    pub fn params(n_clusters: usize) -> KMeansParams {
        KMeansParams {
            n_clusters,
            seeding: Seeding::Auto,
            seed: 0,
            n_init: 1,
            max_iter: 300,
            tolerance: 1e-4,
            metric: Metric::Euclidean,
            algorithm: Algorithm::Auto,
            bounds_memory: 1_000_000_000,
            threads: None,
        }
    }
}

/// How a sweep finds the nearest centers. All give the same labels at every sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// What is likely the fastest for the data: begins with plain sweeps, takes bounds once the share of labels that change says that they pay, and gives
    /// them up where the distances that they measure say that they do not.
    #[default]
    Auto,
    /// All distances.
    Lloyd,
    /// Choose for many clusters in more than a few columns: a bound for each row and panel of centers (after Ding et al., 2015), and few
    /// distances once the centers have begun to settle.
    Yinyang,
    /// Choose for many columns and not too many clusters: a bound for each row and center (after Elkan, 2003), tested a panel at a time. They
    /// save more than the others, and take about `4 n k` bytes; where `bounds_memory` does not hold them, it is as [`Algorithm::Yinyang`].
    Elkan,
    /// Choose when bounds must be few: one a row (Hamerly, 2010); rows for which it fails meet all centers.
    Hamerly,
    /// Choose for hundreds of clusters in up to 16 columns, if rows of one cluster come together: as [`Algorithm::Hamerly`], but rows meet only
    /// centers about their own one (Newling and Fleuret, 2016). With more columns it is the same as that.
    Exponion,
}

impl Algorithm {
    /// The name that Python and the command line use.
    ///
    /// ```
    /// assert_eq!(shoal::Algorithm::Yinyang.name(), "yinyang");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Lloyd => "lloyd",
            Self::Yinyang => "yinyang",
            Self::Elkan => "elkan",
            Self::Hamerly => "hamerly",
            Self::Exponion => "exponion",
        }
    }

    /// The algorithm of that name.
    ///
    /// ```
    /// assert_eq!(shoal::Algorithm::named("lloyd"), Some(shoal::Algorithm::Lloyd));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Auto, Self::Lloyd, Self::Yinyang, Self::Elkan, Self::Hamerly, Self::Exponion];
        all.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// The parameters of k-means; checked all together before any work.
///
/// See [`KMeans`] for an example.
#[derive(Clone, Debug)]
pub struct KMeansParams {
    pub(super) n_clusters: usize,
    pub(super) seeding: Seeding,
    pub(super) seed: u64,
    pub(super) n_init: u64,
    pub(super) max_iter: u64,
    pub(super) tolerance: f64,
    pub(super) metric: Metric,
    pub(super) algorithm: Algorithm,
    pub(super) bounds_memory: u64,
    pub(super) threads: Option<usize>,
}

impl KMeansParams {
    /// How the first centers are chosen (default [`Seeding::Auto`]).
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

    /// Number of starts, of which the one with the lowest inertia wins (default 1).
    #[must_use]
    pub fn n_init(mut self, n: u64) -> Self {
        self.n_init = n;
        self
    }

    /// Most sweeps of a start (default 300).
    #[must_use]
    pub fn max_iter(mut self, n: u64) -> Self {
        self.max_iter = n;
        self
    }

    /// A start ends when the squared length of all centers' moves is at most this times the mean variance of the columns (default 1e-4,
    /// as scikit-learn; 0 goes on until no label changes).
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// How a sweep finds the nearest centers (default [`Algorithm::Auto`]). The result does not depend on it.
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// The most bytes that bounds may take (default 1 GB): with fewer, several panels of centers share one, down to plain sweeps.
    #[must_use]
    pub fn bounds_memory(mut self, bytes: u64) -> Self {
        self.bounds_memory = bytes;
        self
    }

    /// What "near" means (default [`Metric::Euclidean`]).
    #[must_use]
    pub fn metric(mut self, metric: Metric) -> Self {
        self.metric = metric;
        self
    }

    /// Number of threads (default: as [`Executor::new`] with `None`). The result does not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: Option<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// Checks the parameters against data of `n` rows and `d` columns.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] that lists everything that is wrong.
    pub fn check(&self, n: u64, d: usize) -> Result<()> {
        let mut wrong = Vec::new();
        if self.n_clusters == 0 || self.n_clusters > MAX_CENTERS {
            wrong.push(format!("n_clusters must be in 1..={MAX_CENTERS}, got {}", self.n_clusters));
        } else if self.n_clusters as u64 > n {
            wrong.push(format!("n_clusters={} must be at most the number of rows, {n}", self.n_clusters));
        }
        if self.n_init == 0 {
            wrong.push("n_init must be at least 1, got 0".into());
        }
        if self.max_iter == 0 {
            wrong.push("max_iter must be at least 1, got 0".into());
        }
        if !self.tolerance.is_finite() || self.tolerance < 0.0 {
            wrong.push(format!("tol must be a finite number of at least 0, got {}", self.tolerance));
        }
        if d == 0 {
            wrong.push("X must have at least 1 column, got 0".into());
        }
        if wrong.is_empty() { Ok(()) } else { Err(Error::InvalidParam(wrong)) }
    }
}

run_methods! {
    KMeansParams, KMeans;
    fit;
    /// ```
    /// use shoal::KMeans;
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let mut run = KMeans::params(2).start(&rows).unwrap();
    /// while let Some(step) = run.advance(&rows).unwrap() {
    ///     println!("{}: {}", step.iteration, step.objective);
    /// }
    /// assert_eq!(run.into_model().inertia(), 1.0);
    /// ```
    start;
    /// ```
    /// use shoal::KMeans;
    /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i * i % 59)]).collect();
    /// let params = KMeans::params(5);
    /// let mut run = params.start(&rows).unwrap();
    /// run.advance(&rows).unwrap();
    /// let checkpoint = run.checkpoint(&rows).unwrap();
    ///
    /// let mut again = params.resume_fit(&checkpoint, &rows).unwrap();
    /// for run in [&mut run, &mut again] {
    ///     while run.advance(&rows).unwrap().is_some() {}
    /// }
    /// assert_eq!(run.centers::<f64>(), again.centers::<f64>());
    /// assert_eq!(run.history().len(), again.history().len());
    /// ```
    resume_fit;
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// for step in shoal::KMeans::params(2).solve(&rows).unwrap() {
    ///     println!("{:?}", step.unwrap());
    /// }
    /// ```
    solve;
}

/// A k-means fit on its way. It does not hold the data.
///
/// See [`KMeansParams::start`] for an example.
pub type KMeansRun = Run<KMeans>;

/// The steps of a k-means fit. See [`KMeansParams::solve`].
pub type KMeansSteps<'a, S> = Steps<'a, KMeans, S>;

impl KMeansRun {
    /// The algorithm in use: of [`Algorithm::Auto`], what it has chosen so far.
    pub fn algorithm(&self) -> Algorithm {
        Algorithm::named(self.found_by()).unwrap_or_default()
    }
}

impl Method for KMeans {
    type Params = KMeansParams;
    type Model = KMeansModel;
    type Solver<T: Element> = LloydStarts<T>;

    fn needs(_params: &KMeansParams) -> Access {
        Access::Replay
    }

    fn check(params: &KMeansParams, n: Option<u64>, dim: usize) -> Result<()> {
        params.check(n.unwrap_or_default(), dim)?;
        // A fit allocates this later, where failure would end the process.
        let a_row = 8 + params.seeding.bytes_a_row();
        make_room(&mut Vec::<u8>::new(), "labels and seeding", n.unwrap_or_default(), a_row)?;
        Ok(())
    }

    fn threads(params: &KMeansParams) -> Option<usize> {
        params.threads
    }

    fn solver<T: Element>(params: &KMeansParams) -> LloydStarts<T> {
        LloydStarts::plan(params)
    }

    fn of_checkpoint<T: Element>(
        params: &KMeansParams,
        contents: &Contents,
    ) -> Result<LloydStarts<T>, String> {
        LloydStarts::of_checkpoint(params, contents)
    }
}

impl CenterMethod for KMeans {
    fn snapshot<T: Element>(solver: &LloydStarts<T>) -> Snapshot<'_, T> {
        solver.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Timings;
    use crate::parallel::Executor;

    #[test]
    fn timings_are_those_of_all_starts() {
        let rows: Vec<[f64; 2]> =
            (0..6000).map(|i| [f64::from(i * 7919 % 1009), f64::from(i * 31 % 97)]).collect();
        let params = KMeans::params(20).seeding(Seeding::Random).n_init(6).tolerance(0.0).threads(Some(1));
        let mut run = params.start(&rows).unwrap();
        let cx = Executor::new(Some(1)).unwrap();
        let mut before = 0.0;
        let total = |Timings { seeding, sweeps, finish }| seeding + sweeps + finish;
        while let Some(step) = run.advance_on(&rows, &cx).unwrap() {
            // Seconds are never lost, whichever start they belong to.
            let now = total(run.timings());
            assert!(now >= before && now <= step.elapsed, "{before} {now} {}", step.elapsed);
            before = now;
        }
        assert_eq!(total(run.model().timings()), before);
        assert_eq!(total(run.into_model().timings()), before);
    }
}
