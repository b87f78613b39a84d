//! Random draws from a seed.
//!
//! The generator is xoshiro256++, whose stream is fixed. The mapping from bits to draws below must not
//! change: a seed in a saved model must give the same draws in every later version. Streams are keyed by
//! purpose and step, never by thread.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// A stream of random draws.
#[derive(Clone, Debug)]
pub(crate) struct Rng(Xoshiro256PlusPlus);

/// The use of a stream: two purposes never share draws.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Choosing starting centers.
    Seeding = 1,
    /// A row order.
    Permutation = 2,
    /// One start of several.
    Restart = 3,
    /// The rows of a batch.
    Batch = 4,
    /// New positions for starving centers.
    Reassignment = 5,
    /// The keys of rows in an external shuffle.
    Shuffle = 6,
    /// The candidates of a chain for one center.
    Chain = 9,
    /// The rows of a coreset.
    Coreset = 10,
    /// The rows that join the candidates of k-means|| in a round.
    Oversampling = 11,
    /// The rows of a batch of an inner iteration.
    Inner = 8,
    /// The rows of the steps of an epoch.
    Epoch = 7,
    /// Components that a row of a mixture evaluates at random.
    Exploring = 12,
    /// The validation set on which several starts are compared.
    Validation = 13,
    /// The rows and the start of the k-means fit of a node of a tree.
    Node = 14,
    /// Where breathing k-means adds centers.
    Breathing = 15,
    /// The sample and the directions of sketches.
    Sketching = 16,
    /// The rows of a balanced sample.
    Sampling = 17,
    /// The samples on which balanced k-means begins.
    Balancing = 18,
    /// The splits of clusters of a tree that has all of its clusters.
    Exchange = 19,
}

/// One round of SplitMix64, which spreads every input bit over the output.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of `seed` for `purpose` at `step`.
    pub(crate) fn keyed(seed: u64, purpose: Purpose, step: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(mix(mix(mix(seed) ^ purpose as u64) ^ step)))
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `[0, 1)`, a multiple of 2^-53.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..n` without bias (Lemire's multiply-and-reject).
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0);
        let threshold = n.wrapping_neg() % n;
        loop {
            let wide = u128::from(self.bits()) * u128::from(n);
            if wide as u64 >= threshold {
                return (wide >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_frozen() {
        // Worked out by hand from the definitions of SplitMix64 and xoshiro256++.
        let mut r = Rng::keyed(7, Purpose::Seeding, 0);
        assert_eq!([r.bits(), r.bits()], [0x02eb_b3cd_c0c8_8e61, 0xc1ea_d045_f80c_2a6b]);
        assert_eq!(r.below(1000), 774);
        assert_eq!(r.unit(), 7_161_232_513_637_310.0 / 9_007_199_254_740_992.0);
    }

    #[test]
    fn purposes_and_steps_differ() {
        let first = |p, s| Rng::keyed(1, p, s).bits();
        assert_ne!(first(Purpose::Seeding, 0), first(Purpose::Restart, 0));
        assert_ne!(first(Purpose::Seeding, 0), first(Purpose::Seeding, 1));
    }

    #[test]
    fn below_is_uniform() {
        let mut r = Rng::keyed(3, Purpose::Seeding, 0);
        let mut seen = [0u32; 7];
        (0..70_000).for_each(|_| seen[r.below(7) as usize] += 1);
        assert!(seen.iter().all(|&c| (9_500..10_500).contains(&c)), "{seen:?}");
    }
}
