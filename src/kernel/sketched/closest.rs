//! Compares rows with all groups of centers without a given radius. The smallest estimate of a row gives the radius.
//!
//! An estimate is `v - error^2` in the terms of [`scan`](super::scan): what the squared distance of the stored points
//! adds to `square_x`, less the squared error of the center. A block of rows is compared with all groups at a time, in
//! three steps:
//!
//! 1. [`Estimates::fill`] computes the estimates of all rows and centers once. They stay in the second-level cache.
//! 2. Per row, [`Estimates::nearest`] finds the center of the smallest estimate, which gives the radius.
//! 3. [`Estimates::list_groups`] finds the groups whose smallest estimates may be within the radius, and
//!    [`Estimates::list_places`] the centers of these groups.
#![allow(unsafe_code)]

use std::ops::Range;

use super::bounds::Bounds;
use super::pack::PackedSketches;
use super::query::{Hit, Query, multiply};
use super::sketch::{Sketch, UNKNOWN};
use crate::kernel::arch::products::{Dots, GROUP, NO_PRODUCTS, Products, Scanning, TILE, Values};
use crate::kernel::simd::Simd;

/// Estimates of distances, of 4 bytes each, that are kept per worker: they stay in the second-level cache.
const SKETCH_ESTIMATES: usize = 1 << 16;

/// Lanes of the widest vectors.
const LANES: usize = 16;

/// A value per lane.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Lanes([f32; LANES]);

/// The estimates of a block of rows. `at` counts the rows of the block.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    /// By group, then by row.
    all: Vec<Values>,
    /// Likewise, the smallest estimate in each lane of the vectors of the group.
    least: Vec<Lanes>,
    /// Per row and lane, the smallest estimate of all groups, and its group.
    smallest: Vec<(Lanes, Lanes)>,
    /// The groups that may have a center within the radius of a row.
    groups: Vec<u32>,
    /// The rows of the block, among those of the chunk.
    rows: Vec<u32>,
}

/// Rows that are compared with all of so many groups at a time.
pub(super) fn block_rows(groups: usize) -> usize {
    (SKETCH_ESTIMATES / (groups * GROUP * TILE)).clamp(1, 8) * TILE
}

/// The arguments of [`Scan::closest`](super::scan::Scan::closest).
pub(super) struct Closest<'a, 'b, F> {
    /// One per row, without a radius until the row is compared.
    pub(super) queries: &'a mut [Query],
    pub(super) estimates: &'a mut Estimates,
    pub(super) packed: &'a PackedSketches,
    pub(super) codes: &'a [u8],
    pub(super) sketches: &'a [Sketch],
    /// Upper limit of the centers that are wanted per row.
    pub(super) most: usize,
    pub(super) radius_of: F,
    pub(super) bounds: Option<&'a mut Bounds<'b>>,
    pub(super) hits: &'a mut Vec<Hit>,
}

impl<F: FnMut(u32, u32, f32) -> f32> Scanning for Closest<'_, '_, F> {
    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn scan<S: Simd<T = f32>, D: Dots>(self, dots: &D) {
        let Self { queries, estimates, packed, codes, sketches, most, mut radius_of, mut bounds, hits } =
            self;
        let block = block_rows(packed.n_groups());
        estimates.resize(packed, block);
        // Room for one vector more than is found.
        let mut places = [0; GROUP + LANES];
        for first in (0..queries.len()).step_by(block) {
            let rows = first..queries.len().min(first + block);
            // SAFETY: the processor has the instruction set.
            unsafe { estimates.fill::<S, D>(dots, queries, packed, codes, rows.clone()) };
            for (at, row) in rows.enumerate() {
                let query = &mut queries[row];
                // SAFETY: the processor has the instruction set.
                let (center, upper) = unsafe { estimates.nearest::<S>(query, packed, at) };
                *query = Query::new(&sketches[row], radius_of(row as u32, center, upper));
                // SAFETY: the processor has the instruction set.
                let listed = unsafe { estimates.list_groups::<S>(query, packed, at) };
                let before = hits.len();
                for i in 0..listed {
                    if hits.len() - before > most {
                        break;
                    }
                    let group = estimates.groups[i] as usize;
                    // SAFETY: the processor has the instruction set.
                    let count = unsafe { estimates.list_places::<S>(query, packed, group, at, &mut places) };
                    for &l in &places[..count] {
                        let (of, l) = (&packed.groups[group], l as usize);
                        let along = estimates.of(group, at).0[l] - of.least[l];
                        let bound = query.bound(along, of, l);
                        hits.push(Hit { row: row as u32, center: packed.centers(group)[l], bound });
                    }
                }
                if let Some(bounds) = &mut bounds {
                    query.own = Some(packed.place_of(center));
                    for (group, &largest) in packed.errors.iter().enumerate() {
                        // SAFETY: the processor has the instruction set.
                        let least = unsafe { estimates.least_of_others::<S>(query, packed, group, at) };
                        bounds.lower(row, group, query.beyond(least, 0.0, largest));
                    }
                }
            }
        }
    }
}

