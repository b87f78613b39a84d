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

use super::closest::Estimates;
use super::pack::{Group, PackedSketches};
use super::products::{Dots, GROUP, Portable, Products, ROUNDING, Scanning, TILE, Values};
use super::sketch::Sketch;
use crate::kernel::generic::simd::{Simd, Widen};
use crate::kernel::isa::Isa;
use crate::kernel::tier::{Operation, Tier, tier_of};

/// Rows that are compared with all groups while they are in the first-level cache.
const BLOCK: usize = 8 * TILE;

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
}

/// Rows of a chunk that are compared with centers.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(super) queries: Vec<Query>,
    pub(super) estimates: Estimates,
}

impl Scan {
    /// The largest radius. Beyond it, the squares of distances would overflow.
    pub(crate) const FARTHEST: f32 = 1e17;

    /// Makes room for a chunk of `n` rows.
    pub(crate) fn resize(&mut self, n: usize) {
        self.queries.resize(n, Query::default());
    }

    /// Sets the sketch of a row, and the radius within which its centers are wanted.
    pub(crate) fn set(&mut self, row: usize, sketch: &Sketch, radius: f32) {
        self.queries[row] = Query::new(sketch, radius);
    }

    /// Appends every center that may be within the radius of its row: of group `g` for the first `counts[g]` of `rows`.
    /// `codes` are the bytes of all rows of the chunk.
    pub(crate) fn within(
        &self,
        packed: &PackedSketches,
        codes: &[u8],
        (rows, counts): (&[u32], &[u32]),
        hits: &mut Vec<Hit>,
    ) {
        self.within_on(Isa::active(), packed, codes, (rows, counts), hits);
    }

    pub(super) fn within_on(
        &self,
        isa: Isa,
        packed: &PackedSketches,
        codes: &[u8],
        (rows, counts): (&[u32], &[u32]),
        hits: &mut Vec<Hit>,
    ) {
        run(isa, Within { queries: &self.queries, packed, codes, rows, counts, hits });
    }
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
struct Within<'a> {
    queries: &'a [Query],
    packed: &'a PackedSketches,
    codes: &'a [u8],
    rows: &'a [u32],
    counts: &'a [u32],
    hits: &'a mut Vec<Hit>,
}

impl Scanning for Within<'_> {
    #[inline(always)]
    unsafe fn scan<S: Simd<T = f32>, D: Dots>(self, dots: &D) {
        let Self { queries, packed, codes, rows, counts, hits } = self;
        // Room for one vector more than is found.
        let mut places = [0; GROUP + 16];
        for (first, rows) in rows.chunks(BLOCK).enumerate() {
            for (at, &count) in counts.iter().enumerate() {
                let Some(few) = (count as usize).checked_sub(first * BLOCK).filter(|&few| few > 0) else {
                    break;
                };
                let group = &packed.groups[at];
                let each = |tile: &[u32], products: &Products, vectors: usize| {
                    for (&row, products) in tile.iter().zip(products) {
                        let query = &queries[row as usize];
                        // SAFETY: the processor has the instruction set.
                        let count = unsafe { below::<S>(query, products, group, vectors, &mut places) };
                        for &l in &places[..count] {
                            let l = l as usize;
                            let bound = query.bound(query.along(products.0[l], group, l), group, l);
                            hits.push(Hit { row, center: packed.centers(at)[l], bound });
                        }
                    }
                };
                multiply(dots, packed, (codes, at), &rows[..rows.len().min(few)], each);
            }
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

/// Writes the places of a group whose center may be within the radius to `places`. Returns their number.
///
/// # Safety
/// The processor has the instruction set, and `vectors * 16` is at most [`GROUP`].
#[inline(always)]
unsafe fn below<S: Simd<T = f32>>(
    query: &Query,
    products: &Values,
    group: &Group,
    vectors: usize,
    places: &mut [u32; GROUP + 16],
) -> usize {
    let mut count = 0;
    // SAFETY: the processor has the instruction set. Vectors are within arrays of `GROUP` values.
    unsafe {
        let of = |l: usize| {
            let error = S::load(group.error.as_ptr().add(l));
            S::fmadd(S::splat(query.slope), error, value::<S>(query, products, group, l))
        };
        let mut least = S::splat(f32::INFINITY);
        for l in (0..vectors * 16).step_by(S::LANES) {
            least = S::min(least, of(l));
        }
        // Most groups hold no such center.
        if S::count_at_most(least, query.limit) > 0 {
            for l in (0..vectors * 16).step_by(S::LANES) {
                let limit = S::splat(query.limit.next_up());
                count += S::push_less(of(l), limit, l as u32, places.as_mut_ptr().add(count));
            }
        }
    }
    count
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
        }
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
