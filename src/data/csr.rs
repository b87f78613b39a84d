//! Sparse rows in memory, in the compressed format of SciPy (CSR).

use std::ops::Range;

use super::any::stored;
use super::raw::one_block;
use super::source::forward;
use super::tile::{Tile, Wanted, append_filled, append_picked};
use super::{Access, AnySource, DataSource, RawRows, Source, TileReader, Visit, check_rows};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::{MatRef, make_room};
use crate::rows::{RowBuf, Rows, SparseRef};

/// Borrowed positions or columns, as 32 or 64-bit integers.
///
/// ```
/// use shoal::data::Index;
/// assert_eq!((Index::from(&[1i32, 2][..]).len(), Index::from(&[3i64][..]).get(0)), (2, 3));
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Index<'a> {
    /// 32 bits.
    I32(&'a [i32]),
    /// 64 bits.
    I64(&'a [i64]),
}

impl<'a> From<&'a [i32]> for Index<'a> {
    fn from(values: &'a [i32]) -> Self {
        Self::I32(values)
    }
}

impl<'a> From<&'a [i64]> for Index<'a> {
    fn from(values: &'a [i64]) -> Self {
        Self::I64(values)
    }
}

impl Index<'_> {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at position `i`.
    ///
    /// # Panics
    /// When `i` is not below the length.
    pub fn get(&self, i: usize) -> i64 {
        match self {
            Self::I32(values) => i64::from(values[i]),
            Self::I64(values) => values[i],
        }
    }

    /// The first of the `stored` first values that is not within `0..end`, and its position.
    fn first_beyond(&self, end: usize, stored: usize) -> Option<(usize, i64)> {
        let end = end as i64;
        match self {
            Self::I32(values) => values[..stored].iter().position(|&v| v < 0 || i64::from(v) >= end),
            Self::I64(values) => values[..stored].iter().position(|&v| v < 0 || v >= end),
        }
        .map(|at| (at, self.get(at)))
    }

    /// Whether the values in `range` are strictly ascending.
    fn ascends(&self, range: Range<usize>) -> bool {
        match self {
            Self::I32(values) => values[range].windows(2).all(|two| two[0] < two[1]),
            Self::I64(values) => values[range].windows(2).all(|two| two[0] < two[1]),
        }
    }
}

/// Sparse rows in memory. Row `i` has the stored values `indptr[i]..indptr[i + 1]`, in the columns that
/// `indices` names; all others are 0.
///
/// The matrix is never copied as a whole: positions, columns, and values of `f32` and `f64` are read in
/// place, values of other types are converted a tile at a time. Rows whose columns do not ascend, or repeat,
/// are sorted a tile at a time, and values of the same column are added. Sorting takes longer: sort such rows
/// beforehand if they are read many times.
///
/// ```
/// use shoal::{KMeans, data::Csr};
/// // [5, 0], [0, 1], [4, 0], [0, 2].
/// let (indptr, indices, values) = ([0, 1, 2, 3, 4], [0, 1, 0, 1], [5.0f32, 1.0, 4.0, 2.0]);
/// let rows = Csr::new((4, 2), indptr[..].into(), indices[..].into(), &values)?;
/// let model = KMeans::params(2).fit(&rows)?;
/// assert_eq!(model.labels()[0], model.labels()[2]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Csr<'a> {
    cols: usize,
    indptr: Index<'a>,
    indices: Index<'a>,
    /// One value per row.
    values: RawRows<'a>,
    most: usize,
    /// Whether the columns of every row ascend.
    tidy: bool,
}

impl<'a> Csr<'a> {
    /// Rows of the shape `(rows, columns)`. Checks all positions and columns once.
    ///
    /// # Errors
    /// [`Error::Empty`] for 0 columns; [`Error::Shape`], with the position, for positions and columns that do not fit.
    ///
    /// ```
    /// use shoal::data::Csr;
    /// let refused = Csr::new((1, 2), [0, 1][..].into(), [2][..].into(), &[1.0f32]).unwrap_err();
    /// assert_eq!(refused.to_string(), "indices must be columns, 0 to 1, got 2 at position 0");
    /// ```
    pub fn new<E: super::raw::Element>(
        shape: (usize, usize),
        indptr: Index<'a>,
        indices: Index<'a>,
        values: &'a [E],
    ) -> Result<Self> {
        Self::of_raw(shape, indptr, indices, RawRows::new(values, 1)?)
    }

