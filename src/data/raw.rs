//! Rows as bytes: strided memory and memory-mapped files of any [`Dtype`].
//!
//! This module knows how stored numbers become computed ones. Where they already are of the computed type the
//! rows are read in place, else each tile is converted on its own: the whole input never exists twice.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use memmap2::Mmap;

use super::{Access, Block, DataSource, Dtype, TileReader, no_such_row};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;

#[cfg(target_endian = "big")]
compile_error!("shoal reads stored numbers as they lie in memory, which needs a little-endian processor");

/// A pass keeps this much of a mapped file requested ahead of the rows it reads: a fast disk (4 GB/s) needs
/// some 8 ms to bring it, longer than any single request takes.
const READ_AHEAD: usize = 32 << 20;
/// The read-ahead moves on in steps of this size, so that its calls cost nothing against the reading.
const READ_AHEAD_STEP: usize = 16 << 20;
/// Linux cuts each request to the largest one of the device (at least 128 KiB, commonly 1.25 MiB): larger
/// ones are asked for in parts.
const READ_AHEAD_PART: usize = 1 << 20;
/// Rows that a column-major tile is transposed in at a time: one cache line of bytes, four of `f32`.
const TRANSPOSED_ROWS: usize = 64;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that numbers can be stored in.
///
/// ```
/// use shoal::data::{Dtype, raw::Element};
/// assert_eq!(<u8 as Element>::DTYPE, Dtype::U8);
/// ```
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The same type as a value.
    const DTYPE: Dtype;
}

/// How a stored type becomes a computed one. Every bit pattern must be a valid value of the type.
trait Stored: Copy {
    fn value<T: Float>(self) -> T;

    /// Converts `out.len()` values that lie one after the other.
    ///
    /// # Safety
    /// That many values are readable from `from` on; no alignment is needed.
    #[inline(always)]
    unsafe fn convert_run<T: Float>(from: *const u8, out: &mut [T]) {
        let from = from.cast::<Self>();
        for (j, o) in out.iter_mut().enumerate() {
            // SAFETY: `j` is below `out.len()`, and the caller vouches for that many values.
            *o = unsafe { from.add(j).read_unaligned() }.value();
        }
    }
}

/// A stored `bool`: any byte, since files may hold any.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Truth(u8);

impl Stored for Truth {
    #[inline(always)]
    fn value<T: Float>(self) -> T {
        T::from_f32(f32::from(u8::from(self.0 != 0)))
    }
}

impl Stored for f16 {
    #[inline(always)]
    fn value<T: Float>(self) -> T {
        T::from_f32(self.to_f32())
    }

    /// In runs, because `half` then uses the processor's own conversion.
    #[inline(always)]
    unsafe fn convert_run<T: Float>(from: *const u8, out: &mut [T]) {
        const RUN: usize = 64;
        let (mut narrow, mut wide) = ([f16::ZERO; RUN], [0.0f32; RUN]);
        for (i, out) in out.chunks_mut(RUN).enumerate() {
            let n = out.len();
            // SAFETY: the run lies within the values that the caller vouches for; `narrow` has room for RUN
            // >= n of them.
            unsafe {
                let run = from.add(i * RUN * size_of::<f16>());
                run.copy_to_nonoverlapping(narrow.as_mut_ptr().cast(), n * size_of::<f16>());
            }
            narrow[..n].convert_to_f32_slice(&mut wide[..n]);
            for (o, &w) in out.iter_mut().zip(&wide) {
                *o = T::from_f32(w);
            }
        }
    }
}

impl Stored for bf16 {
    #[inline(always)]
    fn value<T: Float>(self) -> T {
        // `bf16::to_f32` branches on NaN; here NaN may stay as it is.
        T::from_f32(f32::from_bits(u32::from(self.to_bits()) << 16))
    }
}

