//! Labels a chunk of rows: bounds, scan, exact distances.

use super::work::{Open, Work};
use super::{NEAR, Near};
use crate::centers::NO_LABEL;
use crate::error::Result;
use crate::kernel::sketched::{Basis, PackedSketches, Scan, Sketch, farthest, lower_of, upper_of};
use crate::kernel::{Compute, PackedCenters, is_exact, sq_dist};
use crate::matrix::MatRef;
use crate::pass::{Chunk, PerRow, Unread};
use crate::rows::Rows;
use crate::tuning::{SKETCH_GROWTH, SKETCH_ROOM};

/// What all rows of a sweep share.
pub(in crate::kmeans) struct Rules<'a, T> {
    pub(super) basis: &'a Basis,
    pub(super) centers: MatRef<'a, T>,
    pub(super) packed: PackedSketches,
    /// How far each center moved since the last sweep, and the largest move per group, which falls from group to group.
    pub(super) moves: &'a [f32],
    pub(super) group_moves: Vec<f32>,
    pub(super) paths: &'a [f64],
    pub(super) codes: &'a [u8],
    pub(super) sketches: &'a [Sketch],
    pub(super) are_made: bool,
    pub(super) are_known: bool,
}

/// Sketches and bounds of the rows of a chunk.
pub(in crate::kmeans) struct RowSketches<'a> {
    pub(in crate::kmeans) codes: &'a mut [u8],
    pub(in crate::kmeans) sketches: &'a mut [Sketch],
    pub(in crate::kmeans) upper: &'a mut [f32],
    pub(in crate::kmeans) least: &'a mut [f32],
    pub(in crate::kmeans) near: &'a mut [Near],
    /// Bytes of a row.
    pub(in crate::kmeans) width: usize,
}

impl PerRow for RowSketches<'_> {
    fn split(self, n: usize) -> (Self, Self) {
        let Self { codes, sketches, upper, least, near, width } = self;
        let (codes, sketches) = (codes.split_at_mut(n * width), sketches.split_at_mut(n));
        let (upper, least, near) = (upper.split_at_mut(n), least.split_at_mut(n), near.split_at_mut(n));
        let part = |codes, sketches, upper, least, near| Self { codes, sketches, upper, least, near, width };
        (
            part(codes.0, sketches.0, upper.0, least.0, near.0),
            part(codes.1, sketches.1, upper.1, least.1, near.1),
        )
    }
    fn rows(&self) -> Option<usize> {
        Some(self.sketches.len())
    }
}

/// Factors that cover a few roundings of `f32`.
const UP: f32 = 1.0 + 5e-7;
const DOWN: f32 = 1.0 - 5e-7;

/// The radius within which a center may be as near as one at a distance of at most `upper`.
fn radius_of(upper: f32) -> f32 {
    upper * (1.0 + 2e-6)
}

