//! Passes over rows that come in pieces, which can be left and resumed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::reblock::Reblock;
use super::{TileReader, Visit};
use crate::error::Result;
use crate::float::Float;

/// Chunks shorter than this many tiles are collected into one block, which has work for many threads.
const BLOCK_TILES: usize = 32;
/// Upper limit of the collected values, unless one tile has more: tiles are long when there are many clusters.
const BLOCK_VALUES: usize = 1 << 24;

/// Consecutive rows of a pass.
pub(crate) trait Piece<T: Float> {
    /// Reads the rows.
    fn reader(&self) -> &dyn TileReader<T>;

    /// Number of rows.
    fn len(&self) -> usize;

    /// One weight per row, if the rows have weights.
    fn weights(&self) -> Option<&[f64]>;
}

/// A pass in progress. It keeps the pieces of the current block, since the reader may resume within the block.
pub(crate) struct StreamPass<I, P> {
    pieces: I,
    kept: VecDeque<P>,
    /// Row number of the first kept piece.
    first_row: u64,
}

impl<P, I: Iterator<Item = Result<P>>> StreamPass<I, P> {
    /// A pass before its first row.
    pub(crate) fn new(pieces: I) -> Self {
        Self { pieces, kept: VecDeque::new(), first_row: 0 }
    }

    /// Passes all rows to `f`, in blocks of whole tiles except the last; short pieces are collected.
    pub(crate) fn read<T: Float>(mut self, dim: usize, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()>
    where
        P: Piece<T>,
    {
        let tiles = (BLOCK_VALUES / dim.max(1).saturating_mul(tile_rows.max(1))).clamp(1, BLOCK_TILES);
        self.resume(dim, 0, (tile_rows, tiles), f)
    }

    /// As [`StreamPass::read`], from row `row` on; short pieces are collected up to `block_tiles` tiles.
    fn resume<T: Float>(
        &mut self,
        dim: usize,
        row: u64,
        (tile_rows, block_tiles): (usize, usize),
        f: &mut Visit<'_, T>,
    ) -> Result<()>
    where
        P: Piece<T>,
    {
        let mut blocks = Reblock::new(dim, tile_rows, block_tiles, f).starting_at(row);
        let (mut next, mut at) = (0, self.first_row);
        loop {
            // A pass is never resumed before its last block.
            while next > 0 && self.first_row + self.kept[0].len() as u64 <= blocks.block_start() {
                self.first_row += self.kept[0].len() as u64;
                self.kept.pop_front();
                next -= 1;
            }
            if next == self.kept.len() {
                match self.pieces.next() {
                    Some(piece) => self.kept.push_back(piece?),
                    None => return blocks.finish(),
                }
            }
            let piece = &self.kept[next];
            let skipped = usize::try_from(row.saturating_sub(at)).unwrap_or(usize::MAX).min(piece.len());
            let weights = piece.weights().map(|weights| &weights[skipped..]);
            at += piece.len() as u64;
            next += 1;
            if skipped < piece.len()
                && blocks.push(piece.reader(), skipped..piece.len(), weights, false)?.is_break()
            {
                return Ok(());
            }
        }
    }
}

/// The last pass, if it was left before its end.
pub(crate) struct OpenPass<I, P>(Mutex<Option<StreamPass<I, P>>>);

impl<I, P> Default for OpenPass<I, P> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<P, I: Iterator<Item = Result<P>>> OpenPass<I, P> {
    /// Passes blocks to `f` from row `row` on: of the open pass, if it still has that row, else of a `fresh`
    /// pass. The pass stays open unless it fails.
    pub(crate) fn read_from<T: Float>(
        &self,
        row: u64,
        fresh: impl FnOnce() -> Result<StreamPass<I, P>>,
        (dim, tile_rows): (usize, usize),
        f: &mut Visit<'_, T>,
    ) -> Result<()>
    where
        P: Piece<T>,
    {
        let open = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = open().take();
        let mut pass = match left {
            Some(pass) if row > 0 && row >= pass.first_row => pass,
            _ => fresh()?,
        };
        pass.resume(dim, row, (tile_rows, 1), f)?;
        *open() = Some(pass);
        Ok(())
    }
}
