//! The parameters of a mixture of Gaussians.

use std::fmt::{self, Display};

use super::covariance::Covariance;
use super::matrices::is_positive_definite;
use crate::error::{InvalidParam, Result};
use crate::fit::{Metric, Parameter, Problems, Value, parameters, parsed, run_methods};
use crate::names::names;
use crate::seeding::Seeding;

/// When a fit has converged.
///
/// ```
/// use shoal::gmm::{Stopping, TruncatedGaussianMixture};
/// let params = TruncatedGaussianMixture::params(1).stopping(Stopping::Relative).tolerance(1e-3);
/// assert!(params.fit(&[[0.0f64], [1.0]]).is_ok());
/// assert_eq!((Stopping::PerWeight.to_string(), "relative".parse().ok()), ("per-weight".into(), Some(Stopping::Relative)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopping {
    /// When the bound rises by at most the tolerance, in nats per unit of weight and column. The rule does
    /// not depend on the unit of the data or the number of columns: with one shared variance the squared
    /// error then falls by about twice the tolerance, relative to itself.
    #[default]
    Auto,
    /// When the bound rises by at most the tolerance, in nats per unit of weight. The rule is stricter for
    /// more columns.
    PerWeight,
    /// When the bound changes by at most the tolerance, relative to the bound, as in the paper. A bound is
    /// the logarithm of a density, which depends on the unit of the data and may be 0.
    Relative,
}

names! {
    Stopping("stopping") {
        Auto = "auto",
        PerWeight = "per-weight",
        Relative = "relative",
    }
}

/// Where rows search for their first components.
///
/// ```
/// use shoal::gmm::{Start, TruncatedGaussianMixture};
/// let rows: Vec<[f64; 1]> = (0..90).map(|i| [f64::from(i * i % 89)]).collect();
/// let params = TruncatedGaussianMixture::params(9).start_with(Start::Random);
/// assert_eq!(params.fit(&rows).unwrap().n_components(), 9);
/// assert_eq!((Start::Cells.to_string(), "random".parse().ok()), ("cells".to_owned(), Some(Start::Random)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// Among the first `sqrt(2 k)` means and the means around the nearest two of these: this computes about
    /// `sqrt(8 k)` distances per row once, and more if the means are spread unevenly around the first ones.
    /// No search is needed if neighborhoods contain all components.
    #[default]
    Cells,
    /// Among the neighbors of a few random components, as in the paper. If clusters differ much in size or
    /// lie far apart, many rows do not find the means near them before the means have moved.
    Random,
}

names! {
    Start("start_with") {
        Cells = "cells",
        Random = "random",
    }
}

/// The number of rows of a coreset. As a [`Value`], it is an integer or a share of the rows.
///
/// ```
/// use shoal::gmm::{CoresetSize, TruncatedGaussianMixture};
/// let rows: Vec<[f64; 1]> = (0..1000).map(|i| [f64::from(i % 10)]).collect();
/// let params = TruncatedGaussianMixture::params(3).coreset_size(Some(CoresetSize::Share(0.2)));
/// assert_eq!(params.fit(&rows).unwrap().n_components(), 3);
/// assert_eq!((CoresetSize::Share(0.2).to_string(), "900".parse().ok()), ("0.2".into(), Some(CoresetSize::Rows(900))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CoresetSize {
    /// A fixed number, or all rows if there are no more.
    Rows(u64),
    /// A share of all rows, above 0 and at most 1, rounded up.
    Share(f64),
}

impl Parameter for CoresetSize {
    fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam> {
        match value {
            Value::Float(share) => Ok(Self::Share(share)),
            Value::Int(rows) if u64::try_from(rows).is_ok() => Ok(Self::Rows(rows as u64)),
            other => {
                Err(InvalidParam::new(name, "a number of rows, or a share above 0 and at most 1", other))
            }
        }
    }

    fn to_value(&self) -> Value {
        match *self {
            Self::Rows(rows) => rows.into(),
            Self::Share(share) => share.into(),
        }
    }
}

parsed! { CoresetSize("coreset_size") }

impl Display for CoresetSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => rows.fmt(f),
            Self::Share(share) => write!(f, "{share:?}"),
        }
    }
}

impl CoresetSize {
    /// The number, of `n` rows.
    pub(super) fn of(self, n: u64) -> u64 {
        match self {
            Self::Rows(rows) => rows,
            Self::Share(share) => (share * n as f64).ceil() as u64,
        }
    }
}

