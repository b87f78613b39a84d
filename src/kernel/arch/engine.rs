//! Multiplies tiles: a small trait, with an implementation for any processor in tests.

use crate::kernel::simd::Simd;

/// Groups of 16 rows, of `steps` tiles each, that are compared with all centers at a time. They stay in the
/// first-level cache if at most eight tiles make a row, else in the second-level cache.
pub(in crate::kernel) const fn certified_groups(steps: usize) -> usize {
    let bytes = if steps <= 8 { 24 << 10 } else { 384 << 10 };
    let groups = bytes / (steps * 1024) / 2 * 2;
    if groups < 4 {
        4
    } else if groups > 32 {
        32
    } else {
        groups
    }
}

/// The types of the values in tiles of centers (A), tiles of rows (B), and sums (C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernel) enum Product {
    /// bf16, bf16 and `f32`. The order of the additions is the engine's. Subnormal values may count as zero.
    Bf16,
    /// `i8`, `u8` and `i32`, exact modulo 2^32.
    Bytes,
}

/// 16 lines of 16 words of 4 bytes.
///
/// A tile of centers has a center per line. A tile of rows has a row per column: line `w` holds word `w` of
/// each of 16 rows. A word is two bf16 or four bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(in crate::kernel) struct Tile(pub(in crate::kernel) [[u32; 16]; 16]);

impl Tile {
    pub(in crate::kernel) const ZERO: Self = Self([[0; 16]; 16]);
}

/// The 32-bit sums of a block, a line per center and a column per row: centers `a[0]` and rows `b[0]`, `a[0]`
/// and `b[1]`, `a[1]` and `b[0]`, `a[1]` and `b[1]`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(in crate::kernel) struct Sums(pub(in crate::kernel) [Tile; 4]);

impl Sums {
    pub(in crate::kernel) const ZERO: Self = Self([Tile::ZERO; 4]);
}

/// One value for each of 16 rows, or for each of 16 centers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(in crate::kernel) struct Line(pub(in crate::kernel) [f32; 16]);

impl Line {
    pub(in crate::kernel) const INFINITY: Self = Self([f32::INFINITY; 16]);
    pub(in crate::kernel) const ZERO: Self = Self([0.0; 16]);

    /// The smaller values.
    #[inline(always)]
    pub(in crate::kernel) fn least(&self, other: &Self) -> Self {
        let mut out = *self;
        for r in 0..16 {
            out.0[r] = if other.0[r] < out.0[r] { other.0[r] } else { out.0[r] };
        }
        out
    }

    /// The sum of the values.
    #[inline(always)]
    pub(in crate::kernel) fn sum(&self) -> f32 {
        let mut half = [0.0; 8];
        for (r, half) in half.iter_mut().enumerate() {
            *half = self.0[r] + self.0[8 + r];
        }
        (half[0] + half[1]) + (half[2] + half[3]) + ((half[4] + half[5]) + (half[6] + half[7]))
    }

    /// The smallest value.
    #[inline(always)]
    pub(in crate::kernel) fn smallest(&self) -> f32 {
        let mut some = self.0;
        for width in [8, 4, 2, 1] {
            for r in 0..width {
                some[r] = if some[r + width] < some[r] { some[r + width] } else { some[r] };
            }
        }
        some[0]
    }

    /// The larger values.
    #[inline(always)]
    pub(in crate::kernel) fn largest(&self, other: &Self) -> Self {
        let mut out = *self;
        for r in 0..16 {
            out.0[r] = if other.0[r] > out.0[r] { other.0[r] } else { out.0[r] };
        }
        out
    }

    /// The values less `factor` times other values.
    #[inline(always)]
    pub(in crate::kernel) fn less(&self, other: &Self, factor: f32) -> Self {
        let mut out = *self;
        for r in 0..16 {
            out.0[r] -= factor * other.0[r];
        }
        out
    }
}

/// Multiplies blocks of tiles.
pub(in crate::kernel) trait Engine {
    /// The vectors of tile values. A value of the engine shows that the processor has them.
    type Vectors: Simd<T = f32>;

    /// Groups of 16 rows, of `steps` tiles each, that are compared with all centers at a time. Even.
    #[inline(always)]
    fn groups(&self, steps: usize) -> usize {
        certified_groups(steps)
    }

