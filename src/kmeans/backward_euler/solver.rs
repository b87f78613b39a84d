//! Solver of stochastic backward Euler: seeding, inner iterations, finish, checkpoint.

use std::time::Instant;

use super::super::batches::batch_seeding_sample;
use super::params::BackwardEulerParams;
use super::state::BackwardEulerState;
use super::trajectory::InnerStep;
use crate::centers::{KMeansModel, LabelList, LabelsRef, Snapshot, project};
use crate::data::{Access, DataSource, row_bytes};
use crate::error::{Error, Result};
use crate::fit::{FitSolver, Solver, SolverState, Step, StopReason, StreamSolver, Timings};
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::batches::{
    BatchDraws, BatchSolver, BatchTotals, Spare, WaitingRows, check_centers, check_columns, check_readable,
};
use crate::kmeans::labels::all_labels;
use crate::kmeans::lloyd::params::{KMeans, KMeansParams};
use crate::kmeans::lloyd::starts::{LloydStarts, restore_starts};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::persist::schema::{BACKWARD_EULER_CHECKPOINT, BACKWARD_EULER_STATE};
use crate::persist::state::StateReader;
use crate::seeding::Seeding;
use crate::stats::ClusterSums;

/// Stochastic backward Euler as a state. Memory is `O(k d)`, plus one label per row after
/// [`FitSolver::finish`].
///
/// `Step::objective` is the weighted inertia of the step's batches. Each batch is measured about the iterate
/// that labeled it. `Step::n_changed` is 0, because batches have no earlier labels, except in the final
/// sweeps.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Debug)]
pub struct BackwardEulerSolver<T: Compute> {
    pub(super) params: BackwardEulerParams,
    pub(super) state: BackwardEulerState<T>,
    /// The step size of each outer step of a fit.
    pub(super) step_sizes: Vec<f64>,
    /// The final sweeps over all rows, once they have begun.
    pub(super) polish: Option<LloydStarts<T>>,
    pub(super) timings: Timings,
    /// Labels, cluster weights and inertia of the current centers, after a pass has computed them.
    pub(super) finished: Option<(LabelList, Vec<f64>, f64)>,
    pub(super) draws: BatchDraws,
    pub(super) spare: Spare,
    /// The last outer step was discarded because it diverged.
    pub(super) rejected: bool,
    /// The centers at the start of the current step.
    pub(super) before: Vec<T>,
    /// An error from looking for further rows after an outer step was complete; the next step returns it.
    pub(super) failed: Option<Error>,
}

impl<T: Compute> BackwardEulerSolver<T> {
    /// A solver in this state.
    fn of(params: &BackwardEulerParams, state: BackwardEulerState<T>) -> Self {
        Self {
            params: params.clone(),
            state,
            step_sizes: Vec::new(),
            polish: None,
            timings: Timings::default(),
            finished: None,
            draws: BatchDraws::default(),
            spare: Spare::default(),
            rejected: false,
            before: Vec::new(),
            failed: None,
        }
    }

    /// A solver in the state that `from` holds.
    fn restore_from(params: &BackwardEulerParams, from: &StateReader<'_>) -> Result<Self, String> {
        let state = BackwardEulerState::restore(from)?;
        check_centers(&state.centers, state.given.len(), params.n_clusters)?;
        Ok(Self::of(params, state))
    }

    /// Parameters of the final sweeps, which start from the current centers.
    pub(super) fn polish_params(&self) -> KMeansParams {
        let centers = self.state.centers.iter().map(|c| c.to_f64()).collect();
        KMeans::params(self.params.n_clusters)
            .metric(self.params.metric)
            .seeding(Seeding::Given(centers))
            .bounds_memory(self.params.bounds_memory)
    }

    /// Step size of the current outer step.
    fn step_size(&self) -> f64 {
        self.params.first_step_size() * self.state.fade
    }

    /// Number of rows to wait for before the seeding; `wanted` is the number that the seeding prefers.
    pub(super) fn enough(&self, wanted: u64) -> u64 {
        match self.params.seeding {
            Seeding::Given(_) => 1,
            Seeding::Random => self.params.n_clusters as u64,
            _ => wanted,
        }
    }
}

