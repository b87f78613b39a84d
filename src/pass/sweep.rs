//! One pass over all rows: blocks are cut into tiles, tiles into chunks, and partial results are merged in
//! tile order.
//!
//! A block is what the source yields, a tile is what one thread turns into one partial result, and a chunk is
//! what fits a core's cache. Where sums have an order, the tile size does not depend on the number of threads, so
//! neither do the sums.
//!
//! ```text
//!          +-------------------------- next block --------------------------+
//!          v                                                                |
//!   start --> read --> cut into tiles --> absorb (all threads) --> merge (tile order)
//!               |                            |                              |
//!               |                            | per tile: empty(), then      | no more blocks
//!               |                            | absorb() chunk by chunk      v
//!               |                            |                        compare row counts --> done
//!               |                            |                              |
//!               v                            v                              v
//!         Err: reading failed,        Err: first failing tile         Err: fewer rows
//!         or too many rows            in row order, or interrupted    than `state` holds
//! ```
//!
//! The interrupt flag is checked before every chunk. After an error, `total` covers only some of the rows.

use std::ops::{ControlFlow, Range};

use crate::data::{self, Block, Converted, DataSource, row_values};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rows::Rows;
use crate::tuning::{STRIP_ROWS, chunk_rows};

/// Most rows that a worker takes at a time in passes whose result does not depend on how rows are cut.
pub(crate) const TILE_ROWS: usize = 2048;

/// Tiles per thread in such a pass over few rows, so that all threads end at about the same time.
const TILES: u64 = 4;

/// Multiplications in a tile of such a pass, if it has no more rows: some 30 microseconds, which hide the cost of
/// scheduling it.
const TILE_WORK: u64 = 1 << 21;

/// Rows that are processed together: they stay in a core's cache between labeling and summing.
pub(crate) struct Chunk<'a, T> {
    /// Global index of the first row.
    pub(crate) first_row: u64,
    pub(crate) rows: Rows<'a, T>,
    pub(crate) weights: Option<&'a [f64]>,
}

/// A chunk whose rows are not read yet. The caller reads all of them or only some.
pub(crate) struct Unread<'a, T: Float> {
    first_row: u64,
    block: Block<'a, T>,
    rows: Range<usize>,
    converted: &'a mut Converted<T>,
}

impl<T: Float> Unread<'_, T> {
    /// The global indices of the rows.
    pub(crate) fn range(&self) -> Range<usize> {
        let first = self.first_row as usize;
        first..first + self.rows.len()
    }

    /// Global index of the first row.
    pub(crate) fn first_row(&self) -> u64 {
        self.first_row
    }

    /// The weights of the rows, if there are any.
    pub(crate) fn weights(&self) -> Option<&[f64]> {
        self.block.weights.map(|w| &w[self.rows.clone()])
    }

    /// The rows as stored, if they are bytes.
    pub(crate) fn bytes(&self) -> Result<Option<MatRef<'_, u8>>> {
        self.block.rows.bytes(self.rows.clone())
    }

    /// Reads all rows of the chunk.
    pub(crate) fn read(&mut self) -> Result<Chunk<'_, T>> {
        self.read_rows(None)
    }

    /// Reads the chunk for a caller that looks only at the rows `picked`; other rows may hold stale values.
    pub(crate) fn read_of(&mut self, picked: &[u32]) -> Result<Chunk<'_, T>> {
        self.read_rows(Some(picked))
    }

    fn read_rows(&mut self, picked: Option<&[u32]>) -> Result<Chunk<'_, T>> {
        let rows = self.converted.read(self.block.rows, self.rows.clone(), picked)?;
        let weights = self.block.weights.map(|w| &w[self.rows.clone()]);
        Ok(Chunk { first_row: self.first_row, rows, weights })
    }
}

impl<T: Float> Chunk<'_, T> {
    /// The error for a chunk with a bad value: names the first non-finite value, or reports that squared
    /// distances overflow.
    pub(crate) fn not_finite(&self) -> Error {
        match self.rows.first_not_finite() {
            Some((i, column, value)) => Error::not_finite("rows", value, self.first_row + i as u64, column),
            None => Error::Source(format!(
                "`rows` hold values so large that squared distances overflow near row {}: scale the data",
                self.first_row
            )),
        }
    }

    /// Returns an error if a row holds a value that is not finite.
    pub(crate) fn check_finite(&self) -> Result<()> {
        if self.rows.first_not_finite().is_some() { Err(self.not_finite()) } else { Ok(()) }
    }
}