impl<T: Compute> Rules<'_, T> {
    /// Whether all rows must be read: they have no sketches yet, or no bounds, so that any label may change.
    pub(in crate::kmeans) fn needs_all(&self) -> bool {
        !(self.are_made && self.are_known)
    }

    /// Finds the new label of every row of a chunk. Notes the changes in `work`. Reads only rows with several centers
    /// within reach.
    pub(in crate::kmeans) fn label(
        &self,
        reading: &mut Reading<'_, '_, T>,
        labels: &[u32],
        rows: &mut RowSketches<'_>,
        packed: &PackedCenters<T>,
        work: &mut Work,
    ) -> Result<()> {
        work.changes.clear();
        work.distances = 0;
        if let (false, Reading::All(chunk)) = (self.are_made, &*reading) {
            work.sketching.write(self.basis, dense(chunk), rows.codes, rows.sketches);
        }
        work.hits.clear();
        if self.are_known && !labels.contains(&NO_LABEL) {
            work.scan.resize(labels.len());
            self.test_bounds(labels, rows, work);
            if !work.first.is_empty() {
                let Work { first, open, distances, .. } = work;
                let values = reading.of(first)?;
                for open in open.iter_mut().filter(|open| open.sq_dist.is_infinite()) {
                    open.sq_dist = self.sq_dist(values, open.row, open.label);
                    self.measured(open);
                    *distances += 1;
                }
            }
            self.retest(rows, &mut work.open);
            self.order(&work.open, &mut work.rows, &mut work.counts);
            self.scan(rows, work);
        } else {
            work.first.clear();
            work.first.extend(0..labels.len() as u32);
            self.guess(reading.of(&work.first)?, rows, work);
        }
        sort_by_row(rows.sketches.len(), work);
        self.pick(rows, work);
        let values = reading.of(&work.picked)?;
        self.decide(values, labels, rows, packed, work);
        Ok(())
    }

    /// Opens all rows with the center of the smallest estimate, and finds the centers within reach.
    fn guess(&self, values: MatRef<'_, T>, rows: &mut RowSketches<'_>, work: &mut Work) {
        rows.near.fill(Near::NONE);
        let Work { scan, hits, open, distances, .. } = work;
        open.clear();
        let groups = self.packed.n_groups() as u32;
        let radius_of = |row, label, _| {
            let sq_dist = self.sq_dist(values, row, label);
            *distances += 1;
            let mut found = Open { row, label, groups, upper: 0.0, radius: 0.0, sq_dist };
            self.measured(&mut found);
            open.push(found);
            found.radius * (1.0 + SKETCH_ROOM)
        };
        scan.closest(&self.packed, (rows.codes, rows.sketches), usize::MAX, radius_of, hits);
    }

    /// Opens the rows whose bounds do not tell their label.
    fn test_bounds(&self, labels: &[u32], rows: &mut RowSketches<'_>, work: &mut Work) {
        let Work { open, first, .. } = work;
        open.clear();
        first.clear();
        for (r, &label) in labels.iter().enumerate() {
            let before = rows.upper[r];
            let moved = self.moves[label as usize];
            let mut upper = (before + moved) * UP;
            if self.is_settled(rows, r, radius_of(upper)) {
                rows.least[r] = self.least_now(rows, r);
            } else {
                if moved > 0.01 * upper {
                    let j = label as usize;
                    let center = (&self.sketches[j], &self.codes[j * rows.width..][..rows.width]);
                    upper = upper.min(farthest((&rows.sketches[r], codes_of(rows, r)), center));
                }
                // Whether the row is measured before it is scanned.
                let grown = upper > before * (1.0 + SKETCH_GROWTH);
                let sq_dist = if grown { f64::INFINITY } else { f64::NAN };
                open.push(Open { row: r as u32, label, groups: 0, upper, radius: radius_of(upper), sq_dist });
            }
            rows.upper[r] = upper;
        }
        first.extend(open.iter().filter(|open| open.sq_dist.is_infinite()).map(|open| open.row));
    }

    /// Closes the rows whose bounds tell their label, now that some have been measured, and finds how many groups the
    /// others must be compared with.
    fn retest(&self, rows: &mut RowSketches<'_>, open: &mut Vec<Open>) {
        open.retain_mut(|open| {
            let r = open.row as usize;
            rows.upper[r] = open.upper;
            if self.is_settled(rows, r, open.radius) {
                rows.least[r] = self.least_now(rows, r);
                return false;
            }
            let is_within = |&moved: &f32| {
                let beyond = (rows.least[r] - moved) * DOWN > open.radius;
                !beyond
            };
            open.groups = self.group_moves.partition_point(is_within) as u32;
            true
        });
    }

    /// Whether the bounds of a row tell its label.
    fn is_settled(&self, rows: &RowSketches<'_>, r: usize, radius: f32) -> bool {
        self.least_now(rows, r) > radius && !self.is_near(&rows.near[r], radius)
    }

    /// A lower bound of the distances to all centers but that of the label and the near ones, after their moves.
    fn least_now(&self, rows: &RowSketches<'_>, r: usize) -> f32 {
        (rows.least[r] - self.group_moves[0]) * DOWN
    }

    /// Sorts the open rows by falling number of groups, and counts the rows that each group is compared with.
    fn order(&self, open: &[Open], rows: &mut Vec<u32>, counts: &mut Vec<u32>) {
        counts.clear();
        counts.resize(self.packed.n_groups(), 0);
        for open in open.iter().filter(|open| open.groups > 0) {
            counts[open.groups as usize - 1] += 1;
        }
        for g in (1..counts.len()).rev() {
            counts[g - 1] += counts[g];
        }
        // Rows of as many groups come after those of more. A counting sort keeps the order of rows.
        let mut starts = counts.clone();
        starts.push(0);
        rows.clear();
        rows.resize(open.len(), 0);
        for open in open {
            let at = &mut starts[open.groups as usize];
            rows[*at as usize] = open.row;
            *at += 1;
        }
    }

    /// Finds the centers within reach of the open rows.
    fn scan(&self, rows: &RowSketches<'_>, work: &mut Work) {
        let Work { scan, hits, open, rows: scanned, counts, .. } = work;
        for open in &*open {
            let r = open.row as usize;
            scan.set(r, &rows.sketches[r], open.radius * (1.0 + SKETCH_ROOM));
        }
        scan.within(&self.packed, rows.codes, (scanned, counts), hits);
    }

    /// Lists the rows with several centers within reach.
    fn pick(&self, rows: &RowSketches<'_>, work: &mut Work) {
        let Work { open, sorted, ends, picked, .. } = work;
        picked.clear();
        for open in &*open {
            let hits = hits_of(sorted, ends, open.row as usize);
            let is_rival = |&(bound, j): &(f32, u32)| j != open.label && bound <= open.radius;
            if hits.iter().any(is_rival) || self.is_near(&rows.near[open.row as usize], open.radius) {
                picked.push(open.row);
            }
        }
    }

    /// Measures what is left, and renews the bounds of the open rows.
    fn decide(
        &self,
        values: MatRef<'_, T>,
        labels: &[u32],
        rows: &mut RowSketches<'_>,
        packed: &PackedCenters<T>,
        work: &mut Work,
    ) {
        let Work { open, sorted, ends, rivals, measured, changes, distances, .. } = work;
        let factor = self.basis.factor();
        for open in open.iter_mut() {
            let r = open.row as usize;
            let mut least = (open.radius * (1.0 + SKETCH_ROOM)).min(Scan::FARTHEST) * DOWN;
            if let Some(&moved) = self.group_moves.get(open.groups as usize) {
                least = least.min((rows.least[r] - moved) * DOWN);
            }
            self.sort_hits(open, hits_of(sorted, ends, r), &rows.near[r], rivals);
            measured.clear();
            if rivals.first().is_some_and(|rival| rival.0 <= open.radius) {
                if open.sq_dist.is_nan() {
                    open.sq_dist = self.sq_dist(values, open.row, open.label);
                    self.measured(open);
                    *distances += 1;
                }
                measured.push((open.sq_dist, open.label));
                let mut best = (open.sq_dist, open.label);
                for (bound, j) in &mut *rivals {
                    if *bound > open.radius {
                        break;
                    }
                    let sq_dist = self.sq_dist(values, open.row, *j);
                    *distances += 1;
                    measured.push((sq_dist, *j));
                    *bound = lower_of(sq_dist, factor);
                    // NaN is never smaller.
                    if sq_dist < best.0 || sq_dist == best.0 && *j < best.1 {
                        best = (sq_dist, *j);
                        open.radius = radius_of(upper_of(sq_dist, factor));
                    }
                }
                if !is_exact::<T>(best.0) {
                    let list: Vec<u32> = measured.iter().map(|&(_, j)| j).collect();
                    best.1 = packed.nearest_of(Rows::Dense(values), r, &list);
                }
                if best.1 != open.label {
                    rivals.push((lower_of(open.sq_dist, factor), open.label));
                }
                (open.label, open.upper) = (best.1, upper_of(best.0, factor));
            }
            rows.upper[r] = open.upper;
            let others = rivals.iter().copied().filter(|&(_, j)| j != open.label);
            (rows.near[r], rows.least[r]) = self.keep(others, least);
            if labels[r] != open.label {
                changes.push((open.row, open.label));
            }
        }
    }

    /// Lists the centers that a scan found, and the near centers whose group it did not scan, by rising bound.
    fn sort_hits(&self, open: &Open, hits: &[(f32, u32)], near: &Near, rivals: &mut Vec<(f32, u32)>) {
        rivals.clear();
        for &(bound, j) in hits.iter().filter(|(_, j)| *j != open.label) {
            let known = (0..NEAR).find(|&s| near.centers[s] == j);
            rivals.push((known.map_or(bound, |s| bound.max(self.bound_of(near.bounds[s], j))), j));
        }
        for (&j, &bound) in near.centers.iter().zip(&near.bounds).filter(|(j, _)| **j != u32::MAX) {
            if self.packed.group_of(j) >= open.groups as usize {
                rivals.push((self.bound_of(bound, j), j));
            }
        }
        if rivals.len() > 1 {
            rivals.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        }
    }

    /// The smallest of these bounds with their centers, and the smallest of `least` and the other bounds.
    fn keep(&self, bounds: impl Iterator<Item = (f32, u32)>, mut least: f32) -> (Near, f32) {
        let mut nearest = [(f32::INFINITY, u32::MAX); NEAR];
        for (bound, j) in bounds {
            let at = nearest.partition_point(|&(other, _)| other <= bound);
            let mut out = (bound, j);
            if at < NEAR {
                nearest[at..].rotate_right(1);
                std::mem::swap(&mut nearest[at], &mut out);
            }
            least = least.min(out.0);
        }
        let mut near = Near::NONE;
        for (s, &(bound, j)) in nearest.iter().enumerate().filter(|(_, (_, j))| *j != u32::MAX) {
            near.centers[s] = j;
            near.bounds[s] = ((f64::from(bound) + self.paths[j as usize]) as f32).next_down();
        }
        (near, least)
    }

    /// Whether a near center may be within the radius.
    fn is_near(&self, near: &Near, radius: f32) -> bool {
        near.centers.iter().zip(&near.bounds).any(|(&j, &b)| j != u32::MAX && self.bound_of(b, j) <= radius)
    }

    /// A lower bound of the distance to a near center now.
    fn bound_of(&self, stored: f32, j: u32) -> f32 {
        (f64::from(stored) - self.paths[j as usize]) as f32 * DOWN
    }

    fn sq_dist(&self, values: MatRef<'_, T>, row: u32, center: u32) -> f64 {
        sq_dist(values.row(row as usize), self.centers.row(center as usize))
    }

    /// Takes over the distance of an open row.
    fn measured(&self, open: &mut Open) {
        open.upper = upper_of(open.sq_dist, self.basis.factor());
        open.radius = radius_of(open.upper);
    }
}

