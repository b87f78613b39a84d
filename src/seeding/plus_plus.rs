//! This module knows k-means++: every new center is a row drawn with odds proportional to its weight times its squared distance to the
//! centers so far.
//!
//! A row keeps its squared distance `D2` and the center `a` that it is to. A candidate `c` can only be nearer if
//! `|c - a|^2 < 4 D2` (triangle inequality), so most rows are soon passed over without being read; what is left is measured by difference
//! in `f64`. Sums run in tile order: the draws do not depend on the number of threads.

use std::collections::HashSet;

use super::{Seeds, finite_or_first_bad, known};
use crate::data::{DataSource, copy, take, weights_of};
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters, Point, Scratch, distances};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::Rng;
use crate::rows::{RowBuf, Rows};
use crate::solver::sweep::{Chunk, sweep};
use crate::tuning::{SEEDING_PAIR_COST, SEEDING_TILE_ROWS};

/// How far a row is from the centers so far, and from which: `(D2, center)`.
type Near = (f64, u32);

/// `k` centers by k-means++; `greedy` takes the best of `2 + ln k` candidates each time (the rule of scikit-learn).
///
/// Costs at most `n k d (1 + candidates)` operations, in `k` to `2 k` passes over 16 bytes a row and over the rows that a candidate can
/// reach. When fewer than `k` rows differ, the rest are rows chosen uniformly.
///
/// # Errors
/// When there are fewer rows than `k`, a value is not finite, or the source can be read only once.
pub fn plus_plus<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    greedy: bool,
    rng: &mut Rng,
    cx: &Executor,
) -> Result<Seeds<T>> {
    let n = known(data, k)?;
    let weights = weights_of(data)?;
    let trials = if greedy { 2 + (k as f64).ln() as usize } else { 1 };
    let mut rows = super::random::draw(n, weights.as_deref(), 1, rng);
    let mut state = State {
        near: vec![(f64::INFINITY, 0); n as usize],
        tiles: vec![0.0; (n as usize).div_ceil(SEEDING_TILE_ROWS)],
        centers: Vec::new(),
        stored: RowBuf::new(data.dim()),
        dim: data.dim(),
    };
    state.take_in(data, &rows)?;
    state.admit(data, cx)?;
    while rows.len() < k {
        let total = state.tiles.iter().sum::<f64>();
        if total <= 0.0 {
            // Every row coincides with a center: any unused rows will do.
            let mut used: HashSet<u64> = rows.iter().copied().collect();
            let first = rows.len();
            while rows.len() < k {
                let row = rng.below(n);
                if used.insert(row) {
                    rows.push(row);
                }
            }
            state.take_in(data, &rows[first..])?;
            break;
        }
        let mut drawn: Vec<u64> =
            (0..trials).map(|_| state.draw(rng.unit() * total, weights.as_deref())).collect();
        drawn.sort_unstable();
        drawn.dedup();
        let next = if drawn.len() == 1 { drawn[0] } else { state.best_of(data, cx, &drawn)? };
        rows.push(next);
        state.take_in(data, &[next])?;
        state.admit(data, cx)?;
    }
    let method = if greedy { "k-means++" } else { "plain-k-means++" };
    Ok(Seeds { centers: state.centers, rows, method: method.into() })
}

/// What one worker measures candidates with.
type Buffers<T> = (Scratch<T>, Vec<f64>);

struct State<T> {
    near: Vec<Near>,
    /// Sum of weight times `D2` by tile.
    tiles: Vec<f64>,
    centers: Vec<T>,
    /// The same without their zeros, where rows are sparse.
    stored: RowBuf<T>,
    dim: usize,
}

impl<T: Compute> State<T> {
    /// Makes rows centers.
    fn take_in(&mut self, data: &dyn DataSource<T>, rows: &[u64]) -> Result<()> {
        self.centers.extend(take(data, rows)?);
        if data.most_values().is_some() {
            self.stored.extend(copy(data, rows)?.rows());
        }
        Ok(())
    }

    /// Squared distances from `to` to the centers so far.
    fn to_centers(&self, to: &Point<'_, T>) -> Vec<f64> {
        let sparse = self.stored.as_sparse().map(Rows::from);
        let centers = sparse.unwrap_or_else(|| MatRef::new(&self.centers, self.dim).into());
        (0..centers.rows()).map(|i| to.sq_dist(centers, i)).collect()
    }

