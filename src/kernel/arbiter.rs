//! The arbiter: the nearest center of a row has the smallest sum of squared differences in `f64`, and the lowest
//! index among equals.
//!
//! The sum is taken in one order (see [`pair`](super::generic::pair)), so the nearest center is the same on
//! every instruction set, and does not depend on how other centers were excluded. Faster comparisons only exclude
//! centers, by an error bound. Where they leave several, the arbiter decides.
//!
//! # Which centers tile values exclude
//! Let `u` be half of `EPSILON`, `x'` and `c'` a row and a center as they are packed (see [`pack`](super::pack)),
//! and `C` the largest `|c'|`. The tile value `v` of a center differs from `|x' - c'|^2 - |x'|^2` by
//!
//! - at most `(d + 2) u (|c'|^2 + 2 |x'| |c'|)` for a chain of `d + 1` sums of products over `d` stored values,
//!   whose first term is rounded to `T`. Instruction sets without fused steps round each product once more, which
//!   is included;
//! - at most `2 u (|c'|^2 + 2 |x'| |c'|)` because subtracting the shift rounds rows and centers. A change that is equal
//!   for all centers is left out;
//! - for `f64` rows, at most `d u |c'|^2` for the sum of the squares of the center. For `f32` rows, this sum has
//!   more digits than needed.
//!
//! The sum of the arbiter has at most `d / 16 + 7` roundings of `f64`, or `d + 8` where lengths are compared because
//! squares of `f64` values overflow or underflow. Together, with `2 |x'| |c'| <= |x'|^2 + |c'|^2`, twice the difference
//! is at most `2 g (|x'|^2 + 2 C^2)` with `g = s / (1 - s)`, where `s = (17 d / 16 + 16) u` for `f32` rows and
//! `s = (3 d + 32) u` for `f64` rows. The constants are large enough to cover also the roundings of the bound itself
//! and of `|x'|^2`, which are of second order.
//!
//! Hence a center whose tile value exceeds the smallest one by more than `2 g (|x'|^2 + 2 C^2)` is not the
//! nearest. Prices are part of `|c'|^2` and of what the arbiter compares; they are at least 0.
//!
//! # Few centers far away
//! One center far away makes `C` large, and would leave most rows in doubt. But it is far from these rows too. Let `v`
//! be the tile value of any center, `D` its squared distance with its price, and `m = max(v + |x'|^2, 0)`. A center
//! that costs at most `D` is at most `sqrt(D)` away, and its price is at most `D`. So with `|c'|^2` that includes the
//! price, `|c'|^2 <= (|x'| + sqrt(D))^2 + D <= 2 |x'|^2 + 3 D`. This holds for the center of `v` itself, whose error
//! is at most `g (|x'|^2 + 2 |c'|^2)`. Therefore `D <= m + g (5 |x'|^2 + 6 D)`, and for `g <= 1 / 32`
//!
//! - `D <= 1.24 m + 0.2 |x'|^2`,
//! - `|c'|^2 <= 2.6 |x'|^2 + 3.72 m` for each center that may be the nearest,
//! - `2 g (|x'|^2 + 2 |c'|^2) <= g (12.4 |x'|^2 + 14.9 m)`.
//!
//! A center whose tile value exceeds `v` by more than `g (14 |x'|^2 + 16 m)` is therefore not the nearest: either it is
//! among these centers, and its error is that small; or it is farther than the center of `v`. 14 and 16 are above 12.4
//! and 14.9 to cover the roundings, among them those of the arbiter. Where squares underflow, each of the `d + 2` sums
//! may also lose half of the smallest positive number. This and the digits that tiny rows and centers lose by scaling
//! are far below `g` times the value of [`vanishing`], which is added to `m`.

use std::ops::Range;

use super::doubt::{Doubt, Doubts, is_in_doubt, vanishing};
use super::operations;
use super::pack::PackedCenters;
use super::scratch::Scratch;
use super::strips::{for_each_panel, for_each_strip};
use super::tier::Compute;
use crate::float::Float;
use crate::rows::{Rows, spread};

/// Rows that are tested for doubt at a time.
const FEW: usize = 32;

