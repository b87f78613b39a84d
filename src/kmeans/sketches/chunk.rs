//! Labels a chunk of rows by their bounds and sketches.
//!
//! A row is *open* as long as its label may change. Each phase closes rows, or finds what the next one needs.
//!
//! ```text
//! test_bounds   all rows: move the bounds with the centers, open the rows whose bounds do not tell their label
//!   v
//! measure       read the open rows, compute the distance to the own center
//!   v
//! scan          close rows by this distance; for the others, list the centers that may be as near, by sketches
//!   v
//! decide        compute the distances to the listed centers, take the nearest, renew the bounds
//! ```
//!
//! With finer sketches, rows are read later: `estimate` bounds the distance to the own center in place of `measure`,
//! and after `scan`, `close` closes the rows whose finer sketch excludes all listed centers. The others are then read
//! and measured.
//!
//! Without bounds, `guess` opens all rows with the center of the smallest estimate, and lists centers like `scan`.

use super::Widths;
use super::buffers::{Open, SketchBuffers};
use crate::centers::NO_LABEL;
use crate::error::Result;
use crate::kernel::sketched::{
    Basis, Bounds, Compared, Fine, FinePoint, FineSketch, PackedSketches, Paths, Sketch, lower_of, upper_of,
};
use crate::kernel::{Compute, PackedCenters, is_exact, sq_dist};
use crate::matrix::MatRef;
use crate::pass::{Chunk, PerRow, TILE_ROWS, Unread};
use crate::rows::Rows;

/// Rows of a chunk of a sweep by sketches, for `k` centers: so many that their lists of centers are worth sorting, and
/// so few that their values stay in the second-level cache, and that the lists are small if nothing is excluded.
fn sketch_chunk_rows(dim: usize, k: usize) -> usize {
    ((1 << 18) / dim.max(1)).min(SKETCH_PAIRS / k.max(1)).clamp(64, 2048)
}

/// Most pairs of a row and a center in a chunk of a sweep by sketches.
const SKETCH_PAIRS: usize = 1 << 20;

/// Values of a tile of which single rows are read, at most, because each thread has room for all of them.
const FINE_VALUES: usize = 1 << 22;

/// What all rows of a sweep share.
pub(in crate::kmeans) struct Rules<'a, T> {
    pub(super) basis: &'a Basis,
    pub(super) centers: MatRef<'a, T>,
    pub(super) packed: PackedSketches,
    /// How far each center moved since the last sweep, and the largest of these.
    pub(super) moves: &'a [f32],
    pub(super) largest_move: f32,
    pub(super) paths: &'a Paths,
    /// Where reading a row costs much.
    pub(super) fine: Option<&'a Fine>,
    pub(super) are_made: bool,
    pub(super) are_known: bool,
}

/// Sketches and bounds of the rows of a chunk.
pub(in crate::kmeans) struct RowSketches<'a> {
    pub(in crate::kmeans) codes: &'a mut [u8],
    pub(in crate::kmeans) sketches: &'a mut [Sketch],
    /// Finer sketches, if there are any.
    pub(in crate::kmeans) bits: &'a mut [u8],
    pub(in crate::kmeans) fine: &'a mut [FineSketch],
    pub(in crate::kmeans) upper: &'a mut [f32],
    /// The smallest of the bounds, after the last sweep.
    pub(in crate::kmeans) least: &'a mut [f32],
    pub(in crate::kmeans) bounds: &'a mut [f32],
    pub(in crate::kmeans) widths: Widths,
}

impl PerRow for RowSketches<'_> {
    fn split(self, n: usize) -> (Self, Self) {
        let Self { codes, sketches, bits, fine, upper, least, bounds, widths } = self;
        let (codes, sketches) = (codes.split_at_mut(n * widths.codes), sketches.split_at_mut(n));
        let (bits, fine) = (bits.split_at_mut(n * widths.bits), fine.split_at_mut(n.min(fine.len())));
        let (upper, least) = (upper.split_at_mut(n), least.split_at_mut(n));
        let bounds = bounds.split_at_mut(n * widths.bounds);
        (
            Self {
                codes: codes.0,
                sketches: sketches.0,
                bits: bits.0,
                fine: fine.0,
                upper: upper.0,
                least: least.0,
                bounds: bounds.0,
                widths,
            },
            Self {
                codes: codes.1,
                sketches: sketches.1,
                bits: bits.1,
                fine: fine.1,
                upper: upper.1,
                least: least.1,
                bounds: bounds.1,
                widths,
            },
        )
    }
    fn rows(&self) -> Option<usize> {
        Some(self.sketches.len())
    }
}

