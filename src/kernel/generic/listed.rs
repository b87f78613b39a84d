//! Kernels that compare one row at a time with a few listed centers.
//!
//! Distances are computed by difference. This costs one more operation per vector than a product, and loses
//! no digits to cancellation, so neither norms nor a shift are needed.

use crate::float::Float;
use crate::kernel::aligned::LINE;
use crate::kernel::simd::{MOST_LANES, Simd};

/// Number of centers that a row is compared with at a time: enough parallel sums to hide their latency.
const AT_A_TIME: usize = 4;

/// A matrix with rows `stride` values apart, padded with zeros to whole vectors if `stride` allows it.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Padded<'a, T> {
    pub(in crate::kernel) values: &'a [T],
    pub(in crate::kernel) stride: usize,
}

/// Squared distances of a row to the listed centers. If `SCALED`, differences are multiplied per column by
/// the factors of the center, or by one shared row of factors if `factors` has stride 0.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn sq_dists<S: Simd, const SCALED: bool>(
    row: &[S::T],
    centers: Padded<'_, S::T>,
    factors: Padded<'_, S::T>,
    list: &[u32],
    out: &mut [S::T],
) {
    let (dim, stride) = (row.len(), centers.stride);
    let whole = dim / S::LANES * S::LANES;
    let tail = dim - whole;
    let is_padded = stride >= dim.next_multiple_of(S::LANES);
    assert!(out.len() == list.len() && (is_padded || stride == dim && !SCALED));
    assert!(!SCALED || factors.stride == stride || (factors.stride == 0 && factors.values.len() >= stride));
    let k = centers.values.len() / stride;
    assert!(!SCALED || factors.stride == 0 || factors.values.len() >= k * stride);
    let mut last = [S::T::ZERO; MOST_LANES];
    last[..tail].copy_from_slice(&row[whole..]);
    for (list, out) in list.chunks(AT_A_TIME).zip(out.chunks_mut(AT_A_TIME)) {
        let (mut c, mut f) = ([centers.values.as_ptr(); AT_A_TIME], [factors.values.as_ptr(); AT_A_TIME]);
        for q in 0..AT_A_TIME {
            // If fewer centers are left, the last one is repeated.
            let j = list[q.min(list.len() - 1)] as usize;
            assert!(j < k, "center {j} of {k}");
            // SAFETY: there are `k` centers, and `k` rows of factors or one shared row.
            unsafe {
                c[q] = c[q].add(j * stride);
                f[q] = f[q].add(j * factors.stride);
            }
        }
        // The last columns of rows that are not padded.
        let mut ends = [[S::T::ZERO; MOST_LANES]; AT_A_TIME];
        // SAFETY: vectors are within the first `whole` columns of `row`, within `last` or `ends`, or within a row of
        // centers or factors, which is padded to whole vectors.
        unsafe {
            let mut sums = [S::splat(S::T::ZERO); AT_A_TIME];
            for at in (0..whole).step_by(S::LANES) {
                add::<S, SCALED>(S::load(row.as_ptr().add(at)), (&c, &f, at), &mut sums);
            }
            if tail > 0 && is_padded {
                add::<S, SCALED>(S::load(last.as_ptr()), (&c, &f, whole), &mut sums);
            } else if tail > 0 {
                for (q, end) in ends.iter_mut().enumerate() {
                    end[..tail].copy_from_slice(std::slice::from_raw_parts(c[q].add(whole), tail));
                    let apart = S::sub(S::load(last.as_ptr()), S::load(end.as_ptr()));
                    sums[q] = S::fmadd(apart, apart, sums[q]);
                }
            }
            for (out, &sum) in out.iter_mut().zip(&sums) {
                let mut lanes = [S::T::ZERO; MOST_LANES];
                S::store(lanes.as_mut_ptr(), sum);
                *out = fold::<S>(lanes);
            }
        }
    }
}

/// Adds the squares of the differences between `x` and a vector per center. A function, because the compiler may leave
/// a closure out of line, where it would lack the instruction set.
///
/// # Safety
/// The processor must support the instruction set, and `at + LANES` columns of all centers and factors exist.
#[inline(always)]
unsafe fn add<S: Simd, const SCALED: bool>(
    x: S::V,
    (centers, factors, at): (&[*const S::T; AT_A_TIME], &[*const S::T; AT_A_TIME], usize),
    sums: &mut [S::V; AT_A_TIME],
) {
    // SAFETY: this function requires the columns and the instruction set.
    unsafe {
        for q in 0..AT_A_TIME {
            let mut apart = S::sub(x, S::load(centers[q].add(at)));
            if SCALED {
                apart = S::mul(apart, S::load(factors[q].add(at)));
            }
            sums[q] = S::fmadd(apart, apart, sums[q]);
        }
    }
}

/// Sum of the lanes, by halving.
#[inline(always)]
pub(super) fn fold<S: Simd>(mut lanes: [S::T; MOST_LANES]) -> S::T {
    for width in [8, 4, 2, 1] {
        if width < S::LANES {
            for l in 0..width {
                lanes[l] = lanes[l] + lanes[l + width];
            }
        }
    }
    lanes[0]
}

/// Prefetches the cache lines of a row.
#[inline(always)]
pub(in crate::kernel) fn prefetch<S: Simd>(row: &[S::T]) {
    row.iter().step_by(LINE / size_of::<S::T>()).for_each(|first| S::prefetch(first));
}

/// `sums[j] += part * row` for each listed center `j`, in `f64`.
#[inline(always)]
pub(in crate::kernel) fn add_parts<T: Float>(row: &[T], list: &[u32], parts: &[f64], sums: &mut [f64]) {
    let d = row.len();
    for (&j, &part) in list.iter().zip(parts) {
        for (s, x) in sums[j as usize * d..][..d].iter_mut().zip(row) {
            *s += part * x.to_f64();
        }
    }
}

/// `squares[j] += part * (row - center j)^2`, per column, for each listed center `j`, in `f64`.
#[inline(always)]
pub(in crate::kernel) fn add_squares<T: Float>(
    row: &[T],
    centers: Padded<'_, T>,
    list: &[u32],
    parts: &[f64],
    squares: &mut [f64],
) {
    let d = row.len();
    for (&j, &part) in list.iter().zip(parts) {
        let center = &centers.values[j as usize * centers.stride..][..d];
        for ((s, x), c) in squares[j as usize * d..][..d].iter_mut().zip(row).zip(center) {
            let apart = x.to_f64() - c.to_f64();
            *s += part * (apart * apart);
        }
    }
}
