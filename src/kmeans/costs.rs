//! This module knows what a sweep costs: a plain one from its size, a bounded one from what it counted.
//!
//! Costs are nanoseconds per row of one core with AVX-512, as the bench `bounded.py --by-sweep` measured them. Only their ratios are used, which other
//! vectors change little: a multiplication costs twice as much with vectors of half the length, bookkeeping costs the same. No clock
//! takes part, so that the same rows and parameters give the same choices.

use super::params::Algorithm;
use crate::kernel::{Compute, PackedCenters};
use crate::tuning::{
    BOUNDED_AT_FIRST, BOUNDED_LATER, FINE_CENTERS, FINE_DIM, GROUPED_VALUES, ROWS_IN_LANES_DIM,
    SINGLE_AT_FIRST, SINGLE_CENTERS, SINGLE_LATER, ball_share,
};

/// The costs of the sweeps of one problem, per row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// The bounds that suit the problem.
    pub(super) algorithm: Algorithm,
    /// A plain sweep.
    plain: f64,
    /// A bounded sweep whose bounds settle all labels.
    settled: f64,
    /// All distances in a bounded sweep, beside that: a share of them costs that share.
    distances: f64,
    /// The largest share of the distances that a bounded sweep is expected to measure.
    most_share: f64,
    /// Relative to a plain one: what a bounded sweep may be expected to cost when bounds begin, and what it may cost from then on. Bounds of many centers
    /// save more with every sweep, and are worth a loss at first.
    pub(super) most_at_first: f64,
    pub(super) most_later: f64,
}

impl Costs {
    /// Of sweeps over rows of `dim` columns with `k` centers.
    pub(super) fn new<T: Compute>(dim: usize, k: usize) -> Self {
        let width = PackedCenters::<T>::panel_centers();
        let (d, centers, panel) = (dim as f64, k as f64, width as f64);
        // What a vector of half the length doubles.
        let shorter = 32.0 / panel;
        let few_columns = dim <= ROWS_IN_LANES_DIM;
        let algorithm = if few_columns {
            if dim * k >= GROUPED_VALUES { Algorithm::Yinyang } else { Algorithm::Hamerly }
        } else if dim >= FINE_DIM || k <= FINE_CENTERS {
            Algorithm::Elkan
        } else {
            Algorithm::Yinyang
        };
        let plain = if few_columns {
            5.0 + 0.5 * d + centers * (0.06 + 0.013 * d) * shorter
        } else {
            // Centers fill whole vectors, of which a panel has two.
            let filled = k.next_multiple_of(width / 2) as f64;
            10.0 + 0.45 * d + filled * (0.2 + 0.0122 * d) * shorter
        };
        // Centers share a bound with the others of their panel, near ones among them.
        let rest = (1.0 - panel / centers).max(0.0);
        let (settled, distances, most_share) = match algorithm {
            Algorithm::Hamerly => (5.0, 12.0 + d + 1.35 * plain, 1.0),
            Algorithm::Elkan => {
                let each = 4.0 + 0.0183 * d * shorter;
                (10.0 + 0.1 * plain, centers * each, panel / centers + 0.25 * rest)
            }
            _ => {
                let each = 1.9 + 0.0175 * d * shorter;
                (10.0 + 0.05 * plain, centers * each, (2.5 * panel / centers).clamp(0.2, 1.3))
            }
        };
        let (most_at_first, most_later) = match algorithm {
            Algorithm::Hamerly if k < SINGLE_CENTERS => (0.0, SINGLE_LATER),
            Algorithm::Hamerly => (SINGLE_AT_FIRST, SINGLE_LATER),
            _ => (BOUNDED_AT_FIRST, BOUNDED_LATER),
        };
        Self { algorithm, plain, settled, distances, most_share, most_at_first, most_later }
    }

    /// The same for rows that meet only the centers about their own one, for `dim` columns.
    pub(super) fn with_balls(self, dim: usize) -> Self {
        let distances = (self.plain - self.settled) / ball_share(dim);
        Self { algorithm: Algorithm::Exponion, distances, ..self }
    }

    /// A bounded sweep that measures that share of all distances, relative to a plain one.
    pub(super) fn ratio(&self, share: f64) -> f64 {
        (self.settled + self.distances * share) / self.plain
    }

    /// The share of all distances that a bounded sweep is expected to measure after one that changed that share of the labels.
    pub(super) fn expected(&self, changed: f64) -> f64 {
        let doubtful =
            if self.algorithm == Algorithm::Hamerly { 2.2 * changed.sqrt() } else { 20.0 * changed };
        self.most_share * doubtful.min(1.0)
    }
}
