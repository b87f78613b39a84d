//! The positions of the values of a matrix, in memory or in a file.

use crate::data::Dtype;
use crate::float::Float;

/// The positions of the values of a matrix, relative to its first value.
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
        // If the product overflows, any too large value makes `extent` return an error.
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

    /// First byte and byte after the last, relative to the first value; `None` when they do not fit into memory.
    pub(super) fn extent(&self) -> Option<(isize, isize)> {
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

    /// The stride, in values, of a [`MatRef`] over these rows; `None` if they must be converted.
    pub(super) fn in_place<T: Float>(&self, gaps: bool) -> Option<usize> {
        self.stored_as(Dtype::of::<T>(), gaps)
    }

    /// As [`Layout::in_place`], for values of a stored type.
    pub(super) fn stored_as(&self, dtype: Dtype, gaps: bool) -> Option<usize> {
        let size = dtype.size() as isize;
        let width = self.cols as isize * size;
        let columns_touch = self.cols == 1 || self.col_stride == size;
        if self.dtype != dtype || !columns_touch {
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
