//! Rows in memory of any stored type and strides, read in place or converted a tile at a time.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use half::{bf16, f16};

use super::layout::Layout;
use super::stored::{Element, Stored, Truth, bytes_of, with_stored};
use crate::data::{Access, Block, DataSource, Dtype, Tile, TileReader, Visit, Wanted, check_rows};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::{MatRef, make_room};
use crate::rows::RowBuf;

/// Rows of a column-major tile that are transposed together: one cache line of bytes, four of `f32`.
const TRANSPOSED_ROWS: usize = 64;

/// Stored rows in memory, of any [`Dtype`] and with any strides.
///
/// A source for both compute types: row-major rows of the compute type are read in place, all others are
/// converted a tile at a time. 64-bit integers are rounded to the nearest `f64`. For a flat slice of `f32` or
/// `f64` see also [`Dense`](crate::data::Dense).
///
/// ```
/// use shoal::data::{DataSource, RawRows};
/// let bytes = [1u8, 2, 3, 4, 5, 6];
/// let rows = RawRows::new(&bytes, 3).unwrap();
/// let mut last = Vec::<f32>::new();
/// rows.gather(&[1], &mut last).unwrap();
/// assert_eq!(last, [4.0, 5.0, 6.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RawRows<'a> {
    base: *const u8,
    layout: Layout,
    /// Whether the bytes between two rows may be borrowed along with the rows.
    gaps: bool,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: a `RawRows` only reads, and its constructors require that nothing writes to the bytes during its lifetime.
unsafe impl Send for RawRows<'_> {}
// SAFETY: a `RawRows` has no method that writes, so threads may share it.
unsafe impl Sync for RawRows<'_> {}

impl<'a> RawRows<'a> {
    /// Rows of `cols` values in a flat slice of any stored type, one after the other.
    ///
    /// # Errors
    /// [`Error::Empty`] for 0 columns, [`Error::Shape`] when `values` is not a whole number of rows.
    ///
    /// ```
    /// use shoal::data::RawRows;
    /// assert!(RawRows::new(&[1i16, 2, 3, 4], 2).is_ok());
    /// assert!(RawRows::new(&[1i16, 2, 3, 4], 3).is_err());
    /// ```
    pub fn new<E: Element>(values: &'a [E], cols: usize) -> Result<Self> {
        refuse_no_columns(cols)?;
        if !values.len().is_multiple_of(cols) {
            return Err(Error::Shape(format!(
                "{} values do not divide into rows of {cols} columns",
                values.len()
            )));
        }
        Self::from_bytes(bytes_of(values), 0, Layout::row_major(E::DTYPE, values.len() / cols, cols))
    }

    /// Rows within `bytes`, with the first value at byte `offset`; no alignment is needed.
    ///
    /// # Errors
    /// [`Error::Empty`] for 0 columns, [`Error::Shape`] when a value would lie outside `bytes`.
    ///
    /// ```
    /// use shoal::data::{Dtype, RawRows, raw::Layout};
    /// // The rows of three bytes in reverse.
    /// let layout = Layout { row_stride: -3, ..Layout::row_major(Dtype::U8, 2, 3) };
    /// assert!(RawRows::from_bytes(&[1, 2, 3, 4, 5, 6], 3, layout).is_ok());
    /// assert!(RawRows::from_bytes(&[1, 2, 3, 4, 5, 6], 0, layout).is_err());
    /// ```
    pub fn from_bytes(bytes: &'a [u8], offset: usize, layout: Layout) -> Result<Self> {
        refuse_no_columns(layout.cols)?;
        let fits = layout.extent().is_some_and(|(low, high)| {
            let reach = |d| offset.checked_add_signed(d).is_some_and(|at| at <= bytes.len());
            reach(low) && reach(high)
        });
        if !fits {
            let Layout { dtype, rows, cols, row_stride, col_stride } = layout;
            return Err(Error::Shape(format!(
                "{rows} rows of {cols} {dtype} with strides of {row_stride} and {col_stride} bytes from byte {offset} \
                 on do not fit into {} bytes",
                bytes.len()
            )));
        }
        Ok(Self { base: bytes[offset..].as_ptr(), layout, gaps: true, bytes: PhantomData })
    }

