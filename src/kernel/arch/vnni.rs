//! Products of bytes by the vector instructions of AVX-512 VNNI.

#[allow(clippy::wildcard_imports, reason = "intrinsics are named by their instruction")]
use std::arch::x86_64::*;

use super::avx512::Avx512F32;
use crate::kernel::certified::engine::{Engine, Line, Product, Sums, Tile};
use crate::kernel::certified::{LowCenters, label};
use crate::kernel::pack::{PackedCenters, Scratch};
use crate::kernel::sketched::{Dots, GROUP, Products, Scanning, TILE, Words};
use crate::matrix::MatRef;

/// Permission to use AVX-512 VNNI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vnni(());

impl Vnni {
    /// The instructions, if this processor has them.
    pub(super) fn available() -> Option<Self> {
        is_available().then_some(Self(()))
    }
}

/// Whether this processor has the instructions.
pub(in crate::kernel) fn is_available() -> bool {
    is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("fma")
}

/// Labels rows of bytes.
///
/// # Panics
/// If this processor lacks the instructions.
pub(in crate::kernel) fn nearest(
    low: &LowCenters,
    rows: MatRef<'_, f32>,
    packed: &PackedCenters<f32>,
    labels: &mut [u32],
    scratch: &mut Scratch<f32>,
) {
    let engine = Vnni::available().expect("this processor has no AVX-512 VNNI");
    // SAFETY: `engine` shows that the processor has the instructions.
    unsafe { label_with(&engine, low, rows, packed, labels, scratch) }
}

