//! k-means|| over partitions (Bahmani, Moseley, Vattani, Kumar and Vassilvitskii, 2012).
//!
//! A round draws a fixed number of rows without replacement, by weight times squared distance to the candidates so
//! far: those with the smallest exponential waiting times (Efraimidis and Spirakis, 2006). The waiting time of a row
//! is keyed by its number among all rows, so that one pass is enough for a round, and neither retries nor the cut into
//! partitions change anything.
//!
//! The first pass draws one of the distinct rows, by weight. No worker knows the numbers of its rows yet, so this draw is
//! keyed by the values of a row: of equal rows, the one with the largest weight counts.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::errors::of_others;
use super::extent::Before;
use super::kmeans::KMeansPass;
use super::message::Message;
use super::nearest::{Nearest, counted_sweep};
use super::numbers::{exact, exact_of, size_of_object};
use super::partial::Partial;
use super::pass::{NAME, Pass, PassFacts, Summed, digest, public_pass};
use super::picked::{Entry, Picked};
use super::place::{Place, Starts};
use super::seed_sums::{Draws, Votes};
use super::sums::AnySums;
use crate::data::{DataSource, Source, Weighted, no_weight, too_heavy};
use crate::error::{Error, Result};
use crate::fit::{Metric, Step};
use crate::kernel::{self, Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::names::{Named, names};
use crate::parallel::Executor;
use crate::pass::Chunk;
use crate::persist::Contents;
use crate::persist::kept::{Values, count, keep, number, text};
use crate::persist::schema::SEED_PASS;
use crate::rng::{Purpose, Rng, mix};
use crate::rows::{RowBuf, Rows};
use crate::seeding::Seeding;
use crate::stats::ClusterSums;
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
    k: usize,
    oversampling: f64,
    rounds: u64,
    metric: Metric,
    seed: u64,
    stage: SeedStage,
    before: Before,
    starts: Starts,
    /// Columns of a row; 0 before the first pass.
    dim: usize,
    /// The rows drawn so far; at the end, the centers.
    candidates: Values,
}

/// What a pass does with the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeedStage {
    /// Draws rows; the first pass draws one, by weight.
    Drawing,
    /// Counts the rows nearest to each candidate.
    Voting,
    /// The centers are chosen.
    Done,
}

