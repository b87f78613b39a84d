//! Random seeding: draws distinct rows.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashSet};

use super::seeds::{Seeds, known};
use crate::data::{DataSource, take, weights_of};
use crate::error::Result;
use crate::kernel::Compute;
use crate::rng::{Purpose, Rng};

/// Chooses `k` distinct rows, uniformly or by weight, in random order. Reads only these rows and the weights.
///
/// # Errors
/// If there are fewer rows than `k`, or the source can be read only once.
pub(super) fn random<T: Compute>(data: &dyn DataSource<T>, k: usize, rng: &mut Rng) -> Result<Seeds<T>> {
    let n = known(data, k)?;
    let rows = draw(n, weights_of(data)?.as_deref(), k, rng);
    Ok(Seeds { centers: take(data, &rows)?, rows, method: "random".into(), n_distances: 0 })
}

/// Draws `k` distinct indices below `n` in random order, by weight if there are weights. Rows of weight 0
/// come last.
pub(crate) fn draw(n: u64, weights: Option<&[f64]>, k: usize, rng: &mut Rng) -> Vec<u64> {
    let mut rows = match weights {
        Some(weights) => by_weight(weights, k, rng),
        None => uniform(n, k, rng),
    };
    for i in (1..rows.len()).rev() {
        rows.swap(i, rng.below(i as u64 + 1) as usize);
    }
    rows
}

/// Up to `most` of `n` rows, in ascending order; the same rows for the same seed and step.
pub(crate) fn sample_rows(n: u64, most: usize, seed: u64, step: u64) -> Vec<u64> {
    let rng = &mut Rng::keyed(seed, Purpose::Seeding, step);
    let mut rows = if (most as u64) < n { draw(n, None, most, rng) } else { (0..n).collect() };
    rows.sort_unstable();
    rows
}

/// Floyd's algorithm: every subset is equally likely, with memory for `k` rows.
fn uniform(n: u64, k: usize, rng: &mut Rng) -> Vec<u64> {
    let mut chosen = HashSet::with_capacity(k);
    let mut rows = Vec::with_capacity(k);
    for top in n - k as u64..n {
        let row = rng.below(top + 1);
        let row = if chosen.insert(row) { row } else { top };
        chosen.insert(row);
        rows.push(row);
    }
    rows
}

/// A key and its row. The top of the heap has the largest key.
#[derive(PartialEq)]
struct Keyed(f64, u64);

impl Eq for Keyed {}
impl PartialOrd for Keyed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Keyed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// Sampling without replacement by weight: the rows with the smallest exponential waiting times (Efraimidis
/// and Spirakis, 2006).
fn by_weight(weights: &[f64], k: usize, rng: &mut Rng) -> Vec<u64> {
    let mut nearest = BinaryHeap::with_capacity(k + 1);
    for (row, &weight) in weights.iter().enumerate() {
        let wait = -(1.0 - rng.unit()).ln() / weight;
        // A row of weight 0 has an infinite waiting time (also for 0 / 0).
        nearest.push(Keyed(if wait.is_nan() { f64::INFINITY } else { wait }, row as u64));
        if nearest.len() > k {
            nearest.pop();
        }
    }
    nearest.into_iter().map(|keyed| keyed.1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_as_likely_and_none_comes_twice() {
        let mut seen = [0; 10];
        let mut rng = Rng::keyed(1, Purpose::Seeding, 0);
        for _ in 0..20_000 {
            let rows = uniform(10, 3, &mut rng);
            assert!(rows[0] != rows[1] && rows[1] != rows[2] && rows[0] != rows[2]);
            for r in rows {
                seen[r as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&c| (5_700..6_300).contains(&c)), "{seen:?}");
    }

    #[test]
    fn weights_are_odds() {
        let mut seen = [0; 4];
        let mut rng = Rng::keyed(1, Purpose::Seeding, 0);
        for _ in 0..20_000 {
            seen[by_weight(&[1.0, 3.0, 0.0, 4.0], 1, &mut rng)[0] as usize] += 1;
        }
        assert_eq!(seen[2], 0);
        assert!((2_300..2_700).contains(&seen[0]) && (7_200..7_800).contains(&seen[1]), "{seen:?}");
        let mut all = by_weight(&[0.0, 0.0, 1.0], 3, &mut rng);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    }
}
