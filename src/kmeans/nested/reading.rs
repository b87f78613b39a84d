//! How the batch of nested mini-batch k-means is read.

use crate::data::{DataSource, RowRange, Subset};
use crate::error::{Error, Result};
use crate::kernel::Compute;

/// Calls `f` with the batch as a source.
pub(super) fn with_batch<T: Compute, R>(
    data: &dyn DataSource<T>,
    rows: &[u64],
    batch: usize,
    f: impl FnOnce(&dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    if !rows.is_empty() {
        return f(&Subset::new(data, rows)).map_err(|e| named(e, rows));
    }
    if data.rows() == Some(batch as u64) { f(data) } else { f(&RowRange::new::<T>(data, 0..batch as u64)?) }
}

/// Translates a row number in an error from the batch to the source.
fn named(error: Error, rows: &[u64]) -> Error {
    match error {
        Error::NotFinite { what, value, row, column } => {
            Error::NotFinite { what, value, row: rows.get(row as usize).copied().unwrap_or(row), column }
        }
        other => other,
    }
}
