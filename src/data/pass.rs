//! This module knows a pass over rows that come in pieces, which can be left and gone on with.

use std::collections::VecDeque;

use super::reblock::Reblock;
use super::{Block, TileReader};
use crate::error::Result;
use crate::float::Float;
use std::ops::ControlFlow;

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

    /// Whether row `row` has not been left behind.
    pub(crate) fn reaches(&self, row: u64) -> bool {
        row >= self.first_row
    }

    /// Hands out blocks of whole tiles, the last one aside, from row `row` on, collected from short pieces up to `block_tiles` tiles.
    pub(crate) fn go_on<T: Float>(
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
