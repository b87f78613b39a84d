//! This module knows distances between two single rows.
//!
//! Sums run in a fixed number of lanes and are never fused, so that every instruction set gives the same bits.

use crate::float::Float;

/// Sum of squared differences; differences and sums in `f64`.
#[inline(always)]
pub(in crate::kernel) fn sq_dist<T: Float>(a: &[T], b: &[T]) -> f64 {
    const LANES: usize = 16;
    let mut sums = [0.0f64; LANES];
    let (a, a_tail) = a.as_chunks::<LANES>();
    let (b, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for l in 0..LANES {
            let e = a[l].to_f64() - b[l].to_f64();
            sums[l] += e * e;
        }
    }
    for (l, (a, b)) in a_tail.iter().zip(b_tail).enumerate() {
        let e = a.to_f64() - b.to_f64();
        sums[l] += e * e;
    }
    fold(sums)
}

/// Sum of the lanes, in halves.
#[inline(always)]
fn fold(mut sums: [f64; 16]) -> f64 {
    for width in [8, 4, 2, 1] {
        for l in 0..width {
            sums[l] += sums[l + width];
        }
    }
    sums[0]
}
