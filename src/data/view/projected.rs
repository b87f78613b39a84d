//! The rows of a source in the coordinates of other axes.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, LinalgScalar, ShapeBuilder};

use super::transformed::{RowMap, Transformed, Unmapped};
use crate::data::{Access, Converted, DataSource, Wanted, copy_to, gather};
use crate::error::{Error, Result};
use crate::float::{Float, PerFloat};
use crate::matrix::{MatRef, array_of_rows, make_room};
use crate::rows::{RowBuf, Rows};

/// The rows of a source as `(x - mean) components'`: one column per component, for example of a principal component
/// analysis.
///
/// Rows are projected when they are read, in every pass. Differences from the mean are computed in `f64` and rounded to
/// the compute type. Products are summed in the compute type: in blocks of 256 columns, with fused multiply-adds where
/// the processor has them, so other processors may round differently. Sparse rows become dense, and their mean is
/// subtracted after the products.
///
/// A pass takes about as many operations as the distances from the projected rows to `source.dim()` centers.
///
/// With the feature `blas` of `ndarray`, the BLAS library computes the products. The bits of a row may then depend on
/// the rows that are read with it.
///
/// ```
/// use shoal::{KMeans, MatRef};
/// use shoal::data::{DataSource, Projected};
/// let axes = [0.0, 1.0, 0.0, 0.6, 0.0, 0.8];
/// let rows = Projected::new([[1.0f32, 2.0, 3.0], [1.0, 2.0, 8.0]], MatRef::new(&axes, 3), Some(&[1.0, 1.0, 3.0]))?;
/// let mut found = Vec::new();
/// rows.gather(&[0, 1], &mut found)?;
/// assert_eq!((rows.dim(), &found[..]), (2, &[1.0, 0.0, 1.0, 4.0][..]));
/// assert_eq!(KMeans::params(1).fit(&rows)?.centers::<f32>(), [1.0, 2.0]);
/// # Ok::<(), shoal::Error>(())
/// ```
pub type Projected<S> = Transformed<S, Projection>;

/// Upper limit of the bytes of the rows that are read and multiplied together: they stay in the second-level cache.
const GROUP_BYTES: usize = 384 * 1024;

/// Limits of the number of these rows. Each product rearranges the components, which takes the time of a few rows.
const GROUP_ROWS: (usize, usize) = (16, 1024);

/// Dense rows without their mean, or sparse rows, and their products.
struct Product<'a>(PhantomData<&'a ()>);

impl<'a> PerFloat for Product<'a> {
    type Of<T: Float> = (Rows<'a, T>, &'a mut [T]);
}

/// The mean and the components for either compute type.
pub struct Projection {
    mean: Option<Vec<f64>>,
    /// The projected mean.
    offset: Vec<f64>,
    /// Components in columns.
    narrow: Array2<f32>,
    wide: Array2<f64>,
}

impl fmt::Debug for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Projection({} to {} columns)", self.wide.nrows(), self.cols())
    }
}

/// Writes the products of rows and components to `out`, which holds zeros.
///
/// `general_mat_mul` sums the products of a row by the same chain of additions, whichever rows are multiplied
/// together. A test checks that a row is bit-identical in every group.
fn multiply<T: Float + LinalgScalar>(rows: Rows<'_, T>, components: &Array2<T>, out: &mut [T]) {
    let (dim, cols) = components.dim();
    match rows {
        Rows::Dense(rows) => {
            let shape = (rows.rows(), dim).strides((rows.stride(), 1));
            let rows = ArrayView2::from_shape(shape, rows.data()).expect("rows of the source");
            let mut out = ArrayViewMut2::from_shape((rows.nrows(), cols), out).expect("room for all");
            general_mat_mul(T::one(), &rows, components, T::zero(), &mut out);
        }
        Rows::Sparse(rows) => {
            let components = components.as_slice().expect("row after row");
            for ((columns, values), out) in rows.iter().zip(out.chunks_exact_mut(cols)) {
                for (&column, &x) in columns.iter().zip(values) {
                    let weights = &components[column as usize * cols..][..cols];
                    out.iter_mut().zip(weights).for_each(|(sum, &weight)| *sum = *sum + x * weight);
                }
            }
        }
    }
}

impl Projection {
    /// Checks the components, one per row, for rows of `dim` columns.
    pub(crate) fn new(dim: usize, components: MatRef<'_, f64>, mean: Option<&[f64]>) -> Result<Self> {
        let (p, found) = (components.rows(), components.cols());
        if p == 0 {
            return Err(Error::Shape("components must have at least 1 row, got 0".into()));
        }
        if found != dim {
            return Err(Error::Shape(format!("components have {found} columns, `rows` have {dim}")));
        }
        if let Some((row, column)) = components.first_not_finite() {
            return Err(Error::not_finite("components", components.row(row)[column], row as u64, column));
        }
        if let Some(mean) = mean {
            if mean.len() != dim {
                return Err(Error::Shape(format!(
                    "mean has {} values, `rows` have {dim} columns",
                    mean.len()
                )));
            }
            if let Some(bad) = mean.iter().position(|x| !x.is_finite()) {
                return Err(Error::param("mean", "finite", format!("{} at column {bad}", mean[bad])));
            }
        }
        let mut values = Vec::new();
        make_room(&mut values, "components", p as u64, dim)?;
        for column in 0..dim {
            values.extend(components.iter().map(|row| row[column]));
        }
        let wide = array_of_rows(values, p);
        if let Some(large) = wide.iter().find(|x| x.abs() > f64::from(f32::MAX)) {
            return Err(Error::param("components", "at most 3.4e38 in magnitude", large.to_string()));
        }
        let narrow = wide.mapv(f32::from_f64);
        let offset = components.iter().map(|row| {
            let mean = mean.unwrap_or_default();
            row.iter().zip(mean).map(|(x, m)| x * m).sum()
        });
        Ok(Self { mean: mean.map(<[f64]>::to_vec), offset: offset.collect(), narrow, wide })
    }