    /// Takes the last of `centers` into every row's nearest distance.
    fn admit(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let last = self.centers.len() / self.dim - 1;
        let new = &self.centers[last * self.dim..];
        finite_or_first_bad(new, data, cx)?;
        let new = Point::new(new);
        let between = self.to_centers(&new);
        let mut total = Tiles::default();
        let absorb = |chunk: Chunk<'_, T>, near: &mut [Near], tiles: &mut Tiles, (): &mut ()| {
            let mut sum = 0.0;
            for (i, near) in near.iter_mut().enumerate() {
                if between[near.1 as usize] < 4.0 * near.0 {
                    let sq_dist = new.sq_dist(chunk.rows, i);
                    if sq_dist < near.0 {
                        *near = (sq_dist, last as u32);
                    } else if !sq_dist.is_finite() {
                        return Err(chunk.not_finite());
                    }
                }
                sum += chunk.weights.map_or(1.0, |w| w[i]) * near.0;
            }
            tiles.add(sum, near.len());
            Ok(())
        };
        let make = (Tiles::default, || ());
        sweep(data, cx, SEEDING_TILE_ROWS, &mut self.near[..], &mut total, make, absorb, Tiles::merge)?;
        self.tiles = total.sums;
        Ok(())
    }

    /// The row at which the running sum of weight times `D2` passes `target`; never one with odds 0.
    fn draw(&self, mut target: f64, weights: Option<&[f64]>) -> u64 {
        let mut tile = 0;
        while tile + 1 < self.tiles.len() && target >= self.tiles[tile] {
            target -= self.tiles[tile];
            tile += 1;
        }
        let start = tile * SEEDING_TILE_ROWS;
        let end = self.near.len().min(start + SEEDING_TILE_ROWS);
        let odds = |i: usize| weights.map_or(1.0, |w| w[i]) * self.near[i].0;
        for i in start..end {
            let odds = odds(i);
            if odds > 0.0 && target < odds {
                return i as u64;
            }
            target -= odds;
        }
        // Rounding carried the target past the end: the last row with odds, which exists because the total is positive.
        (0..end).rev().chain((end..self.near.len()).rev()).find(|&i| odds(i) > 0.0).unwrap_or(start) as u64
    }

    /// The candidate that lowers the sum most; the earliest among equals.
    fn best_of(&self, data: &dyn DataSource<T>, cx: &Executor, candidates: &[u64]) -> Result<u64> {
        let values = take(data, candidates)?;
        let candidate = MatRef::new(&values, self.dim);
        // Center by center, what each candidate is away from it.
        let points: Vec<Point<'_, T>> = candidate.iter().map(Point::new).collect();
        let between: Vec<Vec<f64>> = points.iter().map(|point| self.to_centers(point)).collect();
        let between: Vec<f64> =
            (0..between[0].len()).flat_map(|j| between.iter().map(move |b| b[j])).collect();
        let m = candidates.len();
        let packed = PackedCenters::for_rows(candidate, data.most_values().is_some());
        let mut gains = vec![0.0; m];
        let absorb =
            |chunk: Chunk<'_, T>, near: &[Near], gains: &mut Vec<f64>, (scratch, dists): &mut Buffers<T>| {
                let reach = |&(sq_dist, center): &Near| {
                    between[center as usize * m..][..m].iter().map(move |b| *b < 4.0 * sq_dist)
                };
                let pairs: usize = near.iter().map(|near| reach(near).filter(|within| *within).count()).sum();
                // The kernel measures all pairs at the price of a few by difference. Its rounding only weighs candidates against each other.
                let all = pairs * SEEDING_PAIR_COST > near.len() * m;
                if all {
                    dists.resize(near.len() * m, 0.0);
                    distances(chunk.rows, &packed, dists, scratch);
                }
                for (i, near) in near.iter().enumerate() {
                    let weight = chunk.weights.map_or(1.0, |w| w[i]);
                    for (c, within) in reach(near).enumerate() {
                        if within {
                            let sq_dist =
                                if all { dists[i * m + c] } else { points[c].sq_dist(chunk.rows, i) };
                            gains[c] += weight * (near.0 - sq_dist).max(0.0);
                        }
                    }
                }
                Ok(())
            };
        let merge = |total: &mut Vec<f64>, part: &mut Vec<f64>| {
            total.iter_mut().zip(part).for_each(|(t, p)| *t += std::mem::take(p));
        };
        let make = (|| vec![0.0; m], Buffers::default);
        sweep(data, cx, SEEDING_TILE_ROWS, &self.near[..], &mut gains, make, absorb, merge)?;
        let best = (0..gains.len()).rev().max_by(|&a, &b| gains[a].total_cmp(&gains[b])).unwrap_or(0);
        Ok(candidates[best])
    }
}

/// Sums by tile, collected in tile order.
#[derive(Default)]
struct Tiles {
    sums: Vec<f64>,
    open: f64,
    rows: usize,
}