macro_rules! stored {
    ($through:ident: $($t:ty),*) => {
        $(impl Stored for $t {
            #[inline(always)]
            #[allow(clippy::unnecessary_cast)]
            fn value<T: Float>(self) -> T {
                T::$through(self as _)
            }
        })*
    };
}
stored!(from_f32: u8, i8, i16, u16, f32);
stored!(from_f64: i32, u32, i64, u64, f64);

macro_rules! elements {
    ($($t:ty => $dtype:ident),*) => {
        $(impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}
elements!(bool => Bool, u8 => U8, i8 => I8, i16 => I16, u16 => U16, f16 => F16, bf16 => Bf16);
elements!(f32 => F32, i32 => I32, u32 => U32, i64 => I64, u64 => U64, f64 => F64);

/// Evaluates an expression with `$S` standing for the [`Stored`] type of a [`Dtype`].
macro_rules! with_stored {
    ($dtype:expr, $S:ident => $body:expr) => {
        with_stored!(@ $dtype, $S, $body, Bool Truth, U8 u8, I8 i8, I16 i16, U16 u16, F16 f16, Bf16 bf16,
            F32 f32, I32 i32, U32 u32, I64 i64, U64 u64, F64 f64)
    };
    (@ $dtype:expr, $S:ident, $body:expr, $($variant:ident $t:ty),*) => {
        match $dtype {
            $(Dtype::$variant => {
                type $S = $t;
                $body
            })*
        }
    };
}

/// The bytes of stored numbers.
pub(super) fn bytes_of<E: Element>(values: &[E]) -> &[u8] {
    // SAFETY: the implementors of `Element` are primitive numbers without padding, so that all their bytes
    // are initialised; the length is that of the slice in bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Where the values of a matrix lie, relative to its first one.
///
/// ```
/// use shoal::data::{Dtype, raw::Layout};
/// let layout = Layout::row_major(Dtype::F32, 10, 3);
/// assert_eq!((layout.row_stride, layout.col_stride), (12, 4));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Type of the values.
    pub dtype: Dtype,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// Bytes from one row to the next; may be negative or 0.
    pub row_stride: isize,
    /// Bytes from one column to the next; may be negative or 0.
    pub col_stride: isize,
}

impl Layout {
    /// Rows one after the other without gaps.
    ///
    /// ```
    /// use shoal::data::{Dtype, raw::Layout};
    /// assert_eq!(Layout::row_major(Dtype::U8, 10, 3).row_stride, 3);
    /// ```
    pub fn row_major(dtype: Dtype, rows: usize, cols: usize) -> Self {
        let size = dtype.size();
        // A product that overflows is refused by `extent`, for which any value that is too large will do.
        let row_stride = isize::try_from(cols.saturating_mul(size)).unwrap_or(isize::MAX);
        Self { dtype, rows, cols, row_stride, col_stride: size as isize }
    }

    /// Columns one after the other without gaps.
    ///
    /// ```
    /// use shoal::data::{Dtype, raw::Layout};
    /// assert_eq!(Layout::column_major(Dtype::F32, 10, 3).col_stride, 40);
    /// ```
    pub fn column_major(dtype: Dtype, rows: usize, cols: usize) -> Self {
        let size = dtype.size();
        let col_stride = isize::try_from(rows.saturating_mul(size)).unwrap_or(isize::MAX);
        Self { dtype, rows, cols, row_stride: size as isize, col_stride }
    }

    /// First byte and byte after the last, relative to the first value; `None` when no memory is that large.
    fn extent(&self) -> Option<(isize, isize)> {
        if self.rows == 0 || self.cols == 0 {
            return Some((0, 0));
        }
        let reach = |n: usize, stride: isize| isize::try_from(n - 1).ok()?.checked_mul(stride);
        let (down, right) = (reach(self.rows, self.row_stride)?, reach(self.cols, self.col_stride)?);
        let low = down.min(0).checked_add(right.min(0))?;
        let high = down.max(0).checked_add(right.max(0))?.checked_add(self.dtype.size() as isize)?;
        high.checked_sub(low)?;
        Some((low, high))
    }

    /// What a tile of these rows needs to be a [`MatRef`] as it lies: the distance of two rows in values.
    fn in_place<T: Float>(&self, gaps: bool) -> Option<usize> {
        let size = size_of::<T>() as isize;
        let width = self.cols as isize * size;
        let columns_touch = self.cols == 1 || self.col_stride == size;
        if self.dtype != Dtype::of::<T>() || !columns_touch {
            None
        } else if self.rows == 1 {
            Some(self.cols)
        } else if self.row_stride == width || (gaps && self.row_stride > width && self.row_stride % size == 0)
        {
            Some((self.row_stride / size) as usize)
        } else {
            None
        }
    }
}

/// Stored rows in memory, of any [`Dtype`] and with any strides.
///
/// A source for both compute types: rows of `T` in row order are read in place, all others are converted tile
/// by tile. 64-bit integers are rounded to the nearest `f64`.
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

// SAFETY: a `RawRows` only reads, and whoever made it vouched that nothing writes to the bytes during its
// lifetime.
unsafe impl Send for RawRows<'_> {}
// SAFETY: as above.
unsafe impl Sync for RawRows<'_> {}

impl<'a> RawRows<'a> {
    /// Rows of `cols` values, one after the other.
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
            return Err(Error::Shape(format!("{} values are no rows of {cols} columns", values.len())));
        }
        Self::from_bytes(bytes_of(values), 0, Layout::row_major(E::DTYPE, values.len() / cols, cols))
    }

    /// Rows within `bytes`, the first value at byte `offset`; nothing need be aligned.
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
    /// All bytes from the lowest to the highest one of any value, those between the values included, lie in
    /// one allocation and are initialised, readable and not written to during the lifetime `'a`. `base` is
    /// the address of the first value; it need not be aligned, and is not read when there are no rows.
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
        // Between the rows there may be another array's values, which somebody may be writing.
        Ok(Self { base, layout, gaps: false, bytes: PhantomData })
    }

    /// The rows of a view with any strides.
    #[cfg(feature = "ndarray")]
    pub(super) fn from_view<T: Float>(view: &ndarray::ArrayView2<'a, T>) -> Self {
        let size = size_of::<T>() as isize;
        let (rows, cols) = view.dim();
        let layout = Layout {
            dtype: Dtype::of::<T>(),
            rows,
            cols,
            row_stride: view.strides()[0] * size,
            col_stride: view.strides()[1] * size,
        };
        // Between the values of a view there may be others that somebody else writes to: they are not
        // borrowed.
        Self { base: view.as_ptr().cast(), layout, gaps: false, bytes: PhantomData }
    }

    /// Where the values lie.
    ///
    /// ```
    /// use shoal::data::{Dtype, RawRows};
    /// assert_eq!(RawRows::new(&[1u8, 2], 1).unwrap().layout().dtype, Dtype::U8);
    /// ```
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The stored bytes of the rows `rows`, row by row.
    ///
    /// # Panics
    /// When the range does not lie within the rows.
    #[cfg(feature = "python")]
    pub(crate) fn copy_bytes(&self, rows: Range<usize>) -> Vec<u8> {
        let Layout { dtype, cols, row_stride, col_stride, .. } = self.layout;
        assert!(rows.start <= rows.end && rows.end <= self.layout.rows);
        let size = dtype.size();
        // Contiguous columns are one piece.
        let (pieces, length) = if col_stride == size as isize { (1, cols * size) } else { (cols, size) };
        let mut out = Vec::with_capacity(rows.len() * cols * size);
        for row in rows {
            for piece in 0..pieces {
                let at = row as isize * row_stride + piece as isize * col_stride;
                // SAFETY: every value of every row lies within the bytes that were vouched for.
                out.extend_from_slice(unsafe { std::slice::from_raw_parts(self.base.offset(at), length) });
            }
        }
        out
    }

    /// The rows `rows`, borrowed for as long as the bytes are.
    fn read<'s, T: Float>(self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> MatRef<'s, T>
    where
        'a: 's,
    {
        let Layout { cols, .. } = self.layout;
        assert!(rows.start <= rows.end && rows.end <= self.layout.rows, "rows {rows:?} are not in the block");
        let n = rows.len();
        if n > 0
            && let Some(stride) = self.layout.in_place::<T>(self.gaps)
        {
            let first = self.row(rows.start).cast::<T>();
            if first.is_aligned() {
                // SAFETY: `first` is aligned, the values are of type T (any bits are valid) and lie `stride`
                // apart; the slice ends with the last value of the last row. Bytes between rows are covered
                // only if `gaps` says that they may be.
                let data = unsafe { std::slice::from_raw_parts(first, (n - 1) * stride + cols) };
                return MatRef::with_stride(data, n, cols, stride);
            }
        }
        let needed = n * cols;
        if scratch.len() < needed {
            scratch.resize(needed, T::ZERO);
        }
        let out = &mut scratch[..needed];
        self.convert(rows.start, out);
        MatRef::new(out, cols)
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
        // Columns lie further apart: transposed in panels of rows, so that what is read and what is written
        // stay in cache.
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

    fn append<T: Float>(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let cols = self.layout.cols;
        if let Some(&beyond) = rows.iter().find(|&&row| row >= self.layout.rows as u64) {
            return Err(no_such_row(beyond));
        }
        let before = out.len();
        out.resize(before + rows.len() * cols, T::ZERO);
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
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> MatRef<'s, T> {
        self.read(rows, scratch)
    }
}