    /// As [`Csr::new`], with values of any stored type, one per row.
    ///
    /// # Errors
    /// As [`Csr::new`].
    ///
    /// ```
    /// use shoal::data::{Csr, RawRows};
    /// let values = RawRows::new(&[7u8], 1)?;
    /// assert!(Csr::of_raw((1, 2), [0i64, 1][..].into(), [1][..].into(), values).is_ok());
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn of_raw(
        (rows, cols): (usize, usize),
        indptr: Index<'a>,
        indices: Index<'a>,
        values: RawRows<'a>,
    ) -> Result<Self> {
        if cols == 0 {
            return Err(Error::Empty("rows need at least 1 column, got 0".into()));
        }
        let refused = |problem: String| Err(Error::Shape(problem));
        if i32::try_from(cols).is_err() {
            return refused(format!("sparse rows have at most {} columns, got {cols}", i32::MAX));
        }
        let stored = values.layout();
        if stored.cols != 1 || indices.len() != stored.rows {
            return refused(format!(
                "indices and data must have one length, got {} and {}",
                indices.len(),
                stored.rows * stored.cols
            ));
        }
        if rows.checked_add(1) != Some(indptr.len()) {
            return refused(format!(
                "indptr must have one value more than the {rows} rows, got {} values",
                indptr.len()
            ));
        }
        if indptr.get(0) != 0 {
            return refused(format!("indptr must begin with 0, got {}", indptr.get(0)));
        }
        for row in 0..rows {
            let (start, end) = (indptr.get(row), indptr.get(row + 1));
            if end < start {
                return refused(format!("indptr must not decrease, got {end} after {start} at row {row}"));
            }
        }
        if indptr.get(rows) as u64 > stored.rows as u64 {
            return refused(format!(
                "indptr must end within the {} stored values, got {}",
                stored.rows,
                indptr.get(rows)
            ));
        }
        if let Some((at, column)) = indices.first_beyond(cols, indptr.get(rows) as usize) {
            return refused(format!(
                "indices must be columns, 0 to {}, got {column} at position {at}",
                cols - 1
            ));
        }
        let mut new = Self { cols, indptr, indices, values, most: 0, tidy: true };
        for row in 0..rows {
            let stored = new.stored(row..row + 1);
            new.most = new.most.max(stored.len());
            new.tidy = new.tidy && indices.ascends(stored);
        }
        Ok(new)
    }

    /// Rows and columns.
    ///
    /// ```
    /// use shoal::data::Csr;
    /// let rows = Csr::new((1, 2), [0, 1][..].into(), [1][..].into(), &[7u8])?;
    /// assert_eq!(rows.shape(), (1, 2));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn shape(&self) -> (usize, usize) {
        (self.indptr.len() - 1, self.cols)
    }

    /// The stored values, one per row.
    #[cfg(feature = "python")]
    pub(crate) fn values(&self) -> RawRows<'a> {
        self.values
    }

    /// The positions of the stored values of some rows.
    pub(crate) fn stored(&self, rows: Range<usize>) -> Range<usize> {
        self.indptr.get(rows.start) as usize..self.indptr.get(rows.end) as usize
    }

    /// The columns, if columns and values can be read in place.
    fn in_place(&self) -> Option<&'a [i32]> {
        let layout = self.values.layout();
        let touching = layout.row_stride == layout.dtype.size() as isize;
        match self.indices {
            Index::I32(columns) if self.tidy && touching => Some(columns),
            _ => None,
        }
    }

    /// Calls `f` with single rows, one at a time.
    fn for_each_row<T: Float>(&self, rows: &[u64], mut f: impl FnMut(SparseRef<'_, T>)) -> Result<()> {
        check_rows(rows, self.shape().0 as u64)?;
        let mut buffer = RowBuf::sparse(self.cols);
        for &row in rows {
            buffer.begin_sparse(self.cols);
            self.append(row as usize..row as usize + 1, &mut buffer)?;
            buffer.as_sparse().into_iter().for_each(&mut f);
        }
        Ok(())
    }

    /// Appends rows to the sparse rows `out`, with ascending columns, each once.
    fn append<T: Float>(&self, rows: Range<usize>, out: &mut RowBuf<T>) -> Result<()> {
        let stored = self.stored(rows.clone());
        let (first, mut converted) = (stored.start, Vec::new());
        let values: MatRef<'_, T> = self.values.tile(stored, &mut converted)?;
        let mut row_values = Vec::new();
        for row in rows {
            let stored = self.stored(row..row + 1);
            let of_row = stored.clone().map(|at| (self.indices.get(at) as i32, values.row(at - first)[0]));
            if self.tidy {
                for (column, x) in of_row {
                    out.columns.push(column);
                    out.values.push(x);
                }
            } else {
                row_values.clear();
                row_values.extend(of_row);
                // A stable sort: values of one column are added in their stored order.
                row_values.sort_by_key(|&(column, _): &(i32, T)| column);
                for same in row_values.chunk_by(|a, b| a.0 == b.0) {
                    out.columns.push(same[0].0);
                    out.values.push(T::from_f64(same.iter().map(|(_, x)| x.to_f64()).sum()));
                }
            }
            out.end_row();
        }
        Ok(())
    }
}