names! {
    SeedStage("stage") {
        Drawing = "drawing",
        Voting = "voting",
        Done = "done",
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
            stage: SeedStage::Drawing,
            before: Before::default(),
            starts: Starts::default(),
            dim: 0,
            candidates: Values::F32(Vec::new()),
        })
    }

    /// The centers, row by row, once they are chosen.
    pub fn centers<T: Compute>(&self) -> Option<Vec<T>> {
        (self.stage == SeedStage::Done).then(|| self.candidates.get())
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
        if self.stage != SeedStage::Done {
            return Err(Error::Source("the centers are not chosen yet: commit more passes".into()));
        }
        let Self { dim, metric, candidates, .. } = self;
        let mut pass = match candidates {
            Values::F32(centers) => KMeansPass::new(centers, *dim, *metric)?,
            Values::F64(centers) => KMeansPass::new(centers, *dim, *metric)?,
        };
        pass.head.before.extent.clone_from(&self.before.extent);
        Ok(pass)
    }

    /// Number of columns; 0 before the first pass.
    pub fn dim(&self) -> usize {
        self.dim
    }

    fn n_candidates(&self) -> usize {
        self.candidates.len().checked_div(self.dim).unwrap_or(0)
    }

    /// Number of rows that this pass draws.
    fn most(&self) -> usize {
        if self.dim == 0 { 1 } else { ((self.oversampling * self.k as f64).ceil() as usize).max(1) }
    }

    /// The exponential waiting time, at rate 1, that belongs to a number.
    fn wait(key: u64, number: u64) -> f64 {
        let unit = ((mix(key ^ mix(number)) >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64);
        -unit.ln()
    }

    fn draw<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        place: Place,
        packed: Option<&PackedCenters<T>>,
        cx: &Executor,
    ) -> Result<(u64, Draws)> {
        let (wide, most) = (T::WIDE, self.most());
        let key = Rng::keyed(self.seed, Purpose::Oversampling, self.before.passes).bits();
        let start = packed.map(|_| self.starts.first_row(place)).transpose()?;
        let empty = |totals| Draws { totals, picked: Picked::new(data.dim(), most, wide) };
        // The largest waiting time that is kept, as bits: it only falls, so an old value drops no row.
        let limit = AtomicU64::new(f64::INFINITY.to_bits());
        let absorb = |chunk: &Chunk<'_, T>, draws: &mut Draws, nearest: &mut Nearest<T>| {
            measure(nearest, chunk, packed)?;
            nearest.labels.clear();
            nearest.labels.resize(nearest.sq_dists.len(), 0);
            draws.totals.absorb_errors(&nearest.sq_dists, &nearest.labels, chunk.weights);
            let limit = f64::from_bits(limit.load(Ordering::Relaxed));
            for (i, &sq_dist) in nearest.sq_dists.iter().enumerate() {
                let weight = chunk.weights.map_or(1.0, |w| w[i]);
                let row = chunk.first_row + i as u64;
                let number = start.map_or_else(|| number_of(chunk.rows, i), |start| start + row);
                let wait = Self::wait(key, number) / (weight * sq_dist);
                // A row at a candidate, or without weight, waits forever.
                if wait.is_finite() && wait <= limit {
                    let row = place.first_row() + row;
                    let entry = Entry { key: wait, partition: place.partition(), row, weight, label: 0 };
                    draws.picked.push(entry, chunk.rows, i);
                }
            }
            Ok(())
        };
        let merge = |total: &mut Draws, part: &mut Draws| {
            total.totals.merge(&mut part.totals);
            total.picked.append(&mut part.picked);
            part.picked.clear();
            limit.store(total.picked.limit().to_bits(), Ordering::Relaxed);
        };
        let make = (empty(ClusterSums::new(1, 0)), || empty(ClusterSums::part(1, 0)));
        let (rows, mut draws) = counted_sweep(data, cx, SEEDING_TILE_ROWS, make, absorb, merge)?;
        let weight = draws.totals.weights()[0];
        if !(draws.totals.energy().is_finite() && weight.is_finite()) {
            return Err(too_heavy(weight != rows as f64));
        }
        draws.picked.prune();
        Ok((rows, draws))
    }

    fn vote<T: Compute>(
        data: &dyn DataSource<T>,
        packed: &PackedCenters<T>,
        cx: &Executor,
    ) -> Result<(u64, Votes)> {
        let n = packed.n_centers();
        let absorb = |chunk: &Chunk<'_, T>, votes: &mut ClusterSums, nearest: &mut Nearest<T>| {
            measure(nearest, chunk, Some(packed))?;
            votes.absorb_errors(&nearest.sq_dists, &nearest.labels, chunk.weights);
            Ok(())
        };
        let make = (ClusterSums::new(n, 0), || ClusterSums::part(n, 0));
        let (rows, votes) = counted_sweep(data, cx, SEEDING_TILE_ROWS, make, absorb, ClusterSums::merge)?;
        if !votes.weights().iter().chain([&votes.energy()]).all(|x| x.is_finite()) {
            return Err(too_heavy(votes.weights().iter().sum::<f64>() != rows as f64));
        }
        Ok((rows, Votes(votes)))
    }

    /// Adds the drawn rows to the candidates. Returns the objective of the round.
    fn take_in(&mut self, draws: &Draws) -> Result<f64> {
        let (first, picked) = (self.dim == 0, &draws.picked);
        if draws.totals.weights()[0] <= 0.0 || (first && picked.entries.is_empty()) {
            return Err(no_weight());
        }
        if first {
            self.dim = picked.dim();
            self.candidates = picked.values.part(0..0);
        } else if picked.entries.iter().len() > 0 && picked.dim() != self.dim {
            return Err(of_others());
        }
        self.candidates.append(&mut picked.in_order().1);
        // The number of passes includes this one.
        let rounds_over = self.before.passes > self.rounds && self.n_candidates() >= self.k;
        if !first && (rounds_over || picked.entries.is_empty()) {
            self.stage = SeedStage::Voting;
        }
        Ok(if first { f64::NAN } else { draws.totals.energy() })
    }

    /// Chooses the centers among the candidates by k-means++.
    fn choose(&mut self, votes: &[f64]) -> Result<()> {
        fn chosen<T: Compute>(pass: &SeedPass, votes: &[f64]) -> Result<Values> {
            let rows = RowBuf::of_values(pass.candidates.get::<T>(), pass.dim);
            // Votes of about 1 in total: their products with squared distances stay finite. A power of two keeps
            // the draws.
            let total: f64 = votes.iter().sum();
            let scale = if total.is_normal() { (-total.log2().floor()).exp2() } else { 1.0 };
            let shares: Vec<f64> = votes.iter().map(|vote| vote * scale).collect();
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
        (self.stage, self.starts) = (SeedStage::Done, Starts::default());
        Ok(())
    }
}

