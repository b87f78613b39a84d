//! Passes over rows that come in pieces, which can be left and resumed.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use super::reblock::Reblock;
use super::{Block, TileReader};
use crate::error::Result;
use crate::float::Float;

/// Chunks shorter than this many tiles are collected, so that there is work for many threads at a time.
const BLOCK_TILES: usize = 32;
/// Values that are collected at most, but for one tile: many clusters make for long tiles.
const BLOCK_VALUES: usize = 1 << 24;

/// Some rows of a pass.
pub(crate) trait Piece<T: Float> {
    /// The rows.
    fn reader(&self) -> &dyn TileReader<T>;

    /// Their number.
    fn len(&self) -> usize;

    /// One weight a row, if they have any.
    fn weights(&self) -> Option<&[f64]>;
}

/// A pass on its way. Pieces stay until whoever reads them has gone beyond: no more of them than a block is made of.
pub(crate) struct Pass<I, P> {
    pieces: I,
    kept: VecDeque<P>,
    /// Of the first piece that is kept.
    first_row: u64,
}

impl<P, I: Iterator<Item = Result<P>>> Pass<I, P> {
    /// A pass at its beginning.
    pub(crate) fn new(pieces: I) -> Self {
        Self { pieces, kept: VecDeque::new(), first_row: 0 }
    }

    /// Hands out all rows, in blocks of whole tiles, the last one aside; short pieces are collected.
    pub(crate) fn read<T: Float>(
        mut self,
        dim: usize,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()>
    where
        P: Piece<T>,
    {
        let tiles = (BLOCK_VALUES / dim.max(1).saturating_mul(tile_rows.max(1))).clamp(1, BLOCK_TILES);
        self.go_on(dim, 0, (tile_rows, tiles), f)
    }

    /// The same from row `row` on, collected up to `block_tiles` tiles.
    fn go_on<T: Float>(
        &mut self,
        dim: usize,
        row: u64,
        (tile_rows, block_tiles): (usize, usize),
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()>
    where
        P: Piece<T>,
    {
        let mut blocks = Reblock::new(dim, tile_rows, block_tiles, f).starting_at(row);
        let (mut next, mut at) = (0, self.first_row);
        loop {
            // What lies before the last block will not be asked for again.
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

/// The pass that was left last, if there is one.
pub(crate) struct OpenPass<I, P>(Mutex<Option<Pass<I, P>>>);

impl<I, P> Default for OpenPass<I, P> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<P, I: Iterator<Item = Result<P>>> OpenPass<I, P> {
    /// Hands out blocks from row `row` on: of the pass that was left, where it has not gone beyond, else of a `fresh` one. It stays open,
    /// unless it fails.
    pub(crate) fn read_from<T: Float>(
        &self,
        row: u64,
        fresh: impl FnOnce() -> Result<Pass<I, P>>,
        (dim, tile_rows): (usize, usize),
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
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
        pass.go_on(dim, row, (tile_rows, 1), f)?;
        *open() = Some(pass);
        Ok(())
    }
}