impl<T: Float> TileReader<T> for Csr<'_> {
    fn read(&self, wanted: Wanted<'_>, buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        let rows = wanted.rows.clone();
        let stored = self.stored(rows.clone());
        let Some(columns) = self.in_place() else {
            buffer.begin_sparse(self.cols);
            append_picked(&wanted, buffer, |some, buffer| {
                self.append(rows.start + some.start..rows.start + some.end, buffer)
            })?;
            return Ok(Some(Tile::Copied));
        };
        buffer.clear(self.cols);
        buffer.starts.extend((rows.start..=rows.end).map(|row| self.indptr.get(row) as usize - stored.start));
        let values = self.values.in_place(stored.clone()).map(|values| &values.data()[..stored.len()]);
        if values.is_none() {
            buffer.values.resize(stored.len(), T::ZERO);
            self.values.read_into(&stored, &mut buffer.values);
        }
        Ok(Some(Tile::Stored { columns: &columns[stored], values }))
    }
}

impl<T: Float> DataSource<T> for Csr<'_> {
    fn dim(&self) -> usize {
        self.cols
    }
    fn rows(&self) -> Option<u64> {
        Some(self.shape().0 as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn always_finite(&self) -> bool {
        !self.values.layout().dtype.is_float()
    }
    fn most_values(&self) -> Option<usize> {
        Some(self.most)
    }
    fn for_each_block(&self, _tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        one_block(self, self.shape().0, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        make_room(out, "copied rows", rows.len() as u64, self.cols)?;
        self.for_each_row(rows, |row| append_filled(row, out))
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        self.for_each_row(rows, |row| out.push(row.into(), 0))
    }
}

impl Source for Csr<'_> {
    fn any(&self) -> AnySource<'_> {
        stored(self, self.values.layout().dtype)
    }
}

impl<T: Float> TileReader<T> for Rows<'_, T> {
    fn read(&self, wanted: Wanted<'_>, _buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        Ok(Some(Tile::InPlace(self.slice(wanted.rows.start, wanted.rows.end))))
    }
}

impl<T: Float> DataSource<T> for Rows<'_, T> {
    fn dim(&self) -> usize {
        self.cols()
    }
    fn rows(&self) -> Option<u64> {
        Some(Rows::rows(self) as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn most_values(&self) -> Option<usize> {
        match self {
            Self::Dense(_) => None,
            Self::Sparse(rows) => Some(rows.iter().map(|(columns, _)| columns.len()).max().unwrap_or(0)),
        }
    }
    fn for_each_block(&self, _tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        one_block(self, Rows::rows(self), f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        check_rows(rows, Rows::rows(self) as u64)?;
        make_room(out, "copied rows", rows.len() as u64, self.cols())?;
        for row in rows.iter().map(|&row| row as usize) {
            match self {
                Self::Dense(all) => out.extend_from_slice(all.row(row)),
                Self::Sparse(all) => append_filled(all.slice(row, row + 1), out),
            }
        }
        Ok(())
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        check_rows(rows, Rows::rows(self) as u64)?;
        for &row in rows {
            out.push(*self, row as usize);
        }
        Ok(())
    }
}

/// As the rows in the buffer.
impl<T: Float> TileReader<T> for RowBuf<T> {
    fn read(&self, wanted: Wanted<'_>, _buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        Ok(Some(Tile::InPlace(self.rows().slice(wanted.rows.start, wanted.rows.end))))
    }
}

/// As the rows in the buffer.
impl<T: Float> DataSource<T> for RowBuf<T> {
    forward!(|this| this.rows() => dim rows access most_values for_each_block gather copy);
}
