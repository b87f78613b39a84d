//! This module knows the 256-bit vectors of x86-64 with fused multiply-add.

use std::arch::x86_64::{
    __m256, __m256d, _CMP_LT_OQ, _mm256_blendv_pd, _mm256_blendv_ps, _mm256_cmp_pd, _mm256_cmp_ps,
    _mm256_fmadd_pd, _mm256_fmadd_ps, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_max_pd, _mm256_max_ps,
    _mm256_min_pd, _mm256_min_ps, _mm256_set1_pd, _mm256_set1_ps, _mm256_storeu_pd, _mm256_storeu_ps,
};

use super::stamp;
use crate::kernel::generic::simd::Simd;

macro_rules! avx2 {
    ($name:ident, $t:ty, $v:ty, $lanes:literal, $splat:ident $load:ident $store:ident $fmadd:ident $min:ident $max:ident $cmp:ident $blend:ident) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        // SAFETY of every block: the caller's processor has the instruction set, and pointers are as the trait asks.
        impl Simd for $name {
            type T = $t;
            type V = $v;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(x: $t) -> $v {
                // SAFETY: see the impl.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> $v {
                // SAFETY: see the impl.
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn store(p: *mut $t, v: $v) {
                // SAFETY: see the impl.
                unsafe { $store(p, v) }
            }
            #[inline(always)]
            unsafe fn fmadd(a: $v, b: $v, c: $v) -> $v {
                // SAFETY: see the impl.
                unsafe { $fmadd(a, b, c) }
            }
            #[inline(always)]
            unsafe fn min(a: $v, b: $v) -> $v {
                // SAFETY: see the impl.
                unsafe { $min(a, b) }
            }
            #[inline(always)]
            unsafe fn max(a: $v, b: $v) -> $v {
                // SAFETY: see the impl.
                unsafe { $max(a, b) }
            }
            #[inline(always)]
            unsafe fn keep_less(best: $v, id: $v, c: $v, c_id: $v) -> ($v, $v) {
                // SAFETY: see the impl.
                unsafe {
                    let less = $cmp::<_CMP_LT_OQ>(c, best);
                    ($blend(best, c, less), $blend(id, c_id, less))
                }
            }
        }
    };
}
avx2!(Avx2F32, f32, __m256, 8, _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps _mm256_min_ps _mm256_max_ps _mm256_cmp_ps _mm256_blendv_ps);
avx2!(Avx2F64, f64, __m256d, 4, _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd _mm256_min_pd _mm256_max_pd _mm256_cmp_pd _mm256_blendv_pd);
stamp!(f32, Avx2F32, Isa::Avx2, 6 x 2, [target_feature(enable = "avx2,fma")]);
stamp!(f64, Avx2F64, Isa::Avx2, 6 x 2, [target_feature(enable = "avx2,fma")]);