/// The one block of a source that has all its rows at hand.
pub(super) fn one_block<T: Float>(
    reader: &dyn TileReader<T>,
    rows: usize,
    f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    if rows > 0 {
        // Nothing follows: whether `f` wants to go on does not matter.
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
    fn for_each_block(
        &self,
        _tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        one_block(self, self.layout.rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.append(rows, out)
    }
}

/// Rows in a memory-mapped file; a source for both compute types, cheap to clone.
///
/// Nothing is read before it is used, and a pass reads ahead of itself. The file should stay as it is while
/// it is used:
///
/// * When another process *changes* it, rows read before and after the change differ. Labels computed from
///   such a file are undefined, but in range.
/// * When it is made *shorter*, the operating system stops this process (with `SIGBUS` on Unix) as soon as it
///   reads a row that is gone. Memory cannot be corrupted by it, but nothing can be saved either. Write a new
///   file and rename it over the old one instead: an open source keeps the file that it opened.
///
/// ```
/// # fn main() -> shoal::Result<()> {
/// use shoal::data::{DataSource, Dtype, raw};
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("rows.u8");
/// std::fs::write(&path, [1, 2, 3, 4, 5, 6]).unwrap();
/// let rows = raw::open(&path, Dtype::U8, 2, 3, 0)?;
/// let mut last = Vec::<f32>::new();
/// rows.gather(&[1], &mut last)?;
/// assert_eq!(last, [4.0, 5.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mapped {
    file: Arc<MappedFile>,
    offset: usize,
    layout: Layout,
}

#[derive(Debug)]
struct MappedFile {
    map: Mmap,
    path: PathBuf,
    /// The access pattern that the system was last told of.
    advised: AtomicU8,
}

#[derive(Clone, Copy)]
enum Pattern {
    Sequential = 1,
    Random = 2,
}

/// Opens a file of row-major rows, the first of them at byte `offset`.
///
/// # Errors
/// [`Error::Io`] when the file cannot be opened, [`Error::Format`] when it is not a regular file or too
/// short.
///
/// ```
/// use shoal::data::{Dtype, raw};
/// let refused = raw::open("no/such/file", Dtype::F32, 10, 3, 0).unwrap_err();
/// assert!(refused.to_string().starts_with("no/such/file: "));
/// ```
pub fn open(path: impl AsRef<Path>, dtype: Dtype, rows: usize, cols: usize, offset: u64) -> Result<Mapped> {
    Mapped::open(path, Layout::row_major(dtype, rows, cols), offset)
}

impl Mapped {
    /// Opens a file of rows in any layout, the first value at byte `offset`.
    ///
    /// # Errors
    /// As those of [`open`].
    ///
    /// ```
    /// use shoal::data::{Dtype, raw::{Layout, Mapped}};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("rows.fvecs");
    /// # std::fs::write(&path, [0; 24]).unwrap();
    /// // Two rows of two floats, four bytes before each.
    /// let layout = Layout { row_stride: 12, ..Layout::row_major(Dtype::F32, 2, 2) };
    /// let rows = Mapped::open(&path, layout, 4).unwrap();
    /// assert_eq!(rows.layout(), layout);
    /// ```
    pub fn open(path: impl AsRef<Path>, layout: Layout, offset: u64) -> Result<Self> {
        let path = path.as_ref();
        let found = file_length(path)?;
        let Layout { dtype, rows, cols, .. } = layout;
        if rows == 0 || cols == 0 {
            return Err(Error::format(path, format!("{rows} rows of {cols} columns are nothing to work on")));
        }
        let too_large =
            || Error::format(path, format!("{rows} rows of {cols} {dtype} are larger than any file"));
        let (low, high) = layout.extent().ok_or_else(too_large)?;
        let expected = offset.checked_add_signed(high as i64).ok_or_else(too_large)?;
        if low < 0 && offset < low.unsigned_abs() as u64 {
            return Err(Error::format(
                path,
                format!("its rows would begin before its first byte ({offset}{low})"),
            ));
        }
        if expected > found {
            return Err(Error::format(
                path,
                format!("{rows} rows of {cols} {dtype} need a file of {expected} bytes, found {found}"),
            ));
        }
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        // SAFETY: the map is only read, its values are plain numbers that take any bits, and no decision
        // about memory is derived from them. What happens when somebody else writes to the file is documented
        // with `Mapped`.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
        if (map.len() as u64) < expected {
            let found = map.len();
            return Err(Error::format(
                path,
                format!("it shrank from {expected} to {found} bytes while it was opened"),
            ));
        }
        let file = MappedFile { map, path: path.to_owned(), advised: AtomicU8::new(0) };
        Ok(Self { file: Arc::new(file), offset: offset as usize, layout })
    }

    /// Where the values lie, relative to the first one.
    ///
    /// ```no_run
    /// let rows = shoal::data::npy::open("rows.npy").unwrap();
    /// println!("{} rows of {}", rows.layout().rows, rows.layout().dtype);
    /// ```
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The file.
    ///
    /// ```no_run
    /// let rows = shoal::data::npy::open("rows.npy").unwrap();
    /// assert_eq!(rows.path().file_name().unwrap(), "rows.npy");
    /// ```
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The rows in memory.
    ///
    /// ```no_run
    /// let rows = shoal::data::npy::open("rows.npy").unwrap();
    /// assert_eq!(rows.view().layout(), rows.layout());
    /// ```
    pub fn view(&self) -> RawRows<'_> {
        // SAFETY: `open` checked that all values lie within the map, and the map stays as long as `self` is
        // borrowed.
        let base = unsafe { self.file.map.as_ptr().add(self.offset) };
        RawRows { base, layout: self.layout, gaps: true, bytes: PhantomData }
    }

    /// Tells the system how rows will be read, where that differs from the last time.
    fn advise(&self, pattern: Pattern) {
        if self.file.advised.swap(pattern as u8, Ordering::Relaxed) == pattern as u8 {
            return;
        }
        #[cfg(unix)]
        {
            let advice = match pattern {
                Pattern::Sequential => memmap2::Advice::Sequential,
                Pattern::Random => memmap2::Advice::Random,
            };
            // Advice only: a system that refuses it reads all the same.
            let _ = self.file.map.advise(advice);
        }
    }

    /// Asks for bytes of the file to be read soon.
    #[cfg(unix)]
    fn request(&self, bytes: Range<usize>) {
        let end = bytes.end.min(self.file.map.len());
        for at in (bytes.start..end).step_by(READ_AHEAD_PART) {
            let _ = self.file.map.advise_range(memmap2::Advice::WillNeed, at, READ_AHEAD_PART.min(end - at));
        }
    }

    #[cfg(not(unix))]
    fn request(&self, _bytes: Range<usize>) {}

    /// Moves the read-ahead on whenever the rows read pass the end of a step. Each such end lies in exactly
    /// one tile of a pass.
    fn read_ahead(&self, rows: &Range<usize>) {
        if let Some(due) = self.due(rows) {
            self.request(due);
        }
    }

    /// The bytes to request when these rows are read: all of the read-ahead at the first row, then a step
    /// more at each step.
    fn due(&self, rows: &Range<usize>) -> Option<Range<usize>> {
        let Layout { row_stride, cols, dtype, .. } = self.layout;
        // Rows of a column-major file lie everywhere in it.
        let stride = usize::try_from(row_stride).ok().filter(|&s| s >= cols * dtype.size())?;
        let (from, to) = (self.offset + rows.start * stride, self.offset + rows.end * stride);
        // Everything up to here was requested when the rows before these were read.
        let ahead = |at: usize| at / READ_AHEAD_STEP * READ_AHEAD_STEP + READ_AHEAD;
        let start = if rows.start == 0 { from } else { ahead(from) };
        (start < ahead(to)).then(|| start..ahead(to))
    }
}

