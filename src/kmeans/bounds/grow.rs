//! Extends bounds to added rows, and merges groups to stay within the memory budget.

use super::rounded::down;
use super::{LOWEST, PanelBounds};

impl PanelBounds {
    /// Extends the bounds to `n` rows: old row `i` becomes row `at(i)`, in the same order, and the others
    /// have no bounds yet. Merges groups if `budget` bytes require it. Returns `false` if not even one bound
    /// per row fits.
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

    /// Merges neighboring groups. The merged bound is the lower of the two, so that no distance is computed.
    fn widen(&mut self) {
        let (n, old) = (self.rows.upper.len(), self.n_groups);
        self.group_panels *= 2;
        self.n_groups = old.div_ceil(2);
        // Any drift will do, since the merged bounds contain it.
        let drift: Vec<f64> = self.drift.iter().copied().step_by(2).collect();
        for i in 0..n {
            for (group, &drift) in drift.iter().enumerate() {
                // Writes stay behind the reads.
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

/// Spreads the rows of `width` values in place, from the last to the first.
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

/// Number of group bounds per row that fit into `budget` bytes for `n` rows, besides the two that every row
/// has.
pub(super) fn affordable(n: usize, budget: u64) -> u64 {
    (budget / (4 * n.max(1) as u64)).saturating_sub(2)
}