/// Per-row state (labels, distances), split together with the rows. `()` stands for no state.
pub(crate) trait PerRow: Send + Sized {
    /// Splits off the part of the first `n` rows.
    fn split(self, n: usize) -> (Self, Self);

    /// Number of rows, if the state knows it.
    fn rows(&self) -> Option<usize>;
}

impl PerRow for () {
    fn split(self, _: usize) -> (Self, Self) {
        ((), ())
    }
    fn rows(&self) -> Option<usize> {
        None
    }
}

impl<V: Send> PerRow for &mut [V] {
    fn split(self, n: usize) -> (Self, Self) {
        self.split_at_mut(n)
    }
    fn rows(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<V: Sync> PerRow for &[V] {
    fn split(self, n: usize) -> (Self, Self) {
        self.split_at(n)
    }
    fn rows(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<A: PerRow, B: PerRow> PerRow for (A, B) {
    fn split(self, n: usize) -> (Self, Self) {
        let ((a, a_rest), (b, b_rest)) = (self.0.split(n), self.1.split(n));
        ((a, b), (a_rest, b_rest))
    }
    fn rows(&self) -> Option<usize> {
        self.0.rows().or(self.1.rows())
    }
}

/// `width` values for every row.
pub(crate) struct Wide<'a, V> {
    pub(crate) values: &'a mut [V],
    pub(crate) width: usize,
}

impl<V: Send> PerRow for Wide<'_, V> {
    fn split(self, n: usize) -> (Self, Self) {
        let (mine, rest) = self.values.split_at_mut(n * self.width);
        (Self { values: mine, width: self.width }, Self { values: rest, width: self.width })
    }
    fn rows(&self) -> Option<usize> {
        Some(self.values.len() / self.width.max(1))
    }
}

/// How a pass cuts the rows: into tiles (one merge each), and tiles into chunks (processed together).
pub(crate) struct Cut {
    pub(crate) tile_rows: usize,
    /// If `None`, as many rows as fit a core's cache.
    pub(crate) chunk_rows: Option<usize>,
}

impl Cut {
    /// For a pass over `rows` rows whose result does not depend on how they are cut, with at least `work`
    /// multiplications per row: enough tiles for all threads, but none of less than [`TILE_WORK`].
    pub(crate) fn for_threads(rows: Option<u64>, work: usize, cx: &Executor) -> Self {
        let rows = rows.filter(|_| cx.threads() > 1).unwrap_or(u64::MAX);
        let each = rows / (TILES * cx.threads() as u64);
        let least = TILE_WORK / work.max(1) as u64;
        Self::from((each.max(least) as usize / STRIP_ROWS * STRIP_ROWS).clamp(STRIP_ROWS, TILE_ROWS))
    }
}

impl From<usize> for Cut {
    fn from(tile_rows: usize) -> Self {
        Self { tile_rows, chunk_rows: None }
    }
}

/// What a pass does with a chunk and its part of the state: a closure that takes a [`Chunk`], or an [`Unread`] chunk,
/// of which it reads only some rows. `C` is the type that it takes.
pub(crate) trait Absorb<T: Float, R, P, S, C> {
    /// The closure for chunks that are not read yet.
    fn of_unread(self) -> impl Fn(Unread<'_, T>, R, &mut P, &mut S) -> Result<()> + Sync;
}

impl<T: Float, R, P, S, F> Absorb<T, R, P, S, Chunk<'static, T>> for F
where
    F: Fn(Chunk<'_, T>, R, &mut P, &mut S) -> Result<()> + Sync,
{
    fn of_unread(self) -> impl Fn(Unread<'_, T>, R, &mut P, &mut S) -> Result<()> + Sync {
        move |mut chunk: Unread<'_, T>, state: R, part: &mut P, scratch: &mut S| {
            self(chunk.read()?, state, part, scratch)
        }
    }
}

impl<T: Float, R, P, S, F> Absorb<T, R, P, S, Unread<'static, T>> for F
where
    F: Fn(Unread<'_, T>, R, &mut P, &mut S) -> Result<()> + Sync,
{
    fn of_unread(self) -> impl Fn(Unread<'_, T>, R, &mut P, &mut S) -> Result<()> + Sync {
        self
    }
}

/// Makes one pass: `absorb` adds every chunk, with its part of `state`, to a partial result, and partial
/// results are merged into `total` in row order.
///
/// `cut` fixes the order of summation. `merge(total, part)` must leave `part` as `empty()` creates it.
/// `state` has one entry per row.
///
/// # Errors
/// Returns the first error of the source or of `absorb`, in row order.
#[expect(clippy::too_many_arguments, reason = "all of these define a pass")]
pub(crate) fn sweep<T: Float, R: PerRow, P: Send, S, C>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    cut: impl Into<Cut>,
    state: R,
    total: &mut P,
    (empty, scratch): (impl Fn() -> P + Sync, impl Fn() -> S + Sync),
    absorb: impl Absorb<T, R, P, S, C>,
    merge: impl Fn(&mut P, &mut P) + Sync,
) -> Result<()> {
    let Cut { tile_rows, chunk_rows: chunk } = cut.into();
    let absorb = absorb.of_unread();
    let chunk = chunk.unwrap_or_else(|| chunk_rows(row_values(data).min(data.dim())));
    let expected = state.rows();
    let mut seen = 0;
    let mut rest = Some(state);
    let _phase = cx.phase("", data.rows().or(expected.map(|n| n as u64)).unwrap_or(0));
    let other_length = |seen: usize| {
        Error::Source(format!(
            "the source gave {} rows in one pass and {} in another: every pass must give the same rows",
            expected.unwrap_or(0),
            if expected.is_some_and(|n| seen > n) { "more".into() } else { seen.to_string() },
        ))
    };
    data::read(data, tile_rows, &mut |block: Block<'_, T>| {
        seen += block.len;
        if expected.is_some_and(|n| seen > n) {
            return Err(other_length(seen));
        }
        let (mine, left) = rest.take().expect("restored after every block").split(block.len);
        rest = Some(left);
        cx.ordered_reduce(
            Tiles { state: Some(mine), start: 0, len: block.len, tile_rows },
            total,
            &empty,
            || (Converted::default(), scratch()),
            |(tile, mut state), part, (converted, scratch)| {
                for start in tile.clone().step_by(chunk) {
                    cx.check()?;
                    let range = start..tile.end.min(start.saturating_add(chunk));
                    let first_row = block.first_row + start as u64;
                    let chunk = Unread { first_row, block, rows: range.clone(), converted };
                    let (mine, rest) = state.split(range.len());
                    state = rest;
                    absorb(chunk, mine, part, scratch)?;
                }
                cx.count(tile.len() as u64);
                Ok(())
            },
            &merge,
        )?;
        Ok(ControlFlow::Continue(()))
    })?;
    if expected.is_some_and(|n| n != seen) { Err(other_length(seen)) } else { Ok(()) }
}

/// Iterates over the tiles of a block, each with its part of the state.
struct Tiles<R> {
    state: Option<R>,
    start: usize,
    len: usize,
    tile_rows: usize,
}

impl<R: PerRow> Iterator for Tiles<R> {
    type Item = (Range<usize>, R);

    fn next(&mut self) -> Option<Self::Item> {
        if self.start == self.len {
            return None;
        }
        let end = self.len.min(self.start + self.tile_rows);
        let (mine, rest) = self.state.take()?.split(end - self.start);
        self.state = Some(rest);
        let tile = self.start..end;
        self.start = end;
        Some((tile, mine))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.len - self.start).div_ceil(self.tile_rows);
        (left, Some(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_has_as_many_rows_as_its_state() {
        let (rows, cx) = ([[1.0f64]; 10], Executor::new(Some(2)).unwrap());
        let pass = |n: usize| {
            let (mut seen, mut total) = (vec![0u32; n], 0);
            let absorb = |chunk: Chunk<'_, f64>, seen: &mut [u32], part: &mut usize, (): &mut ()| {
                seen.fill(1);
                *part += chunk.rows.rows();
                Ok(())
            };
            let merge = |total: &mut usize, part: &mut usize| *total += std::mem::take(part);
            sweep(&rows, &cx, 4, &mut seen[..], &mut total, (|| 0, || ()), absorb, merge)
                .map(|()| (seen.iter().sum::<u32>(), total))
        };
        assert_eq!(pass(10).unwrap(), (10, 10));
        for (n, said) in [(9, "9 rows in one pass and more"), (11, "11 rows in one pass and 10")] {
            assert!(pass(n).unwrap_err().to_string().contains(said));
        }
    }
}