/// Length of a regular file. Looked up before the file is opened: opening a pipe would wait for its other
/// end.
pub(super) fn file_length(path: &Path) -> Result<u64> {
    let found = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if found.is_dir() {
        return Err(Error::io(
            path,
            io::Error::new(io::ErrorKind::IsADirectory, "is a directory, not a file of rows"),
        ));
    }
    if !found.is_file() {
        return Err(Error::format(path, "is not a regular file and cannot be mapped"));
    }
    if found.len() == 0 {
        return Err(Error::format(path, "is empty"));
    }
    Ok(found.len())
}

impl<T: Float> TileReader<T> for Mapped {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> MatRef<'s, T> {
        self.read_ahead(&rows);
        self.view().read(rows, scratch)
    }
}

impl<T: Float> DataSource<T> for Mapped {
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
    fn for_each_block(
        &self,
        _tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.advise(Pattern::Sequential);
        one_block(self, self.layout.rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        // Sequential advice would read some hundred kilobytes for every single row.
        self.advise(Pattern::Random);
        self.view().append(rows, out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One value, as slowly and plainly as can be.
    fn naive<T: Float>(dtype: Dtype, b: &[u8]) -> T {
        let [b2, b4, b8] = [2, 4, 8].map(|n| &b[..n.min(b.len())]);
        macro_rules! le {
            ($t:ty, $b:ident) => {
                <$t>::from_le_bytes($b.try_into().unwrap())
            };
        }
        match dtype {
            Dtype::Bool => T::from_f64(if b[0] == 0 { 0.0 } else { 1.0 }),
            Dtype::U8 => T::from_f64(f64::from(b[0])),
            Dtype::I8 => T::from_f64(f64::from(b[0] as i8)),
            Dtype::I16 => T::from_f64(f64::from(le!(i16, b2))),
            Dtype::U16 => T::from_f64(f64::from(le!(u16, b2))),
            Dtype::F16 => T::from_f64(le!(f16, b2).to_f64()),
            Dtype::Bf16 => T::from_f64(le!(bf16, b2).to_f64()),
            Dtype::F32 => T::from_f32(le!(f32, b4)),
            Dtype::I32 => T::from_f64(f64::from(le!(i32, b4))),
            Dtype::U32 => T::from_f64(f64::from(le!(u32, b4))),
            Dtype::I64 => T::from_f64(le!(i64, b8) as f64),
            Dtype::U64 => T::from_f64(le!(u64, b8) as f64),
            Dtype::F64 => T::from_f64(le!(f64, b8)),
        }
    }

    fn same<T: Float>(a: T, b: T) -> bool {
        a == b || (a.to_f64().is_nan() && b.to_f64().is_nan())
    }

    fn check<T: Float>(bytes: &[u8], offset: usize, layout: Layout, range: Range<usize>) {
        let source = RawRows::from_bytes(bytes, offset, layout).unwrap();
        // What was in the scratch before must not show.
        let mut scratch = vec![T::INFINITY; 3];
        let tile = source.tile(range.clone(), &mut scratch);
        assert_eq!((tile.rows(), tile.cols()), (range.len(), layout.cols));
        let mut gathered = Vec::new();
        source.gather(&range.clone().map(|r| r as u64).collect::<Vec<_>>(), &mut gathered).unwrap();
        for (i, r) in range.enumerate() {
            for c in 0..layout.cols {
                let at = r as isize * layout.row_stride + c as isize * layout.col_stride;
                let from = offset.checked_add_signed(at).unwrap();
                let expected = naive::<T>(layout.dtype, &bytes[from..from + layout.dtype.size()]);
                assert!(same(tile.row(i)[c], expected), "{layout:?} row {r} column {c}");
                assert!(
                    same(gathered[i * layout.cols + c], expected),
                    "{layout:?} gathered row {r} column {c}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn conversions_equal_naive_ones(
            which in 0usize..13, rows in 1usize..150, cols in 1usize..80, shift in 0usize..9, gap in 0isize..12,
            order in 0usize..6, (from, to) in (0.0..1.0f64, 0.0..=1.0f64), seed in any::<u64>(),
        ) {
            let dtype = Dtype::ALL[which];
            let size = dtype.size() as isize;
            let (n, d) = (rows as isize, cols as isize);
            let (row_stride, col_stride) = [
                (d * size, size),
                (d * size + gap, size),
                (size, n * size + gap),
                (-(d * size + gap), size),
                (d * (size + gap), size + gap),
                (d * size, -size),
            ][order];
            let layout = Layout { dtype, rows, cols, row_stride, col_stride };
            let (low, high) = layout.extent().unwrap();
            let offset = shift + low.unsigned_abs();
            let mut state = seed;
            let bytes: Vec<u8> = (0..offset + high as usize).map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (state >> 56) as u8
            }).collect();
            let start = (from * rows as f64) as usize;
            let end = start + (to * (rows - start) as f64) as usize;
            check::<f32>(&bytes, offset, layout, start..end);
            check::<f64>(&bytes, offset, layout, start..end);
            // One byte less, and the last value is not there.
            prop_assert!(RawRows::from_bytes(&bytes[..bytes.len() - 1], offset, layout).is_err());
            if low < 0 {
                prop_assert!(RawRows::from_bytes(&bytes, low.unsigned_abs() - 1, layout).is_err());
            }
        }
    }

    #[test]
    fn rows_of_the_compute_type_are_read_in_place() {
        let values: Vec<f32> = (0..20u16).map(f32::from).collect();
        let bytes = bytes_of(&values);
        let mut scratch = Vec::new();
        let wide = Layout { row_stride: 20, ..Layout::row_major(Dtype::F32, 4, 3) };
        let rows = RawRows::from_bytes(bytes, 0, wide).unwrap();
        let tile: MatRef<'_, f32> = rows.tile(1..4, &mut scratch);
        assert!(std::ptr::eq(tile.data().as_ptr(), &raw const values[5]));
        assert_eq!((tile.stride(), tile.row(2)), (5, &values[15..18]));
        // Not aligned: converted.
        let odd = Layout::row_major(Dtype::F32, 4, 3);
        let rows = RawRows::from_bytes(bytes, 1, odd).unwrap();
        let tile: MatRef<'_, f32> = rows.tile(0..4, &mut scratch);
        assert!(!bytes.as_ptr_range().contains(&tile.data().as_ptr().cast()));
    }

    #[test]
    fn half_precision_runs_convert_every_value() {
        let bits: Vec<u16> = (0..=u16::MAX).collect();
        for dtype in [Dtype::F16, Dtype::Bf16] {
            let layout = Layout::row_major(dtype, 1 << 10, 64);
            check::<f32>(bytes_of(&bits), 0, layout, 0..1 << 10);
        }
    }

    #[test]
    fn refusals_of_shapes() {
        let text = |result: Result<RawRows<'_>>| result.unwrap_err().to_string();
        assert_eq!(text(RawRows::new(&[1u8, 2, 3], 2)), "3 values are no rows of 2 columns");
        assert_eq!(text(RawRows::new::<u8>(&[], 0)), "rows need at least 1 column, got 0");
        let layout = Layout::row_major(Dtype::F32, 2, 2);
        assert_eq!(
            text(RawRows::from_bytes(&[0; 15], 0, layout)),
            "2 rows of 2 float32 with strides of 8 and 4 bytes from byte 0 on do not fit into 15 bytes"
        );
        for huge in
            [Layout::row_major(Dtype::F64, usize::MAX, 2), Layout::row_major(Dtype::F64, 2, usize::MAX)]
        {
            assert!(RawRows::from_bytes(&[0; 15], 0, huge).is_err());
            // SAFETY: nothing is read.
            assert!(unsafe { RawRows::from_parts(std::ptr::dangling(), huge) }.is_err());
        }
        let rows = RawRows::new(&[1u8, 2], 1).unwrap();
        assert_eq!(
            DataSource::<f32>::gather(&rows, &[0, 2], &mut Vec::new()).unwrap_err().to_string(),
            "row 2 is not there"
        );
    }

    #[test]
    fn files_that_cannot_be_mapped_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let text = |path: &Path| {
            let text = open(path, Dtype::F32, 10, 3, 8).unwrap_err().to_string();
            text.strip_prefix(&format!("{}: ", path.display())).expect("the file is named").to_owned()
        };
        assert!(matches!(open(&path, Dtype::F32, 1, 1, 0), Err(Error::Io { .. })));
        assert_eq!(text(folder.path()), "is a directory, not a file of rows");
        fs::write(&path, []).unwrap();
        assert_eq!(text(&path), "is empty");
        fs::write(&path, [0; 127]).unwrap();
        assert_eq!(text(&path), "10 rows of 3 float32 need a file of 128 bytes, found 127");
        fs::write(&path, [0; 128]).unwrap();
        assert!(open(&path, Dtype::F32, 10, 3, 8).is_ok());
        assert!(open(&path, Dtype::F32, 10, 3, u64::MAX).is_err());
        assert!(open(&path, Dtype::F32, 0, 3, 8).is_err());
        let backwards = Layout { row_stride: -12, ..Layout::row_major(Dtype::F32, 10, 3) };
        assert!(Mapped::open(&path, backwards, 107).is_err());
        assert!(Mapped::open(&path, backwards, 108).is_ok());
    }

    #[test]
    fn the_read_ahead_requests_every_byte_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        // Sparse: takes no room on disk.
        File::create(&path).unwrap().set_len(100 << 20).unwrap();
        for (cols, tile) in [(100, 256), (1 << 20, 1), (40 << 20, 1)] {
            let rows = open(&path, Dtype::U8, (100 << 20) / cols, cols, 0).unwrap();
            let n = rows.layout().rows;
            let mut end = 0;
            for start in (0..n).step_by(tile) {
                if let Some(due) = rows.due(&(start..n.min(start + tile))) {
                    assert!(due.start <= end, "a gap before {due:?}");
                    end = due.end;
                }
                assert!(end >= (start * cols + READ_AHEAD_STEP).min(n * cols), "{start} is read too late");
            }
        }
        let rows = open(&path, Dtype::U8, 100, 1 << 20, 0).unwrap();
        rows.for_each_block(1, &mut |block: Block<'_, f32>| {
            let mut scratch = Vec::new();
            assert_eq!(block.rows.tile(99..100, &mut scratch).row(0)[5], 0.0);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    }
}
