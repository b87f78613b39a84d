//! The rows of a source divided by their norms.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::transformed::{RowChange, Transformed};
use crate::data::DataSource;
use crate::float::Float;

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
pub type Normalized<S> = Transformed<S, ZeroRows>;

/// The numbers of the rows of zeros that were read: a bit per row, 64 to an entry. Memory and locks are needed only
/// where there are such rows.
#[derive(Debug, Default)]
pub struct ZeroRows(Mutex<BTreeMap<u64, u64>>);

impl ZeroRows {
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

impl RowChange for ZeroRows {
    const KEEPS_FINITE: bool = true;

    fn change<T: Float>(&self, values: &mut [T], _columns: Option<&[i32]>) -> bool {
        normalize(values)
    }
    fn note(&self, rows: Vec<u64>) {
        if rows.is_empty() {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            *known.entry(row / 64).or_default() |= 1 << (row % 64);
        }
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
        Self::by(source, Arc::default())
    }

    /// The number of different rows of zeros among the rows read so far.
    pub fn zero_rows(&self) -> u64 {
        self.by.count()
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
    if T::WIDE {
        for x in row {
            *x = T::from_f64(x.to_f64() * scale / norm);
        }
    } else {
        // One division per value would take most of the time, and rounding to T hides the difference.
        let inverse = norm.recip();
        for x in row {
            *x = T::from_f64(x.to_f64() * scale * inverse);
        }
    }
    false
}

/// Divides each of several rows by its Euclidean norm, as [`Normalized`] does. Rows of zeros stay as they are.
pub(crate) fn normalize_rows<T: Float>(rows: &mut [T], cols: usize) {
    for row in rows.chunks_exact_mut(cols) {
        normalize(row);
    }
}