    /// Number of components.
    pub(crate) fn cols(&self) -> usize {
        self.offset.len()
    }

    /// Number of rows that are read and multiplied together.
    fn group<T: Float>(&self) -> usize {
        (GROUP_BYTES / (self.wide.nrows() * size_of::<T>())).clamp(GROUP_ROWS.0, GROUP_ROWS.1)
    }

    /// Appends the projected rows to `out`, a group at a time.
    fn project<T: Float>(&self, rows: Rows<'_, T>, centered: &mut Vec<T>, out: &mut Vec<T>) {
        let group = self.group::<T>();
        for start in (0..rows.rows()).step_by(group) {
            self.project_group(rows.slice(start, rows.rows().min(start + group)), centered, out);
        }
    }

    fn project_group<T: Float>(&self, rows: Rows<'_, T>, centered: &mut Vec<T>, out: &mut Vec<T>) {
        let before = out.len();
        out.resize(before + rows.rows() * self.cols(), T::ZERO);
        let out = &mut out[before..];
        let rows = match (rows, &self.mean) {
            (Rows::Dense(rows), Some(mean)) => {
                centered.clear();
                for row in rows.iter() {
                    centered.extend(row.iter().zip(mean).map(|(x, mean)| T::from_f64(x.to_f64() - mean)));
                }
                MatRef::new(centered, mean.len()).into()
            }
            _ => rows,
        };
        T::choose::<Product<'_>, _>(
            (rows, &mut *out),
            |(rows, out)| multiply(rows, &self.narrow, out),
            |(rows, out)| multiply(rows, &self.wide, out),
        );
        if let Rows::Sparse(_) = rows {
            for row in out.chunks_exact_mut(self.cols()) {
                for (x, offset) in row.iter_mut().zip(&self.offset) {
                    *x = T::from_f64(x.to_f64() - offset);
                }
            }
        }
    }
}

impl<S> Projected<S> {
    /// The rows of `source` as `(x - mean) components'`. `components` has one row per column of the result. Without
    /// `mean`, nothing is subtracted. For the type parameter see [`Weighted::new`](super::Weighted::new).
    ///
    /// # Errors
    /// [`Error::Shape`] if `components` has no row or another number of columns than the source, or `mean` has not one
    /// value per column; [`Error::NotFinite`] and [`Error::InvalidParam`] for values that are NaN or infinite.
    ///
    /// ```
    /// use shoal::{MatRef, data::Projected};
    /// let refused = Projected::new([[3.0f32]], MatRef::new(&[1.0, 2.0], 2), None).unwrap_err();
    /// assert_eq!(refused.to_string(), "components have 2 columns, `rows` have 1");
    /// ```
    pub fn new<T: Float>(source: S, components: MatRef<'_, f64>, mean: Option<&[f64]>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let by = Projection::new(source.dim(), components, mean)?;
        Ok(Self::by(source, Arc::new(by)))
    }
}

impl RowMap for Projection {
    const KEEPS_SPARSE: bool = false;
    /// Sums may overflow.
    const KEEPS_FINITE: bool = false;

    fn cols(&self, _dim: usize) -> usize {
        Projection::cols(self)
    }
    fn read<T: Float>(
        &self,
        unmapped: &Unmapped<'_, T>,
        Wanted { rows, picked }: Wanted<'_>,
        buffer: &mut RowBuf<T>,
    ) -> Result<()> {
        let (group, cols) = (self.group::<T>(), self.cols());
        let (mut converted, mut centered) = (Converted::default(), Vec::new());
        let reader = unmapped.block.rows;
        let Some(picked) = picked else {
            buffer.clear(cols);
            for start in rows.clone().step_by(group) {
                let found = converted.read(reader, start..rows.end.min(start + group), None)?;
                self.project(found, &mut centered, &mut buffer.values);
            }
            return Ok(());
        };
        let out = buffer.room(rows.len(), cols);
        let (mut found, mut projected) = (RowBuf::default(), Vec::new());
        for picked in picked.chunks(group) {
            found.clear(unmapped.dim);
            for &r in picked {
                let at = rows.start + r as usize;
                found.extend(converted.read(reader, at..at + 1, None)?);
            }
            projected.clear();
            self.project(found.rows(), &mut centered, &mut projected);
            for (&r, row) in picked.iter().zip(projected.chunks_exact(cols)) {
                out[r as usize * cols..][..cols].copy_from_slice(row);
            }
        }
        Ok(())
    }
    fn copy<T: Float>(&self, source: &dyn DataSource<T>, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        // Each gather of a stream is a pass.
        let group = if source.access() == Access::Random { self.group::<T>() } else { rows.len().max(1) };
        let (before, mut found, mut centered) = (out.len(), RowBuf::default(), Vec::new());
        make_room(&mut out.values, "copied rows", rows.len() as u64, self.cols())?;
        let sparse = source.most_values().is_some();
        for group in rows.chunks(group) {
            found.clear(source.dim());
            let copied = if sparse {
                found.begin_sparse(source.dim());
                copy_to(source, group, &mut found)
            } else {
                gather(source, group, &mut found.values)
            };
            if let Err(error) = copied {
                out.truncate(before);
                return Err(error);
            }
            self.project(found.rows(), &mut centered, &mut out.values);
        }
        Ok(())
    }
}