/// A mixture of Gaussians, fitted by truncated variational EM. Begin with [`TruncatedGaussianMixture::params`].
///
/// An iteration computes a few dozen distances per row, for any number of components: it evaluates only the
/// neighbors of the components that were near the row in the previous iteration.
///
/// ```
/// use shoal::gmm::TruncatedGaussianMixture;
/// let rows: Vec<[f32; 2]> = (0..400).map(|i| [(i % 2) as f32 * 9.0 + (i % 7) as f32 / 10.0, (i % 5) as f32 / 9.0]).collect();
/// let model = TruncatedGaussianMixture::params(2).rng_seed(7).fit(&rows).unwrap();
/// let labels = model.predict(&rows).unwrap();
/// assert!(labels[0] != labels[1] && labels[0] == labels[2]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TruncatedGaussianMixture;

parameters! {
    /// The parameters of a mixture of Gaussians. A fit checks all of them before it starts.
    ///
    /// See [`TruncatedGaussianMixture`] for an example.
    MixtureParams,
    /// Parameters for `n_components` components, all others at their defaults.
    TruncatedGaussianMixture::params(n_components) {
        /// Number of components that share a row (C', default 5), at most all. With 1 the method is k-means,
        /// with all components textbook EM.
        n_active: usize = 5 => at_least_1(),
        /// Components in a neighborhood, itself included (G, default 5; all, if that is more than there are).
        n_neighbors: usize = 5 => at_least_1(),
        /// Random components that every row evaluates in every search (default `None`: 1 if
        /// [`MixtureParams::n_active`] is at most 3, else 0).
        explore: Option<usize> = None,
        /// Rows of a lightweight coreset that is fitted in place of all rows (default `None`: no coreset).
        coreset_size: Option<CoresetSize> = None,
        /// The shape of the components (default [`Covariance::TiedSpherical`]).
        #[doc(alias = "covariance_type")]
        covariance: Covariance = Covariance::TiedSpherical,
        /// Number of factors per component (H), only with [`Covariance::Factor`]: at least 1 and less than the
        /// number of columns (default `None`: 5, or all columns but one if there are fewer). Sums take
        /// `(H + 2) / 2` times the memory of those of [`Covariance::Diag`], and a distance about as many times the
        /// time.
        ///
        /// ```
        /// use shoal::gmm::{Covariance, TruncatedGaussianMixture};
        /// let rows: Vec<[f64; 3]> = (0..90).map(|i| f64::from(i * i % 89)).map(|x| [x, 2.0 * x, x.sin()]).collect();
        /// let params = TruncatedGaussianMixture::params(2);
        /// let model = params.clone().covariance(Covariance::Factor).n_factors(Some(1)).fit(&rows)?;
        /// assert_eq!((model.n_factors(), model.loadings().len()), (1, 2 * 3));
        /// let diagonal = params.covariance(Covariance::Diag).fit(&rows)?;
        /// assert!(model.score(&rows)? > diagonal.score(&rows)?);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        n_factors: Option<usize> = None,
        /// With [`Metric::Cosine`] a mixture of the rows scaled to length 1; the means are not projected (default
        /// [`Metric::Euclidean`]).
        ///
        /// ```
        /// use shoal::{Metric, TruncatedGaussianMixture};
        /// let rows: Vec<[f64; 2]> = (1..99).map(|i| [f64::from(i), f64::from(i * (i % 7))]).collect();
        /// let longer: Vec<[f64; 2]> = rows.iter().map(|row| row.map(|x| 4.0 * x)).collect();
        /// let model = TruncatedGaussianMixture::params(2).metric(Metric::Cosine).fit(&rows)?;
        /// assert_eq!(model.log_densities(&longer)?, model.log_densities(&rows)?);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        metric: Metric = Metric::Euclidean,
        /// How the first means are chosen (default [`Seeding::AfkMc2`] with 20 candidates).
        #[doc(alias = "init")]
        seeding: Seeding = Seeding::AfkMc2 { chain: 20 },
        /// Where rows search for their first components (default [`Start::Cells`]).
        #[doc(alias = "start")]
        start_with: Start = Start::Cells,
        /// Additional searches before the means first move (default 0; there is always one).
        n_initial_e_steps: u64 = 0,
        /// Number of starts (default 1). The start with the highest bound wins, the earlier one among equals.
        /// All starts use the same coreset, if there is one. With [`Seeding::Given`] there is a single start.
        ///
        /// ```
        /// use shoal::gmm::TruncatedGaussianMixture;
        /// let rows: Vec<[f64; 1]> = (0..90).map(|i| [f64::from(i * i % 89)]).collect();
        /// let params = TruncatedGaussianMixture::params(9);
        /// let (one, best) = (params.fit(&rows).unwrap(), params.clone().n_init(5).fit(&rows).unwrap());
        /// assert!(best.lower_bound() >= one.lower_bound());
        /// ```
        n_init: u64 = 1 => at_least_1(),
        /// A number that is added to every variance that a fit computes (default 0). With components on few rows,
        /// a larger number gives a density that other rows have as well. The bound can then fall a little, and a
        /// fit has converged when it changes by at most the tolerance.
        ///
        /// ```
        /// use shoal::gmm::TruncatedGaussianMixture;
        /// let model = TruncatedGaussianMixture::params(1).reg_covar(0.5).fit(&[[0.0f64], [2.0]])?;
        /// assert_eq!(model.variances(), [1.5]);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        reg_covar: f64 = 0.0 => finite_at_least_0(),
        /// First weights of the components, which sum to 1 (default `None`: equal weights). With weights or
        /// precisions, a fit begins with its own shape, not with iterations of [`Covariance::TiedSpherical`].
        /// Not for [`Covariance::TiedSpherical`]; for [`Covariance::Factor`] only with first precisions.
        weights_init: Option<Vec<f64>> = None,
        /// First precisions, the inverses of the variances, in the order of
        /// [`GaussianMixture::variances`](super::GaussianMixture::variances) (default `None`: from the rows). For
        /// [`Covariance::Factor`] only with first loadings.
        ///
        /// ```
        /// use shoal::Seeding;
        /// use shoal::gmm::{Covariance, TruncatedGaussianMixture};
        /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i * i % 59)]).collect();
        /// let params = TruncatedGaussianMixture::params(3).covariance(Covariance::Diag);
        /// let model = params.clone().fit(&rows)?;
        /// let again = params
        ///     .seeding(Seeding::Given(model.means()))
        ///     .weights_init(Some(model.weights().to_vec()))
        ///     .precisions_init(Some(model.variances().iter().map(|s2| 1.0 / s2).collect()))
        ///     .fit(&rows)?;
        /// assert!(again.lower_bounds()[0] > model.lower_bound() - 1e-9);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        precisions_init: Option<Vec<f64>> = None,
        /// First loadings of [`Covariance::Factor`], in the order of
        /// [`GaussianMixture::loadings`](super::GaussianMixture::loadings) (default `None`), only with first
        /// precisions.
        loadings_init: Option<Vec<f64>> = None,
        /// When a fit has converged (default [`Stopping::Auto`]).
        stopping: Stopping = Stopping::Auto,
        /// Maximum number of iterations per start (default 200).
        max_iter: u64 = 200 => at_least_1(),
        /// The tolerance of [`MixtureParams::stopping`] (default 1e-4).
        #[doc(alias = "tol")]
        tolerance: f64 = 1e-4 => finite_at_least_0(),
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
    }
}

