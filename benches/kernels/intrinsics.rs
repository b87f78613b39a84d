//! Loops with intrinsics: the peak of a core, and the pass over the product of the `gemm` crate.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use shoal::kernel::{Compute, Isa};

/// A compute type, and its two loops with intrinsics.
pub(crate) trait Real: Compute {
    /// Multiply-add speed of one core in operations per second.
    fn peak(isa: Isa, turns: usize) -> f64;
    /// Index of the smallest `norms[j] + product[row, j]` per row, the lowest index among equals.
    fn smallest(product: &[Self], norms: &[Self], by_center: bool, labels: &mut [u32]);
}

/// The best of several bursts of a tenth of a millisecond, because another process can interrupt a burst.
pub(crate) fn peak<T: Real>(isa: Isa, turns: usize) -> f64 {
    (0..8).map(|_| T::peak(isa, turns)).fold(0.0, f64::max)
}

/// Portable version for any number of rows and centers.
fn smallest_plain<T: Real>(product: &[T], norms: &[T], by_center: bool, labels: &mut [u32]) {
    let (n, k) = (labels.len(), norms.len());
    for (i, label) in labels.iter_mut().enumerate() {
        let mut best = f64::INFINITY;
        for (j, norm) in norms.iter().enumerate() {
            let at = if by_center { j * n + i } else { i * k + j };
            let value = T::from_f64(product[at].to_f64() + norm.to_f64()).to_f64();
            if value < best {
                (best, *label) = (value, j as u32);
            }
        }
    }
}

fn peak_plain(turns: usize) -> f64 {
    // Eight chains without intrinsics, as the compiler vectorizes them.
    let (a, b) = (black_box(0.999f64), black_box(0.001));
    let mut acc = [1.0f64; 8];
    let t = Instant::now();
    for _ in 0..turns {
        for v in &mut acc {
            *v = *v * a + b;
        }
    }
    black_box(acc);
    16.0 * turns as f64 / t.elapsed().as_secs_f64()
}