impl<T: Compute> BatchSolver<T> for BackwardEulerSolver<T> {
    type State = BackwardEulerState<T>;

    fn state_mut(&mut self) -> &mut BackwardEulerState<T> {
        &mut self.state
    }

    fn dim_mut(&mut self) -> &mut usize {
        &mut self.state.trajectory.dim
    }

    fn waiting_mut(&mut self) -> &mut WaitingRows<T> {
        &mut self.state.waiting
    }

    fn has_centers(&self) -> bool {
        !self.state.centers.is_empty()
    }

    fn sample_rows(&self, data: &dyn DataSource<T>) -> u64 {
        batch_seeding_sample(self.params.batch_size, self.params.n_clusters, row_bytes(data))
    }

    fn begin(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        let k = self.params.n_clusters;
        let most = self.sample_rows(data);
        let seeds = self.params.seeding.choose_briefly(data, k, self.state.seed, 0, most, cx)?;
        self.state.trajectory.dim = data.dim();
        let mut centers = seeds.centers;
        project(&mut centers, data.dim(), self.params.metric);
        self.state.place(&centers);
        (self.state.given, self.state.recent) = (vec![0.0; k], vec![0.0; k]);
        self.state.seeded_by = seeds.method;
        self.before = centers;
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// One inner iteration. Ends the outer step after the last one. A batch without weight counts as none.
    fn absorb(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<BatchTotals> {
        let begun = Instant::now();
        let (k, dim) = (self.params.n_clusters, self.state.trajectory.dim);
        check_columns(batch, dim)?;
        let iterate: Vec<T> = self.state.trajectory.rounded();
        let packed = PackedCenters::on(MatRef::new(&iterate, dim), batch.most_values().is_some(), cx);
        // Returned to `self` only on success: a failed batch leaves partial sums in it.
        let spare = std::mem::take(&mut self.spare);
        let mut total = spare.lend(k, dim);
        let rows = spare.label_and_sum(batch, &packed, &mut total, cx)?;
        let mut sums = ClusterSums::new(k, dim);
        sums.merge(&mut total);
        drop(total);
        self.spare = spare;
        let weight: f64 = sums.weights().iter().sum();
        let moved = BatchTotals { rows, weight, objective: sums.energy(), sq_shift: 0.0 };
        let pull = InnerStep {
            step_size: self.step_size(),
            cap: self.params.cap(),
            averaging: self.params.averaging,
            metric: self.params.metric,
        };
        let state = &mut self.state;
        state.rows_seen += rows;
        if weight > 0.0 {
            state.n_steps += 1;
            state.note(rows, sums.weights(), weight);
            if !state.trajectory.pull::<T>(&sums, weight, &pull) {
                state.trajectory.reject();
                self.rejected = true;
            } else if state.trajectory.inner >= self.params.n_inner {
                state.close(self.params.decay());
            }
            state.centers.clear();
            state.centers.extend(state.trajectory.mean.iter().map(|&x| T::from_f64(x)));
        }
        self.finished = None;
        self.timings.sweeps += begun.elapsed().as_secs_f64();
        Ok(moved)
    }
}

impl<T: Compute> Solver<T> for BackwardEulerSolver<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        if self.params.polish == Some(true) { Access::Replay } else { Access::Once }
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if self.params.polishes(data.access()) && self.state.n_iter >= self.params.max_iter {
            self.polish_step(data, cx)
        } else {
            self.outer_step(data, cx)
        }
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> BackwardEulerSolver<T> {
    pub(super) fn step_sizes(&self) -> &[f64] {
        &self.step_sizes
    }

    /// Clusters that get almost no rows from batches; none after the final sweeps.
    pub(super) fn starved(&self) -> Vec<u32> {
        // Sweeps give every cluster its rows.
        if self.polish.is_some() { Vec::new() } else { self.state.starved() }
    }
}

impl<T: Compute> FitSolver<T> for BackwardEulerSolver<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let state = &self.state;
        let polish = self.polish.as_ref().map(FitSolver::snapshot);
        let (labels, weights, inertia) = match (&polish, &self.finished) {
            (Some(polish), _) => (polish.labels, polish.weights, polish.inertia),
            (None, Some((labels, weights, inertia))) => (labels.view(), &weights[..], *inertia),
            (None, None) => (LabelsRef::from(&[][..]), &state.given[..], f64::NAN),
        };
        let mut timings = self.timings;
        if let Some(polish) = &polish {
            timings.sweeps += polish.timings.sweeps;
            timings.finish += polish.timings.finish;
        }
        Snapshot {
            dim: state.trajectory.dim,
            metric: self.params.metric,
            centers: &state.centers,
            weights,
            labels,
            inertia,
            n_iter: state.n_iter,
            n_steps: state.n_steps,
            seeded_by: &state.seeded_by,
            algorithm: "sbe",
            timings,
        }
    }

