//! Rows as scans see them: what a comparison with a group of centers needs of a row, and the products of both. The
//! terms are those of [`scan`](super::scan).
#![allow(unsafe_code)]

use super::pack::{Group, PackedSketches, ROUNDING};
use super::sketch::Sketch;
use crate::kernel::arch::products::{Dots, GROUP, Operands, Portable, Products, Scanning};
use crate::kernel::isa::Isa;
use crate::kernel::simd::Widen;
use crate::kernel::tier::{Operation, Tier, tier_of};

/// The largest radius. Beyond it, the squares of distances would overflow.
const FARTHEST: f32 = 1e17;

/// A center that may be within the radius of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) row: u32,
    pub(crate) center: u32,
    /// A lower bound of the distance.
    pub(crate) bound: f32,
}

/// What a scan needs of a row, beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Query {
    pub(super) unit: f32,
    pub(super) rest: f32,
    pub(super) error: f32,
    pub(super) square: f32,
    pub(super) slope: f32,
    pub(super) limit: f32,
    /// The radius.
    pub(super) radius: f32,
    /// The place of a center that is not wanted, if any: that of the row.
    pub(super) own: Option<u32>,
}

impl Query {
    /// For the row of a sketch, whose centers within a radius are wanted.
    pub(super) fn new(sketch: &Sketch, radius: f32) -> Self {
        let radius = radius.min(FARTHEST);
        let reach = f64::from(radius) + f64::from(sketch.error);
        let square = f64::from(sketch.square);
        let rounding = f64::from(ROUNDING) * (square + reach * reach);
        Self {
            unit: -2.0 * sketch.unit,
            rest: -2.0 * sketch.rest,
            error: sketch.error,
            square: sketch.square,
            slope: -2.0 * reach as f32,
            limit: (reach * reach + rounding - square) as f32,
            radius,
            own: None,
        }
    }

    /// `A`.
    pub(super) fn reach(&self) -> f32 {
        self.radius + self.error
    }

    /// The lane of the center that is not wanted, if it is in a group, or -1.
    #[inline(always)]
    pub(super) fn lane_in(&self, group: usize) -> f32 {
        match self.own {
            Some(place) if place as usize / GROUP == group => (place as usize % GROUP) as f32,
            _ => -1.0,
        }
    }

    /// A lower bound of the distances to centers of a group, from the smallest `v - error^2 - 2 reach error`, for a
    /// `reach` of at most `A`, or 0. None is within a larger `A` as long as `least - 2 (A - reach) largest` is above
    /// `A^2 - square_x`, up to the rounding, where `largest` is the largest error.
    #[inline(always)]
    pub(super) fn beyond(&self, least: f32, reach: f32, largest: f32) -> f32 {
        let free = least + 2.0 * reach * largest + self.square;
        // The root of `A^2 + 2 A largest = free`.
        let root = (largest * largest + free.max(0.0)).sqrt();
        // `least` covers the roundings of centers that are as far from the fixed point as the row. If they are much
        // nearer, the distance is about as long as the row.
        root - largest - ROUNDING * (root + largest) - self.error
    }

    /// The terms of the squared distance to a center of a group that depend on both.
    #[inline(always)]
    pub(super) fn along(&self, product: f32, group: &Group, l: usize) -> f32 {
        self.unit * (product * group.unit[l]) + self.rest * group.rest[l]
    }

    /// A lower bound of the distance to a center of a group, from these terms. They may have lost digits to the squared
    /// error of the center. It is less than twice the sum of the squares of both, or the bound is negative.
    #[inline(always)]
    pub(super) fn bound(&self, along: f32, group: &Group, l: usize) -> f32 {
        let squares = self.square + group.square[l];
        let apart = (along + (squares - ROUNDING * squares)).max(0.0).sqrt();
        apart - (group.error[l] + self.error)
    }

    /// An upper bound of the distance to a center of a group, from the terms of the squared distance that depend on
    /// both.
    pub(super) fn upper(&self, along: f32, group: &Group, l: usize) -> f32 {
        let errors = group.error[l] + self.error;
        let squares = self.square + group.square[l];
        // The parts outside of the subspace may point in opposite directions.
        let apart = along - 2.0 * self.rest * group.rest[l];
        let square = (apart + squares + ROUNDING * (squares + errors * errors)).max(0.0);
        square.sqrt() + errors
    }
}

/// Runs a scan with the fastest products of the instruction set.
pub(super) fn run(isa: Isa, scan: impl Scanning) {
    match isa {
        #[cfg(target_arch = "aarch64")]
        Isa::NeonDot => crate::kernel::arch::neon_dot::scan(scan),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => crate::kernel::arch::avx_vnni::scan(scan),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni | Isa::Amx => crate::kernel::arch::vnni::scan(scan),
        _ => {
            let tier: Tier<f32> = tier_of(isa);
            tier.run(Portably(scan));
        }
    }
}

/// A scan with portable products.
struct Portably<Q>(Q);

impl<Q: Scanning> Operation<f32> for Portably<Q> {
    type Output = ();

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn run<S: Widen<T = f32>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) {
        // SAFETY: the processor has the instruction set of `S`.
        unsafe { self.0.scan::<S, _>(&Portable) }
    }
}

/// Writes the products of the rows of a tile and the centers of a group. Returns how many vectors of 16 are filled.
///
/// This is no loop that calls a closure per tile: the compiler may leave a closure out of line, and it would then lack
/// the instruction set.
#[inline(always)]
pub(super) fn multiply<D: Dots>(
    dots: &D,
    packed: &PackedSketches,
    (codes, group): (&[u8], usize),
    tile: &[u32],
    products: &mut Products,
) -> usize {
    let depth = packed.depth;
    let (codes, centers) = (codes.as_chunks::<4>().0, &packed.words[group * depth..][..depth]);
    // A short tile repeats its last row.
    let rows = std::array::from_fn(|r| &codes[tile[r.min(tile.len() - 1)] as usize * depth..][..depth]);
    let of = Operands { rows, centers, bias: &packed.groups[group].bias };
    let vectors = packed.centers(group).len().div_ceil(16);
    match vectors {
        1 => dots.tile::<1>(of, products),
        2 => dots.tile::<2>(of, products),
        _ => dots.tile::<3>(of, products),
    }
    vectors
}
