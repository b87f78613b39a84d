//! Kernels with rows in the vector lanes, for few columns: a vector of rows is compared with one broadcast
//! center after the other.
//!
//! The running minima stay in registers.

use std::ops::Range;

use super::simd::Simd;
use crate::float::Float;
use crate::kernel::bounded::Nearest;
use crate::kernel::pack::{PackedCenters, Scratch};
use crate::kernel::tier::Compute;
use crate::tuning::{GROUPED_CENTERS, GROUPED_DIM, ROWS_IN_LANES_DIM};

/// Number of row vectors in a group: as many as fit the registers next to the sums and the minima.
const fn vectors_of(dim: usize, registers: usize) -> usize {
    if 2 * (dim + CENTERS) + 6 <= registers { 2 } else { 1 }
}

/// Number of centers that a group of rows is compared with at a time.
const CENTERS: usize = 4;

/// Finds the smallest value, its center and the second smallest value, for `RV` vectors of rows with `D` columns. Compares with the first `k` centers, or with `k` listed centers if `LISTED`.
///
/// # Safety
/// `x` points to `D` columns of `stride` values, of which `RV` vectors are read. `c` and `norms` point to `D`
/// values and one value per center. `list` points to `k` centers if `LISTED`. `best`, `ids` and `second` point to
/// `RV` vectors. The processor must support the instruction set.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "registers, not a data structure")]
unsafe fn group<S: Simd, const D: usize, const RV: usize, const LISTED: bool>(
    x: *const S::T,
    stride: usize,
    c: *const S::T,
    norms: *const S::T,
    k: usize,
    list: *const u32,
    (best, ids, second): (*mut S::T, *mut u32, *mut S::T),
    by_groups: bool,
) {
    // SAFETY: all offsets are within the ranges that the caller guarantees.
    unsafe {
        let mut rows = [[S::splat(S::T::ZERO); RV]; D];
        for (t, column) in rows.iter_mut().enumerate() {
            for (v, x_tv) in column.iter_mut().enumerate() {
                *x_tv = S::load(x.add(t * stride + v * S::LANES));
            }
        }
        let mut low = [S::splat(S::T::INFINITY); RV];
        let mut at = [S::splat(S::T::ZERO); RV];
        let mut next = [S::splat(S::T::INFINITY); RV];
        let mut j = 0;
        let center = |at: usize| if LISTED { *list.add(at) as usize } else { at };
        // The tile values of some centers.
        macro_rules! sums {
            ($some:expr) => {{
                let mut acc = [[S::splat(S::T::ZERO); RV]; $some];
                for (i, acc) in acc.iter_mut().enumerate() {
                    let j = center(j + i);
                    *acc = [S::splat(*norms.add(j)); RV];
                    for (t, column) in rows.iter().enumerate() {
                        let b = S::splat(*c.add(j * D + t));
                        for (v, acc) in acc.iter_mut().enumerate() {
                            *acc = S::fmadd(column[v], b, *acc);
                        }
                    }
                }
                acc
            }};
        }
        macro_rules! centers {
            ($some:expr) => {{
                let acc = sums!($some);
                for (i, acc) in acc.iter().enumerate() {
                    let id = S::splat(S::T::from_f32(center(j + i) as f32));
                    for v in 0..RV {
                        next[v] = S::min(next[v], S::max(low[v], acc[v]));
                        (low[v], at[v]) = S::keep_less(low[v], at[v], acc[v], id);
                    }
                }
                j += $some;
            }};
        }
        // Several centers at a time, so that their sums do not wait for each other.
        let by_groups = !LISTED && D <= GROUPED_DIM && by_groups;
        while by_groups && j + CENTERS <= k {
            let values = sums!(CENTERS);
            let id = S::splat(S::T::from_f32(j as f32));
            for v in 0..RV {
                let [a, b, c, d] = values.map(|value| value[v]);
                let (ab, cd) = (S::min(a, b), S::min(c, d));
                let (least, rest) = (S::min(ab, cd), S::min(S::max(a, b), S::max(c, d)));
                let other = S::min(S::max(ab, cd), S::max(low[v], least));
                next[v] = S::min(next[v], S::min(rest, other));
                (low[v], at[v]) = S::keep_less(low[v], at[v], least, id);
            }
            j += CENTERS;
        }
        while j + CENTERS <= k {
            centers!(CENTERS);
        }
        while j < k {
            centers!(1);
        }
        for v in 0..RV {
            S::store(best.add(v * S::LANES), low[v]);
            S::store_ids(ids.add(v * S::LANES), at[v]);
            S::store(second.add(v * S::LANES), next[v]);
        }
        if by_groups {
            resolve::<S, D>((x, stride), c, norms, k, RV * S::LANES, ids);
        }
    }
}

