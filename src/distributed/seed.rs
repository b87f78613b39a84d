//! k-means|| over partitions (Bahmani, Moseley, Vattani, Kumar and Vassilvitskii, 2012).
//!
//! A round draws a fixed number of rows without replacement, by weight times squared distance to the candidates so
//! far: those with the smallest exponential waiting times (Efraimidis and Spirakis, 2006). The waiting time of a row
//! is keyed by its number, so that one pass is enough for a round, and retries change nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use super::errors::of_others;
use super::extent::Extent;
use super::kmeans::{KMeansPass, digest, seen_by};
use super::partial::{About, Partial};
use super::picked::{Entry, Picked};
use super::place::Place;
use super::seed_sums::{Draws, Votes};
use super::sums::Sums;
use crate::data::{AnySource, DataSource, Source, Weighted, no_weight, too_heavy};
use crate::error::{Error, Result};
use crate::fit::{Element, Metric, Step};
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::persist::kept::Values;
use crate::rng::{Purpose, Rng, mix};
use crate::rows::RowBuf;
use crate::seeding::Seeding;
use crate::tuning::SEEDING_TILE_ROWS;

/// One pass of k-means||, which chooses the first centers among the rows.
///
/// ```
/// use shoal::{Executor, Metric, distributed::{Place, SeedPass}};
/// let (partitions, cx) = ([[[0.0f32], [0.1]], [[9.0], [9.1]]], Executor::new(Some(1))?);
/// let mut task = SeedPass::new(2, 2.0, 5, Metric::Euclidean, 7)?;
/// while task.centers::<f32>().is_none() {
///     let one = task.absorb(&partitions[0], Place::Partition(0), &cx)?;
///     let two = task.absorb(&partitions[1], Place::Partition(1), &cx)?;
///     task = task.commit(&two.merge(&one)?)?.0;
/// }
/// let mut centers = task.centers::<f32>().unwrap();
/// centers.sort_by(f32::total_cmp);
/// assert!(centers[0] < 1.0 && centers[1] > 8.0);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SeedPass {
    pub(super) k: usize,
    pub(super) oversampling: f64,
    pub(super) rounds: u64,
    pub(super) metric: Metric,
    pub(super) seed: u64,
    pub(super) stage: Stage,
    /// Number of passes so far, and of the rows in all of them.
    pub(super) passes: u64,
    pub(super) rows_seen: u64,
    /// Of the pass before.
    pub(super) extent: Option<Extent>,
    /// Columns of a row; 0 before the first pass.
    pub(super) dim: usize,
    /// The rows drawn so far; at the end, the centers.
    pub(super) candidates: Values,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Draws rows; the first pass draws one, by weight.
    Drawing,
    /// Counts the rows nearest to each candidate.
    Voting,
    Done,
}

/// The contribution of a tile.
struct Part {
    rows: u64,
    draws: Draws,
}

/// Buffers of a worker.
struct Buffers<T> {
    labels: Vec<u32>,
    sq_dists: Vec<f64>,
    kernel: Scratch<T>,
}

impl<T: Compute> Default for Buffers<T> {
    fn default() -> Self {
        Self { labels: Vec::new(), sq_dists: Vec::new(), kernel: Scratch::default() }
    }
}

impl<T: Compute> Buffers<T> {
    /// Finds the nearest candidate of every row of a chunk; without candidates, all distances are 1.
    fn measure(&mut self, chunk: &Chunk<'_, T>, packed: Option<&PackedCenters<T>>) -> Result<()> {
        let n = chunk.rows.rows();
        self.labels.resize(n, 0);
        self.sq_dists.resize(n, 1.0);
        let Some(packed) = packed else {
            self.sq_dists.fill(1.0);
            return chunk.check_finite();
        };
        kernel::nearest(chunk.rows, packed, &mut self.labels, &mut self.kernel);
        kernel::sq_dists(chunk.rows, &self.labels, packed, &mut self.sq_dists);
        if self.sq_dists.iter().all(|sq_dist| sq_dist.is_finite()) { Ok(()) } else { Err(chunk.not_finite()) }
    }
}

