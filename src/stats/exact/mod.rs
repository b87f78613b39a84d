//! Exact sums of rows per cluster. Each is rounded once, when it is read, so the order of addition does not matter.
//!
//! Rows are added to whole numbers on a grid per column ([`Limbs`]), which costs little more than adding `f64`. Values
//! that do not fit the grid, and from time to time the whole numbers, are added to a pair of `f64`: the rounded sum,
//! and what the rounding left. The few sums that a pair cannot hold have a [`Big`]. Grids decide how fast rows are
//! added, never the sums.

mod big;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::mem::take;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Mutex, PoisonError};

use big::Big;

use crate::error::{Error, Result};
use crate::float::Float;
use crate::kernel::{self, Compute, Limbs, NO_GRID, plus, split, values_of};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::tuning::shared_rows;

/// Most rows that are added together.
const MOST_TOGETHER: usize = 256;

/// Values that are added and checked together. If the check fails, each of them is looked at.
const TOGETHER: usize = 4096;

/// Rows of `width` values that are added together.
pub(super) fn rows_together(width: usize) -> usize {
    (TOGETHER / width.max(1)).clamp(16, MOST_TOGETHER)
}

/// Bits of room above the largest value from which a grid is learned. Each bit makes twice as many small values of
/// `f32` miss the grid.
const ROOM: i32 = 4;

/// Room above the first value of a column from which a grid is learned.
const FIRST_ROOM: f64 = 64.0;

/// Values from which no grid is learned.
const MOST_LEARNED: f64 = 1e250;

/// A grid this much too coarse for the values of a column misses most of them, even with a second part.
const TOO_COARSE: f64 = (1u64 << 40) as f64;

/// Values that begin at a cache line, so that vectors do not cross two lines. A copy may begin elsewhere.
#[derive(Clone, Debug, Default)]
struct Lines<V> {
    values: Vec<V>,
    start: usize,
}

impl<V: Copy + Default> Lines<V> {
    fn zeros(n: usize) -> Self {
        let values = vec![V::default(); n + 64 / size_of::<V>()];
        let start = values.as_ptr().align_offset(64).min(values.len() - n);
        let mut new = Self { values, start };
        new.values.truncate(start + n);
        new
    }
}

impl<V> Deref for Lines<V> {
    type Target = [V];

    fn deref(&self) -> &[V] {
        &self.values[self.start..]
    }
}

impl<V> DerefMut for Lines<V> {
    fn deref_mut(&mut self) -> &mut [V] {
        &mut self.values[self.start..]
    }
}

/// Exact sums of `width` columns per cluster.
#[derive(Clone, Debug)]
pub(super) struct ExactSums {
    k: usize,
    width: usize,
    /// See [`Limbs`]. Empty before the first rows.
    grids: Lines<f64>,
    high: Lines<i64>,
    low: Lines<i64>,
    /// Whether the values that were added are finite.
    is_finite: bool,
    /// Values of blocks that failed the check, less some for blocks that did not.
    missed: usize,
    /// The rounded sums without the whole numbers, and what the rounding left. Allocated when needed.
    sums: Vec<f64>,
    lows: Vec<f64>,
    /// What is to be added to `sums` and `lows`.
    rests: BTreeMap<usize, Big>,
}

/// Exact sums as numbers: equal sums have equal terms.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// The rounded sums. Then, for every sum, what the rounding left, and so on, as long as there is anything left.
    pub(crate) values: Vec<f64>,
    /// The places that the values after the sums have among all terms, if these have zeros in most places. Otherwise
    /// empty, and the values are all terms.
    pub(crate) places: Vec<u64>,
}

impl Terms {
    /// Whether these are the terms of `n` sums.
    pub(super) fn fit(&self, n: usize) -> bool {
        let more = self.values.len().checked_sub(n);
        more.is_some_and(|more| match self.places.len() {
            0 => more == 0 || n > 0 && more.is_multiple_of(n),
            places => n > 0 && more == places,
        })
    }
}

