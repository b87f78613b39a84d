//! This module knows the 128-bit vectors of Arm.

use std::arch::aarch64::{
    float32x4_t, float64x2_t, vbslq_f32, vbslq_f64, vcltq_f32, vcltq_f64, vdupq_n_f32, vdupq_n_f64,
    vfmaq_f32, vfmaq_f64, vld1q_f32, vld1q_f64, vmaxq_f32, vmaxq_f64, vminq_f32, vminq_f64, vst1q_f32,
    vst1q_f64,
};

use super::stamp;
use crate::kernel::generic::simd::Simd;

macro_rules! neon {
    ($name:ident, $t:ty, $v:ty, $lanes:literal, $splat:ident $load:ident $store:ident $fma:ident $min:ident $max:ident $less:ident $select:ident) => {
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
                unsafe { $fma(c, a, b) }
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
                    let less = $less(c, best);
                    ($select(less, c, best), $select(less, c_id, id))
                }
            }
        }
    };
}
neon!(NeonF32, f32, float32x4_t, 4, vdupq_n_f32 vld1q_f32 vst1q_f32 vfmaq_f32 vminq_f32 vmaxq_f32 vcltq_f32 vbslq_f32);
neon!(NeonF64, f64, float64x2_t, 2, vdupq_n_f64 vld1q_f64 vst1q_f64 vfmaq_f64 vminq_f64 vmaxq_f64 vcltq_f64 vbslq_f64);
stamp!(f32, NeonF32, Isa::Neon, 8 x 2, [target_feature(enable = "neon")]);
stamp!(f64, NeonF64, Isa::Neon, 8 x 2, [target_feature(enable = "neon")]);
