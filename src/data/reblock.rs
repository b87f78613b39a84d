//! Cuts rows that come in pieces of any length into blocks of whole tiles.

use std::ops::{ControlFlow, Range};

use super::{Block, Converted, Tile, TileReader, Wanted};
use crate::error::Result;
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, SparseRef};

/// Cuts pieces into blocks whose lengths are multiples of `tile_rows`, except the last. Rows that do not fill
/// a tile are copied and wait for the next piece; all other rows are passed on without a copy.
pub(crate) struct Reblock<'f, T: Float> {
    tile_rows: usize,
    /// Shorter pieces are collected up to this many rows; a multiple of `tile_rows`.
    block_rows: usize,
    first_row: u64,
    /// First row of the last block that was passed on.
    block_start: u64,
    waiting: RowBuf<T>,
    waiting_weights: Vec<f64>,
    weighted: bool,
    scratch: Converted<T>,
    f: &'f mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
}

/// Consecutive rows of a block. It forwards every method, because the reader of another crate may have any of them.
struct BlockRange<'a, T: Float> {
    whole: &'a dyn TileReader<T>,
    rows: Range<usize>,
}

impl<T: Float> BlockRange<'_, T> {
    /// Rows of the part as rows of the block.
    fn of_whole(&self, rows: &Range<usize>) -> Range<usize> {
        assert!(rows.end <= self.rows.len(), "rows {rows:?} are not in the block");
        self.rows.start + rows.start..self.rows.start + rows.end
    }
}

impl<T: Float> TileReader<T> for BlockRange<'_, T> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        self.whole.tile(self.of_whole(&rows), scratch)
    }
    fn tile_of<'s>(
        &'s self,
        rows: Range<usize>,
        picked: &[u32],
        scratch: &'s mut Vec<T>,
    ) -> Result<MatRef<'s, T>> {
        self.whole.tile_of(self.of_whole(&rows), picked, scratch)
    }
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Result<Option<SparseRef<'s, T>>> {
        self.whole.sparse(self.of_whole(&rows), picked, scratch)
    }
    fn bytes(&self, rows: Range<usize>) -> Result<Option<MatRef<'_, u8>>> {
        self.whole.bytes(self.of_whole(&rows))
    }
    fn read(&self, wanted: Wanted<'_>, buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        self.whole.read(Wanted { rows: self.of_whole(&wanted.rows), ..wanted }, buffer)
    }
}

impl<'f, T: Float> Reblock<'f, T> {
    pub(crate) fn new(
        dim: usize,
        tile_rows: usize,
        block_tiles: usize,
        f: &'f mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Self {
        let tile_rows = tile_rows.max(1);
        Self {
            tile_rows,
            block_rows: tile_rows.saturating_mul(block_tiles),
            first_row: 0,
            block_start: 0,
            waiting: RowBuf::new(dim),
            waiting_weights: Vec::new(),
            weighted: false,
            scratch: Converted::default(),
            f,
        }
    }

    /// Numbers rows from `row` on.
    pub(super) fn starting_at(mut self, row: u64) -> Self {
        (self.first_row, self.block_start) = (row, row);
        self
    }

    /// The first row of the last block that was passed on.
    pub(super) fn block_start(&self) -> u64 {
        self.block_start
    }

    /// Adds the rows `rows` of a piece, with their weights. With `last`, no piece follows.
    pub(crate) fn push(
        &mut self,
        piece: &dyn TileReader<T>,
        mut rows: Range<usize>,
        mut weights: Option<&[f64]>,
        last: bool,
    ) -> Result<ControlFlow<()>> {
        self.weighted |= weights.is_some();
        let waiting = self.waiting.len();
        let short = !last && rows.len() < self.block_rows;
        if waiting > 0 || short {
            let full = if short { self.block_rows } else { waiting.next_multiple_of(self.tile_rows) };
            let some = rows.len().min(full - waiting);
            self.keep(piece, rows.start..rows.start + some, &mut weights)?;
            rows.start += some;
            if waiting + some == full && self.flush()?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let whole = if last { rows.len() } else { rows.len() / self.tile_rows * self.tile_rows };
        if whole > 0 {
            let part = BlockRange { whole: piece, rows: rows.start..rows.start + whole };
            let block = Block {
                first_row: self.first_row,
                len: whole,
                rows: &part,
                weights: weights.map(|weights| &weights[..whole]),
            };
            self.block_start = self.first_row;
            self.first_row += whole as u64;
            rows.start += whole;
            weights = weights.map(|weights| &weights[whole..]);
            if (self.f)(block)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.keep(piece, rows, &mut weights)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Passes on the rows that are waiting.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush().map(|_| ())
    }

    fn keep(
        &mut self,
        piece: &dyn TileReader<T>,
        rows: Range<usize>,
        weights: &mut Option<&[f64]>,
    ) -> Result<()> {
        let n = rows.len();
        for start in rows.clone().step_by(self.tile_rows) {
            let tile = start..rows.end.min(start + self.tile_rows);
            self.waiting.extend(self.scratch.read(piece, tile, None)?);
        }
        if let Some(all) = weights {
            let (these, others) = all.split_at(n);
            self.waiting_weights.extend_from_slice(these);
            *weights = Some(others);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<ControlFlow<()>> {
        let len = self.waiting.len();
        if len == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        let weights = self.weighted.then_some(&self.waiting_weights[..]);
        self.block_start = self.first_row;
        let next = (self.f)(Block { first_row: self.first_row, len, rows: &self.waiting, weights })?;
        self.first_row += len as u64;
        self.waiting.clear(self.waiting.cols());
        self.waiting_weights.clear();
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_of_any_length_become_whole_tiles(
            pieces in prop::collection::vec(0usize..40, 1..12), tile_rows in 1usize..9, block_tiles in 1usize..4,
            told in any::<bool>(), weighted in any::<bool>(),
        ) {
            let total: usize = pieces.iter().sum();
            let values: Vec<f64> = (0..2 * total).map(|x| x as f64).collect();
            let weights: Vec<f64> = (0..total).map(|x| x as f64 / 2.0).collect();
            let (mut seen, mut lengths, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
            let mut f = |block: Block<'_, f64>| {
                assert_eq!(block.first_row as usize, seen.len() / 2);
                assert_eq!(block.weights.is_some(), weighted);
                if let Some(found) = block.weights {
                    assert_eq!(found, &weights[seen.len() / 2..][..block.len]);
                }
                block.rows.tile(0..block.len, &mut scratch)?.iter().for_each(|row| seen.extend_from_slice(row));
                lengths.push(block.len);
                Ok(ControlFlow::Continue(()))
            };
            let mut blocks = Reblock::new(2, tile_rows, block_tiles, &mut f);
            let mut at = 0;
            for (i, &n) in pieces.iter().enumerate() {
                // Each piece is the middle of a longer one.
                let piece = MatRef::new(&values, 2);
                let weights = weighted.then_some(&weights[at..at + n]);
                let last = told && i + 1 == pieces.len();
                prop_assert!(blocks.push(&piece, at..at + n, weights, last).unwrap().is_continue());
                at += n;
            }
            blocks.finish().unwrap();
            prop_assert_eq!(seen, values);
            let whole = lengths.len().saturating_sub(1);
            prop_assert!(lengths[..whole].iter().all(|n| n % tile_rows == 0), "{:?}", lengths);
            prop_assert!(lengths.iter().all(|&n| n > 0));
        }
    }
}
