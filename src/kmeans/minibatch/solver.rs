//! This module knows mini-batch k-means as a state: sums and counts of everything ever assigned, and the centers that they make.

use std::collections::HashSet;
use std::time::Instant;

use serde_json::json;

use super::MiniBatchParams;
use super::progress::{Patience, Progress};
use crate::centers::{KMeansModel, Snapshot, inertia, label};
use crate::data::{Access, DataSource, Weighted, copy, count_rows, row_bytes, take};
use crate::error::{Error, Result};
use crate::fit::{Facts, FitSolver, Metric, StreamSolver, Timings, stored_timings, timings_of};
use crate::fit::{Solver, Step, StopReason};
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::batches::{BatchSolver, Draws, Moved, Spare, Waiting, as_of_source};
use crate::kmeans::state::is_wide;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Left, go_on};
use crate::persist::Contents;
use crate::persist::schema::{MINIBATCH_CHECKPOINT, MINIBATCH_STATE};
use crate::rng::{Purpose, Rng};
use crate::rows::SparseRef;
use crate::seeding::{Sample, Seeding, Seeds, draw, draw_sample, enough_rows};
use crate::stats::ClusterSums;
use crate::tuning::{VARIANCE_ROWS, batch_seeding_sample};

/// Everything that the next batch depends on: plain arrays and numbers.
#[derive(Clone, Debug)]
pub(in crate::kmeans) struct State<T> {
    /// Columns of a row; 0 before the first.
    pub(super) dim: usize,
    /// The centers; empty before there are enough rows.
    pub(super) centers: Vec<T>,
    /// Of everything ever assigned, the seeds included: a center is its sum by its weight.
    pub(super) clusters: ClusterSums,
    /// Rows that came before there were enough to seed from.
    pub(super) waiting: Waiting<T>,
    pub(super) seeded_by: String,
    pub(super) seed: u64,
    pub(super) n_steps: u64,
    pub(super) rows_seen: u64,
    /// Passes that these rows make.
    pub(super) n_iter: u64,
    /// Rows of the present pass that were taken, where rows come in passes.
    pub(super) position: u64,
    /// Rows since starving centers were last looked for.
    pub(super) since_reassigned: u64,
    pub(super) progress: Progress,
    /// Squared length of smoothed moves that ends a fit; known after the first batch, if it is wanted.
    pub(super) threshold: Option<f64>,
}

impl<T: Compute> State<T> {
    fn new(seed: u64) -> Self {
        Self {
            dim: 0,
            centers: Vec::new(),
            clusters: ClusterSums::new(0, 0),
            waiting: Waiting::default(),
            seeded_by: String::new(),
            seed,
            n_steps: 0,
            rows_seen: 0,
            n_iter: 0,
            position: 0,
            since_reassigned: 0,
            progress: Progress::default(),
            threshold: None,
        }
    }
}

/// Mini-batch k-means as a state: `O(k d)`, and nothing for each row but, after [`FitSolver::finish`], its label.
///
/// `Step::objective` is the weighted inertia of the batch about the centers before it moved them. A batch has no labels to compare with:
/// `Step::n_changed` is 0.
pub struct MiniBatchSolver<T: Compute> {
    params: MiniBatchParams,
    state: State<T>,
    timings: Timings,
    /// Labels of the present centers and their inertia, once a pass has made them.
    finished: Option<(Vec<u32>, f64)>,
    draws: Draws,
    spare: Spare,
    /// The centers of a batch of sparse rows, whose memory the next ones take.
    packed: Option<PackedCenters<T>>,
    /// What came of looking whether there are more rows, once a batch was in: said with the next step.
    failed: Option<Error>,
}

impl<T: Compute> MiniBatchSolver<T> {
    pub(super) fn new(params: MiniBatchParams) -> Self {
        let state = State::new(params.rng_seed);
        Self::of(params, state)
    }

    fn of(params: MiniBatchParams, state: State<T>) -> Self {
        Self {
            params,
            state,
            timings: Timings::default(),
            finished: None,
            draws: Draws::default(),
            spare: Spare::default(),
            packed: None,
            failed: None,
        }
    }

