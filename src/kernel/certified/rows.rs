//! Rows in low precision: tiles with a row per column, and the lengths that bound their errors.

use super::bound::Lengths;
use super::pack::{LowCenters, bf16, step_values, wide};
use crate::kernel::arch::engine::{Engine, Line, Product, Tile};
use crate::kernel::frame::moved;
use crate::kernel::pack::PackedCenters;
use crate::matrix::MatRef;

/// Rows in a tile.
pub(super) const GROUP: usize = 16;

/// Largest magnitude of a row that is rounded to bf16: its values cannot overflow.
const MOST_BF16: f32 = 1e15;

/// Loads up to 16 rows into the tiles of a group. Returns false if their values do not suit the product, or a row
/// is too far away.
#[inline(always)]
pub(super) fn load<E: Engine>(
    engine: &E,
    low: &LowCenters,
    packed: &PackedCenters<f32>,
    rows: MatRef<'_, f32>,
    tiles: &mut [Tile],
    lengths: &mut Lengths,
) -> bool {
    let mut lines = Tile::ZERO;
    let (mut squares, mut rests) = ([Line::ZERO; GROUP], [Line::ZERO; GROUP]);
    let values = step_values(low.product);
    for (step, tile) in tiles.iter_mut().enumerate() {
        let from = step * values;
        let columns = from..low.dim.min(from + values);
        let middle = &low.middle[columns.clone()];
        for r in 0..rows.rows() {
            let x = &rows.row(r)[columns.clone()];
            let (length, rest) = (&mut squares[r], &mut rests[r]);
            let suits = match low.product {
                Product::Bytes => engine.bytes(x, middle, &mut lines.0[r], length),
                Product::Bf16 => {
                    let shift = &packed.shift[columns.clone()];
                    halves(x, shift, packed.scale, middle, &mut lines.0[r], &mut length.0, &mut rest.0)
                }
            };
            if !suits {
                return false;
            }
        }
        *tile = engine.transposed(&lines);
    }
    // Each lane adds `dim / 16` squares and 16 lanes are added, with a relative error of an epsilon each at most.
    let up = 1.0 + (low.dim as f32 / 16.0 + 32.0) * f32::EPSILON + 1e-6;
    // Squares that underflow.
    let tiny = 1e-17 * (low.dim as f32).sqrt();
    for r in 0..GROUP {
        let (length, rest) = (squares[r].sum().sqrt() * up + tiny, rests[r].sum().sqrt() * up + tiny);
        if length > low.farthest {
            return false;
        }
        lengths.length.0[r] = length;
        // `x' - m` was rounded.
        lengths.rest.0[r] = if low.product == Product::Bytes { 0.0 } else { rest + (length + rest) * 1.3e-7 };
    }
    true
}

/// Rounds up to 32 values of `x' - m` to bf16. Returns false if one of them is too large or not a number.
#[inline(always)]
fn halves(
    x: &[f32],
    shift: &[f32],
    scale: f32,
    middle: &[f32],
    line: &mut [u32; 16],
    squares: &mut [f32; 16],
    rests: &mut [f32; 16],
) -> bool {
    let mut out = [0u16; 32];
    let mut suits = true;
    for (q, (((&x, &s), &m), out)) in x.iter().zip(shift).zip(middle).zip(&mut out).enumerate() {
        let moved = moved(x, s, scale);
        let about = moved - m;
        suits &= moved.abs() < MOST_BF16;
        *out = bf16(about);
        let near = wide(*out);
        squares[q % 16] += near * near;
        rests[q % 16] += (about - near) * (about - near);
    }
    for (word, halves) in line.iter_mut().zip(out.as_chunks::<2>().0) {
        *word = u32::from(halves[0]) | u32::from(halves[1]) << 16;
    }
    suits
}

/// Whether all values are whole numbers from 0 to 255.
pub(super) fn are_bytes(x: &[f32]) -> bool {
    x.iter().all(|&x| f32::from(x as u8) == x)
}
