//! Computes distances of a few rows by difference in `f64`, with rows in the vector lanes.

use crate::float::Float;

/// Number of rows processed together.
pub(in crate::kernel) const ROWS: usize = 32;

/// Whether the result is the length instead of its square: squares of `f64` values may overflow or underflow
/// `f64`.
#[inline(always)]
pub(in crate::kernel) const fn is_length<T>() -> bool {
    size_of::<T>() == size_of::<f64>()
}

/// The distances (or squared distances) of [`ROWS`] rows to a center, summed over ascending columns.
/// `columns` are the columns of these rows.
#[inline(always)]
pub(in crate::kernel) fn differences<T: Float>(columns: &[f64], center: &[T], out: &mut [f64; ROWS]) {
    let (columns, _) = columns.as_chunks::<ROWS>();
    assert_eq!(columns.len(), center.len(), "one column per value");
    if !is_length::<T>() {
        *out = sums(columns, center, &[1.0; ROWS]);
        return;
    }
    let mut largest = [0.0; ROWS];
    for (column, c) in columns.iter().zip(center) {
        for (most, x) in largest.iter_mut().zip(column) {
            let apart = (x - c.to_f64()).abs();
            // Keeps NaN.
            *most = if apart <= *most { *most } else { apart };
        }
    }
    let sums = sums(columns, center, &largest);
    for ((out, sum), most) in out.iter_mut().zip(sums).zip(largest) {
        *out = if most > 0.0 { most * sum.sqrt() } else { most };
    }
}

/// Sums of squared differences, each divided by the row's `unit`.
#[inline(always)]
fn sums<T: Float>(columns: &[[f64; ROWS]], center: &[T], unit: &[f64; ROWS]) -> [f64; ROWS] {
    let mut sums = [0.0; ROWS];
    for (column, c) in columns.iter().zip(center) {
        let c = c.to_f64();
        for ((sum, x), unit) in sums.iter_mut().zip(column).zip(unit) {
            let apart = if is_length::<T>() { (x - c) / unit } else { x - c };
            *sum += apart * apart;
        }
    }
    sums
}
