//! Rows in memory: slices, matrices and array views.

use super::raw::{Element, RawRows};
use super::source::forward;
use super::{Access, DataSource, Tile, TileReader, Visit, Wanted};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, Rows};

/// Borrowed rows of `f32` or `f64` in a flat slice, read in place. For rows of other types see [`RawRows`].
///
/// A slice of arrays, for example `[[f32; 2]]`, and a [`MatRef`] are sources themselves.
///
/// ```
/// use shoal::KMeans;
/// use shoal::data::{DataSource, Dense};
/// let rows = Dense::new(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], 3)?;
/// assert_eq!((rows.dim(), rows.rows()), (3, Some(2)));
/// assert_eq!(KMeans::params(1).fit(&rows)?.centers::<f64>(), [2.5, 3.5, 4.5]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dense<'a, T>(MatRef<'a, T>);

impl<'a, T: Float> Dense<'a, T> {
    /// Rows of `cols` values in a flat slice, one after the other.
    ///
    /// # Errors
    /// [`Error::Empty`] for 0 columns, [`Error::Shape`] when `values` is not a whole number of rows.
    ///
    /// ```
    /// let refused = shoal::data::Dense::new(&[1.0f32, 2.0, 3.0], 2).unwrap_err();
    /// assert_eq!(refused.to_string(), "3 values do not divide into rows of 2 columns");
    /// ```
    pub fn new(values: &'a [T], cols: usize) -> Result<Self> {
        if cols == 0 {
            return Err(Error::Empty("rows need at least 1 column, got 0".into()));
        }
        if !values.len().is_multiple_of(cols) {
            return Err(Error::Shape(format!(
                "{} values do not divide into rows of {cols} columns",
                values.len()
            )));
        }
        Ok(Self(MatRef::new(values, cols)))
    }

    /// The rows as a matrix.
    ///
    /// ```
    /// let rows = shoal::data::Dense::new(&[1.0f32, 2.0], 2).unwrap();
    /// assert_eq!(rows.matrix().row(0), [1.0, 2.0]);
    /// ```
    pub fn matrix(&self) -> MatRef<'a, T> {
        self.0
    }
}

impl<'a, T: Float> From<MatRef<'a, T>> for Dense<'a, T> {
    fn from(rows: MatRef<'a, T>) -> Self {
        Self(rows)
    }
}

impl<T: Float> TileReader<T> for MatRef<'_, T> {
    fn read(&self, wanted: Wanted<'_>, _buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        Ok(Some(Tile::InPlace(self.slice(wanted.rows.start, wanted.rows.end).into())))
    }
}

impl<T: Float> DataSource<T> for MatRef<'_, T> {
    forward!(|this| Rows::from(*this) => dim rows access for_each_block gather copy);
}

impl<T: Float> DataSource<T> for Dense<'_, T> {
    forward!(|this| this.0 => dim rows access for_each_block gather copy);
}

/// Implements [`DataSource`] for rows of stored values that `$raw` borrows as [`RawRows`].
macro_rules! stored_rows {
    (
        [$($generics:tt)*] $t:ty,
        rows: |$of_rows:pat_param| $rows:expr,
        dim: |$of_dim:pat_param| $dim:expr,
        raw: |$this:ident| $raw:expr
    ) => {
        /// Rows of values of any stored type: `f32` and `f64` are read in place, other types are converted a
        /// tile at a time.
        impl<E: Element, $($generics)*> DataSource<E::Compute> for $t {
            fn dim(&self) -> usize {
                let $of_dim = self;
                $dim
            }
            fn rows(&self) -> Option<u64> {
                let $of_rows = self;
                Some($rows as u64)
            }
            fn access(&self) -> Access {
                Access::Random
            }
            fn always_finite(&self) -> bool {
                !E::DTYPE.is_float()
            }
            fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, E::Compute>) -> Result<()> {
                let $this = self;
                $raw?.for_each_block(tile_rows, f)
            }
            fn gather(&self, rows: &[u64], out: &mut Vec<E::Compute>) -> Result<()> {
                let $this = self;
                $raw?.gather(rows, out)
            }
        }
    };
}