    fn has_begun(&self) -> bool {
        self.has_centers()
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        if let Some(polish) = &mut self.polish {
            return polish.finish(data, cx);
        }
        if let Some((_, _, inertia)) = &self.finished {
            return Ok(*inertia);
        }
        check_readable(data)?;
        let begun = Instant::now();
        let centers = MatRef::new(&self.state.centers, self.state.trajectory.dim);
        let finished = self.finished.insert(all_labels(centers, data, cx)?);
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(finished.2)
    }
}

impl<T: Compute> SolverState for BackwardEulerSolver<T> {
    type Params = BackwardEulerParams;

    fn plan(params: &BackwardEulerParams) -> Self {
        Self::of(params, BackwardEulerState::new(params.rng_seed))
    }

    fn checkpoint(&self) -> Contents {
        let mut to = self.state.write(BACKWARD_EULER_CHECKPOINT);
        to.put("timings", &self.timings);
        to.put("step_sizes", &self.step_sizes);
        if let Some(polish) = &self.polish {
            to.contents.put("polish", polish.checkpoint());
        }
        to.finish()
    }

    fn restore(params: &BackwardEulerParams, checkpoint: &Contents) -> Result<Self, String> {
        checkpoint.must_be(BACKWARD_EULER_CHECKPOINT)?;
        let from = StateReader::new(checkpoint)?;
        let (timings, step_sizes) = (from.get("timings")?, from.weights("step_sizes")?);
        let mut new = Self { step_sizes, timings, ..Self::restore_from(params, &from)? };
        // `partial_fit` after a fit makes outer steps that are not listed, so fewer entries are allowed.
        if new.step_sizes.len() as u64 > new.state.n_iter {
            return Err("its \"step_sizes\" are more than its outer steps".into());
        }
        if let Some(part) = checkpoint.part("polish") {
            let polish = restore_starts(&new.polish_params(), &part)?;
            let Snapshot { dim, centers, .. } = polish.snapshot();
            if dim != new.state.trajectory.dim || centers != new.state.centers {
                return Err("its \"polish\" does not belong to its \"centers\"".into());
            }
            new.polish = Some(polish);
        }
        Ok(new)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        n.is_none_or(|n| self.state.position <= n) && self.polish.as_ref().is_none_or(|polish| polish.fits(n))
    }
}

impl<T: Compute> StreamSolver<T> for BackwardEulerSolver<T> {
    fn restore_state(params: &BackwardEulerParams, state: &Contents) -> Result<Self, String> {
        state.must_be(BACKWARD_EULER_STATE)?;
        Self::restore_from(params, &StateReader::new(state)?)
    }

    fn state(&self) -> Contents {
        self.state.write(BACKWARD_EULER_STATE).finish()
    }

    fn partial_fit(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>> {
        self.before.clone_from(&self.state.centers);
        self.rejected = false;
        let enough = self.enough(self.params.n_clusters as u64);
        let moved = self.take_in(batch, enough, None, cx)?;
        // A batch moves the centers, so the sweeps of the fit cannot continue.
        self.polish = moved.map_or(self.polish.take(), |_| None);
        let stop = self.rejected.then_some(StopReason::Diverged);
        Ok(moved.map(|moved| self.step_of(self.state.n_steps, &moved, stop)))
    }
}
