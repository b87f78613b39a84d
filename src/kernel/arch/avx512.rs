//! 512-bit vectors of x86-64.

#[allow(clippy::wildcard_imports, reason = "intrinsics are named by their instruction")]
use std::arch::x86_64::*;

use super::vectors::{methods, vectors};
use crate::kernel::simd::{Bits, Simd, Widen};

vectors!(
    Avx512F32, f32, __m512, 16 x 32,
    [_mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_min_ps _mm512_max_ps],
    fmadd(a, b, c) _mm512_fmadd_ps(a, b, c),
    less(x, y, yes, no) _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, y), yes),
    equal(p, q, yes, no) _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(p, q), yes),
    min_lane(m) _mm512_reduce_min_ps(m),
    store_ids(to, ids) _mm512_storeu_si512(to.cast(), _mm512_cvttps_epi32(ids)),
    prefetch(p) _mm_prefetch::<_MM_HINT_T1>(p.cast()),
    widen(p) Avx512F64 = _mm512_cvtps_pd(_mm256_loadu_ps(p)),
    and {
        fn less(a: __m512, b: __m512) -> u32 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b).into();
        fn count_at_most(v: __m512, limit: f32) -> u32 =
            _mm512_cmp_ps_mask::<_CMP_LE_OQ>(v, _mm512_set1_ps(limit)).count_ones();
        fn push_less(a: __m512, b: __m512, first: u32, to: *mut u32) -> usize = {
            let less = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let rows = _mm512_add_epi32(lanes, _mm512_set1_epi32(first as i32));
            _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(less, rows));
            less.count_ones() as usize
        };
    }
);
vectors!(
    Avx512F64, f64, __m512d, 8 x 32,
    [_mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_add_pd _mm512_sub_pd _mm512_mul_pd _mm512_min_pd _mm512_max_pd],
    fmadd(a, b, c) _mm512_fmadd_pd(a, b, c),
    less(x, y, yes, no) _mm512_mask_mov_pd(no, _mm512_cmp_pd_mask::<_CMP_LT_OQ>(x, y), yes),
    equal(p, q, yes, no) _mm512_mask_mov_pd(no, _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(p, q), yes),
    min_lane(m) _mm512_reduce_min_pd(m),
    store_ids(to, ids) _mm256_storeu_si256(to.cast(), _mm512_cvttpd_epi32(ids)),
    prefetch(p) _mm_prefetch::<_MM_HINT_T1>(p.cast()),
    widen(p) Avx512F64 = _mm512_loadu_pd(p),
    and {
        fn less(a: __m512d, b: __m512d) -> u32 = _mm512_cmp_pd_mask::<_CMP_LT_OQ>(a, b).into();
    }
);

impl Bits for Avx512F64 {
    methods! {
        fn add_bits(p: *mut i64, from: __m512d, to: __m512d) = {
            let more = _mm512_sub_epi64(_mm512_castpd_si512(to), _mm512_castpd_si512(from));
            _mm512_storeu_si512(p.cast(), _mm512_add_epi64(_mm512_loadu_si512(p.cast()), more));
        };
        fn or(a: __m512d, b: __m512d) -> __m512d = _mm512_castsi512_pd(_mm512_or_si512(_mm512_castpd_si512(a), _mm512_castpd_si512(b)));
        fn xor(a: __m512d, b: __m512d) -> __m512d = _mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(a), _mm512_castpd_si512(b)));
    }
}
