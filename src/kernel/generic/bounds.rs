//! This module knows the loops over lower bounds: many rows at a time, no distances.

use super::simd::Simd;
use crate::float::Float;

/// `least[r]` becomes at most `lower[r] - drift`.
#[inline(always)]
pub(in crate::kernel) fn settle<T: Float>(lower: &[T], drift: T, least: &mut [T]) {
    for (least, &lower) in least.iter_mut().zip(lower) {
        let now = lower - drift;
        *least = if now < *least { now } else { *least };
    }
}

/// The rows whose bound is within reach: `lower[r] - drift < reach[r]`, in order; gives how many there are in `rows`.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn within<S: Simd>(
    lower: &[S::T],
    drift: S::T,
    reach: &[S::T],
    rows: &mut [u32],
) -> usize {
    let m = lower.len();
    // Whole vectors are written, whatever they hold.
    assert!(reach.len() == m && rows.len() >= m + S::LANES);
    let mut n = 0;
    let whole = m / S::LANES * S::LANES;
    for r in (0..whole).step_by(S::LANES) {
        // SAFETY: `r` and a vector stay within the slices; `n <= r`, so that there is room in `rows`.
        unsafe {
            let now = S::sub(S::load(lower.as_ptr().add(r)), S::splat(drift));
            n += S::push_less(now, S::load(reach.as_ptr().add(r)), r as u32, rows.as_mut_ptr().add(n));
        }
    }
    for r in whole..m {
        rows[n] = r as u32;
        n += usize::from(lower[r] - drift < reach[r]);
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
