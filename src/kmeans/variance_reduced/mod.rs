//! This module knows the parameters of variance-reduced k-means, and how a fit is put together from them.

mod draws;
mod ending;
mod file;
mod inner;
mod moving;
mod packing;
mod solver;
mod stepping;
#[cfg(test)]
mod tests;

use crate::centers::{CenterMethod, KMeansModel, Snapshot};
use crate::data::Access;
use crate::error::{Error, Result};
use crate::fit::{Element, Method, Run, either, run_methods};
use crate::kernel::MAX_CENTERS;
use crate::matrix::make_room;
use crate::persist::Contents;
use crate::seeding::Seeding;

pub use solver::VarianceReducedSolver;

/// Variance-reduced k-means: sweeps, and many small steps between them. [`VarianceReduced::params`] is where it starts.
///
/// An epoch labels all rows, moves every center to the mean of its rows, and then makes steps, each by one random row: where the row's label
/// is what it was at the sweep, its center is pulled back to that mean; where it is another one, the row attracts its new center and pushes
/// its old one away. The rows that keep their labels make no noise, so that the steps follow the labels as they change, at a constant rate.
///
/// Source: Zhao et al., "Variance reduced k-means clustering", 2018 (algorithms 3 and 4). It differs where the paper is silent: an empty
/// cluster keeps its center, and an epoch that makes the inertia worse by more than a percent is taken back, and the rate halved.
///
/// ```
/// use shoal::VarianceReduced;
/// let rows: Vec<[f32; 2]> = (0..400).map(|i| [(i % 2) as f32 * 9.0 + (i % 7) as f32 / 10.0, 1.0]).collect();
/// let model = VarianceReduced::params(2).rng_seed(7).fit(&rows).unwrap();
/// assert_eq!(model.labels()[0], model.labels()[2]);
/// assert_ne!(model.labels()[0], model.labels()[1]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct VarianceReduced;

impl VarianceReduced {
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    pub fn params(n_clusters: usize) -> VarianceReducedParams {
        VarianceReducedParams {
            n_clusters,
            seeding: Seeding::Auto,
            seed: 0,
            variant: Variant::PlusPlus,
            rate: None,
            epoch_size: EpochSize::Share(1.0),
            max_iter: 50,
            tolerance: 1e-4,
            polish: true,
            search_always: false,
            threads: None,
        }
    }
}

/// The rate by default, in `n_clusters / n`, and the highest: with three times less noise is left in the centers than an epoch gains, with ten
/// times an end is not in sight (`papers/vrkm.py`, rates).
const RATE: f64 = 3.0;
const MOST_RATE: f64 = 0.05;

/// The most steps of an epoch: nobody has the time for so many, and 64 bits hold their number.
const MOST_STEPS: f64 = 1e18;

/// What a step does about the gradient of the sweep, which is zero once the centers are means.
///
/// ```
/// use shoal::{VarianceReduced, kmeans::Variant};
/// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i * i % 59)]).collect();
/// let params = VarianceReduced::params(4).rng_seed(3);
/// let (plain, plus_plus) = (params.clone().variant(Variant::Plain).fit(&rows).unwrap(), params.fit(&rows).unwrap());
/// assert_eq!(plain.labels(), plus_plus.labels());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// VRKM++: leaves it out.
    #[default]
    PlusPlus,
    /// VRKM: measures it in a further pass, and takes it from all centers at every step. The same centers to rounding, for much more work:
    /// to repeat the comparison of the paper.
    Plain,
}

impl Variant {
    /// The name that Python and the command line use.
    ///
    /// ```
    /// assert_eq!(shoal::kmeans::Variant::Plain.name(), "vrkm");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::PlusPlus => "vrkm++",
            Self::Plain => "vrkm",
        }
    }

    /// The variant of that name.
    ///
    /// ```
    /// use shoal::kmeans::Variant;
    /// assert_eq!(Variant::named("vrkm++"), Some(Variant::PlusPlus));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        [Self::PlusPlus, Self::Plain].into_iter().find(|variant| variant.name() == name)
    }
}

