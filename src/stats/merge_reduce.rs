//! Coresets of streams by merge and reduce.
//!
//! Rows wait until there are enough to be reduced to a coreset. Two coresets of the same rank are merged and
//! reduced again, like carries of a binary counter (Bentley and Saxe, 1980; Har-Peled and Mazumdar, 2004).
//!
//! A reduction keeps the expected cost of any set of centers. Its draws are stratified, one in each of `m`
//! equal parts of the odds, so their error is at most that of independent draws. The result depends only on
//! the rows and their order, not on the batches.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::coreset::{Coreset, SamplingLaw, add_moments, cut};
use super::moments::Moments;
use crate::data::{self, Converted, DataSource, Weighted, too_heavy};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::persist::Contents;
use crate::persist::schema::STREAMING_CORESET;
use crate::persist::state::{StateReader, StateWriter};
use crate::rng::{Purpose, Rng};
use crate::rows::{RowBuf, Rows};
use crate::tuning::STRIP_ROWS;

/// Upper limit for a row's weight times its squared length. Sums of any number of rows stay finite.
const LARGEST: f64 = 1e280;

/// A coreset of a stream by merge and reduce: `n_samples` weighted rows, from one pass, in memory of
/// `O(n_samples log n)` rows.
///
/// ```
/// use shoal::{Executor, stats::MergeReduce};
/// let cx = Executor::new(None)?;
/// let mut coreset = MergeReduce::new(100, 7)?;
/// for batch in 0..50 {
///     let rows: Vec<[f32; 1]> = (0..200).map(|i| [(batch * i % 97) as f32]).collect();
///     coreset.absorb(&rows, &cx)?;
/// }
/// let found = coreset.result(&cx)?;
/// assert_eq!(found.points.len(), 100);
/// assert!((found.weights.iter().sum::<f64>() / 10_000.0 - 1.0).abs() < 0.3);
/// # Ok::<(), shoal::Error>(())
/// ```
#[doc(alias = "StreamingCoreset")]
#[derive(Clone, Debug)]
pub struct MergeReduce<T> {
    m: usize,
    seed: u64,
    /// Number of columns; 0 before the first row.
    dim: usize,
    /// Number of rows so far.
    n: u64,
    /// Number of reductions so far. Each has its own random stream.
    reduced: u64,
    /// Rows that wait for a reduction, with their own weights.
    waiting: Coreset<T>,
    /// At most one coreset per rank. Each of its rows stands for about `2^(rank + 1)` rows of the stream.
    ranks: Vec<Option<Arc<Coreset<T>>>>,
}

impl<T: Compute> MergeReduce<T> {
    /// Creates an empty coreset that keeps `n_samples` rows.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if `n_samples` is 0.
    pub fn new(n_samples: usize, seed: u64) -> Result<Self> {
        if n_samples == 0 {
            return Err(Error::param("n_samples", "at least 1", 0));
        }
        let waiting = Coreset::new(0);
        Ok(Self { m: n_samples, seed, dim: 0, n: 0, reduced: 0, waiting, ranks: Vec::new() })
    }

    /// Number of columns of a row; 0 before the first row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of rows so far.
    pub fn rows(&self) -> u64 {
        self.n
    }

    /// Number of rows that are kept now.
    pub fn kept(&self) -> usize {
        self.all().map(|part| part.rows.len()).sum()
    }

    fn all(&self) -> impl Iterator<Item = &Coreset<T>> {
        self.ranks.iter().rev().flatten().map(|part| &**part).chain([&self.waiting])
    }

