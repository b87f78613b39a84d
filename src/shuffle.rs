//! A random order of `0..n` without a table: any entry can be computed at once.
//!
//! A keyed one-to-one mapping of `0..2^bits` (rounds of additions, odd products and shifts), repeated until
//! the value is below `n` ("cycle walking", Black and Rogaway, 2002): fewer than two steps on average.

use crate::rng::{Purpose, Rng};

/// Rounds after which the order shows no structure of the index.
const ROUNDS: usize = 6;

/// A random order that depends only on the seed and `n`.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    n: u64,
    mask: u64,
    shift: u32,
    /// The summand and the odd factor of each round.
    rounds: [(u64, u64); ROUNDS],
}

impl Shuffle {
    pub(crate) fn new(n: u64, seed: u64) -> Self {
        let mut rng = Rng::keyed(seed, Purpose::Permutation, n);
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let rounds = [(); ROUNDS].map(|()| (rng.bits(), rng.bits() | 1));
        Self { n, mask, shift: bits.div_ceil(2).max(1), rounds }
    }

    /// The index at position `i` of the order.
    pub(crate) fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.n);
        let mut x = i;
        loop {
            for (add, factor) in self.rounds {
                x = x.wrapping_add(add).wrapping_mul(factor) & self.mask;
                // Low bits depend only on lower bits until high bits are mixed in.
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_comes_once() {
        for n in [1, 2, 3, 7, 8, 9, 100, 1023, 1025] {
            for seed in 0..20 {
                let order = Shuffle::new(n, seed);
                let mut seen: Vec<u64> = (0..n).map(|i| order.at(i)).collect();
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..n), "{n} {seed}");
            }
        }
        assert!(Shuffle::new(u64::MAX, 1).at(u64::MAX - 1) < u64::MAX);
    }

    #[test]
    fn places_and_pairs_of_places_are_uniform() {
        let (n, seeds) = (24u64, 96_000u64);
        let (mut first, mut pairs) = (vec![0.0f64; 24], vec![0.0f64; 24 * 24]);
        for seed in 0..seeds {
            let order = Shuffle::new(n, seed);
            first[order.at(seed % n) as usize] += 1.0;
            pairs[(order.at(0) * n + order.at(1)) as usize] += 1.0;
        }
        let chi_squared = |counts: &[f64], cells: u64| {
            let expected = seeds as f64 / cells as f64;
            let off: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
            // Equal cells that must stay empty are not counted.
            off - counts.iter().filter(|&&c| c == 0.0).count() as f64 * expected
        };
        // Six standard deviations above the mean of 23 and of 551 degrees of freedom.
        assert!(chi_squared(&first, n) < 64.0, "{first:?}");
        assert!(chi_squared(&pairs, n * (n - 1)) < 750.0, "{}", chi_squared(&pairs, n * (n - 1)));
    }

    #[test]
    fn a_prefix_is_spread_evenly() {
        // The first tenth of the order, by thousandths of the rows.
        let (n, order) = (1_000_000u64, Shuffle::new(1_000_000, 3));
        let mut seen = vec![0.0f64; 1000];
        (0..n / 10).for_each(|i| seen[(order.at(i) / 1000) as usize] += 1.0);
        let chi_squared: f64 = seen.iter().map(|c| (c - 100.0).powi(2) / 100.0).sum();
        assert!((600.0..1250.0).contains(&chi_squared), "{chi_squared}");
    }
}
