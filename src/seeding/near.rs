//! Distances of all rows to the nearest center so far, and draws of rows by squared distance.
//!
//! Each row keeps its squared distance `D2` and its nearest center `a`. By the triangle inequality, a
//! candidate `c` can be nearer only if `|c - a|^2 < 4 D2`. Most rows are skipped by this test, or by their sketches
//! ([`sketched`](super::sketched)), without being read. The other rows are measured by difference, in `f64`. Sums run
//! in tile order, so the draws do not depend on the number of threads.

use std::collections::HashSet;

use super::seeds::{Seeds, finite_or_first_bad};
use super::sketched::Sketched;
use super::tile_sums::{Measured, Near, TileSums};
use crate::data::{DataSource, copy, take, too_heavy};
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters, Point, Points, Scratch, nearest, sq_dists};
use crate::matrix::{MatRef, make_room};
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::rng::Rng;
use crate::rows::{RowBuf, Rows};
use crate::tuning::seeding_tile_rows;

/// Centers from which on k-means++ compares candidates by sketches.
const SEEDING_PLAIN: usize = 16;

/// Number of centers packed together when many are added at once.
const ADMITTED: usize = 1 << 15;

/// The centers so far, and the distances of all rows to them.
pub(super) struct Potential<T> {
    pub(super) near: Vec<Near>,
    /// Sum of weight times `D2` per tile.
    pub(super) tiles: Vec<f64>,
    /// Rows per tile.
    pub(super) tile_rows: usize,
    /// The row numbers of the centers.
    pub(super) rows: Vec<u64>,
    pub(super) centers: Vec<T>,
    /// The centers in sparse form, if rows are sparse.
    pub(super) stored: RowBuf<T>,
    pub(super) dim: usize,
    pub(super) n_distances: u64,
    /// Sketches of the rows, with which [`Potential::grow`] compares candidates, and whether it makes them.
    pub(super) sketched: Option<Sketched>,
    pub(super) with_sketches: bool,
}

/// The buffers of a worker that finds the nearest of many centers.
type NearestBuffers<T> = (Vec<u32>, Vec<f64>, Scratch<T>);

impl<T: Compute> Potential<T> {
    /// A state without centers, for `n` rows.
    pub(super) fn new(data: &dyn DataSource<T>, n: u64) -> Result<Self> {
        let mut near = Vec::new();
        make_room(&mut near, "distances of seeding", n, 1)?;
        near.resize(n as usize, (f64::INFINITY, 0));
        Ok(Self {
            near,
            tiles: Vec::new(),
            tile_rows: seeding_tile_rows(n as usize),
            rows: Vec::new(),
            centers: Vec::new(),
            stored: RowBuf::new(data.dim()),
            dim: data.dim(),
            n_distances: 0,
            sketched: None,
            with_sketches: false,
        })
    }

    /// Makes rows centers.
    pub(super) fn take_in(&mut self, data: &dyn DataSource<T>, rows: &[u64]) -> Result<()> {
        self.rows.extend_from_slice(rows);
        self.centers.extend(take(data, rows)?);
        if data.most_values().is_some() {
            self.stored.extend(copy(data, rows)?.rows());
        }
        Ok(())
    }

    /// Squared distances from the centers so far to some points, center by center.
    pub(super) fn to_centers(&self, points: &[Point<'_, T>], cx: &Executor) -> Vec<f64> {
        let sparse = self.stored.as_sparse().map(Rows::from);
        let centers = sparse.unwrap_or_else(|| MatRef::new(&self.centers, self.dim).into());
        let m = points.len();
        let mut sq_dists = vec![0.0; centers.rows() * m];
        cx.fill(&mut sq_dists, self.dim, |at| points[at % m].sq_dist(centers, at / m));
        sq_dists
    }

    /// Updates every row's nearest distance with the last of `centers`.
    pub(super) fn admit(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let last = self.centers.len() / self.dim - 1;
        let new = &self.centers[last * self.dim..];
        finite_or_first_bad(new, data, cx)?;
        let new = Points::new(MatRef::new(new, self.dim));
        let between = self.to_centers(new.each(), cx);
        let mut total = TileSums::default();
        let absorb = |chunk: Chunk<'_, T>, near: &mut [Near], tiles: &mut TileSums, work: &mut Measured| {
            work.pick(near, &between);
            work.needed.resize(work.picked.len(), 1);
            new.sq_dists(chunk.rows, (&work.picked, &work.needed), &mut work.sq_dists);
            for (&i, &sq_dist) in work.picked.iter().zip(&work.sq_dists) {
                let near = &mut near[i as usize];
                if sq_dist < near.0 {
                    *near = (sq_dist, last as u32);
                } else if !sq_dist.is_finite() {
                    return Err(chunk.not_finite());
                }
            }
            tiles.measured += work.picked.len() as u64;
            let weighted = |(i, near): (usize, &Near)| chunk.weights.map_or(1.0, |w| w[i]) * near.0;
            tiles.open += near.iter().enumerate().map(weighted).sum::<f64>();
            Ok(())
        };
        let make = (TileSums::default, Measured::default);
        sweep(data, cx, self.tile_rows, &mut self.near[..], &mut total, make, absorb, TileSums::merge)?;
        self.tiles = total.sums;
        self.n_distances += between.len() as u64 + total.measured;
        Ok(())
    }

