//! This module knows the parameters of a mixture of Gaussians, and how a fit is put together from them.

use super::mixture::Covariance;
use super::model::GaussianMixture;
use super::starts::MixtureStarts;
use crate::centers::{CenterMethod, Snapshot};
use crate::data::Access;
use crate::error::{Error, Result};
use crate::fit::{Element, Method, Run, Steps, either, require, run_methods};
use crate::kernel::MAX_CENTERS;
use crate::persist::Contents;
use crate::seeding::Seeding;

/// When a fit has converged.
///
/// ```
/// use shoal::gmm::{Stopping, TruncatedGaussianMixture};
/// let params = TruncatedGaussianMixture::params(1).stopping(Stopping::Relative).tolerance(1e-3);
/// assert!(params.fit(&[[0.0f64], [1.0]]).is_ok());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopping {
    /// When the bound rises by no more than the tolerance, in nats for each unit of weight and each column. It is the same for data in any unit, and
    /// for any number of columns: with one shared variance the squared error then falls by about twice the tolerance, as a share of itself.
    #[default]
    Auto,
    /// When the bound rises by no more than the tolerance, in nats for each unit of weight: the more columns, the stricter.
    PerWeight,
    /// When the bound changes by no more than the tolerance times itself, as in the paper. A bound is the logarithm of a density, which depends on
    /// the unit of the data, and may be 0.
    Relative,
}

impl Stopping {
    /// The name that Python and the command line use.
    ///
    /// ```
    /// assert_eq!(shoal::gmm::Stopping::PerWeight.name(), "per-weight");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::PerWeight => "per-weight",
            Self::Relative => "relative",
        }
    }

    /// The rule of that name.
    ///
    /// ```
    /// use shoal::gmm::Stopping;
    /// assert_eq!(Stopping::named("relative"), Some(Stopping::Relative));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        [Self::Auto, Self::PerWeight, Self::Relative].into_iter().find(|rule| rule.name() == name)
    }
}

/// Where rows look for their first components.
///
/// ```
/// use shoal::gmm::{Start, TruncatedGaussianMixture};
/// let rows: Vec<[f64; 1]> = (0..90).map(|i| [f64::from(i * i % 89)]).collect();
/// let params = TruncatedGaussianMixture::params(9).start_with(Start::Random);
/// assert_eq!(params.fit(&rows).unwrap().n_components(), 9);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// Among the first `sqrt(2 k)` means, and among those that lie around the nearest two of these: about `sqrt(8 k)` distances a row, once; more
    /// where means are spread unevenly about the first ones. With neighbourhoods of all components there is nothing to look for.
    #[default]
    Cells,
    /// Among the neighbours of a few that are drawn, as in the paper. Where clusters are of very different sizes, or lie far apart, many rows do
    /// not find their way to the means near them before these have moved.
    Random,
}

impl Start {
    /// The name that Python and the command line use.
    ///
    /// ```
    /// assert_eq!(shoal::gmm::Start::Cells.name(), "cells");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Cells => "cells",
            Self::Random => "random",
        }
    }

    /// The start of that name.
    ///
    /// ```
    /// use shoal::gmm::Start;
    /// assert_eq!(Start::named("random"), Some(Start::Random));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        [Self::Cells, Self::Random].into_iter().find(|start| start.name() == name)
    }
}

/// How many rows a coreset has.
///
/// ```
/// use shoal::gmm::{CoresetSize, TruncatedGaussianMixture};
/// let rows: Vec<[f64; 1]> = (0..1000).map(|i| [f64::from(i % 10)]).collect();
/// let params = TruncatedGaussianMixture::params(3).coreset_size(Some(CoresetSize::Share(0.2)));
/// assert_eq!(params.fit(&rows).unwrap().n_components(), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CoresetSize {
    /// So many, or all rows, where there are no more.
    Rows(u64),
    /// That share of all rows, above 0 and at most 1, rounded up.
    Share(f64),
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

/// A mixture of Gaussians, fitted by truncated variational EM. [`TruncatedGaussianMixture::params`] is where it starts.
///
/// An iteration costs the rows times a few dozen distances, however many components there are: a row only looks at the neighbours of the
/// components that it was near to before.
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