/// How many steps an epoch has.
///
/// ```
/// use shoal::kmeans::EpochSize;
/// assert_eq!((EpochSize::Share(0.5).steps(7, 1), EpochSize::Steps(3).steps(7, 1)), (4, 3));
/// assert_eq!([1, 2, 3, 50].map(|epoch| EpochSize::Doubling.steps(7, epoch)), [2, 4, 7, 7]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EpochSize {
    /// So many times as many as there are rows.
    Share(f64),
    /// So many.
    Steps(u64),
    /// Two in the first epoch, then twice as many as in the epoch before, up to as many as there are rows.
    Doubling,
}

impl EpochSize {
    /// The steps over `n` rows of an epoch, the first of which is number 1.
    pub fn steps(self, n: u64, epoch: u64) -> u64 {
        match self {
            Self::Share(share) => (share * n as f64).round() as u64,
            Self::Steps(steps) => steps,
            Self::Doubling => {
                u32::try_from(epoch).ok().and_then(|e| 1u64.checked_shl(e)).map_or(n, |steps| steps.min(n))
            }
        }
    }

    /// Whether no later epoch has more steps.
    fn is_whole(self, n: u64, epoch: u64) -> bool {
        self.steps(n, epoch) == self.steps(n, u64::MAX)
    }
}

/// The parameters of variance-reduced k-means; checked all together before any work.
///
/// See [`VarianceReduced`] for an example.
#[derive(Clone, Debug)]
pub struct VarianceReducedParams {
    n_clusters: usize,
    seeding: Seeding,
    seed: u64,
    variant: Variant,
    rate: Option<f64>,
    epoch_size: EpochSize,
    max_iter: u64,
    tolerance: f64,
    polish: bool,
    search_always: bool,
    threads: Option<usize>,
}

impl VarianceReducedParams {
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

    /// What a step does about the gradient of the sweep (default [`Variant::PlusPlus`]).
    #[must_use]
    pub fn variant(mut self, variant: Variant) -> Self {
        self.variant = variant;
        self
    }

    /// How far a step goes: a share, from 0 to 1 (default `None`: the smaller one of `3 n_clusters / n` and 0.05). 0 makes every epoch one
    /// iteration of Lloyd's algorithm.
    #[must_use]
    pub fn learning_rate(mut self, rate: Option<f64>) -> Self {
        self.rate = rate;
        self
    }

    /// Steps of an epoch (default as many as there are rows). 0 makes every epoch one iteration of Lloyd's algorithm. With
    /// [`EpochSize::Doubling`] the [tolerance](VarianceReducedParams::tolerance) counts once epochs have as many steps as there are rows.
    #[must_use]
    pub fn epoch_size(mut self, size: EpochSize) -> Self {
        self.epoch_size = size;
        self
    }

    /// Most epochs (default 50).
    #[must_use]
    pub fn max_iter(mut self, n: u64) -> Self {
        self.max_iter = n;
        self
    }

    /// A fit ends when the inertia has fallen by less than this share in each of two epochs (default 1e-4; 0: no such rule).
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Whether a fit whose last epoch made steps ends with another sweep, so that the centers are means (default true). A run that is left
    /// before its end keeps its centers.
    #[must_use]
    pub fn polish(mut self, wanted: bool) -> Self {
        self.polish = wanted;
        self
    }