    /// Like [`Potential::admit`] for all `centers` from index `first` on, using the kernels.
    pub(super) fn admit_from(&mut self, first: usize, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let (dim, sparse) = (self.dim, data.most_values().is_some());
        finite_or_first_bad(&self.centers[first * dim..], data, cx)?;
        for (i, new) in self.centers[first * dim..].chunks(ADMITTED * dim).enumerate() {
            let first = (first + i * ADMITTED) as u32;
            let packed = PackedCenters::on(MatRef::new(new, dim), sparse, cx);
            let mut total = TileSums::default();
            let absorb = |chunk: Chunk<'_, T>,
                          near: &mut [Near],
                          tiles: &mut TileSums,
                          (labels, dists, scratch): &mut NearestBuffers<T>| {
                labels.resize(near.len(), 0);
                dists.resize(near.len(), 0.0);
                nearest(chunk.rows, &packed, labels, scratch);
                sq_dists(chunk.rows, labels, &packed, dists);
                let mut sum = 0.0;
                for (i, near) in near.iter_mut().enumerate() {
                    if dists[i] < near.0 {
                        *near = (dists[i], first + labels[i]);
                    } else if !dists[i].is_finite() {
                        return Err(chunk.not_finite());
                    }
                    sum += chunk.weights.map_or(1.0, |w| w[i]) * near.0;
                }
                tiles.open += sum;
                tiles.measured += (near.len() * packed.n_centers()) as u64;
                Ok(())
            };
            let make = (TileSums::default, NearestBuffers::default);
            sweep(data, cx, self.tile_rows, &mut self.near[..], &mut total, make, absorb, TileSums::merge)?;
            self.tiles = total.sums;
            self.n_distances += total.measured;
        }
        Ok(())
    }

    /// The sum of weight times `D2` over all rows, which are `weighted` or not.
    pub(super) fn total(&self, weighted: bool) -> Result<f64> {
        let total = self.tiles.iter().sum::<f64>();
        if total.is_finite() { Ok(total) } else { Err(too_heavy(weighted)) }
    }

    /// The row at which the running sum of weight times `D2` exceeds `target`. Never a row with odds 0.
    pub(super) fn draw(&self, mut target: f64, weights: Option<&[f64]>) -> u64 {
        let mut tile = 0;
        while tile + 1 < self.tiles.len() && target >= self.tiles[tile] {
            target -= self.tiles[tile];
            tile += 1;
        }
        let start = tile * self.tile_rows;
        let end = self.near.len().min(start + self.tile_rows);
        let odds = |i: usize| weights.map_or(1.0, |w| w[i]) * self.near[i].0;
        for i in start..end {
            let odds = odds(i);
            if odds > 0.0 && target < odds {
                return i as u64;
            }
            target -= odds;
        }
        // Rounding moved the target past the end: return the last row with nonzero odds, which exists because
        // the total is positive.
        (0..end).rev().chain((end..self.near.len()).rev()).find(|&i| odds(i) > 0.0).unwrap_or(start) as u64
    }

