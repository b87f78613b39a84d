//! The sketch of a row or a center, and what its numbers promise.
//!
//! # The error
//! Let `y` be the moved and scaled row, `y~` its values as rounded, `Q` the orthonormal basis of the subspace that is
//! nearest to `B`, and `c = Q'y`. With `delta = |B'B - I|`, `B = Q S` with `|S - 1| <= delta`, so `|B'y - c| <= delta
//! |c|`. Rounding `y` and the sums of the product adds at most [`rounding`](super::Basis::rounding) times `|y|`. The
//! stored coordinates differ from the computed ones by what is measured when they are rounded to whole numbers.
//!
//! The squared length outside is `|y|^2 - |c|^2`. Sums of squares and the error of the coordinates make it an
//! interval, whose middle is stored. Half of its width is the error of `rest`.
//!
//! Lengths are computed in `f32`, their combination in `f64`, and rounded up by 1e-6, which covers the roundings that
//! are not named.
#![allow(unsafe_code)]

use super::basis::{Basis, Directions, UNIT, mix};
use super::multiply;
use crate::kernel::simd::{Simd, Widen, sum_of_lanes};
use crate::kernel::tier::{Compute, Operation, Tier, active};
use crate::matrix::MatRef;

/// What is stored of a row beside its whole numbers, each plus 128 in a byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sketch {
    /// Factor from whole numbers to coordinates.
    pub(super) unit: f32,
    /// Limit of the distance of the stored point from the true one.
    pub(super) error: f32,
    /// Length outside of the subspace.
    pub(super) rest: f32,
    /// Squared length of the stored point.
    pub(super) square: f32,
}

/// The error of rows that have no sketch, because they are too far from all others or not numbers: nothing excludes a
/// center for them.
pub(super) const UNKNOWN: f32 = 1e15;

impl Sketch {
    /// Limit of the distance of the stored point from the true one.
    pub(crate) fn error(&self) -> f32 {
        self.error
    }

    /// The stored coordinate of a byte.
    pub(crate) fn coordinate(&self, code: u8) -> f32 {
        self.unit * (f32::from(code) - 128.0)
    }

    const UNKNOWN: Self = Self { unit: 0.0, error: UNKNOWN, rest: 0.0, square: 0.0 };
}

/// Rows that are sketched at a time.
const STRIP: usize = 24;

/// Buffers for sketching rows.
#[derive(Debug, Default)]
pub(crate) struct Sketching {
    moved: Vec<f32>,
    squares: Vec<f32>,
    coordinates: Vec<f32>,
}

impl Sketching {
    /// Writes the bytes and the numbers of the sketches of `rows`.
    pub(crate) fn write<T: Compute>(
        &mut self,
        basis: &Basis,
        rows: MatRef<'_, T>,
        codes: &mut [u8],
        sketches: &mut [Sketch],
    ) {
        let (n, dim, width) = (rows.rows(), basis.dim, basis.width);
        assert!(codes.len() == n * width && sketches.len() == n && rows.cols() == dim);
        self.moved.resize(STRIP * dim, 0.0);
        self.squares.resize(STRIP, 0.0);
        self.coordinates.resize(STRIP * width, 0.0);
        let tier: Tier<f32> = active();
        for first in (0..n).step_by(STRIP) {
            let here = first..n.min(first + STRIP);
            let few = here.len();
            let (moved, squares) = (&mut self.moved[..few * dim], &mut self.squares[..few]);
            let coordinates = &mut self.coordinates[..few * width];
            let rows = rows.slice(here.start, here.end);
            match &basis.directions {
                Directions::Learned(matrix) => {
                    basis.center(rows, moved, squares);
                    multiply(moved, matrix, (dim, width), coordinates);
                }
                _ if dim == width => basis.center(rows, coordinates, squares),
                _ => {
                    basis.center(rows, moved, squares);
                    for (out, moved) in coordinates.chunks_exact_mut(width).zip(moved.chunks_exact(dim)) {
                        out[..dim].copy_from_slice(moved);
                        out[dim..].fill(0.0);
                    }
                }
            }
            tier.run(Rounding {
                basis,
                squares: &self.squares[..few],
                coordinates,
                codes: &mut codes[here.start * width..here.end * width],
                sketches: &mut sketches[here],
            });
        }
    }
}

/// Rounds coordinates to whole numbers.
struct Rounding<'a> {
    basis: &'a Basis,
    squares: &'a [f32],
    coordinates: &'a mut [f32],
    codes: &'a mut [u8],
    sketches: &'a mut [Sketch],
}

impl Operation<f32> for Rounding<'_> {
    type Output = ();

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn run<S: Widen<T = f32>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) {
        let Self { basis, squares, coordinates, codes, sketches } = self;
        let width = basis.width;
        let rows = coordinates.chunks_exact_mut(width).zip(codes.chunks_exact_mut(width));
        for ((row, codes), (&square, sketch)) in rows.zip(squares.iter().zip(sketches)) {
            if let Directions::Mixed = basis.directions {
                mix(row);
            }
            // SAFETY: the processor has the instruction set of `S`.
            *sketch = unsafe { rounded::<S>(basis, row, square, codes) };
        }
    }
}

/// Values that are added in lanes of their own.
const LANES: usize = 16;

/// Adding this rounds a value of at most 2^22 to a whole number, in the low bits.
const WHOLE: f32 = 12_582_912.0;

/// The sums that a sketch needs of its coordinates, in lanes.
struct Sums {
    lengths: [f32; LANES],
    misses: [f32; LANES],
    wholes: [f32; LANES],
}

