//! 256-bit vectors of x86-64 with fused multiply-add.

#[allow(clippy::wildcard_imports, reason = "intrinsics are named by their instruction")]
use std::arch::x86_64::*;

use super::vectors::{methods, vectors};
use crate::kernel::simd::{Bits, Simd, Widen};

vectors!(
    Avx2F32, f32, __m256, 8 x 16,
    [_mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_min_ps _mm256_max_ps],
    fmadd(a, b, c) _mm256_fmadd_ps(a, b, c),
    less(x, y, yes, no) _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_LT_OQ>(x, y)),
    equal(p, q, yes, no) _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_EQ_OQ>(p, q)),
    min_lane(m) {
        let m = _mm_min_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps::<1>(m));
        let m = _mm_min_ps(m, _mm_movehl_ps(m, m));
        _mm_cvtss_f32(_mm_min_ss(m, _mm_shuffle_ps::<1>(m, m)))
    },
    store_ids(to, ids) _mm256_storeu_si256(to.cast(), _mm256_cvttps_epi32(ids)),
    prefetch(p) _mm_prefetch::<_MM_HINT_T1>(p.cast()),
    widen(p) Avx2F64 = _mm256_cvtps_pd(_mm_loadu_ps(p)),
    and {
        fn less(a: __m256, b: __m256) -> u32 = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) as u32;
        fn count_at_most(v: __m256, limit: f32) -> u32 =
            _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LE_OQ>(v, _mm256_set1_ps(limit))).count_ones();
        fn push_less(a: __m256, b: __m256, first: u32, to: *mut u32) -> usize = {
            let mut less = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) as u32;
            let mut n = 0;
            while less != 0 {
                *to.add(n) = first + less.trailing_zeros();
                less &= less - 1;
                n += 1;
            }
            n
        };
    }
);
vectors!(
    Avx2F64, f64, __m256d, 4 x 16,
    [_mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_add_pd _mm256_sub_pd _mm256_mul_pd _mm256_min_pd _mm256_max_pd],
    fmadd(a, b, c) _mm256_fmadd_pd(a, b, c),
    less(x, y, yes, no) _mm256_blendv_pd(no, yes, _mm256_cmp_pd::<_CMP_LT_OQ>(x, y)),
    equal(p, q, yes, no) _mm256_blendv_pd(no, yes, _mm256_cmp_pd::<_CMP_EQ_OQ>(p, q)),
    min_lane(m) {
        let m = _mm_min_pd(_mm256_castpd256_pd128(m), _mm256_extractf128_pd::<1>(m));
        _mm_cvtsd_f64(_mm_min_sd(m, _mm_unpackhi_pd(m, m)))
    },
    store_ids(to, ids) _mm_storeu_si128(to.cast(), _mm256_cvttpd_epi32(ids)),
    prefetch(p) _mm_prefetch::<_MM_HINT_T1>(p.cast()),
    widen(p) Avx2F64 = _mm256_loadu_pd(p),
    and {
        fn less(a: __m256d, b: __m256d) -> u32 = _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_LT_OQ>(a, b)) as u32;
    }
);

impl Bits for Avx2F64 {
    methods! {
        fn add_bits(p: *mut i64, from: __m256d, to: __m256d) = {
            let more = _mm256_sub_epi64(_mm256_castpd_si256(to), _mm256_castpd_si256(from));
            _mm256_storeu_si256(p.cast(), _mm256_add_epi64(_mm256_loadu_si256(p.cast()), more));
        };
        fn or(a: __m256d, b: __m256d) -> __m256d = _mm256_or_pd(a, b);
        fn xor(a: __m256d, b: __m256d) -> __m256d = _mm256_xor_pd(a, b);
    }
}
