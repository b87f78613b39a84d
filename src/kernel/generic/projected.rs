//! Kernels that compare one row at a time with a few listed centers that have axes: directions in which
//! distances count less.
//!
//! The distance is the squared length of the scaled difference, less the squares of its projections onto the
//! axes of the center. For a Gaussian with factors, this is the Mahalanobis distance by the identity of
//! Woodbury.

use super::listed::{Padded, fold};
use crate::float::Float;
use crate::kernel::simd::{MOST_LANES, Simd};

/// Number of axes that share a pass over the columns: their sums fit the registers of every instruction set.
const AXES: usize = 8;

/// Number of columns whose differences are converted at a time.
const COLUMNS: usize = 64;

/// The axes of all centers, one center after the other.
pub(in crate::kernel) struct Axes<'a, T> {
    pub(in crate::kernel) rows: Padded<'a, T>,
    pub(in crate::kernel) per_center: usize,
}

/// A row without its last columns, and these padded with zeros to a vector.
struct Split<'a, T> {
    whole: &'a [T],
    last: [T; MOST_LANES],
    tail: usize,
}

/// Adds one vector of columns to the squared length and the projections.
///
/// A closure would be compiled as a function of its own from 7 axes on, without the instruction set: every
/// instruction would then be a call.
///
/// # Safety
/// The processor must support the instruction set. The pointers, and `axes` at `N` multiples of `stride`, must
/// be valid for a vector.
#[inline(always)]
unsafe fn add<S: Simd, const N: usize>(
    x: S::V,
    center: *const S::T,
    factors: *const S::T,
    (axes, stride): (*const S::T, usize),
    (length, sums): (&mut S::V, &mut [S::V; N]),
) {
    // SAFETY: this function requires valid pointers and the instruction set.
    unsafe {
        let apart = S::mul(S::sub(x, S::load(center)), S::load(factors));
        *length = S::fmadd(apart, apart, *length);
        for (h, sum) in sums.iter_mut().enumerate() {
            *sum = S::fmadd(apart, S::load(axes.add(h * stride)), *sum);
        }
    }
}

/// The squared length of the scaled difference between a row and a center, and its projections onto `N` axes.
///
/// # Safety
/// The processor must support the instruction set. `center` and `factors` point to the columns of the row,
/// padded to whole vectors, and `axes` to `N` such rows at a distance of `stride` values.
#[inline(always)]
unsafe fn project<S: Simd, const N: usize>(
    row: &Split<'_, S::T>,
    center: *const S::T,
    factors: *const S::T,
    (axes, stride): (*const S::T, usize),
    onto: &mut [S::T; AXES],
) -> S::T {
    // SAFETY: vectors are within `whole`, within `last`, or within rows that are padded to whole vectors.
    // This function requires the instruction set.
    unsafe {
        let (mut length, mut sums) = (S::splat(S::T::ZERO), [S::splat(S::T::ZERO); N]);
        for at in (0..row.whole.len()).step_by(S::LANES) {
            let x = S::load(row.whole.as_ptr().add(at));
            add::<S, N>(x, center.add(at), factors.add(at), (axes.add(at), stride), (&mut length, &mut sums));
        }
        if row.tail > 0 {
            let (at, x) = (row.whole.len(), S::load(row.last.as_ptr()));
            add::<S, N>(x, center.add(at), factors.add(at), (axes.add(at), stride), (&mut length, &mut sums));
        }
        let of = |v: S::V| {
            let mut lanes = [S::T::ZERO; MOST_LANES];
            S::store(lanes.as_mut_ptr(), v);
            fold::<S>(lanes)
        };
        for (onto, &sum) in onto.iter_mut().zip(&sums) {
            *onto = of(sum);
        }
        of(length)
    }
}

