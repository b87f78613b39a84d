//! What the tile unit leaves to vector instructions: rows to bytes, and comparisons.

#[allow(clippy::wildcard_imports, reason = "intrinsics are named by their instruction")]
use std::arch::x86_64::*;

use crate::kernel::arch::engine::{Line, Tile};
use crate::kernel::arch::vnni::Vnni;

#[expect(clippy::unused_self, reason = "a value shows that the processor has the instructions")]
impl Vnni {
    /// See [`Engine::bytes`](crate::kernel::arch::engine::Engine::bytes).
    #[inline(always)]
    pub(super) fn bytes(&self, x: &[f32], middle: &[f32], line: &mut [u32; 16], squares: &mut Line) -> bool {
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

    /// See [`Engine::transposed`](crate::kernel::arch::engine::Engine::transposed).
    #[inline(always)]
    pub(super) fn transposed(&self, lines: &Tile) -> Tile {
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

    /// See [`Engine::at_most`](crate::kernel::arch::engine::Engine::at_most).
    #[inline(always)]
    pub(super) fn at_most(&self, values: &Line, limits: &Line) -> u16 {
        // SAFETY: `self` shows that the processor has the instructions.
        unsafe {
            let (values, limits) = (_mm512_load_ps(values.0.as_ptr()), _mm512_load_ps(limits.0.as_ptr()));
            _mm512_cmp_ps_mask::<_CMP_LE_OQ>(values, limits)
        }
    }
}