    /// Rows at an address, for memory that belongs to another language.
    ///
    /// # Errors
    /// [`Error::Empty`] for 0 columns, [`Error::Shape`] for strides that reach beyond any memory.
    ///
    /// # Safety
    /// All values of the layout are in one allocation, initialized, readable, and not written to during the
    /// lifetime `'a`. Bytes between values are never read. `base` is the address of the first value; it need
    /// not be aligned, and is not read when there are no rows.
    ///
    /// ```
    /// use shoal::data::{Dtype, RawRows, raw::Layout};
    /// let values = [1.0f32, 2.0, 3.0, 4.0];
    /// // SAFETY: `values` outlives the rows and has all four of them.
    /// let rows = unsafe { RawRows::from_parts(values.as_ptr().cast(), Layout::row_major(Dtype::F32, 2, 2)) };
    /// assert_eq!(rows.unwrap().layout().rows, 2);
    /// ```
    pub unsafe fn from_parts(base: *const u8, layout: Layout) -> Result<Self> {
        refuse_no_columns(layout.cols)?;
        if layout.extent().is_none() {
            let (rows, cols) = (layout.rows, layout.cols);
            return Err(Error::Shape(format!("{rows} rows of {cols} columns do not fit into memory")));
        }
        // The bytes between the rows may belong to another array that another thread writes to.
        Ok(Self { base, layout, gaps: false, bytes: PhantomData })
    }

    /// Rows at an address; the bytes between them are readable too.
    ///
    /// # Safety
    /// As for [`RawRows::from_parts`], whose checks the layout has passed; no other thread writes to bytes
    /// between the values.
    pub(super) unsafe fn vouched(base: *const u8, layout: Layout) -> Self {
        Self { base, layout, gaps: true, bytes: PhantomData }
    }

    /// The rows of a view with any strides.
    pub(in crate::data) fn from_view<E: Element>(view: &ndarray::ArrayView2<'a, E>) -> Result<Self> {
        let size = size_of::<E>() as isize;
        let (rows, cols) = view.dim();
        refuse_no_columns(cols)?;
        let layout = Layout {
            dtype: E::DTYPE,
            rows,
            cols,
            row_stride: view.strides()[0] * size,
            col_stride: view.strides()[1] * size,
        };
        // Other threads may write to values between those of the view: only the view itself is borrowed.
        Ok(Self { base: view.as_ptr().cast(), layout, gaps: false, bytes: PhantomData })
    }

