//! Portable vectors: arrays that the compiler may vectorize.

use std::array::from_fn;
use std::ops::{Add, Mul, Sub};

use super::vectors::{methods, vectors};
use crate::kernel::simd::{Bits, Simd, Widen};

#[inline(always)]
fn splat<T: Copy, const N: usize>(x: T) -> [T; N] {
    [x; N]
}

/// # Safety
/// `p` points to `N` readable values.
#[inline(always)]
unsafe fn load<T: Copy, const N: usize>(p: *const T) -> [T; N] {
    // SAFETY: an array of `N` values is read, which this function requires to be readable. No alignment is
    // needed.
    unsafe { p.cast::<[T; N]>().read_unaligned() }
}

/// # Safety
/// `p` has room for `N` values.
#[inline(always)]
unsafe fn store<T: Copy, const N: usize>(p: *mut T, v: [T; N]) {
    // SAFETY: an array of `N` values is written, for which this function requires room. No alignment is
    // needed.
    unsafe { p.cast::<[T; N]>().write_unaligned(v) }
}

#[inline(always)]
fn add<T: Copy + Add<Output = T>, const N: usize>(a: [T; N], b: [T; N]) -> [T; N] {
    from_fn(|l| a[l] + b[l])
}

#[inline(always)]
fn sub<T: Copy + Sub<Output = T>, const N: usize>(a: [T; N], b: [T; N]) -> [T; N] {
    from_fn(|l| a[l] - b[l])
}

#[inline(always)]
fn mul<T: Copy + Mul<Output = T>, const N: usize>(a: [T; N], b: [T; N]) -> [T; N] {
    from_fn(|l| a[l] * b[l])
}

#[inline(always)]
fn min<T: Copy + PartialOrd, const N: usize>(a: [T; N], b: [T; N]) -> [T; N] {
    from_fn(|l| if b[l] < a[l] { b[l] } else { a[l] })
}

#[inline(always)]
fn max<T: Copy + PartialOrd, const N: usize>(a: [T; N], b: [T; N]) -> [T; N] {
    from_fn(|l| if b[l] > a[l] { b[l] } else { a[l] })
}

macro_rules! scalar {
    ($name:ident, $t:ty, $lanes:literal) => {
        vectors!(
            $name, $t, [$t; $lanes], $lanes x 16,
            [splat load store add sub mul min max],
            fmadd(a, b, c) from_fn(|l| a[l] * b[l] + c[l]),
            less(x, y, yes, no) from_fn(|l| if x[l] < y[l] { yes[l] } else { no[l] }),
            equal(p, q, yes, no) from_fn(|l| if p[l] == q[l] { yes[l] } else { no[l] }),
            min_lane(m) m.into_iter().fold(<$t>::INFINITY, |a, b| if b < a { b } else { a }),
            store_ids(to, ids) store(to, ids.map(|id| id as u32)),
            prefetch(_p) (),
            widen(p) ScalarF64 = load::<$t, 2>(p).map(f64::from)
        );
    };
}
scalar!(ScalarF32, f32, 4);
scalar!(ScalarF64, f64, 2);

#[allow(unused_unsafe, reason = "portable operations are safe")]
impl Bits for ScalarF64 {
    methods! {
        fn add_bits(p: *mut i64, from: [f64; 2], to: [f64; 2]) = {
            let bits = |v: [f64; 2]| v.map(|x| x.to_bits().cast_signed());
            let (from, to, old) = (bits(from), bits(to), load::<i64, 2>(p));
            store(p, from_fn::<_, 2, _>(|l| old[l].wrapping_add(to[l].wrapping_sub(from[l]))));
        };
        fn or(a: [f64; 2], b: [f64; 2]) -> [f64; 2] = from_fn(|l| f64::from_bits(a[l].to_bits() | b[l].to_bits()));
        fn xor(a: [f64; 2], b: [f64; 2]) -> [f64; 2] = from_fn(|l| f64::from_bits(a[l].to_bits() ^ b[l].to_bits()));
    }
}