/// The grid, as in [`Limbs::grids`], for values of up to `largest`.
fn grid_for(largest: f64) -> f64 {
    if largest == 0.0 {
        return 0.0;
    }
    let exponent = (largest.to_bits() >> 52 & 0x7ff) as i32 - 1022 + ROOM;
    // Values beyond these limits are added to pairs.
    let exponent = exponent.clamp(-930, 1000);
    1.5 * f64::from_bits(((exponent + 1 + 1023) as u64) << 52)
}

impl ExactSums {
    /// Sums of 0. They take no memory for columns before the first rows.
    pub(super) fn new(k: usize, width: usize) -> Self {
        Self {
            k,
            width,
            grids: Lines::default(),
            high: Lines::default(),
            low: Lines::default(),
            is_finite: true,
            missed: 0,
            sums: Vec::new(),
            lows: Vec::new(),
            rests: BTreeMap::new(),
        }
    }

    /// Given sums.
    pub(super) fn of(width: usize, sums: Vec<f64>) -> Self {
        let k = sums.len() / width.max(1);
        Self { sums, ..Self::new(k, width) }
    }

    /// Sums from what [`ExactSums::terms`] returned.
    pub(super) fn of_terms(k: usize, width: usize, Terms { mut values, places }: Terms) -> Self {
        let n = k * width;
        let more = values.split_off(n);
        values.shrink_to_fit();
        let mut sums = Self::of(width, values);
        sums.k = k;
        let place = |i: usize| places.get(i).map_or(i % n, |&place| (place % n as u64) as usize);
        for (i, &term) in more.iter().enumerate().filter(|&(_, &term)| term != 0.0) {
            sums.fill();
            sums.add_value(place(i), term);
        }
        sums.finish();
        sums
    }

    /// The sums as numbers. They must be settled.
    pub(super) fn terms(&self) -> Terms {
        let n = self.k * self.width;
        let mut values = self.sums.clone();
        values.resize(n, 0.0);
        let lows = || {
            self.lows.iter().enumerate().filter(|&(_, &low)| low != 0.0).map(move |(at, &low)| (n + at, low))
        };
        let mut rests: Vec<(usize, f64)> = Vec::new();
        for (at, rest) in &self.rests {
            let (mut rest, mut end) = (rest.clone(), 2 * n);
            // Sums that are not finite have no terms.
            while !rest.is_zero() && self.sums[*at].is_finite() {
                let term = rest.round();
                rest.add(-term);
                rests.push((end + at, term));
                end += n;
            }
        }
        rests.sort_unstable_by_key(|&(place, _)| place);
        let (few, all) = (lows().count() + rests.len(), rests.last().map_or(n, |&(place, _)| place / n * n));
        let others = lows().chain(rests.iter().copied());
        if 2 * few < all {
            values.reserve_exact(few);
            values.extend(others.clone().map(|(_, term)| term));
            return Terms { values, places: others.map(|(place, _)| place as u64).collect() };
        }
        values.resize(n + all, 0.0);
        others.for_each(|(place, term)| values[place] = term);
        Terms { values, places: Vec::new() }
    }

    /// Allocates the pairs.
    pub(super) fn fill(&mut self) {
        for part in [&mut self.sums, &mut self.lows] {
            if part.is_empty() {
                // The system gives zeros memory only once they are written to.
                *part = vec![0.0; self.k * self.width];
            }
        }
    }

    /// Becomes a copy of sums that differ only for these `clusters`.
    pub(super) fn catch_up(&mut self, with: &Self, clusters: &[u32]) {
        let Self { k: _, width, grids, high, low, is_finite, missed, sums, lows, rests } = with;
        let copy = |to: &mut Vec<f64>, from: &Vec<f64>| {
            if to.len() != from.len() {
                return to.clone_from(from);
            }
            for &j in clusters {
                let row = j as usize * width..(j as usize + 1) * width;
                to[row.clone()].copy_from_slice(&from[row]);
            }
        };
        copy(&mut self.sums, sums);
        copy(&mut self.lows, lows);
        self.grids.clone_from(grids);
        self.high.clone_from(high);
        self.low.clone_from(low);
        self.rests.clone_from(rests);
        (self.is_finite, self.missed) = (*is_finite, *missed);
    }

