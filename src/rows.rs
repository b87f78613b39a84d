//! Dense or sparse rows that are processed together.

use crate::float::Float;
use crate::matrix::MatRef;

/// Borrowed sparse rows: per row, the stored values and their columns in strictly ascending order. All other
/// values are 0.
///
/// ```
/// use shoal::SparseRef;
/// // [0, 2, 0] and [1, 0, 3].
/// let rows = SparseRef::new(&[0, 1, 3], &[1, 0, 2], &[2.0f32, 1.0, 3.0], 3);
/// assert_eq!((rows.rows(), rows.cols(), rows.row(1)), (2, 3, (&[0, 2][..], &[1.0, 3.0][..])));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SparseRef<'a, T> {
    /// The position of the first stored value per row, and the end of the last row.
    starts: &'a [usize],
    columns: &'a [i32],
    values: &'a [T],
    cols: usize,
}

impl<'a, T: Float> SparseRef<'a, T> {
    /// Rows of `cols` columns: row `i` has the stored values `starts[i]..starts[i + 1]`. The columns of a row
    /// must ascend from 0 on and be below `cols`, which is not checked: otherwise distances are wrong, or a kernel
    /// panics.
    ///
    /// # Panics
    /// When `starts` is empty or does not ascend within the values, or there is not one column per value.
    pub fn new(starts: &'a [usize], columns: &'a [i32], values: &'a [T], cols: usize) -> Self {
        assert!(columns.len() == values.len(), "one column a value");
        assert!(starts.is_sorted() && starts.last().is_some_and(|&end| end <= values.len()), "rows in order");
        Self { starts, columns, values, cols }
    }

    /// Number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of columns.
    #[inline]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The columns and the stored values of a row.
    ///
    /// # Panics
    /// When `i` is not below the number of rows.
    #[inline]
    pub fn row(&self, i: usize) -> (&'a [i32], &'a [T]) {
        let stored = self.starts[i]..self.starts[i + 1];
        (&self.columns[stored.clone()], &self.values[stored])
    }

    /// The rows `start..end`.
    ///
    /// # Panics
    /// When the range does not lie within the rows.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        Self { starts: &self.starts[start..=end], ..*self }
    }

    /// All rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [i32], &'a [T])> + use<'a, T> {
        let rows = *self;
        (0..rows.rows()).map(move |i| rows.row(i))
    }
}

/// Borrowed rows, dense or sparse, as kernels take them.
///
/// ```
/// use shoal::{MatRef, Rows, SparseRef};
/// let dense = Rows::from(MatRef::new(&[0.0f32, 2.0], 2));
/// let sparse = Rows::from(SparseRef::new(&[0, 1], &[1], &[2.0f32], 2));
/// assert_eq!((dense.rows(), dense.cols()), (sparse.rows(), sparse.cols()));
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a, T> {
    /// Rows with all values.
    Dense(MatRef<'a, T>),
    /// Rows with stored values only.
    Sparse(SparseRef<'a, T>),
}

impl<'a, T> From<MatRef<'a, T>> for Rows<'a, T> {
    fn from(rows: MatRef<'a, T>) -> Self {
        Self::Dense(rows)
    }
}

impl<'a, T> From<SparseRef<'a, T>> for Rows<'a, T> {
    fn from(rows: SparseRef<'a, T>) -> Self {
        Self::Sparse(rows)
    }
}

impl<T: Float> Rows<'_, T> {
    /// Number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        match self {
            Self::Dense(rows) => rows.rows(),
            Self::Sparse(rows) => rows.rows(),
        }
    }

    /// Number of columns.
    #[inline]
    pub fn cols(&self) -> usize {
        match self {
            Self::Dense(rows) => rows.cols(),
            Self::Sparse(rows) => rows.cols(),
        }
    }

    /// The rows `start..end`.
    ///
    /// # Panics
    /// When the range does not lie within the rows.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        match self {
            Self::Dense(rows) => Self::Dense(rows.slice(start, end)),
            Self::Sparse(rows) => Self::Sparse(rows.slice(start, end)),
        }
    }

    /// Row, column and value of the first value that is NaN or infinite.
    pub fn first_not_finite(&self) -> Option<(usize, usize, T)> {
        match self {
            Self::Dense(rows) => rows.first_not_finite().map(|(i, column)| (i, column, rows.row(i)[column])),
            Self::Sparse(rows) => rows.iter().enumerate().find_map(|(i, (columns, values))| {
                let bad = values.iter().position(|x| !x.finite())?;
                Some((i, columns[bad] as usize, values[bad]))
            }),
        }
    }

    /// The stored values of a row: all values of a dense row.
    ///
    /// # Panics
    /// When `i` is not below the number of rows.
    pub fn stored(&self, i: usize) -> &[T] {
        match self {
            Self::Dense(rows) => rows.row(i),
            Self::Sparse(rows) => rows.row(i).1,
        }
    }
}

