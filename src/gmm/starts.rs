//! Fits a mixture from several starts, to all rows or to a coreset, and saves and restores such a fit.

use std::time::Instant;

use super::mixture::Mixture;
use super::model::GaussianMixture;
use super::params::MixtureParams;
use super::truncated::Truncated;
use crate::centers::Snapshot;
use crate::data::{Access, DataSource, count_rows};
use crate::error::Result;
use crate::fit::{Facts, FitSolver, Timings};
use crate::fit::{Restarts, RestartsState, Solver, Step};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::persist::schema::MIXTURE_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter};
use crate::rows::RowBuf;
use crate::seeding::{Seeding, enough_rows};
use crate::stats::{Coreset, lightweight_coreset};

/// The starts of a mixture fit. The start with the highest bound wins.
///
/// `Step::objective` is the lower bound of the mean log-likelihood per weight, for the parameters before the
/// step.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
pub struct MixtureStarts<T: Compute> {
    params: MixtureParams,
    starts: Restarts<Truncated<T>>,
    /// The coreset that all starts share, if requested.
    coreset: Option<Coreset<T>>,
    /// Rows read for the coreset and by starts that lost.
    rows_seen: u64,
    /// Seconds spent on the coreset.
    timings: Timings,
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
    pub(super) fn plan(params: MixtureParams) -> Self {
        let starts = Restarts::new(Truncated::plan(params.clone()), Self::count(&params), params.max_iter);
        Self { params, starts, coreset: None, rows_seen: 0, timings: Timings::default() }
    }

    /// The number of starts.
    fn count(params: &MixtureParams) -> u64 {
        if matches!(params.seeding, Seeding::Given(_)) { 1 } else { params.n_init }
    }

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

    /// The kept starts: the best one, and the one in progress.
    fn kept(&self) -> impl Iterator<Item = &Truncated<T>> {
        [Some(self.starts.best()), self.starts.challenger()].into_iter().flatten()
    }

    /// Restores the state that [`FitSolver::checkpoint`] saved, with parameters `params`. The error describes
    /// the problem.
    pub(super) fn of_checkpoint(params: &MixtureParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(MIXTURE_CHECKPOINT)?;
        let from = StateReader::new(contents)?;
        let mut params = params.clone();
        params.rng_seed = from.seed()?;
        let start =
            |name: &str| contents.part(name).map(|part| Truncated::<T>::of_file(&params, &part)).transpose();
        let best = start("best")?.map(|best| (-best.bound(), best));
        if best.as_ref().is_some_and(|(_, best)| best.bounds.is_empty()) {
            return Err("a start that is over must have made an iteration".into());
        }
        let state = RestartsState {
            started: from.get("started")?,
            current: start("current")?,
            best,
            // Those of the coreset below include them.
            lost_timings: Timings::default(),
            steps: from.get("steps")?,
            // Finishing a start reads no rows and cannot fail.
            ended: None,
            iteration: from.get("iteration")?,
            rows_seen: 0,
        };
        if state.current.is_none() && state.best.is_none() {
            return Err("it holds no components".into());
        }
        let plan = Truncated::plan(params.clone());
        let starts = Restarts::resumed(plan, (Self::count(&params), params.max_iter), state);
        let coreset = coreset_of(&from, starts.best().dim())?;
        if coreset.is_some() != params.coreset_size.is_some() {
            return Err("a coreset must be present if and only if \"coreset_size\" is set".into());
        }
        Ok(Self { params, starts, coreset, rows_seen: from.get("rows_seen")?, timings: from.get("timings")? })
    }
}

/// The coreset in a checkpoint, with rows of `dim` columns, if there is one.
fn coreset_of<T: Compute>(from: &StateReader<'_>, dim: usize) -> Result<Option<Coreset<T>>, String> {
    if !from.contents.arrays.contains_key("coreset_weights") {
        return Ok(None);
    }
    let points: RowBuf<T> = from.rows("coreset", dim)?;
    let (weights, rows): (_, Vec<u64>) = (from.weights("coreset_weights")?, from.get("coreset_rows")?);
    let finite = points.values.iter().all(|x| x.finite());
    if points.len() == weights.len() && rows.len() == weights.len() && finite {
        Ok(Some(Coreset { points, weights, rows }))
    } else {
        Err("the arrays of the coreset do not match each other".into())
    }
}

impl<T: Compute> Solver<T> for MixtureStarts<T> {
    type Model = GaussianMixture;

    fn needs(&self) -> Access {
        Access::Replay
    }

    fn maximizes(&self) -> bool {
        true
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        self.draw(data, cx)?;
        let mut step = match &self.coreset {
            None => self.starts.step(data, cx)?,
            Some(coreset) => self.starts.step(&coreset.weighted()?, cx)?,
        };
        if let Some(lost) = self.starts.take_lost() {
            self.rows_seen += lost.rows_seen;
        }
        step.rows_seen = self.rows_seen + self.kept().map(|start| start.rows_seen).sum::<u64>();
        Ok(step)
    }

    fn model(&self) -> GaussianMixture {
        GaussianMixture { timings: self.snapshot().timings, ..self.starts.model() }
    }
}

impl<T: Compute> MixtureStarts<T> {
    /// The view of the solver between two steps.
    pub(crate) fn snapshot(&self) -> Snapshot<'_, T> {
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
    fn facts(&self) -> Facts {
        self.snapshot().facts()
    }

    fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new(MIXTURE_CHECKPOINT);
        let state = self.starts.state();
        // A start interrupted in its first iteration starts again: it has means but no variance.
        let current = state.current.filter(|start| state.best.is_none() || start.n_iter() > 0);
        let unmoved = state.current.is_some() && current.is_none();
        to.put_value("seed", self.params.rng_seed);
        to.put("started", &(state.started - u64::from(unmoved)));
        to.put("steps", &state.steps);
        to.put("iteration", &state.iteration);
        to.put("rows_seen", &self.rows_seen);
        to.put("timings", &(self.timings + state.lost_timings));
        let best = state.best.map(|(_, best)| best);
        for (name, start) in [("current", current), ("best", best)] {
            if let Some(start) = start {
                to.contents.put(name, start.to_file());
            }
        }
        if let Some(coreset) = &self.coreset {
            to.put_rows("coreset", &coreset.points);
            to.put("coreset_weights", &coreset.weights);
            to.put("coreset_rows", &coreset.rows);
        }
        to.finish()
    }

    fn fits(&self, n: Option<u64>) -> bool {
        let n = self.coreset.as_ref().map(|coreset| coreset.rows.len() as u64).or(n);
        n.is_none_or(|n| self.kept().all(|start| start.near.len() as u64 == n * start.sizes().0 as u64))
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        self.starts.best_mut().label_all(data, cx)
    }
}
