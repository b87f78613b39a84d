//! Chooses the bounds of exact sweeps, when they begin, and when they are dropped.

use super::blocks::{self, Blocks, Shared};
use super::bounds::{PanelBounds, rounding_of};
use super::costs::Costs;
use super::labels::{Labels, Swept};
use super::lloyd::params::Algorithm;
use super::sketches::{
    Sketches, fine_sketches_pay, most_for_sketches, plain_sketches_pay, sketches_exclude_most,
};
use crate::centers::LabelsRef;
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::persist::state::{StateReader, stored_fields};
use crate::tuning::DEFAULT_MEMORY;

/// Sweeps of a fit from which sketches pay: sketching all rows takes about as long as one plain sweep. The last pass,
/// for the labels, is not counted.
const SKETCH_SWEEPS: u64 = 2;

/// Sweeps that must follow for bounds per panel or center to pay: in the first of them, few bounds hold.
const BOUNDED_SWEEPS: u64 = 5;

/// Total loss, in full sweeps, at which bounds are dropped.
const BOUNDED_LOSS: f64 = 3.0;

/// Upper limit of the expected cost of a bounded sweep for which bounds begin again after they were dropped.
const BOUNDED_AGAIN: f64 = 0.9;

/// Sweeps without bounds after they are dropped: half the sweeps so far, at least this many.
const BOUNDED_PAUSE: u64 = 3;

/// Whether rows of few columns are compared only with centers near their own center, as exponion does.
///
/// Each label of a tile needs a list of those centers, which takes some hundred distances, and each sweep
/// needs the distances between all centers. Enough rows must share both; fewer rows suffice if rows of one
/// label are consecutive, as reported by `in_runs`.
fn balls_pay(n: usize, k: usize, in_runs: impl FnOnce() -> bool) -> bool {
    // `auto.py`, rows in random order, 256 centers, 330 to 570 rows per center: 0.94 to 1.44 times as fast as one
    // bound per row on nine sets of 2 to 10 columns, 1.15 in the mean; with up to 60 rows per center, mostly slower.
    k >= BALLS_FROM && (k <= n / BALLS_ROWS || k <= n / BALLS_ROWS_IN_RUNS && in_runs())
}

/// Number of centers from which [`balls_pay`].
const BALLS_FROM: usize = 192;

/// Rows per center from which balls pay off for rows in any order (see [`balls_pay`]). For rows in runs of
/// one label see [`BALLS_ROWS_IN_RUNS`].
const BALLS_ROWS: usize = 256;
const BALLS_ROWS_IN_RUNS: usize = 64;

/// Mean length of runs of one label from which rows count as being in runs.
const BALL_RUN: usize = 4;

/// Fewest rows and fewest centers for which `Algorithm::Auto` tries blocks: the tree costs about two plain sweeps.
pub(super) const BLOCK_ROWS: usize = 4096;
pub(super) const BLOCK_CENTERS: usize = 8;

/// Fewest sweeps that a fit may take for `Algorithm::Auto` to try blocks.
const BLOCK_SWEEPS: u64 = 8;

/// Cost of a sweep by blocks that computes so many distances per row, relative to a plain sweep. A plain sweep takes as
/// long as `k + 80` of its distances per row; a distance by blocks takes as long as about seven of them (`auto.py`).
fn cost_of_blocks(distances_per_row: f64, k: usize) -> f64 {
    distances_per_row / (0.15 * k as f64 + 12.0)
}

/// Blocks are declined if one of the branches costs this much: the others may cost less.
const BRANCH_COST: f64 = 2.0;

/// Blocks are left for bounds that are expected to save this much of a plain sweep in every sweep. Late sweeps with
/// many clusters and columns may.
const BOUNDS_OVER_BLOCKS: f64 = 0.3;