/// A number that depends on the values of a row alone. Zeros do not count, so that sparse rows have those of dense ones.
fn number_of<T: Compute>(rows: Rows<'_, T>, i: usize) -> u64 {
    fn of<'a, T: Compute>(values: impl Iterator<Item = (u64, &'a T)>) -> u64 {
        values.fold(0, |sum, (column, x)| {
            let bits = x.to_f64().to_bits();
            // Twice the bits are 0 for both zeros.
            if bits << 1 == 0 { sum } else { sum.wrapping_add(mix(bits ^ column.wrapping_mul(COLUMN))) }
        })
    }
    match rows {
        Rows::Dense(rows) => of((0..).zip(rows.row(i))),
        Rows::Sparse(rows) => {
            let (columns, values) = rows.row(i);
            of(columns.iter().map(|&column| column as u64).zip(values))
        }
    }
}

/// An odd number, so that no two columns of one value have the same product.
const COLUMN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Finds the nearest candidate of every row of a chunk; without candidates, all distances are 1.
fn measure<T: Compute>(
    nearest: &mut Nearest<T>,
    chunk: &Chunk<'_, T>,
    packed: Option<&PackedCenters<T>>,
) -> Result<()> {
    let Some(packed) = packed else {
        nearest.sq_dists.clear();
        nearest.sq_dists.resize(chunk.rows.rows(), 1.0);
        return chunk.check_finite();
    };
    nearest.label(chunk.rows, packed);
    nearest.measure(chunk.rows, packed);
    if nearest.sq_dists.iter().all(|sq_dist| sq_dist.is_finite()) { Ok(()) } else { Err(chunk.not_finite()) }
}

public_pass! {
    SeedPass:
    /// Adds the drawn rows to the candidates, or chooses the centers among them.
    ///
    /// `Step::objective` is the weighted sum of squared distances to the candidates; NaN for the first pass.
    ///
    /// # Errors
    /// [`Error::Source`] as for [`KMeansPass::commit`](super::KMeansPass::commit). [`Error::InvalidParam`] if there
    /// are fewer rows than centers, or no row has weight.
    commit
}