impl SeedPass {
    /// The first pass for `k` centers: `rounds` rounds of `oversampling * k` rows each.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] for a parameter out of its range.
    pub fn new(k: usize, oversampling: f64, rounds: usize, metric: Metric, seed: u64) -> Result<Self> {
        if k == 0 || k > kernel::MAX_CENTERS {
            return Err(Error::param("n_clusters", format!("in 1..={}", kernel::MAX_CENTERS), k));
        }
        let most = oversampling * k as f64;
        if !(oversampling > 0.0 && most * rounds as f64 <= kernel::MAX_CENTERS as f64) {
            let expected = format!("above 0, and at most {} / (rounds * n_clusters)", kernel::MAX_CENTERS);
            return Err(Error::param("oversampling", expected, oversampling));
        }
        if rounds == 0 {
            return Err(Error::param("rounds", "at least 1", 0));
        }
        Ok(Self {
            k,
            oversampling,
            rounds: rounds as u64,
            metric,
            seed,
            stage: Stage::Drawing,
            passes: 0,
            rows_seen: 0,
            extent: None,
            dim: 0,
            candidates: Values::F32(Vec::new()),
        })
    }

    /// The centers, row by row, once they are chosen.
    pub fn centers<T: Compute>(&self) -> Option<Vec<T>> {
        (self.stage == Stage::Done).then(|| self.candidates.get())
    }

