//! Reads the rows of a block, a tile at a time.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, Rows, SparseRef, spread};

/// Which rows of a block a caller reads.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Wanted<'p> {
    /// The rows of the tile.
    pub(crate) rows: Range<usize>,
    /// The rows that are used, counted from the first of `rows`, each once; all if `None`. The others are undefined.
    pub(crate) picked: Option<&'p [u32]>,
}

impl<'p> Wanted<'p> {
    /// All of the rows `rows`.
    pub(crate) fn all(rows: Range<usize>) -> Self {
        Self { rows, picked: None }
    }

    /// The rows that are used, if they are so few that it pays to read them one by one.
    pub(crate) fn few(&self) -> Option<&'p [u32]> {
        self.picked.filter(|picked| 2 * picked.len() <= self.rows.len())
    }
}

/// The rows of a tile: in place, or in the buffer that [`TileReader::read`] was called with.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Tile<'s, T> {
    /// Rows in place.
    InPlace(Rows<'s, T>),
    /// Sparse rows whose starts are in the buffer, as are their values if they were converted.
    Stored {
        /// The columns of the stored values.
        columns: &'s [i32],
        /// The stored values.
        values: Option<&'s [T]>,
    },
    /// Rows in the buffer.
    Copied,
}

impl<'s, T: Float> Tile<'s, T> {
    /// The rows. `buffer` is the buffer that they were read with.
    pub(crate) fn rows<'b>(self, buffer: &'b RowBuf<T>) -> Rows<'b, T>
    where
        's: 'b,
    {
        match self {
            Self::InPlace(rows) => rows,
            Self::Stored { columns, values } => {
                let values = values.unwrap_or(&buffer.values);
                SparseRef::new(&buffer.starts, columns, values, buffer.cols()).into()
            }
            Self::Copied => buffer.rows(),
        }
    }

    /// Copies what is in place to the buffer that the rows were read with.
    fn copy_to(self, buffer: &mut RowBuf<T>) {
        match self {
            Self::InPlace(rows) => {
                buffer.clear(rows.cols());
                buffer.extend(rows);
            }
            Self::Stored { columns, values } => {
                buffer.columns.clear();
                buffer.columns.extend_from_slice(columns);
                if let Some(values) = values {
                    buffer.values.clear();
                    buffer.values.extend_from_slice(values);
                }
            }
            Self::Copied => {}
        }
    }

    /// The rows with all their values. `buffer` is the buffer that they were read with.
    fn filled(self, mut buffer: RowBuf<T>, scratch: &'s mut Vec<T>) -> MatRef<'s, T> {
        match self {
            Self::InPlace(Rows::Dense(rows)) => {
                *scratch = buffer.values;
                rows
            }
            Self::Copied if !buffer.is_sparse() => {
                *scratch = std::mem::take(&mut buffer.values);
                MatRef::new(scratch, buffer.cols())
            }
            _ => match self.rows(&buffer) {
                Rows::Sparse(rows) => fill(rows, scratch),
                Rows::Dense(_) => unreachable!("dense rows have all their values"),
            },
        }
    }
}

/// Fills in the zeros of sparse rows.
fn fill<'s, T: Float>(rows: SparseRef<'_, T>, scratch: &'s mut Vec<T>) -> MatRef<'s, T> {
    scratch.clear();
    append_filled(rows, scratch);
    MatRef::new(scratch, rows.cols())
}

/// Appends sparse rows with their zeros.
pub(super) fn append_filled<T: Float>(rows: SparseRef<'_, T>, out: &mut Vec<T>) {
    let (before, cols) = (out.len(), rows.cols());
    out.resize(before + rows.rows() * cols, T::ZERO);
    rows.iter().zip(out[before..].chunks_exact_mut(cols)).for_each(|(row, out)| spread(row, out));
}