stored_rows!(
    [const D: usize] [[E; D]],
    rows: |this| this.len(),
    dim: |_| D,
    raw: |this| RawRows::new(this.as_flattened(), D)
);
stored_rows!(
    [const D: usize, const N: usize] [[E; D]; N],
    rows: |_| N,
    dim: |_| D,
    raw: |this| RawRows::new(this.as_flattened(), D)
);
stored_rows!(
    [const D: usize] Vec<[E; D]>,
    rows: |this| this.len(),
    dim: |_| D,
    raw: |this| RawRows::new(this.as_flattened(), D)
);
stored_rows!(
    [S: ndarray::Data<Elem = E> + Sync] ndarray::ArrayBase<S, ndarray::Ix2>,
    rows: |this| this.nrows(),
    dim: |this| this.ncols(),
    raw: |this| RawRows::from_view(&this.view())
);

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    fn all<T: Float>(source: &(impl DataSource<T> + ?Sized)) -> Vec<T> {
        let mut out = Vec::new();
        let mut scratch = Vec::new();
        source
            .for_each_block(4, &mut |block| {
                assert_eq!(block.first_row, 0);
                block
                    .rows
                    .tile(0..block.len, &mut scratch)?
                    .iter()
                    .for_each(|row| out.extend_from_slice(row));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        let mut gathered = Vec::new();
        let rows: Vec<u64> = (0..source.rows().unwrap()).collect();
        source.gather(&rows, &mut gathered).unwrap();
        assert_eq!(out, gathered);
        out
    }

    #[test]
    fn slices_matrices_and_vectors_are_sources() {
        let rows = [[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]];
        let flat = rows.as_flattened();
        assert_eq!(all(&rows[..]), flat);
        assert_eq!(all(&rows.to_vec()), flat);
        assert_eq!(all(&Dense::new(flat, 2).unwrap()), flat);
        assert_eq!(all(&Dense::from(MatRef::with_stride(flat, 3, 1, 2))), [1.0, 3.0, 5.0]);
        assert_eq!(DataSource::<f32>::dim(&rows[..]), 2);
    }

    #[test]
    fn matrices_are_read_in_place() {
        let values = [1.0f64, 2.0, 3.0, 4.0];
        let source = Dense::new(&values, 2).unwrap();
        source
            .for_each_block(1, &mut |block| {
                let mut scratch = Vec::new();
                assert!(std::ptr::eq(
                    block.rows.tile(1..2, &mut scratch)?.data().as_ptr(),
                    &raw const values[2]
                ));
                Ok(ControlFlow::Break(()))
            })
            .unwrap();
    }

    #[test]
    fn no_rows_are_no_block() {
        let source = Dense::<f32>::new(&[], 2).unwrap();
        source.for_each_block(1, &mut |_| panic!("there is no row")).unwrap();
    }

    #[test]
    fn refusals_name_the_row_and_the_shape() {
        let source = Dense::new(&[1.0f32, 2.0], 1).unwrap();
        let refused = source.gather(&[0, 2], &mut Vec::new()).unwrap_err();
        assert_eq!(refused.to_string(), "row 2 does not exist");
        assert_eq!(Dense::<f32>::new(&[], 0).unwrap_err().to_string(), "rows need at least 1 column, got 0");
    }

    #[test]
    fn array_views_of_any_strides_are_sources() {
        let array = ndarray::Array2::from_shape_fn((7, 5), |(i, j)| (i * 10 + j) as f32);
        let views = [
            array.view(),
            array.t(),
            array.slice(ndarray::s![..;2, 1..4]),
            array.slice(ndarray::s![..;-1, ..;-2]),
            array.slice(ndarray::s![2..3, ..]),
            array.slice(ndarray::s![.., 3..4]),
        ];
        for view in views {
            assert_eq!(all(&view), view.iter().copied().collect::<Vec<_>>());
        }
        assert_eq!(all(&array), array.iter().copied().collect::<Vec<_>>());
    }
}