/// An upper bound of a distance after the center has moved.
fn farther(upper: f32, moved: f32) -> f32 {
    (upper + moved).next_up()
}

/// A lower bound of distances after centers have moved by at most `moved`.
fn nearer(lower: f32, moved: f32) -> f32 {
    (lower - moved).next_down()
}

impl<T: Compute> Rules<'_, T> {
    /// Whether all rows must be read: they have no sketches yet, or no bounds, so that any label may change.
    pub(in crate::kmeans) fn needs_all(&self) -> bool {
        !(self.are_made && self.are_known)
    }

    /// Rows of a chunk: more where single rows are read, so that many can be requested at a time.
    pub(in crate::kmeans) fn chunk_rows(&self, reads_all: bool) -> usize {
        let (dim, k) = (self.centers.cols(), self.centers.rows());
        let usual = sketch_chunk_rows(dim, k);
        if self.fine.is_some() && !reads_all {
            usual.max(TILE_ROWS.min(SKETCH_PAIRS / k).min(FINE_VALUES / dim))
        } else {
            usual
        }
    }

    /// Finds the new label of every row of a chunk. Notes the changes in `work`. Reads only rows whose bounds and
    /// sketches do not tell their label. In the chunk that it returns, no other rows may be looked at.
    pub(in crate::kmeans) fn label<'c>(
        &self,
        reading: Reading<'c, '_, T>,
        labels: &[u32],
        rows: &mut RowSketches<'_>,
        packed: &PackedCenters<T>,
        work: &mut SketchBuffers,
    ) -> Result<Chunk<'c, T>> {
        work.changes.clear();
        work.distances = 0;
        let chunk = if !self.are_known || labels.contains(&NO_LABEL) {
            let chunk = reading.all()?;
            if !self.are_made {
                self.sketch(dense(&chunk), rows, work);
            }
            self.guess(dense(&chunk), rows, work);
            chunk
        } else {
            self.test_bounds(labels, rows, work);
            if let (Some(fine), Reading::Unread(_)) = (self.fine, &reading) {
                Self::estimate(fine, rows, work);
                self.scan(rows, work);
                self.close(fine, rows, work);
                let chunk = reading.of(&work.picked)?;
                self.measure(dense(&chunk), work);
                chunk
            } else {
                let chunk = reading.of(&work.picked)?;
                self.measure(dense(&chunk), work);
                self.scan(rows, work);
                chunk
            }
        };
        self.decide(dense(&chunk), labels, rows, packed, work);
        Ok(chunk)
    }

    /// Makes the sketches of the rows.
    fn sketch(&self, values: MatRef<'_, T>, rows: &mut RowSketches<'_>, work: &mut SketchBuffers) {
        work.sketching.write(self.basis, values, rows.codes, rows.sketches);
        if let Some(fine) = self.fine {
            let coarse = (&*rows.codes, &*rows.sketches);
            fine.write(&mut work.fine_sketching, values, coarse, (&mut *rows.bits, &mut *rows.fine));
        }
    }

    /// Bounds the distances of the open rows to their centers by their finer sketches.
    fn estimate(fine: &Fine, rows: &RowSketches<'_>, work: &mut SketchBuffers) {
        for open in &mut work.open {
            rows.restore(fine, open.row, &mut work.point);
            let (lower, upper) = fine.sq_dist(&work.point, open.label);
            open.sq_dist = lower;
            let upper = upper_of(upper, 1.0);
            open.upper = open.upper.min(upper);
        }
    }

    /// Closes the open rows whose finer sketches tell their label, and lists the others.
    fn close(&self, fine: &Fine, rows: &mut RowSketches<'_>, work: &mut SketchBuffers) {
        let SketchBuffers { open, picked, listed, point, .. } = work;
        picked.clear();
        open.retain(|open| {
            let rivals = listed.of(open.row);
            let mut is_closed = true;
            if !rivals.is_empty() {
                rows.restore(fine, open.row, point);
                for (bound, j) in &mut *rivals {
                    let farther = fine.farther(point, open.label, *j);
                    // Not `farther <= 0.0`, because of NaN.
                    let is_farther = farther > 0.0;
                    is_closed &= is_farther || *bound > open.upper;
                    if is_farther {
                        *bound = bound.max(lower_of(open.sq_dist + farther, 1.0));
                    }
                }
            }
            if is_closed {
                self.renew(rows, open, rivals);
            } else {
                picked.push(open.row);
            }
            !is_closed
        });
    }

    /// Renews the bounds of a row, with lower bounds of some centers.
    fn renew(&self, rows: &mut RowSketches<'_>, open: &Open, rivals: &[(f32, u32)]) {
        let r = open.row as usize;
        let mut bounds = self.bounds(rows);
        for &(bound, j) in rivals.iter().filter(|(_, j)| *j != open.label) {
            bounds.lower(r, self.packed.group_of(j), bound);
        }
        (rows.least[r], rows.upper[r]) = (bounds.least(r), open.upper);
    }

    /// Opens all rows with the center of the smallest estimate, and lists the centers that may be as near.
    fn guess(&self, values: MatRef<'_, T>, rows: &mut RowSketches<'_>, work: &mut SketchBuffers) {
        let SketchBuffers { scan, listed, open, distances, .. } = work;
        open.clear();
        let radius_of = |row, label, _| {
            let sq_dist = self.sq_dist(values, row, label);
            *distances += 1;
            let upper = self.upper_of(sq_dist);
            open.push(Open { row, label, upper, sq_dist });
            upper
        };
        rows.bounds.fill(f32::INFINITY);
        let bounds = &mut Bounds { values: rows.bounds, paths: self.paths };
        let of_rows = (&*rows.codes, &*rows.sketches);
        let hits = scan.closest(&self.packed, of_rows, usize::MAX, radius_of, Some(bounds));
        listed.sort(rows.sketches.len(), hits);
    }

    /// Opens the rows whose bounds do not tell their label, and lists them.
    fn test_bounds(&self, labels: &[u32], rows: &mut RowSketches<'_>, work: &mut SketchBuffers) {
        let SketchBuffers { open, picked, .. } = work;
        open.clear();
        picked.clear();
        for (r, &label) in labels.iter().enumerate() {
            let upper = farther(rows.upper[r], self.moves[label as usize]);
            let mut least = nearer(rows.least[r], self.largest_move);
            if least <= upper {
                least = self.bounds(rows).least(r);
            }
            (rows.upper[r], rows.least[r]) = (upper, least);
            if least <= upper {
                picked.push(r as u32);
                open.push(Open { row: r as u32, label, upper, sq_dist: f64::NAN });
            }
        }
    }

    /// Measures the distances of the open rows to their centers.
    fn measure(&self, values: MatRef<'_, T>, work: &mut SketchBuffers) {
        for open in &mut work.open {
            open.sq_dist = self.sq_dist(values, open.row, open.label);
            open.upper = self.upper_of(open.sq_dist);
        }
        work.distances += work.open.len() as u64;
    }

    /// Closes the rows whose bounds tell their label, now that the distance to its center is known, and lists the
    /// centers that may be as near for the others.
    fn scan(&self, rows: &mut RowSketches<'_>, work: &mut SketchBuffers) {
        let SketchBuffers { scan, listed, open, lists, .. } = work;
        scan.resize(rows.sketches.len());
        lists.clear(self.paths.len(), rows.sketches.len());
        open.retain(|open| {
            let r = open.row as usize;
            rows.upper[r] = open.upper;
            if rows.least[r] > open.upper {
                return false;
            }
            let own = self.packed.place_of(open.label);
            scan.set(r, &rows.sketches[r], open.upper, Some(own));
            self.bounds(rows).list(r, open.upper, lists);
            true
        });
        let bounds = &mut Bounds { values: rows.bounds, paths: self.paths };
        let hits = scan.within(&self.packed, rows.codes, Compared::Listed(lists, bounds));
        listed.sort(rows.sketches.len(), hits);
    }

    /// The bounds of the rows of a chunk.
    fn bounds<'r>(&'r self, rows: &'r mut RowSketches<'_>) -> Bounds<'r> {
        Bounds { values: rows.bounds, paths: self.paths }
    }

    /// Measures the listed centers within reach, and renews the bounds of the open rows.
    fn decide(
        &self,
        values: MatRef<'_, T>,
        labels: &[u32],
        rows: &mut RowSketches<'_>,
        packed: &PackedCenters<T>,
        work: &mut SketchBuffers,
    ) {
        let SketchBuffers { open, listed, rivals, measured, changes, distances, .. } = work;
        let factor = self.basis.factor();
        for open in open.iter_mut() {
            let r = open.row as usize;
            rivals.clear();
            rivals.extend(listed.of(open.row).iter().filter(|(_, j)| *j != open.label));
            rivals.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            if rivals.first().is_some_and(|rival| rival.0 <= open.upper) {
                measured.clear();
                measured.push((open.sq_dist, open.label));
                let mut best = (open.sq_dist, open.label);
                for (bound, j) in &mut *rivals {
                    if *bound > open.upper {
                        break;
                    }
                    let sq_dist = self.sq_dist(values, open.row, *j);
                    *distances += 1;
                    measured.push((sq_dist, *j));
                    *bound = lower_of(sq_dist, factor);
                    // NaN is never smaller.
                    if sq_dist < best.0 || sq_dist == best.0 && *j < best.1 {
                        best = (sq_dist, *j);
                        open.upper = self.upper_of(sq_dist);
                    }
                }
                if !is_exact::<T>(best.0) {
                    let list: Vec<u32> = measured.iter().map(|&(_, j)| j).collect();
                    best.1 = packed.nearest_of(Rows::Dense(values), r, &list);
                }
                if best.1 != open.label {
                    rivals.push((lower_of(open.sq_dist, factor), open.label));
                }
                (open.label, open.upper) = (best.1, self.upper_of(best.0));
            }
            self.renew(rows, open, rivals);
            if labels[r] != open.label {
                changes.push((open.row, open.label));
            }
        }
    }

    fn sq_dist(&self, values: MatRef<'_, T>, row: u32, center: u32) -> f64 {
        sq_dist(values.row(row as usize), self.centers.row(center as usize))
    }

    fn upper_of(&self, sq_dist: f64) -> f32 {
        upper_of(sq_dist, self.basis.factor())
    }
}