    /// Whether every step measures all distances (default false: only where bounds do not tell the label). The result does not depend on it:
    /// it is what the bounds are compared with.
    #[must_use]
    pub fn search_always(mut self, wanted: bool) -> Self {
        self.search_always = wanted;
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
    /// ```
    /// use shoal::kmeans::EpochSize;
    /// let params = shoal::VarianceReduced::params(8).learning_rate(Some(1.5)).epoch_size(EpochSize::Share(-1.0));
    /// let refused = params.check(5, 2).unwrap_err().to_string();
    /// assert!(["n_clusters=8", "learning_rate", "epoch_size"].iter().all(|name| refused.contains(name)));
    /// ```
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
        if let Some(rate) = self.rate.filter(|rate| !(0.0..=1.0).contains(rate)) {
            wrong.push(format!("learning_rate must be from 0 to 1, or none, got {rate}"));
        }
        let (shown, steps) = match self.epoch_size {
            EpochSize::Share(share) => (share.to_string(), share * n as f64),
            EpochSize::Steps(steps) => (steps.to_string(), steps as f64),
            EpochSize::Doubling => ("doubling".into(), n as f64),
        };
        if !(0.0..=MOST_STEPS).contains(&steps) {
            wrong.push(format!(
                "epoch_size must be at least 0, and at most {MOST_STEPS:e} steps, got {shown}"
            ));
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

    /// The rate of the first epoch, over `n` rows.
    fn first_rate(&self, n: u64) -> f64 {
        self.rate.unwrap_or_else(|| (RATE * self.n_clusters as f64 / n as f64).min(MOST_RATE))
    }
}

run_methods! {
    VarianceReducedParams, VarianceReduced;
    /// Rows with random access are drawn with replacement, by weight where there are weights. Rows that come in passes are drawn likewise,
    /// but from one stretch of some thousand rows after the other.
    fit;
    start;
    /// See [`KMeansParams::resume_fit`](crate::kmeans::KMeansParams::resume_fit) for an example.
    resume_fit;
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// for step in shoal::VarianceReduced::params(2).max_iter(3).solve(&rows).unwrap() {
    ///     println!("{:?}", step.unwrap());
    /// }
    /// ```
    solve;
}

/// A variance-reduced fit on its way. It does not hold the data.
///
/// See [`VarianceReducedParams::start`].
pub type VarianceReducedRun = Run<VarianceReduced>;

impl VarianceReducedRun {
    /// The learning rate of the last epoch; `None` before the first.
    ///
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let params = shoal::VarianceReduced::params(2).learning_rate(Some(0.25));
    /// let mut run = params.start(&rows).unwrap();
    /// run.advance(&rows).unwrap();
    /// assert_eq!(run.learning_rate(), Some(0.25));
    /// ```
    pub fn learning_rate(&self) -> Option<f64> {
        either!(self.solver(), solver => solver.learning_rate())
    }
}

impl Method for VarianceReduced {
    type Params = VarianceReducedParams;
    type Model = KMeansModel;
    type Solver<T: Element> = VarianceReducedSolver<T>;

    fn needs(_params: &VarianceReducedParams) -> Access {
        Access::Replay
    }

    fn labels_at_end(_params: &VarianceReducedParams) -> bool {
        true
    }

    fn check(params: &VarianceReducedParams, n: Option<u64>, dim: usize) -> Result<()> {
        params.check(n.unwrap_or_default(), dim)?;
        // A fit allocates this later, where failure would end the process.
        let a_row = 8 + params.seeding.bytes_a_row();
        make_room(&mut Vec::<u8>::new(), "labels and seeding", n.unwrap_or_default(), a_row)?;
        Ok(())
    }

    fn threads(params: &VarianceReducedParams) -> Option<usize> {
        params.threads
    }

    fn solver<T: Element>(params: &VarianceReducedParams) -> VarianceReducedSolver<T> {
        VarianceReducedSolver::plan(params.clone())
    }

    fn of_checkpoint<T: Element>(
        params: &VarianceReducedParams,
        contents: &Contents,
    ) -> Result<VarianceReducedSolver<T>, String> {
        VarianceReducedSolver::of_file(params.clone(), contents)
    }
}

impl CenterMethod for VarianceReduced {
    fn snapshot<T: Element>(solver: &VarianceReducedSolver<T>) -> Snapshot<'_, T> {
        solver.snapshot()
    }
}
