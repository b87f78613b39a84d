//! 128-bit vectors of Arm.

#[allow(clippy::wildcard_imports, reason = "intrinsics are named by their instruction")]
use std::arch::aarch64::*;

use super::vectors::{methods, vectors};
use crate::kernel::simd::{Bits, Simd, Widen};

vectors!(
    NeonF32, f32, float32x4_t, 4 x 32,
    [vdupq_n_f32 vld1q_f32 vst1q_f32 vaddq_f32 vsubq_f32 vmulq_f32 vminq_f32 vmaxq_f32],
    fmadd(a, b, c) vfmaq_f32(c, a, b),
    less(x, y, yes, no) vbslq_f32(vcltq_f32(x, y), yes, no),
    equal(p, q, yes, no) vbslq_f32(vceqq_f32(p, q), yes, no),
    min_lane(m) vminvq_f32(m),
    store_ids(to, ids) vst1q_u32(to, vcvtq_u32_f32(ids)),
    prefetch(_p) (),
    widen(p) NeonF64 = vcvt_f64_f32(vld1_f32(p))
);
vectors!(
    NeonF64, f64, float64x2_t, 2 x 32,
    [vdupq_n_f64 vld1q_f64 vst1q_f64 vaddq_f64 vsubq_f64 vmulq_f64 vminq_f64 vmaxq_f64],
    fmadd(a, b, c) vfmaq_f64(c, a, b),
    less(x, y, yes, no) vbslq_f64(vcltq_f64(x, y), yes, no),
    equal(p, q, yes, no) vbslq_f64(vceqq_f64(p, q), yes, no),
    min_lane(m) vminvq_f64(m),
    store_ids(to, ids) vst1_u32(to, vmovn_u64(vcvtq_u64_f64(ids))),
    prefetch(_p) (),
    widen(p) NeonF64 = vld1q_f64(p)
);

impl Bits for NeonF64 {
    methods! {
        fn add_bits(p: *mut i64, from: float64x2_t, to: float64x2_t) = {
            let more = vsubq_s64(vreinterpretq_s64_f64(to), vreinterpretq_s64_f64(from));
            vst1q_s64(p, vaddq_s64(vld1q_s64(p), more));
        };
        fn or(a: float64x2_t, b: float64x2_t) -> float64x2_t = vreinterpretq_f64_u64(vorrq_u64(vreinterpretq_u64_f64(a), vreinterpretq_u64_f64(b)));
        fn xor(a: float64x2_t, b: float64x2_t) -> float64x2_t = vreinterpretq_f64_u64(veorq_u64(vreinterpretq_u64_f64(a), vreinterpretq_u64_f64(b)));
    }
}
