//! How the batch of nested mini-batch k-means is read.

use super::members::Members;
use crate::data::{DataSource, MarkedRows, RowRange, Subset};
use crate::error::{Error, Result};
use crate::kernel::Compute;

/// Calls `f` with the batch as a source.
pub(super) fn with_batch<T: Compute, R>(
    data: &dyn DataSource<T>,
    rows: &Members,
    batch: usize,
    f: impl FnOnce(&dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    match rows {
        Members::Listed(list) => f(&Subset::new(data, list)).map_err(|e| named(e, rows)),
        Members::Marked(marks) => f(&MarkedRows::new(data, marks)).map_err(|e| named(e, rows)),
        Members::First if data.rows() == Some(batch as u64) => f(data),
        Members::First => f(&RowRange::new::<T>(data, 0..batch as u64)?),
    }
}

/// Translates a row number in an error from the batch to the source.
fn named(error: Error, rows: &Members) -> Error {
    error.renumbered(|row| rows.row(row as usize))
}