    /// Continues k-means++ until there are `k` centers, each the best of `trials` drawn rows. If fewer than
    /// `k` rows differ, the rest are chosen uniformly.
    pub(super) fn grow(
        &mut self,
        data: &dyn DataSource<T>,
        k: usize,
        trials: usize,
        weights: Option<&[f64]>,
        rng: &mut Rng,
        cx: &Executor,
    ) -> Result<()> {
        while self.rows.len() < k {
            let total = self.total(weights.is_some())?;
            if total <= 0.0 {
                let others = unused(&self.rows, self.near.len() as u64, k, rng);
                return self.take_in(data, &others);
            }
            let mut drawn: Vec<u64> = (0..trials).map(|_| self.draw(rng.unit() * total, weights)).collect();
            drawn.sort_unstable();
            drawn.dedup();
            // Before, candidates are nearer to many rows, and their distances would take much memory.
            if self.with_sketches && self.sketched.is_none() && self.rows.len() >= SEEDING_PLAIN {
                self.with_sketches = false;
                self.sketched = Sketched::new(&self.near, data, cx)?;
            }
            let next = match &mut self.sketched {
                Some(sketched) => {
                    let (best, measured) = sketched.best_of(&self.near, data, cx, &drawn)?;
                    self.n_distances += measured;
                    best
                }
                None if drawn.len() == 1 => 0,
                None => self.best_of(data, cx, &drawn)?,
            };
            self.take_in(data, &[drawn[next]])?;
            let last = (self.rows.len() - 1) as u32;
            match &mut self.sketched {
                Some(sketched) => {
                    sketched.admit((&mut self.near[..], &mut self.tiles), data, cx, (last, next))?;
                }
                None => self.admit(data, cx)?,
            }
        }
        Ok(())
    }

    /// The result of the seeding.
    pub(super) fn seeds(self, method: &str) -> Seeds<T> {
        let Self { centers, rows, n_distances, .. } = self;
        Seeds { centers, rows, method: method.into(), n_distances }
    }
}

/// Draws distinct unused rows until there are `k` in total, for the case that every row coincides with a
/// center.
pub(super) fn unused(rows: &[u64], n: u64, k: usize, rng: &mut Rng) -> Vec<u64> {
    let mut used: HashSet<u64> = rows.iter().copied().collect();
    let mut others = Vec::new();
    while rows.len() + others.len() < k {
        let row = rng.below(n);
        if used.insert(row) {
            others.push(row);
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::kernel::sq_dist;
    use crate::rng::Purpose;

    fn blobs(n: usize, d: usize) -> Vec<f64> {
        let mut rng = Rng::keyed(5, Purpose::Seeding, 1);
        (0..n * d).map(|i| rng.unit() + (i / d % 20 * 10) as f64).collect()
    }

    #[test]
    fn distances_stay_true_under_pruning() {
        let x = blobs(5000, 4);
        let cx = Executor::new(Some(2)).unwrap();
        let data = Dense::new(&x, 4).unwrap();
        let mut state = Potential::new(&data, 5000).unwrap();
        for row in [3usize, 77, 500, 501, 1234, 4000] {
            state.take_in(&data, &[row as u64]).unwrap();
            state.admit(&data, &cx).unwrap();
        }
        for (i, &(sq, a)) in state.near.iter().enumerate() {
            let row = &x[i * 4..i * 4 + 4];
            let all: Vec<f64> = state.centers.chunks(4).map(|c| sq_dist(row, c)).collect();
            let best = all.iter().copied().fold(f64::INFINITY, f64::min);
            assert_eq!((sq, all[a as usize]), (best, best));
        }
        let mut together = Potential::new(&data, 5000).unwrap();
        together.take_in(&data, &[3, 77, 500, 501, 1234, 4000]).unwrap();
        together.admit_from(0, &data, &cx).unwrap();
        let sq_dists = |state: &Potential<f64>| state.near.iter().map(|near| near.0).collect::<Vec<_>>();
        assert_eq!(sq_dists(&together), sq_dists(&state));
        assert_eq!(
            (together.total(false).unwrap(), together.n_distances),
            (state.total(false).unwrap(), 30_000)
        );
        assert!(state.n_distances < 30_000, "most are skipped");
        assert_eq!(state.tiles.len(), 5000usize.div_ceil(seeding_tile_rows(5000)));
    }

    #[test]
    fn draws_follow_the_squared_distances() {
        // From a center at 0, the odds of 1, 2 and 3 are 1 : 4 : 9.
        let x = [0.0, 1.0, 2.0, 3.0];
        let data = Dense::new(&x, 1).unwrap();
        let cx = Executor::new(Some(1)).unwrap();
        let mut state = Potential::new(&data, 4).unwrap();
        state.take_in(&data, &[0]).unwrap();
        state.admit(&data, &cx).unwrap();
        let mut rng = Rng::keyed(4, Purpose::Seeding, 0);
        let mut seen = [0u32; 4];
        (0..14_000).for_each(|_| seen[state.draw(rng.unit() * 14.0, None) as usize] += 1);
        assert_eq!(seen[0], 0);
        assert!((1..4).all(|i| seen[i].abs_diff(1000 * (i * i) as u32) < 300), "{seen:?}");
    }
}
