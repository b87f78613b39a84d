//! This module knows nested mini-batch k-means over rows that come in pieces: what is kept of them, and when rows retire.

use std::ops::ControlFlow;

use super::Nested;
use crate::data::{self, Converted, DataSource, Weighted, count_rows, weights_of};
use crate::error::{Error, Result};
use crate::fit::{Solver, Step};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::rows::RowBuf;
use crate::tuning::tile_rows;

/// The largest weighted squared length of a row that is kept: the squared distances of 2^50 such rows have a finite sum.
const MOST: f64 = f64::MAX * f64::EPSILON;

/// Refuses rows that hold a value that is not finite, or whose squared distances may overflow: once kept, they would fail every round. Gives the
/// number of values that they store.
fn check_rows<T: Compute>(rows: &dyn DataSource<T>, k: usize, cx: &Executor) -> Result<u64> {
    let absorb = |chunk: Chunk<'_, T>, (): (), stored: &mut u64, (): &mut ()| {
        for i in 0..chunk.rows.rows() {
            let weight = chunk.weights.map_or(1.0, |weights| weights[i].max(1.0));
            *stored += chunk.rows.stored(i).len() as u64;
            let length: f64 = chunk.rows.stored(i).iter().map(|x| x.to_f64() * x.to_f64()).sum();
            let small = weight * length <= MOST && weight <= MOST;
            if !small {
                let (first_row, rows) = (chunk.first_row + i as u64, chunk.rows.slice(i, i + 1));
                return Err(Chunk { first_row, rows, weights: None }.not_finite());
            }
        }
        Ok(())
    };
    let mut stored = 0;
    sweep(rows, cx, tile_rows(k), (), &mut stored, (|| 0, || ()), absorb, |total, part| {
        *total += std::mem::take(part);
    })?;
    Ok(stored)
}

/// Rows that came in pieces, in the order in which they came and in the type that they are computed in.
#[derive(Clone, Debug)]
pub(super) struct Kept<T> {
    pub(super) rows: RowBuf<T>,
    /// One for each row; none as long as all are 1.
    pub(super) weights: Vec<f64>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { rows: RowBuf::default(), weights: Vec::new() }
    }
}

impl<T: Compute> Kept<T> {
    /// Makes room for `n` more rows: for twice as many as there are, where that is more, but never for more than `capacity`.
    fn make_room(&mut self, n: usize, dim: usize, capacity: u64) -> Result<()> {
        if self.rows.is_sparse() {
            // How much they take shows when they come.
            return Ok(());
        }
        let before = self.rows.len();
        let rows = (before + n).max((2 * before).min(usize::try_from(capacity).unwrap_or(usize::MAX)));
        let values = &mut self.rows.values;
        let full = values.capacity() < values.len() + n * dim;
        if full && values.try_reserve_exact((rows - before) * dim).is_err() {
            let bytes = rows as u128 * dim as u128 * size_of::<T>() as u128;
            return Err(Error::Memory(format!("{rows} rows that are kept take {bytes} bytes")));
        }
        Ok(())
    }

