//! Solver of mini-batch k-means: seeding, batches, finish, checkpoint.

use std::time::Instant;

use super::super::batches::batch_seeding_sample;
use super::params::MiniBatchParams;
use super::progress::Patience;
use super::state::MiniBatchState;
use crate::centers::{KMeansModel, Snapshot, inertia, label, project};
use crate::data::{Access, DataSource, Weighted, count_rows, row_bytes};
use crate::error::{Error, Result};
use crate::fit::{
    FitSolver, MergeSolver, Metric, Solver, SolverState, Step, StopReason, StreamSolver, Timings,
};
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::batches::{
    BatchDraws, BatchSolver, BatchTotals, Spare, WaitingRows, as_of_source, check_centers, check_columns,
    check_readable, ended_early,
};
use crate::kmeans::stored_sums::is_wide;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Left, go_on};
use crate::persist::Contents;
use crate::persist::schema::{MINIBATCH_CHECKPOINT, MINIBATCH_STATE};
use crate::persist::state::StateReader;
use crate::rng::{Purpose, Rng};
use crate::seeding::{Sample, Seeding, Seeds, draw_sample, enough_rows};

/// Mini-batch k-means as a state. Memory is `O(k d)`, plus one label per row after [`FitSolver::finish`].
///
/// `Step::objective` is the weighted inertia of the batch about the centers before the batch moved them.
/// `Step::n_changed` is 0, because batches have no earlier labels.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Debug)]
pub struct MiniBatchSolver<T: Compute> {
    pub(super) params: MiniBatchParams,
    pub(super) state: MiniBatchState<T>,
    pub(super) timings: Timings,
    /// Labels and inertia of the current centers, after a pass has computed them.
    finished: Option<(Vec<u32>, f64)>,
    draws: BatchDraws,
    spare: Spare,
    /// Packed centers of the last batch of sparse rows, kept to reuse their memory.
    packed: Option<PackedCenters<T>>,
    /// An error from looking for further rows after a batch was complete; the next step returns it.
    failed: Option<Error>,
}

impl<T: Compute> MiniBatchSolver<T> {
    /// A solver in this state.
    fn of(params: &MiniBatchParams, state: MiniBatchState<T>) -> Self {
        Self {
            params: params.clone(),
            state,
            timings: Timings::default(),
            finished: None,
            draws: BatchDraws::default(),
            spare: Spare::default(),
            packed: None,
            failed: None,
        }
    }

    /// A solver in the state that `from` holds.
    fn restore_from(params: &MiniBatchParams, from: &StateReader<'_>) -> Result<Self, String> {
        let state = MiniBatchState::restore(from, params.metric)?;
        check_centers(&state.centers, state.clusters.weights().len(), params.n_clusters)?;
        Ok(Self::of(params, state))
    }

