//! Which partitions, or which rows, a partial result has.

use std::mem::take;

use super::errors::of_too_many;
use super::place::{MOST, Place, Starts};
use crate::error::{Error, Result};

/// A partition, or consecutive blocks of rows.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The number of the partition, or of the first row.
    pub(super) start: u64,
    /// Number of rows.
    pub(super) rows: u64,
    /// Number of blocks; 1 for a partition.
    pub(super) blocks: u64,
}

/// Pieces in ascending order, none of which overlap. Neighboring blocks of rows are one piece.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    /// Whether pieces are blocks of rows, not partitions.
    pub(super) by_row: bool,
    pub(super) list: Vec<Piece>,
}

impl Pieces {
    pub(super) fn new(by_row: bool) -> Self {
        Self { by_row, list: Vec::new() }
    }

    /// The piece of a place, which has these rows.
    pub(super) fn at(place: Place, rows: u64) -> Self {
        let by_row = matches!(place, Place::FirstRow(_));
        // A block of numbered rows without rows has no place.
        let is_none = by_row && rows == 0;
        let piece = Piece { start: place.number(), rows, blocks: 1 };
        Self { by_row, list: if is_none { Vec::new() } else { vec![piece] } }
    }

    /// Checks what a file claims. The error says what is wrong.
    pub(super) fn of(by_row: bool, list: Vec<Piece>) -> Result<Self, String> {
        let (new, mut end, mut rows) = (Self { by_row, list }, 0, 0u64);
        for piece in &new.list {
            if piece.start < end {
                return Err("its partitions overlap".into());
            }
            let whole = if by_row { piece.blocks <= piece.rows } else { piece.blocks == 1 };
            if !whole || piece.blocks == 0 {
                return Err("its partitions are joined, as in an earlier version".into());
            }
            end = new.end(piece);
            rows = rows.saturating_add(piece.rows);
            if end > MOST || rows > MOST {
                return Err("its counts are damaged".into());
            }
        }
        Ok(new)
    }

    /// The place after a piece.
    fn end(&self, piece: &Piece) -> u64 {
        piece.start.saturating_add(if self.by_row { piece.rows } else { 1 })
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.list.iter().map(|piece| piece.rows).sum()
    }

    /// Number of partitions or blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.list.iter().map(|piece| piece.blocks).sum()
    }

    /// What messages call the partitions or rows `start..end`.
    fn named(&self, start: u64, end: u64) -> String {
        match (self.by_row, end - start) {
            (true, _) => format!("rows {start}..{end}"),
            (false, 1) => format!("partition {start}"),
            (false, _) => format!("partitions {start} to {}", end - 1),
        }
    }

    /// Adds the pieces of another.
    ///
    /// # Errors
    /// If both have the same partition, or overlapping rows, or numbers that are too large.
    pub(super) fn merge(mut self, mut other: Self) -> Result<Self> {
        let mut all = take(&mut self.list);
        all.append(&mut other.list);
        all.sort_by_key(|piece| piece.start);
        for pair in all.windows(2) {
            let end = self.end(&pair[0]);
            if end > pair[1].start {
                let both = self.named(pair[1].start, end.min(self.end(&pair[1])));
                return Err(Error::Source(format!(
                    "{both} would be counted twice: merge one result of every task, also of a retried one"
                )));
            }
        }
        let rows = all.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.rows));
        if rows.is_none_or(|rows| rows > MOST) || all.last().is_some_and(|piece| self.end(piece) > MOST) {
            return Err(of_too_many());
        }
        if self.by_row {
            all.dedup_by(|next, piece| {
                let neighbors = piece.start + piece.rows == next.start;
                if neighbors {
                    (piece.rows, piece.blocks) = (piece.rows + next.rows, piece.blocks + next.blocks);
                }
                neighbors
            });
        }
        self.list = all;
        Ok(self)
    }

    /// Returns an error that names what is missing before the last piece, and before `end`.
    fn check_gaps(&self, end: u64) -> Result<()> {
        let (mut next, mut missing) = (0, Vec::new());
        for (start, stop) in self.list.iter().map(|piece| (piece.start, self.end(piece))).chain([(end, end)])
        {
            if start > next {
                missing.push(self.named(next, start));
            }
            next = stop;
        }
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(Error::Source(format!("total must hold all partitions, and lacks {missing}")))
    }

    /// Returns an error unless these are the partitions `0..n`, or `n` blocks of numbered rows.
    pub(super) fn check_number(&self, n: u64) -> Result<()> {
        let (kind, found) = if self.by_row {
            ("blocks", self.blocks())
        } else {
            self.check_gaps(n)?;
            ("partitions", self.list.last().map_or(0, |piece| self.end(piece)))
        };
        if found == n {
            Ok(())
        } else {
            Err(Error::Source(format!("total must hold {n} {kind}, got {found}")))
        }
    }

    /// The first row of every partition. For blocks of rows, whose first rows are known, there are none.
    ///
    /// # Errors
    /// If a partition or a row before the last piece is missing.
    pub(super) fn starts(&self) -> Result<Starts> {
        self.check_gaps(0)?;
        let lengths = self.list.iter().map(|piece| piece.rows);
        Ok(if self.by_row { Starts::default() } else { Starts::of(lengths) })
    }
}