    /// Appends the rows `start..end` of `more`, and their part of `weights`; there will be at most `capacity` rows.
    fn take(
        &mut self,
        more: &dyn DataSource<T>,
        weights: Option<&[f64]>,
        (start, end): (u64, u64),
        capacity: u64,
    ) -> Result<()> {
        let (dim, n) = (more.dim(), (end - start) as usize);
        let before = self.rows.len();
        if before == 0 {
            self.rows.clear(dim);
            if more.most_values().is_some() {
                self.rows.begin_sparse(dim);
            }
        }
        self.make_room(n, dim, capacity)?;
        // A block may be the whole source: what is converted at a time is not.
        let tile = tile_rows(1);
        let (rows, mut scratch) = (&mut self.rows, Converted::default());
        let read = data::read(more, 1, &mut |block| {
            let (first, last) = (block.first_row, block.first_row + block.len as u64);
            let range = start.max(first)..end.min(last);
            if range.start < range.end {
                let within = (range.start - first) as usize..(range.end - first) as usize;
                for first in within.clone().step_by(tile) {
                    rows.extend(scratch.read(block.rows, first..within.end.min(first + tile), None)?);
                }
            }
            Ok(if last >= end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        if let Err(e) = read {
            self.rows.truncate(before);
            return Err(e);
        }
        if weights.is_some() || !self.weights.is_empty() {
            let room =
                (self.rows.values.capacity() / dim).min(usize::try_from(capacity).unwrap_or(usize::MAX));
            self.weights.reserve_exact(room.max(before + n).saturating_sub(self.weights.len()));
            self.weights.resize(before, 1.0);
            match weights {
                Some(weights) => self.weights.extend_from_slice(&weights[start as usize..end as usize]),
                None => self.weights.resize(before + n, 1.0),
            }
        }
        Ok(())
    }

    /// Runs `f` on the rows as a source.
    fn with<R>(&self, f: impl FnOnce(&dyn DataSource<T>) -> Result<R>) -> Result<R> {
        let rows = &self.rows;
        if self.weights.is_empty() { f(rows) } else { f(&Weighted::vouched(rows, &self.weights)) }
    }

    /// Drops the first `m` rows.
    fn drop_first(&mut self, m: usize) {
        self.rows.drop_first(m);
        self.weights.drain(..m.min(self.weights.len()));
    }
}

impl<T: Compute> Nested<T> {
    /// Takes more rows. They wait until the rule for growth admits them, or there is no room for them to wait. There is one round over the
    /// batch, one more each time it grows, and as many as it takes for it to grow while as many rows wait as it has; gives the last of
    /// them. So rounds cost together what they cost in a fit, and one round for each call. Fewer rows than clusters only wait.
    ///
    /// Rows are kept until they take [`buffer_memory`](super::NestedParams::buffer_memory); then the older half of them *retires*: their
    /// last votes stay in the sums for ever, but they are not looked at again. So do the rows of a fit that went before. As long as no
    /// row has retired, rounds end in a fixed point of Lloyd's algorithm.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another length, [`Error::NotFinite`], [`Error::Empty`], [`Error::InvalidParam`], those of the source,
    /// [`Error::Interrupted`]: the state is then as before, but for bounds, which begin anew. Only where older rows had to retire meanwhile,
    /// what an interrupt or the source left of the new ones stays, and the next call goes on with them.
    pub(super) fn feed(&mut self, more: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>> {
        self.check_shape(more)?;
        let stored = check_rows(more, self.params.n_clusters, cx)?;
        let capacity = self.capacity(more, stored)?;
        let weights = weights_of(more)?;
        let before = self.without_rows();
        let kept = (self.kept.rows.len(), self.kept.weights.len());
        if !self.fed {
            self.retire_all();
            self.fed = true;
        }
        self.dim = more.dim();
        let retired = self.retired;
        let outcome = self.take_in(more, weights.as_deref(), capacity, cx);
        if outcome.is_err() && self.retired == retired {
            self.kept.rows.truncate(kept.0);
            if kept.0 == 0 {
                // Nothing says how long rows are, or of which kind.
                self.kept.rows = RowBuf::default();
            }
            self.kept.weights.truncate(kept.1);
            *self = Self { kept: std::mem::take(&mut self.kept), ..before };
        }
        outcome
    }

    /// A copy of all but the rows that are kept, and bounds.
    fn without_rows(&mut self) -> Self {
        let (kept, bounds) = (std::mem::take(&mut self.kept), self.labels.bounds.take());
        let copy = self.clone();
        (self.kept, self.labels.bounds) = (kept, bounds);
        copy
    }

    /// Keeps rows that were checked, and makes the rounds that are due.
    fn take_in(
        &mut self,
        more: &dyn DataSource<T>,
        weights: Option<&[f64]>,
        capacity: u64,
        cx: &Executor,
    ) -> Result<Option<Step>> {
        let (n, mut taken) = (count_rows(more)?, 0);
        while taken < n {
            // More than once, where there is less room than there was.
            while self.n_kept() >= capacity {
                self.retire_half(cx)?;
            }
            let end = n.min(taken + (capacity - self.n_kept()));
            self.kept.take(more, weights, (taken, end), capacity)?;
            taken = end;
        }
        if self.centers.is_empty() && self.n_kept() < self.params.n_clusters as u64 {
            return Ok(None);
        }
        loop {
            let step = self.round_of_kept(cx)?;
            let (batch, kept) = (self.batch() as u64, self.n_kept());
            if self.due == batch && kept - batch < batch {
                return Ok(Some(step));
            }
        }
    }

    /// Rows that are kept.
    pub(super) fn n_kept(&self) -> u64 {
        self.kept.rows.len() as u64
    }

    /// Refuses parameters, and rows that do not fit to those before.
    fn check_shape(&self, more: &dyn DataSource<T>) -> Result<()> {
        let dim = more.dim();
        if self.dim > 0 && dim != self.dim {
            return Err(Error::Shape(format!("X has {dim} columns, but the first rows had {}", self.dim)));
        }
        if count_rows(more)? == 0 {
            return Err(Error::Empty("X holds no rows".into()));
        }
        self.params.check(None, dim)
    }

    /// The number of rows that are kept at most, among them these, which store so many values.
    fn capacity(&self, more: &dyn DataSource<T>, stored: u64) -> Result<u64> {
        let params = &self.params;
        let (dense, empty) = (!self.kept.rows.is_sparse(), self.kept.rows.is_empty());
        let values = if more.most_values().is_none() || (dense && !empty) {
            (more.dim() * size_of::<T>()) as u64
        } else {
            // As long as the rows are on average, those before or these, with columns and beginnings.
            let kept = (self.kept.rows.bytes() as u64).div_ceil(self.n_kept().max(1));
            let value = (size_of::<T>() + size_of::<i32>()) as u64;
            kept.max(stored.div_ceil(count_rows(more)?.max(1)) * value + size_of::<usize>() as u64)
        };
        // With a weight, which later rows may bring.
        let row = values + size_of::<f64>() as u64;
        let least = (params.n_clusters as u64 + 1) * row;
        if params.buffer_memory < least {
            return Err(Error::param(
                "buffer_memory",
                format!("at least {least} bytes, to have room for more rows than clusters"),
                params.buffer_memory,
            ));
        }
        Ok(params.buffer_memory / row)
    }

    /// A round over the batch, with what is due.
    pub(super) fn round_of_kept(&mut self, cx: &Executor) -> Result<Step> {
        let kept = std::mem::take(&mut self.kept);
        let step = kept.with(|rows| self.step(rows, cx));
        self.kept = kept;
        // There may always be more rows.
        step.map(|step| Step { stop_reason: None, ..step })
    }

    /// The older half of the rows that are kept retires, after those that wait were admitted.
    pub(super) fn retire_half(&mut self, cx: &Executor) -> Result<()> {
        if (self.batch() as u64) < self.n_kept() || self.labels.are_missing() {
            self.due = self.n_kept();
            self.round_of_kept(cx)?;
        }
        let half = self.n_kept().div_ceil(2) as usize;
        let kept = std::mem::take(&mut self.kept);
        let retired = kept.with(|rows| self.retire(rows, half, cx));
        self.kept = kept;
        retired?;
        self.kept.drop_first(half);
        Ok(())
    }
}
