//! This module knows the loops over lower bounds: many rows at a time, no distances.

use crate::float::Float;

/// `least[r]` becomes at most `lower[r] - drift`.
#[inline(always)]
pub(in crate::kernel) fn settle(lower: &[f32], drift: f32, least: &mut [f32]) {
    for (least, lower) in least.iter_mut().zip(lower) {
        let now = lower - drift;
        *least = if now < *least { now } else { *least };
    }
}

/// The rows whose bound is within reach: `lower[r] - drift < reach[r]`, in order; gives how many there are in `rows`.
#[inline(always)]
pub(in crate::kernel) fn within(lower: &[f32], drift: f32, reach: &[f32], rows: &mut [u32]) -> usize {
    assert!(lower.len() == reach.len() && lower.len() <= rows.len());
    let mut n = 0;
    for (r, (lower, reach)) in lower.iter().zip(reach).enumerate() {
        rows[n] = r as u32;
        n += usize::from(lower - drift < *reach);
    }
    n
}

/// Lower bounds on distances from the tile values `low` of some rows: `sq_norm` makes a squared distance of one, less `error`.
#[inline(always)]
pub(in crate::kernel) fn lengths<T: Float>(low: &[T], sq_norm: &[f64], error: &[f64], out: &mut [f64]) {
    for (((out, low), sq_norm), error) in out.iter_mut().zip(low).zip(sq_norm).zip(error) {
        let sq_dist = low.to_f64() + sq_norm - error;
        *out = (if sq_dist > 0.0 { sq_dist } else { 0.0 }).sqrt() * (1.0 - 1e-12);
    }
}