/// The rows of a chunk: all of them, or none yet.
pub(in crate::kmeans) enum Reading<'c, 'u, T: Compute> {
    All(Chunk<'c, T>),
    Unread(&'c mut Unread<'u, T>),
}

impl<'c, T: Compute> Reading<'c, '_, T> {
    /// The chunk, of which only the rows `picked` may be looked at.
    fn of(self, picked: &[u32]) -> Result<Chunk<'c, T>> {
        match self {
            Self::All(chunk) => Ok(chunk),
            Self::Unread(unread) => unread.read_of(picked),
        }
    }

    /// The chunk.
    fn all(self) -> Result<Chunk<'c, T>> {
        match self {
            Self::All(chunk) => Ok(chunk),
            Self::Unread(unread) => unread.read(),
        }
    }
}

impl RowSketches<'_> {
    /// Restores the point that is stored of a row.
    fn restore(&self, fine: &Fine, row: u32, to: &mut FinePoint) {
        let r = row as usize;
        let codes = &self.codes[r * self.widths.codes..][..self.widths.codes];
        let bits = &self.bits[r * self.widths.bits..][..self.widths.bits];
        fine.read((codes, &self.sketches[r]), (bits, &self.fine[r]), to);
    }
}

/// The rows of a chunk, which are dense.
fn dense<'c, T: Compute>(chunk: &Chunk<'c, T>) -> MatRef<'c, T> {
    match chunk.rows {
        Rows::Dense(rows) => rows,
        Rows::Sparse(_) => unreachable!("sparse rows have no sketches"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Rng};

    /// Bounds that follow the moves of centers are rounded outward, sweep by sweep.
    #[test]
    fn bounds_that_move_are_rounded_outward() {
        let mut rng = Rng::keyed(2, Purpose::Seeding, 0);
        for _ in 0..10_000 {
            let (bound, moved) = (rng.unit() as f32, rng.unit() as f32);
            let (a, b) = (f64::from(bound), f64::from(moved));
            assert!(f64::from(farther(bound, moved)) >= a + b, "{a} {b}");
            assert!(f64::from(nearer(bound, moved)) <= a - b, "{a} {b}");
        }
    }
}
