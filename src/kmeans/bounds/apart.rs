//! Evaluates the bounds of the last sweep for centers that have moved since, without changing the bounds.

use super::buffers::{BoundBuffers, RowBoundsMut};
use super::rounded::{sum_up, up};
use super::rules::Rules;
use super::{BASE_SWEEPS, PanelBounds, RowBounds};
use crate::kernel::bounded::least;
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rows::Rows;

/// The bounds of the last sweep, read for centers that have moved since.
pub(in crate::kmeans) struct Apart<'a> {
    of: &'a PanelBounds,
    /// Copy without per-row bounds, moved to the current centers.
    here: PanelBounds,
    /// Drift of each group, and of all centers.
    drift: Vec<f32>,
    far: f32,
}

impl PanelBounds {
    /// Packs the centers in the order of the bounds, for [`Apart::rules`]. `None` if the scale of the centers
    /// no longer matches that of the bounds.
    pub(in crate::kmeans) fn pack_apart<T: Compute>(
        &self,
        centers: MatRef<'_, T>,
        sparse: bool,
    ) -> Option<PackedCenters<T>> {
        let packed = self.laid_out(centers, sparse, Executor::caller());
        let same = packed.scale() == self.scale && self.can_tell(packed.largest_norm());
        // Rows are indexed by `u32`.
        (same && u32::try_from(self.rows.upper.len()).is_ok()).then_some(packed)
    }

    /// The slot per center in that packing; empty if the slot is the center's index.
    pub(in crate::kmeans) fn slots(&self) -> &[u32] {
        if self.is_single() { &[] } else { &self.slot }
    }

    /// Factor from lengths in the data to lengths in bounds.
    pub(in crate::kmeans) fn unit(&self) -> f64 {
        self.scale * self.unit
    }

    /// Bounds for centers that each moved at most `moves[j]` since the last sweep, with no `follow` in
    /// between.
    pub(in crate::kmeans) fn apart<T: Compute>(&self, moves: &[f64]) -> Apart<'_> {
        let fresh = self.age >= BASE_SWEEPS;
        let mut here = Self {
            order: self.order.clone(),
            slot: self.slot.clone(),
            drift: if fresh { vec![0.0; self.drift.len()] } else { self.drift.clone() },
            moves: moves.iter().map(|&moved| up(moved)).collect(),
            age: 0,
            far_drift: if fresh { 0.0 } else { self.far_drift },
            // Center-to-center distances cost too much for a few rows.
            few_centers: false,
            balls: false,
            rows: RowBounds::default(),
            ..*self
        };
        here.drift_by::<T>(moves);
        Apart {
            of: self,
            drift: here.drift.iter().map(|&drift| up(drift)).collect(),
            far: up(here.far_drift),
            here,
        }
    }
}

impl Apart<'_> {
    /// An upper bound on the row's distance to its center, and a lower bound on its distances to all others.
    pub(in crate::kmeans) fn of_row(&self, row: usize, label: u32) -> (f32, f32) {
        let rows = &self.of.rows;
        (sum_up(rows.upper[row], self.here.moves[label as usize]), rows.least[row] - self.far)
    }

    /// Lower bounds on the distances to all other centers, from the group bounds. Empty if rows have a single
    /// bound.
    pub(in crate::kmeans) fn by_group(&self, rows: &[u32], out: &mut Vec<f32>) {
        out.clear();
        if !self.here.is_single() {
            out.resize(rows.len(), f32::NEG_INFINITY);
            least(&self.of.rows.lower, &self.drift, rows, out);
        }
    }

    /// Rules for labeling rows now. `beyond` is added to the upper bounds of all rows, so that centers can move.
    pub(in crate::kmeans) fn rules<'a, T: Compute>(
        &'a self,
        packed: &'a PackedCenters<T>,
        values: usize,
        beyond: f32,
    ) -> Rules<'a, T> {
        let mut rules = self.here.rules(packed, values);
        rules.beyond = beyond;
        rules
    }

    /// Labels `rows`, which have the numbers `picked` and the labels `of_rows`. `found` receives the label,
    /// the upper bound, and the lower bound to all other centers. Returns the number of distances computed.
    pub(in crate::kmeans) fn settle<T: Compute>(
        &self,
        rules: &Rules<'_, T>,
        rows: Rows<'_, T>,
        (picked, of_rows): (&[u32], &[u32]),
        work: &mut Settling<T>,
        found: &mut Vec<(u32, f64, f64)>,
    ) -> u64 {
        let (groups, all) = (self.here.n_groups, &self.of.rows);
        let RowBounds { upper, least: others, lower } = &mut work.bounds;
        upper.clear();
        others.clear();
        lower.clear();
        for &row in picked {
            let row = row as usize;
            // Raised by `beyond`, so that a row is examined if another center may come as near.
            upper.push(all.upper[row] + rules.beyond);
            others.push(all.least[row]);
            lower.extend_from_slice(&all.lower[row * groups..][..groups]);
        }
        let mut bounds = RowBoundsMut { upper, least: others, lower };
        rules.near(of_rows, &mut bounds, &mut work.work);
        let distances = rules.label(rows, of_rows, bounds, &mut work.work);
        work.numbers.clear();
        work.numbers.extend(0..picked.len() as u32);
        work.least.clear();
        if self.here.is_single() {
            work.least.extend(others.iter().map(|&least| least - self.far));
        } else {
            work.least.resize(picked.len(), f32::NEG_INFINITY);
            least(lower, &self.drift, &work.numbers, &mut work.least);
        }
        found.clear();
        let bound = |bounds: &[f32], r: usize| f64::from(bounds[r]);
        found.extend((0..picked.len()).map(|r| (of_rows[r], bound(upper, r), bound(&work.least, r))));
        for &(r, label) in &work.work.changes {
            found[r as usize].0 = label;
        }
        distances
    }
}

/// Buffers of one worker.
#[derive(Default)]
pub(in crate::kmeans) struct Settling<T: Compute> {
    work: BoundBuffers<T>,
    bounds: RowBounds,
    numbers: Vec<u32>,
    least: Vec<f32>,
}
