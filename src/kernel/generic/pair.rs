//! Distances between two single rows.
//!
//! Sums use a fixed number of lanes and no fused operations, so every instruction set gives bit-identical
//! results.

use crate::float::Float;
use crate::kernel::simd::{Simd, Widen};

/// Number of parallel sums: whole vectors of `f64` in every instruction set.
pub(super) const LANES: usize = 16;

/// Sum of squared differences, with differences and sums in `f64`.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn sq_dist<S: Widen>(a: &[S::T], b: &[S::T]) -> f64 {
    let (a, a_tail) = a.as_chunks::<LANES>();
    let (b, b_tail) = b.as_chunks::<LANES>();
    let mut lanes = [0.0f64; LANES];
    // SAFETY: the processor has the instruction set. A chunk and `lanes` hold `LANES` values, a multiple of
    // every vector width.
    unsafe {
        // Sums that an instruction set does not need are never used, and the compiler removes them.
        let mut sums = [S::Wide::splat(0.0); LANES / 2];
        let vectors = LANES / S::Wide::LANES;
        for (a, b) in a.iter().zip(b) {
            for (v, sum) in sums.iter_mut().enumerate().take(vectors) {
                let at = v * S::Wide::LANES;
                let e = S::Wide::sub(S::widen(a.as_ptr().add(at)), S::widen(b.as_ptr().add(at)));
                *sum = S::Wide::add(*sum, S::Wide::mul(e, e));
            }
        }
        for (v, &sum) in sums.iter().enumerate().take(vectors) {
            S::Wide::store(lanes.as_mut_ptr().add(v * S::Wide::LANES), sum);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_tail.iter().zip(b_tail)) {
        let e = a.to_f64() - b.to_f64();
        *lane += e * e;
    }
    let used = if a.is_empty() { a_tail.len() } else { LANES };
    fold(lanes, used)
}

/// As [`sq_dist`] for `D` columns, at most [`LANES`], with bit-identical results.
#[inline(always)]
pub(in crate::kernel) fn sq_dist_of<T: Float, const D: usize>(a: &[T; D], b: &[T; D]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
        let e = a.to_f64() - b.to_f64();
        *lane = e * e;
    }
    fold(lanes, D)
}

/// Sum of the lanes, by halving. Lanes from `used` on are zero.
#[inline(always)]
pub(super) fn fold(mut lanes: [f64; LANES], used: usize) -> f64 {
    for width in [8, 4, 2, 1] {
        if width < used {
            for l in 0..width {
                lanes[l] += lanes[l + width];
            }
        }
    }
    lanes[0]
}
