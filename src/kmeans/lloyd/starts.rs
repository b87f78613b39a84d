//! Exact k-means from several starts, and its checkpoint.

use super::super::labels::NOTED_ROWS;
use super::params::KMeansParams;
use super::solver::Lloyd;
use crate::centers::Snapshot;
use crate::data::DataSource;
use crate::error::Result;
use crate::fit::{FitSolver, Restartable, Restarts, SolverState};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::persist::schema::KMEANS_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter};

/// A fit of [`Lloyd`] from several starts. The start with the lowest inertia wins.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
pub type LloydStarts<T> = Restarts<Lloyd<T>>;

/// Reads what [`SolverState::checkpoint`] wrote, from contents of any kind. The error says what is wrong.
pub(in crate::kmeans) fn restore_starts<T: Compute>(
    params: &KMeansParams,
    contents: &Contents,
) -> Result<LloydStarts<T>, String> {
    let from = StateReader::new(contents)?;
    let mut params = params.clone();
    params.rng_seed = from.seed()?;
    let mut starts = LloydStarts::plan(&params);
    let lloyd =
        |name: &str| contents.part(name).map(|part| Lloyd::restore(params.clone(), &part)).transpose();
    let state = &mut starts.state;
    state.get_fields(&from)?;
    state.current = lloyd("current")?;
    if let Some(best) = lloyd("best")? {
        state.best = Some((from.get("best_objective")?, best));
    }
    if state.current.is_none() && state.best.is_none() {
        return Err("it holds no centers".into());
    }
    if state.ended.is_some() && state.current.is_none() {
        return Err("it holds the last step of a start, but not the start".into());
    }
    Ok(starts)
}

impl<T: Compute> SolverState for LloydStarts<T> {
    type Params = KMeansParams;

    fn plan(params: &KMeansParams) -> Self {
        let n_starts = params.seeding.n_starts(params.n_init);
        Restarts::new(Lloyd::plan(params.clone()), n_starts, params.max_iter)
    }

    fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new(KMEANS_CHECKPOINT);
        self.state.put_fields(&mut to);
        to.put_value("seed", self.best().seed());
        if let Some(current) = &self.state.current {
            to.contents.put("current", current.checkpoint(NOTED_ROWS));
        }
        if let Some((objective, best)) = &self.state.best {
            to.put("best_objective", objective);
            to.contents.put("best", best.checkpoint(NOTED_ROWS));
        }
        to.finish()
    }

    fn restore(params: &KMeansParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(KMEANS_CHECKPOINT)?;
        restore_starts(params, contents)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        self.kept().all(|start| n.is_none_or(|n| start.rows() as u64 == n))
    }
}

impl<T: Compute> FitSolver<T> for LloydStarts<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        Snapshot { timings: self.timings(), ..self.best().snapshot() }
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        self.best_mut().finish(data, cx)
    }
}
