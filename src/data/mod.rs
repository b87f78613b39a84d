//! Where rows come from.
//!
//! A [`DataSource`] hands out rows in *blocks*; workers cut a block into *tiles* and read one tile at a time,
//! which is when the stored type becomes the compute type. In-memory and memory-mapped sources are one block
//! that reads without copying; streams are many blocks. A source knows nothing of solvers, and a solver says
//! at its start which [`Access`] it needs.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::{MatRef, make_room};
use crate::rows::{RowBuf, Rows, SparseRef};

mod adapters;
mod any;
pub mod bin;
mod chunks;
mod csr;
mod dtype;
mod failure;
mod fingerprint;
mod finite;
mod memory;
pub mod npy;
pub(crate) mod pass;
pub mod raw;
mod reading;
mod reblock;
mod shuffler;
mod stretch;
mod subset;
pub mod vecs;

pub(crate) use adapters::{Counted, no_weight, normalize_rows, too_heavy, too_light};
pub use adapters::{Normalized, Permuted, RowIndex, RowRange, Weighted};
pub use any::{AnySource, Own, Source};
pub use chunks::{Chunk, Chunks};
pub use csr::{Csr, Index};
pub use dtype::Dtype;
pub(crate) use fingerprint::fingerprint;
#[cfg(feature = "python")]
pub(crate) use fingerprint::fingerprint_of_batch;
pub use finite::check_finite;
pub use memory::Dense;
pub use raw::{Mapped, RawRows};
pub(crate) use reading::{Visit, copy_to, gather, read, read_from};
use reblock::Reblock;
pub use shuffler::Shuffler;
pub(crate) use stretch::Stretch;
pub(crate) use subset::Subset;

/// How a source can be read; each level includes the ones before it.
///
/// ```
/// use shoal::data::Access;
/// assert!(Access::Once < Access::Replay && Access::Replay < Access::Random);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// One pass, in order; gone afterwards.
    Once,
    /// Any number of passes, in order.
    Replay,
    /// Any row at any time.
    Random,
}

/// Reads rows of one block; called by many workers at a time.
pub trait TileReader<T: Float>: Sync {
    /// The rows of `rows`, in place where they lie as `T`, else converted into `scratch`.
    ///
    /// # Panics
    /// When the range does not lie within the block.
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> MatRef<'s, T>;

    /// As [`TileReader::tile`], for a caller that only looks at the rows `picked`, which are counted from the first of `rows`: what stands
    /// in place of the others is undefined. Worth implementing where rows are converted or collected.
    ///
    /// ```
    /// use shoal::data::{RawRows, TileReader};
    /// let rows = RawRows::new(&[1u8, 2, 3, 4], 1).unwrap();
    /// let mut scratch = Vec::<f32>::new();
    /// assert_eq!(rows.tile_of(1..4, &[2], &mut scratch).row(2), [4.0]);
    /// ```
    ///
    /// # Panics
    /// When the range does not lie within the block, or a row not within the range.
    fn tile_of<'s>(&'s self, rows: Range<usize>, picked: &[u32], scratch: &'s mut Vec<T>) -> MatRef<'s, T> {
        let _ = picked;
        self.tile(rows, scratch)
    }

    /// The rows of `rows` as sparse ones, in place or put together in `scratch`; `None` from a reader of dense rows. With `picked`, what stands in
    /// place of the others is undefined, as for [`TileReader::tile_of`].
    ///
    /// Whoever has sparse rows says so by [`DataSource::most_values`] and in every tile. Its [`TileReader::tile`] fills in the zeros: that is for
    /// single rows.
    ///
    /// # Panics
    /// As [`TileReader::tile_of`].
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Option<SparseRef<'s, T>> {
        let _ = (rows, picked, scratch);
        None
    }
}

/// What a worker reads rows into: dense ones, or sparse ones.
#[derive(Debug, Default)]
pub(crate) struct Converted<T> {
    dense: Vec<T>,
    sparse: RowBuf<T>,
}

