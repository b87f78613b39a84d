//! Reads rows from a source and checks their number for every consumer.

use std::ops::ControlFlow;

use super::{Block, DataSource};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::rows::RowBuf;

/// What is called with every block.
pub(crate) type Visit<'a, T> = dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>> + 'a;

/// One pass over all rows: see [`DataSource::for_each_block`].
///
/// # Errors
/// Those of the source and of `f`; [`Error::Source`] when another number of rows comes than the source announced, when a block does not begin
/// where the last one ended, and when it has not one weight per row.
pub(crate) fn read<T: Float, S: DataSource<T> + ?Sized>(
    source: &S,
    tile_rows: usize,
    f: &mut Visit<'_, T>,
) -> Result<()> {
    counted(source.rows(), 0, &|counting| source.for_each_block(tile_rows, counting), f)
}

/// As [`read`], from row `row` on: see [`DataSource::for_each_block_from`].
///
/// # Errors
/// As [`read`].
pub(crate) fn read_from<T: Float, S: DataSource<T> + ?Sized>(
    source: &S,
    row: u64,
    tile_rows: usize,
    f: &mut Visit<'_, T>,
) -> Result<()> {
    counted(source.rows(), row, &|counting| source.for_each_block_from(row, tile_rows, counting), f)
}

fn counted<T: Float>(
    announced: Option<u64>,
    first: u64,
    pass: &dyn Fn(&mut Visit<'_, T>) -> Result<()>,
    f: &mut Visit<'_, T>,
) -> Result<()> {
    let (mut seen, mut ended) = (first, false);
    let refused = |seen: u64, n: u64| {
        let found = if seen > n { format!("more than {n}") } else { seen.to_string() };
        Error::Source(format!("the source gave {found} rows in one pass, and announced {n}"))
    };
    pass(&mut |block| {
        if block.first_row != seen {
            let problem =
                format!("a block that begins with row {}, and {seen} rows before it", block.first_row);
            return Err(Error::Source(format!("the source gave {problem}")));
        }
        if let Some(weights) = block.weights.filter(|weights| weights.len() != block.len) {
            let problem = format!("{} weights for a block of {} rows", weights.len(), block.len);
            return Err(Error::Source(format!("the source gave {problem}")));
        }
        seen += block.len as u64;
        if let Some(n) = announced.filter(|&n| seen > n) {
            return Err(refused(seen, n));
        }
        let next = f(block)?;
        ended = next.is_break();
        Ok(next)
    })?;
    match announced {
        Some(n) if !ended && seen != n => Err(refused(seen, n)),
        _ => Ok(()),
    }
}

/// Appends single rows to `out`: see [`DataSource::gather`].
///
/// # Errors
/// Those of the source; [`Error::Source`] when it gives another number of rows than asked for.
pub(crate) fn gather<T: Float, S: DataSource<T> + ?Sized>(
    source: &S,
    rows: &[u64],
    out: &mut Vec<T>,
) -> Result<()> {
    let before = out.len();
    source.gather(rows, out)?;
    let (found, dim) = (out.len().saturating_sub(before), source.dim());
    if found == rows.len() * dim {
        return Ok(());
    }
    out.truncate(before);
    Err(Error::Source(format!("the source gave {found} values for {} rows of {dim} columns", rows.len())))
}

/// As [`gather`], sparse rows as they are: see [`DataSource::copy`].
///
/// # Errors
/// As [`gather`].
pub(crate) fn copy_to<T: Float, S: DataSource<T> + ?Sized>(
    source: &S,
    rows: &[u64],
    out: &mut RowBuf<T>,
) -> Result<()> {
    let before = out.len();
    source.copy(rows, out)?;
    let found = out.len().saturating_sub(before);
    if found == rows.len() && out.cols() == source.dim() {
        return Ok(());
    }
    out.truncate(before);
    Err(Error::Source(format!("the source gave {found} rows of the {} that it was asked for", rows.len())))
}
