//! This module knows the 512-bit vectors of x86-64.

use std::arch::x86_64::{
    __m512, __m512d, _CMP_LT_OQ, _mm512_cmp_pd_mask, _mm512_cmp_ps_mask, _mm512_fmadd_pd, _mm512_fmadd_ps,
    _mm512_loadu_pd, _mm512_loadu_ps, _mm512_mask_mov_pd, _mm512_mask_mov_ps, _mm512_max_pd, _mm512_max_ps,
    _mm512_min_pd, _mm512_min_ps, _mm512_set1_pd, _mm512_set1_ps, _mm512_storeu_pd, _mm512_storeu_ps,
};

use super::stamp;
use crate::kernel::generic::simd::Simd;

macro_rules! avx512 {
    ($name:ident, $t:ty, $v:ty, $lanes:literal, $splat:ident $load:ident $store:ident $fmadd:ident $min:ident $max:ident $cmp:ident $mov:ident) => {
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
                    ($mov(best, less, c), $mov(id, less, c_id))
                }
            }
        }
    };
}
avx512!(Avx512F32, f32, __m512, 16, _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps _mm512_min_ps _mm512_max_ps _mm512_cmp_ps_mask _mm512_mask_mov_ps);
avx512!(Avx512F64, f64, __m512d, 8, _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd _mm512_min_pd _mm512_max_pd _mm512_cmp_pd_mask _mm512_mask_mov_pd);
stamp!(f32, Avx512F32, Isa::Avx512, 12 x 2, [target_feature(enable = "avx512f,avx2,fma")]);
stamp!(f64, Avx512F64, Isa::Avx512, 12 x 2, [target_feature(enable = "avx512f,avx2,fma")]);
