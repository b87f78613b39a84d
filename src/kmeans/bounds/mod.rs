//! Triangle-inequality bounds by panel of centers: exact labels with few distance computations.
//!
//! Implements the grouped bounds of Yinyang k-means (Ding et al., 2015), with the kernel's panels as the
//! groups, so that the tile kernel labels the rows that survive a bound. Every row keeps an upper bound on
//! the distance to its center and a lower bound on the distances to all other centers. Unless the row has a
//! single bound (`single`), it also keeps a lower bound per group of panels. A lower bound is stored with the
//! drift of its centers at that time added, so that a sweep writes only the bounds that it renews.
//!
//! Labels are those of a plain sweep: a group is skipped only if its lower bound is not below the upper bound, and
//! the arbiter decides what tile values leave in doubt.
//!
//! Bounds are lengths in units of about the norm of the largest center, so that their squares neither
//! overflow nor underflow in `f32`.

mod apart;
mod buffers;
mod grow;
mod neighbors;
mod rounded;
mod rules;
mod similar;
mod single;
mod sweep;
#[cfg(test)]
mod tests;

use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::tuning::ROWS_IN_LANES_DIM;
pub(super) use apart::{Apart, Settling};
pub(super) use buffers::{BoundBuffers, RowBoundsMut};
use grow::affordable;
use rounded::{length_up, up};
pub(super) use rules::{lost_share, rounding_of};
pub(super) use similar::similar_together;

/// Rows whose bounds a bounded sweep tests together: enough that the remaining rows fill micro tiles, few
/// enough to stay in the second-level cache (example of the bench `bounded`).
const fn bounded_chunk_rows(dim: usize) -> usize {
    let fit = 256 * 1024 / (4 * dim) / 64 * 64;
    if fit < 128 {
        128
    } else if fit > 1024 {
        1024
    } else {
        fit
    }
}

/// Bounds of all rows, the order of the centers, and how far the centers moved.
#[derive(Clone, Debug)]
pub(super) struct PanelBounds {
    /// The center in each slot of the packed order.
    order: Vec<u32>,
    /// The slot per center.
    slot: Vec<u32>,
    /// Panels per group; the last group may have fewer.
    group_panels: usize,
    n_groups: usize,
    /// Per group: sum over sweeps of the largest move of a center, since the bounds were rebased.
    drift: Vec<f64>,
    /// The last move per center.
    moves: Vec<f32>,
    /// Factor from lengths in the data to packed lengths, and from packed lengths to lengths in bounds.
    scale: f64,
    unit: f64,
    /// Sweeps since the bounds were rebased.
    age: u32,
    /// Sum over sweeps of the largest move of any center, since the bounds were rebased.
    far_drift: f64,
    /// The center-to-center distances are cheap next to a sweep.
    few_centers: bool,
    /// Rows are compared only with centers in a ball around their own, where possible.
    balls: bool,
    /// Every center is a group of its own, with its own lower bound.
    fine: bool,
    rows: RowBounds,
}

/// Bounds of every row.
#[derive(Clone, Debug, Default)]
pub(super) struct RowBounds {
    /// Upper bound on the distance to the row's own center.
    pub(super) upper: Vec<f32>,
    /// Lower bound on the distances to all other centers, plus the drift of all centers.
    pub(super) least: Vec<f32>,
    /// Lower bounds by group, `n_groups` per row, plus the drift of the group.
    pub(super) lower: Vec<f32>,
}

impl RowBounds {
    /// Resets to `n` rows without bounds.
    fn reset(&mut self, n: usize, groups: usize) {
        for (bounds, length, nothing) in [
            (&mut self.upper, n, f32::INFINITY),
            (&mut self.least, n, LOWEST),
            (&mut self.lower, n * groups, LOWEST),
        ] {
            bounds.clear();
            bounds.resize(length, nothing);
        }
    }
}

/// A lower bound that excludes nothing; finite, so that subtracting drift leaves a number.
const LOWEST: f32 = f32::MIN;

const BASE_SWEEPS: u32 = 32;