    /// The first centers: the best of `n_init` seedings, judged on a sample.
    fn best_seeds(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Seeds<T>> {
        let MiniBatchParams { n_clusters: k, seeding, n_init, init_size, .. } = &self.params;
        let (seed, most) = (self.state.seed, self.sample_rows(data));
        let choose = |start| match init_size {
            Some(_) => seeding.choose_of_sample(data, *k, seed, start, most, cx),
            None => seeding.choose_briefly(data, *k, seed, start, most, cx),
        };
        let mut best = choose(0)?;
        let n_starts = seeding.n_starts(*n_init);
        if n_starts == 1 {
            return Ok(best);
        }
        let rng = &mut Rng::keyed(seed, Purpose::Validation, 0);
        let some = if count_rows(data)? > most { Some(draw_sample(data, *k, most, rng)?) } else { None };
        let energy = |seeds: &Seeds<T>| {
            let of = |rows: &dyn DataSource<T>| inertia(&seeds.centers, None, Metric::Euclidean, rows, cx);
            match &some {
                None => of(data),
                Some(Sample { rows, weights: None, .. }) => of(rows),
                Some(Sample { rows, weights: Some(weights), .. }) => of(&Weighted::vouched(rows, weights)),
            }
        };
        let mut least = energy(&best)?;
        for start in 1..n_starts {
            let seeds = choose(start)?;
            let found = energy(&seeds)?;
            if found < least {
                (best, least) = (seeds, found);
            }
        }
        Ok(best)
    }

    /// Number of rows to wait for before the seeding; `wanted` is the number that the seeding prefers.
    fn enough(&self, wanted: u64) -> u64 {
        if matches!(self.params.seeding, Seeding::Given(_)) { 1 } else { wanted }
    }

    /// Factor on the weights of earlier rows when a batch of `rows` rows arrives.
    pub(super) fn fade(&self, rows: u64) -> Option<f64> {
        self.params.half_life.map(|half_life| (-(rows as f64) / half_life).exp2())
    }

    /// The reason to stop after a batch of a fit to `n` rows, if there is one. The first batch is ignored:
    /// its inertia is that of the seeds.
    fn stop_after(&mut self, moved: &BatchTotals, n: u64) -> Option<StopReason> {
        if self.state.n_steps < 2 || moved.weight <= 0.0 {
            return None;
        }
        // Until all rows had a chance, few of them, far from the others, may hold the average up or down.
        let batches = self.params.max_no_improvement.filter(|_| self.state.rows_seen >= n);
        let patience = Patience { threshold: self.state.threshold, batches };
        let inertia = moved.objective / moved.weight;
        self.state.progress.observe((moved.rows, n), inertia, moved.sq_shift, &patience)
    }

    fn step_of(&self, moved: &BatchTotals, stop_reason: Option<StopReason>) -> Step {
        Step {
            iteration: self.state.n_steps,
            rows_seen: self.state.rows_seen,
            batch_size: moved.rows,
            objective: moved.objective,
            center_shift: moved.sq_shift.sqrt(),
            n_changed: 0,
            n_distances: moved.rows * self.params.n_clusters as u64,
            elapsed: 0.0,
            stop_reason,
        }
    }

    /// One batch of randomly drawn rows.
    fn draw_step(&mut self, data: &dyn DataSource<T>, n: u64, cx: &Executor) -> Result<Step> {
        let rng = &mut Rng::keyed(self.state.seed, Purpose::Batch, self.state.n_steps);
        let batch = self.draws.batch(data, n, self.params.batch_size.min(n), rng)?;
        self.measure_variance(&batch)?;
        let moved = self.absorb(&batch, cx).map_err(|error| as_of_source(error, &batch))?;
        self.state.n_iter = self.state.rows_seen.div_ceil(n);
        let stop = self.stop_after(&moved, n).or_else(|| {
            // As many whole batches as fit into `max_iter` passes, but at least one: another batch begins the pass.
            let next = self.state.rows_seen + moved.rows;
            StopReason::after((next - 1) / n, self.params.max_iter)
        });
        Ok(self.step_of(&moved, stop))
    }

    /// One batch of consecutive rows. Before there are centers, the step reads as many batches as the seeding
    /// needs.
    fn next_step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let size = usize::try_from(self.params.batch_size).unwrap_or(usize::MAX).min(1 << 40);
        let once = data.access() == Access::Once;
        let enough = self.enough(self.sample_rows(data));
        let mut all = None::<BatchTotals>;
        let Left { over, failed, .. } = go_on(data, self.state.position, size, cx, &mut |batch, end| {
            self.measure_variance(batch)?;
            all = self.take_in(batch, enough, Some(size), cx)?;
            self.state.n_iter += u64::from(self.state.position == 0);
            self.state.position = end;
            Ok(all.is_some())
        })?;
        self.failed = failed;
        let position = self.state.position;
        let moved = if let Some(moved) = all {
            moved
        } else if self.state.centers.is_empty() {
            // The source has fewer rows than the seeding requested.
            let n = self.state.waiting.len() as u64;
            enough_rows(n, self.params.n_clusters)?;
            self.seed_from_waiting(None, Some(size), cx)?
        } else {
            return Err(ended_early(position));
        };
        let stop = data.rows().and_then(|n| self.stop_after(&moved, n));
        if over {
            self.state.position = 0;
        }
        let most = if once { 0 } else { self.params.max_iter };
        let last = StopReason::after(self.state.n_iter, most).filter(|_| over);
        Ok(self.step_of(&moved, stop.or(last)))
    }
}

impl<T: Compute> BatchSolver<T> for MiniBatchSolver<T> {
    type State = MiniBatchState<T>;

    fn state_mut(&mut self) -> &mut MiniBatchState<T> {
        &mut self.state
    }

    fn dim_mut(&mut self) -> &mut usize {
        &mut self.state.dim
    }

    fn waiting_mut(&mut self) -> &mut WaitingRows<T> {
        &mut self.state.waiting
    }

    fn has_centers(&self) -> bool {
        !self.state.centers.is_empty()
    }

    fn sample_rows(&self, data: &dyn DataSource<T>) -> u64 {
        self.params.init_size.unwrap_or_else(|| {
            batch_seeding_sample(self.params.batch_size, self.params.n_clusters, row_bytes(data))
        })
    }

