//! k-means++ seeding: every new center is a row drawn with odds proportional to its weight times its squared
//! distance to the centers so far.

use super::near::Potential;
use super::seeds::{Seeds, known};
use super::sketched::sketches_pay;
use super::tile_sums::{Gains, Measured, Near, best_of_gains, may_be_nearer, merge_gains};
use crate::data::{DataSource, take, weights_of};
use crate::error::Result;
use crate::kernel::{Compute, Points};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::rng::Rng;

/// Chooses `k` centers by k-means++. `greedy` takes the best of `2 + ln k` candidates each time (the rule of
/// scikit-learn).
///
/// Costs at most `n k d (1 + candidates)` operations, in `k` to `2 k` passes over 16 bytes per row and over
/// the rows that a candidate can improve. If fewer than `k` rows differ, the rest are chosen uniformly.
///
/// # Errors
/// If there are fewer rows than `k`, a value is not finite, or the source can be read only once.
pub(super) fn plus_plus<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    greedy: bool,
    rng: &mut Rng,
    cx: &Executor,
) -> Result<Seeds<T>> {
    let n = known(data, k)?;
    let weights = weights_of(data)?;
    let trials = if greedy { 2 + (k as f64).ln() as usize } else { 1 };
    let with_sketches = sketches_pay(data, n as usize, k);
    // A pass admits each center, and one before that compares its candidates.
    let compares = trials > 1 || with_sketches;
    let _phase = cx.phase("seeding", n.saturating_mul(k as u64 + if compares { k as u64 - 1 } else { 0 }));
    let first = super::random::draw(n, weights.as_deref(), 1, rng);
    let mut state = Potential::new(data, n)?;
    state.take_in(data, &first)?;
    state.admit(data, cx)?;
    state.with_sketches = with_sketches;
    state.grow(data, k, trials, weights.as_deref(), rng, cx)?;
    Ok(state.seeds(if greedy { "k-means++" } else { "plain-k-means++" }))
}

impl<T: Compute> Potential<T> {
    /// Which of the candidates reduces the sum most; the earliest among equals.
    pub(super) fn best_of(
        &mut self,
        data: &dyn DataSource<T>,
        cx: &Executor,
        candidates: &[u64],
    ) -> Result<usize> {
        let values = take(data, candidates)?;
        let candidate = MatRef::new(&values, self.dim);
        let points = Points::new(candidate);
        let between = self.to_centers(points.each(), cx);
        let m = candidates.len();
        let nearest = |between: &[f64]| between.iter().copied().fold(f64::INFINITY, f64::min);
        let least = between.chunks(m).map(nearest).collect();
        let candidates = Candidates { points, between, least };
        let mut gains = (vec![0.0; m], 0);
        let absorb = |chunk: Chunk<'_, T>, near: &[Near], gains: &mut Gains, work: &mut Measured| {
            candidates.add_gains(&chunk, near, gains, work);
            Ok(())
        };
        let make = (|| (vec![0.0; m], 0), Measured::default);
        sweep(data, cx, self.tile_rows, &self.near[..], &mut gains, make, absorb, merge_gains)?;
        let (gains, measured) = gains;
        self.n_distances += measured + candidates.between.len() as u64;
        Ok(best_of_gains(&gains))
    }
}

/// Rows that may become a center.
struct Candidates<'a, T: Compute> {
    points: Points<'a, T>,
    /// The squared distance of each to each center, center by center, and the smallest for each center.
    between: Vec<f64>,
    least: Vec<f64>,
}