impl PanelBounds {
    /// Empty bounds for `n` rows in at most `budget` bytes; `None` if not even one bound per row fits.
    pub(super) fn new<T: Compute>(centers: MatRef<'_, T>, n: usize, budget: u64) -> Option<Self> {
        Self::grouped(centers, n, budget, 1)
    }

    /// Like [`PanelBounds::new`], with at least `least_panels` panels per group.
    pub(super) fn grouped<T: Compute>(
        centers: MatRef<'_, T>,
        n: usize,
        budget: u64,
        least_panels: usize,
    ) -> Option<Self> {
        let width = PackedCenters::<T>::panel_centers();
        let k = centers.rows();
        let panels = k.div_ceil(width);
        let affordable = affordable(n, budget).min(panels as u64) as usize;
        if affordable == 0 {
            return None;
        }
        let group_panels = panels.div_ceil(affordable).max(least_panels.min(panels));
        let n_groups = panels.div_ceil(group_panels);
        let order = similar_together(centers, width);
        let mut slot = vec![0; k];
        for (s, &j) in order.iter().enumerate() {
            slot[j as usize] = s as u32;
        }
        Some(Self::settled(order, slot, group_panels, n_groups, n))
    }

    /// Bounds for `n` rows before the centers first move.
    fn settled(order: Vec<u32>, slot: Vec<u32>, group_panels: usize, n_groups: usize, n: usize) -> Self {
        let mut rows = RowBounds::default();
        rows.reset(n, n_groups);
        Self {
            moves: vec![0.0; order.len()],
            order,
            slot,
            group_panels,
            n_groups,
            drift: vec![0.0; n_groups],
            scale: 0.0,
            unit: 1.0,
            age: 0,
            far_drift: 0.0,
            few_centers: false,
            balls: false,
            fine: false,
            rows,
        }
    }

    /// One bound per row for `n` rows; `None` if it does not fit into `budget` bytes. With `balls`, rows are
    /// compared only with centers in a ball around their own, if the center-to-center distances fit too.
    pub(super) fn single<T: Compute>(
        centers: MatRef<'_, T>,
        n: usize,
        budget: u64,
        balls: bool,
    ) -> Option<Self> {
        let left = budget.checked_sub(8 * n as u64)?;
        let k = centers.rows() as u64;
        // One thread computes the center-to-center distances before each sweep.
        let few_centers = k * k <= 64 * n as u64;
        let order: Vec<u32> = (0..centers.rows() as u32).collect();
        let mut new = Self::settled(order.clone(), order, 0, 0, n);
        new.few_centers = few_centers;
        new.balls = balls && few_centers && left >= 4 * k * k;
        Some(new)
    }

    /// One bound per row and center for `n` rows; `None` if they do not fit into `budget` bytes.
    pub(super) fn fine<T: Compute>(centers: MatRef<'_, T>, n: usize, budget: u64) -> Option<Self> {
        let width = PackedCenters::<T>::panel_centers();
        // The last panel is padded with slots that hold no center.
        let slots = centers.rows().next_multiple_of(width);
        if affordable(n, budget) < slots as u64 {
            return None;
        }
        let mut new = Self::grouped(centers, 0, budget, 1)?;
        new.rows.reset(n, 0);
        (new.group_panels, new.n_groups, new.fine) = (1, slots, true);
        new.drift = vec![0.0; slots];
        // `pack` fills in the lower bounds.
        Some(new)
    }

    /// Whether rows have a single lower bound and none by group.
    fn is_single(&self) -> bool {
        self.n_groups == 0
    }

    /// Rows that are tested together. With balls and few columns: a whole tile, because rows are grouped by
    /// label.
    pub(super) fn chunk_rows(&self, dim: usize) -> usize {
        if self.balls && dim <= ROWS_IN_LANES_DIM { usize::MAX } else { bounded_chunk_rows(dim) }
    }

    /// Takes the bounds of all rows out for a sweep.
    pub(super) fn take_rows(&mut self) -> RowBounds {
        std::mem::take(&mut self.rows)
    }

    /// Puts the bounds back. After a failed sweep they are lost, and the next sweep starts without bounds.
    pub(super) fn put_rows(&mut self, rows: RowBounds) {
        self.rows = rows;
    }

