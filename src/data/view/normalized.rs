//! The rows of a source divided by their norms.

use std::ops::Range;

use super::forward;
use crate::data::any::ComputeType;
use crate::data::{Access, AnySource, Block, DataSource, Source, TileReader, Visit, wrong_tile};
use crate::error::Result;
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, SparseRef};

/// The rows of a source divided by their Euclidean norms, for clustering by angle. Rows of zeros stay as they are.
///
/// ```
/// use shoal::KMeans;
/// use shoal::data::{DataSource, Normalized};
/// let rows = Normalized::new([[3.0f32, 4.0], [0.0, 0.0]]);
/// let mut found = Vec::new();
/// rows.gather(&[0, 1], &mut found)?;
/// assert_eq!(found, [0.6, 0.8, 0.0, 0.0]);
/// assert_eq!(KMeans::params(1).fit(&rows)?.centers::<f32>(), [0.3, 0.4]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Normalized<S> {
    source: S,
    compute: ComputeType<Self>,
}

impl<S> Normalized<S> {
    /// The rows of `source`, each divided by its norm when it is read. For the type parameter see
    /// [`Weighted::new`](super::Weighted::new).
    ///
    /// ```
    /// use shoal::data::{Normalized, RawRows};
    /// let _ = Normalized::new([[3.0f32, 4.0]]);
    /// let _ = Normalized::new::<f32>(RawRows::new(&[3u8, 4], 2).unwrap());
    /// ```
    pub fn new<T: Float>(source: S) -> Self
    where
        S: DataSource<T>,
    {
        Self { source, compute: ComputeType::of::<T>() }
    }
}

/// Sum of squares in a fixed order that can be vectorized.
fn sq_norm<T: Float>(row: &[T], scale: f64) -> f64 {
    let mut sums = [0.0f64; 8];
    for part in row.chunks(sums.len()) {
        for (sum, x) in sums.iter_mut().zip(part) {
            let x = x.to_f64() * scale;
            *sum += x * x;
        }
    }
    sums.iter().sum()
}

fn normalize<T: Float>(row: &mut [T]) {
    let largest = |row: &[T]| row.iter().fold(0.0f64, |most, x| most.max(x.to_f64().abs()));
    let (mut norm, mut scale) = (sq_norm(row, 1.0), 1.0);
    if !norm.is_normal() {
        if row.iter().any(|x| !x.finite()) {
            // The check for finite values names the value and its column.
            return;
        }
        // The squares overflow or underflow f64, but the values may not.
        let most = largest(row);
        if most == 0.0 {
            return;
        }
        // A power of two rounds nothing; its inverse must be finite too.
        scale = (-most.log2().floor()).clamp(-1022.0, 1022.0).exp2();
        norm = sq_norm(row, scale);
    }
    let norm = norm.sqrt();
    if size_of::<T>() < 8 {
        // One division per value would take most of the time, and rounding to T hides the difference.
        let inverse = norm.recip();
        for x in row {
            *x = T::from_f64(x.to_f64() * scale * inverse);
        }
    } else {
        for x in row {
            *x = T::from_f64(x.to_f64() * scale / norm);
        }
    }
}

/// Divides each of several rows by its Euclidean norm, as [`Normalized`] does.
pub(crate) fn normalize_rows<T: Float>(rows: &mut [T], cols: usize) {
    rows.chunks_exact_mut(cols).for_each(normalize);
}

/// Divides sparse rows from number `first` on by their norms.
fn normalize_stored<T: Float>(rows: &mut RowBuf<T>, first: usize) {
    let RowBuf { starts, values, .. } = rows;
    starts[first..].windows(2).for_each(|row| normalize(&mut values[row[0]..row[1]]));
}

/// Rows of one block, divided by their norms.
struct NormalizedRows<'a, T: Float> {
    whole: &'a dyn TileReader<T>,
    cols: usize,
}

impl<T: Float> TileReader<T> for NormalizedRows<'_, T> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        Ok(MatRef::new(self.copy_tile(rows, scratch)?, self.cols))
    }
    fn copy_tile<'s>(&self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<&'s mut [T]> {
        let n = rows.len();
        let values = self.whole.copy_tile(rows, scratch)?;
        if values.len() != n * self.cols {
            return Err(wrong_tile(values.len() / self.cols.max(1), n));
        }
        normalize_rows(values, self.cols);
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
        normalize_stored(scratch, 0);
        Ok(scratch.as_sparse())
    }
}

impl<T: Float, S: DataSource<T>> DataSource<T> for Normalized<S> {
    forward!(source: dim rows access weights always_finite most_values);

    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        let cols = self.source.dim();
        let f = &mut |block: Block<'_, T>| {
            f(Block { rows: &NormalizedRows { whole: block.rows, cols }, ..block })
        };
        self.source.for_each_block(tile_rows, f)
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        let cols = self.source.dim();
        let f = &mut |block: Block<'_, T>| {
            f(Block { rows: &NormalizedRows { whole: block.rows, cols }, ..block })
        };
        self.source.for_each_block_from(row, tile_rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let before = out.len();
        self.source.gather(rows, out)?;
        normalize_rows(&mut out[before..], self.source.dim());
        Ok(())
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        let before = out.len();
        self.source.copy(rows, out)?;
        if out.is_sparse() {
            normalize_stored(out, before);
        } else {
            let cols = out.cols();
            normalize_rows(&mut out.values[before * cols..], cols);
        }
        Ok(())
    }
}

impl<S> Source for Normalized<S> {
    fn any(&self) -> AnySource<'_> {
        self.compute.any(self)
    }
}
