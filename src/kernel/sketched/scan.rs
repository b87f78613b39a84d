//! Rows against groups of centers.
//!
//! With `A` the radius of a row plus its error, a center is within the radius if `D <= A + error`. With `v = square_c -
//! 2 unit_x unit_c (q.q') - 2 rest_x rest_c`, the squared distance of the stored points is `square_x + v`, so this is
//!
//! `v - error^2 - 2 A error <= A^2 - square_x`,
//!
//! a chain of three multiply-adds and one comparison per vector of centers. Every term has at most a few roundings of
//! `f32`, relative to the squared lengths of both points, `A^2` and `error^2` ([`ROUNDING`]).
#![allow(unsafe_code)]

use super::bounds::{Bounds, Lists};
use super::closest::Estimates;
use super::pack::{Group, PackedSketches, ROUNDING};
use super::sketch::Sketch;
use crate::kernel::arch::products::{Dots, GROUP, Portable, Products, Scanning, TILE, Values};
use crate::kernel::isa::Isa;
use crate::kernel::simd::{Simd, Widen};
use crate::kernel::tier::{Operation, Tier, tier_of};

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
    radius: f32,
    /// The place of a center that is not wanted, if any: that of the row.
    pub(super) own: Option<u32>,
}

/// Rows of a chunk that are compared with centers.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(super) isa: Isa,
    pub(super) queries: Vec<Query>,
    pub(super) estimates: Estimates,
}

impl Default for Scan {
    fn default() -> Self {
        Self { isa: Isa::active(), queries: Vec::new(), estimates: Estimates::default() }
    }
}

impl Scan {
    /// The largest radius. Beyond it, the squares of distances would overflow.
    pub(crate) const FARTHEST: f32 = 1e17;

    /// Makes room for a chunk of `n` rows.
    pub(crate) fn resize(&mut self, n: usize) {
        self.queries.resize(n, Query::default());
    }

    /// Sets the sketch of a row, and the radius within which its centers are wanted, all but the one in the place `own`.
    pub(crate) fn set(&mut self, row: usize, sketch: &Sketch, radius: f32, own: Option<u32>) {
        self.queries[row] = Query { own, ..Query::new(sketch, radius) };
    }

    /// Appends every center that may be within the radius of its row, of those that are to be compared. Lowers bounds to
    /// what holds for all others. `codes` are the bytes of all rows of the chunk.
    pub(crate) fn within(
        &self,
        packed: &PackedSketches,
        codes: &[u8],
        rows: Compared<'_, '_>,
        hits: &mut Vec<Hit>,
    ) {
        run(self.isa, Within { queries: &self.queries, packed, codes, rows, hits });
    }
}

