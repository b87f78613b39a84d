//! k-means|| seeding: many rows per round, drawn by squared distance; k-means++ then chooses the centers
//! among them (Bahmani, Moseley, Vattani, Kumar and Vassilvitskii, 2012).

use super::near::Potential;
use super::plus_plus::plus_plus;
use super::seeds::{Seeds, known};
use crate::data::{DataSource, Weighted, weights_of};
use crate::error::Result;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::rows::RowBuf;

/// Number of rows visited between two checks of the interrupt flag.
pub(super) const DRAWN_ROWS: usize = 1 << 16;

/// Rounds beyond those requested, at most. If outliers hold nearly all of the potential, rounds draw few rows, or hardly
/// any but outliers; these rows lower the potential.
const MORE_ROUNDS: usize = 8;

/// A further round follows one that left at most this share of the potential. On data without outliers, the last of
/// three rounds of as many rows as centers leaves more.
const FALLING: f64 = 0.5;

/// The rounds of k-means||.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    /// Rows that a round draws for each center.
    pub(super) oversampling: f64,
    pub(super) rounds: usize,
}

/// Chooses `k` centers by k-means||.
///
/// Each of `rounds` draws about `oversampling * k` rows by weight times squared distance. Each drawn row gets
/// the total weight of the rows that are nearest to it, and greedy k-means++ chooses `k` of the drawn rows.
/// Up to eight more rounds follow while at most `k` rows are drawn, or the last round more than halved the sum of
/// squared distances. If there are still at most `k`, plain k-means++ over all rows chooses the rest, in a pass per
/// center.
///
/// Usually costs about `oversampling * rounds * k` distances per row, computed by the kernels, in `rounds + 1`
/// passes.
///
/// # Errors
/// If a parameter of [`Seeding::Parallel`](super::Seeding::Parallel) is out of range, there are fewer rows
/// than `k`, a value is not finite, or the source can be read only once.
pub(super) fn parallel<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    rounds: Rounds,
    rng: &mut Rng,
    cx: &Executor,
) -> Result<Seeds<T>> {
    let n = known(data, k)?;
    let weights = weights_of(data)?;
    let weights = weights.as_deref();
    // The choice among the drawn rows takes about as many visits as drawn rows times clusters, twice.
    let drawn = (rounds.oversampling * k as f64 * rounds.rounds as f64) as u64;
    let passes = n.saturating_mul(rounds.rounds as u64 + 1);
    let _phase = cx.phase("seeding", passes.saturating_add(drawn.min(n).saturating_mul(2 * k as u64)));
    let mut joined = candidates(data, (n, weights), k, rounds, rng, cx)?;
    if joined.rows.len() <= k {
        joined.grow(data, k, 1, weights, rng, cx)?;
        return Ok(joined.seeds("k-means||"));
    }
    let votes = joined.votes(weights, cx)?;
    let Potential { rows, centers, stored, dim, n_distances, .. } = joined;
    let candidates = if data.most_values().is_some() { stored } else { RowBuf::of_values(centers, dim) };
    let mut seeds = plus_plus(&Weighted::new::<T>(&candidates, votes)?, k, true, rng, cx)?;
    for row in &mut seeds.rows {
        *row = rows[*row as usize];
    }
    seeds.method = "k-means||".into();
    seeds.n_distances += n_distances;
    Ok(seeds)
}

/// The rows that the rounds of k-means|| draw, about `oversampling * k` each, and the distances of all `n` rows to
/// them. There may be more rounds than `rounds`, as in [`parallel`].
///
/// # Errors
/// As [`parallel`].
pub(super) fn candidates<T: Compute>(
    data: &dyn DataSource<T>,
    (n, weights): (u64, Option<&[f64]>),
    k: usize,
    Rounds { oversampling, rounds }: Rounds,
    rng: &mut Rng,
    cx: &Executor,
) -> Result<Potential<T>> {
    let first = super::random::draw(n, weights, 1, rng);
    let key = rng.bits();
    let mut joined = Potential::new(data, n)?;
    joined.take_in(data, &first)?;
    joined.admit(data, cx)?;
    let mut last = f64::INFINITY;
    for round in 0..rounds.saturating_add(MORE_ROUNDS) {
        let total = joined.total(weights.is_some())?;
        let is_enough = round >= rounds && joined.rows.len() > k && total > FALLING * last;
        if total <= 0.0 || is_enough {
            break;
        }
        last = total;
        let draws = &mut Rng::keyed(key, Purpose::Oversampling, round as u64);
        let new = joined.sample(oversampling * k as f64, total, weights, draws, cx)?;
        let before = joined.rows.len();
        joined.take_in(data, &new)?;
        joined.admit_from(before, data, cx)?;
    }
    Ok(joined)
}

