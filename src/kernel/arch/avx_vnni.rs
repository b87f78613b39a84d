//! Products of bytes by the 256-bit vector instructions of AVX-VNNI.

#[allow(clippy::wildcard_imports, reason = "intrinsics are named by their instruction")]
use std::arch::x86_64::*;

use super::avx2::Avx2F32;
use super::products::{Dots, GROUP, Operands, Products, Scanning, TILE};
use crate::kernel::isa::Isa;

/// Permission to use AVX-VNNI.
#[derive(Clone, Copy, Debug)]
struct AvxVnni(());

/// Runs a scan of sketches.
///
/// # Panics
/// If this processor lacks the instructions.
pub(in crate::kernel) fn scan(scan: impl Scanning) {
    assert!(Isa::AvxVnni.is_available(), "this processor has no AVX-VNNI");
    // SAFETY: the processor has the instructions.
    unsafe { scan_with(AvxVnni(()), scan) }
}

#[target_feature(enable = "avx2,fma,avxvnni")]
#[inline(never)]
fn scan_with(engine: AvxVnni, scan: impl Scanning) {
    // SAFETY: this function runs only where the instruction set is.
    unsafe { scan.scan::<Avx2F32, _>(&engine) }
}

/// Rows whose sums with 16 centers are in registers at a time.
const HEIGHT: usize = 4;

impl Dots for AvxVnni {
    #[inline(always)]
    fn tile<const VECTORS: usize>(&self, of: Operands<'_>, out: &mut Products) {
        const { assert!(16 * VECTORS <= GROUP && TILE.is_multiple_of(HEIGHT)) };
        let (rows, Operands { centers, bias, .. }) = (of.row_pointers(), of);
        for first in (0..TILE).step_by(HEIGHT) {
            for v in 0..VECTORS {
                // SAFETY: `self` shows that the processor has the instructions. 16 values from `16 * v` on are within
                // the arrays, and every row has as many words as the centers.
                unsafe {
                    let bias = bias.as_ptr().add(16 * v);
                    let start = [_mm256_loadu_si256(bias.cast()), _mm256_loadu_si256(bias.add(8).cast())];
                    let mut sums = [start; HEIGHT];
                    for (w, centers) in centers.iter().enumerate() {
                        let center = centers.0.as_ptr().add(16 * v);
                        let left = _mm256_load_si256(center.cast());
                        let right = _mm256_load_si256(center.add(8).cast());
                        for (row, sums) in rows[first..first + HEIGHT].iter().zip(&mut sums) {
                            let row = _mm256_set1_epi32(i32::from_le_bytes(*row.add(w)));
                            sums[0] = _mm256_dpbusd_avx_epi32(sums[0], row, left);
                            sums[1] = _mm256_dpbusd_avx_epi32(sums[1], row, right);
                        }
                    }
                    for (out, sums) in out[first..first + HEIGHT].iter_mut().zip(sums) {
                        let out = out.0.as_mut_ptr().add(16 * v);
                        _mm256_store_ps(out, _mm256_cvtepi32_ps(sums[0]));
                        _mm256_store_ps(out.add(8), _mm256_cvtepi32_ps(sums[1]));
                    }
                }
            }
        }
    }
}
