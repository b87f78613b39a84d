//! This module knows the few operations that a kernel needs of a vector.

use crate::float::Float;

/// One instruction set's vector of one type.
///
/// # Safety
/// Every method may only run on a processor that has the instruction set; `load` and `store` need `LANES` valid values at `p`.
pub(in crate::kernel) trait Simd: Copy {
    /// What a lane holds.
    type T: Float;
    /// The vector.
    type V: Copy;
    /// Lanes in a vector.
    const LANES: usize;
    /// Vector registers.
    const REGISTERS: usize;

    unsafe fn splat(x: Self::T) -> Self::V;
    unsafe fn load(p: *const Self::T) -> Self::V;
    unsafe fn store(p: *mut Self::T, v: Self::V);
    /// `a * b + c`, rounded once where the instruction set can.
    unsafe fn fmadd(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// Lane by lane, the candidate and its id where it is strictly smaller than the best, so that the earlier one wins a tie.
    unsafe fn keep_less(
        best: Self::V,
        id: Self::V,
        candidate: Self::V,
        candidate_id: Self::V,
    ) -> (Self::V, Self::V);
    /// Lane by lane, `yes` where `a == b`, else `no`.
    unsafe fn where_equal(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// The smallest lane.
    unsafe fn min_lane(v: Self::V) -> Self::T;
    /// 0, 1, 2, ...
    unsafe fn iota() -> Self::V;
    /// Asks for the cache line at `p` in the second-level cache; any address will do.
    fn prefetch(p: *const Self::T);
    /// Writes `first + lane` of the lanes with `a < b` to `to`, in order, and gives their number; needs room for `LANES` of them.
    #[inline(always)]
    unsafe fn push_less(a: Self::V, b: Self::V, first: u32, to: *mut u32) -> usize {
        let mut n = 0;
        // SAFETY: no vector has more than 16 lanes; `to` has room for all of them.
        unsafe {
            let (mut x, mut y) = ([Self::T::ZERO; 16], [Self::T::ZERO; 16]);
            Self::store(x.as_mut_ptr(), a);
            Self::store(y.as_mut_ptr(), b);
            for l in 0..Self::LANES {
                *to.add(n) = first + l as u32;
                n += usize::from(x[l] < y[l]);
            }
        }
        n
    }
    /// Whole numbers as integers; needs room for `LANES` of them at `p`.
    unsafe fn store_ids(p: *mut u32, ids: Self::V);
}

/// Vectors whose values can be read as `f64`, as exact sums need them.
///
/// # Safety
/// `widen` may only run on a processor that has the instruction set, and needs `Wide::LANES` valid values at `p`.
pub(in crate::kernel) trait Widen: Simd {
    /// The same instruction set's vector of `f64`.
    type Wide: Simd<T = f64>;

    unsafe fn widen(p: *const Self::T) -> <Self::Wide as Simd>::V;
}

/// The running minima that a kernel keeps of each row, in lanes.
pub(in crate::kernel) trait Epilogue<S: Simd> {
    /// Vectors of state a row.
    const VECTORS: usize;

    /// Adds the values `acc` of the vectors `ids`; ids only grow.
    ///
    /// # Safety
    /// `state` points to [`Self::VECTORS`] vectors; the processor has the instruction set.
    unsafe fn absorb<const NV: usize>(state: *mut S::T, acc: &[S::V; NV], ids: &[S::V; NV]);
}

/// Smallest value and its id.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Argmin;

impl<S: Simd> Epilogue<S> for Argmin {
    const VECTORS: usize = 2;

    #[inline(always)]
    unsafe fn absorb<const NV: usize>(state: *mut S::T, acc: &[S::V; NV], ids: &[S::V; NV]) {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut best, mut at) = (S::load(state), S::load(state.add(S::LANES)));
            for (v, &value) in acc.iter().enumerate() {
                (best, at) = S::keep_less(best, at, value, ids[v]);
            }
            S::store(state, best);
            S::store(state.add(S::LANES), at);
        }
    }
}

/// Smallest value, its id, and the second smallest value.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Two;

impl<S: Simd> Epilogue<S> for Two {
    const VECTORS: usize = 3;

    #[inline(always)]
    unsafe fn absorb<const NV: usize>(state: *mut S::T, acc: &[S::V; NV], ids: &[S::V; NV]) {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut best, mut at) = (S::load(state), S::load(state.add(S::LANES)));
            let mut second = S::load(state.add(2 * S::LANES));
            for (v, &value) in acc.iter().enumerate() {
                second = S::min(second, S::max(best, value));
                (best, at) = S::keep_less(best, at, value, ids[v]);
            }
            S::store(state, best);
            S::store(state.add(S::LANES), at);
            S::store(state.add(2 * S::LANES), second);
        }
    }
}
