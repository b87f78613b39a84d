//! Reads the rows of a block, a tile at a time.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, Rows, SparseRef};

/// Reads rows of one block; many threads call it at the same time.
///
/// An error ends the pass. If several tiles fail, the pass reports the first in row order, for any number of threads.
///
/// ```
/// use shoal::data::{RawRows, TileReader};
/// let rows = RawRows::new(&[1u8, 2, 3, 4], 2)?;
/// let mut scratch = Vec::<f32>::new();
/// assert_eq!(rows.tile(1..2, &mut scratch)?.row(0), [3.0, 4.0]);
/// # Ok::<(), shoal::Error>(())
/// ```
pub trait TileReader<T: Float>: Sync {
    /// The rows `rows` of the block: in place where they are stored as `T`, else converted into `scratch`.
    ///
    /// # Errors
    /// Those of reading.
    ///
    /// # Panics
    /// When the range does not lie within the block.
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>>;

    /// As [`TileReader::tile`], for a caller that uses only the rows `picked`, counted from the first of
    /// `rows`. The values of the other rows are undefined. Implement it where rows are converted or
    /// collected; the default reads all of `rows`.
    ///
    /// ```
    /// use shoal::data::{RawRows, TileReader};
    /// let rows = RawRows::new(&[1u8, 2, 3, 4], 1)?;
    /// let mut scratch = Vec::<f32>::new();
    /// assert_eq!(rows.tile_of(1..4, &[2], &mut scratch)?.row(2), [4.0]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading.
    ///
    /// # Panics
    /// When the range does not lie within the block, or a picked row does not lie within the range.
    fn tile_of<'s>(
        &'s self,
        rows: Range<usize>,
        picked: &[u32],
        scratch: &'s mut Vec<T>,
    ) -> Result<MatRef<'s, T>> {
        let _ = picked;
        self.tile(rows, scratch)
    }

    /// As [`TileReader::tile`], but always copied to `scratch`, row after row, for a caller that changes the
    /// values. Implement it where rows are converted or collected; the default copies the tile.
    ///
    /// ```
    /// use shoal::data::{RawRows, TileReader};
    /// let rows = RawRows::new(&[1.0f32, 2.0, 3.0], 1)?;
    /// let mut scratch = Vec::new();
    /// let values: &mut [f32] = rows.copy_tile(1..3, &mut scratch)?;
    /// values[0] = 5.0;
    /// assert_eq!(values, [5.0, 3.0]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading.
    ///
    /// # Panics
    /// As [`TileReader::tile`].
    fn copy_tile<'s>(&self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<&'s mut [T]> {
        let mut converted = Vec::new();
        let tile = self.tile(rows, &mut converted)?;
        scratch.clear();
        tile.iter().for_each(|row| scratch.extend_from_slice(row));
        Ok(scratch)
    }

    /// The rows `rows` of the block as they are stored, if they are bytes (`u8`) side by side. The default, `None`,
    /// is right for every reader: the caller then calls [`TileReader::tile`].
    ///
    /// ```
    /// use shoal::data::{RawRows, TileReader};
    /// let rows = RawRows::new(&[1u8, 2, 3, 4], 2)?;
    /// let bytes = TileReader::<f32>::bytes(&rows, 1..2)?.expect("bytes side by side");
    /// assert_eq!(bytes.row(0), [3, 4]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading.
    ///
    /// # Panics
    /// As [`TileReader::tile`].
    fn bytes(&self, rows: Range<usize>) -> Result<Option<MatRef<'_, u8>>> {
        let _ = rows;
        Ok(None)
    }

    /// The rows `rows` of the block as sparse rows, in place or in `scratch`; `None` if the reader has dense
    /// rows. With `picked`, the other rows are undefined, as for [`TileReader::tile_of`].
    ///
    /// A source of sparse rows also implements [`DataSource::most_values`](super::DataSource::most_values),
    /// and returns sparse rows for every tile. Its [`TileReader::tile`] fills in the zeros and is called for
    /// single rows.
    ///
    /// # Errors
    /// Those of reading.
    ///
    /// # Panics
    /// As [`TileReader::tile_of`].
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Result<Option<SparseRef<'s, T>>> {
        let _ = (rows, picked, scratch);
        Ok(None)
    }
}

/// The error for a tile of `found` rows instead of `expected`.
pub(crate) fn wrong_tile(found: usize, expected: usize) -> Error {
    Error::Source(format!("the source gave {found} rows of a tile of {expected} rows"))
}

/// Buffers that a worker reads rows into, dense and sparse.
#[derive(Debug, Default)]
pub(crate) struct Converted<T> {
    dense: Vec<T>,
    sparse: RowBuf<T>,
}

impl<T: Float> Converted<T> {
    /// The rows `rows`, dense or sparse as in the reader. If `picked` is given, only those rows are defined: see
    /// [`TileReader::tile_of`].
    ///
    /// # Errors
    /// Those of the reader; [`Error::Source`] when it gives another number of rows.
    pub(crate) fn read<'s>(
        &'s mut self,
        reader: &'s dyn TileReader<T>,
        rows: Range<usize>,
        picked: Option<&[u32]>,
    ) -> Result<Rows<'s, T>> {
        let n = rows.len();
        let found: Rows<'s, T> = if let Some(rows) = reader.sparse(rows.clone(), picked, &mut self.sparse)? {
            rows.into()
        } else {
            match picked {
                None => reader.tile(rows, &mut self.dense)?.into(),
                Some(picked) => reader.tile_of(rows, picked, &mut self.dense)?.into(),
            }
        };
        if found.rows() == n { Ok(found) } else { Err(wrong_tile(found.rows(), n)) }
    }
}