    /// With these parameters, from what [`StreamSolver::state`] gave.
    pub(super) fn restored(params: MiniBatchParams, state: &Contents) -> Result<Self, String> {
        state.must_be(MINIBATCH_STATE)?;
        Self::of_file(params, state)
    }

    /// With these parameters, from what [`FitSolver::checkpoint`] gave.
    pub(super) fn of_checkpoint(params: MiniBatchParams, checkpoint: &Contents) -> Result<Self, String> {
        checkpoint.must_be(MINIBATCH_CHECKPOINT)?;
        let timings = timings_of(&checkpoint.object("timings")?)?;
        Ok(Self { timings, ..Self::of_file(params, checkpoint)? })
    }

    fn of_file(params: MiniBatchParams, state: &Contents) -> Result<Self, String> {
        let state = State::of_file(state)?;
        let k = state.clusters.weights().len();
        if !state.centers.is_empty() && k != params.n_clusters {
            return Err(format!(
                "n_clusters={} differs from the {k} centers that there are",
                params.n_clusters
            ));
        }
        Ok(Self::of(params, state))
    }

    /// First centers, the best ones where they are chosen several times.
    fn best_seeds(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Seeds<T>> {
        let MiniBatchParams { n_clusters: k, seeding, n_init, init_size, .. } = &self.params;
        let (seed, most) = (self.state.seed, self.sample_rows(data));
        let choose = |start| match init_size {
            Some(_) => seeding.choose_of_sample(data, *k, seed, start, most, cx),
            None => seeding.choose_within(data, *k, seed, start, |n| most.min(n), cx),
        };
        let mut best = choose(0)?;
        if *n_init == 1 || matches!(seeding, Seeding::Given(_)) {
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
        for start in 1..*n_init as u64 {
            let seeds = choose(start)?;
            let found = energy(&seeds)?;
            if found < least {
                (best, least) = (seeds, found);
            }
        }
        Ok(best)
    }

    /// Adds sums and counts of another state.
    pub(super) fn merge(&mut self, other: &Contents) -> Result<()> {
        if is_wide(other).map_err(Error::Shape)? != (size_of::<T>() == size_of::<f64>()) {
            return Err(Error::Shape("the states to merge are of different floating-point types".into()));
        }
        other.must_be(MINIBATCH_STATE).map_err(Error::Shape)?;
        self.state.merge(&State::of_file(other).map_err(Error::Shape)?)?;
        self.finished = None;
        Ok(())
    }

    /// Rows to wait for before the first centers are chosen, where `wanted` would be good: none for given centers.
    fn enough(&self, wanted: u64) -> u64 {
        if matches!(self.params.seeding, Seeding::Given(_)) { 1 } else { wanted }
    }

    /// Whether a batch of `rows` is one after which starving centers are looked for.
    fn looks_for_starving(&self, rows: u64) -> bool {
        self.state.since_reassigned + rows >= 10 * self.params.n_clusters as u64
    }

    /// What the weights of earlier rows are multiplied by when a batch of so many rows comes.
    fn fade(&self, rows: u64) -> Option<f64> {
        self.params.half_life.map(|half_life| (-(rows as f64) / half_life).exp2())
    }

    /// The centers that starve once a batch with these weights is in, at most half as many as it has rows, and a row of the batch for each.
    fn places(
        &self,
        batch: &dyn DataSource<T>,
        rows: u64,
        added: &[f64],
    ) -> Result<Option<(Vec<usize>, Vec<T>)>> {
        if self.params.reassignment_ratio <= 0.0 || !self.looks_for_starving(rows) {
            return Ok(None);
        }
        let fade = self.fade(rows).unwrap_or(1.0);
        let weights: Vec<f64> =
            self.state.clusters.weights().iter().zip(added).map(|(old, new)| old * fade + new).collect();
        let enough = self.params.reassignment_ratio * weights.iter().copied().fold(0.0, f64::max);
        let mut starving: Vec<usize> = (0..weights.len()).filter(|&j| weights[j] < enough).collect();
        let most = (rows / 2) as usize;
        if starving.len() > most {
            // The worst off, the lower index first.
            starving.sort_by(|&i, &j| weights[i].total_cmp(&weights[j]).then(i.cmp(&j)));
            starving.truncate(most);
            starving.sort_unstable();
        }
        if starving.is_empty() {
            return Ok(None);
        }
        let rng = &mut Rng::keyed(self.state.seed, Purpose::Reassignment, self.state.n_steps);
        let mut drawn = draw(rows, batch.weights(), starving.len(), rng);
        if let Some(weights) = batch.weights() {
            drawn.retain(|&row| weights[row as usize] > 0.0);
            starving.truncate(drawn.len());
        }
        Ok(Some((starving, take(batch, &drawn)?)))
    }

    /// The reason to stop after a batch of a fit to `n` rows, if there is one. The first batch says nothing: its inertia is that of the
    /// seeds.
    fn stop_after(&mut self, moved: &Moved, n: u64) -> Option<StopReason> {
        if self.state.n_steps < 2 || moved.weight <= 0.0 {
            return None;
        }
        let patience = Patience { threshold: self.state.threshold, batches: self.params.max_no_improvement };
        let inertia = moved.objective / moved.weight;
        self.state.progress.observe((moved.rows, n), inertia, moved.sq_shift, &patience)
    }

    /// Notes from the first batch below which moves a fit ends, if that is wanted.
    fn measure_variance(&mut self, batch: &dyn DataSource<T>) -> Result<()> {
        if self.params.tolerance <= 0.0 || self.state.threshold.is_some() {
            return Ok(());
        }
        let dim = batch.dim();
        // Of a large batch some rows do, but not the first ones: they may be sorted.
        let some = batch.rows().unwrap_or_default();
        let every = some.div_ceil(VARIANCE_ROWS).max(1);
        let some: Vec<u64> = (0..some).step_by(every as usize).collect();
        let rows = copy(batch, &some)?;
        if let Some(rows) = rows.as_sparse() {
            self.state.threshold = Some(self.params.tolerance * mean_variance(rows));
            return Ok(());
        }
        let rows = rows.values;
        let n = (rows.len() / dim) as f64;
        let variance = |column: usize| {
            let values = || rows[column..].iter().step_by(dim).map(|x| x.to_f64());
            let mean = values().sum::<f64>() / n;
            values().map(|x| (x - mean).powi(2)).sum::<f64>() / n
        };
        let mean = (0..dim).map(variance).sum::<f64>() / dim as f64;
        self.state.threshold = Some(self.params.tolerance * mean);
        Ok(())
    }

    fn step_of(&self, moved: &Moved, stop_reason: Option<StopReason>) -> Step {
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

    /// A batch of rows drawn at random.
    fn draw_step(&mut self, data: &dyn DataSource<T>, n: u64, cx: &Executor) -> Result<Step> {
        let rng = &mut Rng::keyed(self.state.seed, Purpose::Batch, self.state.n_steps);
        let batch = self.draws.batch(data, n, self.params.batch_size.min(n), rng)?;
        self.measure_variance(&batch)?;
        let moved = self.absorb(&batch, cx).map_err(|error| as_of_source(error, &batch))?;
        self.state.n_iter = self.state.rows_seen.div_ceil(n);
        let stop = self.stop_after(&moved, n).or_else(|| {
            // As many whole batches as fit, but one at least.
            let most = u128::from(self.params.max_iter) * u128::from(n);
            let next = u128::from(self.state.rows_seen) + u128::from(moved.rows);
            (next > most).then_some(StopReason::MaxIterations)
        });
        Ok(self.step_of(&moved, stop))
    }

    /// The next batch of a pass, of consecutive rows; before there are centers as many as it takes to choose them.
    fn next_step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let size = usize::try_from(self.params.batch_size).unwrap_or(usize::MAX).min(1 << 40);
        let once = data.access() == Access::Once;
        let enough = self.enough(self.sample_rows(data));
        let mut all = None::<Moved>;
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
            // Fewer rows than it would have liked to seed from.
            let n = self.state.waiting.len() as u64;
            enough_rows(n, self.params.n_clusters)?;
            self.seed_from_waiting(None, Some(size), cx)?
        } else {
            return Err(Error::Source(format!(
                "the stream ended before row {position}, where this fit was left: it must give the same rows"
            )));
        };
        let stop = data.rows().and_then(|n| self.stop_after(&moved, n));
        if over {
            self.state.position = 0;
        }
        let last = over && (once || self.state.n_iter >= self.params.max_iter);
        Ok(self.step_of(&moved, stop.or(last.then_some(StopReason::MaxIterations))))
    }
}

impl<T: Compute> BatchSolver<T> for MiniBatchSolver<T> {
    type State = State<T>;

