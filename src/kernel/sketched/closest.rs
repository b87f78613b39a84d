//! Compares rows with all groups of centers without a given radius. The smallest estimate of a row gives the radius.
//!
//! A block of rows is compared with all groups at a time. The estimates stay in the second-level cache, so that the
//! products are computed once. Only groups whose smallest estimates may be within the radius are looked at again.
#![allow(unsafe_code)]

use super::bounds::Bounds;
use super::pack::PackedSketches;
use super::query::{Hit, Query, multiply};
use super::sketch::{Sketch, UNKNOWN};
use crate::kernel::arch::products::{Dots, GROUP, Products, Scanning, TILE, Values};
use crate::kernel::simd::Simd;

/// Estimates of distances, of 4 bytes each, that are kept per worker: they stay in the second-level cache.
const SKETCH_ESTIMATES: usize = 1 << 16;

/// Lanes of the widest vectors.
const LANES: usize = 16;

/// A value per lane.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Lanes([f32; LANES]);

/// Estimates of a block of rows, by group and row.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    all: Vec<Values>,
    /// The smallest in each lane of the vectors of a group.
    least: Vec<Lanes>,
    /// Per row and lane, the smallest of all groups, and its group.
    smallest: Vec<(Lanes, Lanes)>,
    /// Groups that may have a center within the radius of a row, the first `listed` of these.
    groups: Vec<u32>,
    listed: usize,
    /// The rows of a block.
    rows: Vec<u32>,
}

/// Rows that are compared with all of so many groups at a time.
pub(super) fn block_rows(groups: usize) -> usize {
    (SKETCH_ESTIMATES / (groups * GROUP * TILE)).clamp(1, 8) * TILE
}

/// See [`Scan::closest`](super::scan::Scan::closest).
pub(super) struct Closest<'a, 'b, F> {
    pub(super) queries: &'a mut [Query],
    pub(super) estimates: &'a mut Estimates,
    pub(super) packed: &'a PackedSketches,
    pub(super) codes: &'a [u8],
    pub(super) sketches: &'a [Sketch],
    pub(super) most: usize,
    pub(super) radius_of: F,
    pub(super) bounds: Option<&'a mut Bounds<'b>>,
    pub(super) hits: &'a mut Vec<Hit>,
}

impl<F: FnMut(u32, u32, f32) -> f32> Scanning for Closest<'_, '_, F> {
    #[inline(always)]
    unsafe fn scan<S: Simd<T = f32>, D: Dots>(self, dots: &D) {
        let Self { queries, estimates, packed, codes, sketches, most, mut radius_of, mut bounds, hits } =
            self;
        let block = block_rows(packed.n_groups());
        estimates.resize(packed, block);
        let mut rows = std::mem::take(&mut estimates.rows);
        // Room for one vector more than is found.
        let mut places = [0; GROUP + LANES];
        for first in (0..queries.len()).step_by(block) {
            rows.clear();
            rows.extend((first..queries.len().min(first + block)).map(|row| row as u32));
            estimates.smallest.fill((Lanes([f32::INFINITY; LANES]), Lanes([0.0; LANES])));
            for group in 0..packed.n_groups() {
                multiply(dots, packed, (codes, group), &rows, |tile, products, vectors| {
                    // SAFETY: the processor has the instruction set.
                    unsafe {
                        match vectors {
                            1 => estimates.note::<S, 1>(queries, packed, group, (tile, first), products),
                            2 => estimates.note::<S, 2>(queries, packed, group, (tile, first), products),
                            _ => estimates.note::<S, 3>(queries, packed, group, (tile, first), products),
                        }
                    }
                });
            }
            for (at, &row) in rows.iter().enumerate() {
                let query = &mut queries[row as usize];
                // SAFETY: the processor has the instruction set.
                let (center, upper) = unsafe { estimates.nearest::<S>(query, packed, at) };
                *query = Query::new(&sketches[row as usize], radius_of(row, center, upper));
                // SAFETY: the processor has the instruction set.
                unsafe { estimates.list_groups::<S>(query, packed, at) };
                let before = hits.len();
                for i in 0..estimates.listed {
                    if hits.len() - before > most {
                        break;
                    }
                    let group = estimates.groups[i] as usize;
                    // SAFETY: the processor has the instruction set.
                    let count = unsafe { estimates.within::<S>(query, packed, group, at, &mut places) };
                    for &l in &places[..count] {
                        let (of, l) = (&packed.groups[group], l as usize);
                        let along = estimates.of(group, at).0[l] - of.least[l];
                        let bound = query.bound(along, of, l);
                        hits.push(Hit { row, center: packed.centers(group)[l], bound });
                    }
                }
                if let Some(bounds) = &mut bounds {
                    query.own = Some(packed.place_of(center));
                    for (group, &largest) in packed.errors.iter().enumerate() {
                        // SAFETY: the processor has the instruction set.
                        let least = unsafe { estimates.least_of::<S>(query, packed, group, at) };
                        bounds.lower(row as usize, group, query.beyond(least, 0.0, largest));
                    }
                }
            }
        }
        estimates.rows = rows;
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

    /// Takes in the products of a tile of rows and the centers of a group. `first` is the first row of the block.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn note<S: Simd<T = f32>, const VECTORS: usize>(
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

    /// Lists the groups that may have a center within the radius of a row, without a branch per group.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn list_groups<S: Simd<T = f32>>(&mut self, query: &Query, packed: &PackedSketches, at: usize) {
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
        self.listed = count;
    }

    /// The smallest estimate of a row and a group, without the center that is not wanted.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn least_of<S: Simd<T = f32>>(
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
    unsafe fn within<S: Simd<T = f32>>(
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
            let (slope, limit) = (S::splat(query.slope), S::splat(query.limit.next_up()));
            for l in (0..packed.centers(group).len().next_multiple_of(LANES)).step_by(S::LANES) {
                let error = S::load(of.error.as_ptr().add(l));
                let estimate = S::fmadd(slope, error, S::load(all.0.as_ptr().add(l)));
                count += S::push_less(estimate, limit, l as u32, places.as_mut_ptr().add(count));
            }
        }
        count
    }
}
