//! Compares rows with groups of centers, within a radius per row.
//!
//! With `A` the radius of a row plus its error, a center is within the radius if `D <= A + error`. With `v = square_c -
//! 2 unit_x unit_c (q.q') - 2 rest_x rest_c`, the squared distance of the stored points is `square_x + v`, so this is
//!
//! `v - error^2 - 2 A error <= A^2 - square_x`,
//!
//! a chain of three multiply-adds and one comparison per vector of centers. Every term has at most a few roundings of
//! `f32`, relative to the squared lengths of both points, `A^2` and `error^2` ([`ROUNDING`](super::pack::ROUNDING)).
#![allow(unsafe_code)]

use super::bounds::{Bounds, Lists};
use super::closest::{Closest, Estimates};
use super::pack::{Group, PackedSketches};
use super::query::{Hit, Query, multiply, run};
use super::sketch::Sketch;
use crate::kernel::arch::products::{Dots, GROUP, NO_PRODUCTS, Scanning, TILE, Values};
use crate::kernel::isa::Isa;
use crate::kernel::simd::Simd;

/// Rows of a chunk that are compared with centers.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(super) isa: Isa,
    pub(super) queries: Vec<Query>,
    pub(super) estimates: Estimates,
    /// What the last comparison found.
    pub(super) hits: Vec<Hit>,
}

impl Default for Scan {
    fn default() -> Self {
        Self { isa: Isa::active(), queries: Vec::new(), estimates: Estimates::default(), hits: Vec::new() }
    }
}

impl Scan {
    /// Makes room for a chunk of `n` rows.
    pub(crate) fn resize(&mut self, n: usize) {
        self.queries.resize(n, Query::default());
    }

    /// Sets the sketch of a row, and the radius within which its centers are wanted, except the center in the place
    /// `own`.
    pub(crate) fn set(&mut self, row: usize, sketch: &Sketch, radius: f32, own: Option<u32>) {
        self.queries[row] = Query { own, ..Query::new(sketch, radius) };
    }

    /// Lists every center that may be within the radius of its row, row by row. `radius_of(row, center, upper)` gives
    /// the radius, from the center of the smallest estimate and an upper bound of its distance. A row with more than
    /// `most` such centers may miss some. Lowers the bounds, so that they hold for all centers except the one of the
    /// smallest estimate.
    pub(crate) fn closest(
        &mut self,
        packed: &PackedSketches,
        (codes, sketches): (&[u8], &[Sketch]),
        most: usize,
        radius_of: impl FnMut(u32, u32, f32) -> f32,
        bounds: Option<&mut Bounds<'_>>,
    ) -> &mut [Hit] {
        self.queries.clear();
        self.queries.extend(sketches.iter().map(|sketch| Query::new(sketch, 0.0)));
        let Self { isa, queries, estimates, hits } = self;
        hits.clear();
        run(*isa, Closest { queries, estimates, packed, codes, sketches, most, radius_of, bounds, hits });
        &mut self.hits
    }

    /// Lists every center that may be within the radius of its row, for the pairs in `rows`. Lowers bounds, so that
    /// they hold for the other centers. `codes` are the bytes of all rows of the chunk.
    pub(crate) fn within(&mut self, packed: &PackedSketches, codes: &[u8], rows: Compared<'_, '_>) -> &[Hit] {
        let Self { isa, queries, hits, .. } = self;
        hits.clear();
        run(*isa, Within { queries, packed, codes, rows, hits });
        hits
    }
}

/// The rows that are compared with groups of centers.
pub(crate) enum Compared<'a, 'b> {
    /// The same rows with all groups.
    All(&'a [u32]),
    /// The rows of each set, whose bounds are renewed.
    Listed(&'a Lists, &'a mut Bounds<'b>),
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
    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn scan<S: Simd<T = f32>, D: Dots>(self, dots: &D) {
        let Self { queries, packed, codes, mut rows, hits } = self;
        // Room for one vector more than is found.
        let mut places = [0; GROUP + 16];
        let mut products = NO_PRODUCTS;
        for (at, group) in packed.groups.iter().enumerate() {
            let (rows, mut bounds) = match &mut rows {
                Compared::All(rows) => (*rows, None),
                Compared::Listed(lists, bounds) => (lists.of(at / bounds.paths.groups), Some(bounds)),
            };
            for tile in rows.chunks(TILE) {
                let vectors = multiply(dots, packed, (codes, at), tile, &mut products);
                for (&row, products) in tile.iter().zip(&products) {
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
            }
        }
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

/// Writes the places of a group whose center may be within the radius to `places`. Returns their number, and the
/// smallest `v - error^2 - 2 A error` of all other centers.
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
            let (limit, none) = (S::splat(query.limit), S::splat(f32::INFINITY));
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
