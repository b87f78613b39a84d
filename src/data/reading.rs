//! Reads rows from any source, and checks that it gives what it announced.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use super::{Access, Block, DataSource, TileReader};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::make_room;
use crate::rows::RowBuf;

/// A function that is called with every block of a pass.
pub(crate) type Visit<'a, T> = dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>> + 'a;

/// Makes one pass over all rows: see [`DataSource::for_each_block`].
///
/// # Errors
/// Those of the source and of `f`; [`Error::Source`] when the number of rows is not the announced one, when a
/// block does not begin where the last one ended, and when a block has not one weight per row.
pub(crate) fn read<T: Float, S: DataSource<T> + ?Sized>(
    source: &S,
    tile_rows: usize,
    f: &mut Visit<'_, T>,
) -> Result<()> {
    let first = source.first_row();
    let mut count = Count::new(first, source.rows().map(|n| first + n));
    let read = source.for_each_block(tile_rows, &mut |block| count.pass_on(block, f));
    read.map_err(|error| with_origin(error, source))?;
    count.end()
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
    let mut count = Count::new(row, source.rows());
    let read = source.for_each_block_from(row, tile_rows, &mut |block| count.pass_on(block, f));
    read.map_err(|error| with_origin(error, source))?;
    count.end()
}

/// The same error, with the file of a value that is not finite, or the stored value that is.
fn with_origin<T: Float, S: DataSource<T> + ?Sized>(mut error: Error, source: &S) -> Error {
    if let Error::NotFinite { what: "rows", value, row, column, file: file @ None } = &mut error {
        let origin = source.origin(*row, *column);
        *file = origin.file;
        if let Some(stored) = origin.stored.filter(|stored| stored.is_finite()) {
            *value = format!("{stored:e} (infinite in float32, to which the rows are converted)");
        }
    }
    error
}

/// The rows of a pass so far.
struct Count {
    seen: u64,
    announced: Option<u64>,
    /// Whether the pass was ended before its last row.
    ended: bool,
}

impl Count {
    fn new(first: u64, announced: Option<u64>) -> Self {
        Self { seen: first, announced, ended: false }
    }

    /// Counts the rows of a block, and calls `f` with it.
    fn pass_on<T: Float>(&mut self, block: Block<'_, T>, f: &mut Visit<'_, T>) -> Result<ControlFlow<()>> {
        self.add(&block)?;
        let next = f(block)?;
        self.ended = next.is_break();
        Ok(next)
    }

    /// Counts the rows of a block.
    fn add<T: Float>(&mut self, block: &Block<'_, T>) -> Result<()> {
        if block.first_row != self.seen {
            return Err(Error::Source(format!(
                "the source gave a block that begins with row {}, and {} rows before it",
                block.first_row, self.seen
            )));
        }
        weights_of_rows(block, 0..block.len)?;
        self.seen += block.len as u64;
        match self.announced {
            Some(n) if self.seen > n => Err(self.refused(n)),
            _ => Ok(()),
        }
    }

    /// Returns an error if rows are missing.
    fn end(self) -> Result<()> {
        match self.announced {
            Some(n) if !self.ended && self.seen != n => Err(self.refused(n)),
            _ => Ok(()),
        }
    }

    fn refused(&self, n: u64) -> Error {
        let found = if self.seen > n { format!("more than {n}") } else { self.seen.to_string() };
        Error::Source(format!("the source gave {found} rows in one pass, but announced {n}"))
    }
}

/// The weights of some rows of a block.
///
/// # Errors
/// [`Error::Source`] when the block has not one weight per row.
pub(super) fn weights_of_rows<'b, T: Float>(
    block: &Block<'b, T>,
    rows: Range<usize>,
) -> Result<Option<&'b [f64]>> {
    match block.weights {
        Some(weights) if weights.len() != block.len => Err(Error::Source(format!(
            "the source gave {} weights for a block of {} rows",
            weights.len(),
            block.len
        ))),
        weights => Ok(weights.map(|weights| &weights[rows])),
    }
}

/// Appends single rows to `out`: see [`DataSource::gather`].
///
/// # Errors
/// Those of the source; [`Error::Source`] if it gives another number of rows than requested.
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

/// As [`gather`], but keeps sparse rows sparse: see [`DataSource::copy`].
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
    Err(Error::Source(format!("the source gave {found} rows instead of the requested {}", rows.len())))
}