impl<T: Compute> Potential<T> {
    /// The weight of the rows nearest to each center.
    pub(super) fn votes(&self, weights: Option<&[f64]>, cx: &Executor) -> Result<Vec<f64>> {
        let mut votes = vec![0.0; self.rows.len()];
        for (i, &(_, nearest)) in self.near.iter().enumerate() {
            if i.is_multiple_of(DRAWN_ROWS) {
                cx.check()?;
            }
            votes[nearest as usize] += weights.map_or(1.0, |w| w[i]);
        }
        Ok(votes)
    }

    /// Draws about `wanted` rows, with odds by their share of `total`, the weighted sum of squared distances.
    fn sample(
        &self,
        wanted: f64,
        total: f64,
        weights: Option<&[f64]>,
        rng: &mut Rng,
        cx: &Executor,
    ) -> Result<Vec<u64>> {
        let mut rows = Vec::new();
        for (part, near) in self.near.chunks(DRAWN_ROWS).enumerate() {
            cx.check()?;
            for (i, &(sq_dist, _)) in near.iter().enumerate() {
                let row = part * DRAWN_ROWS + i;
                let share = weights.map_or(1.0, |w| w[row]) * sq_dist / total;
                if share > 0.0 && rng.unit() < share * wanted {
                    rows.push(row as u64);
                }
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::BRIEF_ROUNDS;
    use super::*;
    use crate::data::Chunks;

    #[test]
    fn rounds_go_on_while_outliers_hold_the_potential() {
        // Thirty tight groups in ten tiers, each of which holds nearly all of the potential until it has centers.
        let mut draws = Rng::keyed(5, Purpose::Seeding, 1);
        let mut values = Vec::new();
        for _ in 0..20_000 {
            let (tier, group) = ((10.0 * draws.unit()) as i32, 1.0 + (3.0 * draws.unit()).floor());
            values.push([100f64.powi(tier) * group * (1.0 + 1e-4 * draws.unit())]);
        }
        let (k, cx) = (40, Executor::new(Some(2)).unwrap());
        let energy = |seeds: &Seeds<f64>| -> f64 {
            let nearest =
                |x: f64| seeds.centers.iter().map(|c| (x - c) * (x - c)).fold(f64::INFINITY, f64::min);
            values.iter().map(|&[x]| nearest(x)).sum()
        };
        for seed in 0..5 {
            let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
            let rounds = parallel(&values, k, BRIEF_ROUNDS, &mut rng, &cx).unwrap();
            let best = plus_plus(&values, k, true, &mut rng, &cx).unwrap();
            assert!(energy(&rounds) < 1.3 * energy(&best), "{} {}", energy(&rounds), energy(&best));
        }
    }

    #[test]
    fn outliers_that_hold_the_potential_cost_few_passes() {
        // Two tiers of outliers: the first holds nearly all of the potential, then the second, then the other rows.
        let values: Vec<f64> = (0..20_000)
            .map(|i| match i % 2000 {
                7 => 1e12 * (1 + i / 2000) as f64,
                8 => 1e6 * (1 + i / 2000) as f64,
                _ => (i % 997) as f64,
            })
            .collect();
        let (k, cx) = (200, Executor::new(Some(2)).unwrap());
        let passes = AtomicU64::new(0);
        let source = Chunks::replay(1, || {
            passes.fetch_add(1, Ordering::Relaxed);
            values.chunks(1000).map(|chunk| Ok(chunk.to_vec().into()))
        });
        let rng = &mut Rng::keyed(1, crate::rng::Purpose::Seeding, 0);
        let seeds = parallel::<f64>(&source, k, BRIEF_ROUNDS, rng, &cx).unwrap();
        let mut rows = seeds.rows.clone();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), k);
        assert_eq!(rows.iter().filter(|&&row| matches!(row % 2000, 7 | 8)).count(), 20);
        // At most two passes per round, one of which reads the drawn rows, and a few to begin.
        let passes = passes.load(Ordering::Relaxed);
        assert!(passes <= 2 * (BRIEF_ROUNDS.rounds + MORE_ROUNDS) as u64 + 6, "{passes}");
    }
}