    /// The positions of the values.
    ///
    /// ```
    /// use shoal::data::{Dtype, RawRows};
    /// assert_eq!(RawRows::new(&[1u8, 2], 1).unwrap().layout().dtype, Dtype::U8);
    /// ```
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The stored bytes of all rows, row by row; a copy if the rows are stored in another order.
    ///
    /// # Errors
    /// [`Error::Memory`].
    #[cfg(feature = "python")]
    pub(crate) fn bytes(&self) -> Result<std::borrow::Cow<'_, [u8]>> {
        let Layout { dtype, rows, cols, .. } = self.layout;
        if rows == 0 || self.layout != Layout::row_major(dtype, rows, cols) {
            return self.copy_bytes(0..rows).map(Into::into);
        }
        // SAFETY: the values of all rows lie one after the other from `base` on, and nothing writes to them.
        Ok(unsafe { std::slice::from_raw_parts(self.base, rows * cols * dtype.size()) }.into())
    }

    /// The stored bytes of the rows `rows`, row by row.
    ///
    /// # Errors
    /// [`Error::Memory`].
    ///
    /// # Panics
    /// When the range does not lie within the rows.
    #[cfg(feature = "python")]
    pub(crate) fn copy_bytes(&self, rows: Range<usize>) -> Result<Vec<u8>> {
        let Layout { dtype, cols, row_stride, col_stride, .. } = self.layout;
        assert!(rows.start <= rows.end && rows.end <= self.layout.rows);
        let size = dtype.size();
        // Contiguous columns are one piece.
        let (pieces, length) = if col_stride == size as isize { (1, cols * size) } else { (cols, size) };
        let mut out = Vec::new();
        make_room(&mut out, "copied rows", rows.len() as u64, cols * size)?;
        for row in rows {
            for piece in 0..pieces {
                let at = row as isize * row_stride + piece as isize * col_stride;
                // SAFETY: every value of every row lies within the bytes that the constructor checked or was promised.
                out.extend_from_slice(unsafe { std::slice::from_raw_parts(self.base.offset(at), length) });
            }
        }
        Ok(out)
    }

    /// Rows in place if they are stored as `T`, else converted into `buffer`.
    pub(super) fn read<T: Float>(self, wanted: &Wanted<'_>, buffer: &mut RowBuf<T>) -> Tile<'a, T> {
        let (rows, cols) = (&wanted.rows, self.layout.cols);
        if let Some(found) = self.in_place(rows.clone()) {
            return Tile::InPlace(found.into());
        }
        let out = buffer.room(rows.len(), cols);
        // All rows at once if most are needed, or if they are stored in columns.
        let scattered = self.layout.col_stride.unsigned_abs() != self.layout.dtype.size();
        match wanted.few().filter(|_| !scattered) {
            None => self.convert(rows.start, out),
            Some(picked) => {
                for &r in picked {
                    self.convert(rows.start + r as usize, &mut out[r as usize * cols..][..cols]);
                }
            }
        }
        Tile::Copied
    }

    /// The rows `rows`, borrowed for as long as the bytes are; `None` if they must be converted.
    pub(in crate::data) fn in_place<T: Float>(self, rows: Range<usize>) -> Option<MatRef<'a, T>> {
        let stride = self.layout.in_place::<T>(self.gaps)?;
        // SAFETY: the values are stored as `T`, a float.
        unsafe { self.borrowed(rows, stride) }
    }

    /// As [`RawRows::in_place`], for rows of bytes.
    pub(super) fn read_bytes(self, rows: Range<usize>) -> Option<MatRef<'a, u8>> {
        let stride = self.layout.stored_as(Dtype::U8, self.gaps)?;
        // SAFETY: the values are stored as bytes.
        unsafe { self.borrowed(rows, stride) }
    }

    /// The rows `rows`, which begin `stride` values apart; `None` if there are none, or if they are not aligned.
    ///
    /// # Safety
    /// The values are stored as `V`, of which any bits are valid, and the layout allows this stride: see
    /// [`Layout::stored_as`].
    unsafe fn borrowed<V: Copy>(self, rows: Range<usize>, stride: usize) -> Option<MatRef<'a, V>> {
        let (n, cols) = (rows.len(), self.layout.cols);
        assert!(rows.start <= rows.end && rows.end <= self.layout.rows, "rows {rows:?} are not in the block");
        if n == 0 {
            return None;
        }
        let first = self.row(rows.start).cast::<V>();
        if !first.is_aligned() {
            return None;
        }
        // SAFETY: `first` is aligned, and the slice ends with the last value of the last row. It covers bytes between
        // rows only if `gaps` says that it may.
        let data = unsafe { std::slice::from_raw_parts(first, (n - 1) * stride + cols) };
        Some(MatRef::with_stride(data, n, cols, stride))
    }

    /// The rows `rows`, converted into `out`, which is as long as they are.
    pub(in crate::data) fn read_into<T: Float>(self, rows: &Range<usize>, out: &mut [T]) {
        assert!(rows.start <= rows.end && out.len() == rows.len() * self.layout.cols);
        self.convert(rows.start, out);
    }

    /// Address of a row, which must exist.
    #[inline]
    fn row(&self, i: usize) -> *const u8 {
        debug_assert!(i < self.layout.rows);
        // SAFETY: every constructor checked, or was promised, that all values of the layout lie within one
        // allocation.
        unsafe { self.base.offset(i as isize * self.layout.row_stride) }
    }

    /// Converts rows from `start` on into `out`, which is a whole number of rows.
    fn convert<T: Float>(&self, start: usize, out: &mut [T]) {
        let n = out.len() / self.layout.cols;
        if n == 0 {
            return;
        }
        assert!(start + n <= self.layout.rows);
        with_stored!(self.layout.dtype, S => self.convert_from::<S, T>(start, n, out));
    }

    #[inline]
    fn convert_from<S: Stored, T: Float>(&self, start: usize, n: usize, out: &mut [T]) {
        let Layout { cols, row_stride, col_stride, .. } = self.layout;
        let size = size_of::<S>() as isize;
        if cols == 1 || col_stride == size {
            if n == 1 || row_stride == cols as isize * size {
                // SAFETY: the rows `start..start + n` exist and lie one after the other without gaps, as
                // `out` has them.
                unsafe { S::convert_run(self.row(start), out) };
            } else {
                for (i, out) in out.chunks_exact_mut(cols).enumerate() {
                    // SAFETY: the row exists, and its columns lie one after the other.
                    unsafe { S::convert_run(self.row(start + i), out) };
                }
            }
            return;
        }
        // Values of a row are not contiguous: transpose in panels of rows, which stay in cache.
        for (p, out) in out.chunks_mut(TRANSPOSED_ROWS * cols).enumerate() {
            let first = self.row(start + p * TRANSPOSED_ROWS);
            for c in 0..cols {
                for (r, row) in out.chunks_exact_mut(cols).enumerate() {
                    // SAFETY: row `start + p * TRANSPOSED_ROWS + r` and column `c` exist, so that the value
                    // lies within the memory that the constructor checked or was promised; S takes any bits.
                    row[c] = unsafe {
                        first
                            .offset(r as isize * row_stride + c as isize * col_stride)
                            .cast::<S>()
                            .read_unaligned()
                    }
                    .value();
                }
            }
        }
    }

    pub(super) fn append<T: Float>(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let cols = self.layout.cols;
        check_rows(rows, self.layout.rows as u64)?;
        let before = out.len();
        make_room(out, "copied rows", rows.len() as u64, cols)?;
        out.resize(before + rows.len() * cols, T::ZERO);
        // Read the first byte of every row first, so that the waits for memory overlap.
        // SAFETY: the rows exist, and have a value.
        let first = rows.iter().fold(0, |all, &row| all ^ unsafe { self.row(row as usize).read() });
        std::hint::black_box(first);
        for (&row, out) in rows.iter().zip(out[before..].chunks_exact_mut(cols)) {
            self.convert(row as usize, out);
        }
        Ok(())
    }
}

