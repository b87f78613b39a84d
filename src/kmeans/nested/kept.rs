//! The rows that nested mini-batch k-means keeps of a stream.

use std::ops::ControlFlow;

use crate::data::{self, Converted, DataSource, Weighted};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::rows::RowBuf;
use crate::tuning::tile_rows;

/// The kept rows, in order of arrival and in their compute type.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept<T> {
    pub(super) rows: RowBuf<T>,
    /// One weight per row; empty while all are 1.
    pub(super) weights: Vec<f64>,
}

impl<T: Compute> Kept<T> {
    /// Reserves memory for `n` more rows. Grows to twice the current number of rows if that is more, up to
    /// `capacity` rows.
    fn make_room(&mut self, n: usize, dim: usize, capacity: u64) -> Result<()> {
        if self.rows.is_sparse() {
            // The memory of sparse rows is not known in advance.
            return Ok(());
        }
        let before = self.rows.len();
        let rows = (before + n).max((2 * before).min(usize::try_from(capacity).unwrap_or(usize::MAX)));
        let values = &mut self.rows.values;
        let full = values.capacity() < values.len() + n * dim;
        if full && values.try_reserve_exact((rows - before) * dim).is_err() {
            let bytes = rows as u128 * dim as u128 * size_of::<T>() as u128;
            return Err(Error::Memory(format!("{rows} rows in the buffer, which take {bytes} bytes")));
        }
        Ok(())
    }

    /// Appends the rows `start..end` of `more`, with their part of `weights`. Keeps at most `capacity` rows.
    pub(super) fn take(
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
        // A block may be the whole source; convert one tile at a time.
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

    /// Calls `f` with the rows as a source.
    pub(super) fn with<R>(&self, f: impl FnOnce(&dyn DataSource<T>) -> Result<R>) -> Result<R> {
        let rows = &self.rows;
        if self.weights.is_empty() { f(rows) } else { f(&Weighted::vouched(rows, &self.weights)) }
    }

    pub(super) fn drop_first(&mut self, m: usize) {
        self.rows.drop_first(m);
        self.weights.drain(..m.min(self.weights.len()));
    }
}
