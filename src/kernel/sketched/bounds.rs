//! Lower bounds of the distances of rows to sets of centers, kept from sweep to sweep (Ding et al., 2015).
//!
//! A set has the centers of one packed group, or of several consecutive groups. The path of a set is a sum over all
//! sweeps so far: in each, the largest move of a center of the set. A bound is stored with the path of its set added. A
//! later sweep subtracts the path up to then, and gets a bound for the centers as they are now. So a sweep writes only
//! the bounds that it renews.
//!
//! # Rounding
//! Let `P` and `P'` be the paths when a bound `b` is stored and read. It says nothing unless `P' <= P + b`, so no
//! number is larger than `v = b + P`, up to rounding. Both paths, `v`, its product by [`DOWN`] and the difference from
//! `P'` are each rounded by at most half a unit in the last place of `v`. The product takes at least three such units
//! away.

use crate::kernel::arch::products::GROUP;

/// Bounds that are compared at a time.
const LANES: usize = 8;

/// Takes at least three units in the last place away.
const DOWN: f32 = 1.0 - 3.0 * f32::EPSILON;

/// How far the centers of each set have moved.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Packed groups of a set.
    pub(super) groups: usize,
    exact: Vec<f64>,
    /// Rounded, and filled with zeros to whole vectors.
    rounded: Vec<f32>,
}

impl Paths {
    /// For `n_groups` packed groups in at most `most` sets.
    pub(crate) fn new(n_groups: usize, most: usize) -> Self {
        let groups = n_groups.div_ceil(most.max(1));
        let sets = n_groups.div_ceil(groups);
        Self { groups, exact: vec![0.0; sets], rounded: vec![0.0; sets.next_multiple_of(LANES)] }
    }

    /// The number of sets.
    pub(crate) fn len(&self) -> usize {
        self.exact.len()
    }

    /// Bounds of a row, those that fill vectors included.
    pub(crate) fn stride(&self) -> usize {
        self.rounded.len()
    }

    /// Adds the moves of all centers in a sweep, which are in the order of packing. `false` if a path is not finite any
    /// more: then no bound holds.
    pub(crate) fn extend(&mut self, moves: impl Iterator<Item = f32>) -> bool {
        let mut largest = vec![0.0f32; self.exact.len()];
        for (place, moved) in moves.enumerate() {
            let most = &mut largest[place / GROUP / self.groups];
            *most = most.max(moved);
        }
        for (set, moved) in largest.into_iter().enumerate() {
            self.exact[set] += f64::from(moved);
            self.rounded[set] = self.exact[set] as f32;
        }
        self.rounded.iter().all(|path| path.is_finite())
    }

    /// Starts again with centers that have not moved.
    pub(crate) fn clear(&mut self) {
        self.exact.fill(0.0);
        self.rounded.fill(0.0);
    }
}

/// The bounds of some rows: [`Paths::stride`] values per row.
pub(crate) struct Bounds<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) paths: &'a Paths,
}

impl Bounds<'_> {
    /// The smallest bound of a row.
    pub(crate) fn least(&self, row: usize) -> f32 {
        let stride = self.paths.stride();
        let values = self.values[row * stride..][..stride].as_chunks::<LANES>().0;
        let mut least = [f32::INFINITY; LANES];
        for (values, paths) in values.iter().zip(self.paths.rounded.as_chunks::<LANES>().0) {
            for ((least, value), path) in least.iter_mut().zip(values).zip(paths) {
                let bound = value - path;
                *least = if bound < *least { bound } else { *least };
            }
        }
        least.into_iter().fold(f32::INFINITY, f32::min)
    }

    /// Appends a row to the list of every set that may have a center within the radius, and removes the bound.
    pub(crate) fn list(&mut self, row: usize, radius: f32, lists: &mut Lists) {
        let stride = self.paths.stride();
        let values = &mut self.values[row * stride..][..stride];
        let Lists { rows, counts, most } = lists;
        for (set, count) in counts.iter_mut().enumerate() {
            let is_open = values[set] - self.paths.rounded[set] <= radius;
            values[set] = if is_open { f32::INFINITY } else { values[set] };
            // Without a branch: which sets are open is hard to predict.
            rows[set * *most + *count] = row as u32;
            *count += usize::from(is_open);
        }
    }

    /// Lowers the bound of the set of a packed group.
    #[inline(always)]
    pub(crate) fn lower(&mut self, row: usize, group: usize, bound: f32) {
        let set = group / self.paths.groups;
        // No distance is negative, and no sum is infinite.
        let stored = (bound.max(0.0) + self.paths.rounded[set]).min(f32::MAX) * DOWN;
        let value = &mut self.values[row * self.paths.stride() + set];
        *value = value.min(stored);
    }
}

