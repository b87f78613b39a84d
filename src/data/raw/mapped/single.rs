//! Single rows of a mapped file, read past the system's cache by many requests at a time.

use std::ops::Range;
use std::thread;

use super::super::ahead::Leave;
use super::super::layout::Layout;
use super::super::rows::RawRows;
use super::{Handle, Mapped};
use crate::data::Wanted;
use crate::error::Result;
use crate::float::Float;
use crate::rows::RowBuf;

/// A few rows of at least so many are read without the cache of the system: fewer requests would leave the disk idle.
const DIRECT_ROWS: usize = 1024;
/// Up to one row in so many is read by itself. With more, reading all rows takes less time (`files.py`).
const DIRECT_SHARE: usize = 4;
/// Bytes between two rows that are read with them: another request would take longer.
const DIRECT_GAP: usize = 2048;
/// Requests that are made at the same time, and requests per thread that makes them.
const DIRECT_THREADS: usize = 8;
const DIRECT_REQUESTS: usize = 16;

impl Mapped {
    /// Reads the picked of these rows past the cache, if they are so few that the others would be read from disk in
    /// vain. Returns whether it did.
    pub(in crate::data) fn read_few<T: Float>(
        &self,
        wanted: &Wanted<'_>,
        buffer: &mut RowBuf<T>,
        leave: Option<Leave>,
    ) -> Result<bool> {
        self.few(wanted, leave)
            .map_or(Ok(false), |picked| self.read_picked(&wanted.rows, picked, buffer, leave))
    }

    /// The picked of these rows, if they are so few.
    fn few<'p>(&self, wanted: &Wanted<'p>, leave: Option<Leave>) -> Option<&'p [u32]> {
        let n = wanted.rows.len();
        let picked = wanted.picked.filter(|picked| n >= DIRECT_ROWS && DIRECT_SHARE * picked.len() <= n)?;
        (!self.keeps(&wanted.rows, leave)).then_some(picked)
    }

    /// Reads single rows, counted from the first of `rows`, to their places in `buffer`, by many requests at a time.
    /// Returns whether it could.
    pub(in crate::data::raw) fn read_picked<T: Float>(
        &self,
        rows: &Range<usize>,
        picked: &[u32],
        buffer: &mut RowBuf<T>,
        leave: Option<Leave>,
    ) -> Result<bool> {
        let cols = self.layout.cols;
        let row_bytes = self.layout.row_stride.unsigned_abs();
        let mut picked = picked.to_vec();
        picked.sort_unstable();
        let mut left = &mut *buffer.room(rows.len(), cols);
        let (mut runs, mut next) = (Vec::new(), 0);
        for run in picked.chunk_by(|&a, &b| (b - a - 1) as usize * row_bytes <= DIRECT_GAP) {
            let run = run[0] as usize..run[run.len() - 1] as usize + 1;
            let out = left.split_off_mut((run.start - next) * cols..).unwrap_or_default();
            let (out, rest) = out.split_at_mut(run.len() * cols);
            (left, next) = (rest, run.end);
            runs.push((rows.start + run.start..rows.start + run.end, out));
        }
        self.read_runs(runs, leave)
    }

    /// Appends rows to `out` past the cache, if they are several rows of a file that does not stay in it. Returns whether
    /// it could; otherwise `out` does not change.
    pub(in crate::data) fn gather_directly<T: Float>(
        &self,
        rows: &[u64],
        out: &mut Vec<T>,
        leave: Option<Leave>,
    ) -> Result<bool> {
        let all = self.layout.rows;
        if rows.len() <= DIRECT_REQUESTS
            || self.keeps(&(0..all), leave)
            || rows.iter().any(|&row| row >= all as u64)
        {
            return Ok(false);
        }
        let (cols, before) = (self.layout.cols, out.len());
        out.resize(before + rows.len() * cols, T::ZERO);
        let (mut runs, mut left) = (Vec::new(), &mut out[before..]);
        for run in rows.chunk_by(|&a, &b| b == a + 1) {
            let here = left.split_off_mut(..run.len() * cols).unwrap_or_default();
            runs.push((run[0] as usize..run[0] as usize + run.len(), here));
        }
        let all_read = self.read_runs(runs, leave);
        if !matches!(all_read, Ok(true)) {
            out.truncate(before);
        }
        all_read
    }

    /// Reads runs of rows to their places, past the cache unless they stay in it. Returns whether it could.
    fn read_runs<T: Float>(
        &self,
        mut runs: Vec<(Range<usize>, &mut [T])>,
        leave: Option<Leave>,
    ) -> Result<bool> {
        let Layout { dtype, cols, col_stride, .. } = self.layout;
        if self.led || cols > 1 && col_stride != dtype.size() as isize {
            return Ok(false);
        }
        if runs.is_empty() {
            return Ok(true);
        }
        let of_many;
        let open = match &self.file.handle {
            Handle::Own(open) => open,
            Handle::Shared(descriptor) => {
                of_many = descriptor.file()?;
                &*of_many
            }
        };
        let Some(direct) = open.direct() else { return Ok(false) };
        let share = runs.len().div_ceil(DIRECT_THREADS).max(DIRECT_REQUESTS);
        let read = |runs: &mut [(Range<usize>, &mut [T])]| -> Result<bool> {
            let mut buffer = Vec::new();
            for (rows, out) in runs {
                if self.keeps(rows, leave) {
                    self.read_into(rows, out)?;
                    continue;
                }
                let Some(bytes) = self.bytes_of(rows) else { return Ok(false) };
                let bytes = bytes.start..bytes.end.min(self.file.needed as usize);
                let Ok(found) = direct.read(bytes, &mut buffer) else { return Ok(false) };
                let layout = Layout { rows: rows.len(), ..self.layout };
                RawRows::from_bytes(&buffer[found], 0, layout)?.read_into(&(0..rows.len()), out);
            }
            Ok(true)
        };
        let own = share.min(runs.len());
        let (first, others) = runs.split_at_mut(own);
        let all_read = thread::scope(|scope| -> Result<bool> {
            let begin = |some| thread::Builder::new().spawn_scoped(scope, || read(some));
            let others: Vec<_> = others.chunks_mut(share).map(begin).collect();
            let mut all_read = read(first)?;
            for other in others {
                // The system may have no more threads.
                all_read &= other.map_or(Ok(false), |other| other.join().unwrap_or(Ok(false)))?;
            }
            Ok(all_read)
        })?;
        if !all_read {
            // The map has the rows, unless the file was cut.
            self.check_length()?;
        }
        Ok(all_read)
    }
}
