//! This module knows vectors without any instruction set: arrays that the compiler may vectorise as it likes.

use super::stamp;
use crate::kernel::generic::simd::Simd;

macro_rules! scalar {
    ($name:ident, $t:ty, $lanes:literal) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        impl Simd for $name {
            type T = $t;
            type V = [$t; $lanes];
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self::V {
                [x; $lanes]
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self::V {
                // SAFETY: the caller's promise.
                unsafe { p.cast::<Self::V>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(p: *mut $t, v: Self::V) {
                // SAFETY: the caller's promise.
                unsafe { p.cast::<Self::V>().write_unaligned(v) }
            }
            #[inline(always)]
            unsafe fn fmadd(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
                std::array::from_fn(|l| a[l] * b[l] + c[l])
            }
            #[inline(always)]
            unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
                std::array::from_fn(|l| if b[l] < a[l] { b[l] } else { a[l] })
            }
            #[inline(always)]
            unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
                std::array::from_fn(|l| if b[l] > a[l] { b[l] } else { a[l] })
            }
            #[inline(always)]
            unsafe fn keep_less(best: Self::V, id: Self::V, c: Self::V, c_id: Self::V) -> (Self::V, Self::V) {
                (
                    std::array::from_fn(|l| if c[l] < best[l] { c[l] } else { best[l] }),
                    std::array::from_fn(|l| if c[l] < best[l] { c_id[l] } else { id[l] }),
                )
            }
        }
    };
}
scalar!(ScalarF32, f32, 4);
scalar!(ScalarF64, f64, 2);
stamp!(f32, ScalarF32, Isa::Scalar, 4 x 2, []);
stamp!(f64, ScalarF64, Isa::Scalar, 4 x 2, []);