/// Replaces the first center of a group of [`CENTERS`] by the nearest of them, for `n` rows. Unless the arbiter decides
/// anyway, these centers differ by more than the sums may be wrong.
///
/// # Safety
/// `x` points to `D` columns of `stride` values, at least `n`, and `ids` to `n` centers below `k`. `c` and `norms` point to
/// `D` values and one value per center.
#[inline(always)]
unsafe fn resolve<S: Simd, const D: usize>(
    (x, stride): (*const S::T, usize),
    c: *const S::T,
    norms: *const S::T,
    k: usize,
    n: usize,
    ids: *mut u32,
) {
    for r in 0..n {
        // SAFETY: rows, centers and ids are within the ranges that the contract names.
        unsafe {
            let (first, mut nearest) = (*ids.add(r) as usize, f64::INFINITY);
            // Places without a center have infinite norms.
            for j in (first..k.min(first + CENTERS)).filter(|&j| (*norms.add(j)).finite()) {
                let mut sq_dist = 0.0;
                for t in 0..D {
                    let apart = (*x.add(t * stride + r)).to_f64() + 0.5 * (*c.add(j * D + t)).to_f64();
                    sq_dist += apart * apart;
                }
                if sq_dist < nearest {
                    nearest = sq_dist;
                    *ids.add(r) = j as u32;
                }
            }
        }
    }
}

/// Compares the strip, loaded by column, with all centers.
///
/// # Safety
/// The strip in `scratch` was loaded for `packed`, which has rows in lanes. The processor must support the
/// instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn sweep<S: Simd>(
    packed: &PackedCenters<S::T>,
    scratch: &mut Scratch<S::T>,
    labels: &mut [u32],
) where
    S::T: Compute,
{
    let (rows, stride, dim, k) = (labels.len(), packed.strip_rows(), packed.dim, packed.k);
    let vectors = vectors_of(dim, S::REGISTERS);
    let padded = rows.next_multiple_of(vectors * S::LANES);
    assert!(padded <= stride && dim <= ROWS_IN_LANES_DIM && scratch.x.len() >= dim * stride);
    assert!(scratch.ids.len() >= stride && scratch.best.len() >= stride && scratch.second.len() >= stride);
    assert!(packed.data.len() >= k * dim && packed.norms.len() >= k);
    // The groups are resolved by distances without prices.
    let by_groups = k >= GROUPED_CENTERS && packed.prices.is_empty();
    let mut r = 0;
    while r < padded {
        // SAFETY: the buffers are as long as asserted, and the rows of a group end before `padded`.
        unsafe {
            let (x, c, norms) = (scratch.x.as_ptr().add(r), packed.data.as_ptr(), packed.norms.as_ptr());
            let (best, list) = (scratch.best.as_mut_ptr().add(r), std::ptr::null());
            let (ids, second) = (scratch.ids.as_mut_ptr().add(r), scratch.second.as_mut_ptr().add(r));
            let out = (best, ids, second);
            macro_rules! dims {
                ($($d:literal)*) => {
                    match dim {
                        // The compiler removes the other branch.
                        $($d => if vectors_of($d, S::REGISTERS) == 2 {
                            group::<S, $d, 2, false>(x, stride, c, norms, k, list, out, by_groups);
                        } else {
                            group::<S, $d, 1, false>(x, stride, c, norms, k, list, out, by_groups);
                        },)*
                        _ => unreachable!("rows in lanes have at most {ROWS_IN_LANES_DIM} columns"),
                    }
                };
            }
            dims!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        }
        r += vectors * S::LANES;
    }
    labels.copy_from_slice(&scratch.ids[..rows]);
}