/// Default number of factors.
const FACTORS: usize = 5;

/// The sum of first weights may differ from 1 by the rounding errors of `f32`.
const WEIGHTS_SUM: f64 = 1e-6;

/// Several numbers, for messages: a few of them, else how many there are.
struct Listed<'a>(&'a [f64]);

impl Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() <= 8 { write!(f, "{:?}", self.0) } else { write!(f, "{} numbers", self.0.len()) }
    }
}

impl MixtureParams {
    /// Random components that a row evaluates.
    pub(super) fn explored(&self) -> usize {
        self.explore.unwrap_or(usize::from(self.n_active <= 3))
    }

    /// Factors per component, for rows of `dim` columns; 0 for components without factors.
    pub(super) fn factors(&self, dim: usize) -> usize {
        match self.covariance {
            Covariance::Factor => self.n_factors.unwrap_or(FACTORS.min(dim.saturating_sub(1))),
            _ => 0,
        }
    }

    /// Whether a fit begins with given weights or variances.
    pub(super) fn begins_given(&self) -> bool {
        self.weights_init.is_some() || self.precisions_init.is_some()
    }

    /// Checks the first weights, precisions and loadings for rows of `dim` columns.
    fn check_first(&self, dim: usize, problems: &mut Problems) {
        let (k, by_factors) = (self.n_components, self.covariance == Covariance::Factor);
        if let Some(weights) = &self.weights_init {
            let sum: f64 = weights.iter().sum();
            let holds = weights.len() == k
                && weights.iter().all(|weight| *weight >= 0.0)
                && (sum - 1.0).abs() <= WEIGHTS_SUM;
            let allowed = format!("{k} numbers of at least 0 with the sum 1");
            problems.require(holds, "weights_init", allowed, Listed(weights));
            let equal = self.covariance == Covariance::TiedSpherical;
            let allowed = "none if the `covariance` is \"tied_spherical\", which has equal weights";
            problems.require(!equal, "weights_init", allowed, Listed(weights));
            let alone = by_factors && self.precisions_init.is_none();
            let allowed = "none without `precisions_init` if the `covariance` is \"factor\"";
            problems.require(!alone, "weights_init", allowed, Listed(weights));
        }
        if let Some(precisions) = &self.precisions_init {
            let wanted = self.covariance.variances(k, dim);
            let usable = |x: &f64| x.is_normal() && *x > 0.0 && (1.0 / x).is_normal();
            let whole = self.covariance.is_whole();
            let (usable, allowed) = if whole && dim > 0 {
                let all = precisions
                    .chunks(dim * dim)
                    .all(|p| p.len() == dim * dim && is_positive_definite(p, dim));
                (all, format!("symmetric positive definite matrices with {wanted} numbers"))
            } else {
                let all = precisions.iter().all(usable);
                (all, format!("{wanted} finite numbers above 0, inverses of variances"))
            };
            let holds = precisions.len() == wanted && usable;
            problems.require(holds, "precisions_init", allowed, Listed(precisions));
            let allowed = "none without `loadings_init` if the `covariance` is \"factor\"";
            let holds = !by_factors || self.loadings_init.is_some();
            problems.require(holds, "precisions_init", allowed, Listed(precisions));
        }
        if let Some(loadings) = &self.loadings_init {
            let wanted = self.factors(dim) * k * dim;
            let holds = loadings.len() == wanted && loadings.iter().all(|x| x.is_finite());
            problems.require(holds, "loadings_init", format!("{wanted} finite numbers"), Listed(loadings));
            let holds = by_factors && self.precisions_init.is_some();
            let allowed = "none unless the `covariance` is \"factor\" and `precisions_init` is given";
            problems.require(holds, "loadings_init", allowed, Listed(loadings));
        }
    }

