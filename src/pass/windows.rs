//! Groups of rows in a file that is larger than memory.
//!
//! The rows of a group are scattered over the file, and disks read scattered rows many times slower than consecutive
//! ones. Such a file is read in order instead, in windows of consecutive rows that fit in memory, and the groups of
//! every window are visited.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::groups::Groups;
use crate::data::{Access, DataSource, Origin, Visit, forward, gather, no_such_row, row_bytes};
use crate::error::Result;
use crate::float::Float;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::tuning::GROUPED_ROWS;

#[cfg(test)]
pub(super) mod tests;

/// Share of the available memory that two windows take: passes over groups have tables of their own.
const WINDOW_SHARE: u64 = 3;

/// Consecutive bytes that a disk reads in the time of one scattered row.
const SCATTERED_BYTES: usize = 1 << 16;

/// Visits the rows of all `groups` of a source: at once, or window by window if the source is a file larger than
/// memory whose rows are dense. `visit` gets a source of single rows, and the groups of the rows at hand; it reads the
/// rows of the groups for which `reads` returns true. The next window is read at the same time; both take at most
/// `memory` bytes.
pub(crate) fn for_each_window<T: Compute>(
    data: &dyn DataSource<T>,
    groups: &Groups,
    memory: u64,
    reads: &dyn Fn(usize) -> bool,
    cx: &Executor,
    mut visit: impl FnMut(&dyn DataSource<T>, &Groups) -> Result<()>,
) -> Result<()> {
    let scarce = data.scarce_memory().filter(|_| data.most_values().is_none());
    let Some((available, n)) = scarce.zip(data.rows()) else { return visit(data, groups) };
    let (n, row) = (n as usize, row_bytes(data));
    let most = ((memory.min(available / WINDOW_SHARE) / 2) as usize / row).max(GROUPED_ROWS);
    let read: Vec<bool> = (0..groups.count()).map(reads).collect();
    let mut plan = (0..n)
        .step_by(most)
        .map(|first| {
            let rows = first as u32..n.min(first + most) as u32;
            let here = groups.within(&rows);
            let wanted: usize = (0..here.count()).filter(|&j| read[j]).map(|j| here.len(j)).sum();
            let whole = wanted * (row + SCATTERED_BYTES) > rows.len() * row;
            (whole.then_some(rows), here)
        })
        .peekable();
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mut free, mut coming) = (Vec::new(), None);
        while let Some((rows, here)) = plan.next() {
            cx.check()?;
            let Some(rows) = rows else {
                visit(data, &here)?;
                continue;
            };
            let read = |rows, parts| Window::read(data, rows, parts, &failed, cx);
            let reader: Option<thread::ScopedJoinHandle<'_, _>> = coming.take();
            let window = match reader {
                Some(reader) => joined(reader),
                None => read(rows, free.pop().unwrap_or_default()),
            }?;
            if let Some((Some(next), _)) = plan.peek() {
                let (next, parts) = (next.clone(), free.pop().unwrap_or_default());
                // The system may have no more threads.
                coming = thread::Builder::new().spawn_scoped(scope, move || read(next, parts)).ok();
            }
            visit(&window, &here).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            free.push(window.parts);
        }
        Ok(())
    })
}

/// What a thread returned.
fn joined<R>(thread: thread::ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A source of which some consecutive rows are in memory: single rows come from there.
struct Window<'a, T: Float> {
    source: &'a dyn DataSource<T>,
    first: u64,
    /// The values of [`GROUPED_ROWS`] rows each.
    parts: Vec<Vec<T>>,
}

impl<'a, T: Compute> Window<'a, T> {
    /// Copies `rows` to memory, in place of the `parts` of an earlier window, unless `failed` is set. Two threads read:
    /// one converts values while the other waits for the disk.
    fn read(
        source: &'a dyn DataSource<T>,
        rows: Range<u32>,
        mut parts: Vec<Vec<T>>,
        failed: &AtomicBool,
        cx: &Executor,
    ) -> Result<Self> {
        let numbers: Vec<u64> = (rows.start.into()..rows.end.into()).collect();
        parts.resize_with(numbers.len().div_ceil(GROUPED_ROWS), Vec::new);
        let left = Mutex::new(parts.iter_mut().zip(numbers.chunks(GROUPED_ROWS)));
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let read = || -> Result<()> {
            while let Some((part, numbers)) = next().filter(|_| !failed.load(Ordering::Relaxed)) {
                cx.check()?;
                part.clear();
                gather(source, numbers, part)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            // The system may have no more threads.
            let other = thread::Builder::new().spawn_scoped(scope, read);
            read().and(other.map_or(Ok(()), joined))
        })?;
        Ok(Self { source, first: rows.start.into(), parts })
    }
}

impl<T: Float> DataSource<T> for Window<'_, T> {
    forward!(|this| this.source => dim rows access weights always_finite origin first_row for_each_block);

    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let dim = self.source.dim();
        for &row in rows {
            let place = row.checked_sub(self.first).ok_or_else(|| no_such_row(row))? as usize;
            let (part, at) = (self.parts.get(place / GROUPED_ROWS), place % GROUPED_ROWS * dim);
            let values = part.and_then(|part| part.get(at..at + dim)).ok_or_else(|| no_such_row(row))?;
            out.extend_from_slice(values);
        }
        Ok(())
    }
}
