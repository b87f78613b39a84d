//! Certified sketches: a few bytes per row tell which centers cannot be the nearest.
//!
//! # A sketch
//! Let `y = g (x - mean)` be a row moved to a fixed point and scaled, and `B` a matrix of `m` orthonormal columns
//! ([`basis`]). A point `(p, r)` of `m + 1` dimensions stands for the row: `p = B'y` are its coordinates in the
//! subspace, and `r` is the length of the part of `y` outside of it. For two rows, the parts outside have a
//! difference of at least `|r - r'|` and at most `r + r'`, so
//!
//! `|(p, r) - (p', r')| <= |y - y'| <= |(p, r) - (p', -r')|`.
//!
//! A sketch stores `p` as `unit` times whole numbers of at most 127, `r` as `rest`, and `error`, an upper limit of how
//! far the stored point is from `(p, r)` ([`sketch`]). By the triangle inequality, for a row `x` and a center `c`,
//! with `D` the distance of the stored points,
//!
//! `D - error_x - error_c <= |y - y'|`.
//!
//! Nothing but `D` depends on both, and `D` follows from one product of whole numbers.
//!
//! # A scan
//! Centers are packed in groups ([`pack`]). A [`scan`] compares rows with groups and lists every center that may be
//! within the radius of its row, with a lower bound of the distance. Without a radius, the center of the smallest
//! estimate gives one ([`closest`]). The products are exact, so every instruction set may compute them in its own way.
//! The [arbiter](super::arbiter) compares the listed centers. For the others, a scan keeps [`bounds`] for later sweeps.
//! Where rows are expensive to read, [`fine`] excludes most of the listed centers without reading the row.
#![allow(unsafe_code)]

mod basis;
mod bounds;
mod closest;
mod directions;
mod fine;
mod label;
mod pack;
mod query;
mod scan;
mod sketch;
#[cfg(test)]
mod tests;

pub(crate) use super::arch::products::GROUP;
pub(crate) use basis::Basis;
pub(crate) use bounds::{Bounds, Lists, Paths};
pub(crate) use fine::{Fine, FinePoint, FineSketch, FineSketching};
pub(in crate::kernel) use label::{Labeling, SketchedCenters, sketch_candidates};
pub(crate) use pack::PackedSketches;
pub(crate) use query::Hit;
pub(crate) use scan::{Compared, Scan};
pub(crate) use sketch::{Sketch, Sketching};

use super::generic::product;
use super::isa::Isa;
use super::simd::Widen;
use super::tier::{Operation, Tier, active};

/// Whether the instruction set in use multiplies bytes fast, so that sketches can pay.
pub(crate) fn are_fast() -> bool {
    Isa::active().multiplies_bytes()
}

/// `left * right`; see [`product::product`].
struct Product<'a> {
    left: &'a [f32],
    right: &'a [f32],
    depth: usize,
    cols: usize,
    out: &'a mut [f32],
}

impl Operation<f32> for Product<'_> {
    type Output = ();

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn run<S: Widen<T = f32>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) {
        // SAFETY: the processor has the instruction set of `S`.
        unsafe { product::product::<S>(self.left, self.right, (self.depth, self.cols), self.out) }
    }
}

/// Writes the product of rows of `depth` values and a matrix of `depth` rows of `cols` values.
fn multiply(left: &[f32], right: &[f32], (depth, cols): (usize, usize), out: &mut [f32]) {
    let tier: Tier<f32> = active();
    tier.run(Product { left, right, depth, cols, out });
}

/// An upper bound of a distance in the units of sketches, from its square: the next `f32` after the nearest. This
/// covers the roundings of the arbiter and of this function, and squares that underflow.
pub(crate) fn upper_of(sq_dist: f64, factor: f64) -> f32 {
    ((sq_dist.sqrt() * factor) as f32).next_up()
}

/// A lower bound, likewise.
pub(crate) fn lower_of(sq_dist: f64, factor: f64) -> f32 {
    ((sq_dist.sqrt() * factor) as f32).next_down()
}