/// The bounds of successive sweeps over the same rows.
///
/// A resumed fit starts without bounds, so that [`Algorithm::Auto`] may end with another algorithm than in an
/// uninterrupted fit. The results are bit-identical.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// The requested algorithm, and the memory budget of its bounds in bytes, if one was given.
    asked: Algorithm,
    memory: Option<u64>,
    /// Upper limit of the sweeps.
    most: u64,
    /// The algorithm of the current sweep, with [`Algorithm::Auto`] resolved.
    pub(super) algorithm: Algorithm,
    /// Labels that changed in the last sweep.
    pub(super) changed: u64,
    /// Sweeps since the bounds began, and their total extra cost in units of plain sweeps.
    bounded_sweeps: u64,
    lost: f64,
    /// Measured over expected distances for the bounds that were dropped last.
    pub(super) cost_factor: f64,
    /// The spread of most clusters is lost in rounding, so that bounds cannot help.
    pub(super) blurred: bool,
    /// No new bounds before this sweep, because the last ones saved too little.
    pub(super) unbounded_until: u64,
}

impl Choice {
    stored_fields! { algorithm, changed, unbounded_until, cost_factor, blurred }

    pub(super) fn restore(&mut self, from: &StateReader<'_>) -> Result<(), String> {
        self.get_fields(from)?;
        if self.cost_factor >= 1.0 && self.cost_factor.is_finite() {
            Ok(())
        } else {
            Err("its \"cost_factor\" must be finite and at least 1".into())
        }
    }

    pub(super) fn new(asked: Algorithm, memory: impl Into<Option<u64>>, most: u64) -> Self {
        Self {
            asked,
            memory: memory.into(),
            most,
            algorithm: Algorithm::Lloyd,
            changed: 0,
            bounded_sweeps: 0,
            lost: 0.0,
            cost_factor: 1.0,
            blurred: false,
            unbounded_until: 0,
        }
    }

    /// Limits the memory of bounds, blocks and sketches that begin from now on.
    pub(super) fn limit(&mut self, memory: u64) {
        self.memory = Some(memory);
    }

    /// The budget of bounds and blocks, in bytes.
    fn budget(&self) -> u64 {
        self.memory.unwrap_or(DEFAULT_MEMORY)
    }

    /// The budget of sketches, in bytes: by default, what a file larger than memory needs, as far as it is available.
    pub(super) fn sketch_budget<T: Compute>(&self, data: &dyn DataSource<T>) -> u64 {
        // The available memory may not be known.
        let available = || data.scarce_memory().filter(|&bytes| bytes < u64::MAX);
        self.memory.unwrap_or_else(|| DEFAULT_MEMORY.max(available().map_or(0, most_for_sketches)))
    }