impl Estimates {
    /// Makes room for a block of rows.
    fn resize(&mut self, packed: &PackedSketches, rows: usize) {
        self.all.resize(packed.n_groups() * rows, Values([f32::INFINITY; GROUP]));
        self.least.resize(packed.n_groups() * rows, Lanes([f32::INFINITY; LANES]));
        self.smallest.resize(rows, (Lanes([f32::INFINITY; LANES]), Lanes([0.0; LANES])));
        self.groups.resize(packed.n_groups() + 1, 0);
    }

    /// The estimates of a group and a row.
    fn of(&self, group: usize, at: usize) -> &Values {
        &self.all[group * self.smallest.len() + at]
    }

    /// Computes the estimates of a block of rows and all centers.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn fill<S: Simd<T = f32>, D: Dots>(
        &mut self,
        dots: &D,
        queries: &[Query],
        packed: &PackedSketches,
        codes: &[u8],
        block: Range<usize>,
    ) {
        let first = block.start;
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        rows.extend(block.map(|row| row as u32));
        self.smallest.fill((Lanes([f32::INFINITY; LANES]), Lanes([0.0; LANES])));
        let mut products = NO_PRODUCTS;
        for group in 0..packed.n_groups() {
            for tile in rows.chunks(TILE) {
                let vectors = multiply(dots, packed, (codes, group), tile, &mut products);
                // SAFETY: the processor has the instruction set.
                unsafe {
                    match vectors {
                        1 => self.fill_tile::<S, 1>(queries, packed, group, (tile, first), &products),
                        2 => self.fill_tile::<S, 2>(queries, packed, group, (tile, first), &products),
                        _ => self.fill_tile::<S, 3>(queries, packed, group, (tile, first), &products),
                    }
                }
            }
        }
        self.rows = rows;
    }

    /// Computes the estimates of a tile of rows and the centers of a group from their products. `first` is the first
    /// row of the block.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn fill_tile<S: Simd<T = f32>, const VECTORS: usize>(
        &mut self,
        queries: &[Query],
        packed: &PackedSketches,
        group: usize,
        (tile, first): (&[u32], usize),
        products: &Products,
    ) {
        const { assert!(VECTORS * LANES <= GROUP) };
        let of = &packed.groups[group];
        // A short tile repeats its last row, as its products do.
        let rows: [usize; TILE] = std::array::from_fn(|r| tile[r.min(tile.len() - 1)] as usize);
        let queries = rows.map(|row| &queries[row]);
        let per_group = self.smallest.len();
        let all = &mut self.all[group * per_group..][..per_group];
        let least = &mut self.least[group * per_group..][..per_group];
        // SAFETY: the processor has the instruction set. Vectors are within arrays of `GROUP` or `LANES` values.
        unsafe {
            for lane in (0..LANES).step_by(S::LANES) {
                let mut smallest = [S::splat(f32::INFINITY); TILE];
                for v in 0..VECTORS {
                    let l = v * LANES + lane;
                    let unit = S::load(of.unit.as_ptr().add(l));
                    let (rest, square) =
                        (S::load(of.rest.as_ptr().add(l)), S::load(of.least.as_ptr().add(l)));
                    for r in 0..TILE {
                        let product = S::mul(S::load(products[r].0.as_ptr().add(l)), unit);
                        let mut estimate = S::fmadd(S::splat(queries[r].unit), product, square);
                        if !packed.is_whole {
                            estimate = S::fmadd(S::splat(queries[r].rest), rest, estimate);
                        }
                        S::store(all[rows[r] - first].0.as_mut_ptr().add(l), estimate);
                        smallest[r] = S::min(smallest[r], estimate);
                    }
                }
                for r in 0..TILE {
                    let at = rows[r] - first;
                    S::store(least[at].0.as_mut_ptr().add(lane), smallest[r]);
                    let (values, groups) = &mut self.smallest[at];
                    let (value, place) = (values.0.as_mut_ptr().add(lane), groups.0.as_mut_ptr().add(lane));
                    let this = S::splat(group as f32);
                    let (best, of_best) = S::keep_less(S::load(value), S::load(place), smallest[r], this);
                    S::store(value, best);
                    S::store(place, of_best);
                }
            }
        }
    }

    /// The center of the smallest estimate of a row, and an upper bound of its distance.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn nearest<S: Simd<T = f32>>(
        &self,
        query: &Query,
        packed: &PackedSketches,
        at: usize,
    ) -> (u32, f32) {
        let (values, groups) = &self.smallest[at];
        // SAFETY: the processor has the instruction set. Vectors are within arrays of `LANES` values.
        let lane = unsafe {
            let mut least = S::splat(f32::INFINITY);
            for l in (0..LANES).step_by(S::LANES) {
                least = S::min(least, S::load(values.0.as_ptr().add(l)));
            }
            let least = S::splat(S::min_lane(least));
            let mut lane = S::splat(LANES as f32 - 1.0);
            for l in (0..LANES).step_by(S::LANES) {
                let here = S::add(S::iota(), S::splat(l as f32));
                let found = S::where_equal(S::load(values.0.as_ptr().add(l)), least, here, lane);
                lane = S::min(lane, found);
            }
            S::min_lane(lane) as usize
        };
        let (group, value) = (groups.0[lane] as usize, values.0[lane]);
        let estimates = self.of(group, at);
        let mut place = lane;
        for l in (lane..GROUP).step_by(LANES) {
            place = if estimates.0[l] == value { l } else { place };
        }
        let (group, place) = match packed.groups[group].error[place] {
            error if error < UNKNOWN => (group, place),
            _ => self.nearest_known(packed, at).unwrap_or((group, place)),
        };
        let centers = packed.centers(group);
        let place = place.min(centers.len() - 1);
        let (estimates, of) = (self.of(group, at), &packed.groups[group]);
        (centers[place], query.upper(estimates.0[place] - of.least[place], of, place))
    }

    /// The group and the place of the smallest estimate of a center with a sketch. The estimates of the others are
    /// smaller than all of these.
    #[cold]
    fn nearest_known(&self, packed: &PackedSketches, at: usize) -> Option<(usize, usize)> {
        let mut best = None;
        let mut least = f32::INFINITY;
        for (group, of) in packed.groups.iter().enumerate() {
            for place in 0..packed.centers(group).len() {
                let estimate = self.of(group, at).0[place];
                if of.error[place] < UNKNOWN && estimate < least {
                    (best, least) = (Some((group, place)), estimate);
                }
            }
        }
        best
    }

    /// Writes the groups that may have a center within the radius of a row to `groups`, without a branch per group.
    /// Returns their number.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn list_groups<S: Simd<T = f32>>(
        &mut self,
        query: &Query,
        packed: &PackedSketches,
        at: usize,
    ) -> usize {
        let rows = self.smallest.len();
        let mut count = 0;
        for (group, &error) in packed.errors.iter().enumerate() {
            let least = &self.least[group * rows + at];
            let mut any = 0;
            // SAFETY: the processor has the instruction set. Vectors are within an array of `LANES` values.
            unsafe {
                // The slope is negative.
                let margin = S::splat(query.slope * error);
                for l in (0..LANES).step_by(S::LANES) {
                    any += S::count_at_most(S::add(S::load(least.0.as_ptr().add(l)), margin), query.limit);
                }
            }
            self.groups[count] = group as u32;
            count += usize::from(any > 0);
        }
        count
    }

    /// The smallest estimate of a row and a group, without the center that is not wanted.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn least_of_others<S: Simd<T = f32>>(
        &self,
        query: &Query,
        packed: &PackedSketches,
        group: usize,
        at: usize,
    ) -> f32 {
        let all = self.of(group, at);
        // SAFETY: the processor has the instruction set. Vectors are within arrays of `GROUP` values.
        unsafe {
            let (own, none) = (S::splat(query.lane_in(group)), S::splat(f32::INFINITY));
            let mut least = none;
            for l in (0..packed.centers(group).len().next_multiple_of(LANES)).step_by(S::LANES) {
                let here = S::add(S::iota(), S::splat(l as f32));
                least = S::min(least, S::where_equal(here, own, none, S::load(all.0.as_ptr().add(l))));
            }
            S::min_lane(least)
        }
    }

    /// Writes the places of a group whose center may be within the radius to `places`. Returns their number.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn list_places<S: Simd<T = f32>>(
        &self,
        query: &Query,
        packed: &PackedSketches,
        group: usize,
        at: usize,
        places: &mut [u32; GROUP + LANES],
    ) -> usize {
        let (all, of) = (self.of(group, at), &packed.groups[group]);
        let mut count = 0;
        // SAFETY: the processor has the instruction set. Vectors are within arrays of `GROUP` values, and no more
        // places are found than `places` has room for, with one vector to spare.
        unsafe {
            let (slope, limit) = (S::splat(query.slope), S::splat(query.limit));
            for l in (0..packed.centers(group).len().next_multiple_of(LANES)).step_by(S::LANES) {
                let error = S::load(of.error.as_ptr().add(l));
                let estimate = S::fmadd(slope, error, S::load(all.0.as_ptr().add(l)));
                count += S::push_less(estimate, limit, l as u32, places.as_mut_ptr().add(count));
            }
        }
        count
    }
}