/// Appends single rows to `out` in one pass, which ends after the last requested row.
///
/// # Errors
/// Those of reading, [`Error::Shape`] for a row that does not exist; `out` is then unchanged.
pub(super) fn gather_in_pass<T: Float, S: DataSource<T> + ?Sized>(
    source: &S,
    rows: &[u64],
    out: &mut Vec<T>,
) -> Result<()> {
    let d = source.dim();
    let mut values = Vec::new();
    make_room(&mut values, "copied rows", rows.len() as u64, d)?;
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| rows[i]);
    values.resize(rows.len() * d, T::ZERO);
    let mut wanted = order.into_iter().peekable();
    let mut scratch = Vec::new();
    read(source, 1, &mut |block| {
        while let Some(&i) = wanted.peek() {
            let Some(at) = rows[i].checked_sub(block.first_row).filter(|&at| at < block.len as u64) else {
                break;
            };
            values[i * d..(i + 1) * d].copy_from_slice(single_row(block.rows, at as usize, d, &mut scratch)?);
            wanted.next();
        }
        Ok(if wanted.peek().is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    if let Some(i) = wanted.next() {
        return Err(no_such_row(rows[i]));
    }
    if out.is_empty() {
        *out = values;
    } else {
        out.extend_from_slice(&values);
    }
    Ok(())
}

/// The given rows of a source that can be read again: one gather, or one pass in ascending order.
///
/// # Errors
/// [`Error::Source`] for a source that was read already and can be read only once, [`Error::Shape`] for a row
/// that does not exist.
pub(crate) fn take<T: Float>(source: &dyn DataSource<T>, rows: &[u64]) -> Result<Vec<T>> {
    let mut out = Vec::new();
    if source.access() == Access::Random {
        make_room(&mut out, "copied rows", rows.len() as u64, source.dim())?;
        gather(source, rows, &mut out)?;
    } else {
        gather_in_pass(source, rows, &mut out)?;
    }
    Ok(out)
}

/// As [`take`], but keeps sparse rows sparse.
///
/// # Errors
/// As [`take`].
pub(crate) fn copy<T: Float>(source: &dyn DataSource<T>, rows: &[u64]) -> Result<RowBuf<T>> {
    if source.most_values().is_none() || source.access() < Access::Random {
        return Ok(RowBuf::of_values(take(source, rows)?, source.dim()));
    }
    let mut out = RowBuf::sparse(source.dim());
    copy_to(source, rows, &mut out)?;
    Ok(out)
}

/// One row of a block.
///
/// # Errors
/// Those of reading; [`Error::Source`] when the reader gives another number of rows or columns.
pub(super) fn single_row<'s, T: Float>(
    reader: &'s dyn TileReader<T>,
    row: usize,
    dim: usize,
    scratch: &'s mut Vec<T>,
) -> Result<&'s [T]> {
    let tile = reader.tile(row..row + 1, scratch)?;
    let (rows, cols) = (tile.rows(), tile.cols());
    if rows != 1 || cols != dim {
        let problem = format!("{rows} rows of {cols} columns in place of one of {dim}");
        return Err(Error::Source(format!("the source gave {problem}")));
    }
    Ok(tile.row(0))
}

/// Upper limit of the values per row in computations: all values of a dense row, the stored values of the
/// longest sparse row.
pub(crate) fn row_values<T: Float>(source: &dyn DataSource<T>) -> usize {
    source.most_values().map_or(source.dim(), |most| most.max(1))
}

/// Bytes of a copied row; of the longest row, if rows are sparse.
pub(crate) fn row_bytes<T: Float>(source: &dyn DataSource<T>) -> usize {
    let columns = if source.most_values().is_some() { size_of::<i32>() } else { 0 };
    row_values(source) * (size_of::<T>() + columns)
}

/// Checks that rows exist in a source of `n` rows.
///
/// # Errors
/// [`Error::Shape`] with the first row number beyond the end.
pub(super) fn check_rows(rows: &[u64], n: u64) -> Result<()> {
    rows.iter().find(|&&row| row >= n).map_or(Ok(()), |&beyond| Err(no_such_row(beyond)))
}

/// The error for a row number beyond the end.
pub(crate) fn no_such_row(row: u64) -> Error {
    Error::Shape(format!("row {row} does not exist"))
}

/// The weights of all rows, from the source if it knows them, else from a pass over the stream.
pub(crate) fn weights_of<T: Float>(source: &dyn DataSource<T>) -> Result<Option<Cow<'_, [f64]>>> {
    if source.weights().is_some() || source.access() == Access::Random {
        return Ok(source.weights().map(Cow::Borrowed));
    }
    let mut all = Vec::new();
    read(source, 1, &mut |block| match block.weights {
        Some(weights) => {
            all.extend_from_slice(weights);
            Ok(ControlFlow::Continue(()))
        }
        None => Ok(ControlFlow::Break(())),
    })?;
    Ok(if all.is_empty() { None } else { Some(Cow::Owned(all)) })
}

/// Number of rows of a source; counted in a pass if the source does not know it.
pub(crate) fn count_rows<T: Float>(source: &dyn DataSource<T>) -> Result<u64> {
    if let Some(n) = source.rows() {
        return Ok(n);
    }
    let mut n = 0;
    read(source, 1, &mut |block| {
        n += block.len as u64;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(n)
}