fn refuse_no_columns(cols: usize) -> Result<()> {
    if cols == 0 { Err(Error::Empty("rows need at least 1 column, got 0".into())) } else { Ok(()) }
}

impl<T: Float> TileReader<T> for RawRows<'_> {
    fn read(&self, wanted: Wanted<'_>, buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        Ok(Some(RawRows::read(*self, &wanted, buffer)))
    }
    fn bytes(&self, rows: Range<usize>) -> Result<Option<MatRef<'_, u8>>> {
        Ok(self.read_bytes(rows))
    }
}

/// Calls `f` with all rows of a source as one block.
pub(in crate::data) fn one_block<T: Float>(
    reader: &dyn TileReader<T>,
    rows: usize,
    f: &mut Visit<'_, T>,
) -> Result<()> {
    if rows > 0 {
        // No block follows: it does not matter whether `f` ends the pass.
        let _ = f(Block { first_row: 0, len: rows, rows: reader, weights: None })?;
    }
    Ok(())
}

impl<T: Float> DataSource<T> for RawRows<'_> {
    fn dim(&self) -> usize {
        self.layout.cols
    }
    fn rows(&self) -> Option<u64> {
        Some(self.layout.rows as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn always_finite(&self) -> bool {
        !self.layout.dtype.is_float()
    }
    fn for_each_block(&self, _tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        one_block(self, self.layout.rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.append(rows, out)
    }
}
