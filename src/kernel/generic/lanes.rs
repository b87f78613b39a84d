//! Kernels with rows in the vector lanes, for few columns: a vector of rows is compared with one broadcast
//! center after the other.
//!
//! The running minima stay in registers.
#![allow(clippy::needless_range_loop, reason = "iterators over the vectors of a group take longer")]

use std::ops::Range;

use crate::float::Float;
use crate::kernel::comparison::Nearest;
use crate::kernel::pack::PackedCenters;
use crate::kernel::scratch::Scratch;
use crate::kernel::simd::Simd;
use crate::kernel::tier::Compute;
use crate::tuning::ROWS_IN_LANES_DIM;

/// Up to so many columns, and from [`GROUPED_CENTERS`] centers on, kernels with rows in the lanes compare four centers
/// with the nearest so far at a time, and find the nearest of the four at the end. With 2 columns and 1024 centers this
/// takes 0.8 of the time; with 8 columns, the search at the end takes longer than it saves.
const GROUPED_DIM: usize = 4;

/// See [`GROUPED_DIM`].
const GROUPED_CENTERS: usize = 512;

/// Number of row vectors in a group: as many as fit the registers next to the sums and the minima.
const fn vectors_of(dim: usize, registers: usize) -> usize {
    if 2 * (dim + CENTERS) + 6 <= registers { 2 } else { 1 }
}

/// Number of centers that a group of rows is compared with at a time.
const CENTERS: usize = 4;

/// Rows by column and the centers that they are compared with.
#[derive(Clone, Copy)]
struct Operands<T> {
    /// The first of the columns, `stride` values apart.
    x: *const T,
    stride: usize,
    /// The centers, row by row, and their norms.
    c: *const T,
    norms: *const T,
    /// Number of centers to compare with.
    k: usize,
    /// Their ids, if they are listed.
    list: *const u32,
}

/// The destinations of the results of a group of rows.
#[derive(Clone, Copy)]
struct Results<T> {
    best: *mut T,
    ids: *mut u32,
    second: *mut T,
}

/// Per row: the smallest value so far, its center, and the second smallest value.
pub(super) struct Minima<S: Simd, const RV: usize> {
    pub(super) low: [S::V; RV],
    pub(super) at: [S::V; RV],
    pub(super) next: [S::V; RV],
}

impl<S: Simd, const RV: usize> Minima<S, RV> {
    /// The minima of no values.
    ///
    /// # Safety
    /// The processor must support the instruction set.
    #[inline(always)]
    pub(super) unsafe fn none() -> Self {
        // SAFETY: this function requires the instruction set.
        let (never, zero) = unsafe { (S::splat(S::T::INFINITY), S::splat(S::T::ZERO)) };
        Self { low: [never; RV], at: [zero; RV], next: [never; RV] }
    }

    /// Takes the values of center `id` into account.
    ///
    /// # Safety
    /// The processor must support the instruction set.
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, values: &[S::V; RV], id: usize) {
        // SAFETY: this function requires the instruction set.
        unsafe {
            let id = S::splat(S::T::from_f32(id as f32));
            for v in 0..RV {
                self.next[v] = S::min(self.next[v], S::max(self.low[v], values[v]));
                (self.low[v], self.at[v]) = S::keep_less(self.low[v], self.at[v], values[v], id);
            }
        }
    }

    /// Takes the values of [`CENTERS`] centers into account. The first of them stands for all.
    ///
    /// # Safety
    /// The processor must support the instruction set.
    #[inline(always)]
    unsafe fn take_together(&mut self, values: [[S::V; RV]; CENTERS], first: usize) {
        // SAFETY: this function requires the instruction set.
        unsafe {
            let id = S::splat(S::T::from_f32(first as f32));
            for v in 0..RV {
                let [a, b, c, d] = values.map(|value| value[v]);
                let (ab, cd) = (S::min(a, b), S::min(c, d));
                let (least, rest) = (S::min(ab, cd), S::min(S::max(a, b), S::max(c, d)));
                let other = S::min(S::max(ab, cd), S::max(self.low[v], least));
                self.next[v] = S::min(self.next[v], S::min(rest, other));
                (self.low[v], self.at[v]) = S::keep_less(self.low[v], self.at[v], least, id);
            }
        }
    }
}

/// The id of the center that is compared as number `at`.
///
/// # Safety
/// If `LISTED`, `list` points to more than `at` centers.
#[inline(always)]
unsafe fn center<const LISTED: bool>(list: *const u32, at: usize) -> usize {
    // SAFETY: this function requires more than `at` listed centers.
    if LISTED { unsafe { *list.add(at) as usize } } else { at }
}