/// The rows that are compared with each set of centers.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// Room for `most` rows per set.
    rows: Vec<u32>,
    counts: Vec<usize>,
    most: usize,
}

impl Lists {
    /// Empty lists for `sets` sets, of at most `most` rows each.
    pub(crate) fn clear(&mut self, sets: usize, most: usize) {
        // A row that is not appended is written, too.
        self.most = most + 1;
        self.rows.resize(sets * self.most, 0);
        self.counts.clear();
        self.counts.resize(sets, 0);
    }

    /// The rows of a set.
    pub(crate) fn of(&self, set: usize) -> &[u32] {
        &self.rows[set * self.most..][..self.counts[set]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Rng};

    /// A bound holds for centers that have moved, and a set whose bound is within the radius is listed.
    #[test]
    fn bounds_follow_the_paths_of_their_sets() {
        let mut paths = Paths::new(5, 3);
        assert_eq!((paths.len(), paths.stride()), (3, 8));
        assert!(paths.extend([1.0f32, 3.0, 2.0].into_iter()));
        let mut values = vec![f32::INFINITY; 16];
        let mut bounds = Bounds { values: &mut values, paths: &paths };
        for (group, bound) in [(0, 7.0), (1, 5.0), (3, 4.0), (4, 9.0)] {
            bounds.lower(1, group, bound);
        }
        assert!(bounds.least(1) <= 4.0 && bounds.least(1) > 3.999 && bounds.least(0) == f32::INFINITY);
        // Sets have two groups of `GROUP` centers.
        let moves = (0..5 * GROUP).map(|place| if place / GROUP == 1 { 1.5 } else { 0.25 });
        assert!(paths.extend(moves));
        let mut bounds = Bounds { values: &mut values, paths: &paths };
        let mut lists = Lists::default();
        lists.clear(3, 2);
        bounds.list(1, 3.6, &mut lists);
        assert_eq!([0, 1, 2].map(|set| lists.of(set)), [&[1][..], &[], &[]]);
        assert!(bounds.least(1) <= 3.75 && bounds.least(1) > 3.749);
        // What is not a number says nothing.
        bounds.lower(0, 0, f32::NAN);
        assert!(bounds.least(0) <= 0.0);
        // Finite in `f64` only.
        assert!(paths.extend(std::iter::once(f32::MAX)) && !paths.extend(std::iter::once(f32::MAX)));
        assert!(!paths.extend(std::iter::once(f32::INFINITY)));
    }

    /// Stored bounds are never rounded upward: with numbers just above a power of two, a rounding is largest beside them.
    #[test]
    fn roundings_of_stored_bounds_are_covered() {
        let mut rng = Rng::keyed(14, Purpose::Seeding, 0);
        for trial in 0..400_000 {
            let mut draw = || {
                let digits = if trial % 2 == 0 { 1.0 + rng.unit() * 2e-6 } else { 1.0 + rng.unit() };
                (digits * 2f64.powi(rng.below(14) as i32 - 7)) as f32
            };
            let [first, second, bound, after] = [draw(), draw(), draw(), draw()];
            let mut paths = Paths::new(1, 1);
            for moved in [first, second] {
                paths.extend(std::iter::once(moved));
            }
            let mut values = vec![f32::INFINITY; paths.stride()];
            Bounds { values: &mut values, paths: &paths }.lower(0, 0, bound);
            paths.extend(std::iter::once(after));
            let mut bounds = Bounds { values: &mut values, paths: &paths };
            // Exact in `f64`.
            let left = (f64::from(bound) - f64::from(after)).max(0.0);
            let least = bounds.least(0);
            assert!(f64::from(least) <= left, "{trial}: {least} {left}");
            let mut lists = Lists::default();
            lists.clear(1, 1);
            let radius = left as f32;
            let radius = if f64::from(radius) < left { radius.next_up() } else { radius };
            bounds.list(0, radius, &mut lists);
            assert_eq!(lists.of(0), [0], "{trial}: {radius} {left}");
        }
    }
}