    /// Checks the parameters against data of `n` rows, if their number is known, and `dim` columns.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) that lists every problem.
    pub fn check(&self, n: Option<u64>, dim: usize) -> Result<()> {
        let (k, mut problems) = (self.n_components, self.problems(n, dim));
        match self.coreset_size {
            Some(CoresetSize::Share(share)) if !(share > 0.0 && share <= 1.0) => {
                problems.require(false, "coreset_size", "a share above 0 and at most 1", share);
            }
            Some(CoresetSize::Rows(0)) => problems.at_least_1("coreset_size", 0),
            Some(size) => {
                let rows = n.map_or(u64::MAX, |n| size.of(n));
                let allowed = format!("at most the number of rows of the coreset, {rows}");
                problems.require(k as u64 <= rows, "n_components", allowed, k);
            }
            None => {}
        }
        match (self.covariance, self.n_factors) {
            (Covariance::Factor, Some(h)) => {
                let allowed = format!("at least 1 and less than the number of columns, {dim}");
                problems.require(h >= 1 && h < dim, "n_factors", allowed, h);
            }
            (Covariance::Factor, None) => {
                let allowed = "one without factors for a single column (n_features=1)";
                problems.require(dim != 1, "covariance", allowed, format!("{:?}", self.covariance.name()));
            }
            (_, Some(h)) => {
                problems.require(false, "n_factors", "none unless the `covariance` is \"factor\"", h);
            }
            (_, None) => {}
        }
        self.check_first(dim, &mut problems);
        problems.into_result()
    }
}

run_methods! {
    MixtureParams, TruncatedGaussianMixture;
    fit;
    /// ```
    /// use shoal::gmm::TruncatedGaussianMixture;
    /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i * i % 59)]).collect();
    /// let mut run = TruncatedGaussianMixture::params(3).start(&rows).unwrap();
    /// let mut before = f64::NEG_INFINITY;
    /// while let Some(step) = run.advance(&rows).unwrap() {
    ///     assert!(step.objective >= before);
    ///     before = step.objective;
    /// }
    /// assert_eq!(run.model().lower_bound(), before);
    /// ```
    start;
    /// ```
    /// use shoal::gmm::TruncatedGaussianMixture;
    /// let rows: Vec<[f64; 1]> = (0..60).map(|i| [f64::from(i * i % 59)]).collect();
    /// let params = TruncatedGaussianMixture::params(5);
    /// let mut run = params.start(&rows).unwrap();
    /// run.advance(&rows).unwrap();
    /// let checkpoint = run.checkpoint(&rows).unwrap();
    ///
    /// let mut again = params.resume_fit(&checkpoint, &rows).unwrap();
    /// for run in [&mut run, &mut again] {
    ///     while run.advance(&rows).unwrap().is_some() {}
    /// }
    /// assert_eq!(run.centers::<f64>(), again.centers::<f64>());
    /// ```
    resume_fit;
    /// ```
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// for step in shoal::gmm::TruncatedGaussianMixture::params(2).solve(&rows).unwrap() {
    ///     println!("{:?}", step.unwrap());
    /// }
    /// ```
    solve;
}