/// Reads rows of one block; many threads call it at the same time.
///
/// Implement [`TileReader::tile`]; the other methods have defaults. An error ends the pass. If several tiles fail, the
/// pass reports the first in row order, for any number of threads.
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
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        let mut buffer = buffer_of(scratch);
        match self.read(Wanted::all(rows), &mut buffer)? {
            Some(tile) => Ok(tile.filled(buffer, scratch)),
            None => Err(Error::Source("the rows cannot be read: their reader has no method `tile`".into())),
        }
    }

    /// As [`TileReader::tile`], for a caller that uses only the rows `picked`, counted from the first of
    /// `rows`, each once. The values of the other rows are undefined. Implement it where rows are converted or
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
        let mut buffer = buffer_of(scratch);
        match self.read(Wanted { rows: rows.clone(), picked: Some(picked) }, &mut buffer)? {
            Some(tile) => Ok(tile.filled(buffer, scratch)),
            None => self.tile(rows, scratch),
        }
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
        let Some(tile) = self.read(Wanted { rows, picked }, scratch)? else { return Ok(None) };
        Ok(match tile.rows(scratch) {
            Rows::Sparse(rows) => Some(rows),
            Rows::Dense(_) => None,
        })
    }

    /// The one way in which the readers of this crate read rows, dense or sparse: in place if they are stored as `T`,
    /// else in `buffer`, which then holds exactly these rows. `None` from a reader that has only the methods above.
    ///
    /// # Errors
    /// Those of reading.
    ///
    /// # Panics
    /// As [`TileReader::tile_of`].
    #[doc(hidden)]
    fn read(&self, wanted: Wanted<'_>, buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        let _ = (wanted, buffer);
        Ok(None)
    }
}

/// An empty buffer with the memory of `scratch`.
fn buffer_of<T: Float>(scratch: &mut Vec<T>) -> RowBuf<T> {
    RowBuf::of_values(std::mem::take(scratch), 0)
}

/// The error for a tile of `found` rows instead of `expected`.
pub(crate) fn wrong_tile(found: usize, expected: usize) -> Error {
    Error::Source(format!("the source gave {found} rows of a tile of {expected} rows"))
}

/// Buffers that a worker reads rows into, dense and sparse.
#[derive(Debug, Default)]
pub(crate) struct Converted<T> {
    buffer: RowBuf<T>,
    /// Dense rows of readers without [`TileReader::read`].
    dense: Vec<T>,
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
        let found = match reader.read(Wanted { rows: rows.clone(), picked }, &mut self.buffer)? {
            Some(tile) => tile.rows(&self.buffer),
            None => self.read_otherwise(reader, Wanted { rows, picked })?,
        };
        if found.rows() == n { Ok(found) } else { Err(wrong_tile(found.rows(), n)) }
    }

    /// As [`Converted::read`], from a reader without [`TileReader::read`].
    fn read_otherwise<'s>(
        &'s mut self,
        reader: &'s dyn TileReader<T>,
        Wanted { rows, picked }: Wanted<'_>,
    ) -> Result<Rows<'s, T>> {
        if let Some(found) = reader.sparse(rows.clone(), picked, &mut self.buffer)? {
            return Ok(found.into());
        }
        let found = match picked {
            None => reader.tile(rows, &mut self.dense),
            Some(picked) => reader.tile_of(rows, picked, &mut self.dense),
        };
        found.map(Rows::from)
    }
}

/// Appends sparse rows to `buffer` by `append`, which takes their places in the tile. If only few are used, the others
/// stay empty.
///
/// # Errors
/// Those of `append`.
pub(crate) fn append_picked<T: Float>(
    wanted: &Wanted<'_>,
    buffer: &mut RowBuf<T>,
    mut append: impl FnMut(Range<usize>, &mut RowBuf<T>) -> Result<()>,
) -> Result<()> {
    let n = wanted.rows.len();
    let Some(picked) = wanted.few() else { return append(0..n, buffer) };
    let mut picked: Vec<usize> = picked.iter().map(|&r| r as usize).collect();
    picked.sort_unstable();
    let mut next = 0;
    for r in picked {
        (next..r).for_each(|_| buffer.end_row());
        append(r..r + 1, buffer)?;
        next = r + 1;
    }
    (next..n).for_each(|_| buffer.end_row());
    Ok(())
}

/// Copies rows of a reader to `buffer`, for a caller that changes them.
///
/// # Errors
/// Those of the reader; [`Error::Source`] when it gives another number of rows, or rows of other lengths than `cols`.
pub(crate) fn read_to<T: Float>(
    reader: &dyn TileReader<T>,
    wanted: Wanted<'_>,
    cols: usize,
    buffer: &mut RowBuf<T>,
) -> Result<()> {
    let n = wanted.rows.len();
    if let Some(tile) = reader.read(wanted.clone(), buffer)? {
        tile.copy_to(buffer);
    } else {
        let mut converted = Converted::default();
        let found = converted.read_otherwise(reader, wanted)?;
        Tile::InPlace(found).copy_to(buffer);
    }
    if buffer.len() == n && (n == 0 || buffer.cols() == cols) {
        return Ok(());
    }
    let found = if buffer.is_sparse() { buffer.len() } else { buffer.values.len() / cols.max(1) };
    Err(wrong_tile(found, n))
}