impl<T: Compute> Doubts<T> {
    /// Forgets all rows, and prepares for strips of rows against `packed`.
    pub(super) fn begin(&mut self, packed: &PackedCenters<T>) {
        self.clear();
        self.largest = packed.largest_norm();
        self.of_dense = packed.doubt_about(packed.dim, self.largest);
    }

    /// Notes the rows of a strip that [`argmin`](super::operations::argmin) or [`two`](super::operations::two) left in
    /// doubt, after [`Doubts::begin`].
    pub(super) fn note_strip(
        &mut self,
        rows: Rows<'_, T>,
        range: Range<usize>,
        packed: &PackedCenters<T>,
        scratch: &Scratch<T>,
    ) {
        let n = range.len();
        let (best, second) = (&scratch.best[..n], &scratch.second[..n]);
        match rows {
            Rows::Dense(_) => {
                let doubt = self.of_dense;
                let sq_norms = &scratch.sq_norms[..n];
                for first in (0..n).step_by(FEW) {
                    let few = first..n.min(first + FEW);
                    let in_doubt = |i: usize| is_in_doubt(best[i], second[i], doubt.of(sq_norms[i], best[i]));
                    // Most rows are decided. Without a branch per row, the compiler uses vectors.
                    if few.clone().filter(|&i| in_doubt(i)).count() > 0 {
                        for i in few {
                            self.note(range.start + i, best[i], second[i], doubt.of(sq_norms[i], best[i]));
                        }
                    }
                }
            }
            Rows::Sparse(sparse) => {
                for (i, row) in range.enumerate() {
                    let doubt = packed.doubt_about(sparse.row(row).1.len(), self.largest);
                    let sq_norm = T::from_f64(packed.sq_norm(rows, row));
                    self.note(row, best[i], second[i], doubt.of(sq_norm, best[i]));
                }
            }
        }
    }

    /// Writes the labels of the rows in doubt. Computes all tile values of these rows again, and the squared
    /// distances to the centers that they do not exclude.
    pub(crate) fn settle(
        &self,
        rows: Rows<'_, T>,
        packed: &PackedCenters<T>,
        labels: &mut [u32],
        scratch: &mut Scratch<T>,
    ) {
        if self.rows.is_empty() {
            return;
        }
        let mut copies = std::mem::take(&mut scratch.copies);
        copies.clear(rows.cols());
        self.rows.iter().for_each(|&row| copies.push(rows, row as usize));
        let (mut full, mut found) = (Vec::new(), vec![(f64::INFINITY, 0); packed.strip_rows()]);
        for_each_strip(copies.rows(), packed, scratch, |range, strip, scratch| {
            found.fill((f64::INFINITY, 0));
            for_each_panel(packed, scratch, strip, |i, first, values| {
                let limit = self.limits[range.start + i];
                let is_left = |value: &T| is_in_doubt(limit, *value, T::ZERO);
                // Most panels hold no candidate. Without a branch per value, the compiler uses vectors.
                if values.iter().filter(|value| is_left(value)).count() == 0 {
                    return;
                }
                for (slot, _) in (first..).zip(values).filter(|(_, value)| is_left(value)) {
                    // A place without a center.
                    if !packed.norms[slot].finite() {
                        continue;
                    }
                    let (row, j) = (self.rows[range.start + i] as usize, packed.center_in(slot));
                    let cost = packed.cost(rows, row, j as usize, &mut full);
                    let best = &mut found[i];
                    if cost < best.0 || cost == best.0 && j < best.1 {
                        *best = (cost, j);
                    }
                }
            });
            for (i, &(cost, j)) in range.clone().zip(&found) {
                let row = self.rows[i] as usize;
                labels[row] = if is_exact::<T>(cost) { j } else { packed.nearest_of_all(rows, row) };
            }
        });
        scratch.copies = copies;
    }
}

/// Whether a squared distance has neither overflowed nor lost digits to underflow. Differences of `f32` values do
/// neither in `f64`.
pub(crate) fn is_exact<T: Float>(sq_dist: f64) -> bool {
    !T::WIDE || sq_dist.is_finite() && sq_dist >= vanishing::<f64>()
}

impl<T: Compute> PackedCenters<T> {
    /// The doubt about rows with `values` values.
    pub(crate) fn doubt(&self, values: usize) -> Doubt<T> {
        self.doubt_about(values, self.largest_norm())
    }