    /// Adds all rows of a source in one pass. After an error, the state is unchanged.
    ///
    /// ```
    /// use shoal::{Executor, stats::MergeReduce};
    /// let cx = Executor::new(None)?;
    /// let mut coreset = MergeReduce::new(3, 0)?;
    /// coreset.absorb(&[[1.0f64], [2.0]], &cx)?;
    /// assert!(coreset.absorb(&[[3.0], [f64::NAN]], &cx).is_err());
    /// assert_eq!(coreset.result(&cx)?.rows, [0, 1]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of the source. [`Error::NotFinite`] for NaN or infinite values. [`Error::Shape`] for another
    /// number of columns. [`Error::Interrupted`].
    pub fn absorb(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        self.fits(data.dim())?;
        self.whole(|state, spent| {
            let mut buffer = Converted::default();
            data::read(data, STRIP_ROWS, &mut |block| {
                for start in (0..block.len).step_by(STRIP_ROWS) {
                    cx.check()?;
                    let range = start..block.len.min(start + STRIP_ROWS);
                    let weights = block.weights.map(|weights| &weights[range.clone()]);
                    let first_row = block.first_row + start as u64;
                    let rows = buffer.read(block.rows, range, None)?;
                    summable(&Chunk { first_row, rows, weights })?;
                    for i in 0..rows.rows() {
                        let row = state.n;
                        state.push(rows, i, weights.map_or(1.0, |w| w[i]), row, spent, cx)?;
                        state.n += 1;
                    }
                }
                Ok(ControlFlow::Continue(()))
            })
        })
    }

    /// Adds the rows of another coreset, whose row numbers continue from here. After an error, the state is
    /// unchanged. Coresets to be merged should have different seeds.
    ///
    /// ```
    /// use shoal::{Executor, stats::MergeReduce};
    /// let cx = Executor::new(None)?;
    /// let (mut here, mut there) = (MergeReduce::new(4, 0)?, MergeReduce::new(4, 1)?);
    /// here.absorb(&[[1.0f64], [2.0]], &cx)?;
    /// there.absorb(&[[3.0f64]], &cx)?;
    /// here.merge(&there, &cx)?;
    /// assert_eq!(here.result(&cx)?.rows, [0, 1, 2]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of columns. [`Error::InvalidParam`] for another `n_samples`.
    /// [`Error::Interrupted`].
    pub fn merge(&mut self, other: &Self, cx: &Executor) -> Result<()> {
        if self.m != other.m {
            return Err(Error::param(
                "n_samples",
                format!("{}, as in the coreset to merge with", other.m),
                self.m,
            ));
        }
        if other.n == 0 {
            return Ok(());
        }
        self.fits(other.dim)?;
        self.whole(|state, spent| {
            let before = state.n;
            state.dim = other.dim;
            for (rank, part) in other.ranks.iter().enumerate() {
                if let Some(part) = part {
                    let mut part = Coreset::clone(part);
                    part.rows.iter_mut().for_each(|row| *row += before);
                    state.carry(rank, part, cx)?;
                }
            }
            let Coreset { points, weights, rows } = &other.waiting;
            for (i, (&weight, &row)) in weights.iter().zip(rows).enumerate() {
                state.push(points.rows(), i, weight, before + row, spent, cx)?;
            }
            state.n += other.n;
            Ok(())
        })
    }

    /// Returns an error for another number of columns.
    fn fits(&self, dim: usize) -> Result<()> {
        if self.n > 0 && dim != self.dim {
            return Err(Error::Shape(format!(
                "`rows` have {dim} columns, but the rows of the coreset have {}",
                self.dim
            )));
        }
        Ok(())
    }

    /// Runs `work` so that a failure changes nothing. `work` saves the waiting rows to its second argument
    /// before it reduces them for the first time.
    fn whole(&mut self, work: impl FnOnce(&mut Self, &mut Option<Coreset<T>>) -> Result<()>) -> Result<()> {
        let before = (self.dim, self.n, self.reduced, self.ranks.clone(), self.waiting.rows.len());
        let mut spent = None;
        let done = work(self, &mut spent);
        if done.is_err() {
            if let Some(spent) = spent {
                self.waiting = spent;
            }
            self.waiting.truncate(before.4);
            (self.dim, self.n, self.reduced, self.ranks) = (before.0, before.1, before.2, before.3);
        }
        done
    }

    /// Adds one row.
    fn push(
        &mut self,
        rows: Rows<'_, T>,
        i: usize,
        weight: f64,
        row: u64,
        spent: &mut Option<Coreset<T>>,
        cx: &Executor,
    ) -> Result<()> {
        if self.waiting.points.cols() != rows.cols() {
            // The first row, or the first row after a failed call.
            self.dim = rows.cols();
            self.waiting = Coreset::new(self.dim);
        }
        self.waiting.push(rows, i, weight, row);
        if self.waiting.rows.len() / 2 >= self.m {
            let full = std::mem::replace(&mut self.waiting, Coreset::new(self.dim));
            let reduced = self.reduce(&full, cx);
            spent.get_or_insert(full);
            self.carry(0, reduced?, cx)?;
        }
        Ok(())
    }

