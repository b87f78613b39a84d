//! The vector operations that kernels use, as traits that every instruction set implements.
#![allow(unsafe_code)]

use crate::float::Float;

/// The largest number of lanes in a vector.
pub(super) const MOST_LANES: usize = 16;

/// The sum of the lanes, by halving. In arrays of known lengths, which the compiler adds as vectors.
#[inline(always)]
pub(super) fn sum_of_lanes<T: Float>(values: [T; MOST_LANES]) -> T {
    let mut eight = [T::ZERO; MOST_LANES / 2];
    for l in 0..8 {
        eight[l] = values[l] + values[l + 8];
    }
    let mut four = [T::ZERO; MOST_LANES / 4];
    for l in 0..4 {
        four[l] = eight[l] + eight[l + 4];
    }
    (four[0] + four[2]) + (four[1] + four[3])
}

/// A vector type of one instruction set and one element type.
pub(super) trait Simd: Copy {
    /// The element type.
    type T: Float;
    /// The vector type.
    type V: Copy;
    /// Number of lanes in a vector.
    const LANES: usize;
    /// Number of vector registers.
    const REGISTERS: usize;

    /// All lanes `x`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn splat(x: Self::T) -> Self::V;
    /// The values at `p`, which need not be aligned.
    ///
    /// # Safety
    /// `p` points to `LANES` readable values. The processor has the instruction set.
    unsafe fn load(p: *const Self::T) -> Self::V;
    /// Writes a vector to `p`, which need not be aligned.
    ///
    /// # Safety
    /// `p` points to `LANES` writable values. The processor has the instruction set.
    unsafe fn store(p: *mut Self::T, v: Self::V);
    /// `a * b + c`, rounded once if the instruction set supports it.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn fmadd(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a + b`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// The smaller of `a` and `b`, per lane.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// The larger of `a` and `b`, per lane.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// Per lane, selects the candidate and its id if it is strictly smaller than the best. The earlier one
    /// wins a tie.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn keep_less(
        best: Self::V,
        id: Self::V,
        candidate: Self::V,
        candidate_id: Self::V,
    ) -> (Self::V, Self::V);
    /// Per lane, `yes` if `a == b`, else `no`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn where_equal(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// The smallest lane.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn min_lane(v: Self::V) -> Self::T;
    /// The lane numbers 0, 1, 2, ...
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn iota() -> Self::V;
    /// Prefetches the cache line at `p` into the second-level cache. Any address is allowed.
    fn prefetch(p: *const Self::T);
    /// Writes `first + lane` for the lanes with `a < b` to `to`, in order, and returns their number.
    ///
    /// # Safety
    /// `to` has room for `LANES` values. The processor has the instruction set.
    #[inline(always)]
    unsafe fn push_less(a: Self::V, b: Self::V, first: u32, to: *mut u32) -> usize {
        let mut n = 0;
        // SAFETY: no vector has more than `MOST_LANES` lanes, and `to` has room for all of them. The
        // processor has the instruction set, which this function requires.
        unsafe {
            let (mut x, mut y) = ([Self::T::ZERO; MOST_LANES], [Self::T::ZERO; MOST_LANES]);
            Self::store(x.as_mut_ptr(), a);
            Self::store(y.as_mut_ptr(), b);
            for l in 0..Self::LANES {
                *to.add(n) = first + l as u32;
                n += usize::from(x[l] < y[l]);
            }
        }
        n
    }
    /// One bit per lane: whether `a < b`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn less(a: Self::V, b: Self::V) -> u32 {
        let (mut x, mut y) = ([Self::T::ZERO; MOST_LANES], [Self::T::ZERO; MOST_LANES]);
        // SAFETY: no vector has more than `MOST_LANES` lanes. This function requires the instruction set.
        unsafe {
            Self::store(x.as_mut_ptr(), a);
            Self::store(y.as_mut_ptr(), b);
        }
        (0..Self::LANES).fold(0, |bits, l| bits | u32::from(x[l] < y[l]) << l)
    }
    /// The number of lanes that are at most `limit`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn count_at_most(v: Self::V, limit: Self::T) -> u32 {
        let mut x = [Self::T::ZERO; MOST_LANES];
        // SAFETY: no vector has more than `MOST_LANES` lanes. This function requires the instruction set.
        unsafe { Self::store(x.as_mut_ptr(), v) };
        x[..Self::LANES].iter().map(|&x| u32::from(x <= limit)).sum()
    }
    /// Stores whole numbers as integers.
    ///
    /// # Safety
    /// `p` has room for `LANES` values. The processor has the instruction set.
    unsafe fn store_ids(p: *mut u32, ids: Self::V);
}

/// Vectors whose bits can be read as whole numbers of 64 bits.
pub(super) trait Bits: Simd<T = f64> {
    /// Adds the bits of `to` less those of `from`, as whole numbers, to the numbers at `p`.
    ///
    /// # Safety
    /// `p` points to `LANES` readable and writable values. The processor has the instruction set.
    unsafe fn add_bits(p: *mut i64, from: Self::V, to: Self::V);
    /// The bits that are 1 in `a` or `b`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn or(a: Self::V, b: Self::V) -> Self::V;
    /// The bits that differ.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn xor(a: Self::V, b: Self::V) -> Self::V;
}

/// Vectors whose values can be converted to `f64`, for exact sums.
pub(super) trait Widen: Simd {
    /// The `f64` vector of the same instruction set.
    type Wide: Bits;

    /// The values at `p` as `f64`.
    ///
    /// # Safety
    /// `p` points to as many readable values as `Wide` has lanes. The processor has the instruction set.
    unsafe fn widen(p: *const Self::T) -> <Self::Wide as Simd>::V;
}

/// The running minima that a kernel keeps per row, in lanes.
pub(super) trait Epilogue<S: Simd> {
    /// Number of state vectors per row.
    const VECTORS: usize;

    /// Updates the state with the values `acc` of the vectors `ids`. Ids must not decrease between calls.
    ///
    /// # Safety
    /// `state` must point to [`Self::VECTORS`] vectors, and the processor must support the instruction set.
    unsafe fn absorb<const NV: usize>(state: *mut S::T, acc: &[S::V; NV], ids: &[S::V; NV]);
}

/// Tracks the smallest value, its id, and the second smallest value.
#[derive(Clone, Copy)]
pub(super) struct Two;

impl<S: Simd> Epilogue<S> for Two {
    const VECTORS: usize = 3;

    /// # Safety
    /// `state` must point to three vectors, and the processor must support the instruction set.
    #[inline(always)]
    unsafe fn absorb<const NV: usize>(state: *mut S::T, acc: &[S::V; NV], ids: &[S::V; NV]) {
        // SAFETY: the three vectors of `state` are loaded and stored, with the instruction set that this
        // function requires.
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
