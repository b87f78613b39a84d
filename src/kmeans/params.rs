//! This module knows the parameters of k-means, and how a fit is put together from them.

use super::lloyd::{Lloyd, Timings};
use super::model::KMeansModel;
use crate::data::{Access, AnySource, Counted, DataSource, Normalized, Source, no_weight};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::kernel::{Compute, MAX_CENTERS};
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::seeding::Seeding;
use crate::solver::{Restarts, Run, Start, Step, StopReason, StopRules, require};

/// What "near" means.
///
/// ```
/// use shoal::{KMeans, Metric};
/// let rows = [[1.0f64, 0.0], [9.0, 0.1], [0.0, 1.0], [0.1, 7.0]];
/// let model = KMeans::params(2).metric(Metric::Cosine).fit(&rows).unwrap();
/// assert_eq!(model.labels()[0], model.labels()[1]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Metric {
    /// Choose for positions: squared Euclidean distance, centers are means.
    #[default]
    Euclidean,
    /// Choose for directions (text, embeddings): rows are normalised on the fly and centers kept on the unit sphere. A row of zeros stays a
    /// row of zeros.
    Cosine,
}

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
    /// What is likely the fastest for the data.
    #[default]
    Auto,
    /// All distances.
    Lloyd,
    /// Bounds for each panel of centers (after Ding et al., 2015): few distances once the centers have begun to settle.
    Yinyang,
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
        }
    }

    /// The algorithm of that name.
    ///
    /// ```
    /// assert_eq!(shoal::Algorithm::named("lloyd"), Some(shoal::Algorithm::Lloyd));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        [Self::Auto, Self::Lloyd, Self::Yinyang].into_iter().find(|algorithm| algorithm.name() == name)
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

    /// Number of threads (default: all that the process may use). The result does not depend on it.
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

    /// Fits a model to `rows`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`], [`Error::NotFinite`], those of the source.
    pub fn fit<S: Source + ?Sized>(&self, rows: &S) -> Result<KMeansModel> {
        let mut run = self.start(rows)?;
        let cx = Executor::new(self.threads)?;
        while run.advance(rows, &cx)?.is_some() {}
        Ok(run.into_model())
    }

    /// A run over `rows`, to be advanced step by step with [`KMeansRun::advance`].
    ///
    /// ```
    /// use shoal::{Executor, KMeans};
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let mut run = KMeans::params(2).start(&rows).unwrap();
    /// let cx = Executor::new(None).unwrap();
    /// while let Some(step) = run.advance(&rows, &cx).unwrap() {
    ///     println!("{}: {}", step.iteration, step.objective);
    /// }
    /// assert_eq!(run.into_model().inertia(), 1.0);
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`], [`Error::Source`], [`Error::Memory`].
    pub fn start<S: Source + ?Sized>(&self, rows: &S) -> Result<KMeansRun> {
        fn shape<T: Compute>(data: &dyn DataSource<T>) -> Result<(u64, usize)> {
            // Before a row is read: a stream that can be read once is still whole when it is refused.
            require(Access::Replay, data.access())?;
            Ok((crate::data::count_rows(data)?, data.dim()))
        }
        let (n, d) = match rows.any() {
            AnySource::F32(data) => shape(data)?,
            AnySource::F64(data) => shape(data)?,
        };
        if n == 0 {
            return Err(Error::Empty("X holds no rows".into()));
        }
        self.check(n, d)?;
        // What a fit asks for later, in places where not to get it would end the process: better refused now.
        let a_row = if matches!(self.seeding, Seeding::PlusPlus { .. }) { 4 + 16 } else { 4 };
        make_room(&mut Vec::<u8>::new(), "labels and seeding", n, a_row)?;
        let starts = if matches!(self.seeding, Seeding::Given(_)) { 1 } else { self.n_init };
        let typed = match rows.any() {
            AnySource::F32(_) => {
                Typed::F32(Run::new(Restarts::new(Lloyd::plan(self.clone()), starts, self.max_iter)))
            }
            AnySource::F64(_) => {
                Typed::F64(Run::new(Restarts::new(Lloyd::plan(self.clone()), starts, self.max_iter)))
            }
        };
        Ok(KMeansRun { typed, rows: n, lost: Timings::default() })
    }

    /// An iterator over the steps of a fit; its `model` is valid after every one.
    ///
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// for step in shoal::KMeans::params(2).solve(&rows).unwrap() {
    ///     println!("{:?}", step.unwrap());
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`KMeansParams::start`].
    pub fn solve<'a, S: Source + ?Sized>(&self, rows: &'a S) -> Result<KMeansSteps<'a, S>> {
        Ok(KMeansSteps { run: self.start(rows)?, rows, cx: Executor::new(self.threads)?, failed: false })
    }
}

/// A k-means fit on its way. It does not hold the data.
///
/// See [`KMeansParams::start`] for an example.
pub struct KMeansRun {
    typed: Typed,
    /// Rows of a source that does not know how many it has: counted once, at the start.
    rows: u64,
    /// Seconds of the starts that are over and lost.
    lost: Timings,
}

enum Typed {
    F32(Run<Restarts<Lloyd<f32>>>),
    F64(Run<Restarts<Lloyd<f64>>>),
}

/// The same expression for either type of run.
macro_rules! either {
    ($typed:expr, $run:ident => $body:expr) => {
        match $typed {
            Typed::F32($run) => $body,
            Typed::F64($run) => $body,
        }
    };
}

impl KMeansRun {
    /// Rules that stop the run, beside those of the parameters.
    #[must_use]
    pub fn stop(self, rules: StopRules) -> Self {
        let typed = match self.typed {
            Typed::F32(run) => Typed::F32(run.stop(rules)),
            Typed::F64(run) => Typed::F64(run.stop(rules)),
        };
        Self { typed, ..self }
    }

    /// One more step over the rows that the run was made for; `None` once it is over.
    ///
    /// # Errors
    /// [`Error::Source`] for rows of another type, [`Error::InvalidParam`] for rows that all have weight 0, and those of the solver.
    pub fn advance<S: Source + ?Sized>(&mut self, rows: &S, cx: &Executor) -> Result<Option<Step>> {
        let step = self.with(rows, |typed| match typed {
            WithData::F32(run, data) => run.advance(data, cx),
            WithData::F64(run, data) => run.advance(data, cx),
        })?;
        if let Some(lost) =
            either!(&mut self.typed, run => run.solver_mut().take_lost().map(|lost| lost.timings()))
        {
            self.lost = sum(self.lost, lost);
        }
        // Not every source knows its weights before a pass.
        if step.is_some() && self.cluster_weights().iter().all(|&w| w <= 0.0) {
            return Err(no_weight());
        }
        Ok(step)
    }

    /// Makes labels and inertia those of the present centers: a further pass, where the run was left before its end.
    ///
    /// # Errors
    /// As [`KMeansRun::advance`].
    pub fn finish<S: Source + ?Sized>(&mut self, rows: &S, cx: &Executor) -> Result<f64> {
        if self.history().is_empty() {
            return Err(Error::Source("no step was made yet: there are no centers to finish with".into()));
        }
        self.with(rows, |typed| match typed {
            WithData::F32(run, data) => run.solver_mut().best_mut().finish(data, cx),
            WithData::F64(run, data) => run.solver_mut().best_mut().finish(data, cx),
        })
    }

    /// Ends the run after its last step.
    pub fn end(&mut self, reason: StopReason) {
        either!(&mut self.typed, run => run.end(reason));
    }

    /// All steps so far.
    pub fn history(&self) -> &[Step] {
        either!(&self.typed, run => run.history())
    }

    /// The centers as they are now, `n_clusters` rows; empty before the first step.
    pub fn centers<T: Compute>(&self) -> Vec<T> {
        either!(&self.typed, run => run.solver().best().centers().iter().map(|&c| T::from_f64(Float::to_f64(c))).collect())
    }

    /// The labels of the last sweep, or of [`KMeansRun::finish`].
    pub fn labels(&self) -> &[u32] {
        either!(&self.typed, run => run.solver().best().labels())
    }

    /// Weight of each cluster at the last sweep.
    pub fn cluster_weights(&self) -> &[f64] {
        either!(&self.typed, run => run.solver().best().cluster_weights())
    }

    /// Weighted sum of squared distances at the last sweep, or at [`KMeansRun::finish`].
    pub fn inertia(&self) -> f64 {
        either!(&self.typed, run => run.solver().best().inertia())
    }

    /// Sweeps that the best start made.
    pub fn n_iter(&self) -> u64 {
        either!(&self.typed, run => run.solver().best().n_iter())
    }

    /// How the first centers were chosen.
    pub fn seeded_by(&self) -> &str {
        either!(&self.typed, run => run.solver().best().seeded_by())
    }

    /// The algorithm in use: of [`Algorithm::Auto`], what it has chosen so far.
    pub fn algorithm(&self) -> Algorithm {
        either!(&self.typed, run => run.solver().best().algorithm())
    }

    /// Seconds spent by all starts so far.
    pub fn timings(&self) -> Timings {
        let (best, challenger) = either!(&self.typed, run => {
            let starts = run.solver();
            (starts.best().timings(), starts.challenger().map(Lloyd::timings).unwrap_or_default())
        });
        sum(self.lost, sum(best, challenger))
    }

    /// The model as it is now; its labels and inertia are current after the last step or [`KMeansRun::finish`].
    pub fn model(&self) -> KMeansModel {
        let timings = self.timings();
        KMeansModel { timings, ..either!(&self.typed, run => KMeansModel::new(run.solver().best())) }
    }

    /// The model, once the run is over.
    pub fn into_model(self) -> KMeansModel {
        self.model()
    }

    /// Runs `f` on the typed run and the rows in its type, normalised where the metric asks for it.
    fn with<S: Source + ?Sized, R>(
        &mut self,
        rows: &S,
        f: impl FnOnce(WithData<'_>) -> Result<R>,
    ) -> Result<R> {
        let n = self.rows;
        match (&mut self.typed, rows.any()) {
            (Typed::F32(run), AnySource::F32(data)) => {
                seen_by(run.solver().metric(), data, n, |data| f(WithData::F32(run, data)))
            }
            (Typed::F64(run), AnySource::F64(data)) => {
                seen_by(run.solver().metric(), data, n, |data| f(WithData::F64(run, data)))
            }
            _ => Err(Error::Source("the run was made for rows of the other floating-point type".into())),
        }
    }
}

/// Runs `f` on `data` as the metric sees it; where its length is unknown, it is `rows`.
fn seen_by<T: Compute, R>(
    metric: Metric,
    data: &dyn DataSource<T>,
    rows: u64,
    f: impl FnOnce(&dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    let counted = Counted::new(data, rows);
    let data: &dyn DataSource<T> = if data.rows().is_some() { data } else { &counted };
    match metric {
        Metric::Euclidean => f(data),
        Metric::Cosine => f(&Normalized::new(data)),
    }
}

/// Seconds of both.
fn sum(a: Timings, b: Timings) -> Timings {
    Timings { seeding: a.seeding + b.seeding, sweeps: a.sweeps + b.sweeps, finish: a.finish + b.finish }
}

enum WithData<'a> {
    F32(&'a mut Run<Restarts<Lloyd<f32>>>, &'a dyn DataSource<f32>),
    F64(&'a mut Run<Restarts<Lloyd<f64>>>, &'a dyn DataSource<f64>),
}

impl<T: Compute> Restarts<Lloyd<T>> {
    fn metric(&self) -> Metric {
        self.best().metric()
    }
}

/// The steps of a fit. See [`KMeansParams::solve`].
pub struct KMeansSteps<'a, S: ?Sized> {
    run: KMeansRun,
    rows: &'a S,
    cx: Executor,
    failed: bool,
}

impl<S: Source + ?Sized> KMeansSteps<'_, S> {
    /// The model as it is now, labels and inertia brought up to date.
    ///
    /// # Errors
    /// Those of the source.
    pub fn model(&mut self) -> Result<KMeansModel> {
        self.run.finish(self.rows, &self.cx)?;
        Ok(self.run.model())
    }
}

impl<S: Source + ?Sized> Iterator for KMeansSteps<'_, S> {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        if self.failed {
            return None;
        }
        let step = self.run.advance(self.rows, &self.cx).transpose();
        self.failed = matches!(step, Some(Err(_)));
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_are_those_of_all_starts() {
        let rows: Vec<[f64; 2]> =
            (0..6000).map(|i| [f64::from(i * 7919 % 1009), f64::from(i * 31 % 97)]).collect();
        let params = KMeans::params(20).seeding(Seeding::Random).n_init(6).tolerance(0.0).threads(Some(1));
        let mut run = params.start(&rows).unwrap();
        let cx = Executor::new(Some(1)).unwrap();
        let mut before = 0.0;
        let total = |Timings { seeding, sweeps, finish }| seeding + sweeps + finish;
        while let Some(step) = run.advance(&rows, &cx).unwrap() {
            // Seconds are never lost, whichever start they belong to.
            let now = total(run.timings());
            assert!(now >= before && now <= step.elapsed, "{before} {now} {}", step.elapsed);
            before = now;
        }
        assert_eq!(total(run.model().timings()), before);
        assert_eq!(total(run.into_model().timings()), before);
    }
}
