//! The rows of a source divided by their norms.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::forward;
use crate::data::any::ComputeType;
use crate::data::{Access, AnySource, Block, DataSource, Source, TileReader, Visit, wrong_tile};
use crate::error::Result;
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, SparseRef};

/// The rows of a source divided by their Euclidean norms, for clustering by angle. A row of zeros has no direction:
/// it stays at the origin, at distance 1 from all rows of length 1, and [`Normalized::zero_rows`] counts it.
///
/// ```
/// use shoal::KMeans;
/// use shoal::data::{DataSource, Normalized};
/// let rows = Normalized::new([[3.0f32, 4.0], [0.0, 0.0]]);
/// let mut found = Vec::new();
/// rows.gather(&[0, 1], &mut found)?;
/// assert_eq!((&found[..], rows.zero_rows()), (&[0.6, 0.8, 0.0, 0.0][..], 1));
/// assert_eq!(KMeans::params(1).fit(&rows)?.centers::<f32>(), [0.3, 0.4]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Normalized<S> {
    source: S,
    zeros: Arc<ZeroRows>,
    compute: ComputeType<Self>,
}

/// The numbers of the rows of zeros that were read: a bit per row, 64 to an entry. Memory and locks are needed only
/// where there are such rows.
#[derive(Debug, Default)]
pub(crate) struct ZeroRows(Mutex<BTreeMap<u64, u64>>);

impl ZeroRows {
    /// Adds rows.
    fn note(&self, rows: impl IntoIterator<Item = u64>) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            *known.entry(row / 64).or_default() |= 1 << (row % 64);
        }
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> u64 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// The entries in ascending order: 64 times the first number is the first row, and the second holds a bit per row.
    pub(crate) fn entries(&self) -> (Vec<u64>, Vec<u64>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().unzip()
    }

    /// Restores what [`ZeroRows::entries`] returned.
    pub(crate) fn of_entries(places: Vec<u64>, bits: Vec<u64>) -> Self {
        Self(Mutex::new(places.into_iter().zip(bits).collect()))
    }
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
        Self::noting(source, Arc::default())
    }

    /// As [`Normalized::new`], with a record of rows of zeros that outlives this source.
    pub(crate) fn noting<T: Float>(source: S, zeros: Arc<ZeroRows>) -> Self
    where
        S: DataSource<T>,
    {
        Self { source, zeros, compute: ComputeType::of::<T>() }
    }

    /// The number of different rows of zeros among the rows read so far.
    pub fn zero_rows(&self) -> u64 {
        self.zeros.count()
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

/// Divides a row by its norm, unless all of its values are 0. Returns whether they are.
fn normalize<T: Float>(row: &mut [T]) -> bool {
    let largest = |row: &[T]| row.iter().fold(0.0f64, |most, x| most.max(x.to_f64().abs()));
    let (mut norm, mut scale) = (sq_norm(row, 1.0), 1.0);
    if !norm.is_normal() {
        if row.iter().any(|x| !x.finite()) {
            // The check for finite values names the value and its column.
            return false;
        }
        // The squares overflow or underflow f64, but the values may not.
        let most = largest(row);
        if most == 0.0 {
            return true;
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
    false
}

/// Divides each of several rows by its Euclidean norm, as [`Normalized`] does. Returns the places of rows of zeros.
pub(crate) fn normalize_rows<T: Float>(rows: &mut [T], cols: usize) -> Vec<usize> {
    let places = rows.chunks_exact_mut(cols).enumerate();
    places.filter_map(|(place, row)| normalize(row).then_some(place)).collect()
}

/// Divides sparse rows from number `first` on by their norms. Returns the places, counted from `first`, of rows of
/// zeros.
fn normalize_stored<T: Float>(rows: &mut RowBuf<T>, first: usize) -> Vec<usize> {
    let RowBuf { starts, values, .. } = rows;
    let places = starts[first..].windows(2).enumerate();
    places.filter_map(|(place, row)| normalize(&mut values[row[0]..row[1]]).then_some(place)).collect()
}

/// Rows of one block, divided by their norms.
struct NormalizedRows<'a, T: Float> {
    whole: &'a dyn TileReader<T>,
    cols: usize,
    first_row: u64,
    zeros: &'a ZeroRows,
}

impl<'a, T: Float> NormalizedRows<'a, T> {
    fn of(block: &Block<'a, T>, cols: usize, zeros: &'a ZeroRows) -> Self {
        Self { whole: block.rows, cols, first_row: block.first_row, zeros }
    }

    /// Records rows of zeros by their ascending places in the rows from `start` on. Rows that were not picked are
    /// undefined.
    fn note(&self, mut places: Vec<usize>, start: usize, picked: Option<&[u32]>) {
        if let Some(picked) = picked.filter(|_| !places.is_empty()) {
            let found = picked.iter().map(|&place| place as usize);
            places = found.filter(|place| places.binary_search(place).is_ok()).collect();
        }
        self.zeros.note(places.into_iter().map(|place| self.first_row + (start + place) as u64));
    }
}

impl<T: Float> TileReader<T> for NormalizedRows<'_, T> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        Ok(MatRef::new(self.copy_tile(rows, scratch)?, self.cols))
    }
    fn copy_tile<'s>(&self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<&'s mut [T]> {
        let (start, n) = (rows.start, rows.len());
        let values = self.whole.copy_tile(rows, scratch)?;
        if values.len() != n * self.cols {
            return Err(wrong_tile(values.len() / self.cols.max(1), n));
        }
        self.note(normalize_rows(values, self.cols), start, None);
        Ok(values)
    }
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Result<Option<SparseRef<'s, T>>> {
        // The stored values may lie in the source: they are copied before they are changed.
        let (mut buffer, start) = (RowBuf::default(), rows.start);
        let Some(tile) = self.whole.sparse(rows, picked, &mut buffer)? else {
            return Ok(None);
        };
        scratch.begin_sparse(tile.cols());
        scratch.extend(tile.into());
        self.note(normalize_stored(scratch, 0), start, picked);
        Ok(scratch.as_sparse())
    }
}

impl<T: Float, S: DataSource<T>> DataSource<T> for Normalized<S> {
    forward!(source: dim rows access weights always_finite most_values);

    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        let cols = self.source.dim();
        let f = &mut |block: Block<'_, T>| {
            f(Block { rows: &NormalizedRows::of(&block, cols, &self.zeros), ..block })
        };
        self.source.for_each_block(tile_rows, f)
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        let cols = self.source.dim();
        let f = &mut |block: Block<'_, T>| {
            f(Block { rows: &NormalizedRows::of(&block, cols, &self.zeros), ..block })
        };
        self.source.for_each_block_from(row, tile_rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let before = out.len();
        self.source.gather(rows, out)?;
        let places = normalize_rows(&mut out[before..], self.source.dim());
        self.zeros.note(places.into_iter().map(|place| rows[place]));
        Ok(())
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        let before = out.len();
        self.source.copy(rows, out)?;
        let places = if out.is_sparse() {
            normalize_stored(out, before)
        } else {
            let cols = out.cols();
            normalize_rows(&mut out.values[before * cols..], cols)
        };
        self.zeros.note(places.into_iter().map(|place| rows[place]));
        Ok(())
    }
}

impl<S> Source for Normalized<S> {
    fn any(&self) -> AnySource<'_> {
        self.compute.any(self)
    }
}
