//! Drops the centers that cannot be nearest to a row within a box, and compares the rows of a leaf with the others.
//! See [`crate::kernel::blocks`] for the tests and their margins.
#![allow(clippy::needless_range_loop, reason = "loops over several arrays become vector code")]
#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "what is not a number keeps its center")]

use super::lanes::Minima;
use crate::float::Float;
use crate::kernel::candidates::{Candidates, GROUP, Leaf, Narrowing, Relabeled, Skin, gamma};
use crate::kernel::doubt::Doubt;
use crate::kernel::simd::{MOST_LANES, Simd};
use crate::matrix::MatRef;

/// The group `g` of a column.
#[inline(always)]
fn group<T>(values: &[T], stride: usize, column: usize, g: usize) -> &[T; GROUP] {
    let at = column * stride + g * GROUP;
    values[at..at + GROUP].try_into().expect("a slice of this length")
}

#[inline(always)]
fn largest<T: Float>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

/// The candidate nearest to the middle of a box. Writes the squared distances of all to `sq_dists`.
#[inline(always)]
fn nearest_to_middle<T: Float>(middle: &[T], from: &Candidates<T>, sq_dists: &mut Vec<T>) -> usize {
    let (dim, stride) = (middle.len(), from.stride);
    sq_dists.resize(stride, T::ZERO);
    for g in 0..stride / GROUP {
        let mut sums = [T::ZERO; GROUP];
        for t in 0..dim {
            let (c, m) = (group(&from.values, stride, t, g), middle[t]);
            for l in 0..GROUP {
                let apart = c[l] - m;
                sums[l] = sums[l] + apart * apart;
            }
        }
        sq_dists[g * GROUP..][..GROUP].copy_from_slice(&sums);
    }
    let mut nearest = 0;
    let mut least = sq_dists[0];
    for (i, &sq_dist) in sq_dists[..from.ids.len()].iter().enumerate() {
        if sq_dist < least {
            (nearest, least) = (i, sq_dist);
        }
    }
    nearest
}

/// Copies the candidates at the positions `kept`.
#[inline(always)]
fn copy<T: Float>(from: &Candidates<T>, kept: &[u32], to: &mut Candidates<T>) {
    let (stride, n) = (from.stride, kept.len());
    let (columns, to_stride) = (from.values.len() / stride, n.next_multiple_of(GROUP));
    to.ids.clear();
    to.ids.extend(kept.iter().map(|&i| from.ids[i as usize]));
    to.stride = to_stride;
    to.values.resize(columns * to_stride, T::ZERO);
    for t in 0..columns {
        let column = &from.values[t * stride..][..stride];
        let out = &mut to.values[t * to_stride..][..n];
        for l in 0..n {
            out[l] = column[kept[l] as usize];
        }
    }
}

/// See [`crate::kernel::blocks::narrow`]. Moving the box and testing the candidates would take longer as
/// functions of their own.
#[inline(always)]
pub(in crate::kernel) fn narrow<T: Float>(
    (shift, scale): (&[T], T),
    faces: &[T],
    skin: Skin<T>,
    from: &Candidates<T>,
    to: &mut Candidates<T>,
    work: &mut Narrowing<T>,
) -> bool {
    let (dim, stride, count) = (shift.len(), from.stride, from.ids.len());
    let (half, two) = (T::from_f32(0.5), T::from_f32(2.0));
    let gamma = gamma(dim);
    let up = T::from_f32(1.0) + gamma;

    let Narrowing { faces: moved, sq_dists, kept } = work;
    moved.resize(3 * dim, T::ZERO);
    let (low, rest) = moved.split_at_mut(dim);
    let (high, middle) = rest.split_at_mut(dim);
    let (mut farthest, mut radius) = (T::ZERO, T::ZERO);
    for t in 0..dim {
        low[t] = (faces[t] - shift[t]) * scale;
        high[t] = (faces[dim + t] - shift[t]) * scale;
        middle[t] = half * (low[t] + high[t]);
        let most = largest(T::ZERO - low[t], high[t]);
        farthest = farthest + most * most;
        let most = largest(middle[t] - low[t], high[t] - middle[t]);
        radius = radius + most * most;
    }
    let (farthest, radius) = (farthest.sqrt() * up + skin.shift, radius.sqrt() * up);

    let nearest = nearest_to_middle(middle, from, sq_dists);
    // The part of the margin that depends on the length and the allowance of one center.
    let reach = |length: T, allowed: T| {
        let reach = length + allowed + skin.shift + farthest;
        gamma * (reach * reach)
    };
    let allowed = skin.of(from.values[(dim + 1) * stride + nearest]);
    let fixed = reach(from.values[dim * stride + nearest], allowed)
        + (two * allowed * (sq_dists[nearest].sqrt() * up + radius) + allowed * allowed) * up;
    kept.resize(stride, 0);
    let mut n = 0;
    for g in 0..stride / GROUP {
        let mut sums = [T::ZERO; GROUP];
        for t in 0..dim {
            let b = from.values[t * stride + nearest];
            let (low, high) = (two * low[t], two * high[t]);
            let z = group(&from.values, stride, t, g);
            for l in 0..GROUP {
                let (apart, both) = (z[l] - b, z[l] + b);
                let (at_low, at_high) = (apart * (both - low), apart * (both - high));
                sums[l] = sums[l] + if at_low < at_high { at_low } else { at_high };
            }
        }
        let lengths = group(&from.values, stride, dim, g);
        let moves = group(&from.values, stride, dim + 1, g);
        let sq_dists = group(sq_dists, stride, 0, g);
        let mut needed = [T::ZERO; GROUP];
        for l in 0..GROUP {
            let allowed = skin.of(moves[l]);
            let far = two * allowed * (sq_dists[l].sqrt() * up + radius) * up;
            needed[l] = fixed + reach(lengths[l], allowed) + far;
        }
        for l in 0..GROUP.min(count - g * GROUP) {
            kept[n] = (g * GROUP + l) as u32;
            n += usize::from(!(sums[l] > needed[l]));
        }
    }
    if n == count {
        return false;
    }
    copy(from, &kept[..n], to);
    true
}

