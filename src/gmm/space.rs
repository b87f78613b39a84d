//! The search space of a row: the neighbors of its known components, and random ones.

use crate::rng::{Purpose, Rng};

/// A set of clusters that is rebuilt for every row, in time proportional to its size.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// For each cluster, the value of `now` when it was last added.
    stamps: Vec<u32>,
    now: u32,
    /// The members, in order of insertion.
    pub(super) list: Vec<u32>,
}

impl Space {
    /// Starts an empty set of some of `k` clusters.
    pub(super) fn begin(&mut self, k: usize) {
        if self.stamps.len() != k || self.now == u32::MAX {
            self.stamps.clear();
            self.stamps.resize(k, 0);
            self.now = 0;
        }
        self.now += 1;
        self.list.clear();
    }

    /// Adds clusters.
    #[inline]
    pub(super) fn extend(&mut self, clusters: &[u32]) {
        for &j in clusters {
            let stamp = &mut self.stamps[j as usize];
            if *stamp != self.now {
                *stamp = self.now;
                self.list.push(j);
            }
        }
    }

    /// Adds all clusters below `end`, in order.
    pub(super) fn extend_to(&mut self, end: u32) {
        for j in 0..end {
            self.extend(&[j]);
        }
    }

    /// Adds all clusters, in order.
    pub(super) fn fill(&mut self) {
        let k = self.stamps.len() as u32;
        self.stamps.fill(self.now);
        self.list.clear();
        self.list.extend(0..k);
    }

    /// Whether `clusters` are distinct and below `k`. Overwrites the set.
    pub(super) fn holds_distinct(&mut self, k: usize, clusters: &[u32]) -> bool {
        let known = clusters.iter().all(|&j| (j as usize) < k);
        known && {
            self.begin(k);
            self.extend(clusters);
            self.list.len() == clusters.len()
        }
    }

    /// Adds `n` random clusters that are not members, uniformly, or all of them if there are no more.
    pub(super) fn explore(&mut self, n: usize, rng: &mut Rng) {
        let k = self.stamps.len();
        for _ in 0..n.min(k - self.list.len()) {
            let others = k - self.list.len();
            let drawn = if 2 * others >= k {
                // At most two draws per cluster on average.
                loop {
                    let j = rng.below(k as u64) as usize;
                    if self.stamps[j] != self.now {
                        break j;
                    }
                }
            } else {
                let at = rng.below(others as u64) as usize;
                let outside = self.stamps.iter().enumerate().filter(|(_, stamp)| **stamp != self.now);
                outside.map(|(j, _)| j).nth(at).expect("as many as were counted")
            };
            self.extend(&[drawn as u32]);
        }
    }
}

/// The random stream of one row (or cluster) in one search.
pub(super) fn draws(seed: u64, search: u64, row: u64) -> Rng {
    // Rows below 2^40 and searches below 2^24 have separate streams.
    Rng::keyed(seed, Purpose::Exploring, (search << 40) ^ row)
}

/// The search number whose random stream creates the first neighborhoods.
pub(super) const NEIGHBORHOODS: u64 = (1 << 24) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_distinct_and_drawn_evenly() {
        let (mut space, mut seen) = (Space::default(), [0u32; 10]);
        for row in 0..20_000 {
            space.begin(10);
            space.extend(&[3, 7, 3]);
            // Beyond half of the clusters, the others are counted.
            space.explore(5, &mut draws(1, 2, row));
            assert_eq!((space.list.len(), &space.list[..2]), (7, &[3, 7][..]));
            space.list.iter().for_each(|&j| seen[j as usize] += 1);
        }
        assert!(seen.iter().enumerate().all(|(j, &n)| if j == 3 || j == 7 {
            n == 20_000
        } else {
            (12_000..13_000).contains(&n)
        }));
        space.begin(4);
        space.explore(9, &mut draws(1, 2, 3));
        space.list.sort_unstable();
        assert_eq!(space.list, [0, 1, 2, 3]);
    }

    #[test]
    fn stamps_begin_anew_before_they_run_out() {
        let mut space = Space::default();
        space.begin(3);
        space.extend(&[1]);
        space.now = u32::MAX;
        space.stamps[2] = u32::MAX;
        space.begin(3);
        space.extend(&[2, 1]);
        assert_eq!(space.list, [2, 1]);
    }
}
