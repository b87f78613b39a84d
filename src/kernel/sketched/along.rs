//! Products of rows with exact vectors, by the sketches of the rows.
//!
//! # The error
//! Let `y` be a moved and scaled row, with coordinates `p` in the subspace and a part `w` of length `r` outside of it, and
//! `v` a vector with coordinates `q` and a part `u` outside. The sketch stores `s` and `rest` with
//! `|(s, rest) - (p, r)| <= error`. Then
//!
//! `|y'v - s'q| = |(p - s)'q + w'u| <= rest |u| + error |v|`.
//!
//! Coordinates of `v` are computed and rounded to whole numbers of 15 bits. What they miss counts times the length of `s`:
//! it is measured where they are rounded, and the rest is limited as for rows (see [`sketch`](super::sketch)).

use super::basis::{Basis, Directions, mix};
use super::multiply;
use super::sketch::{Sketch, UNIT, UNKNOWN};

/// The largest whole number.
const LARGEST: usize = (1 << 14) - 1;

/// The sketch of a row, and its bytes.
pub(crate) type SketchedRow<'a> = (&'a Sketch, &'a [u8]);

/// Vectors in the units of sketches.
#[derive(Clone, Debug)]
pub(crate) struct Vectors {
    width: usize,
    /// Coordinates as whole numbers.
    words: Vec<i16>,
    parts: Vec<Part>,
}

/// What is stored of a vector beside its whole numbers. All but the unit are rounded up.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    unit: f64,
    length: f64,
    /// The length outside of the subspace.
    outside: f64,
    /// How far the stored coordinates are from the true ones.
    miss: f64,
}

impl Vectors {
    /// `count` vectors of length 0.
    pub(crate) fn new(basis: &Basis, count: usize) -> Self {
        let width = basis.width;
        Self { width, words: vec![0; count * width], parts: vec![Part::default(); count] }
    }

    /// Makes all vectors 0.
    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
        self.parts.fill(Part::default());
    }

    fn words(&self, at: usize) -> &[i16] {
        &self.words[at * self.width..][..self.width]
    }

    /// Sets a vector, given by its columns.
    pub(crate) fn set(&mut self, basis: &Basis, at: usize, columns: &[f64]) {
        let rounded: Vec<f32> = columns.iter().map(|&v| v as f32).collect();
        let square: f64 = rounded.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        // One rounding of each value, values that underflow, and the roundings of the sum.
        let length = square.sqrt() * (1.0 + 1e-6) + 1e-35;
        // Not `length >= ...`, because of NaN.
        let known = length < 1e15;
        if !known {
            self.parts[at] = Part { length: f64::INFINITY, ..Part::default() };
            return;
        }
        let mut coordinates = vec![0.0f32; self.width];
        match &basis.directions {
            Directions::Learned(matrix) => {
                multiply(&rounded, matrix, (basis.dim, basis.width), &mut coordinates);
            }
            whole => {
                coordinates[..basis.dim].copy_from_slice(&rounded);
                if let Directions::Mixed = whole {
                    mix(&mut coordinates);
                }
            }
        }
        let peak = coordinates.iter().fold(0.0, |most: f64, v| most.max(f64::from(v.abs())));
        // Sums of products with bytes fit into 32 bits.
        let largest = LARGEST.min(i32::MAX as usize / (128 * self.width)) as f64;
        let unit = peak / largest;
        let per_unit = if unit > 1e-200 { 1.0 / unit } else { 0.0 };
        let (mut miss, mut within) = (0.0, 0.0);
        let words = &mut self.words[at * self.width..][..self.width];
        for (word, &v) in words.iter_mut().zip(&coordinates) {
            let whole = (f64::from(v) * per_unit).round();
            *word = whole as i16;
            miss += (f64::from(v) - whole * unit).powi(2);
            within += (whole * unit).powi(2);
        }
        let unsure = (basis.rounding + basis.defect * 1.01 + 2.0 * UNIT) * length;
        let miss = miss.sqrt() * (1.0 + 1e-9) + unsure;
        let outside = if basis.is_whole() { 0.0 } else { beside(within.sqrt() - miss, length) };
        self.parts[at] = Part { unit, length, outside, miss };
    }

    /// The product of a row and a vector, and a limit of its error.
    pub(crate) fn product(&self, row: SketchedRow<'_>, at: usize) -> (f64, f64) {
        let part = &self.parts[at];
        if part.length == 0.0 {
            return (0.0, 0.0);
        }
        (self.value(row, at), error(row.0, part.length, part.outside, part.miss))
    }

    /// The estimate of the product of a row and a vector.
    pub(crate) fn value(&self, (sketch, codes): SketchedRow<'_>, at: usize) -> f64 {
        let words = self.words(at);
        let sum: i32 = codes.iter().zip(words).map(|(&c, &w)| (i32::from(c) - 128) * i32::from(w)).sum();
        f64::from(sketch.unit) * self.parts[at].unit * f64::from(sum)
    }

    /// A limit of the error of the difference of the values of two vectors, which are at most `apart` from each other.
    pub(crate) fn error_of_difference(
        &self,
        row: SketchedRow<'_>,
        (a, b): (usize, usize),
        apart: f64,
    ) -> f64 {
        let (first, second) = (&self.parts[a], &self.parts[b]);
        if first.length.is_infinite() || second.length.is_infinite() {
            return f64::INFINITY;
        }
        let miss = first.miss + second.miss;
        let outside = if row.0.rest > 0.0 {
            let difference = |(&v, &w): (&i16, &i16)| first.unit * f64::from(v) - second.unit * f64::from(w);
            let square: f64 =
                self.words(a).iter().zip(self.words(b)).map(|both| difference(both).powi(2)).sum();
            beside(square.sqrt() - miss, apart)
        } else {
            0.0
        };
        error(row.0, apart, outside, miss)
    }
}

/// An upper limit of the length outside of the subspace, of a vector of at most `length` with at least `within` inside.
fn beside(within: f64, length: f64) -> f64 {
    let within = (within * (1.0 - 1e-9)).max(0.0);
    (length * length - within * within).max(0.0).sqrt() * (1.0 + 1e-9)
}

/// A limit of the error of the product of a row and a vector.
fn error(sketch: &Sketch, length: f64, outside: f64, miss: f64) -> f64 {
    if sketch.error >= UNKNOWN || length.is_infinite() {
        return f64::INFINITY;
    }
    let own = f64::from(sketch.square).sqrt();
    (f64::from(sketch.rest) * outside + f64::from(sketch.error) * length + own * miss) * (1.0 + 1e-6)
}