/// The rows that are compared with groups of centers.
pub(crate) enum Compared<'a, 'b> {
    /// The same rows with all groups.
    All(&'a [u32]),
    /// The rows of each set, whose bounds are renewed.
    Listed(&'a Lists, &'a mut Bounds<'b>),
}

pub(super) fn run(isa: Isa, scan: impl Scanning) {
    match isa {
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

    #[inline(always)]
    unsafe fn run<S: Widen<T = f32>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) {
        // SAFETY: the processor has the instruction set of `S`.
        unsafe { self.0.scan::<S, _>(&Portable) }
    }
}

/// Lists centers within the radius of rows.
struct Within<'a, 'b> {
    queries: &'a [Query],
    packed: &'a PackedSketches,
    codes: &'a [u8],
    rows: Compared<'a, 'b>,
    hits: &'a mut Vec<Hit>,
}

impl Scanning for Within<'_, '_> {
    #[inline(always)]
    unsafe fn scan<S: Simd<T = f32>, D: Dots>(self, dots: &D) {
        let Self { queries, packed, codes, mut rows, hits } = self;
        // Room for one vector more than is found.
        let mut places = [0; GROUP + 16];
        for (at, group) in packed.groups.iter().enumerate() {
            let (rows, mut bounds) = match &mut rows {
                Compared::All(rows) => (*rows, None),
                Compared::Listed(lists, bounds) => (lists.of(at / bounds.paths.groups), Some(bounds)),
            };
            let each = |tile: &[u32], products: &Products, vectors: usize| {
                for (&row, products) in tile.iter().zip(products) {
                    let query = &queries[row as usize];
                    // SAFETY: the processor has the instruction set.
                    let (count, least) =
                        unsafe { below::<S>(query, products, (group, at), vectors, &mut places) };
                    for &l in &places[..count] {
                        let l = l as usize;
                        let bound = query.bound(query.along(products.0[l], group, l), group, l);
                        hits.push(Hit { row, center: packed.centers(at)[l], bound });
                    }
                    if let Some(bounds) = &mut bounds {
                        let bound = query.beyond(least, query.reach(), packed.errors[at]);
                        bounds.lower(row as usize, at, bound.max(query.radius));
                    }
                }
            };
            multiply(dots, packed, (codes, at), rows, each);
        }
    }
}

/// Calls `each` with up to [`TILE`] rows at a time, their products with the centers of a group, and how many vectors of 16
/// are filled.
#[inline(always)]
pub(super) fn multiply<D: Dots>(
    dots: &D,
    packed: &PackedSketches,
    (codes, group): (&[u8], usize),
    rows: &[u32],
    mut each: impl FnMut(&[u32], &Products, usize),
) {
    let depth = packed.depth;
    let (codes, centers) = (codes.as_chunks::<4>().0, &packed.words[group * depth..][..depth]);
    let vectors = packed.centers(group).len().div_ceil(16);
    let mut products = [Values([0.0; GROUP]); TILE];
    for tile in rows.chunks(TILE) {
        // A short tile repeats its last row.
        let of = std::array::from_fn(|r| &codes[tile[r.min(tile.len() - 1)] as usize * depth..][..depth]);
        let bias = &packed.groups[group].bias;
        match vectors {
            1 => dots.tile::<1>(of, centers, bias, &mut products),
            2 => dots.tile::<2>(of, centers, bias, &mut products),
            _ => dots.tile::<3>(of, centers, bias, &mut products),
        }
        each(tile, &products, vectors);
    }
}

/// `v - error^2`, less the rounding, for a vector of centers, as in the description of the module.
///
/// # Safety
/// The processor has the instruction set, and `at + LANES` is at most [`GROUP`].
#[inline(always)]
unsafe fn value<S: Simd<T = f32>>(query: &Query, products: &Values, group: &Group, at: usize) -> S::V {
    // SAFETY: the vectors are within the arrays.
    unsafe {
        let product = S::mul(S::load(products.0.as_ptr().add(at)), S::load(group.unit.as_ptr().add(at)));
        let value = S::fmadd(S::splat(query.unit), product, S::load(group.least.as_ptr().add(at)));
        S::fmadd(S::splat(query.rest), S::load(group.rest.as_ptr().add(at)), value)
    }
}

/// `v - error^2 - 2 A error` for a vector of centers; infinite for the one that is not wanted.
///
/// # Safety
/// The processor has the instruction set, and `at + LANES` is at most [`GROUP`].
#[inline(always)]
unsafe fn compared<S: Simd<T = f32>>(
    query: &Query,
    products: &Values,
    group: &Group,
    (own, at): (S::V, usize),
) -> S::V {
    // SAFETY: the vectors are within the arrays.
    unsafe {
        let error = S::load(group.error.as_ptr().add(at));
        let value = S::fmadd(S::splat(query.slope), error, value::<S>(query, products, group, at));
        let place = S::add(S::iota(), S::splat(at as f32));
        S::where_equal(place, own, S::splat(f32::INFINITY), value)
    }
}

/// Writes the places of a group whose center may be within the radius to `places`. Returns their number, and the smallest
/// `v - error^2 - 2 A error` of all other centers.
///
/// # Safety
/// The processor has the instruction set, and `vectors * 16` is at most [`GROUP`].
#[inline(always)]
unsafe fn below<S: Simd<T = f32>>(
    query: &Query,
    products: &Values,
    (group, at): (&Group, usize),
    vectors: usize,
    places: &mut [u32; GROUP + 16],
) -> (usize, f32) {
    let mut count = 0;
    // SAFETY: the processor has the instruction set. Vectors are within arrays of `GROUP` values.
    unsafe {
        let own = S::splat(query.lane_in(at));
        let mut least = S::splat(f32::INFINITY);
        for l in (0..vectors * 16).step_by(S::LANES) {
            least = S::min(least, compared::<S>(query, products, group, (own, l)));
        }
        let mut least = S::min_lane(least);
        // Most groups hold no such center. A value that is not a number may be one.
        let are_beyond = least > query.limit;
        if !are_beyond {
            let (limit, none) = (S::splat(query.limit.next_up()), S::splat(f32::INFINITY));
            let mut others = none;
            for l in (0..vectors * 16).step_by(S::LANES) {
                let values = compared::<S>(query, products, group, (own, l));
                count += S::push_less(values, limit, l as u32, places.as_mut_ptr().add(count));
                others = S::min(others, S::where_equal(S::min(values, limit), limit, values, none));
            }
            least = S::min_lane(others);
        }
        (count, least)
    }
}

impl Query {
    /// For the row of a sketch, whose centers within a radius are wanted.
    pub(super) fn new(sketch: &Sketch, radius: f32) -> Self {
        let reach = f64::from(radius.min(Scan::FARTHEST)) + f64::from(sketch.error);
        let square = f64::from(sketch.square);
        let rounding = f64::from(ROUNDING) * (square + reach * reach);
        Self {
            unit: -2.0 * sketch.unit,
            rest: -2.0 * sketch.rest,
            error: sketch.error,
            square: sketch.square,
            slope: -2.0 * (reach * (1.0 + 1e-6)) as f32,
            limit: ((reach * reach + rounding) * (1.0 + 1e-6) - square) as f32,
            radius: radius.min(Scan::FARTHEST),
            own: None,
        }
    }

    /// `A`.
    fn reach(&self) -> f32 {
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

    /// A lower bound of the distances to centers of a group, from the smallest `v - error^2 - 2 reach error`, for a `reach` of
    /// at most `A`, or 0. None is within a larger `A` as long as `least - 2 (A - reach) largest` is above `A^2 - square_x`, up
    /// to the rounding, where `largest` is the largest error.
    #[inline(always)]
    pub(super) fn beyond(&self, least: f32, reach: f32, largest: f32) -> f32 {
        let free = least + 2.0 * reach * largest + self.square * (1.0 - 1.01 * ROUNDING);
        // The root of `A^2 + 2 A largest = free`.
        let root = (largest * largest + free.max(0.0)).sqrt();
        (root - largest) * (1.0 - ROUNDING) - 2e-6 * (root + largest) - self.error
    }

    /// The terms of the squared distance to a center of a group that depend on both.
    #[inline(always)]
    fn along(&self, product: f32, group: &Group, l: usize) -> f32 {
        self.unit * (product * group.unit[l]) + self.rest * group.rest[l]
    }

    /// A lower bound of the distance to a center of a group, from these terms. They may have lost digits to the squared
    /// error of the center: what this adds is less than what the factor of the error takes away.
    #[inline(always)]
    pub(super) fn bound(&self, along: f32, group: &Group, l: usize) -> f32 {
        let squares = self.square + group.square[l];
        let apart = (along + (squares - ROUNDING * squares)).max(0.0).sqrt() * (1.0 - 1e-6);
        apart - (group.error[l] + self.error) * (1.0 + 1e-6)
    }
}
