//! Products of bytes by the dot products of Arm.

#[allow(clippy::wildcard_imports, reason = "intrinsics are named by their instruction")]
use std::arch::aarch64::*;
use std::arch::asm;

use super::neon::NeonF32;
use super::products::{Dots, GROUP, Operands, Products, Scanning, TILE};
use crate::kernel::isa::Isa;

/// Permission to use dot products of bytes.
#[derive(Clone, Copy, Debug)]
struct NeonDot(());

/// Runs a scan of sketches.
///
/// # Panics
/// If this processor lacks the instructions.
pub(in crate::kernel) fn scan(scan: impl Scanning) {
    assert!(Isa::NeonDot.is_available(), "this processor has no dot products of bytes");
    // SAFETY: the processor has the instructions.
    unsafe { scan_with(NeonDot(()), scan) }
}

#[target_feature(enable = "neon,dotprod")]
#[inline(never)]
fn scan_with(engine: NeonDot, scan: impl Scanning) {
    // SAFETY: this function runs only where the instruction set is.
    unsafe { scan.scan::<NeonF32, _>(&engine) }
}

/// Adds the products of four signed bytes to each sum. Rust has no stable intrinsic for this instruction.
///
/// # Safety
/// The processor has dot products of bytes, and the caller is compiled for them.
#[inline(always)]
unsafe fn add_products(sums: int32x4_t, columns: int8x16_t, row: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: the instruction changes only this register.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {columns:v}.16b, {row:v}.16b",
            sums = inout(vreg) sums,
            columns = in(vreg) columns,
            row = in(vreg) row,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// Rows whose sums with a group of centers are in registers at a time.
const HEIGHT: usize = 2;

impl Dots for NeonDot {
    /// The bytes of rows get a sign here, so that no bias is needed.
    #[inline(always)]
    fn tile<const VECTORS: usize>(&self, of: Operands<'_>, out: &mut Products) {
        const { assert!(16 * VECTORS <= GROUP && TILE.is_multiple_of(HEIGHT)) };
        let rows = of.row_pointers();
        for (rows, out) in rows.as_chunks::<HEIGHT>().0.iter().zip(out.as_chunks_mut::<HEIGHT>().0) {
            // SAFETY: `self` shows that the processor has the instructions. `VECTORS` times 16 values are within the
            // arrays, and every row has as many words as the centers.
            unsafe {
                let mut sums = [[[vdupq_n_s32(0); 4]; VECTORS]; HEIGHT];
                for (w, centers) in of.centers.iter().enumerate() {
                    let rows = rows.map(|row| {
                        let word = u32::from_le_bytes(*row.add(w)) ^ 0x8080_8080;
                        vreinterpretq_s8_u32(vdupq_n_u32(word))
                    });
                    for v in 0..VECTORS {
                        for l in 0..4 {
                            let columns = vld1q_s8(centers.0.as_ptr().add(16 * v + 4 * l).cast());
                            for (sums, &row) in sums.iter_mut().zip(&rows) {
                                sums[v][l] = add_products(sums[v][l], columns, row);
                            }
                        }
                    }
                }
                for (out, sums) in out.iter_mut().zip(&sums) {
                    for (at, &sums) in sums.as_flattened().iter().enumerate() {
                        vst1q_f32(out.0.as_mut_ptr().add(4 * at), vcvtq_f32_s32(sums));
                    }
                }
            }
        }
    }
}