    /// A copy of the sums of a range of clusters. They must be settled.
    pub(super) fn range(&self, clusters: Range<usize>) -> Self {
        let places = clusters.start * self.width..clusters.end * self.width;
        let copied = |values: &Vec<f64>| values.get(places.clone()).unwrap_or_default().to_vec();
        let rests = self.rests.range(places.clone());
        Self {
            is_finite: self.is_finite,
            sums: copied(&self.sums),
            lows: copied(&self.lows),
            rests: rests.map(|(at, rest)| (at - places.start, rest.clone())).collect(),
            ..Self::new(clusters.len(), self.width)
        }
    }

    /// The rounded sums, without rows that are not settled.
    pub(super) fn values(&self) -> &[f64] {
        &self.sums
    }

    /// The rounded sums of cluster `j`.
    pub(super) fn row(&self, j: usize) -> &[f64] {
        &self.sums[j * self.width..][..self.width]
    }

    /// The bytes of the sums, without the few that a pair cannot hold.
    pub(super) fn bytes(&self) -> usize {
        8 * (self.grids.len() + self.high.len() + self.low.len() + self.sums.len() + self.lows.len())
    }

    /// Replaces the sums of cluster `j`.
    pub(super) fn set(&mut self, j: usize, values: impl Iterator<Item = f64>) {
        self.round(j * self.width..(j + 1) * self.width);
        self.sums[j * self.width..].iter_mut().zip(values).for_each(|(sum, value)| *sum = value + 0.0);
    }

    /// Multiplies sums that are rounded.
    pub(super) fn scale(&mut self, factor: f64) {
        self.sums.iter_mut().for_each(|sum| *sum *= factor);
    }

    /// Adds a value to the pair at this place.
    pub(super) fn add_value(&mut self, at: usize, value: f64) {
        if self.lows.is_empty() {
            self.fill();
        }
        let (sum, low, lost) = plus(self.sums[at], self.lows[at], [value]);
        if lost == 0.0 {
            (self.sums[at], self.lows[at]) = (sum, low);
        } else if !value.is_finite() {
            self.is_finite = false;
            self.sums[at] = f64::NAN;
            self.rests.remove(&at);
        } else if self.sums[at].is_finite() || self.rests.contains_key(&at) {
            self.rests.entry(at).or_default().add(value);
        }
    }

    /// Rounds the sums at these places.
    pub(super) fn round(&mut self, places: Range<usize>) {
        if let Some(lows) = self.lows.get_mut(places.clone()) {
            lows.fill(0.0);
        }
        if !self.rests.is_empty() {
            self.rests.retain(|at, _| !places.contains(at));
        }
    }

    /// Makes the sums that two `f64` cannot hold canonical.
    pub(super) fn finish(&mut self) {
        let Self { sums, lows, rests, .. } = self;
        rests.retain(|&at, rest| {
            let (sum, low) = (&mut sums[at], &mut lows[at]);
            if sum.is_finite() {
                rest.add(*sum);
                rest.add(*low);
            }
            (*sum, *low) = (rest.round(), 0.0);
            if sum.is_infinite() {
                return true;
            }
            rest.add(-*sum);
            *low = rest.round();
            rest.add(-*low);
            !rest.is_zero()
        });
    }

    /// Prepares the whole numbers for rows like these. With `two`, they have a second part.
    fn begin<T: Float>(&mut self, two: bool, rows: MatRef<'_, T>, weights: Option<&[f64]>) {
        if self.grids.is_empty() {
            self.grids = Lines::zeros(self.width);
            self.grids.fill(NO_GRID);
            self.high = Lines::zeros(self.k * self.width);
            self.learn(rows, weights);
        }
        if two && self.low.is_empty() {
            self.low = Lines::zeros(self.high.len());
        }
    }