/// The largest magnitude.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn peak_of<S: Simd<T = f32>>(values: &[[f32; LANES]]) -> f32 {
    let mut peaks = [0.0; LANES];
    // SAFETY: the processor has the instruction set. Vectors are within arrays of `LANES` values.
    unsafe {
        for lane in (0..LANES).step_by(S::LANES) {
            let mut peak = S::splat(0.0);
            for values in values {
                let v = S::load(values.as_ptr().add(lane));
                peak = S::max(peak, S::max(v, S::sub(S::splat(0.0), v)));
            }
            S::store(peaks.as_mut_ptr().add(lane), peak);
        }
    }
    peaks.iter().fold(0.0, |a: f32, &b| a.max(b))
}

/// Writes coordinates as bytes: whole numbers of units, plus 128.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn round<S: Simd<T = f32>>(
    coordinates: &[[f32; LANES]],
    (unit, per_unit): (f32, f32),
    codes: &mut [[u8; LANES]],
) -> Sums {
    let mut out = Sums { lengths: [0.0; LANES], misses: [0.0; LANES], wholes: [0.0; LANES] };
    // SAFETY: the processor has the instruction set. Vectors are within arrays of `LANES` values.
    unsafe {
        let (minus, per_unit) = (S::splat(-unit), S::splat(per_unit));
        // Sums that an instruction set does not need are never used, and the compiler removes them.
        let mut sums = [[S::splat(0.0); 3]; LANES];
        let vectors = LANES / S::LANES;
        for (coordinates, codes) in coordinates.iter().zip(codes) {
            let mut near = [0.0; LANES];
            for (at, [lengths, misses, wholes]) in sums.iter_mut().enumerate().take(vectors) {
                let v = S::load(coordinates.as_ptr().add(at * S::LANES));
                let rounded = S::fmadd(v, per_unit, S::splat(WHOLE));
                let whole = S::sub(rounded, S::splat(WHOLE));
                let miss = S::fmadd(whole, minus, v);
                *lengths = S::fmadd(v, v, *lengths);
                *misses = S::fmadd(miss, miss, *misses);
                // Exact: less than 2^24, because a lane has at most `MOST / LANES` terms of at most 127^2.
                *wholes = S::fmadd(whole, whole, *wholes);
                S::store(near.as_mut_ptr().add(at * S::LANES), rounded);
            }
            for (code, near) in codes.iter_mut().zip(near) {
                // The low byte of `near` is that of the whole number.
                *code = near.to_bits() as u8 ^ 0x80;
            }
        }
        for (at, &[lengths, misses, wholes]) in sums.iter().enumerate().take(vectors) {
            S::store(out.lengths.as_mut_ptr().add(at * S::LANES), lengths);
            S::store(out.misses.as_mut_ptr().add(at * S::LANES), misses);
            S::store(out.wholes.as_mut_ptr().add(at * S::LANES), wholes);
        }
    }
    out
}

/// The sketch of a row with these coordinates and this squared length.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn rounded<S: Simd<T = f32>>(
    basis: &Basis,
    coordinates: &[f32],
    square: f32,
    codes: &mut [u8],
) -> Sketch {
    let chunks = coordinates.as_chunks::<LANES>().0;
    // SAFETY: the processor has the instruction set.
    let peak = unsafe { peak_of::<S>(chunks) };
    let unit = peak * (1.0 / 127.0);
    let unit = if (1e-30..=1e30).contains(&unit) { unit } else { 0.0 };
    let per_unit = if unit > 0.0 { 1.0 / unit } else { 0.0 };
    // SAFETY: the processor has the instruction set.
    let Sums { lengths, misses, wholes } =
        unsafe { round::<S>(chunks, (unit, per_unit), codes.as_chunks_mut::<LANES>().0) };
    let total = |values: &[f32; LANES]| sum_of_lanes(values.map(f64::from));
    let (square, within) = (f64::from(square), total(&lengths));
    // Sums of `f32` in 16 lanes, with two roundings per term.
    let grown = |terms: usize| (terms as f64 / 8.0 + 16.0) * UNIT;
    let length = within.sqrt();
    let error = basis.rounding * square.sqrt() * (1.0 + 1e-4) + basis.defect * 1.01 * length;
    let (mut rest, mut rest_error) = (0.0, 0.0);
    if !basis.is_whole() {
        let outside = (square - within).max(0.0);
        let unsure = (2.0 * length + error) * error
            + (grown(basis.dim) + 8.0 * UNIT) * square
            + grown(basis.width) * within;
        let (low, high) = ((outside - unsure).max(0.0).sqrt(), (outside + unsure).sqrt());
        // `unsure` covers the rounding of the middle to `f32`.
        (rest, rest_error) = (0.5 * (low + high), 0.5 * (high - low));
    }
    let miss = total(&misses).sqrt() * (1.0 + grown(basis.width)) + 2.0 * UNIT * length + error;
    // Squares that underflow.
    let tiny = 1e-18 * (basis.dim as f64).sqrt();
    let error = (miss * miss + rest_error * rest_error).sqrt() * (1.0 + 1e-6) + tiny;
    let near = f64::from(unit) * f64::from(unit) * total(&wholes);
    // Not `square >= ...`, because of NaN.
    let known = square < 1e26;
    if !known {
        codes.fill(128);
        return Sketch::UNKNOWN;
    }
    Sketch { unit, error: error as f32, rest: rest as f32, square: (near + rest * rest) as f32 }
}