    /// The first sweep of k-means from the chosen centers. It expects the rows and partitions of the seeding.
    ///
    /// # Errors
    /// [`Error::Source`] until the centers are chosen.
    ///
    /// ```
    /// use shoal::{Executor, Metric, distributed::{Place, SeedPass}};
    /// let (rows, cx) = ([[0.0f32], [9.0]], Executor::new(Some(1))?);
    /// let mut seeds = SeedPass::new(2, 2.0, 1, Metric::Euclidean, 7)?;
    /// assert!(seeds.first_sweep().is_err());
    /// while seeds.centers::<f32>().is_none() {
    ///     seeds = seeds.commit(&seeds.absorb(&rows, Place::Partition(0), &cx)?)?.0;
    /// }
    /// let task = seeds.first_sweep()?;
    /// let fewer = task.absorb(&[[0.0f32]], Place::Partition(0), &cx)?;
    /// assert!(task.commit(&fewer).unwrap_err().to_string().starts_with("total must hold 2 rows of 1 partitions"));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn first_sweep(&self) -> Result<KMeansPass> {
        if self.stage != Stage::Done {
            return Err(Error::Source("the centers are not chosen yet: commit more passes".into()));
        }
        let Self { dim, metric, candidates, .. } = self;
        let mut pass = if candidates.is_wide() {
            KMeansPass::new(&candidates.get::<f64>(), *dim, *metric)?
        } else {
            KMeansPass::new(&candidates.get::<f32>(), *dim, *metric)?
        };
        pass.state.extent.clone_from(&self.extent);
        Ok(pass)
    }

    /// Number of columns; 0 before the first pass.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Whether the rows are computed as `f64`; `None` before the first pass.
    pub(crate) fn is_wide(&self) -> Option<bool> {
        (self.dim > 0).then(|| self.candidates.is_wide())
    }

    /// The rows of the pass before, and the names of their columns.
    #[cfg(feature = "python")]
    pub(crate) fn extent(&self) -> Option<&Extent> {
        self.extent.as_ref()
    }

    fn n_candidates(&self) -> usize {
        self.candidates.len().checked_div(self.dim).unwrap_or(0)
    }

    /// Number of rows that this pass draws.
    fn most(&self) -> usize {
        if self.dim == 0 { 1 } else { ((self.oversampling * self.k as f64).ceil() as usize).max(1) }
    }

    /// The bytes of one partial result, at most.
    #[cfg(feature = "python")]
    pub(crate) fn result_bytes(&self) -> usize {
        match self.stage {
            Stage::Drawing => self.most() * Picked::row_bytes(self.dim),
            Stage::Voting | Stage::Done => 8 * self.n_candidates(),
        }
    }

    fn digest(&self) -> u64 {
        let numbers = [self.k as u64, self.seed, self.passes, self.metric as u64, self.most() as u64];
        digest(3, &numbers, &self.candidates)
    }

    /// The exponential waiting time of a row at rate 1.
    fn wait(key: u64, row: u64) -> f64 {
        let unit = ((mix(key ^ mix(row)) >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64);
        -unit.ln()
    }

    /// Runs the pass over a partition.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another width or compute type than before. Those of the source,
    /// [`Error::NotFinite`], [`Error::Interrupted`]. [`Error::Source`] if the centers are chosen.
    pub fn absorb<S: Source + ?Sized>(&self, rows: &S, place: Place, cx: &Executor) -> Result<Partial> {
        match rows.any() {
            AnySource::F32(data) => self.absorb_typed(data, place, cx),
            AnySource::F64(data) => self.absorb_typed(data, place, cx),
        }
    }

    pub(crate) fn absorb_typed<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        place: Place,
        cx: &Executor,
    ) -> Result<Partial> {
        place.check()?;
        let dim = data.dim();
        if let Some(wide) = self.is_wide() {
            super::kmeans::fits(data, self.dim, wide)?;
        }
        let candidates = self.candidates.get::<T>();
        let ((rows, sums), seen) = seen_by(data, self.metric, |data| {
            let sparse = data.most_values().is_some();
            let packed =
                (self.dim > 0).then(|| PackedCenters::for_rows(MatRef::new(&candidates, self.dim), sparse));
            match (self.stage, &packed) {
                (Stage::Drawing, packed) => self.draw(data, place, packed.as_ref(), cx),
                (Stage::Voting, Some(packed)) => Self::vote(data, packed, cx),
                _ => Err(Error::Source("the centers are chosen: there are no more passes".into())),
            }
        })?;
        Partial::new(self.digest(), place, rows, About::new::<T>(dim, place, seen), sums)
    }

    /// The partial result of a partition without rows, which no source can be.
    pub fn absorb_nothing(&self, place: Place) -> Partial {
        let sums = if self.stage == Stage::Voting {
            Sums::Votes(Votes { votes: vec![0.0; self.n_candidates()], energy: 0.0 })
        } else {
            Sums::Draws(Draws { weight: 0.0, energy: 0.0, picked: Picked::new::<f32>(0, self.most()) })
        };
        Partial::empty(self.digest(), place, sums)
    }

    fn draw<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        place: Place,
        packed: Option<&PackedCenters<T>>,
        cx: &Executor,
    ) -> Result<(u64, Sums)> {
        let (dim, most) = (data.dim(), self.most());
        let key = place.key(Rng::keyed(self.seed, Purpose::Oversampling, self.passes).bits());
        let empty = || Part {
            rows: 0,
            draws: Draws { weight: 0.0, energy: 0.0, picked: Picked::new::<T>(dim, most) },
        };
        // The largest waiting time that is kept, as bits: it only falls, so an old value drops no row.
        let limit = AtomicU64::new(f64::INFINITY.to_bits());
        let absorb = |chunk: Chunk<'_, T>, (): (), part: &mut Part, buffers: &mut Buffers<T>| {
            buffers.measure(&chunk, packed)?;
            let limit = f64::from_bits(limit.load(Ordering::Relaxed));
            let Part { rows, draws } = part;
            *rows += chunk.rows.rows() as u64;
            for (i, &sq_dist) in buffers.sq_dists.iter().enumerate() {
                let weight = chunk.weights.map_or(1.0, |w| w[i]);
                draws.weight += weight;
                draws.energy += weight * sq_dist;
                let row = place.first_row() + chunk.first_row + i as u64;
                let wait = Self::wait(key, row) / (weight * sq_dist);
                // A row at a candidate, or without weight, waits forever.
                if wait.is_finite() && wait <= limit {
                    let entry = Entry { key: wait, partition: place.partition(), row, weight, label: 0 };
                    draws.picked.push(entry, chunk.rows, i);
                }
            }
            Ok(())
        };
        let merge = |total: &mut Part, part: &mut Part| {
            total.rows += std::mem::take(&mut part.rows);
            total.draws.weight += std::mem::take(&mut part.draws.weight);
            total.draws.energy += std::mem::take(&mut part.draws.energy);
            total.draws.picked.append(&mut part.draws.picked);
            part.draws.picked.clear();
            limit.store(total.draws.picked.limit().to_bits(), Ordering::Relaxed);
        };
        let mut total = empty();
        sweep(data, cx, SEEDING_TILE_ROWS, (), &mut total, (empty, Buffers::default), absorb, merge)?;
        if !(total.draws.energy.is_finite() && total.draws.weight.is_finite()) {
            return Err(too_heavy(total.draws.weight != total.rows as f64));
        }
        total.draws.picked.prune();
        Ok((total.rows, Sums::Draws(total.draws)))
    }

    fn vote<T: Compute>(
        data: &dyn DataSource<T>,
        packed: &PackedCenters<T>,
        cx: &Executor,
    ) -> Result<(u64, Sums)> {
        let n = packed.n_centers();
        let empty = || (0u64, Votes { votes: vec![0.0; n], energy: 0.0 });
        let absorb = |chunk: Chunk<'_, T>, (): (), part: &mut (u64, Votes), buffers: &mut Buffers<T>| {
            buffers.measure(&chunk, Some(packed))?;
            part.0 += chunk.rows.rows() as u64;
            for (i, (&label, &sq_dist)) in buffers.labels.iter().zip(&buffers.sq_dists).enumerate() {
                let weight = chunk.weights.map_or(1.0, |w| w[i]);
                part.1.votes[label as usize] += weight;
                part.1.energy += weight * sq_dist;
            }
            Ok(())
        };
        let merge = |total: &mut (u64, Votes), part: &mut (u64, Votes)| {
            total.0 += std::mem::take(&mut part.0);
            total.1.energy += std::mem::take(&mut part.1.energy);
            for (total, part) in total.1.votes.iter_mut().zip(&mut part.1.votes) {
                *total += std::mem::take(part);
            }
        };
        let mut total = empty();
        sweep(data, cx, SEEDING_TILE_ROWS, (), &mut total, (empty, Buffers::default), absorb, merge)?;
        if !total.1.votes.iter().chain([&total.1.energy]).all(|x| x.is_finite()) {
            return Err(too_heavy(total.1.votes.iter().sum::<f64>() != total.0 as f64));
        }
        Ok((total.0, Sums::Votes(total.1)))
    }

    /// Adds the drawn rows to the candidates, or chooses the centers among them.
    ///
    /// `Step::objective` is the weighted sum of squared distances to the candidates; NaN for the first pass.
    ///
    /// # Errors
    /// [`Error::Source`] as for [`KMeansPass::commit`](super::KMeansPass::commit). [`Error::InvalidParam`] if there
    /// are fewer rows than centers, or no row has weight.
    pub fn commit(&self, total: &Partial) -> Result<(Self, Step)> {
        let (extent, sums) = total.whole(self.digest(), self.extent.as_ref())?;
        let rows = extent.rows;
        crate::seeding::enough_rows(rows, self.k)?;
        let mut next = self.clone();
        next.passes += 1;
        next.rows_seen = next.rows_seen.saturating_add(rows);
        next.extent = Some(extent);
        let objective = match (self.stage, sums) {
            (Stage::Drawing, Sums::Draws(draws)) if draws.picked.most() == self.most() => {
                next.take_in(&draws)?
            }
            (Stage::Voting, Sums::Votes(votes)) if votes.votes.len() == self.n_candidates() => {
                next.choose(&votes)?;
                votes.energy
            }
            _ => return Err(of_others()),
        };
        let step = Step {
            iteration: next.passes,
            rows_seen: next.rows_seen,
            batch_size: rows,
            objective,
            center_shift: 0.0,
            n_changed: 0,
            n_distances: rows.saturating_mul(self.n_candidates() as u64),
            elapsed: 0.0,
            stop_reason: None,
        };
        Ok((next, step))
    }

    /// Adds the drawn rows to the candidates. Returns the objective of the round.
    fn take_in(&mut self, draws: &Draws) -> Result<f64> {
        let (first, picked) = (self.dim == 0, &draws.picked);
        if draws.weight <= 0.0 || (first && picked.entries.is_empty()) {
            return Err(no_weight());
        }
        if first {
            self.dim = picked.dim();
            self.candidates = picked.values.part(0..0);
        } else if picked.entries.iter().len() > 0 && picked.dim() != self.dim {
            return Err(of_others());
        }
        self.candidates.append(&mut picked.in_order().1);
        // `self.passes` counts this pass.
        let rounds_over = self.passes > self.rounds && self.n_candidates() >= self.k;
        if !first && (rounds_over || picked.entries.is_empty()) {
            self.stage = Stage::Voting;
        }
        Ok(if first { f64::NAN } else { draws.energy })
    }

    /// Chooses the centers among the candidates by k-means++.
    fn choose(&mut self, votes: &Votes) -> Result<()> {
        fn chosen<T: Element>(pass: &SeedPass, votes: &Votes) -> Result<Values> {
            let rows = RowBuf::of_values(pass.candidates.get::<T>(), pass.dim);
            // Votes of about 1 in total: their products with squared distances stay finite. A power of two keeps
            // the draws.
            let total: f64 = votes.votes.iter().sum();
            let scale = if total.is_normal() { (-total.log2().floor()).exp2() } else { 1.0 };
            let shares: Vec<f64> = votes.votes.iter().map(|vote| vote * scale).collect();
            let weighted = Weighted::new::<T>(&rows, &shares[..])?;
            let how = Seeding::PlusPlus { greedy: true };
            // Some dozens of candidates per center; the driver may have one core.
            let cx = Executor::new(Some(1))?;
            Ok(Values::of(&how.choose::<T>(&weighted, pass.k, pass.seed, 0, &cx)?.centers))
        }
        let n = self.n_candidates();
        self.candidates = if n <= self.k {
            // Fewer distinct rows than centers: some centers coincide, and stay empty.
            let rows: Vec<usize> = (0..self.k).map(|j| j % n).collect();
            self.candidates.select(self.dim, &rows)
        } else if self.candidates.is_wide() {
            chosen::<f64>(self, votes)?
        } else {
            chosen::<f32>(self, votes)?
        };
        self.stage = Stage::Done;
        Ok(())
    }
}