    /// Begins the bounds, blocks or sketches that are due, and packs the centers of the next sweep. `sweeps` sweeps are
    /// done.
    ///
    /// # Errors
    /// Those of the source.
    pub(super) fn prepare<T: Compute>(
        &mut self,
        labels: &mut Labels,
        (blocks, shared): (&mut Option<Blocks<T>>, &Shared<T>),
        centers: MatRef<'_, T>,
        sweeps: u64,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<PackedCenters<T>> {
        self.begin(labels, centers, sweeps, data);
        let packed = labels.pack(centers, data.most_values().is_some(), cx);
        let n = labels.of_rows.len();
        if blocks.is_none() && self.wants_blocks(n, &packed, sweeps) {
            // `None` if an earlier start declined them.
            *blocks = shared.blocks(n, data, cx)?;
            if self.asked == Algorithm::Auto && sweeps == 0 {
                let per_row =
                    blocks.as_ref().map_or(0.0, |blocks| blocks.probe(labels.of_rows.view(), &packed));
                if cost_of_blocks(per_row, packed.n_centers()) > BRANCH_COST {
                    shared.decline();
                    *blocks = None;
                }
            }
            if blocks.is_none() {
                self.algorithm = Algorithm::Lloyd;
            }
        }
        let scarce = data.scarce_memory().is_some();
        if blocks.is_none() && labels.sketches.is_none() && self.wants_sketches((n, scarce), &packed, sweeps)
        {
            let asked = self.asked == Algorithm::Sketch;
            labels.sketches = Sketches::new(data, n, &packed, (self.sketch_budget(data), asked), cx)?;
            if labels.sketches.is_none() {
                self.algorithm = Algorithm::Lloyd;
            }
        }
        Ok(packed)
    }

    /// Whether the next sweep should be by blocks of rows, of which there are none yet. `sweeps` sweeps are done.
    fn wants_blocks<T: Compute>(&mut self, n: usize, packed: &PackedCenters<T>, sweeps: u64) -> bool {
        let (k, dim) = (packed.n_centers(), packed.dim());
        let wanted = match self.asked {
            Algorithm::Filtering => true,
            // A resumed fit continues with the same choice.
            Algorithm::Auto if sweeps > 0 => self.algorithm == Algorithm::Filtering,
            Algorithm::Auto => n >= BLOCK_ROWS && k >= BLOCK_CENTERS && self.most >= BLOCK_SWEEPS,
            _ => false,
        };
        if !wanted {
            return false;
        }
        // The rows of leaves are compared as they are, so squares of their differences must be in range.
        let is_scaled = packed.frame().1 != T::from_f32(1.0);
        if is_scaled || !blocks::serve::<T>(n, dim, packed.is_sparse(), self.budget()) {
            self.algorithm = Algorithm::Lloyd;
            return false;
        }
        self.algorithm = Algorithm::Filtering;
        true
    }

    /// Whether the next sweep should be by sketches, of which there are none yet, over `n` rows, which may be in a file
    /// larger than memory.
    fn wants_sketches<T: Compute>(
        &mut self,
        (n, are_scarce): (usize, bool),
        packed: &PackedCenters<T>,
        sweeps: u64,
    ) -> bool {
        let (k, dim) = (packed.n_centers(), packed.dim());
        let pay = || (are_scarce && fine_sketches_pay(n, k, dim)) || plain_sketches_pay(n, k, dim);
        let wanted = match self.asked {
            // Once they were declined, they are not tried again.
            Algorithm::Sketch => sweeps == 0 || self.algorithm == Algorithm::Sketch,
            // A resumed fit continues with the same choice.
            Algorithm::Auto if sweeps > 0 => self.algorithm == Algorithm::Sketch,
            Algorithm::Auto => pay() && self.most >= SKETCH_SWEEPS,
            _ => false,
        };
        if wanted && !packed.is_sparse() {
            self.algorithm = Algorithm::Sketch;
            return true;
        }
        false
    }

    /// Starts bounded sweeps if they are due. `sweeps` sweeps are done, and `centers` are those of the next
    /// one.
    pub(super) fn begin<T: Compute>(
        &mut self,
        labels: &mut Labels,
        centers: MatRef<'_, T>,
        sweeps: u64,
        data: &dyn DataSource<T>,
    ) {
        // The first sweep creates the labels, and centers worth grouping.
        if labels.bounds.is_some()
            || sweeps == 0
            || matches!(self.algorithm, Algorithm::Filtering | Algorithm::Sketch)
        {
            return;
        }
        let n = labels.of_rows.len();
        let sparse = data.most_values().is_some();
        // Beside a file larger than memory, rows that are read need memory too.
        let memory = self.budget().min(data.scarce_memory().map_or(u64::MAX, |bytes| bytes / 2));
        let mut wanted = match self.asked {
            Algorithm::Auto if sparse => {
                // Sparse rows with many columns are about equally far from all centers: bounds skip nothing
                // (`sparse.py`).
                Algorithm::Lloyd
            }
            Algorithm::Auto => self.worthwhile(labels.of_rows.view(), centers, sweeps),
            named => named,
        };
        labels.bounds = match wanted {
            Algorithm::Yinyang => PanelBounds::new(centers, n, memory),
            Algorithm::Elkan => PanelBounds::fine(centers, n, memory),
            Algorithm::Hamerly => PanelBounds::single(centers, n, memory, false),
            Algorithm::Exponion => PanelBounds::single(centers, n, memory, true),
            Algorithm::Auto | Algorithm::Lloyd | Algorithm::Filtering | Algorithm::Sketch => None,
        };
        if wanted == Algorithm::Elkan && labels.bounds.is_none() {
            wanted = Algorithm::Yinyang;
            labels.bounds = PanelBounds::new(centers, n, memory);
        }
        if labels.bounds.is_some() {
            (self.algorithm, self.bounded_sweeps, self.lost) = (wanted, 0, 0.0);
        }
    }

    /// The choice of [`Algorithm::Auto`] for the next sweep.
    fn worthwhile<T: Compute>(
        &self,
        labels: LabelsRef<'_>,
        centers: MatRef<'_, T>,
        sweeps: u64,
    ) -> Algorithm {
        if self.blurred || sweeps < self.unbounded_until {
            return Algorithm::Lloyd;
        }
        let (n, dim, k) = (labels.len(), centers.cols(), centers.rows());
        let costs = Costs::new::<T>(dim, k);
        let expected = self.cost_factor * costs.expected(self.changed as f64 / n as f64);
        let most = if self.unbounded_until > 0 { BOUNDED_AGAIN } else { costs.most_at_first };
        let are_few = costs.algorithm != Algorithm::Hamerly && self.most < sweeps + BOUNDED_SWEEPS;
        if are_few || costs.ratio(expected) > most {
            Algorithm::Lloyd
        } else if costs.algorithm == Algorithm::Hamerly && balls_pay(n, k, || come_in_runs(labels)) {
            Algorithm::Exponion
        } else {
            costs.algorithm
        }
    }

    /// Evaluates the last sweep by blocks, number `sweeps`. Drops them if they cost more than a plain sweep, or much
    /// more than bounds are expected to.
    pub(super) fn watch_blocks<T: Compute>(
        &mut self,
        blocks: &mut Option<Blocks<T>>,
        shared: &Shared<T>,
        packed: &PackedCenters<T>,
        labels: LabelsRef<'_>,
        (swept, sweeps): (&Swept, u64),
    ) {
        if self.asked != Algorithm::Auto || blocks.is_none() {
            return;
        }
        let (k, n) = (packed.n_centers(), labels.len() as f64);
        let cost = cost_of_blocks(swept.distances as f64 / n, k);
        let costs = Costs::new::<T>(packed.dim(), k);
        let of_bounds = costs.ratio(costs.expected(swept.changed as f64 / n));
        let begin_bounds = of_bounds + BOUNDS_OVER_BLOCKS < cost
            && self.worthwhile(labels, packed.centers(), sweeps) != Algorithm::Lloyd;
        if cost > 1.0 {
            shared.decline();
        }
        if cost > 1.0 || begin_bounds {
            *blocks = None;
            self.algorithm = Algorithm::Lloyd;
        }
    }

    /// Evaluates the last sweep by sketches. Drops them if they exclude too few centers.
    pub(super) fn watch_sketches(&mut self, labels: &mut Labels, swept: &Swept) {
        let (n, k) = (labels.of_rows.len() as u64, swept.clusters.weights().len() as u64);
        let pay = sketches_exclude_most(swept.distances, n, k);
        let serve = match &labels.sketches {
            // All rows are read anyway where sums are computed anew, as always with weights. Later, a row that is read
            // takes two distances or more.
            Some(sketches) if sketches.spare_reads() && !swept.weighted => {
                swept.exact || 2 * swept.distances <= 3 * n
            }
            _ => pay,
        };
        if self.asked == Algorithm::Auto && labels.sketches.is_some() && !serve {
            labels.sketches = None;
            self.algorithm = Algorithm::Lloyd;
        }
    }

    /// Evaluates the last sweep, number `sweeps`. Drops the bounds for a while if they save too little: a
    /// sweep that computes most distances is cheaper without them.
    pub(super) fn watch<T: Compute>(
        &mut self,
        labels: &mut Labels,
        packed: &PackedCenters<T>,
        swept: &Swept,
        sweeps: u64,
    ) {
        let before = std::mem::replace(&mut self.changed, swept.changed);
        if self.asked != Algorithm::Auto {
            return;
        }
        self.blurred = is_blurred(packed, swept);
        if labels.bounds.is_none() {
            return;
        }
        self.bounded_sweeps += 1;
        let (n, dim, k) = (labels.of_rows.len() as f64, packed.dim(), packed.n_centers());
        let expected = Costs::new::<T>(dim, k).expected(before as f64 / n);
        let costs = match self.algorithm {
            Algorithm::Exponion => Costs::new::<T>(dim, k).with_balls(dim),
            _ => Costs::new::<T>(dim, k),
        };
        // The first bounded sweep starts without bounds, and the second does not yet renew all group bounds.
        let one_bound = matches!(self.algorithm, Algorithm::Hamerly | Algorithm::Exponion);
        let settled = if one_bound { 2 } else { 3 };
        if self.bounded_sweeps < settled {
            return;
        }
        let share = swept.distances as f64 / (n * k as f64);
        let ratio = costs.ratio(share);
        self.lost = (self.lost + ratio - 1.0).max(0.0);
        if ratio > costs.most_later || self.lost > BOUNDED_LOSS || self.blurred {
            labels.bounds = None;
            self.algorithm = Algorithm::Lloyd;
            self.cost_factor = (share / expected.max(1e-6)).max(1.0);
            self.unbounded_until = sweeps + (sweeps / 2).max(BOUNDED_PAUSE);
        }
    }
}

/// Whether most rows belong to clusters whose spread is below the rounding of tile values, so that bounds
/// cannot tell centers apart. This happens when columns of very different ranges have not been scaled.
fn is_blurred<T: Compute>(packed: &PackedCenters<T>, swept: &Swept) -> bool {
    let norm = packed.largest_norm() / packed.scale();
    let gamma = rounding_of(packed, packed.dim());
    let (mut rows, mut blurred) = (0.0, 0.0);
    for (&energy, &weight) in swept.clusters.energies().iter().zip(swept.clusters.weights()) {
        let spread = if weight > 0.0 { (energy / weight).max(0.0) } else { 0.0 };
        let margin = 4.0 * gamma * ((norm + spread.sqrt()).powi(2) + norm * norm);
        rows += weight;
        // Once the spread is twice the margin, rounding uses up most of the slack of the bounds.
        blurred += if spread < 4.0 * margin { weight } else { 0.0 };
    }
    2.0 * blurred > rows
}

/// Whether rows with equal labels mostly stand together, as in a sorted file.
fn come_in_runs(labels: LabelsRef<'_>) -> bool {
    labels.steps() * BALL_RUN <= labels.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::centers::LabelList;
    use crate::kernel::sketched::are_fast;

    #[test]
    fn bounds_and_sketches_begin_only_if_enough_sweeps_follow() {
        let (k, dim) = (64, 40);
        let values: Vec<f32> = (0..k * dim).map(|i| i as f32).collect();
        let labels = LabelList::new(5000, k);
        for (most, wanted) in [(5, Algorithm::Lloyd), (6, Algorithm::Elkan)] {
            let choice = Choice::new(Algorithm::Auto, 1 << 30, most);
            assert_eq!(choice.worthwhile(labels.view(), MatRef::new(&values, dim), 1), wanted, "{most}");
        }
        let (k, dim) = (500, 100);
        let values: Vec<f32> = (0..k * dim).map(|i| i as f32).collect();
        let packed = PackedCenters::on(MatRef::new(&values, dim), false, Executor::caller());
        for (most, wanted) in [(1, false), (2, are_fast())] {
            let mut choice = Choice::new(Algorithm::Auto, 1 << 30, most);
            assert_eq!(choice.wants_sketches((4096, false), &packed, 0), wanted, "{most}");
        }
    }
}