    /// The bytes of the bounds, and of what is known per center and group.
    pub(super) fn bytes(&self) -> usize {
        let RowBounds { upper, least, lower } = &self.rows;
        4 * (upper.len() + least.len() + lower.len()) + 12 * self.order.len() + 8 * self.n_groups
    }

    /// The published method that these bounds correspond to.
    pub(super) fn name(&self) -> &'static str {
        match (self.group_panels, self.n_groups) {
            (_, 0) => "hamerly",
            (1, _) => "elkan",
            (_, 1) => "hamerly",
            _ => "yinyang",
        }
    }

    /// Number of group bounds per row.
    pub(super) fn n_groups(&self) -> usize {
        self.n_groups
    }

    /// Packs the centers for a sweep over sparse or dense rows.
    pub(super) fn pack<T: Compute>(
        &mut self,
        centers: MatRef<'_, T>,
        sparse: bool,
        cx: &Executor,
    ) -> PackedCenters<T> {
        let packed = self.laid_out(centers, sparse, cx);
        let largest = packed.largest_norm();
        let fits = self.can_tell(largest);
        if packed.scale() != self.scale || !fits {
            self.forget();
            self.scale = packed.scale();
            let exponent = if largest > 0.0 { largest.log2().floor() as i32 } else { 0 };
            self.unit = 2f64.powi(-exponent.clamp(-1000, 1000));
        }
        packed
    }

    fn laid_out<T: Compute>(&self, centers: MatRef<'_, T>, sparse: bool, cx: &Executor) -> PackedCenters<T> {
        if self.is_single() {
            PackedCenters::on(centers, sparse, cx)
        } else {
            PackedCenters::in_order(centers, &self.order, sparse, cx)
        }
    }

    /// Whether `f32` bounds in the current unit can resolve packed centers whose largest norm is `largest`.
    fn can_tell(&self, largest: f64) -> bool {
        largest == 0.0 || (1e-6..1e6).contains(&(largest * self.unit))
    }

    /// Invalidates all bounds, after labels were changed elsewhere or centers jumped.
    pub(super) fn forget(&mut self) {
        self.rows.reset(self.rows.upper.len(), self.n_groups);
        if self.fine {
            for row in self.rows.lower.chunks_exact_mut(self.n_groups) {
                row[self.order.len()..].fill(f32::INFINITY);
            }
        }
        self.drift.fill(0.0);
        self.far_drift = 0.0;
        self.moves.fill(0.0);
        self.age = 0;
    }

    /// Records that the centers moved from `old` to `new` after a sweep with [`PanelBounds::rules`].
    pub(super) fn follow<T: Compute>(&mut self, old: MatRef<'_, T>, new: MatRef<'_, T>, cx: &Executor) {
        if self.age >= BASE_SWEEPS {
            self.drift.fill(0.0);
            self.far_drift = 0.0;
            self.age = 0;
        }
        self.age += 1;
        let mut moves = vec![0.0; old.rows()];
        cx.fill(&mut moves, old.cols(), |j| length_up(old.row(j), new.row(j), self.scale, self.unit));
        self.moves.iter_mut().zip(&moves).for_each(|(last, &moved)| *last = up(moved));
        if self.drift_by::<T>(&moves).is_infinite() {
            self.forget();
        }
    }

    /// Adds the largest of these moves to the drift of each group and of all centers. Returns the largest
    /// move.
    fn drift_by<T: Compute>(&mut self, moves: &[f64]) -> f64 {
        let group_centers =
            if self.fine { 1 } else { self.group_panels * PackedCenters::<T>::panel_centers() };
        let group_centers = group_centers.max(1);
        let mut largest = vec![0.0f64; self.n_groups];
        // NaN counts as infinite.
        let mut farthest = 0.0f64;
        for (&slot, &moved) in self.slot.iter().zip(moves) {
            farthest = farthest.max(if moved.is_nan() { f64::INFINITY } else { moved });
            if let Some(group) = largest.get_mut(slot as usize / group_centers) {
                *group = group.max(moved);
            }
        }
        self.far_drift += farthest;
        for (drift, moved) in self.drift.iter_mut().zip(largest) {
            *drift += moved;
        }
        farthest
    }
}
