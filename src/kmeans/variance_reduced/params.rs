//! The parameters of variance-reduced k-means.

use std::fmt::{self, Display};

use crate::error::{InvalidParam, Result};
use crate::fit::{Metric, Parameter, Value, parameters, parsed, run_methods};
use crate::names::names;
use crate::seeding::Seeding;
use crate::tuning::DEFAULT_MEMORY;

/// Variance-reduced k-means: sweeps, with many small steps between them. Begin with [`VarianceReduced::params`].
///
/// An epoch labels all rows, moves every center to the mean of its rows, and then makes steps, each with one
/// random row. If the row has the same label as in the sweep, its center moves back toward that mean. If the
/// label differs, the row attracts its new center and repels the old one. Rows that keep their labels add no
/// noise, so the steps follow changing labels at a constant learning rate.
///
/// Source: Zhao et al., "Variance reduced k-means clustering", 2018 (algorithms 3 and 4). Two rules are not
/// in the paper: the center of an empty cluster moves to the row that is farthest from its center, and an epoch
/// that raises the inertia by more than a percent is undone and the learning rate halved.
///
/// ```
/// use shoal::VarianceReduced;
/// let rows: Vec<[f32; 2]> = (0..400).map(|i| [(i % 2) as f32 * 9.0 + (i % 7) as f32 / 10.0, 1.0]).collect();
/// let model = VarianceReduced::params(2).rng_seed(7).fit(&rows).unwrap();
/// assert_eq!(model.labels()[0], model.labels()[2]);
/// assert_ne!(model.labels()[0], model.labels()[1]);
/// ```
#[doc(alias = "VarianceReducedKMeans")]
#[derive(Clone, Copy, Debug)]
pub struct VarianceReduced;

/// The default learning rate in units of `n_clusters / n`, and its maximum. With 3, the remaining noise of
/// the centers is smaller than the gain of an epoch. With 10, a fit does not converge (`papers/vrkm.py`,
/// rates).
const RATE: f64 = 3.0;
const MOST_RATE: f64 = 0.05;

/// The maximum number of steps per epoch: beyond any practical use, and it fits into 64 bits.
const MOST_STEPS: f64 = 1e18;

/// What a step does with the gradient of the sweep, which is zero once the centers are means.
///
/// ```
/// use shoal::{VarianceReduced, kmeans::Variant};
/// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i * i % 59)]).collect();
/// let params = VarianceReduced::params(4).rng_seed(3);
/// let (plain, plus_plus) = (params.clone().variant(Variant::Plain).fit(&rows).unwrap(), params.fit(&rows).unwrap());
/// assert_eq!(plain.labels(), plus_plus.labels());
/// assert_eq!((Variant::Plain.to_string(), "vrkm++".parse().ok()), ("vrkm".to_owned(), Some(Variant::PlusPlus)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// VRKM++: leave the gradient out.
    #[default]
    PlusPlus,
    /// VRKM: measures the gradient in a further pass and subtracts it from all centers at every step. The
    /// centers are the same up to rounding, at a much higher cost. Use it to reproduce the comparison in the
    /// paper.
    Plain,
}

names! {
    Variant("variant") {
        PlusPlus = "vrkm++",
        Plain = "vrkm",
    }
}

/// The number of steps per epoch. As a [`Value`], it is a share of the rows, an integer, or `"doubling"`.
///
/// ```
/// use shoal::kmeans::EpochSize;
/// assert_eq!((EpochSize::Share(0.5).steps(7, 1), EpochSize::Steps(3).steps(7, 1)), (4, 3));
/// assert_eq!([1, 2, 3, 50].map(|epoch| EpochSize::Doubling.steps(7, epoch)), [2, 4, 7, 7]);
/// assert_eq!((EpochSize::Share(1.0).to_string(), "2500".parse().ok()), ("1.0".into(), Some(EpochSize::Steps(2500))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum EpochSize {
    /// A multiple of the number of rows.
    Share(f64),
    /// A fixed number.
    Steps(u64),
    /// Two in the first epoch, then twice as many per epoch, up to the number of rows.
    Doubling,
}

impl Parameter for EpochSize {
    fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam> {
        match value {
            Value::Float(share) => Ok(Self::Share(share)),
            Value::Text(text) if text == "doubling" => Ok(Self::Doubling),
            Value::Int(steps) if u64::try_from(steps).is_ok() => Ok(Self::Steps(steps as u64)),
            other => {
                let expected = "a number of steps, a share of the rows of at least 0, or \"doubling\"";
                Err(InvalidParam::new(name, expected, other))
            }
        }
    }

    fn to_value(&self) -> Value {
        match *self {
            Self::Share(share) => share.into(),
            Self::Steps(steps) => steps.into(),
            Self::Doubling => "doubling".into(),
        }
    }
}

parsed! { EpochSize("epoch_size") }