/// Number of row vectors that are compared together: as many as fit the registers next to the minima.
const fn vectors_of(dim: usize, registers: usize) -> usize {
    if 2 * dim + 11 <= registers { 2 } else { 1 }
}

/// What is the same for all rows of a leaf.
struct Comparison<'a, T> {
    leaf: Leaf<'a, T>,
    centers: MatRef<'a, T>,
    list: &'a [u32],
    doubt: Doubt<T>,
}

/// Compares the `RV` vectors of rows from position `r` on.
///
/// # Safety
/// The leaf has `D` columns, and as many labels and values per column as these vectors need. The processor must
/// support the instruction set.
#[inline(always)]
unsafe fn compare<S: Simd, const D: usize, const RV: usize>(
    Comparison { leaf, centers, list, doubt }: &Comparison<'_, S::T>,
    r: usize,
    to: &mut Relabeled,
) {
    let stride = leaf.labels.len();
    // SAFETY: this function requires the rows, and the instruction set.
    unsafe {
        let mut rows = [[S::splat(S::T::ZERO); RV]; D];
        for (t, column) in rows.iter_mut().enumerate() {
            for (v, x) in column.iter_mut().enumerate() {
                *x = S::load(leaf.columns.as_ptr().add(t * stride + r + v * S::LANES));
            }
        }
        let mut minima = Minima::<S, RV>::none();
        for &j in *list {
            let center: &[S::T; D] = centers.row(j as usize).try_into().expect("a center of this length");
            let mut values = [S::splat(S::T::ZERO); RV];
            for (column, &c) in rows.iter().zip(center) {
                let c = S::splat(c);
                for (value, &x) in values.iter_mut().zip(column) {
                    let apart = S::sub(x, c);
                    *value = S::fmadd(apart, apart, *value);
                }
            }
            minima.take(&values, j as usize);
        }
        let factor = S::splat(S::T::from_f32(1.0) + doubt.share);
        let (fixed, never) = (S::splat(doubt.fixed), S::splat(S::T::ZERO - S::T::INFINITY));
        for v in 0..RV {
            let first = r + v * S::LANES;
            let (at, next) = (minima.at[v], minima.next[v]);
            let limit = S::fmadd(minima.low[v], factor, fixed);
            let labels = S::load(leaf.labels.as_ptr().add(first));
            let all = u32::MAX >> (32 - S::LANES);
            let mut other = all & !S::less(limit, S::where_equal(at, labels, next, never));
            if other == 0 {
                continue;
            }
            let decided = S::less(limit, next);
            let mut ids = [0; MOST_LANES];
            S::store_ids(ids.as_mut_ptr(), at);
            while other != 0 {
                let lane = other.trailing_zeros();
                other &= other - 1;
                let row = first as u32 + lane;
                if decided >> lane & 1 == 1 {
                    to.changed.push((row, ids[lane as usize]));
                } else {
                    to.in_doubt.push(row);
                }
            }
        }
    }
}

/// See [`crate::kernel::blocks::relabel`].
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn relabel<S: Simd>(
    leaf: Leaf<'_, S::T>,
    centers: MatRef<'_, S::T>,
    list: &[u32],
    doubt: Doubt<S::T>,
    to: &mut Relabeled,
) {
    let (dim, stride) = (centers.cols(), leaf.labels.len());
    assert!(leaf.columns.len() == dim * stride && stride.is_multiple_of(S::LANES), "whole vectors of rows");
    let comparison = &Comparison { leaf, centers, list, doubt };
    let mut r = 0;
    while r < stride {
        // SAFETY: the leaf has one value per column and label, and at least as many rows from `r` on as are
        // compared. This function requires the instruction set.
        unsafe {
            // The compiler removes the other branch.
            with_columns!(dim, D => if vectors_of(D, S::REGISTERS) == 2 && r + 2 * S::LANES <= stride {
                compare::<S, D, 2>(comparison, r, to);
                r += 2 * S::LANES;
            } else {
                compare::<S, D, 1>(comparison, r, to);
                r += S::LANES;
            });
        }
    }
}