    /// Adds the products of two by two tiles to `sums`: tiles `a[i][step]` of centers and `b[j][step]` of
    /// rows, for every step. All four slices have the same length.
    ///
    /// Calls `between(step)` once per step, in ascending order, so that other work can overlap with the
    /// products. The closure must not use the engine, nor call foreign code.
    fn block(
        &self,
        product: Product,
        a: [&[Tile]; 2],
        b: [&[Tile]; 2],
        sums: &mut Sums,
        between: impl FnMut(usize),
    );

    /// Converts up to 64 values to bytes and adds the squares of their distances from `middle`. Returns false if
    /// a value is not a whole number from 0 to 255.
    #[inline(always)]
    fn bytes(&self, x: &[f32], middle: &[f32], line: &mut [u32; 16], squares: &mut Line) -> bool {
        let mut out = [0u8; 64];
        let mut suits = true;
        for (t, (&x, &p)) in x.iter().zip(middle).enumerate() {
            out[t] = x as u8;
            suits &= f32::from(out[t]) == x;
            squares.0[t % 16] += (x - p) * (x - p);
        }
        for w in 0..16 {
            line[w] = u32::from_le_bytes([out[4 * w], out[4 * w + 1], out[4 * w + 2], out[4 * w + 3]]);
        }
        suits
    }

    /// Turns 16 lines, one per row, into a tile of rows.
    #[inline(always)]
    fn transposed(&self, lines: &Tile) -> Tile {
        let mut tile = Tile::ZERO;
        for (w, line) in tile.0.iter_mut().enumerate() {
            for (r, word) in line.iter_mut().enumerate() {
                *word = lines.0[r][w];
            }
        }
        tile
    }

    /// The lanes in which `values` are at most `limits`, a bit for each.
    #[inline(always)]
    fn at_most(&self, values: &Line, limits: &Line) -> u16 {
        let lanes = values.0.iter().zip(&limits.0).enumerate();
        lanes.fold(0, |mask, (r, (v, limit))| mask | u16::from(v <= limit) << r)
    }

    /// May replace the values of center `slot` for 16 rows, the first of which is `row`, by others that are as
    /// far from the true ones as `bounds` allow. Only for tests.
    #[inline(always)]
    fn disturb(&self, _slot: usize, _row: usize, _values: &mut Line, _bounds: &Line) {}
}

/// Work with an engine, inlined into a function with its instruction set.
pub(in crate::kernel) trait WithEngine {
    type Output;

    fn run<E: Engine>(self, engine: &E) -> Self::Output;
}

/// Multiplies with plain loops, on any processor.
#[derive(Clone, Copy, Debug)]
#[cfg(test)]
pub(in crate::kernel) struct Emulated;

#[cfg(test)]
impl Engine for Emulated {
    type Vectors = crate::kernel::arch::scalar::ScalarF32;

    fn block(
        &self,
        product: Product,
        a: [&[Tile]; 2],
        b: [&[Tile]; 2],
        sums: &mut Sums,
        mut between: impl FnMut(usize),
    ) {
        for step in 0..a[0].len() {
            for (q, sums) in sums.0.iter_mut().enumerate() {
                let (a, b) = (&a[q / 2][step].0, &b[q % 2][step].0);
                for (m, sums) in sums.0.iter_mut().enumerate() {
                    for (r, sum) in sums.iter_mut().enumerate() {
                        for w in 0..16 {
                            *sum = word(product, a[m][w], b[w][r], *sum);
                        }
                    }
                }
            }
            between(step);
        }
    }
}

/// Adds the products of the values in two words to a sum.
#[cfg(test)]
fn word(product: Product, a: u32, b: u32, sum: u32) -> u32 {
    match product {
        Product::Bytes => {
            let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
            products.fold(sum, |sum, (a, b)| sum.wrapping_add((i32::from(a as i8) * i32::from(b)) as u32))
        }
        Product::Bf16 => {
            let value = |word: u32, half: u32| f32::from_bits(word >> (16 * half) << 16);
            let products = [0, 1].map(|half| value(a, half) * value(b, half));
            (f32::from_bits(sum) + (products[0] + products[1])).to_bits()
        }
    }
}
