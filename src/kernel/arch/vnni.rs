//! Products of bytes by the vector instructions of AVX-512 VNNI.

#[allow(clippy::wildcard_imports, reason = "intrinsics are named by their instruction")]
use std::arch::x86_64::*;

use super::avx512::Avx512F32;
use super::products::{Dots, GROUP, Operands, Products, Scanning, TILE};
use crate::kernel::isa::Isa;

/// Permission to use AVX-512 VNNI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vnni(());

impl Vnni {
    /// The instructions, if this processor has them.
    pub(super) fn available() -> Option<Self> {
        Isa::Avx512Vnni.is_available().then_some(Self(()))
    }
}

/// Runs a scan of sketches.
///
/// # Panics
/// If this processor lacks the instructions.
pub(in crate::kernel) fn scan(scan: impl Scanning) {
    let engine = Vnni::available().expect("this processor has no AVX-512 VNNI");
    // SAFETY: `engine` shows that the processor has the instructions.
    unsafe { scan_with(engine, scan) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")]
#[inline(never)]
fn scan_with(engine: Vnni, scan: impl Scanning) {
    // SAFETY: this function runs only where the instruction set is.
    unsafe { scan.scan::<Avx512F32, _>(&engine) }
}

impl Dots for Vnni {
    #[inline(always)]
    fn tile<const VECTORS: usize>(&self, of: Operands<'_>, out: &mut Products) {
        const { assert!(16 * VECTORS <= GROUP) };
        let (rows, Operands { centers, bias, .. }) = (of.row_pointers(), of);
        // SAFETY: `self` shows that the processor has the instructions. `VECTORS` vectors of 16 values are within
        // the arrays, of which those of words and sums begin at cache lines, and every row has as many words as the
        // centers.
        unsafe {
            let mut sums = [[_mm512_setzero_si512(); VECTORS]; TILE];
            for v in 0..VECTORS {
                let bias = _mm512_loadu_si512(bias.as_ptr().add(16 * v).cast());
                for sums in &mut sums {
                    sums[v] = bias;
                }
            }
            for (w, centers) in centers.iter().enumerate() {
                let mut columns = [_mm512_setzero_si512(); VECTORS];
                for (v, columns) in columns.iter_mut().enumerate() {
                    *columns = _mm512_load_si512(centers.0.as_ptr().add(16 * v).cast());
                }
                for (row, sums) in rows.iter().zip(&mut sums) {
                    let row = _mm512_set1_epi32(i32::from_le_bytes(*row.add(w)));
                    for (sum, &column) in sums.iter_mut().zip(&columns) {
                        *sum = _mm512_dpbusd_epi32(*sum, row, column);
                    }
                }
            }
            for (out, sums) in out.iter_mut().zip(&sums) {
                for (v, &sum) in sums.iter().enumerate() {
                    _mm512_store_ps(out.0.as_mut_ptr().add(16 * v), _mm512_cvtepi32_ps(sum));
                }
            }
        }
    }
}