    /// Chooses grids for rows like these. The whole numbers must be 0.
    fn learn<T: Float>(&mut self, rows: MatRef<'_, T>, weights: Option<&[f64]>) {
        let mut largest = vec![0.0f64; self.width];
        for (i, row) in rows.iter().enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[i]);
            largest.iter_mut().zip(row).for_each(|(most, x)| *most = most.max((weight * x.to_f64()).abs()));
        }
        for (grid, &largest) in self.grids.iter_mut().zip(&largest).filter(|&(_, &largest)| largest > 0.0) {
            // Grids for larger values stay: rows with few large values would change them to and fro.
            let new = grid_for(largest);
            if new > *grid || new * TOO_COARSE < *grid {
                *grid = new;
            }
        }
    }

    /// Whether all values that were added are finite.
    pub(super) fn is_finite(&self) -> bool {
        self.is_finite
    }

    /// Adds rows, times their weights, to the sums of their clusters: at most [`rows_together`]. See [`Added`] for how
    /// many before they are settled.
    pub(super) fn add<T: Compute>(&mut self, rows: MatRef<'_, T>, labels: &[u32], weights: Option<&[f64]>) {
        self.begin(T::WIDE || weights.is_some(), rows, weights);
        if kernel::add_rows(rows, labels, weights, self.limbs()) {
            self.missed = self.missed.saturating_sub(labels.len() * self.width / 64);
        } else {
            let each = |i: usize| weights.map_or(1.0, |weights| weights[i]);
            let entries = labels.iter().enumerate().map(|(i, &j)| (i, j, each(i)));
            self.repair(rows, entries, weights);
        }
    }

    /// Moves the rows whose label changed: at most [`rows_together`], which count as rows of both clusters.
    pub(super) fn reassign<T: Compute>(&mut self, rows: MatRef<'_, T>, (old, new): (&[u32], &[u32])) {
        self.begin(T::WIDE, rows, None);
        if !kernel::reassign(rows, (old, new), self.limbs()) {
            let moved = old.iter().zip(new).enumerate().filter(|(_, (from, to))| from != to);
            let entries = moved.flat_map(|(i, (&from, &to))| [(i, from, -1.0), (i, to, 1.0)]);
            self.repair(rows, entries, None);
        }
    }

    fn limbs(&mut self) -> Limbs<'_> {
        Limbs { grids: &self.grids, high: &mut self.high, low: &mut self.low }
    }

    /// Prepares for [`ExactSums::add_sparse`]. With `two`, values have more bits than those of an `f32`.
    pub(super) fn begin_values(&mut self, two: bool) {
        self.begin::<f64>(two, MatRef::new(&[], self.width.max(1)), None);
    }

    /// Adds a sparse row, times a factor, to the sums of cluster `j`.
    pub(super) fn add_sparse<T: Float>(&mut self, (columns, values): (&[i32], &[T]), j: u32, factor: f64) {
        for (&column, x) in columns.iter().zip(values) {
            self.add_at(j as usize, column as usize, factor * x.to_f64());
        }
    }

    #[inline]
    fn add_at(&mut self, j: usize, t: usize, value: f64) {
        let (at, grid) = (j * self.width + t, self.grids[t]);
        let split =
            if self.low.is_empty() { split::<false>(value, grid) } else { split::<true>(value, grid) };
        if split.is_exact() {
            self.high[at] = self.high[at].wrapping_add(split.high);
            if let Some(low) = self.low.get_mut(at) {
                *low = low.wrapping_add(split.low);
            }
        } else {
            self.add_apart(j, t, value);
        }
    }

    /// Adds a value that does not lie on its grid, or whose column has no grid yet.
    #[cold]
    fn add_apart(&mut self, j: usize, t: usize, value: f64) {
        self.fill();
        let is_zero = |numbers: &[i64]| numbers.iter().skip(t).step_by(self.width).all(|&number| number == 0);
        // Only huge values lie on no grid.
        if self.grids[t] == NO_GRID && value.abs() < MOST_LEARNED && is_zero(&self.high) && is_zero(&self.low)
        {
            self.grids[t] = grid_for(FIRST_ROOM * value.abs());
            return self.add_at(j, t, value);
        }
        self.add_value(j * self.width + t, value);
    }

    /// Repairs the sums of a block that failed the check: `entries` are rows, clusters and factors.
    #[cold]
    fn repair<T: Float>(
        &mut self,
        rows: MatRef<'_, T>,
        entries: impl Iterator<Item = (usize, u32, f64)>,
        weights: Option<&[f64]>,
    ) {
        let two = !self.low.is_empty();
        // Those with which the rows were added.
        let grids = self.grids.clone();
        for (i, j, factor) in entries {
            self.missed += self.width;
            for (t, x) in rows.row(i).iter().enumerate() {
                let (value, at) = (factor * x.to_f64(), j as usize * self.width + t);
                let split =
                    if two { split::<true>(value, grids[t]) } else { split::<false>(value, grids[t]) };
                if !split.is_exact() {
                    self.high[at] = self.high[at].wrapping_sub(split.high);
                    if two {
                        self.low[at] = self.low[at].wrapping_sub(split.low);
                    }
                    self.add_apart(j as usize, t, value);
                }
            }
        }
        if self.missed > (2 * self.high.len()).max(4 * TOGETHER) {
            // Other grids cost as much as what was missed.
            (0..self.k).for_each(|j| self.settle(j));
            self.learn(rows, weights);
            if self.low.is_empty() {
                self.low = Lines::zeros(self.high.len());
            }
            self.missed = 0;
        }
    }

    /// Adds the whole numbers of cluster `j` to its pairs.
    pub(super) fn settle(&mut self, j: usize) {
        if self.grids.is_empty() {
            return;
        }
        self.fill();
        let row = j * self.width..(j + 1) * self.width;
        let (high, low) = (&mut self.high[row.clone()], self.low.get_mut(row.clone()).unwrap_or_default());
        let pairs = (&mut self.sums[row.clone()], &mut self.lows[row.clone()]);
        for (t, value) in settle_into(pairs, Limbs { grids: &self.grids, high, low }) {
            self.add_value(row.start + t, value);
        }
    }

    /// Adds the sums of some clusters of others, in ascending order, and makes them 0 there. Call [`ExactSums::finish`]
    /// at the end.
    pub(super) fn take(&mut self, from: &mut [(&[u32], &mut Self)], cx: &Executor) {
        self.fill();
        let (width, part) = (self.width, shared_rows(self.width));
        if width == 0 {
            return;
        }
        let mut ranges: Vec<Vec<Taken<'_>>> = Vec::new();
        ranges.resize_with(self.k.div_ceil(part), Vec::new);
        let mut finite = true;
        for (clusters, from) in &mut *from {
            finite &= from.is_finite;
            let Self { grids, high, low, sums, lows, rests, .. } = &mut **from;
            let pairs = chunks(sums, part * width).zip(chunks(lows, part * width));
            let numbers = chunks(high, part * width).zip(chunks(low, part * width)).zip(pairs);
            for (i, (range, ((high, low), (sums, lows)))) in ranges.iter_mut().zip(numbers).enumerate() {
                let place = |cluster: usize| clusters.partition_point(|&j| (j as usize) < cluster);
                let clusters = &clusters[place(i * part)..place((i + 1) * part)];
                range.push(Taken { first: i * part, clusters, grids, high, low, sums, lows, rests });
            }
        }
        let left = Mutex::new(Vec::new());
        let totals = self.sums.chunks_mut(part * width).zip(self.lows.chunks_mut(part * width));
        cx.share(totals.zip(ranges), |((sums, lows), parts)| {
            for mut part in parts {
                let more = part.add_to(sums, lows, width);
                if !more.is_empty() {
                    left.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
                }
            }
        });
        self.is_finite &= finite;
        for (at, value) in left.into_inner().unwrap_or_else(PoisonError::into_inner) {
            self.add_value(at, value);
        }
        for (clusters, from) in from.iter_mut().filter(|(_, from)| !from.rests.is_empty()) {
            for at in clusters.iter().flat_map(|&j| j as usize * width..(j as usize + 1) * width) {
                if let Some(rest) = from.rests.remove(&at) {
                    self.rests.entry(at).or_default().add_all(&rest);
                }
            }
        }
    }
}

