//! Cost model of sweeps: a plain sweep from the problem size, a bounded one from its counts.
//!
//! Costs are nanoseconds per row on one core with AVX-512, measured with `bounded.py --by-sweep`. Only their
//! ratios are used, and these hold for other vector lengths too: with vectors of half the length a
//! multiplication costs twice as much and bookkeeping the same. No clock is read, so the same rows and
//! parameters always give the same choices.

use super::lloyd::params::Algorithm;
use crate::kernel::{Compute, PackedCenters};
use crate::tuning::ROWS_IN_LANES_DIM;

/// Number of columns from which one bound per center is faster than one per panel, for any number of centers.
/// These bounds are read and written for every row that is in doubt, and let through two thirds as many
/// panels (`auto.py`: equal at 100 and 128 columns).
const FINE_DIM: usize = 160;

/// Number of centers up to which one bound per center is faster with fewer columns too.
const FINE_CENTERS: usize = 64;

/// Number of values of all centers from which rows of few columns have one bound per panel instead of one per
/// row: from 512 centers in 16 columns, 1024 in 8.
const GROUPED_VALUES: usize = 8192;

/// Number of centers from which one bound per row is faster in few columns: the distances to fewer centers
/// take the time of testing a bound.
const SINGLE_CENTERS: usize = 24;

/// Upper limit of the expected cost of a bounded sweep for which bounds begin, relative to a full sweep, with
/// one bound per row. The limit for keeping bounds is [`SINGLE_LATER`].
const SINGLE_AT_FIRST: f64 = 1.15;

/// See [`SINGLE_AT_FIRST`].
const SINGLE_LATER: f64 = 1.3;

/// As [`SINGLE_AT_FIRST`], with bounds per panel or center. They skip more distances with every sweep, so a
/// loss at first pays (`auto.py`).
const BOUNDED_AT_FIRST: f64 = 2.0;

/// See [`BOUNDED_AT_FIRST`].
const BOUNDED_LATER: f64 = 2.0;

/// Cost of a plain sweep with at most [`ROWS_IN_LANES_DIM`] columns, in nanoseconds per row: constant, per
/// column, per center, and per center and column. All sweep costs are those of one core with AVX-512
/// (`bounded.py --by-sweep`); only their ratios are used.
const PLAIN_COST_FEW_COLUMNS: [f64; 4] = [5.0, 0.5, 0.06, 0.013];

/// Cost of a plain sweep with more columns; see [`PLAIN_COST_FEW_COLUMNS`].
const PLAIN_COST: [f64; 4] = [10.0, 0.45, 0.2, 0.0122];

/// Cost of a sweep with one bound per row that settles all labels.
const SINGLE_SETTLED: f64 = 5.0;

/// Cost of all distances in a sweep with one bound per row: constant, per column, and as a multiple of a plain sweep.
const SINGLE_DISTANCES: [f64; 3] = [12.0, 1.0, 1.35];

/// Cost of a sweep with a bound per center that settles all labels: constant, and as a share of a plain sweep.
const FINE_SETTLED: [f64; 2] = [10.0, 0.1];

/// Cost of one distance in such a sweep: constant, and per column.
const FINE_DISTANCE: [f64; 2] = [4.0, 0.0183];

/// [`FINE_SETTLED`] for a bound per group.
const GROUPED_SETTLED: [f64; 2] = [10.0, 0.05];

/// [`FINE_DISTANCE`] for a bound per group, which costs less bookkeeping.
const GROUPED_DISTANCE: [f64; 2] = [1.9, 0.0175];

/// Share of the distances outside a row's own panel that a sweep with a bound per center is expected to
/// compute at most.
const FINE_SHARE: f64 = 0.25;

/// Panels per row whose distances a sweep with a bound per group is expected to compute at most. Their share
/// of all distances is limited to [`GROUPED_SHARE`].
const GROUPED_PANELS: f64 = 2.5;

/// See [`GROUPED_PANELS`].
const GROUPED_SHARE: (f64, f64) = (0.2, 1.3);

/// With one bound per row: expected share of doubtful rows per square root of the share of labels that changed.
const SINGLE_DOUBTFUL: f64 = 2.2;

/// With more bounds per row: expected share of doubtful rows per share of labels that changed.
const BOUNDED_DOUBTFUL: f64 = 20.0;

/// Share of the distances of a full sweep above which a sweep with balls is slower. Distances that are
/// computed one by one are relatively more expensive with fewer columns.
fn ball_share(dim: usize) -> f64 {
    // Both kinds of sweep (bench `bounded.py --by-sweep`) take the same time at 4% with 2 columns, 3% with 3, 11%
    // with 10, and 15% with 16.
    0.02 + 0.007 * dim as f64
}

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
