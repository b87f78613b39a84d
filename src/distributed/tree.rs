//! Sums of partitions, added in a fixed binary tree over the numbers of the partitions.
//!
//! Sums whose bits do not depend on the order of addition are added at once: then all pieces have one sum.
//!
//! Every border between two neighbors has a rank, which depends on its number alone. Two neighbors are added if the
//! border between them ranks below the borders around both. This tree depends on the borders alone, so the result does
//! not depend on who merges which partitions first.
//!
//! The rank of a partition number is the number of times that 2 divides it: a node covers `2^l` partitions that begin at
//! a multiple of `2^l`. The rank of a row number is a hash: `p` neighboring blocks, wherever they begin, become about
//! `2 ln(p)` pieces.

use std::mem::take;

use super::errors::of_too_many;
use super::place::{MOST, Place};
use super::sums::AnySums;
use crate::error::{Error, Result};
use crate::rng::mix;

/// The sums of consecutive partitions, or of consecutive blocks of rows.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The first partition or row.
    pub(super) start: u64,
    /// Number of partitions or rows.
    pub(super) span: u64,
    /// Number of rows.
    pub(super) rows: u64,
    /// Number of partitions or blocks.
    pub(super) blocks: u64,
    /// `None` if the first piece has the sums of all.
    pub(super) sums: Option<AnySums>,
}

impl Piece {
    pub(super) fn new(place: Place, rows: u64, sums: AnySums) -> Self {
        let span = if matches!(place, Place::Partition(_)) { 1 } else { rows };
        Self { start: place.number(), span, rows, blocks: 1, sums: Some(sums) }
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.span)
    }

    /// Whether `next` is added to this piece before anything else is.
    fn takes(&self, next: &Self, by_row: bool, in_any_order: bool) -> bool {
        let rank = |border| rank(border, by_row);
        let lowest = || in_any_order || rank(next.start) < rank(self.start).min(rank(next.end()));
        self.end() == next.start && lowest()
    }

    fn plus(self, next: Self) -> Result<Self> {
        let sum =
            |one: u64, two: u64| one.checked_add(two).filter(|&sum| sum <= MOST).ok_or_else(of_too_many);
        // First the counts, because they bound the counts within the sums.
        let span = sum(self.span, next.span)?;
        let rows = sum(self.rows, next.rows)?;
        let blocks = sum(self.blocks, next.blocks)?;
        let sums = added(self.sums, next.sums)?;
        Ok(Self { start: self.start, span, rows, blocks, sums })
    }
}

/// The sums of both, if there are any.
fn added(one: Option<AnySums>, two: Option<AnySums>) -> Result<Option<AnySums>> {
    match (one, two) {
        (Some(one), Some(two)) => one.plus(two).map(Some),
        (one, two) => Ok(one.or(two)),
    }
}

/// The rank of the border before a partition or a row. Neighboring borders that are left have different ranks.
fn rank(border: u64, by_row: bool) -> u64 {
    match border {
        0 => u64::MAX,
        _ if by_row => mix(border),
        _ => u64::from(border.trailing_zeros()),
    }
}

/// Whether the sums of these pieces are added in any order. The first piece has sums.
fn in_any_order(pieces: &[Piece]) -> bool {
    pieces.first().and_then(|piece| piece.sums.as_ref()).is_some_and(AnySums::in_any_order)
}

/// Pieces in ascending order, none of which overlap; as few as the tree allows.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    /// Whether `start` and `span` count rows, not partitions.
    pub(super) by_row: bool,
    pub(super) list: Vec<Piece>,
}

impl Pieces {
    pub(super) fn new(by_row: bool) -> Self {
        Self { by_row, list: Vec::new() }
    }

    /// Checks what a file claims. The error says what is wrong.
    pub(super) fn of(by_row: bool, list: Vec<Piece>) -> Result<Self, String> {
        let (mut end, mut rows) = (0, 0u64);
        let in_any_order = in_any_order(&list);
        for (i, piece) in list.iter().enumerate() {
            let Some(next) = piece.start.checked_add(piece.span).filter(|_| piece.start >= end) else {
                return Err("its partitions overlap".into());
            };
            end = next;
            let halves = piece.span.is_power_of_two() && piece.start.is_multiple_of(piece.span);
            let whole = if by_row {
                piece.span == piece.rows && piece.blocks <= piece.rows
            } else {
                (halves || in_any_order) && piece.blocks == piece.span
            };
            if piece.sums.is_none() != (in_any_order && i > 0) {
                return Err("it lacks the sums of a partition".into());
            }
            if !whole || piece.span == 0 || piece.blocks == 0 {
                return Err("its partitions are no nodes of a tree".into());
            }
            rows = rows.saturating_add(piece.rows);
            if end > MOST || rows > MOST {
                return Err("its counts are damaged".into());
            }
        }
        Ok(Self { by_row, list })
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
            if pair[0].end() > pair[1].start {
                let both = self.named(pair[1].start, pair[0].end().min(pair[1].end()));
                return Err(Error::Source(format!(
                    "{both} would be counted twice: merge one result of every task, also of a retried one"
                )));
            }
        }
        let rows = all.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.rows));
        if rows.is_none_or(|rows| rows > MOST) || all.last().is_some_and(|piece| piece.end() > MOST) {
            return Err(of_too_many());
        }
        let (in_any_order, mut sums) = (in_any_order(&all), None);
        if in_any_order {
            for piece in &mut all {
                sums = added(sums, piece.sums.take())?;
            }
        }
        for mut next in all {
            while let Some(last) = self.list.pop() {
                if !last.takes(&next, self.by_row, in_any_order) {
                    self.list.push(last);
                    break;
                }
                next = last.plus(next)?;
            }
            self.list.push(next);
        }
        if in_any_order {
            self.list[0].sums = sums;
        }
        Ok(self)
    }

    /// Returns an error that names what is missing before the last piece, and before `end`.
    fn check_gaps(&self, end: u64) -> Result<()> {
        let (mut next, mut missing) = (0, Vec::new());
        for (start, stop) in self.list.iter().map(|piece| (piece.start, piece.end())).chain([(end, end)]) {
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
        let last = self.list.last().map_or(0, Piece::end);
        let (kind, found) = if self.by_row {
            ("blocks", self.list.iter().map(|piece| piece.blocks).sum())
        } else {
            self.check_gaps(n)?;
            ("partitions", last)
        };
        if found == n {
            Ok(())
        } else {
            Err(Error::Source(format!("total must hold {n} {kind}, got {found}")))
        }
    }

    /// The sum of all pieces, from the first to the last. `None` if there are no pieces.
    ///
    /// # Errors
    /// If a partition or a row before the last piece is missing.
    pub(super) fn total(self) -> Result<Option<Piece>> {
        self.check_gaps(0)?;
        let mut pieces = self.list.into_iter();
        let Some(first) = pieces.next() else { return Ok(None) };
        pieces.try_fold(first, Piece::plus).map(Some)
    }
}
