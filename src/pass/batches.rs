//! Passes over a source in batches of consecutive rows, which can stop early and resume at any row.

use std::ops::ControlFlow;

use crate::data::{Converted, DataSource, Weighted, read_from};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::parallel::Executor;

/// How a pass ended.
pub(crate) struct Left {
    /// `take` returned `true`: it needs no more batches.
    pub(crate) enough: bool,
    /// No rows are left.
    pub(crate) over: bool,
    /// The error of the read-ahead that checks for more rows after `take` had enough. The caller reports it
    /// at its next step.
    pub(crate) failed: Option<Error>,
}

/// Resumes a pass at row `from`: hands batches of `size` consecutive rows to `take`, until `take` returns
/// `true` or the rows end.
///
/// The second argument of `take` is the number of the row after the batch.
pub(crate) fn go_on<T: Compute>(
    data: &dyn DataSource<T>,
    from: u64,
    size: usize,
    cx: &Executor,
    take: &mut dyn FnMut(&dyn DataSource<T>, u64) -> Result<bool>,
) -> Result<Left> {
    let (mut at, mut enough, mut over, mut buffer) = (from, false, true, Converted::default());
    let read = read_from(data, from, size, &mut |block| {
        for start in (0..block.len).step_by(size) {
            if enough {
                over = false;
                return Ok(ControlFlow::Break(()));
            }
            cx.check()?;
            let range = start..block.len.min(start + size);
            let rows = buffer.read(block.rows, range.clone(), None)?;
            let weights = block.weights.map(|weights| &weights[range.clone()]);
            let named = |error: Error| error.renumbered(|row| row + block.first_row + start as u64);
            let weighted = weights.map(|weights| Weighted::vouched(rows, weights));
            let batch = weighted.as_ref().map_or(&rows as &dyn DataSource<T>, |weighted| weighted);
            enough = take(batch, at + range.len() as u64).map_err(named)?;
            at += range.len() as u64;
        }
        Ok(ControlFlow::Continue(()))
    });
    let failed = match read {
        Err(error) if enough => {
            over = false;
            Some(error)
        }
        other => {
            other?;
            None
        }
    };
    Ok(Left { enough, over, failed })
}