impl TruncatedGaussianMixture {
    /// Parameters for `n_components` components, all others at their defaults.
    pub fn params(n_components: usize) -> MixtureParams {
        MixtureParams {
            n_components,
            n_active: 5,
            n_neighbors: 5,
            explore: None,
            coreset_size: None,
            covariance: Covariance::TiedSpherical,
            seeding: Seeding::AfkMc2 { chain: 20 },
            start: Start::Cells,
            n_initial_e_steps: 0,
            n_init: 1,
            stopping: Stopping::Auto,
            max_iter: 200,
            tolerance: 1e-4,
            seed: 0,
            threads: None,
        }
    }
}

/// The parameters of a mixture of Gaussians; checked all together before any work.
///
/// See [`TruncatedGaussianMixture`] for an example.
#[derive(Clone, Debug)]
pub struct MixtureParams {
    pub(super) n_components: usize,
    pub(super) n_active: usize,
    pub(super) n_neighbors: usize,
    pub(super) explore: Option<usize>,
    pub(super) coreset_size: Option<CoresetSize>,
    pub(super) covariance: Covariance,
    pub(super) seeding: Seeding,
    pub(super) start: Start,
    pub(super) n_initial_e_steps: u64,
    pub(super) n_init: u64,
    pub(super) stopping: Stopping,
    pub(super) max_iter: u64,
    pub(super) tolerance: f64,
    pub(super) seed: u64,
    pub(super) threads: Option<usize>,
}

impl MixtureParams {
    /// Components that share a row (C', default 5; all, where that is more than there are). With 1 of them it is k-means, with all of them textbook
    /// EM.
    #[must_use]
    pub fn n_active(mut self, n: usize) -> Self {
        self.n_active = n;
        self
    }

    /// Components in a neighbourhood, itself included (G, default 5; all, where that is more than there are).
    #[must_use]
    pub fn n_neighbors(mut self, n: usize) -> Self {
        self.n_neighbors = n;
        self
    }

    /// Components that every row looks at by chance, in every search (default: 1 where [`MixtureParams::n_active`] is at most 3, else none).
    #[must_use]
    pub fn explore(mut self, n: Option<usize>) -> Self {
        self.explore = n;
        self
    }

    /// Rows of a lightweight coreset to fit to in place of all rows (default: none).
    #[must_use]
    pub fn coreset_size(mut self, size: Option<CoresetSize>) -> Self {
        self.coreset_size = size;
        self
    }

    /// The shape of the components (default [`Covariance::TiedSpherical`]).
    #[must_use]
    pub fn covariance(mut self, shape: Covariance) -> Self {
        self.covariance = shape;
        self
    }

    /// How the first means are chosen (default [`Seeding::AfkMc2`] with 20 candidates).
    #[must_use]
    pub fn seeding(mut self, seeding: Seeding) -> Self {
        self.seeding = seeding;
        self
    }

