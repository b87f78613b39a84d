//! Solver of exact k-means with several starts, and its checkpoint.

use super::lloyd::Lloyd;
use super::params::KMeansParams;
use crate::centers::{KMeansModel, Snapshot};
use crate::data::{Access, DataSource};
use crate::error::Result;
use crate::fit::{Facts, FitSolver, Restartable, Restarts, RestartsState, Solver, Step};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::persist::schema::KMEANS_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter};

/// A fit of [`Lloyd`] from several starts. The start with the lowest inertia wins.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
pub struct LloydStarts<T> {
    starts: Restarts<Lloyd<T>>,
}

impl<T: Compute> LloydStarts<T> {
    /// The number of starts, and the maximum number of steps of each.
    fn counts(params: &KMeansParams) -> (u64, u64) {
        (params.n_starts(), params.max_iter)
    }

    pub(super) fn plan(params: &KMeansParams) -> Self {
        let (starts, max_steps) = Self::counts(params);
        let starts = Restarts::new(Lloyd::plan(params.clone()), starts, max_steps);
        Self { starts }
    }

    /// Restores a solver with these parameters from [`FitSolver::checkpoint`]. The error says what is wrong.
    pub(super) fn of_checkpoint(params: &KMeansParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(KMEANS_CHECKPOINT)?;
        Self::of_file(params, contents)
    }

    /// As [`LloydStarts::of_checkpoint`], from contents of any kind.
    pub(super) fn of_file(params: &KMeansParams, contents: &Contents) -> Result<Self, String> {
        let from = StateReader::new(contents)?;
        let mut params = params.clone();
        params.rng_seed = from.seed()?;
        let lloyd =
            |name: &str| contents.part(name).map(|part| Lloyd::of_file(params.clone(), &part)).transpose();
        let best =
            lloyd("best")?.map(|best| Ok::<_, String>((from.get("best_objective")?, best))).transpose()?;
        let state = RestartsState {
            started: from.get("started")?,
            current: lloyd("current")?,
            best,
            lost_timings: from.get("timings")?,
            steps: from.get("steps")?,
            ended: from.get("ended")?,
            iteration: from.get("iteration")?,
            rows_seen: from.get("rows_seen")?,
        };
        if state.current.is_none() && state.best.is_none() {
            return Err("it holds no centers".into());
        }
        if state.ended.is_some() && state.current.is_none() {
            return Err("it holds the last step of a start, but not the start".into());
        }
        let starts = Restarts::resumed(Lloyd::plan(params.clone()), Self::counts(&params), state);
        Ok(Self { starts })
    }
}

impl<T: Compute> Solver<T> for LloydStarts<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        self.starts.needs()
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let step = self.starts.step(data, cx)?;
        // A start that lost holds labels of all rows.
        self.starts.take_lost();
        Ok(step)
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> LloydStarts<T> {
    /// The best start so far.
    pub(super) fn best(&self) -> &Lloyd<T> {
        self.starts.best()
    }

    /// The solver's public state between two steps.
    pub(crate) fn snapshot(&self) -> Snapshot<'_, T> {
        Snapshot { timings: self.starts.timings(), ..self.starts.best().snapshot() }
    }
}

impl<T: Compute> FitSolver<T> for LloydStarts<T> {
    fn facts(&self) -> Facts {
        self.snapshot().facts()
    }

    fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new(KMEANS_CHECKPOINT);
        let state = self.starts.state();
        to.put_value("seed", self.starts.best().seed());
        to.put("started", &state.started);
        to.put("steps", &state.steps);
        to.put("ended", &state.ended);
        to.put("iteration", &state.iteration);
        to.put("rows_seen", &state.rows_seen);
        to.put("timings", &state.lost_timings);
        if let Some(current) = state.current {
            to.contents.put("current", current.to_file());
        }
        if let Some((objective, best)) = state.best {
            to.put("best_objective", &objective);
            to.contents.put("best", best.to_file());
        }
        to.finish()
    }

    fn fits(&self, n: Option<u64>) -> bool {
        let starts = [Some(self.starts.best()), self.starts.challenger()];
        starts.into_iter().flatten().all(|start| n.is_none_or(|n| start.labels().len() as u64 == n))
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        self.starts.best_mut().finish(data, cx)
    }
}
