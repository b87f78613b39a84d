//! This module knows how bounds follow rows that are added, and memory that gets short.

use super::{LOWEST, PanelBounds, down};

impl PanelBounds {
    /// Rows are added, of which nothing is known yet: there are `n` now, and what was row `i` is row `at(i)`, in the same order. Groups get
    /// wider where `budget` bytes ask for it; `false` where not even one bound a row fits any more.
    pub(in crate::kmeans) fn grow(&mut self, at: impl Fn(usize) -> usize, n: usize, budget: u64) -> bool {
        debug_assert!(!self.is_single() && !self.fine, "only bounds by group grow");
        while self.n_groups as u64 > affordable(n, budget) {
            if self.n_groups == 1 {
                return false;
            }
            self.widen();
        }
        spread(&mut self.rows.upper, 1, &at, n, f32::INFINITY);
        spread(&mut self.rows.least, 1, &at, n, LOWEST);
        spread(&mut self.rows.lower, self.n_groups, &at, n, LOWEST);
        true
    }

    /// Two groups become one. Its bound is the lower one of theirs, so that nothing is measured for it.
    fn widen(&mut self) {
        let (n, old) = (self.rows.upper.len(), self.n_groups);
        self.group_panels *= 2;
        self.n_groups = old.div_ceil(2);
        let drift: Vec<f64> =
            self.drift.chunks(2).map(|two| two.iter().copied().fold(0.0, f64::max)).collect();
        for i in 0..n {
            for (group, &drift) in drift.iter().enumerate() {
                // What is written never overtakes what is still to be read.
                let bound = |group: usize| f64::from(self.rows.lower[i * old + group]) - self.drift[group];
                let first = bound(2 * group);
                let both = if 2 * group + 1 < old { first.min(bound(2 * group + 1)) } else { first };
                self.rows.lower[i * self.n_groups + group] = down(both + drift);
            }
        }
        self.rows.lower.truncate(n * self.n_groups);
        self.rows.lower.shrink_to_fit();
        self.drift = drift;
    }
}

/// Makes room between rows of `width` values, from the last one to the first, in place.
fn spread(values: &mut Vec<f32>, width: usize, at: impl Fn(usize) -> usize, n: usize, nothing: f32) {
    let old = values.len() / width;
    values.reserve_exact(n * width - values.len());
    values.resize(n * width, nothing);
    for i in (0..old).rev() {
        let to = at(i);
        if to != i {
            values.copy_within(i * width..(i + 1) * width, to * width);
            values[i * width..(i + 1) * width].fill(nothing);
        }
    }
}

/// Lower bounds by group that fit into `budget` bytes for each of `n` rows, beside the two that every row has.
pub(super) fn affordable(n: usize, budget: u64) -> u64 {
    (budget / (4 * n.max(1) as u64)).saturating_sub(2)
}