    pub(super) fn doubt_about(&self, values: usize, largest: f64) -> Doubt<T> {
        let roundings = if T::WIDE {
            // The lengths of centers are sums over all columns.
            3.0 * values.max(self.dim) as f64 + 32.0
        } else {
            values as f64 * (17.0 / 16.0) + 16.0
        };
        let sum = roundings * T::EPSILON / 2.0;
        let gamma = if sum < 1.0 { sum / (1.0 - sum) } else { f64::INFINITY };
        Doubt::new(gamma, largest)
    }

    /// What the arbiter compares: the squared distance, plus the price above the lowest if centers have prices. `full`
    /// is a buffer for sparse rows, which give the sum of the equal dense row.
    fn cost(&self, rows: Rows<'_, T>, row: usize, j: usize, full: &mut Vec<T>) -> f64 {
        let center = self.centers().row(j);
        let sq_dist = match rows {
            Rows::Dense(rows) => operations::sq_dist(self.tier, rows.row(row), center),
            Rows::Sparse(rows) => {
                full.clear();
                full.resize(self.dim, T::ZERO);
                spread(rows.row(row), full);
                operations::sq_dist(self.tier, full, center)
            }
        };
        sq_dist + self.prices.get(j).copied().unwrap_or(0.0)
    }

    /// Sorts listed centers by distance, then index, and writes their squared distances (with prices, if centers
    /// have prices). Those at no finite distance come last.
    pub(super) fn rank(&self, rows: Rows<'_, T>, row: usize, listed: &mut [(f64, u32)]) {
        let mut full = Vec::new();
        let sort = |listed: &mut [(f64, u32)], value: &mut dyn FnMut(usize) -> f64| {
            for (cost, j) in &mut *listed {
                let value = value(*j as usize);
                *cost = if value.is_nan() { f64::INFINITY } else { value };
            }
            listed.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        };
        sort(listed, &mut |j| self.cost(rows, row, j, &mut full));
        // Where squares have overflowed or underflowed, lengths are compared.
        let parts = listed.chunk_by_mut(|a, b| is_exact::<T>(a.0) == is_exact::<T>(b.0));
        for part in parts.filter(|part| !is_exact::<T>(part[0].0) && self.prices.is_empty()) {
            sort(part, &mut |j| length(rows, row, self.centers().row(j)));
            for (length, _) in part {
                *length *= *length;
            }
        }
    }

    /// All centers, to be [ranked](PackedCenters::rank).
    pub(super) fn all_listed(&self) -> Vec<(f64, u32)> {
        (0..self.k)
            .filter(|&slot| self.norms[slot].finite())
            .map(|slot| (0.0, self.center_in(slot)))
            .collect()
    }

    /// The nearest of the listed centers.
    pub(crate) fn nearest_of(&self, rows: Rows<'_, T>, row: usize, list: &[u32]) -> u32 {
        let mut listed: Vec<_> = list.iter().map(|&j| (0.0, j)).collect();
        self.rank(rows, row, &mut listed);
        listed.first().map_or(0, |&(_, j)| j)
    }

    /// The nearest of all centers, by the arbiter alone.
    pub(super) fn nearest_of_all(&self, rows: Rows<'_, T>, row: usize) -> u32 {
        let mut listed = self.all_listed();
        self.rank(rows, row, &mut listed);
        listed.first().map_or(0, |&(_, j)| j)
    }
}

/// The distance of a row to a center, also if its square overflows or underflows `f64`.
#[cold]
pub(super) fn length<T: Float>(rows: Rows<'_, T>, i: usize, center: &[T]) -> f64 {
    let mut apart: Vec<f64> = center.iter().map(|c| c.to_f64()).collect();
    match rows {
        Rows::Dense(rows) => apart.iter_mut().zip(rows.row(i)).for_each(|(apart, x)| *apart -= x.to_f64()),
        Rows::Sparse(rows) => {
            let (columns, values) = rows.row(i);
            columns.iter().zip(values).for_each(|(&t, x)| apart[t as usize] -= x.to_f64());
        }
    }
    let largest = apart.iter().fold(0.0, |most: f64, apart| most.max(apart.abs()));
    if largest == 0.0 || largest.is_infinite() {
        return largest;
    }
    largest * apart.iter().map(|apart| (apart / largest).powi(2)).sum::<f64>().sqrt()
}
