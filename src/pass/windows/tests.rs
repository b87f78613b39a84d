//! Windows of a source that counts what is read.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::data::{AnySource, Dense, Source};
use crate::error::Error;

/// Rows of a file that is larger than `memory`.
pub(crate) struct Large<'a, T: Float> {
    rows: &'a dyn DataSource<T>,
    memory: u64,
    /// Runs of consecutive rows that were read.
    runs: AtomicUsize,
    /// A row that cannot be read.
    damaged: Option<u64>,
}

impl<'a, T: Float> Large<'a, T> {
    pub(crate) fn new(rows: &'a dyn DataSource<T>, memory: u64) -> Self {
        Self { rows, memory, runs: AtomicUsize::new(0), damaged: None }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

impl<T: Float> DataSource<T> for Large<'_, T> {
    forward!(|this| this.rows => dim rows access weights for_each_block);

    fn scarce_memory(&self) -> Option<u64> {
        Some(self.memory)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        if let Some(row) = self.damaged.filter(|row| rows.contains(row)) {
            return Err(Error::Source(format!("row {row} is damaged")));
        }
        self.runs.fetch_add(rows.chunk_by(|&a, &b| b == a + 1).count(), Ordering::Relaxed);
        self.rows.gather(rows, out)
    }
}

impl<T: Float> Source for Large<'_, T> {
    fn any(&self) -> AnySource<'_> {
        AnySource::of::<T>(self)
    }
}

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
            let same = rows.iter().zip(values.chunks(40)).all(|(&row, values)| values == [row as f32; 40]);
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
    let labels: Vec<u32> = (0..n).map(|i| if i % 1000 == 7 { 2 } else { (i * i % 7 % 2) as u32 }).collect();
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