impl<T: Float> Converted<T> {
    /// The rows of `rows` as they are, or those of them that are `picked`: see [`TileReader::tile_of`].
    ///
    /// # Errors
    /// [`Error::Source`] when the reader gives another number of rows.
    pub(crate) fn read<'s>(
        &'s mut self,
        reader: &'s dyn TileReader<T>,
        rows: Range<usize>,
        picked: Option<&[u32]>,
    ) -> Result<Rows<'s, T>> {
        let n = rows.len();
        let found: Rows<'s, T> = if let Some(rows) = reader.sparse(rows.clone(), picked, &mut self.sparse) {
            rows.into()
        } else {
            match picked {
                None => reader.tile(rows, &mut self.dense).into(),
                Some(picked) => reader.tile_of(rows, picked, &mut self.dense).into(),
            }
        };
        if found.rows() == n {
            return Ok(found);
        }
        Err(Error::Source(format!("the source gave {} rows of a tile of {n} rows", found.rows())))
    }
}

/// Consecutive rows of a source.
#[derive(Clone, Copy)]
pub struct Block<'a, T: Float> {
    /// Global index of the block's first row.
    pub first_row: u64,
    /// Number of rows.
    pub len: usize,
    /// Reads them.
    pub rows: &'a dyn TileReader<T>,
    /// One weight a row, if the source has weights.
    pub weights: Option<&'a [f64]>,
}

/// Rows from a file, an array, a stream: the contract between data and everything above it.
///
/// See `examples/custom_source.rs` for an implementation.
///
/// ```
/// use shoal::data::{DataSource, Dense};
/// let source = Dense::new(&[1.0f32, 2.0, 3.0, 4.0], 2).unwrap();
/// assert_eq!((DataSource::<f32>::dim(&source), DataSource::<f32>::rows(&source)), (2, Some(2)));
/// ```
pub trait DataSource<T: Float>: Sync {
    /// Columns of a row; at least 1.
    fn dim(&self) -> usize;

    /// Number of rows; `None` when only a pass can tell. A pass that yields a different number of rows raises an error in the consumer.
    fn rows(&self) -> Option<u64>;

    /// How the source can be read.
    fn access(&self) -> Access;

    /// The weights of all rows, where the source has weights and knows them.
    fn weights(&self) -> Option<&[f64]> {
        None
    }

    /// Whether no value can be NaN or infinite, because integers are stored; [`check_finite`] then has
    /// nothing to do.
    fn always_finite(&self) -> bool {
        false
    }

    /// The most values that a row stores, where rows are sparse; `None` where they are dense.
    fn most_values(&self) -> Option<usize> {
        None
    }

    /// One pass over all rows in order. Every block but the last has a multiple of `tile_rows` rows; `f` may
    /// end the pass early.
    ///
    /// # Errors
    /// Those of reading, and those of `f`.
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()>;