/// A buffer of copied rows, dense or sparse like its first row.
///
/// ```
/// use shoal::{RowBuf, Rows, SparseRef};
/// let rows = Rows::from(SparseRef::new(&[0, 1, 1], &[1], &[2.0f32], 2));
/// let mut copied = RowBuf::new(2);
/// copied.push(rows, 1);
/// copied.push(rows, 0);
/// assert!(copied.is_sparse() && copied.rows().stored(1) == [2.0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RowBuf<T> {
    cols: usize,
    /// All values of dense rows, the stored values of sparse rows.
    pub(crate) values: Vec<T>,
    /// The columns of sparse rows, and the positions of their first values; empty for dense rows.
    pub(crate) columns: Vec<i32>,
    pub(crate) starts: Vec<usize>,
}

impl<T: Float> RowBuf<T> {
    /// An empty buffer for rows of `cols` columns.
    pub fn new(cols: usize) -> Self {
        Self { cols, ..Self::default() }
    }

    /// An empty buffer for sparse rows of `cols` columns.
    pub(crate) fn sparse(cols: usize) -> Self {
        Self { starts: vec![0], ..Self::new(cols) }
    }

    /// Dense rows of `cols` columns.
    pub(crate) fn of_values(values: Vec<T>, cols: usize) -> Self {
        Self { values, ..Self::new(cols) }
    }

    /// Drops all rows; the next rows are sparse, of `cols` columns.
    pub(crate) fn begin_sparse(&mut self, cols: usize) {
        self.clear(cols);
        self.starts.push(0);
    }

    /// Drops all rows; the next rows are dense or sparse, of `cols` columns.
    pub(crate) fn clear(&mut self, cols: usize) {
        self.cols = cols;
        self.values.clear();
        self.columns.clear();
        self.starts.clear();
    }

    /// Makes room for `n` dense rows of `cols` columns, whose values are undefined.
    pub(crate) fn room(&mut self, n: usize, cols: usize) -> &mut [T] {
        self.cols = cols;
        self.columns.clear();
        self.starts.clear();
        self.values.resize(n * cols, T::ZERO);
        &mut self.values
    }

    /// The values of a row, and the columns of a sparse row.
    ///
    /// # Panics
    /// When `i` is not below the number of rows.
    pub(crate) fn row_mut(&mut self, i: usize) -> (&mut [T], Option<&[i32]>) {
        if self.is_sparse() {
            let stored = self.starts[i]..self.starts[i + 1];
            (&mut self.values[stored.clone()], Some(&self.columns[stored]))
        } else {
            (&mut self.values[i * self.cols..][..self.cols], None)
        }
    }