    /// Where rows look for their first components (default [`Start::Cells`]).
    #[must_use]
    pub fn start_with(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Searches before the first means are moved, beside the one that there always is (default 0).
    #[must_use]
    pub fn n_initial_e_steps(mut self, n: u64) -> Self {
        self.n_initial_e_steps = n;
        self
    }

    /// Starts, of which the one with the highest bound wins, the earlier among equals (default 1). All are on the same coreset, if there is one. There
    /// is a single start from [`Seeding::Given`].
    ///
    /// ```
    /// use shoal::gmm::TruncatedGaussianMixture;
    /// let rows: Vec<[f64; 1]> = (0..90).map(|i| [f64::from(i * i % 89)]).collect();
    /// let params = TruncatedGaussianMixture::params(9);
    /// let (one, best) = (params.fit(&rows).unwrap(), params.clone().n_init(5).fit(&rows).unwrap());
    /// assert!(best.lower_bound() >= one.lower_bound());
    /// ```
    #[must_use]
    pub fn n_init(mut self, n: u64) -> Self {
        self.n_init = n;
        self
    }

    /// When a fit has converged (default [`Stopping::Auto`]).
    #[must_use]
    pub fn stopping(mut self, rule: Stopping) -> Self {
        self.stopping = rule;
        self
    }

    /// Most iterations of a start (default 200).
    #[must_use]
    pub fn max_iter(mut self, n: u64) -> Self {
        self.max_iter = n;
        self
    }

    /// The tolerance of [`MixtureParams::stopping`] (default 1e-4).
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Seed of all random draws (default 0).
    #[must_use]
    pub fn rng_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Number of threads (default: as [`Executor::new`] with `None`). The result does not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: Option<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// Components that a row looks at by chance.
    pub(super) fn explored(&self) -> usize {
        self.explore.unwrap_or(usize::from(self.n_active <= 3))
    }

    /// Checks the parameters against data of `n` rows and `d` columns.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] that lists everything that is wrong.
    pub fn check(&self, n: u64, d: usize) -> Result<()> {
        let mut wrong = Vec::new();
        if self.n_components == 0 || self.n_components > MAX_CENTERS {
            wrong.push(format!("n_components must be in 1..={MAX_CENTERS}, got {}", self.n_components));
        } else if self.n_components as u64 > n {
            wrong.push(format!("n_components={} must be at most the number of rows, {n}", self.n_components));
        }
        let size = self.coreset_size.map(|size| size.of(n));
        match self.coreset_size {
            Some(CoresetSize::Share(share)) if !(share > 0.0 && share <= 1.0) => {
                wrong.push(format!("coreset_size must be a share above 0 and at most 1, got {share}"));
            }
            Some(CoresetSize::Rows(0)) => wrong.push("coreset_size must be at least 1, got 0".into()),
            _ if size.is_some_and(|size| size < self.n_components as u64) => wrong.push(format!(
                "n_components={} must be at most the number of rows of the coreset, {}",
                self.n_components,
                size.unwrap_or_default()
            )),
            _ => {}
        }
        for (name, value) in [
            ("n_active", self.n_active as u64),
            ("n_neighbors", self.n_neighbors as u64),
            ("n_init", self.n_init),
            ("max_iter", self.max_iter),
        ] {
            if value == 0 {
                wrong.push(format!("{name} must be at least 1, got 0"));
            }
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

/// A fit of a mixture on its way. It does not hold the data.
///
/// See [`MixtureParams::start`] for an example.
pub type MixtureRun = Run<TruncatedGaussianMixture>;

/// The steps of a fit of a mixture. See [`MixtureParams::solve`].
pub type MixtureSteps<'a, S> = Steps<'a, TruncatedGaussianMixture, S>;

impl MixtureRun {
    /// The lower bound after each iteration of the best start.
    pub fn lower_bounds(&self) -> &[f64] {
        either!(self.solver(), solver => solver.lower_bounds())
    }

    /// Whether a variance was raised to the floor that keeps densities finite.
    pub fn is_floored(&self) -> bool {
        either!(self.solver(), solver => solver.is_floored())
    }
}

impl Method for TruncatedGaussianMixture {
    type Params = MixtureParams;
    type Model = GaussianMixture;
    type Solver<T: Element> = MixtureStarts<T>;

    fn needs(_params: &MixtureParams) -> Access {
        Access::Replay
    }

    fn admit(params: &MixtureParams, has: Access, sparse: bool) -> Result<()> {
        require(Self::needs(params), has)?;
        if sparse && params.covariance == Covariance::Diag {
            return Err(Error::param(
                "covariance_type=\"diag\" needs dense rows, X is sparse: take \"spherical\" or \"tied_spherical\"",
            ));
        }
        Ok(())
    }
    fn check(params: &MixtureParams, n: Option<u64>, dim: usize) -> Result<()> {
        params.check(n.unwrap_or_default(), dim)
    }

    fn threads(params: &MixtureParams) -> Option<usize> {
        params.threads
    }

    fn solver<T: Element>(params: &MixtureParams) -> MixtureStarts<T> {
        MixtureStarts::plan(params.clone())
    }

    fn of_checkpoint<T: Element>(
        params: &MixtureParams,
        contents: &Contents,
    ) -> Result<MixtureStarts<T>, String> {
        MixtureStarts::of_checkpoint(params, contents)
    }
}

impl CenterMethod for TruncatedGaussianMixture {
    fn snapshot<T: Element>(solver: &MixtureStarts<T>) -> Snapshot<'_, T> {
        solver.snapshot()
    }
}
