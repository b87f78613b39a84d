//! The reference: plain loops over pairs, in `f64`.

use crate::float::Float;
use crate::matrix::MatRef;

/// All squared distances, rows by centers.
pub(super) fn distances<T: Float>(rows: MatRef<'_, T>, centers: MatRef<'_, T>) -> Vec<Vec<f64>> {
    let pair = |x: &[T], c: &[T]| x.iter().zip(c).map(|(a, b)| (a.to_f64() - b.to_f64()).powi(2)).sum();
    rows.iter().map(|x| centers.iter().map(|c| pair(x, c)).collect()).collect()
}

/// The largest error of the tile form, for a squared distance between two rows of `d` columns: the rounding
/// of a chain of `d + 2` fused steps over terms of at most `|x'|^2 + 2 |x'||c'| + |c'|^2`.
pub(super) fn tolerance<T: Float>(d: usize, x_norm: f64, c_norm: f64) -> f64 {
    (d + 4) as f64 * T::EPSILON * (x_norm.sqrt() + c_norm.sqrt()).powi(2)
}