/// Adds the whole numbers of a cluster to its pairs, and clears them. Returns what the pairs cannot hold, with its
/// columns.
fn settle_into((sums, lows): (&mut [f64], &mut [f64]), from: Limbs<'_>) -> Vec<(usize, f64)> {
    let Limbs { grids, high, low } = from;
    if kernel::settle(Limbs { grids, high: &mut *high, low: &mut *low }, sums, lows) {
        return Vec::new();
    }
    let mut left = Vec::new();
    for (t, &grid) in grids.iter().enumerate() {
        let (high, low) = (take(&mut high[t]), low.get_mut(t).map_or(0, take));
        left.extend(values_of(high, low, grid).into_iter().map(|value| (t, value)));
    }
    left
}

/// Chunks of values; empty ones if there are no values.
fn chunks<V>(values: &mut [V], len: usize) -> impl Iterator<Item = &mut [V]> {
    values.chunks_mut(len).chain(std::iter::repeat_with(Default::default))
}

/// Some clusters of a range, whose sums are added to others.
struct Taken<'a> {
    /// The first cluster of the range.
    first: usize,
    clusters: &'a [u32],
    grids: &'a [f64],
    /// The numbers of the range. Empty where there are none.
    high: &'a mut [i64],
    low: &'a mut [i64],
    sums: &'a mut [f64],
    lows: &'a mut [f64],
    rests: &'a BTreeMap<usize, Big>,
}

