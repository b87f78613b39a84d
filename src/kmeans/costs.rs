//! Cost model of sweeps: a plain sweep from the problem size, a bounded one from its counts.
//!
//! Costs are nanoseconds per row on one core with AVX-512, measured with `bounded.py --by-sweep`. Only their
//! ratios are used, and these hold for other vector lengths too: with vectors of half the length a
//! multiplication costs twice as much and bookkeeping the same. No clock is read, so the same rows and
//! parameters always give the same choices.

use super::lloyd::params::Algorithm;
use crate::kernel::{Compute, PackedCenters};
use crate::tuning::{
    BOUNDED_AT_FIRST, BOUNDED_DOUBTFUL, BOUNDED_LATER, FINE_CENTERS, FINE_DIM, FINE_DISTANCE, FINE_SETTLED,
    FINE_SHARE, GROUPED_DISTANCE, GROUPED_PANELS, GROUPED_SETTLED, GROUPED_SHARE, GROUPED_VALUES, PLAIN_COST,
    PLAIN_COST_FEW_COLUMNS, ROWS_IN_LANES_DIM, SINGLE_AT_FIRST, SINGLE_CENTERS, SINGLE_DISTANCES,
    SINGLE_DOUBTFUL, SINGLE_LATER, SINGLE_SETTLED, ball_share,
};

/// Sweep costs per row for one problem size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// The bounds that suit the problem size.
    pub(super) algorithm: Algorithm,
    /// Cost of a plain sweep.
    plain: f64,
    /// Cost of a bounded sweep in which the bounds settle all labels.
    settled: f64,
    /// Additional cost if a bounded sweep computes all distances; a share of them costs that share.
    distances: f64,
    /// Largest share of the distances that a bounded sweep is expected to compute.
    most_share: f64,
    /// Cost limits relative to a plain sweep: the expected cost at which bounds begin, and the cost at which
    /// they are dropped. Group bounds save more with every sweep, so a loss is accepted at first.
    pub(super) most_at_first: f64,
    pub(super) most_later: f64,
}

impl Costs {
    /// Costs for rows of `dim` columns and `k` centers.
    pub(super) fn new<T: Compute>(dim: usize, k: usize) -> Self {
        let width = PackedCenters::<T>::panel_centers();
        let (d, centers, panel) = (dim as f64, k as f64, width as f64);
        // Factor on arithmetic for shorter vectors.
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
            let [fixed, column, center, both] = PLAIN_COST_FEW_COLUMNS;
            fixed + column * d + centers * (center + both * d) * shorter
        } else {
            // Centers fill whole vectors; a panel has two.
            let filled = k.next_multiple_of(width / 2) as f64;
            let [fixed, column, center, both] = PLAIN_COST;
            fixed + column * d + filled * (center + both * d) * shorter
        };
        // Share of centers outside the row's own panel.
        let rest = (1.0 - panel / centers).max(0.0);
        let (settled, distances, most_share) = match algorithm {
            Algorithm::Hamerly => {
                let [fixed, column, of_plain] = SINGLE_DISTANCES;
                (SINGLE_SETTLED, fixed + column * d + of_plain * plain, 1.0)
            }
            Algorithm::Elkan => {
                let each = FINE_DISTANCE[0] + FINE_DISTANCE[1] * d * shorter;
                let settled = FINE_SETTLED[0] + FINE_SETTLED[1] * plain;
                (settled, centers * each, panel / centers + FINE_SHARE * rest)
            }
            _ => {
                let each = GROUPED_DISTANCE[0] + GROUPED_DISTANCE[1] * d * shorter;
                let settled = GROUPED_SETTLED[0] + GROUPED_SETTLED[1] * plain;
                let (least, most) = GROUPED_SHARE;
                (settled, centers * each, (GROUPED_PANELS * panel / centers).clamp(least, most))
            }
        };
        let (most_at_first, most_later) = match algorithm {
            Algorithm::Hamerly if k < SINGLE_CENTERS => (0.0, SINGLE_LATER),
            Algorithm::Hamerly => (SINGLE_AT_FIRST, SINGLE_LATER),
            _ => (BOUNDED_AT_FIRST, BOUNDED_LATER),
        };
        Self { algorithm, plain, settled, distances, most_share, most_at_first, most_later }
    }

    /// The costs for rows of `dim` columns that are compared only with a ball of centers.
    pub(super) fn with_balls(self, dim: usize) -> Self {
        let distances = (self.plain - self.settled) / ball_share(dim);
        Self { algorithm: Algorithm::Exponion, distances, ..self }
    }

    /// Cost of a bounded sweep that computes this share of all distances, relative to a plain sweep.
    pub(super) fn ratio(&self, share: f64) -> f64 {
        (self.settled + self.distances * share) / self.plain
    }

    /// Share of the distances that a bounded sweep is expected to compute after a sweep that changed the
    /// share `changed` of the labels.
    pub(super) fn expected(&self, changed: f64) -> f64 {
        let doubtful = if self.algorithm == Algorithm::Hamerly {
            SINGLE_DOUBTFUL * changed.sqrt()
        } else {
            BOUNDED_DOUBTFUL * changed
        };
        self.most_share * doubtful.min(1.0)
    }
}