/// The loops for one type and one vector length. `$keep` takes `(best, index of best, candidate, its index)`.
#[cfg(target_arch = "x86_64")]
macro_rules! loops {
    ($name:ident, $t:ty, $v:ty, $lanes:literal, $features:literal, $set1:ident, $load:ident, $store:ident, $add:ident, $fma:ident, $keep:expr) => {
        mod $name {
            use super::{Instant, black_box};
            use std::arch::x86_64::*;

            pub(super) const LANES: usize = $lanes;

            #[target_feature(enable = $features)]
            pub(super) fn peak(turns: usize) -> f64 {
                const CHAINS: usize = 12;
                let (a, b) = ($set1(black_box(0.999)), $set1(black_box(0.001)));
                let mut acc = [$set1(black_box(1.0)); CHAINS];
                let t = Instant::now();
                for _ in 0..turns {
                    for v in &mut acc {
                        *v = $fma(*v, a, b);
                    }
                }
                let seconds = t.elapsed().as_secs_f64();
                black_box(acc);
                (2 * CHAINS * LANES * turns) as f64 / seconds
            }

            /// For a multiple of 4 rows and of `LANES` centers, with the product row by row.
            #[target_feature(enable = $features)]
            pub(super) fn by_row(product: &[$t], norms: &[$t], labels: &mut [u32]) {
                let k = norms.len();
                assert!(k % LANES == 0 && labels.len() % 4 == 0 && product.len() == labels.len() * k);
                let iota: [$t; LANES] = std::array::from_fn(|l| l as $t);
                // SAFETY: `iota` holds LANES values.
                let iota = unsafe { $load(iota.as_ptr()) };
                for (product, labels) in product.chunks_exact(4 * k).zip(labels.chunks_exact_mut(4)) {
                    let (mut best, mut at) = ([$set1(<$t>::INFINITY); 4], [$set1(0.0); 4]);
                    for j in (0..k).step_by(LANES) {
                        // SAFETY: j + LANES <= k, and `product` holds 4 k values.
                        let norm = unsafe { $load(norms.as_ptr().add(j)) };
                        let index = $add(iota, $set1(j as $t));
                        for r in 0..4 {
                            // SAFETY: as above.
                            let value = $add(norm, unsafe { $load(product.as_ptr().add(r * k + j)) });
                            (best[r], at[r]) = $keep(best[r], at[r], value, index);
                        }
                    }
                    for r in 0..4 {
                        let (mut values, mut indices) = ([0.0; LANES], [0.0; LANES]);
                        // SAFETY: both hold LANES values.
                        unsafe {
                            ($store(values.as_mut_ptr(), best[r]), $store(indices.as_mut_ptr(), at[r]))
                        };
                        let mut found = (values[0], indices[0]);
                        for l in 1..LANES {
                            if values[l] < found.0 || (values[l] == found.0 && indices[l] < found.1) {
                                found = (values[l], indices[l]);
                            }
                        }
                        labels[r] = found.1 as u32;
                    }
                }
            }

            /// For a multiple of 4 `LANES` rows, with the product center by center.
            #[target_feature(enable = $features)]
            pub(super) fn by_center(product: &[$t], norms: &[$t], labels: &mut [u32]) {
                let n = labels.len();
                assert!(n % (4 * LANES) == 0 && product.len() == n * norms.len());
                for i in (0..n).step_by(4 * LANES) {
                    let (mut best, mut at) = ([$set1(<$t>::INFINITY); 4], [$set1(0.0); 4]);
                    for (j, &norm) in norms.iter().enumerate() {
                        let (norm, index) = ($set1(norm), $set1(j as $t));
                        for r in 0..4 {
                            let from = product[j * n + i + r * LANES..][..LANES].as_ptr();
                            // SAFETY: `from` points to as many values as a vector holds.
                            let value = $add(norm, unsafe { $load(from) });
                            (best[r], at[r]) = $keep(best[r], at[r], value, index);
                        }
                    }
                    for r in 0..4 {
                        let mut indices = [0.0; LANES];
                        // SAFETY: it holds LANES values.
                        unsafe { $store(indices.as_mut_ptr(), at[r]) };
                        for (label, index) in labels[i + r * LANES..][..LANES].iter_mut().zip(indices) {
                            *label = index as u32;
                        }
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
loops!(
    f32_512,
    f32,
    __m512,
    16,
    "avx512f",
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_add_ps,
    _mm512_fmadd_ps,
    |b, bi, c, ci| {
        let less = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(c, b);
        (_mm512_mask_mov_ps(b, less, c), _mm512_mask_mov_ps(bi, less, ci))
    }
);
#[cfg(target_arch = "x86_64")]
loops!(
    f64_512,
    f64,
    __m512d,
    8,
    "avx512f",
    _mm512_set1_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_add_pd,
    _mm512_fmadd_pd,
    |b, bi, c, ci| {
        let less = _mm512_cmp_pd_mask::<_CMP_LT_OQ>(c, b);
        (_mm512_mask_mov_pd(b, less, c), _mm512_mask_mov_pd(bi, less, ci))
    }
);
#[cfg(target_arch = "x86_64")]
loops!(
    f32_256,
    f32,
    __m256,
    8,
    "avx2,fma",
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_add_ps,
    _mm256_fmadd_ps,
    |b, bi, c, ci| {
        let less = _mm256_cmp_ps::<_CMP_LT_OQ>(c, b);
        (_mm256_blendv_ps(b, c, less), _mm256_blendv_ps(bi, ci, less))
    }
);
#[cfg(target_arch = "x86_64")]
loops!(
    f64_256,
    f64,
    __m256d,
    4,
    "avx2,fma",
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_add_pd,
    _mm256_fmadd_pd,
    |b, bi, c, ci| {
        let less = _mm256_cmp_pd::<_CMP_LT_OQ>(c, b);
        (_mm256_blendv_pd(b, c, less), _mm256_blendv_pd(bi, ci, less))
    }
);

macro_rules! real {
    ($t:ty, $wide:ident, $half:ident) => {
        impl Real for $t {
            fn peak(isa: Isa, turns: usize) -> f64 {
                match isa {
                    // SAFETY: the caller has checked that this processor has the instruction set.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 | Isa::Avx512Vnni | Isa::Amx => unsafe { $wide::peak(turns) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 | Isa::AvxVnni => unsafe { $half::peak(turns) },
                    _ => peak_plain(turns),
                }
            }

            fn smallest(product: &[Self], norms: &[Self], by_center: bool, labels: &mut [u32]) {
                #[cfg(target_arch = "x86_64")]
                {
                    let fits = |lanes: usize| {
                        if by_center { labels.len() % (4 * lanes) == 0 } else { norms.len() % lanes == 0 }
                    };
                    if Isa::Avx512.is_available() && fits($wide::LANES) {
                        // SAFETY: this processor has AVX-512.
                        return unsafe {
                            if by_center {
                                $wide::by_center(product, norms, labels);
                            } else {
                                $wide::by_row(product, norms, labels);
                            }
                        };
                    }
                    if Isa::Avx2.is_available() && fits($half::LANES) {
                        // SAFETY: this processor has AVX2 and FMA.
                        return unsafe {
                            if by_center {
                                $half::by_center(product, norms, labels);
                            } else {
                                $half::by_row(product, norms, labels);
                            }
                        };
                    }
                }
                smallest_plain(product, norms, by_center, labels);
            }
        }
    };
}

real!(f32, f32_512, f32_256);
real!(f64, f64_512, f64_256);
