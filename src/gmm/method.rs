//! The method: its fit, run and checkpoint.

use super::model::GaussianMixture;
use super::params::{MixtureParams, TruncatedGaussianMixture};
use super::starts::MixtureStarts;
use crate::centers::{CenterMethod, Snapshot};
use crate::data::Access;
use crate::error::{Error, Result};
use crate::fit::{Element, Method, Run, Steps, either, require, run_methods};
use crate::persist::Contents;

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

/// A fit of a mixture that advances step by step. It does not hold the data.
///
/// See [`MixtureParams::start`] for an example.
pub type MixtureRun = Run<TruncatedGaussianMixture>;

/// The steps of a fit of a mixture. See [`MixtureParams::solve`].
pub type MixtureSteps<S> = Steps<TruncatedGaussianMixture, S>;

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
        if sparse && params.covariance.is_by_column() {
            let expected = "\"spherical\" or \"tied_spherical\" for sparse rows";
            return Err(Error::param("covariance", expected, format!("{:?}", params.covariance.name())));
        }
        Ok(())
    }
    fn check(params: &MixtureParams, n: Option<u64>, dim: usize) -> Result<()> {
        params.check(n, dim)
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