    fn state_mut(&mut self) -> &mut State<T> {
        &mut self.state
    }

    fn dim_mut(&mut self) -> &mut usize {
        &mut self.state.dim
    }

    fn waiting_mut(&mut self) -> &mut Waiting<T> {
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
        self.state.seed_with(data.dim(), &seeds.centers, seeds.method);
        self.timings.seeding += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Labels all rows with the present centers, then adds them to the sums, then moves the centers.
    fn absorb(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<Moved> {
        let begun = Instant::now();
        let (k, dim) = (self.params.n_clusters, self.state.dim);
        if batch.dim() != dim {
            let found = batch.dim();
            return Err(Error::Shape(format!("X has {found} columns, but the centers have {dim}")));
        }
        let sparse = batch.most_values().is_some();
        let centers = MatRef::new(&self.state.centers, dim);
        let packed = PackedCenters::in_place_of(self.packed.take(), centers, sparse);
        // Put back at the end: a batch that does not come there leaves who knows what in them.
        let spare = std::mem::take(&mut self.spare);
        let mut total = spare.lend(k, dim);
        let rows = spare.label_and_sum(batch, &packed, &mut total, cx)?;
        let places = self.places(batch, rows, total.sums().weights())?;
        let looked = self.looks_for_starving(rows);
        let fade = self.fade(rows);
        let state = &mut self.state;
        let sums = total.sums();
        state.clusters.check_means_with::<T>(fade.unwrap_or(1.0), sums)?;
        if let Some(fade) = fade {
            state.clusters.scale(fade);
        }
        let mut moved = Moved { rows, objective: sums.energy(), ..Moved::default() };
        let touched: Vec<usize> = (0..k).filter(|&j| sums.weights()[j] > 0.0).collect();
        moved.weight = sums.weights().iter().sum();
        state.clusters.merge(sums);
        for j in touched {
            moved.sq_shift += state.place(j);
        }
        if let Some((starving, at)) = places {
            let least = state.least_but(&starving);
            for (&j, row) in starving.iter().zip(at.chunks_exact(dim)) {
                // Beside a center that is there already it would starve again.
                if !state.has_center(row) {
                    state.clusters.replace(j, row, least);
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

/// The mean over columns of the variance of sparse rows.
fn mean_variance<T: Compute>(rows: SparseRef<'_, T>) -> f64 {
    let (n, mut means) = (rows.rows() as f64, vec![0.0; rows.cols()]);
    let stored = || rows.iter().flat_map(|(columns, values)| columns.iter().zip(values));
    stored().for_each(|(&column, x)| means[column as usize] += x.to_f64() / n);
    // As if all values were 0, and then what the others have more.
    let zeros: f64 = means.iter().map(|mean| n * mean * mean).sum();
    let more = stored().map(|(&column, x)| {
        let mean = means[column as usize];
        (x.to_f64() - mean).powi(2) - mean * mean
    });
    ((zeros + more.sum::<f64>()) / n / means.len() as f64).max(0.0)
}

impl<T: Compute> State<T> {
    /// Takes first centers, each of which counts as one row.
    fn seed_with(&mut self, dim: usize, centers: &[T], method: String) {
        let k = centers.len() / dim;
        self.dim = dim;
        self.centers = centers.to_vec();
        self.clusters = ClusterSums::new(k, dim);
        self.seeded_by = method;
        let mut seen = HashSet::new();
        for (j, center) in centers.chunks_exact(dim).enumerate() {
            // Fewer distinct rows than clusters: the ones too many stay empty.
            let bits: Vec<u64> = center.iter().map(|x| (x.to_f64() + 0.0).to_bits()).collect();
            if seen.insert(bits) {
                self.clusters.replace(j, center, 1.0);
            }
        }
    }

    /// Adds sums and counts of another state.
    fn merge(&mut self, other: &Self) -> Result<()> {
        let shape = |state: &Self| (state.clusters.weights().len(), state.dim);
        for (which, state) in [("this", self as &Self), ("the other", other)] {
            if state.centers.is_empty() {
                return Err(Error::Shape(format!("{which} state has no centers to merge yet")));
            }
        }
        if shape(self) != shape(other) {
            let ((k, d), (l, e)) = (shape(self), shape(other));
            return Err(Error::Shape(format!(
                "states of the same shape are needed: this one has {k} centers of {d} columns, the other {l} of {e}"
            )));
        }
        self.clusters.check_means_with::<T>(1.0, &other.clusters)?;
        self.clusters.merge(&mut other.clusters.clone());
        self.n_steps += other.n_steps;
        self.rows_seen += other.rows_seen;
        for j in 0..shape(other).0 {
            self.place(j);
        }
        Ok(())
    }

    /// Puts center `j` where its sum and weight say; gives the squared length of its move.
    fn place(&mut self, j: usize) -> f64 {
        let (sum, weight) = (self.clusters.sum(j), self.clusters.weights()[j]);
        let mut moved = 0.0;
        if weight > 0.0 {
            for (c, s) in self.centers[j * self.dim..].iter_mut().zip(sum) {
                let new = T::from_f64(s / weight);
                moved += (new.to_f64() - c.to_f64()).powi(2);
                *c = new;
            }
        }
        moved
    }

    /// Puts center `j` where a row is, to the bit; gives the squared length of its move.
    fn place_at(&mut self, j: usize, row: &[T]) -> f64 {
        let center = &mut self.centers[j * self.dim..][..self.dim];
        let moved = center.iter().zip(row).map(|(c, x)| (x.to_f64() - c.to_f64()).powi(2)).sum();
        center.copy_from_slice(row);
        moved
    }

    /// The least weight of the centers that do not starve: what those that begin anew count, so that they do not starve at once.
    fn least_but(&self, starving: &[usize]) -> f64 {
        let others = self.clusters.weights().iter().enumerate();
        let others = others.filter(|(j, _)| starving.binary_search(j).is_err()).map(|(_, &weight)| weight);
        others.fold(f64::INFINITY, f64::min)
    }

    fn has_center(&self, row: &[T]) -> bool {
        self.centers.chunks_exact(self.dim).any(|center| center == row)
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

impl<T: Compute> MiniBatchSolver<T> {
    /// What the solver shows between two steps.
    pub(crate) fn snapshot(&self) -> Snapshot<'_, T> {
        let state = &self.state;
        let (labels, inertia) =
            self.finished.as_ref().map_or((&[][..], f64::NAN), |(labels, inertia)| (&labels[..], *inertia));
        Snapshot {
            dim: state.dim,
            metric: Metric::Euclidean,
            centers: &state.centers,
            weights: state.clusters.weights(),
            labels,
            inertia,
            n_iter: state.n_iter,
            n_steps: state.n_steps,
            seeded_by: &state.seeded_by,
            algorithm: "minibatch",
            timings: self.timings,
        }
    }
}

impl<T: Compute> FitSolver<T> for MiniBatchSolver<T> {
    fn facts(&self) -> Facts {
        self.snapshot().facts()
    }

    fn checkpoint(&self) -> Contents {
        let mut contents = Contents { kind: MINIBATCH_CHECKPOINT.into(), ..self.state.to_file() };
        contents
            .meta
            .insert("timings".into(), json!({ "timings": stored_timings(self.timings) }).to_string());
        contents
    }

    fn fits(&self, n: Option<u64>) -> bool {
        n.is_none_or(|n| self.state.position <= n)
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        if let Some((_, inertia)) = &self.finished {
            return Ok(*inertia);
        }
        if data.access() == Access::Once {
            return Err(Error::Source("rows that can be read once have no labels: predict others".into()));
        }
        let (labels, inertia) = label(&self.state.centers, Metric::Euclidean, data, cx)?;
        self.finished = Some((labels, inertia));
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(inertia)
    }
}

impl<T: Compute> StreamSolver<T> for MiniBatchSolver<T> {
    fn partial_fit(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>> {
        let enough = self.enough(self.params.n_clusters as u64);
        let moved = self.take_in(batch, enough, None, cx)?;
        Ok(moved.map(|moved| self.step_of(&moved, None)))
    }

    fn state(&self) -> Contents {
        self.state.to_file()
    }
}
