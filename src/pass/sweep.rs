//! This module knows how one pass over all rows is made: blocks into tiles, tiles into chunks, partial results merged in tile order.

use std::ops::{ControlFlow, Range};

use crate::data::{self, Block, Converted, DataSource, row_values};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::parallel::Executor;
use crate::rows::Rows;
use crate::tuning::chunk_rows;

/// Rows that are worked on together: they stay in a core's cache between labelling and summing.
pub(crate) struct Chunk<'a, T> {
    /// Global index of the first row.
    pub(crate) first_row: u64,
    pub(crate) rows: Rows<'a, T>,
    pub(crate) weights: Option<&'a [f64]>,
}

/// A chunk whose rows are still to be read: all of them, or some.
pub(crate) struct Unread<'a, T: Float> {
    first_row: u64,
    block: Block<'a, T>,
    rows: Range<usize>,
    converted: &'a mut Converted<T>,
}

impl<T: Float> Unread<'_, T> {
    /// The chunk.
    pub(crate) fn read(&mut self) -> Result<Chunk<'_, T>> {
        self.read_rows(None)
    }

    /// The chunk, for a caller that only looks at the rows `picked` of it.
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
    /// An error that names the first value that is not finite, or says that squared distances overflow.
    pub(crate) fn not_finite(&self) -> Error {
        match self.rows.first_not_finite() {
            Some((i, column, value)) => Error::NotFinite {
                what: "X",
                value: value.to_string(),
                row: self.first_row + i as u64,
                column,
            },
            None => Error::Source(format!(
                "X holds values so large that squared distances overflow near row {}: scale the data",
                self.first_row
            )),
        }
    }

    /// Refuses rows that hold a value that is not finite.
    pub(crate) fn check_finite(&self) -> Result<()> {
        if self.rows.first_not_finite().is_some() { Err(self.not_finite()) } else { Ok(()) }
    }
}

/// Something kept for every row, cut along with the rows: labels, distances. `()` is nothing.
pub(crate) trait PerRow: Send + Sized {
    /// The first `n` rows' part, and the rest.
    fn split(self, n: usize) -> (Self, Self);

    /// Number of rows, where it can be told.
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

/// How a pass cuts the rows: tiles between two merges, chunks of a tile that are worked on together.
pub(crate) struct Cut {
    pub(crate) tile_rows: usize,
    /// As many as stay in a core's cache, if nothing is said.
    pub(crate) chunk_rows: Option<usize>,
}

impl From<usize> for Cut {
    fn from(tile_rows: usize) -> Self {
        Self { tile_rows, chunk_rows: None }
    }
}

/// One pass: `absorb` takes every chunk with its part of `state` into a partial, partials are merged into `total` in row order.
///
/// `cut` fixes the shape of the sums; `merge(total, part)` leaves `part` as `empty()` makes it. `state` has one entry a row.
///
/// # Errors
/// Those of the source and of `absorb`: the first in row order.
#[expect(clippy::too_many_arguments, reason = "a pass is described by all of these")]
pub(crate) fn sweep<T: Float, R: PerRow, P: Send, S>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    cut: impl Into<Cut>,
    state: R,
    total: &mut P,
    (empty, scratch): (impl Fn() -> P + Sync, impl Fn() -> S + Sync),
    absorb: impl Fn(Chunk<'_, T>, R, &mut P, &mut S) -> Result<()> + Sync,
    merge: impl Fn(&mut P, &mut P) + Sync,
) -> Result<()> {
    let absorb = |mut chunk: Unread<'_, T>, state: R, part: &mut P, scratch: &mut S| {
        absorb(chunk.read()?, state, part, scratch)
    };
    sweep_unread(data, cx, cut, state, total, (empty, scratch), absorb, merge)
}

/// As [`sweep`], with an `absorb` that says which rows of a chunk it has to read.
#[expect(clippy::too_many_arguments, reason = "a pass is described by all of these")]
pub(crate) fn sweep_unread<T: Float, R: PerRow, P: Send, S>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    cut: impl Into<Cut>,
    state: R,
    total: &mut P,
    (empty, scratch): (impl Fn() -> P + Sync, impl Fn() -> S + Sync),
    absorb: impl Fn(Unread<'_, T>, R, &mut P, &mut S) -> Result<()> + Sync,
    merge: impl Fn(&mut P, &mut P) + Sync,
) -> Result<()> {
    let Cut { tile_rows, chunk_rows: chunk } = cut.into();
    let chunk = chunk.unwrap_or_else(|| chunk_rows(row_values(data).min(data.dim())));
    let expected = state.rows();
    let mut seen = 0;
    let mut rest = Some(state);
    let other_length = |seen: usize| {
        Error::Source(format!(
            "the source gave {} rows in one pass and {} in another: every pass must give the same ones",
            expected.unwrap_or(0),
            if expected.is_some_and(|n| seen > n) { "more".into() } else { seen.to_string() },
        ))
    };
    data::read(data, tile_rows, &mut |block: Block<'_, T>| {
        seen += block.len;
        if expected.is_some_and(|n| seen > n) {
            return Err(other_length(seen));
        }
        let (mine, left) = rest.take().expect("put back below").split(block.len);
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
                Ok(())
            },
            &merge,
        )?;
        Ok(ControlFlow::Continue(()))
    })?;
    if expected.is_some_and(|n| n != seen) { Err(other_length(seen)) } else { Ok(()) }
}

/// The tiles of a block, each with its part of the state.
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