impl Taken<'_> {
    /// Adds the sums to the pairs of a range, and makes them 0. Returns what the pairs cannot hold, with its places.
    fn add_to(&mut self, sums: &mut [f64], lows: &mut [f64], width: usize) -> Vec<(usize, f64)> {
        let (mut left, mut zeros) = (Vec::new(), Vec::new());
        for &j in self.clusters {
            let row = (j as usize - self.first) * width..(j as usize - self.first + 1) * width;
            let (sums, lows) = (&mut sums[row.clone()], &mut lows[row.clone()]);
            if !self.grids.is_empty() {
                let low = self.low.get_mut(row.clone()).unwrap_or_default();
                let limbs = Limbs { grids: self.grids, high: &mut self.high[row.clone()], low };
                let more = settle_into((&mut *sums, &mut *lows), limbs);
                left.extend(more.into_iter().map(|(t, value)| (j as usize * width + t, value)));
            }
            if self.sums.is_empty() {
                continue;
            }
            let more = &mut self.sums[row.clone()];
            let more_lows = self.lows.get_mut(row).unwrap_or_default();
            if add_exact((&mut *more, more_lows), sums, lows) {
                continue;
            }
            let more_lows = if more_lows.is_empty() {
                zeros.clear();
                zeros.resize(width, 0.0);
                &mut zeros[..]
            } else {
                more_lows
            };
            if !kernel::merge_pairs((&mut *more, &mut *more_lows), sums, lows) {
                for (at, (sum, low)) in (j as usize * width..).zip(more.iter_mut().zip(more_lows)) {
                    let (sum, low) = (take(sum), take(low));
                    // An infinite sum is all in its rest.
                    if sum.is_finite() || !self.rests.contains_key(&at) {
                        left.extend([(at, sum), (at, low)]);
                    }
                }
            }
        }
        left
    }
}

/// Adds sums of a cluster to others, and makes them 0, if neither have a second part, and the totals do not get one.
/// Nothing is written to `lows`, which then takes no memory.
fn add_exact((more, more_lows): (&mut [f64], &[f64]), sums: &mut [f64], lows: &[f64]) -> bool {
    let lost = |(&one, &two): (&f64, &f64)| {
        let sum = one + two;
        let added = sum - one;
        (one - (sum - added)) + (two - added) != 0.0
    };
    let has_low = |lows: &[f64]| lows.iter().any(|&low| low != 0.0);
    if has_low(lows) || has_low(more_lows) || sums.iter().zip(&*more).any(lost) {
        return false;
    }
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += take(more));
    true
}