/// Labels rows with an engine that uses these vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")]
#[inline(never)]
pub(super) fn label_with<E: Engine<Vectors = Avx512F32>>(
    engine: &E,
    low: &LowCenters,
    rows: MatRef<'_, f32>,
    packed: &PackedCenters<f32>,
    labels: &mut [u32],
    scratch: &mut Scratch<f32>,
) {
    label(engine, low, rows, packed, labels, scratch);
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
    fn tile<const VECTORS: usize>(
        &self,
        rows: [&[[u8; 4]]; TILE],
        centers: &[Words],
        bias: &[i32; GROUP],
        out: &mut Products,
    ) {
        const { assert!(16 * VECTORS <= GROUP) };
        let depth = centers.len();
        assert!(rows.iter().all(|row| row.len() == depth));
        let rows = rows.map(<[[u8; 4]]>::as_ptr);
        // SAFETY: `self` shows that the processor has the instructions. `VECTORS` vectors of 16 values are within
        // the arrays, which begin at cache lines, and every row has `depth` words.
        unsafe {
            let mut sums = [[_mm512_setzero_si512(); VECTORS]; TILE];
            for v in 0..VECTORS {
                let bias = _mm512_load_si512(bias.as_ptr().add(16 * v).cast());
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
            for (out, sums) in out.0.iter_mut().zip(&sums) {
                for (v, &sum) in sums.iter().enumerate() {
                    _mm512_store_ps(out.as_mut_ptr().add(16 * v), _mm512_cvtepi32_ps(sum));
                }
            }
        }
    }
}

/// Centers whose sums with two vectors of rows are in registers at a time.
const HEIGHT: usize = 8;

impl Engine for Vnni {
    type Vectors = Avx512F32;

    #[inline(always)]
    fn block(
        &self,
        product: Product,
        a: [&[Tile]; 2],
        b: [&[Tile]; 2],
        sums: &mut Sums,
        mut between: impl FnMut(usize),
    ) {
        assert!(product == Product::Bytes, "the instructions multiply bytes");
        let steps = a[0].len();
        assert!(a[1].len() == steps && b[0].len() == steps && b[1].len() == steps);
        for part in 0..2 * 16 / HEIGHT {
            let (i, first) = (part * HEIGHT / 16, part * HEIGHT % 16);
            {
                // SAFETY: `self` shows that the processor has the instructions. The four slices have `steps` tiles,
                // and a tile has 16 lines of 16 words.
                unsafe {
                    let mut acc = [[_mm512_setzero_si512(); 2]; HEIGHT];
                    for (m, acc) in acc.iter_mut().enumerate() {
                        for (j, acc) in acc.iter_mut().enumerate() {
                            *acc = _mm512_load_si512(sums.0[2 * i + j].0[first + m].as_ptr().cast());
                        }
                    }
                    for step in 0..steps {
                        let centers = a[i].as_ptr().add(step).cast::<i32>().add(first * 16);
                        let rows = [b[0].as_ptr().add(step).cast::<i32>(), b[1].as_ptr().add(step).cast()];
                        for w in 0..16 {
                            let first = _mm512_load_si512(rows[0].add(w * 16).cast());
                            let second = _mm512_load_si512(rows[1].add(w * 16).cast());
                            for (m, acc) in acc.iter_mut().enumerate() {
                                let center = _mm512_set1_epi32(*centers.add(m * 16 + w));
                                acc[0] = _mm512_dpbusd_epi32(acc[0], first, center);
                                acc[1] = _mm512_dpbusd_epi32(acc[1], second, center);
                            }
                        }
                    }
                    for (m, acc) in acc.iter().enumerate() {
                        for (j, &acc) in acc.iter().enumerate() {
                            _mm512_store_si512(sums.0[2 * i + j].0[first + m].as_mut_ptr().cast(), acc);
                        }
                    }
                }
            }
        }
        for step in 0..steps {
            between(step);
        }
    }

    #[inline(always)]
    fn bytes(&self, x: &[f32], middle: &[f32], line: &mut [u32; 16], squares: &mut Line) -> bool {
        assert!(x.len() == middle.len() && x.len() <= 64);
        // SAFETY: `self` shows that the processor has the instructions. Loads are masked to the values of the slices,
        // and a line has room for 64 bytes.
        unsafe {
            let mut sum = _mm512_load_ps(squares.0.as_ptr());
            let mut wrong = 0;
            for part in 0..4 {
                let left = x.len().saturating_sub(16 * part).min(16);
                let mask = ((1u32 << left) - 1) as u16;
                let v = _mm512_maskz_loadu_ps(mask, x.as_ptr().wrapping_add(16 * part));
                let p = _mm512_maskz_loadu_ps(mask, middle.as_ptr().wrapping_add(16 * part));
                let whole = _mm512_cvttps_epi32(v);
                wrong |= _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(_mm512_cvtepi32_ps(whole), v);
                wrong |= _mm512_cmpgt_epu32_mask(whole, _mm512_set1_epi32(255));
                let apart = _mm512_sub_ps(v, p);
                sum = _mm512_fmadd_ps(apart, apart, sum);
                _mm_storeu_si128(line.as_mut_ptr().add(4 * part).cast(), _mm512_cvtepi32_epi8(whole));
            }
            _mm512_store_ps(squares.0.as_mut_ptr(), sum);
            wrong == 0
        }
    }

    #[inline(always)]
    fn transposed(&self, lines: &Tile) -> Tile {
        let mut tile = Tile::ZERO;
        // SAFETY: `self` shows that the processor has the instructions. All lines are within the tiles.
        unsafe {
            for c in 0..4 {
                // Words 4 c to 4 c + 3 of rows j, 4 + j, 8 + j and 12 + j.
                let mut rows = [_mm512_setzero_si512(); 4];
                for (j, rows) in rows.iter_mut().enumerate() {
                    let words = lines.0.as_ptr().add(j).cast::<u32>().add(4 * c);
                    let v = _mm512_castsi128_si512(_mm_load_si128(words.cast()));
                    let v = _mm512_inserti32x4::<1>(v, _mm_load_si128(words.add(64).cast()));
                    let v = _mm512_inserti32x4::<2>(v, _mm_load_si128(words.add(128).cast()));
                    *rows = _mm512_inserti32x4::<3>(v, _mm_load_si128(words.add(192).cast()));
                }
                let low = [_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpacklo_epi32(rows[2], rows[3])];
                let high = [_mm512_unpackhi_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[2], rows[3])];
                let words = [
                    _mm512_unpacklo_epi64(low[0], low[1]),
                    _mm512_unpackhi_epi64(low[0], low[1]),
                    _mm512_unpacklo_epi64(high[0], high[1]),
                    _mm512_unpackhi_epi64(high[0], high[1]),
                ];
                for (j, words) in words.iter().enumerate() {
                    _mm512_store_si512(tile.0[4 * c + j].as_mut_ptr().cast(), *words);
                }
            }
        }
        tile
    }

    #[inline(always)]
    fn at_most(&self, values: &Line, limits: &Line) -> u16 {
        // SAFETY: `self` shows that the processor has the instructions.
        unsafe {
            let (values, limits) = (_mm512_load_ps(values.0.as_ptr()), _mm512_load_ps(limits.0.as_ptr()));
            _mm512_cmp_ps_mask::<_CMP_LE_OQ>(values, limits)
        }
    }
}
