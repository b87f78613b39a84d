//! The parameters of exact k-means.

use crate::error::Result;
use crate::fit::{Metric, parameters, run_methods};
use crate::names::names;
use crate::seeding::Seeding;

/// Exact k-means. Begin with [`KMeans::params`].
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

/// How a sweep finds the nearest centers. All algorithms give the same labels in every sweep.
///
/// ```
/// use shoal::Algorithm;
/// assert_eq!(Algorithm::Yinyang.to_string(), "yinyang");
/// assert_eq!("lloyd".parse::<Algorithm>()?, Algorithm::Lloyd);
/// let refused = "yingyang".parse::<Algorithm>().unwrap_err().to_string();
/// assert!(refused.starts_with("algorithm must be one of \"auto\", \"lloyd\""));
/// assert!(refused.ends_with("got \"yingyang\": did you mean \"yinyang\"?"));
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Chooses for the data. With many columns and clusters, sweeps use sketches; with few columns, blocks of rows.
    /// Other fits begin with full sweeps, use bounds once few enough labels change, and return to full sweeps if the
    /// bounds skip too few distances.
    #[default]
    Auto,
    /// Compute all distances.
    Lloyd,
    /// For many clusters in more than a few columns: one bound per row and panel of centers (after Ding et
    /// al., 2015). Once the centers begin to settle, few distances are computed.
    Yinyang,
    /// For many columns and not too many clusters: one bound per row and center (after Elkan, 2003), tested a
    /// panel at a time. These bounds skip the most distances and take about `4 n k` bytes. If `bounds_memory`
    /// is too small for them, [`Algorithm::Yinyang`] is used.
    Elkan,
    /// For little memory: one bound per row (Hamerly, 2010). A row whose bound fails is compared with all centers.
    Hamerly,
    /// For hundreds of clusters in up to 16 columns, if rows of the same cluster are adjacent: like
    /// [`Algorithm::Hamerly`], but a row is compared only with the centers around its own (Newling and
    /// Fleuret, 2016). With more columns it is the same as [`Algorithm::Hamerly`].
    Exponion,
    /// For up to 16 columns and rows that fill few of them: a tree of boxes is built once, and a sweep drops
    /// the centers that cannot be nearest to any row of a box (the filtering algorithm: Kanungo et al., 2002).
    /// The tree holds a copy of the rows, within `bounds_memory`. Sparse rows, more columns, centers so far apart or
    /// so close together that squares of distances may be out of range, and a smaller budget get full sweeps.
    Filtering,
    /// For many columns and clusters: a few bytes per row, kept in memory, tell which centers cannot be the nearest
    /// (certified sketches). A sweep reads only the rows that bounds do not decide. The sketches must fit into
    /// `bounds_memory`. Sparse rows and a smaller budget get full sweeps. For a mapped file larger than memory, finer
    /// sketches decide most of the other rows.
    Sketch,
}

names! {
    Algorithm("algorithm") {
        Auto = "auto",
        Lloyd = "lloyd",
        Yinyang = "yinyang",
        Elkan = "elkan",
        Hamerly = "hamerly",
        Exponion = "exponion",
        Filtering = "filtering",
        Sketch = "sketch",
    }
}

parameters! {
    /// The parameters of k-means. A fit checks all of them before it starts.
    ///
    /// See [`KMeans`] for an example.
    KMeansParams,
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    KMeans::params(n_clusters) {
        /// How the first centers are chosen (default [`Seeding::Auto`]).
        #[doc(alias = "init")]
        seeding: Seeding = Seeding::Auto,
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
        /// Number of starts (default 1). The start with the lowest inertia wins.
        n_init: u64 = 1 => at_least_1(),
        /// Maximum number of sweeps per start (default 300).
        max_iter: u64 = 300 => at_least_1(),
        /// A start ends when the sum of the squared center movements is at most this times the mean variance
        /// of the columns (default 1e-4, as in scikit-learn). With 0 a start ends when no label changes.
        #[doc(alias = "tol")]
        tolerance: f64 = 1e-4 => finite_at_least_0(),
        /// The distance (default [`Metric::Euclidean`]).
        metric: Metric = Metric::Euclidean,
        /// How a sweep finds the nearest centers (default [`Algorithm::Auto`]). The result does not depend on it.
        algorithm: Algorithm = Algorithm::Auto,
        /// Upper limit for the bytes of the bounds. If they do not fit, several panels of centers share a bound;
        /// at the least, sweeps use no bounds. The tree of [`Algorithm::Filtering`], with a copy of the rows,
        /// and the sketches must fit too. `None` (default): 1 GB; for the sketches of a mapped file larger
        /// than memory, 80% of the memory that is available, if that is more.
        bounds_memory: Option<u64> as impl Into<Option<u64>> = None,
    }
}

impl KMeansParams {
    /// Checks the parameters against data of `n` rows, if their number is known, and `dim` columns.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) that lists every problem.
    pub fn check(&self, n: Option<u64>, dim: usize) -> Result<()> {
        self.problems(n, dim).into_result()
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