/// Distances of a row to the listed centers, each with its own row of factors and its own axes. The
/// projections go to `onto`, one per axis of each listed center, unless it is empty.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn distances<S: Simd>(
    row: &[S::T],
    centers: Padded<'_, S::T>,
    factors: Padded<'_, S::T>,
    Axes { rows: axes, per_center: n_axes }: Axes<'_, S::T>,
    list: &[u32],
    (out, onto): (&mut [S::T], &mut [S::T]),
) {
    let (dim, stride) = (row.len(), centers.stride);
    let whole = dim / S::LANES * S::LANES;
    let mut last = [S::T::ZERO; MOST_LANES];
    last[..dim - whole].copy_from_slice(&row[whole..]);
    let row = Split { whole: &row[..whole], last, tail: dim - whole };
    assert!(stride >= dim.next_multiple_of(S::LANES) && out.len() == list.len() && n_axes > 0);
    let k = centers.values.len() / stride;
    assert!(factors.stride == stride && factors.values.len() >= k * stride);
    assert!(axes.stride == stride && axes.values.len() >= k * n_axes * stride);
    assert!(onto.is_empty() || onto.len() == list.len() * n_axes);
    for (q, &j) in list.iter().enumerate() {
        let j = j as usize;
        assert!(j < k, "center {j} of {k}");
        let (mut length, mut within) = (S::T::ZERO, S::T::ZERO);
        for first in (0..n_axes).step_by(AXES) {
            let mut some = [S::T::ZERO; AXES];
            let n = (n_axes - first).min(AXES);
            // SAFETY: `j` is below `k`, and there are `k` centers, `k` rows of factors, and `k * n_axes` rows
            // of axes, padded to whole vectors. This function requires the instruction set.
            unsafe {
                let (c, f) =
                    (centers.values.as_ptr().add(j * stride), factors.values.as_ptr().add(j * stride));
                let a = (axes.values.as_ptr().add((j * n_axes + first) * stride), stride);
                length = match n {
                    1 => project::<S, 1>(&row, c, f, a, &mut some),
                    2 => project::<S, 2>(&row, c, f, a, &mut some),
                    3 => project::<S, 3>(&row, c, f, a, &mut some),
                    4 => project::<S, 4>(&row, c, f, a, &mut some),
                    5 => project::<S, 5>(&row, c, f, a, &mut some),
                    6 => project::<S, 6>(&row, c, f, a, &mut some),
                    7 => project::<S, 7>(&row, c, f, a, &mut some),
                    _ => project::<S, AXES>(&row, c, f, a, &mut some),
                };
            }
            within = some[..n].iter().fold(within, |sum, &x| sum + x * x);
            if !onto.is_empty() {
                onto[q * n_axes + first..][..n].copy_from_slice(&some[..n]);
            }
        }
        // The difference of two infinite values has no order.
        out[q] = if !length.finite() {
            length
        } else if length > within {
            length - within
        } else {
            S::T::ZERO
        };
    }
}

/// `products += part * (row - center j)` for each listed center `j` and each of its axes, in `f64`. There are
/// as many parts per listed center as it has axes.
#[inline(always)]
pub(in crate::kernel) fn add_products<T: Float>(
    row: &[T],
    centers: Padded<'_, T>,
    list: &[u32],
    parts: &[f64],
    products: &mut [f64],
) {
    let (d, n_axes) = (row.len(), parts.len() / list.len().max(1));
    let mut apart = [0.0; COLUMNS];
    for (&j, parts) in list.iter().zip(parts.chunks_exact(n_axes.max(1))) {
        let center = &centers.values[j as usize * centers.stride..][..d];
        let products = &mut products[j as usize * n_axes * d..][..n_axes * d];
        for start in (0..d).step_by(COLUMNS) {
            let columns = start..d.min(start + COLUMNS);
            let apart = &mut apart[..columns.len()];
            for ((apart, x), c) in apart.iter_mut().zip(&row[columns.clone()]).zip(&center[columns.clone()]) {
                *apart = x.to_f64() - c.to_f64();
            }
            for (products, part) in products.chunks_exact_mut(d).zip(parts) {
                for (s, apart) in products[columns.clone()].iter_mut().zip(&*apart) {
                    *s += part * apart;
                }
            }
        }
    }
}