    /// Adds a coreset at its rank, with carries.
    fn carry(&mut self, mut rank: usize, mut part: Coreset<T>, cx: &Executor) -> Result<()> {
        loop {
            if self.ranks.len() <= rank {
                self.ranks.resize(rank + 1, None);
            }
            let Some(before) = self.ranks[rank].take() else {
                self.ranks[rank] = Some(Arc::new(part));
                return Ok(());
            };
            let mut both = Coreset::clone(&before);
            both.extend(&part);
            part = self.reduce(&both, cx)?;
            rank += 1;
        }
    }

    /// Reduces the rows to `m` rows.
    fn reduce(&mut self, rows: &Coreset<T>, cx: &Executor) -> Result<Coreset<T>> {
        let rng = Rng::keyed(self.seed, Purpose::Coreset, self.reduced);
        self.reduced += 1;
        reduced(rows, self.m, rng, cx)
    }

    /// The coreset of all rows so far: `n_samples` rows, or all rows with their own weights if there are no
    /// more. The state does not change.
    ///
    /// # Errors
    /// [`Error::Empty`] before the first row. [`Error::Interrupted`].
    pub fn result(&self, cx: &Executor) -> Result<Coreset<T>> {
        if self.n == 0 {
            return Err(Error::Empty("the coreset has no rows yet: add rows first".into()));
        }
        let mut all = Coreset::new(self.dim);
        self.all().for_each(|part| all.extend(part));
        if all.rows.len() <= self.m {
            return Ok(all);
        }
        // Use a random stream that no later reduction uses.
        let key = Rng::keyed(self.seed, Purpose::Coreset, u64::MAX).bits();
        reduced(&all, self.m, Rng::keyed(key, Purpose::Coreset, self.reduced), cx)
    }

    /// The full state, for saving and restoring.
    ///
    /// ```
    /// use shoal::{Executor, stats::MergeReduce};
    /// let cx = Executor::new(None)?;
    /// let mut coreset = MergeReduce::new(2, 0)?;
    /// coreset.absorb(&[[1.0f64], [2.0], [3.0], [4.0], [5.0]], &cx)?;
    /// let again = MergeReduce::<f64>::of_state(&coreset.state()).unwrap();
    /// assert_eq!(again.result(&cx)?.rows, coreset.result(&cx)?.rows);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn state(&self) -> Contents {
        let mut to = StateWriter::new(STREAMING_CORESET);
        let ranks: Vec<usize> = (0..self.ranks.len()).filter(|&rank| self.ranks[rank].is_some()).collect();
        to.put("n_samples", &self.m);
        to.put("dim", &self.dim);
        to.put("n", &self.n);
        to.put("reduced", &self.reduced);
        to.put_value("seed", self.seed);
        to.put_value("ranks", &ranks[..]);
        let parts =
            ranks.iter().filter_map(|&rank| Some((format!("rank{rank}"), self.ranks[rank].as_deref()?)));
        for (name, part) in parts.chain([("waiting".to_owned(), &self.waiting)]) {
            to.put_rows(&format!("{name}_points"), &part.points);
            to.put(&format!("{name}_weights"), &part.weights);
            to.put(&format!("{name}_rows"), &part.rows);
        }
        to.finish()
    }

    /// Restores the state that [`MergeReduce::state`] returned.
    ///
    /// # Errors
    /// A text that describes the problem.
    pub fn of_state(contents: &Contents) -> Result<Self, String> {
        contents.must_be(STREAMING_CORESET)?;
        let from = StateReader::new(contents)?;
        let (m, dim, n): (usize, usize, u64) = (from.get("n_samples")?, from.get("dim")?, from.get("n")?);
        if m == 0 || (n > 0 && dim == 0) {
            return Err("\"n_samples\" and \"dim\" must be at least 1".into());
        }
        let part = |name: &str| -> Result<Coreset<T>, String> {
            let points: RowBuf<T> = from.rows(&format!("{name}_points"), dim)?;
            let weights = from.weights(&format!("{name}_weights"))?;
            let rows: Vec<u64> = from.get(&format!("{name}_rows"))?;
            if points.len() != weights.len() || rows.len() != weights.len() {
                return Err(format!("rows {name:?} and their weights do not match"));
            }
            if !points.values.iter().all(|x| x.finite()) {
                return Err(format!("rows {name:?} must be finite"));
            }
            Ok(Coreset { points, weights, rows })
        };
        let waiting = part("waiting")?;
        if waiting.rows.len() / 2 >= m {
            return Err("too many rows wait for a reduction".into());
        }
        let mut ranks = Vec::new();
        let listed = from.value("ranks").and_then(|ranks| ranks.as_array()).ok_or("\"ranks\" are missing")?;
        for rank in listed {
            // A stream has fewer than 2^64 rows.
            let rank =
                rank.as_u64().filter(|&rank| rank < 64).ok_or("\"ranks\" must be whole numbers below 64")?
                    as usize;
            ranks.resize(ranks.len().max(rank + 1), None);
            ranks[rank] = Some(Arc::new(part(&format!("rank{rank}"))?));
        }
        Ok(Self { m, seed: from.seed()?, dim, n, reduced: from.get("reduced")?, waiting, ranks })
    }
}