/// The tile values of `RV` vectors of rows and `N` centers, of which `first` is the number of the first.
///
/// # Safety
/// `from` has at least `first + N` centers, and points to what [`group`] requires. The processor must support
/// the instruction set.
#[inline(always)]
unsafe fn tile_values<S: Simd, const D: usize, const RV: usize, const N: usize, const LISTED: bool>(
    from: Operands<S::T>,
    rows: &[[S::V; RV]; D],
    first: usize,
) -> [[S::V; RV]; N] {
    // SAFETY: the centers exist, with `D` values and a norm each, and this function requires the instruction
    // set.
    unsafe {
        let mut values = [[S::splat(S::T::ZERO); RV]; N];
        for (i, values) in values.iter_mut().enumerate() {
            let j = center::<LISTED>(from.list, first + i);
            *values = [S::splat(*from.norms.add(j)); RV];
            for (t, column) in rows.iter().enumerate() {
                let b = S::splat(*from.c.add(j * D + t));
                for (v, value) in values.iter_mut().enumerate() {
                    *value = S::fmadd(column[v], b, *value);
                }
            }
        }
        values
    }
}

/// Finds the smallest value, its center and the second smallest value, for `RV` vectors of rows with `D`
/// columns. With `by_groups`, the minima are those of groups of centers, of which [`resolve`] finds the
/// nearest center.
///
/// # Safety
/// `from.x` points to `D` columns of `stride` values, of which `RV` vectors are read. `c` and `norms` point
/// to `D` values and one value per center. `list` points to `k` centers if `LISTED`. The pointers in `to`
/// point to `RV` vectors. The processor must support the instruction set.
#[inline(always)]
unsafe fn group<S: Simd, const D: usize, const RV: usize, const LISTED: bool>(
    from: Operands<S::T>,
    to: Results<S::T>,
    by_groups: bool,
) {
    let Operands { x, stride, k, .. } = from;
    let mut j = 0;
    // SAFETY: this function requires the instruction set, and rows, centers and results of these sizes. All
    // centers are below number `k`.
    unsafe {
        let mut rows = [[S::splat(S::T::ZERO); RV]; D];
        for (t, column) in rows.iter_mut().enumerate() {
            for (v, x_tv) in column.iter_mut().enumerate() {
                *x_tv = S::load(x.add(t * stride + v * S::LANES));
            }
        }
        let mut minima = Minima::<S, RV>::none();
        // Several centers at a time, so that their sums do not wait for each other.
        let by_groups = !LISTED && D <= GROUPED_DIM && by_groups;
        while by_groups && j + CENTERS <= k {
            minima.take_together(tile_values::<S, D, RV, CENTERS, LISTED>(from, &rows, j), j);
            j += CENTERS;
        }
        while j + CENTERS <= k {
            let values = tile_values::<S, D, RV, CENTERS, LISTED>(from, &rows, j);
            for (i, values) in values.iter().enumerate() {
                minima.take(values, center::<LISTED>(from.list, j + i));
            }
            j += CENTERS;
        }
        while j < k {
            let [values] = tile_values::<S, D, RV, 1, LISTED>(from, &rows, j);
            minima.take(&values, center::<LISTED>(from.list, j));
            j += 1;
        }
        for v in 0..RV {
            S::store(to.best.add(v * S::LANES), minima.low[v]);
            S::store_ids(to.ids.add(v * S::LANES), minima.at[v]);
            S::store(to.second.add(v * S::LANES), minima.next[v]);
        }
        if by_groups {
            resolve::<S::T, D>(from, RV * S::LANES, to.ids);
        }
    }
}

/// Replaces the first center of a group of [`CENTERS`] by the nearest of them, for `n` rows. Unless the arbiter decides
/// anyway, these centers differ by more than the sums may be wrong.
///
/// # Safety
/// `from.x` points to `D` columns of `stride` values, at least `n`, and `ids` to `n` centers below `k`. `c`
/// and `norms` point to `D` values and one value per center.
#[inline(always)]
unsafe fn resolve<T: Float, const D: usize>(from: Operands<T>, n: usize, ids: *mut u32) {
    let Operands { x, stride, c, norms, k, .. } = from;
    for r in 0..n {
        // SAFETY: `r` is below `n`, and the centers are below `k`. This function requires their values, and
        // those of `n` rows.
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
        // SAFETY: the buffers are as long as asserted, and the rows of a group end before `padded`. This
        // function requires the instruction set, as `group` does.
        unsafe {
            let from = Operands {
                x: scratch.x.as_ptr().add(r),
                stride,
                c: packed.data.as_ptr(),
                norms: packed.norms.as_ptr(),
                k,
                list: std::ptr::null(),
            };
            let to = Results {
                best: scratch.best.as_mut_ptr().add(r),
                ids: scratch.ids.as_mut_ptr().add(r),
                second: scratch.second.as_mut_ptr().add(r),
            };
            // The compiler removes the other branch.
            with_columns!(dim, D => if vectors_of(D, S::REGISTERS) == 2 {
                group::<S, D, 2, false>(from, to, by_groups);
            } else {
                group::<S, D, 1, false>(from, to, by_groups);
            });
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
        // asserted. This function requires the instruction set, as `group` does.
        unsafe {
            let from = Operands {
                x: columns.as_ptr().add(r),
                stride,
                c: packed.data.as_ptr(),
                norms: packed.norms.as_ptr(),
                k: list.len(),
                list: list.as_ptr(),
            };
            let to = Results {
                best: nearest.best.as_mut_ptr().add(r),
                ids: nearest.ids.as_mut_ptr().add(r),
                second: nearest.next.as_mut_ptr().add(r),
            };
            with_columns!(dim, D => group::<S, D, 1, true>(from, to, false));
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