/// Rows per cluster since its whole numbers were settled, and how many of weight 1 it has got since then.
#[derive(Clone, Debug)]
pub(super) struct Added(Vec<u64>);

/// Rows after which whole numbers are settled. They hold 2^12 values of less than 2^51 grids, and as many rows as are
/// added together may follow before they are settled.
const SETTLED_AT: u32 = (1 << 12) - 2 * MOST_TOGETHER as u32;

impl Added {
    pub(super) fn new(k: usize) -> Self {
        Self(vec![0; k])
    }

    /// Counts rows that were added together, which change the weight of their clusters by so many rows of weight 1
    /// each. Returns whether clusters must be settled.
    pub(super) fn count(&mut self, labels: &[u32], by: impl Fn(usize) -> i32) -> bool {
        let mut most = 0;
        for (i, &j) in labels.iter().enumerate() {
            // The number of rows is in the lower half, the change of the weight in the upper half.
            let added = &mut self.0[j as usize];
            *added = added.wrapping_add(1).wrapping_add((by(i) as u64) << 32);
            most = most.max(*added as u32);
        }
        most >= SETTLED_AT
    }

    /// Whether cluster `j` must be settled.
    pub(super) fn is_full(&self, j: usize) -> bool {
        self.0[j] as u32 >= SETTLED_AT
    }

    /// The number of rows of cluster `j`, and the change of its weight. It then has none.
    pub(super) fn take(&mut self, j: usize) -> (u32, i32) {
        let added = take(&mut self.0[j]);
        (added as u32, (added >> 32) as i32)
    }
}

/// Sums of weighted squared errors per cluster, without the rows.
#[derive(Clone, Debug)]
pub(crate) struct ErrorSums {
    sums: ExactSums,
    added: Added,
}

impl ErrorSums {
    /// Sums of 0 for `k` clusters.
    pub(crate) fn new(k: usize) -> Self {
        let mut sums = ExactSums::new(k, 1);
        sums.fill();
        Self { sums, added: Added::new(k) }
    }

    /// Adds squared errors, times the weights, to those of their clusters. Returns whether all are finite.
    pub(crate) fn absorb(&mut self, errors: &[f64], labels: &[u32], weights: Option<&[f64]>) -> bool {
        for start in (0..errors.len()).step_by(MOST_TOGETHER) {
            let these = start..errors.len().min(start + MOST_TOGETHER);
            let weights = weights.map(|weights| &weights[these.clone()]);
            self.sums.add(MatRef::new(&errors[these.clone()], 1), &labels[these.clone()], weights);
            if self.added.count(&labels[these.clone()], |_| 0) {
                for j in labels[these].iter().map(|&j| j as usize) {
                    if self.added.is_full(j) {
                        self.added.take(j);
                        self.sums.settle(j);
                    }
                }
            }
        }
        self.sums.is_finite()
    }

    /// Adds the sums of `parts` and leaves them empty.
    pub(crate) fn merge(&mut self, parts: &mut [Self]) {
        let all: Vec<u32> = (0..self.sums.k as u32).collect();
        for part in parts {
            part.added = Added::new(self.sums.k);
            self.sums.take(&mut [(&all, &mut part.sums)], Executor::caller());
        }
        self.sums.finish();
    }

    /// The sums.
    ///
    /// # Errors
    /// If their total overflows.
    pub(crate) fn into_values(self) -> Result<Vec<f64>> {
        check_energy(self.sums.values().iter().sum())?;
        Ok(self.sums.sums)
    }
}

/// Returns an error if the squared error of all rows is not finite.
pub(crate) fn check_energy(energy: f64) -> Result<()> {
    if energy.is_finite() {
        return Ok(());
    }
    let text = "the squared error of all rows overflows float64: scale `rows` or the `weights`";
    Err(Error::Source(text.into()))
}
