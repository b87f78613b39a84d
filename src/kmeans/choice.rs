//! This module knows which bounds exact sweeps have, when they begin, and when they are given up.

use super::labels::Labels;
use super::panel_bounds::PanelBounds;
use super::params::Algorithm;
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::tuning::{BOUNDED_SHARE, FINE_DIM, ball_share, balls_pay, panels_pay};

/// The bounds of a run of sweeps over the same rows.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// What was asked for, and the most bytes that it may take.
    asked: Algorithm,
    memory: u64,
    /// How sweeps find the nearest centers, [`Algorithm::Auto`] resolved.
    pub(super) algorithm: Algorithm,
    /// Labels that changed in the last sweep.
    pub(super) changed: u64,
    /// Sweeps since bounds began, and the share of all distances above which they save too little.
    bounded_sweeps: u64,
    most_share: f64,
    /// Bounds saved too little: no new ones before this sweep.
    pub(super) unbounded_until: u64,
}

impl Choice {
    pub(super) fn new(asked: Algorithm, memory: u64) -> Self {
        Self {
            asked,
            memory,
            algorithm: Algorithm::Lloyd,
            changed: 0,
            bounded_sweeps: 0,
            most_share: 1.0,
            unbounded_until: 0,
        }
    }

    /// Begins bounded sweeps, if it is time for them: `sweeps` have been made, and these are the centers of the next one.
    pub(super) fn begin<T: Compute>(
        &mut self,
        labels: &mut Labels,
        centers: MatRef<'_, T>,
        sweeps: u64,
        sparse: bool,
    ) {
        // The first sweep makes labels, and centers that are worth grouping.
        if labels.bounds.is_some() || sweeps == 0 {
            return;
        }
        let n = labels.of_rows.len();
        let mut wanted = match self.asked {
            Algorithm::Auto if sweeps < self.unbounded_until => Algorithm::Lloyd,
            Algorithm::Auto => {
                let changed = self.changed as f64 / n as f64;
                worthwhile::<T>((n, centers.cols()), centers.rows(), changed, sparse)
            }
            named => named,
        };
        labels.bounds = match wanted {
            Algorithm::Yinyang => PanelBounds::new(centers, n, self.memory),
            Algorithm::Elkan => PanelBounds::fine(centers, n, self.memory),
            Algorithm::Hamerly => PanelBounds::single(centers, n, self.memory, false),
            Algorithm::Exponion => PanelBounds::single(centers, n, self.memory, true),
            Algorithm::Auto | Algorithm::Lloyd => None,
        };
        if wanted == Algorithm::Elkan && labels.bounds.is_none() {
            wanted = Algorithm::Yinyang;
            labels.bounds = PanelBounds::new(centers, n, self.memory);
        }
        if labels.bounds.is_some() {
            (self.algorithm, self.bounded_sweeps) = (wanted, 0);
            self.most_share =
                if wanted == Algorithm::Exponion { ball_share(centers.cols()) } else { BOUNDED_SHARE };
        }
    }

    /// Takes note of sweep number `sweeps`, of `k` centers. Gives bounds up for a while when they save too little: a sweep that measures
    /// most distances is better plain.
    pub(super) fn watch(
        &mut self,
        labels: &mut Labels,
        k: usize,
        sweeps: u64,
        (changed, distances): (u64, u64),
    ) {
        self.changed = changed;
        if labels.bounds.is_none() || self.asked != Algorithm::Auto {
            return;
        }
        self.bounded_sweeps += 1;
        let all = labels.of_rows.len() as f64 * k as f64;
        // The first bounded sweep has nothing to go by, and the groups of many bounds are not all renewed by the second.
        let settled = if self.algorithm == Algorithm::Exponion { 2 } else { 3 };
        if self.bounded_sweeps >= settled && distances as f64 > self.most_share * all {
            labels.bounds = None;
            self.algorithm = Algorithm::Lloyd;
            self.unbounded_until = 2 * sweeps;
        }
    }
}

/// What [`Algorithm::Auto`] takes when that share of the labels has changed in a sweep.
fn worthwhile<T: Compute>((n, dim): (usize, usize), k: usize, changed: f64, sparse: bool) -> Algorithm {
    if sparse {
        // Rows of many columns that are mostly zeros are about equally far from all centers: bounds rule nothing out (`sparse.py`).
        Algorithm::Lloyd
    } else if balls_pay(dim, n, k, changed) {
        Algorithm::Exponion
    } else if panels_pay(dim, k / PackedCenters::<T>::panel_centers(), changed) {
        if dim >= FINE_DIM { Algorithm::Elkan } else { Algorithm::Yinyang }
    } else {
        Algorithm::Lloyd
    }
}
