//! The rows of a source with the columns shifted and scaled.

use std::ops::Range;
use std::sync::Arc;

use super::forward;
use crate::data::any::ComputeType;
use crate::data::{Access, AnySource, Block, DataSource, Source, TileReader, Visit, wrong_tile};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, SparseRef};

/// The rows of a source as `(x - mean) / scale`, per column. [`ColumnMoments`](crate::stats::ColumnMoments) measures
/// both.
///
/// Values are computed in `f64` when a row is read, and rounded once to the compute type. Sparse rows stay sparse:
/// their mean must be 0.
///
/// ```
/// use shoal::KMeans;
/// use shoal::data::{DataSource, Standardized};
/// let rows = Standardized::new([[1.0f32, 20.0], [3.0, 60.0]], &[2.0, 40.0], &[1.0, 20.0])?;
/// let mut found = Vec::new();
/// rows.gather(&[0, 1], &mut found)?;
/// assert_eq!(found, [-1.0, -1.0, 1.0, 1.0]);
/// assert_eq!(KMeans::params(1).fit(&rows)?.centers::<f32>(), [0.0, 0.0]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Standardized<S> {
    source: S,
    by: Arc<Standard>,
    compute: ComputeType<Self>,
}

/// What is subtracted from the columns, and what they are divided by.
#[derive(Debug)]
pub(crate) struct Standard {
    mean: Vec<f64>,
    scale: Vec<f64>,
}

impl Standard {
    /// Checks the values for rows of `dim` columns, which are sparse or dense.
    pub(crate) fn new(dim: usize, sparse: bool, mean: &[f64], scale: &[f64]) -> Result<Self> {
        for (name, values) in [("mean", mean), ("scale", scale)] {
            if values.len() != dim {
                let found = values.len();
                return Err(Error::Shape(format!("{name} has {found} values, `rows` have {dim} columns")));
            }
        }
        let refused = |name, allowed: &str, values: &[f64], bad: usize| {
            Err(Error::param(name, allowed, format!("{} at column {bad}", values[bad])))
        };
        if let Some(bad) = mean.iter().position(|x| !x.is_finite()) {
            return refused("mean", "finite", mean, bad);
        }
        if let Some(bad) = scale.iter().position(|&x| !(x.is_finite() && x > 0.0)) {
            return refused("scale", "finite and above 0", scale, bad);
        }
        if let Some(bad) = mean.iter().position(|&x| sparse && x != 0.0) {
            return refused(
                "mean",
                "0 for sparse rows, because any other mean would fill in the zeros",
                mean,
                bad,
            );
        }
        Ok(Self { mean: mean.to_vec(), scale: scale.to_vec() })
    }

    fn change<T: Float>(&self, rows: &mut [T]) {
        for row in rows.chunks_exact_mut(self.mean.len()) {
            for ((x, mean), scale) in row.iter_mut().zip(&self.mean).zip(&self.scale) {
                *x = T::from_f64((x.to_f64() - mean) / scale);
            }
        }
    }

    /// Changes the sparse rows from number `first` on.
    fn change_stored<T: Float>(&self, rows: &mut RowBuf<T>, first: usize) {
        let first = rows.starts[first];
        for (x, &column) in rows.values[first..].iter_mut().zip(&rows.columns[first..]) {
            *x = T::from_f64(x.to_f64() / self.scale[column as usize]);
        }
    }
}

impl<S> Standardized<S> {
    /// The rows of `source` as `(x - mean) / scale`, with one value of each per column. For the type parameter see
    /// [`Weighted::new`](super::Weighted::new).
    ///
    /// # Errors
    /// [`Error::Shape`] if `mean` or `scale` has not one value per column, [`Error::InvalidParam`] for a mean that is
    /// not finite, or not 0 for sparse rows, and for a scale that is not finite and above 0.
    ///
    /// ```
    /// use shoal::data::Standardized;
    /// let refused = Standardized::new([[3.0f32]], &[0.0], &[0.0]).unwrap_err();
    /// assert_eq!(refused.to_string(), "scale must be finite and above 0, got 0 at column 0");
    /// ```
    pub fn new<T: Float>(source: S, mean: &[f64], scale: &[f64]) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let by = Standard::new(source.dim(), source.most_values().is_some(), mean, scale)?;
        Ok(Self::by(source, Arc::new(by)))
    }

    /// The rows of `source` with a change that was made for its columns.
    pub(crate) fn by<T: Float>(source: S, by: Arc<Standard>) -> Self
    where
        S: DataSource<T>,
    {
        Self { source, by, compute: ComputeType::of::<T>() }
    }
}

/// Rows of one block, standardized.
struct StandardRows<'a, T: Float> {
    whole: &'a dyn TileReader<T>,
    by: &'a Standard,
}

impl<T: Float> TileReader<T> for StandardRows<'_, T> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        Ok(MatRef::new(self.copy_tile(rows, scratch)?, self.by.mean.len()))
    }
    fn copy_tile<'s>(&self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<&'s mut [T]> {
        let (n, cols) = (rows.len(), self.by.mean.len());
        let values = self.whole.copy_tile(rows, scratch)?;
        if values.len() != n * cols {
            return Err(wrong_tile(values.len() / cols, n));
        }
        self.by.change(values);
        Ok(values)
    }
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Result<Option<SparseRef<'s, T>>> {
        // The stored values may lie in the source: they are copied before they are changed.
        let mut buffer = RowBuf::default();
        let Some(tile) = self.whole.sparse(rows, picked, &mut buffer)? else {
            return Ok(None);
        };
        scratch.begin_sparse(tile.cols());
        scratch.extend(tile.into());
        self.by.change_stored(scratch, 0);
        Ok(scratch.as_sparse())
    }
}

impl<T: Float, S: DataSource<T>> DataSource<T> for Standardized<S> {
    // A tiny scale makes finite values infinite: `always_finite` is not forwarded.
    forward!(source: dim rows access weights most_values);

    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.source.for_each_block(tile_rows, &mut |block: Block<'_, T>| {
            f(Block { rows: &StandardRows { whole: block.rows, by: &self.by }, ..block })
        })
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.source.for_each_block_from(row, tile_rows, &mut |block: Block<'_, T>| {
            f(Block { rows: &StandardRows { whole: block.rows, by: &self.by }, ..block })
        })
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let before = out.len();
        self.source.gather(rows, out)?;
        self.by.change(&mut out[before..]);
        Ok(())
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        let before = out.len();
        self.source.copy(rows, out)?;
        if out.is_sparse() {
            self.by.change_stored(out, before);
        } else {
            let cols = out.cols();
            self.by.change(&mut out.values[before * cols..]);
        }
        Ok(())
    }
}

impl<S> Source for Standardized<S> {
    fn any(&self) -> AnySource<'_> {
        self.compute.any(self)
    }
}
