//! Solver of a mixture: several starts, over all rows or over a coreset.

use std::time::Instant;

use super::mixture::Mixture;
use super::model::GaussianMixture;
use super::params::MixtureParams;
use super::truncated::Truncated;
use crate::centers::Snapshot;
use crate::data::{Access, DataSource, count_rows};
use crate::error::Result;
use crate::fit::{FitSolver, Restarts, Solver, Step, Timings};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::seeding::enough_rows;
use crate::stats::{Coreset, lightweight_coreset};

/// The starts of a mixture fit. The start with the highest bound wins.
///
/// `Step::objective` is the lower bound of the mean log-likelihood per weight, for the parameters before the
/// step.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Debug)]
pub struct MixtureStarts<T: Compute> {
    pub(super) params: MixtureParams,
    pub(super) starts: Restarts<Truncated<T>>,
    /// The coreset that all starts share, if requested.
    pub(super) coreset: Option<Coreset<T>>,
    /// Rows read for the coreset, and before a resumed fit by starts that lost.
    pub(super) rows_seen: u64,
    /// Seconds spent on the coreset, and before a resumed fit on starts that lost.
    pub(super) timings: Timings,
}

/// Fitted components, except for their means.
#[cfg(feature = "python")]
pub(crate) struct Components<'a> {
    pub(crate) variances: Vec<f64>,
    pub(crate) loadings: Vec<f64>,
    pub(crate) weights: &'a [f64],
    pub(crate) neighbors: &'a [u32],
    /// Neighbors per component.
    pub(crate) neighborhood: usize,
    pub(crate) converged: bool,
}

impl<T: Compute> MixtureStarts<T> {
    /// Draws the coreset if one is requested and missing.
    fn draw(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let Some(size) = self.params.coreset_size else { return Ok(()) };
        if self.coreset.is_some() {
            return Ok(());
        }
        let begun = Instant::now();
        let n = count_rows(data)?;
        enough_rows(n, self.params.n_components)?;
        let size = usize::try_from(size.of(n).min(n)).unwrap_or(usize::MAX);
        self.coreset = Some(lightweight_coreset(data, size, self.params.rng_seed, cx)?);
        // One pass finds the mean, one draws rows.
        self.rows_seen += if size as u64 == n { n } else { 2 * n };
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }
}

impl<T: Compute> Solver<T> for MixtureStarts<T> {
    type Model = GaussianMixture;

    fn needs(&self) -> Access {
        Access::Replay
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        self.draw(data, cx)?;
        let mut step = match &self.coreset {
            None => self.starts.step(data, cx)?,
            Some(coreset) => self.starts.step(&coreset.weighted()?, cx)?,
        };
        let kept = self.starts.kept().map(|start| start.rows_seen).sum::<u64>();
        step.rows_seen = self.rows_seen + self.starts.state.lost_rows + kept;
        Ok(step)
    }

    fn model(&self) -> GaussianMixture {
        GaussianMixture { timings: self.snapshot().timings, ..self.starts.model() }
    }
}

impl<T: Compute> MixtureStarts<T> {
    /// The coreset that is fitted; `None` if all rows are.
    #[cfg(feature = "python")]
    pub(crate) fn coreset(&self) -> Option<&Coreset<T>> {
        self.coreset.as_ref()
    }

    /// The lower bound after each iteration of the best start.
    pub(super) fn lower_bounds(&self) -> &[f64] {
        &self.starts.best().bounds
    }

    /// What the fitted components have in addition to means.
    #[cfg(feature = "python")]
    pub(crate) fn components(&self) -> Components<'_> {
        let best = self.starts.best();
        let shape = self.params.covariance;
        let mixture = best.mixture.as_ref();
        Components {
            variances: mixture.map_or_else(Vec::new, |mixture| mixture.variances_as(shape)),
            loadings: mixture.map_or_else(Vec::new, Mixture::loadings),
            weights: mixture.map_or(&[], |mixture| &mixture.weights),
            neighbors: best.neighbors.ids(),
            neighborhood: best.neighbors.size(),
            converged: best.converged,
        }
    }

    /// Whether all variances are at their lower limits.
    pub(super) fn is_floored(&self) -> bool {
        self.starts.best().mixture.as_ref().is_some_and(Mixture::is_floored)
    }
}

impl<T: Compute> FitSolver<T> for MixtureStarts<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let best = self.starts.best();
        let centers = best.mixture.as_ref().map_or(&[][..], |mixture| &mixture.means);
        let (labels, inertia) = best.finished.as_ref().map_or((&[][..], f64::NAN), |(l, e)| (l, *e));
        Snapshot {
            dim: best.dim(),
            metric: self.params.metric,
            centers,
            weights: &best.counts,
            labels: labels.into(),
            inertia,
            n_iter: best.n_iter(),
            n_steps: best.n_iter(),
            seeded_by: &best.seeded_by,
            algorithm: self.params.covariance.name(),
            timings: self.timings + self.starts.timings(),
        }
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        self.starts.best_mut().label_all(data, cx)
    }
}