    /// As [`for_each_block`](DataSource::for_each_block), from row `row` on: tiles count from there. What was handed out before need not be
    /// read again where the last pass of this kind was left by [`ControlFlow::Break`] at that row, or within its last block; so a pass can be
    /// made in steps, also over rows that can be read once.
    ///
    /// # Errors
    /// As [`for_each_block`](DataSource::for_each_block); [`Error::Source`] for a row that went by and cannot be read again.
    fn for_each_block_from(
        &self,
        row: u64,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut blocks = Reblock::new(self.dim(), tile_rows, 1, f).starting_at(row);
        let mut ended = false;
        self.for_each_block(tile_rows, &mut |block| {
            let skipped = usize::try_from(row.saturating_sub(block.first_row)).unwrap_or(usize::MAX);
            if skipped < block.len {
                let weights = block.weights.map(|weights| &weights[skipped..]);
                ended = blocks.push(block.rows, skipped..block.len, weights, false)?.is_break();
            }
            Ok(if ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if ended { Ok(()) } else { blocks.finish() }
    }

    /// Appends the given rows to `out`, in the order given. Only sources with [`Access::Random`] can.
    ///
    /// # Errors
    /// [`Error::Source`] from a source that cannot, [`Error::Shape`] for a row that is not there.
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()>;

    /// As [`DataSource::gather`], sparse rows as they are.
    ///
    /// # Errors
    /// As [`DataSource::gather`].
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        let mut values = Vec::new();
        gather(self, rows, &mut values)?;
        out.extend(MatRef::new(&values, self.dim()).into());
        Ok(())
    }
}

impl<T: Float, S: DataSource<T> + ?Sized> DataSource<T> for &S {
    fn dim(&self) -> usize {
        (**self).dim()
    }
    fn rows(&self) -> Option<u64> {
        (**self).rows()
    }
    fn access(&self) -> Access {
        (**self).access()
    }
    fn weights(&self) -> Option<&[f64]> {
        (**self).weights()
    }
    fn always_finite(&self) -> bool {
        (**self).always_finite()
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        (**self).for_each_block(tile_rows, f)
    }
    fn most_values(&self) -> Option<usize> {
        (**self).most_values()
    }
    fn for_each_block_from(
        &self,
        row: u64,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        (**self).for_each_block_from(row, tile_rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        (**self).gather(rows, out)
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        (**self).copy(rows, out)
    }
}

/// The given rows of any source that can be read more than once: one gather, or one pass in ascending order.
///
/// # Errors
/// [`Error::Source`] for a source that can be read only once, [`Error::Shape`] for a row that is not there.
pub(crate) fn take<T: Float>(source: &dyn DataSource<T>, rows: &[u64]) -> Result<Vec<T>> {
    let d = source.dim();
    let mut out = Vec::new();
    make_room(&mut out, "copied rows", rows.len() as u64, d)?;
    if source.access() == Access::Random {
        gather(source, rows, &mut out)?;
        return Ok(out);
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| rows[i]);
    out.resize(rows.len() * d, T::ZERO);
    let mut wanted = order.into_iter().peekable();
    let mut scratch = Vec::new();
    read(source, 1, &mut |block| {
        while let Some(&i) = wanted.peek() {
            let Some(at) = rows[i].checked_sub(block.first_row).filter(|&at| at < block.len as u64) else {
                break;
            };
            out[i * d..(i + 1) * d].copy_from_slice(single_row(block.rows, at as usize, d, &mut scratch)?);
            wanted.next();
        }
        Ok(if wanted.peek().is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    match wanted.next() {
        Some(i) => Err(no_such_row(rows[i])),
        None => Ok(out),
    }
}

/// One row of a block.
///
/// # Errors
/// [`Error::Source`] when the reader gives another number of rows or columns.
fn single_row<'s, T: Float>(
    reader: &'s dyn TileReader<T>,
    row: usize,
    dim: usize,
    scratch: &'s mut Vec<T>,
) -> Result<&'s [T]> {
    let tile = reader.tile(row..row + 1, scratch);
    let (rows, cols) = (tile.rows(), tile.cols());
    if rows != 1 || cols != dim {
        let problem = format!("{rows} rows of {cols} columns in place of one of {dim}");
        return Err(Error::Source(format!("the source gave {problem}")));
    }
    Ok(tile.row(0))
}

/// Values that a row has to be worked on: those that the longest one stores, where rows are sparse.
pub(crate) fn row_values<T: Float>(source: &dyn DataSource<T>) -> usize {
    source.most_values().map_or(source.dim(), |most| most.max(1))
}

/// Bytes of a copied row, the longest one where rows are sparse.
pub(crate) fn row_bytes<T: Float>(source: &dyn DataSource<T>) -> usize {
    let columns = if source.most_values().is_some() { size_of::<i32>() } else { 0 };
    row_values(source) * (size_of::<T>() + columns)
}

/// As [`take`], sparse rows as they are.
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

/// The refusal of a row index beyond the end.
pub(crate) fn no_such_row(row: u64) -> Error {
    Error::Shape(format!("row {row} is not there"))
}

/// The weights of all rows: those that the source knows, or those that a pass over a stream finds.
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

/// Number of rows of a source; counted in a pass where it is not known.
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
