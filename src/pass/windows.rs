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

/// Rows of a file that is larger than `memory`, for tests.
#[cfg(test)]
pub(crate) struct Large<'a, T: Float> {
    rows: &'a dyn DataSource<T>,
    memory: u64,
    /// Runs of consecutive rows that were read.
    runs: std::sync::atomic::AtomicUsize,
    /// A row that cannot be read.
    damaged: Option<u64>,
}

#[cfg(test)]
impl<'a, T: Float> Large<'a, T> {
    pub(crate) fn new(rows: &'a dyn DataSource<T>, memory: u64) -> Self {
        Self { rows, memory, runs: std::sync::atomic::AtomicUsize::new(0), damaged: None }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
impl<T: Float> DataSource<T> for Large<'_, T> {
    forward!(|this| this.rows => dim rows access weights for_each_block);

    fn scarce_memory(&self) -> Option<u64> {
        Some(self.memory)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        if let Some(row) = self.damaged.filter(|row| rows.contains(row)) {
            return Err(crate::error::Error::Source(format!("row {row} is damaged")));
        }
        self.runs.fetch_add(rows.chunk_by(|&a, &b| b == a + 1).count(), Ordering::Relaxed);
        self.rows.gather(rows, out)
    }
}

#[cfg(test)]
impl<T: Float> crate::data::Source for Large<'_, T> {
    fn any(&self) -> crate::data::AnySource<'_> {
        crate::data::AnySource::of::<T>(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::error::Error;

    /// Rows of 40 columns whose values are their numbers.
    fn counted(n: usize) -> Vec<f32> {
        (0..40 * n).map(|i| (i / 40) as f32).collect()
    }

    /// Reads the rows of the groups for which `reads` returns true, and returns how many windows there were.
    fn visited(
        data: &Large<'_, f32>,
        groups: &Groups,
        memory: u64,
        reads: &dyn Fn(usize) -> bool,
    ) -> Result<usize> {
        let (mut windows, mut seen) = (0, vec![Vec::new(); groups.count()]);
        let cx = Executor::new(Some(2))?;
        for_each_window(data, groups, memory, reads, &cx, |data, here| {
            windows += 1;
            for (j, seen) in seen.iter_mut().enumerate().filter(|(j, _)| reads(*j)) {
                let (rows, mut values) = (here.of(j), Vec::new());
                gather(data, &rows.iter().map(|&row| row.into()).collect::<Vec<_>>(), &mut values)?;
                let same =
                    rows.iter().zip(values.chunks(40)).all(|(&row, values)| values == [row as f32; 40]);
                assert!(same, "group {j}");
                seen.extend_from_slice(rows);
            }
            Ok(())
        })?;
        (0..groups.count()).filter(|&j| reads(j)).for_each(|j| assert_eq!(seen[j], groups.of(j)));
        Ok(windows)
    }

    #[test]
    fn windows_have_all_rows_in_order_and_few_rows_are_read_alone() {
        let n = 9000;
        let values = counted(n);
        let dense = Dense::new(&values, 40).unwrap();
        // Group 2 has one row in a thousand.
        let labels: Vec<u32> =
            (0..n).map(|i| if i % 1000 == 7 { 2 } else { (i * i % 7 % 2) as u32 }).collect();
        let groups = Groups::new(&labels, 4);
        // A reader takes 2,048 rows at a time.
        for (memory, windows, runs) in [(1, 5, 5), (40 * 4 * 2 * 3000, 3, 6), (u64::MAX, 1, 5)] {
            let data = Large::new(&dense, u64::MAX);
            assert_eq!(visited(&data, &groups, memory, &|_| true).unwrap(), windows);
            assert_eq!(data.runs(), runs);
            let data = Large::new(&dense, 3);
            assert_eq!(visited(&data, &groups, memory, &|j| j == 0).unwrap(), 5);
            // Two or three rows per window, and none of the others.
            let data = Large::new(&dense, u64::MAX);
            assert_eq!(visited(&data, &groups, memory, &|j| j >= 2).unwrap(), windows);
            assert_eq!(data.runs(), 9);
        }
        let alone = groups.only(&(1..3));
        assert_eq!((alone.of(0), alone.of(1), alone.of(2)), (&[][..], groups.of(1), groups.of(2)));
        assert_eq!(visited(&Large::new(&dense, u64::MAX), &alone, 1, &|j| j > 0).unwrap(), 5);
    }

    #[test]
    fn errors_of_readers_and_of_visits_end_the_pass() {
        let values = counted(9000);
        let dense = Dense::new(&values, 40).unwrap();
        let groups = Groups::new(&vec![0; 9000], 1);
        for row in [0, 2047, 2048, 8999] {
            let data = Large { damaged: Some(row), ..Large::new(&dense, 3) };
            let error = visited(&data, &groups, 1, &|_| true).unwrap_err();
            assert_eq!(error.to_string(), format!("row {row} is damaged"));
        }
        let (data, cx, mut visits) = (Large::new(&dense, 3), Executor::new(Some(1)).unwrap(), 0);
        let failed = for_each_window(&data, &groups, 1, &|_| true, &cx, |_, _| {
            visits += 1;
            Err(Error::Source("no more".into()))
        });
        assert_eq!((failed.unwrap_err().to_string(), visits), ("no more".into(), 1));
        cx.interrupt().set();
        assert!(matches!(visited(&data, &groups, 1, &|_| true), Ok(5)));
        let stopped = for_each_window(&data, &groups, 1, &|_| true, &cx, |_, _| Ok(()));
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}