/// Returns an error for rows and weights whose sums could overflow in a later reduction.
fn summable<T: Compute>(chunk: &Chunk<'_, T>) -> Result<()> {
    for i in 0..chunk.rows.rows() {
        let sq_norm = chunk.rows.stored(i).iter().map(|x| x.to_f64() * x.to_f64()).sum::<f64>();
        if sq_norm.is_nan() || sq_norm >= LARGEST {
            return Err(chunk.not_finite());
        }
        if chunk.weights.is_some_and(|w| w[i] * sq_norm.max(1.0) > LARGEST) {
            return Err(too_heavy(true));
        }
    }
    Ok(())
}

/// Draws `m` of these rows by the odds of a lightweight coreset, one in each of `m` equal parts. Empty if all
/// weights are 0.
fn reduced<T: Compute>(rows: &Coreset<T>, m: usize, mut rng: Rng, cx: &Executor) -> Result<Coreset<T>> {
    let mut out = Coreset::new(rows.points.cols());
    if rows.weights.iter().all(|&w| w <= 0.0) {
        return Ok(out);
    }
    let data = Weighted::vouched(&rows.points, &rows.weights);
    let mut moments = Moments::new(rows.points.cols());
    add_moments(&data, &mut moments, cx)?;
    let law = SamplingLaw::new(&moments)?;
    let point = law.point();
    let mut sq_dists = vec![0.0; rows.rows.len()];
    let absorb = |chunk: Chunk<'_, T>, sq_dists: &mut [f64], (): &mut (), (): &mut ()| {
        for (i, sq_dist) in sq_dists.iter_mut().enumerate() {
            *sq_dist = point.sq_dist(chunk.rows, i);
        }
        Ok(())
    };
    sweep(&data, cx, cut(&data), &mut sq_dists[..], &mut (), (|| (), || ()), absorb, |(), ()| ())?;
    let share = |i: usize| law.share(rows.weights[i], sq_dists[i]);
    let all: f64 = (0..sq_dists.len()).map(share).sum();
    let (mut passed, mut drawn) = (0.0, 0);
    let mut due = rng.unit() / m as f64 * all;
    let heavy = |i: &usize| rows.weights[*i] > 0.0;
    let last = (0..sq_dists.len()).rev().find(heavy).unwrap_or(0);
    for i in (0..=last).filter(heavy) {
        passed += share(i);
        // Rounding must not skip the last draw.
        while drawn < m && (due < passed || i == last) {
            let weight = law.stands_for(law.odds(sq_dists[i]), all, m);
            out.push(rows.points.rows(), i, weight, rows.rows[i]);
            drawn += 1;
            due = (drawn as f64 + rng.unit()) / m as f64 * all;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows in three clusters, one of them small.
    fn rows(n: usize) -> Vec<[f64; 2]> {
        let mut rng = Rng::keyed(9, Purpose::Coreset, 1);
        (0..n)
            .map(|i| {
                let at = if i % 50 == 0 { 30.0 } else { (i % 2) as f64 * 8.0 };
                [at + rng.unit(), rng.unit()]
            })
            .collect()
    }

    #[test]
    fn batches_and_threads_do_not_matter_and_memory_is_bounded() {
        let (x, m) = (rows(5000), 50);
        let run = |batch: usize, threads: usize| {
            let cx = Executor::new(Some(threads)).unwrap();
            let mut state = MergeReduce::<f64>::new(m, 3).unwrap();
            for part in x.chunks(batch) {
                state.absorb(&part.to_vec(), &cx).unwrap();
                assert!(state.kept() <= m * 9, "{}", state.kept());
            }
            assert_eq!(state.rows(), 5000);
            let found = state.result(&cx).unwrap();
            (found.rows, found.weights, found.points.values)
        };
        let one = run(5000, 1);
        assert_eq!(one.0.len(), m);
        for (batch, threads) in [(1, 1), (77, 2), (100, 3), (5000, 2)] {
            assert!(run(batch, threads) == one, "{batch} {threads}");
        }
        for (i, &row) in one.0.iter().enumerate() {
            assert_eq!(one.2[2 * i..2 * i + 2], x[row as usize]);
        }
    }

    #[test]
    fn costs_are_kept_in_expectation() {
        let x = rows(900);
        let cx = Executor::new(Some(1)).unwrap();
        let center = [2.0, 0.5];
        let cost = |point: &[f64]| (point[0] - center[0]).powi(2) + (point[1] - center[1]).powi(2);
        let truth: f64 = x.iter().map(|row| cost(row)).sum();
        let found: Vec<f64> = (0..300)
            .map(|seed| {
                let mut state = MergeReduce::<f64>::new(30, seed).unwrap();
                state.absorb(&x, &cx).unwrap();
                let found = state.result(&cx).unwrap();
                found.points.values.chunks(2).zip(&found.weights).map(|(row, w)| w * cost(row)).sum::<f64>()
                    / truth
            })
            .collect();
        let mean = found.iter().sum::<f64>() / 300.0;
        let error = (found.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 300.0 / 300.0).sqrt();
        assert!((mean - 1.0).abs() < 4.0 * error && error < 0.02, "{mean} +- {error}");
    }

    #[test]
    fn what_fails_changes_nothing() {
        let (x, cx) = (rows(700), Executor::new(Some(1)).unwrap());
        let mut state = MergeReduce::<f64>::new(20, 0).unwrap();
        state.absorb(&x[..333].to_vec(), &cx).unwrap();
        let before = state.state();
        let mut bad = x[333..].to_vec();
        bad[300][1] = f64::NAN;
        assert!(matches!(state.absorb(&bad, &cx), Err(Error::NotFinite { row: 300, column: 1, .. })));
        assert!(state.absorb(&[[1.0f64; 3]], &cx).is_err());
        let stopped = Executor::new(Some(1)).unwrap();
        stopped.interrupt().set();
        assert!(matches!(state.absorb(&x, &stopped), Err(Error::Interrupted)));
        let mut wide = MergeReduce::<f64>::new(20, 1).unwrap();
        wide.absorb(&[[1.0f64; 3]], &cx).unwrap();
        assert!(matches!(state.merge(&wide, &cx), Err(Error::Shape(_))));
        assert!(state.merge(&MergeReduce::new(21, 0).unwrap(), &cx).is_err());
        assert_eq!(state.state(), before);
        state.absorb(&x[333..].to_vec(), &cx).unwrap();
        let mut whole = MergeReduce::<f64>::new(20, 0).unwrap();
        whole.absorb(&x, &cx).unwrap();
        assert_eq!(state.state(), whole.state());
        let again = MergeReduce::<f64>::of_state(&state.state()).unwrap();
        assert_eq!(again.state(), state.state());
    }

    #[test]
    fn rows_without_weight_are_never_drawn() {
        let x = rows(400);
        let weights: Vec<f64> = (0..400).map(|i| f64::from(u8::from(i % 7 == 0))).collect();
        let cx = Executor::new(Some(2)).unwrap();
        let mut state = MergeReduce::<f64>::new(10, 0).unwrap();
        state.absorb(&Weighted::new::<f64>(&x, weights).unwrap(), &cx).unwrap();
        let found = state.result(&cx).unwrap();
        assert!(found.rows.iter().all(|row| row % 7 == 0) && found.rows.len() == 10);
    }
}