    fn begin(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        let seeds = self.best_seeds(data, cx)?;
        let mut centers = seeds.centers;
        project(&mut centers, data.dim(), self.params.metric);
        self.state.seed_with(data.dim(), &centers, seeds.method);
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Labels all rows with the current centers, adds them to the sums, and moves the centers.
    fn absorb(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<BatchTotals> {
        let begun = Instant::now();
        let (k, dim) = (self.params.n_clusters, self.state.dim);
        check_columns(batch, dim)?;
        let sparse = batch.most_values().is_some();
        let centers = MatRef::new(&self.state.centers, dim);
        let packed = PackedCenters::in_place_of(self.packed.take(), centers, sparse, cx);
        // Returned to `self` only on success: a failed batch leaves partial sums in it.
        let spare = std::mem::take(&mut self.spare);
        let mut total = spare.lend(k, dim);
        let rows = spare.label_and_sum(batch, &packed, &mut total, cx)?;
        let places = self.places(batch, rows, &total, cx)?;
        let looked = self.looks_for_starving(rows);
        let fade = self.fade(rows);
        let state = &mut self.state;
        let sums = &mut *total;
        state.clusters.check_means_with::<T>(fade.unwrap_or(1.0), sums)?;
        if let Some(fade) = fade {
            state.clusters.scale(fade);
        }
        let mut moved = BatchTotals { rows, objective: sums.energy(), ..BatchTotals::default() };
        let touched: Vec<usize> = (0..k).filter(|&j| sums.weights()[j] > 0.0).collect();
        moved.weight = sums.weights().iter().sum();
        state.clusters.merge_rounded(sums, cx);
        for j in touched {
            moved.sq_shift += state.place(j);
        }
        if let Some(starving) = places {
            for (&j, row) in starving.centers.iter().zip(starving.rows.chunks_exact(dim)) {
                // Next to an identical center it would starve again.
                if !state.has_center(row) {
                    state.clusters.replace(j, row, starving.weight);
                    moved.sq_shift += state.place_at(j, row);
                }
            }
        }
        state.since_reassigned = if looked { 0 } else { state.since_reassigned + rows };
        state.n_steps += 1;
        state.rows_seen += rows;
        self.finished = None;
        drop(total);
        self.spare = spare;
        self.packed = sparse.then_some(packed);
        self.timings.sweeps += begun.elapsed().as_secs_f64();
        Ok(moved)
    }
}

impl<T: Compute> Solver<T> for MiniBatchSolver<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        Access::Once
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if self.state.centers.is_empty() && data.access() > Access::Once {
            self.begin(data, cx)?;
        }
        match data.rows().filter(|_| data.access() == Access::Random) {
            Some(n) => self.draw_step(data, n, cx),
            None => self.next_step(data, cx),
        }
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> FitSolver<T> for MiniBatchSolver<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let state = &self.state;
        let (labels, inertia) =
            self.finished.as_ref().map_or((&[][..], f64::NAN), |(labels, inertia)| (&labels[..], *inertia));
        Snapshot {
            dim: state.dim,
            metric: self.params.metric,
            centers: &state.centers,
            weights: state.clusters.weights(),
            labels: labels.into(),
            inertia,
            n_iter: state.n_iter,
            n_steps: state.n_steps,
            seeded_by: &state.seeded_by,
            algorithm: "minibatch",
            timings: self.timings,
        }
    }

    fn has_begun(&self) -> bool {
        self.has_centers()
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        if let Some((_, inertia)) = &self.finished {
            return Ok(*inertia);
        }
        check_readable(data)?;
        let (labels, inertia) = label(&self.state.centers, Metric::Euclidean, data, cx)?;
        self.finished = Some((labels, inertia));
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(inertia)
    }
}

impl<T: Compute> SolverState for MiniBatchSolver<T> {
    type Params = MiniBatchParams;

    fn plan(params: &MiniBatchParams) -> Self {
        Self::of(params, MiniBatchState::new(params.rng_seed, params.metric))
    }

    fn checkpoint(&self) -> Contents {
        let mut to = self.state.write(MINIBATCH_CHECKPOINT);
        to.put("timings", &self.timings);
        to.finish()
    }

    fn restore(params: &MiniBatchParams, checkpoint: &Contents) -> Result<Self, String> {
        checkpoint.must_be(MINIBATCH_CHECKPOINT)?;
        let from = StateReader::new(checkpoint)?;
        let timings = from.get("timings")?;
        let mut new = Self::restore_from(params, &from)?;
        new.timings = timings;
        Ok(new)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        n.is_none_or(|n| self.state.position <= n)
    }
}

impl<T: Compute> StreamSolver<T> for MiniBatchSolver<T> {
    fn for_batches(params: &MiniBatchParams) -> MiniBatchParams {
        params.clone().n_init(1)
    }

    fn restore_state(params: &MiniBatchParams, state: &Contents) -> Result<Self, String> {
        state.must_be(MINIBATCH_STATE)?;
        Self::restore_from(params, &StateReader::new(state)?)
    }

    fn state(&self) -> Contents {
        self.state.write(MINIBATCH_STATE).finish()
    }

    fn partial_fit(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>> {
        let enough = self.enough(self.params.n_clusters as u64);
        let moved = self.take_in(batch, enough, None, cx)?;
        Ok(moved.map(|moved| self.step_of(&moved, None)))
    }
}

impl<T: Compute> MergeSolver<T> for MiniBatchSolver<T> {
    fn merge(&mut self, other: &Contents) -> Result<()> {
        if is_wide(other).map_err(Error::Shape)? != T::WIDE {
            return Err(Error::Shape("the states to merge must have the same compute type".into()));
        }
        other.must_be(MINIBATCH_STATE).map_err(Error::Shape)?;
        let other =
            StateReader::new(other).and_then(|from| MiniBatchState::restore(&from, self.params.metric));
        self.state.merge(&other.map_err(Error::Shape)?)?;
        self.finished = None;
        Ok(())
    }
}