impl Display for EpochSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{share:?}"),
            Self::Steps(steps) => steps.fmt(f),
            Self::Doubling => f.write_str("doubling"),
        }
    }
}

impl EpochSize {
    /// The number of steps of the epoch number `epoch`, counted from 1, over `n` rows.
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
    pub(super) fn is_whole(self, n: u64, epoch: u64) -> bool {
        self.steps(n, epoch) == self.steps(n, u64::MAX)
    }
}

parameters! {
    /// The parameters of variance-reduced k-means. A fit checks all of them before it starts.
    ///
    /// See [`VarianceReduced`] for an example.
    VarianceReducedParams,
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    VarianceReduced::params(n_clusters) {
        /// How the first centers are chosen (default [`Seeding::Auto`]).
        #[doc(alias = "init")]
        seeding: Seeding = Seeding::Auto,
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
        /// What a step does with the gradient of the sweep (default [`Variant::PlusPlus`]).
        variant: Variant = Variant::PlusPlus,
        /// The length of a step, from 0 to 1 (default `None`: the smaller of `3 n_clusters / n` and 0.05).
        /// With 0 every epoch is one iteration of Lloyd's algorithm.
        learning_rate: Option<f64> = None => Range(|rate| (0.0..=1.0).contains(&rate), "from 0 to 1, or none"),
        /// Steps per epoch (default: the number of rows). With 0 every epoch is one iteration of Lloyd's
        /// algorithm. With [`EpochSize::Doubling`] the [tolerance](VarianceReducedParams::tolerance) applies
        /// once epochs have as many steps as there are rows.
        epoch_size: EpochSize = EpochSize::Share(1.0),
        /// The distance (default [`Metric::Euclidean`]). With [`Metric::Cosine`] rows are scaled to length 1 as they
        /// are read, and centers are projected to the unit sphere at the end of each epoch.
        ///
        /// ```
        /// use shoal::{Metric, VarianceReduced};
        /// let rows: Vec<[f64; 2]> = (1..99).map(|i| if i % 2 == 0 { [f64::from(i), 0.0] } else { [0.0, 1.0] }).collect();
        /// let model = VarianceReduced::params(2).metric(Metric::Cosine).fit(&rows)?;
        /// assert_eq!(model.inertia(), 0.0);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        metric: Metric = Metric::Euclidean,
        /// Maximum number of epochs (default 50).
        max_iter: u64 = 50 => at_least_1(),
        /// A fit ends when the inertia has fallen by less than this share in each of two epochs (default
        /// 1e-4; 0: the rule is off).
        #[doc(alias = "tol")]
        tolerance: f64 = 1e-4 => finite_at_least_0(),
        /// Whether a fit whose last epoch made steps ends with another sweep, so that the centers are means
        /// (default true). A run that is stopped before its end keeps its centers.
        polish: bool = true,
        /// Whether every step computes all distances (default false: only where bounds do not determine the
        /// label). The result does not depend on it. Use it to measure the benefit of the bounds.
        search_always: bool = false,
        /// Upper limit for the bytes of the bounds (default 1 GB). See
        /// [`KMeansParams::bounds_memory`](crate::kmeans::KMeansParams::bounds_memory).
        bounds_memory: u64 = DEFAULT_MEMORY,
    }
}

impl VarianceReducedParams {
    /// Checks the parameters against data of `n` rows, if their number is known, and `dim` columns.
    ///
    /// ```
    /// use shoal::kmeans::EpochSize;
    /// let params = shoal::VarianceReduced::params(8).learning_rate(Some(1.5)).epoch_size(EpochSize::Share(-1.0));
    /// let refused = params.check(Some(5), 2).unwrap_err().to_string();
    /// assert!(["n_clusters", "learning_rate", "epoch_size"].iter().all(|name| refused.contains(name)));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) that lists every problem.
    pub fn check(&self, n: Option<u64>, dim: usize) -> Result<()> {
        let mut problems = self.problems(n, dim);
        let rows = n.unwrap_or(1) as f64;
        let (shown, steps) = match self.epoch_size {
            EpochSize::Share(share) => (share.to_string(), share * rows),
            EpochSize::Steps(steps) => (steps.to_string(), steps as f64),
            EpochSize::Doubling => ("doubling".into(), rows),
        };
        let allowed = format!("at least 0, and at most {MOST_STEPS:e} steps");
        problems.require((0.0..=MOST_STEPS).contains(&steps), "epoch_size", allowed, shown);
        problems.into_result()
    }

    /// The learning rate of the first epoch, over `n` rows.
    pub(super) fn first_rate(&self, n: u64) -> f64 {
        self.learning_rate.unwrap_or_else(|| (RATE * self.n_clusters as f64 / n as f64).min(MOST_RATE))
    }
}

run_methods! {
    VarianceReducedParams, VarianceReduced;
    /// Rows with random access are drawn with replacement, with odds proportional to their weights. Rows of a
    /// stream are drawn in the same way, from one stretch of some thousand rows after the other.
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