impl Tiles {
    fn add(&mut self, sum: f64, rows: usize) {
        self.open += sum;
        self.rows += rows;
    }

    /// A partial is one tile.
    fn merge(&mut self, part: &mut Self) {
        self.sums.push(std::mem::take(&mut part.open));
        part.rows = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dense, Weighted};
    use crate::kernel::sq_dist;
    use crate::rng::Purpose;

    fn seeds(x: &[f64], d: usize, k: usize, greedy: bool, threads: usize) -> Seeds<f64> {
        let cx = Executor::new(Some(threads)).unwrap();
        let rng = &mut Rng::keyed(11, Purpose::Seeding, 0);
        plus_plus(&Dense::new(x, d).unwrap(), k, greedy, rng, &cx).unwrap()
    }

    fn blobs(n: usize, d: usize) -> Vec<f64> {
        let mut rng = Rng::keyed(5, Purpose::Seeding, 1);
        (0..n * d).map(|i| rng.unit() + (i / d % 20 * 10) as f64).collect()
    }

    #[test]
    fn the_same_for_any_number_of_threads() {
        let x = blobs(9000, 3);
        for greedy in [false, true] {
            let one = seeds(&x, 3, 40, greedy, 1);
            assert!((2..5).all(|t| seeds(&x, 3, 40, greedy, t).rows == one.rows));
        }
    }

    #[test]
    fn distances_stay_true_under_pruning() {
        let x = blobs(5000, 4);
        let cx = Executor::new(Some(2)).unwrap();
        let data = Dense::new(&x, 4).unwrap();
        let mut state = State {
            near: vec![(f64::INFINITY, 0); 5000],
            tiles: Vec::new(),
            centers: Vec::new(),
            stored: RowBuf::new(4),
            dim: 4,
        };
        for row in [3usize, 77, 500, 501, 1234, 4000] {
            state.centers.extend(&x[row * 4..row * 4 + 4]);
            state.admit(&data, &cx).unwrap();
        }
        for (i, &(sq, a)) in state.near.iter().enumerate() {
            let row = &x[i * 4..i * 4 + 4];
            let all: Vec<f64> = state.centers.chunks(4).map(|c| sq_dist(row, c)).collect();
            let best = all.iter().copied().fold(f64::INFINITY, f64::min);
            assert_eq!((sq, all[a as usize]), (best, best));
        }
        assert_eq!(state.tiles.len(), 5000usize.div_ceil(SEEDING_TILE_ROWS));
    }

    #[test]
    fn one_seed_in_each_far_blob() {
        let x = blobs(4000, 2);
        let mut blobs: Vec<u64> = seeds(&x, 2, 20, true, 2).rows.iter().map(|r| r % 20).collect();
        blobs.sort_unstable();
        blobs.dedup();
        assert_eq!(blobs.len(), 20);
    }

    #[test]
    fn fewer_distinct_rows_than_centers() {
        let x = [1.0, 1.0, 2.0, 2.0, 2.0];
        let mut rows = seeds(&x, 1, 5, true, 1).rows;
        rows.sort_unstable();
        assert_eq!(rows, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn rows_without_weight_are_not_drawn() {
        let x = blobs(300, 2);
        let weights: Vec<f64> = (0..300).map(|i| f64::from(u8::from(i % 3 == 0))).collect();
        let data = Weighted::new::<f64>(Dense::new(&x, 2).unwrap(), weights).unwrap();
        let cx = Executor::new(Some(1)).unwrap();
        for greedy in [false, true] {
            let rng = &mut Rng::keyed(2, Purpose::Seeding, 0);
            assert!(plus_plus(&data, 30, greedy, rng, &cx).unwrap().rows.iter().all(|r| r % 3 == 0));
        }
    }

    #[test]
    fn draws_follow_the_squared_distances() {
        // From a center at 0, the odds of 1, 2 and 3 are 1 : 4 : 9.
        let x = [0.0, 1.0, 2.0, 3.0];
        let data = Dense::new(&x, 1).unwrap();
        let cx = Executor::new(Some(1)).unwrap();
        let mut state = State {
            near: vec![(f64::INFINITY, 0); 4],
            tiles: Vec::new(),
            centers: vec![0.0],
            stored: RowBuf::new(1),
            dim: 1,
        };
        state.admit(&data, &cx).unwrap();
        let mut rng = Rng::keyed(4, Purpose::Seeding, 0);
        let mut seen = [0u32; 4];
        (0..14_000).for_each(|_| seen[state.draw(rng.unit() * 14.0, None) as usize] += 1);
        assert_eq!(seen[0], 0);
        assert!((1..4).all(|i| seen[i].abs_diff(1000 * (i * i) as u32) < 300), "{seen:?}");
    }
}