impl<T: Compute> Candidates<'_, T> {
    /// Adds the reduction of the sum by each candidate, over the rows of a tile.
    fn add_gains(
        &self,
        chunk: &Chunk<'_, T>,
        near: &[Near],
        (gains, measured): &mut Gains,
        work: &mut Measured,
    ) {
        let m = gains.len();
        work.pick(near, &self.least);
        let Measured { picked, needed, sq_dists } = work;
        needed.clear();
        needed.extend(picked.iter().map(|&i| {
            let (sq_dist, center) = near[i as usize];
            let between = &self.between[center as usize * m..][..m];
            let between = between.iter().enumerate();
            between.fold(0, |all, (p, &between)| all | u32::from(may_be_nearer(between, sq_dist)) << p)
        }));
        self.points.sq_dists(chunk.rows, (picked, needed), sq_dists);
        for ((&i, &needed), found) in picked.iter().zip(&*needed).zip(sq_dists.chunks_exact(m)) {
            let weight = chunk.weights.map_or(1.0, |w| w[i as usize]);
            *measured += u64::from(needed.count_ones());
            let mut left = needed;
            while left != 0 {
                let p = left.trailing_zeros() as usize;
                gains[p] += weight * (near[i as usize].0 - found[p]).max(0.0);
                left &= left - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dense, Weighted};
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

    /// The candidate that leaves the smallest sum, and the number of pairs that pass the triangle inequality,
    /// by definition.
    fn by_definition(
        x: &[f64],
        d: usize,
        centers: &[u64],
        candidates: &[u64],
        weights: &[f64],
    ) -> (u64, u64) {
        let row = |i: u64| &x[i as usize * d..][..d];
        let sq = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        let n = (x.len() / d) as u64;
        let nearest = |i: u64| {
            let all = centers.iter().map(|&c| (sq(row(i), row(c)), c));
            all.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
        };
        let left = |c: u64| -> f64 {
            (0..n).map(|i| weights[i as usize] * nearest(i).0.min(sq(row(i), row(c)))).sum()
        };
        let within =
            |c: u64| (0..n).filter(|&i| sq(row(c), row(nearest(i).1)) < 4.0 * nearest(i).0).count() as u64;
        let best = *candidates.iter().min_by(|a, b| left(**a).total_cmp(&left(**b))).unwrap();
        (best, candidates.iter().map(|&c| within(c)).sum())
    }

    /// The choice of `best_of`, and the number of pairs that it measures.
    fn chosen<T: Compute>(data: &dyn DataSource<T>, centers: &[u64], candidates: &[u64]) -> (u64, u64) {
        let cx = Executor::new(Some(2)).unwrap();
        let mut state = Potential::new(data, data.rows().unwrap()).unwrap();
        for &center in centers {
            state.take_in(data, &[center]).unwrap();
            state.admit(data, &cx).unwrap();
        }
        let before = state.n_distances + (centers.len() * candidates.len()) as u64;
        let best = state.best_of(data, &cx, candidates).unwrap();
        (candidates[best], state.n_distances - before)
    }

    #[test]
    fn the_best_candidate_is_that_of_the_definition_at_any_scale() {
        let (n, d) = (600, 5);
        let plain = blobs(n, d);
        let weights: Vec<f64> = (0..n).map(|i| (i % 4) as f64).collect();
        let (centers, candidates) = ([0u64, 3, 58], [7u64, 90, 211, 402, 599]);
        for scale in [1.0, 1e-25, 1e15] {
            let x: Vec<f64> = plain.iter().map(|v| v * scale).collect();
            let narrow: Vec<f32> = x.iter().map(|&v| v as f32).collect();
            let rounded: Vec<f64> = narrow.iter().map(|&v| f64::from(v)).collect();
            let ones = vec![1.0; n];
            for weights in [&ones, &weights] {
                let wide = Weighted::new::<f64>(Dense::new(&x, d).unwrap(), &weights[..]).unwrap();
                let expected = by_definition(&x, d, &centers, &candidates, weights);
                assert_eq!(chosen::<f64>(&wide, &centers, &candidates), expected, "{scale}");
                let rows = Weighted::new::<f32>(Dense::new(&narrow, d).unwrap(), &weights[..]).unwrap();
                let expected = by_definition(&rounded, d, &centers, &candidates, weights);
                assert_eq!(chosen::<f32>(&rows, &centers, &candidates), expected, "{scale}");
            }
        }
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
}