impl Pass for SeedPass {
    fn facts(&self) -> PassFacts<'_> {
        let is_done = self.stage == SeedStage::Done;
        PassFacts {
            metric: self.metric,
            shape: (self.dim > 0).then(|| (self.dim, self.candidates.is_wide())),
            before: &self.before,
            centers: is_done.then_some(&self.candidates),
            is_done,
            result_bytes: match self.stage {
                SeedStage::Drawing => self.most() * Picked::row_bytes(self.dim),
                SeedStage::Voting | SeedStage::Done => 32 * self.n_candidates(),
            },
        }
    }

    fn before_mut(&mut self) -> &mut Before {
        &mut self.before
    }

    fn digest(&self) -> u64 {
        let numbers = [self.k as u64, self.seed, self.before.passes, self.metric as u64, self.most() as u64];
        digest(3, &numbers, &self.candidates)
    }

    fn sum<T: Compute>(&self, data: &dyn DataSource<T>, place: Place, cx: &Executor) -> Result<Summed> {
        let candidates = self.candidates.get::<T>();
        let sparse = data.most_values().is_some();
        let packed =
            (self.dim > 0).then(|| PackedCenters::for_rows(MatRef::new(&candidates, self.dim), sparse));
        match (self.stage, &packed) {
            (SeedStage::Drawing, packed) => {
                let (rows, draws) = self.draw(data, place, packed.as_ref(), cx)?;
                Ok((rows, AnySums::new(draws)))
            }
            (SeedStage::Voting, Some(packed)) => {
                let (rows, votes) = Self::vote(data, packed, cx)?;
                Ok((rows, AnySums::new(votes)))
            }
            _ => Err(Error::Source("the centers are chosen: there are no more passes".into())),
        }
    }

    fn no_sums(&self) -> AnySums {
        if self.stage == SeedStage::Voting {
            AnySums::new(Votes(ClusterSums::new(self.n_candidates(), 0)))
        } else {
            let picked = Picked::new(0, self.most(), false);
            AnySums::new(Draws { totals: ClusterSums::new(1, 0), picked })
        }
    }

    fn next(&self, now: Before, starts: Starts, total: AnySums) -> Result<(Self, Step)> {
        crate::seeding::enough_rows(now.rows(), self.k)?;
        let mut next = Self { before: now, starts, ..self.clone() };
        let objective = match self.stage {
            SeedStage::Drawing => {
                let draws: Draws = total.into_kind()?;
                if draws.picked.most() != self.most() {
                    return Err(of_others());
                }
                next.take_in(&draws)?
            }
            SeedStage::Voting => {
                let Votes(votes) = total.into_kind()?;
                if votes.weights().len() != self.n_candidates() {
                    return Err(of_others());
                }
                next.choose(votes.weights())?;
                votes.energy()
            }
            SeedStage::Done => return Err(of_others()),
        };
        let step = next.before.step(self.n_candidates(), objective);
        Ok((next, step))
    }
}

impl Message for SeedPass {
    const KIND: &'static str = SEED_PASS;
    const NAME: &'static str = NAME;

    fn put(&self, contents: &mut Contents) {
        let mut numbers = json!({
            "n_clusters": self.k,
            "oversampling": self.oversampling.to_bits(),
            "rounds": self.rounds,
            "metric": self.metric.name(),
            "seed": exact(self.seed),
            "stage": self.stage.name(),
            "dim": self.dim,
        });
        self.before.put("passes", &mut numbers);
        contents.meta.insert("pass".into(), numbers.to_string());
        keep(contents, "candidates", self.candidates.array(self.dim));
        self.starts.put(contents);
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let numbers = contents.object("pass")?;
        let k = size_of_object(&numbers, "n_clusters")?;
        let rounds = size_of_object(&numbers, "rounds")?;
        let (metric, seed) = (Metric::of_object(&numbers)?, exact_of(&numbers, "seed")?);
        let made = Self::new(k, number(&numbers, "oversampling")?, rounds, metric, seed);
        let mut pass = made.map_err(|e| e.to_string())?;
        let stage = SeedStage::of_name("stage", &text(&numbers, "stage")?);
        pass.stage = stage.map_err(|_| "its stage is damaged")?;
        pass.before = Before::of_object("passes", &numbers, count(&numbers, "dim")? as usize)?;
        if pass.before.passes == 0 {
            let begun = pass.stage == SeedStage::Drawing;
            return if begun { Ok(pass) } else { Err("it has no candidates".into()) };
        }
        pass.dim = size_of_object(&numbers, "dim")?;
        if pass.before.extent.is_none() {
            return Err("it lacks the rows of its passes".into());
        }
        if pass.stage != SeedStage::Done {
            pass.starts = Starts::of_contents(contents)?;
        }
        pass.candidates = Values::matrix(contents, "candidates", pass.dim)?;
        let rows = pass.candidates.len() / pass.dim;
        let fits = if pass.stage == SeedStage::Done { rows == k } else { rows > 0 };
        if !fits || pass.candidates.first_not_finite(pass.dim).is_some() {
            return Err("its candidates are damaged".into());
        }
        Ok(pass)
    }
}