/// Compares the given rows, stored as columns, with the `listed` centers only: the smallest tile value
/// per row, its center, and the second smallest value. Up to one vector after the last row may be
/// overwritten.
///
/// # Safety
/// The processor must support the instruction set, and `packed` must have rows in lanes.
#[inline(always)]
pub(in crate::kernel) unsafe fn listed<S: Simd>(
    packed: &PackedCenters<S::T>,
    columns: &[S::T],
    rows: Range<usize>,
    list: &[u32],
    nearest: &mut Nearest<S::T>,
) where
    S::T: Compute,
{
    let dim = packed.dim;
    let stride = columns.len() / dim;
    let end = rows.start + rows.len().next_multiple_of(S::LANES);
    assert!(end <= stride && list.iter().all(|&j| (j as usize) < packed.k) && dim <= ROWS_IN_LANES_DIM);
    assert!(nearest.best.len() >= end && nearest.ids.len() >= end && nearest.next.len() >= end);
    assert!(packed.data.len() >= packed.k * dim && packed.norms.len() >= packed.k);
    for r in rows.step_by(S::LANES) {
        // SAFETY: a vector of rows starting at `r` ends before `end`, and the buffers are as long as
        // asserted.
        unsafe {
            let (x, c, norms) = (columns.as_ptr().add(r), packed.data.as_ptr(), packed.norms.as_ptr());
            let (list, k) = (list.as_ptr(), list.len());
            let (best, next) = (nearest.best.as_mut_ptr().add(r), nearest.next.as_mut_ptr().add(r));
            let ids = nearest.ids.as_mut_ptr().add(r);
            macro_rules! dims {
                ($($d:literal)*) => {
                    match dim {
                        $($d => group::<S, $d, 1, true>(x, stride, c, norms, k, list, (best, ids, next), false),)*
                        _ => unreachable!("rows in lanes have at most {ROWS_IN_LANES_DIM} columns"),
                    }
                };
            }
            dims!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        }
    }
}

/// Writes the tile values of the first `rows` rows of the loaded strip against panel `at` to `scratch.tile`,
/// `width` values per row.
///
/// # Safety
/// The strip in `scratch` was loaded for `packed`, which has rows in lanes. The processor must support the
/// instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn values<S: Simd>(
    packed: &PackedCenters<S::T>,
    scratch: &mut Scratch<S::T>,
    rows: usize,
    at: usize,
) where
    S::T: Compute,
{
    let (stride, dim, width) = (packed.strip_rows(), packed.dim, packed.tier.width);
    let padded = rows.next_multiple_of(S::LANES);
    let first = at * width;
    assert!(padded <= stride && scratch.x.len() >= dim * stride && scratch.state.len() >= S::LANES);
    assert!(packed.data.len() >= packed.k * dim && packed.norms.len() >= packed.k);
    for j in first..packed.k.min(first + width) {
        for r in (0..padded).step_by(S::LANES) {
            // SAFETY: the buffers are as long as asserted, and the rows of a vector end before `padded`.
            unsafe {
                let mut acc = S::splat(packed.norms[j]);
                for t in 0..dim {
                    let x = S::load(scratch.x.as_ptr().add(t * stride + r));
                    acc = S::fmadd(x, S::splat(packed.data[j * dim + t]), acc);
                }
                S::store(scratch.state.as_mut_ptr(), acc);
            }
            for lane in 0..S::LANES.min(rows - r) {
                scratch.tile[(r + lane) * width + j - first] = scratch.state[lane];
            }
        }
    }
}
