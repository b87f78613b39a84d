//! Dense row-major matrices.

use crate::error::{Error, Result};
use crate::float::Float;

/// Reserves room in `out` for `rows` more rows of `width` values. A plain reservation would abort the process
/// when a result is larger than memory.
///
/// # Errors
/// [`Error::Memory`], which names `what`.
pub(crate) fn make_room<V>(out: &mut Vec<V>, what: &str, rows: u64, width: usize) -> Result<()> {
    let bytes = u128::from(rows) * width as u128 * size_of::<V>() as u128;
    let len = usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(width));
    let reserved = len.is_some_and(|len| {
        // A vector that grows step by step reserves more than it needs now.
        if out.is_empty() { out.try_reserve_exact(len).is_ok() } else { out.try_reserve(len).is_ok() }
    });
    if reserved {
        return Ok(());
    }
    Err(Error::Memory(format!("{what}: {rows} rows of {width} values take {bytes} bytes")))
}

/// Rows of `cols` values as an array.
pub(crate) fn array_of_rows<T>(values: Vec<T>, cols: usize) -> ndarray::Array2<T> {
    let rows = values.len() / cols.max(1);
    ndarray::Array2::from_shape_vec((rows, cols), values).expect("whole rows")
}

/// A borrowed row-major matrix. Its rows may be further apart than they are long.
///
/// ```
/// let m = shoal::MatRef::new(&[1.0f32, 2.0, 3.0, 4.0], 2);
/// assert_eq!((m.rows(), m.cols(), m.row(1)), (2, 2, &[3.0, 4.0][..]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MatRef<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a, T: Copy> MatRef<'a, T> {
    /// Rows of `cols` values, one after the other.
    ///
    /// # Panics
    /// When `data` is not a whole number of rows. Empty `data` is a matrix of 0 rows for any `cols`.
    pub fn new(data: &'a [T], cols: usize) -> Self {
        assert!(data.len().is_multiple_of(cols), "{} values do not divide into rows of {cols}", data.len());
        Self { data, rows: data.len().checked_div(cols).unwrap_or(0), cols, stride: cols }
    }

    /// `rows` rows of `cols` values, with `stride` values from the start of one row to the start of the next.
    ///
    /// # Panics
    /// When the rows overlap or do not fit into `data`.
    pub fn with_stride(data: &'a [T], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(cols > 0 && stride >= cols, "a row of {cols} values does not fit a stride of {stride}");
        let end = rows.saturating_sub(1).checked_mul(stride).and_then(|last| last.checked_add(cols));
        assert!(rows == 0 || end.is_some_and(|end| end <= data.len()), "{rows} rows do not fit the data");
        Self { data, rows, cols, stride }
    }

    /// Number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    #[inline]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Values from the start of one row to the start of the next.
    #[inline]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The values, from the first value of the first row on.
    #[inline]
    pub fn data(&self) -> &'a [T] {
        self.data
    }

    /// One row.
    ///
    /// # Panics
    /// When `i` is not below the number of rows.
    #[inline]
    pub fn row(&self, i: usize) -> &'a [T] {
        assert!(i < self.rows);
        &self.data[i * self.stride..][..self.cols]
    }

    /// The rows `start..end`.
    ///
    /// # Panics
    /// When the range does not lie within the rows.
    #[inline]
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        assert!(start <= end && end <= self.rows);
        let from = if start == end { 0 } else { start * self.stride };
        Self { data: &self.data[from..], rows: end - start, cols: self.cols, stride: self.stride }
    }

    /// All rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [T]> + use<'a, T> {
        let m = *self;
        (0..m.rows).map(move |i| m.row(i))
    }
}

impl<T: Float> MatRef<'_, T> {
    /// Row and column of the first value that is NaN or infinite, in row order.
    pub fn first_not_finite(&self) -> Option<(usize, usize)> {
        self.iter().enumerate().find_map(|(i, row)| {
            // Without a branch per value, the compiler uses vectors.
            let clean = row.iter().fold(true, |clean, x| clean & x.finite());
            if clean { None } else { row.iter().position(|x| !x.finite()).map(|t| (i, t)) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_whose_end_overflows_do_not_fit() {
        let data = [1.0f32; 8];
        // In wrapping arithmetic, each of these ends within the data.
        for (rows, cols, stride) in
            [((1 << 62) + 1, 1, 4), ((1 << 63) + 1, 2, 2), (3, 2, 1 << 63), (2, 9, usize::MAX - 8)]
        {
            let refused = std::panic::catch_unwind(|| MatRef::with_stride(&data, rows, cols, stride));
            let message = refused.unwrap_err();
            let message = message.downcast_ref::<String>().expect("a formatted message");
            assert_eq!(*message, format!("{rows} rows do not fit the data"));
        }
        assert_eq!(MatRef::with_stride(&data, 2, 4, 4).row(1), [1.0; 4]);
        assert_eq!(MatRef::with_stride(&data, 0, 9, usize::MAX).rows(), 0);
    }

    #[test]
    fn what_does_not_fit_into_memory_is_refused() {
        let mut out = vec![1u32];
        make_room(&mut out, "labels", 5, 3).unwrap();
        assert!(out.capacity() >= 16);
        for (rows, width) in [(u64::MAX, 1), (1 << 40, usize::MAX), (1 << 60, 1), (1 << 50, 1 << 3)] {
            let refused = make_room(&mut out, "labels", rows, width).unwrap_err();
            assert!(matches!(refused, Error::Memory(_)), "{refused:?}");
            assert!(refused.to_string().starts_with("there is no memory for labels: "), "{refused}");
        }
        assert_eq!(
            make_room(&mut Vec::<u64>::new(), "labels", u64::MAX, 4).unwrap_err().to_string(),
            format!(
                "there is no memory for labels: {} rows of 4 values take {} bytes",
                u64::MAX,
                u128::from(u64::MAX) * 32
            )
        );
    }
}