    /// The rows, if they are sparse.
    pub(crate) fn as_sparse(&self) -> Option<SparseRef<'_, T>> {
        let Self { starts, columns, values, cols } = self;
        self.is_sparse().then(|| SparseRef { starts, columns, values, cols: *cols })
    }

    /// Whether the rows are sparse.
    pub fn is_sparse(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        if self.is_sparse() { self.starts.len() - 1 } else { self.values.len() / self.cols.max(1) }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the rows take.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.values[..]) + size_of_val(&self.columns[..]) + size_of_val(&self.starts[..])
    }

    /// Ends a sparse row after its values and columns were appended.
    pub(crate) fn end_row(&mut self) {
        self.starts.push(self.values.len());
    }

    /// Copies a row, dense or sparse, in the layout of this buffer.
    ///
    /// # Panics
    /// When the row does not exist, or has another number of columns.
    pub fn push(&mut self, rows: Rows<'_, T>, i: usize) {
        assert_eq!(rows.cols(), self.cols, "rows of one length");
        if self.is_empty() {
            self.starts.clear();
            self.starts.extend(matches!(rows, Rows::Sparse(_)).then_some(0));
        }
        match (rows, self.is_sparse()) {
            (Rows::Dense(rows), false) => self.values.extend_from_slice(rows.row(i)),
            (Rows::Sparse(rows), false) => {
                let first = self.values.len();
                self.values.resize(first + self.cols, T::ZERO);
                spread(rows.row(i), &mut self.values[first..]);
            }
            (Rows::Dense(rows), true) => {
                for (column, &x) in rows.row(i).iter().enumerate() {
                    // NaN is not zero: it is stored, so that the check for finite values finds it.
                    if x != T::ZERO {
                        self.values.push(x);
                        self.columns.push(column as i32);
                    }
                }
                self.end_row();
            }
            (Rows::Sparse(rows), true) => {
                let (columns, values) = rows.row(i);
                self.values.extend_from_slice(values);
                self.columns.extend_from_slice(columns);
                self.end_row();
            }
        }
    }

    /// Copies all of the given rows.
    pub(crate) fn extend(&mut self, rows: Rows<'_, T>) {
        match rows {
            // Rows without gaps are one piece.
            Rows::Dense(all) if all.cols() == self.cols && all.stride() == self.cols && !self.is_sparse() => {
                self.values.extend_from_slice(&all.data()[..all.rows() * self.cols]);
            }
            _ => (0..rows.rows()).for_each(|i| self.push(rows, i)),
        }
    }

    /// Keeps the first `n` rows.
    pub(crate) fn truncate(&mut self, n: usize) {
        if n >= self.len() {
            return;
        }
        if self.is_sparse() {
            self.starts.truncate(n + 1);
            self.values.truncate(self.starts[n]);
            self.columns.truncate(self.starts[n]);
        } else {
            self.values.truncate(n * self.cols);
        }
    }

    /// Drops the first `n` rows.
    pub(crate) fn drop_first(&mut self, n: usize) {
        if self.is_sparse() {
            let stored = self.starts[n];
            self.values.drain(..stored);
            self.columns.drain(..stored);
            self.starts.drain(..n);
            self.starts.iter_mut().for_each(|start| *start -= stored);
        } else {
            self.values.drain(..n * self.cols);
        }
    }

    /// The rows.
    pub fn rows(&self) -> Rows<'_, T> {
        if self.is_sparse() {
            SparseRef { starts: &self.starts, columns: &self.columns, values: &self.values, cols: self.cols }
                .into()
        } else {
            MatRef::new(&self.values, self.cols).into()
        }
    }
}

/// Writes the stored values of a row into `out`, which holds zeros.
pub(crate) fn spread<T: Float>((columns, values): (&[i32], &[T]), out: &mut [T]) {
    for (&column, &x) in columns.iter().zip(values) {
        out[column as usize] = x;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_of_either_kind_are_kept_as_they_are(
            rows in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![0.0f32, 1.0, -2.5]), 4), 1..12),
            sparse in prop::collection::vec(any::<bool>(), 12), keep in 0usize..12, gone in 0usize..12,
        ) {
            let mut copied = RowBuf::new(4);
            for (row, &as_sparse) in rows.iter().zip(&sparse) {
                let mut one = RowBuf::sparse(4);
                if as_sparse {
                    for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                        one.values.push(x);
                        one.columns.push(column as i32);
                    }
                    one.end_row();
                    copied.push(one.rows(), 0);
                } else {
                    copied.push(MatRef::new(row, 4).into(), 0);
                }
            }
            prop_assert_eq!(copied.is_sparse(), sparse[0]);
            let (keep, len) = (keep.min(rows.len()), rows.len());
            let gone = gone.min(keep);
            prop_assert_eq!(copied.len(), len);
            copied.truncate(keep);
            copied.drop_first(gone);
            prop_assert_eq!(copied.len(), keep - gone);
            for (i, row) in rows[gone..keep].iter().enumerate() {
                let mut found = vec![0.0; 4];
                match copied.rows() {
                    Rows::Dense(rows) => found.copy_from_slice(rows.row(i)),
                    Rows::Sparse(rows) => spread(rows.row(i), &mut found),
                }
                prop_assert_eq!(&found, row);
            }
        }
    }
}