/// The rows of a chunk: all of them, or none yet.
pub(in crate::kmeans) enum Reading<'c, 'u, T: Compute> {
    All(Chunk<'c, T>),
    None(&'c mut Unread<'u, T>),
}

impl<T: Compute> Reading<'_, '_, T> {
    /// The chunk, of which only the rows `picked` may be looked at.
    fn of(&mut self, picked: &[u32]) -> Result<MatRef<'_, T>> {
        match self {
            Self::All(chunk) => Ok(dense(chunk)),
            Self::None(unread) => Ok(dense(&unread.read_of(picked)?)),
        }
    }
}

/// The rows of a chunk, which are dense.
fn dense<'c, T: Compute>(chunk: &Chunk<'c, T>) -> MatRef<'c, T> {
    match chunk.rows {
        Rows::Dense(rows) => rows,
        Rows::Sparse(_) => unreachable!("sparse rows have no sketches"),
    }
}

/// Sorts the hits by row.
fn sort_by_row(n: usize, work: &mut Work) {
    let Work { hits, sorted, ends, .. } = work;
    ends.clear();
    ends.resize(n + 1, 0);
    for hit in &*hits {
        ends[hit.row as usize + 1] += 1;
    }
    for r in 0..n {
        ends[r + 1] += ends[r];
    }
    sorted.clear();
    sorted.resize(hits.len(), (0.0, 0));
    // Afterwards `ends[r]` is where the hits of row `r` end.
    for hit in &*hits {
        let at = &mut ends[hit.row as usize];
        sorted[*at as usize] = (hit.bound, hit.center);
        *at += 1;
    }
}

/// The hits of a row.
fn hits_of<'s>(sorted: &'s [(f32, u32)], ends: &[u32], r: usize) -> &'s [(f32, u32)] {
    let start = if r == 0 { 0 } else { ends[r - 1] };
    &sorted[start as usize..ends[r] as usize]
}

fn codes_of<'r>(rows: &'r RowSketches<'_>, r: usize) -> &'r [u8] {
    &rows.codes[r * rows.width..][..rows.width]
}
