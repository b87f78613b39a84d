//! This module knows bounds by panel of centers: exact labels for few distances.
//!
//! The grouped bounds of Yinyang k-means (Ding et al., 2015), with the kernel's panels as the groups, so that the rows that survive a bound
//! are labelled by the tile kernel. Every row keeps an upper bound on the distance to its center, a lower bound on the distances to all
//! other centers, and, but where one is enough (`single`), a lower bound for each group of panels. A lower bound is stored with the drift
//! of its centers at that time added, so that a sweep writes only those that it renews.
//!
//! Labels are the canonical ones, bit for bit those of a plain sweep: tile values decide between centers, and a group is left out only
//! where its bound exceeds the upper bound by more than the rounding of tile values.
//!
//! Bounds are lengths in units of about the largest center, so that their squares neither overflow nor vanish in `f32`.

mod apart;
mod grow;
mod similar;
mod single;
mod sweep;
#[cfg(test)]
mod tests;

use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::tuning::{ROWS_IN_LANES_DIM, bounded_chunk_rows};
pub(super) use apart::{Apart, Settling};
use grow::affordable;
use similar::similar_together;
pub(super) use sweep::{RowBoundsMut, Work, lost_of, rounding_of};

/// The nearest `f32` that is not below.
fn up(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) < x { nearest.next_up() } else { nearest }
}

/// The nearest `f32` that is not above.
fn down(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) > x { nearest.next_down() } else { nearest }
}

/// What all rows share: the order of the centers, and how far they moved.
#[derive(Clone, Debug)]
pub(super) struct PanelBounds {
    /// The center in each slot of the packed order.
    order: Vec<u32>,
    /// The slot of each center.
    slot: Vec<u32>,
    /// Panels in a group, but for the last one.
    group_panels: usize,
    n_groups: usize,
    /// Sum of the largest moves in each group since the bounds were based.
    drift: Vec<f64>,
    /// The last move of each center.
    moves: Vec<f32>,
    /// The factor from lengths of the data to packed ones, and from those to lengths here.
    scale: f64,
    unit: f64,
    /// Sweeps since the bounds were based.
    age: u32,
    /// Sum of the largest moves of all centers since then.
    far_drift: f64,
    /// The distances between centers cost little beside a sweep.
    few_centers: bool,
    /// Rows meet only centers about their own one, where that is possible.
    balls: bool,
    /// There is a lower bound for each center, and groups are single centers.
    fine: bool,
    rows: RowBounds,
}

/// What is kept of every row.
#[derive(Clone, Debug, Default)]
pub(super) struct RowBounds {
    /// Upper bound of the distance to the row's own center.
    pub(super) upper: Vec<f32>,
    /// Lower bound of the distances to all other centers, with the drift of all added.
    pub(super) least: Vec<f32>,
    /// Lower bounds by group, a row of them each, with the drift of the group added.
    pub(super) lower: Vec<f32>,
}

impl RowBounds {
    /// Makes it `n` rows of which nothing is known.
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

/// A lower bound that says nothing; finite, so that drift taken from it leaves a number.
const LOWEST: f32 = f32::MIN;

/// Sweeps after which the lower bounds are based anew: until then drift is at most about so many moves, and `f32` tells it apart.
const BASE_SWEEPS: u32 = 32;

impl PanelBounds {
    /// No bounds yet for `n` rows, in at most `budget` bytes; `None` where not even one bound a row fits.
    pub(super) fn new<T: Compute>(centers: MatRef<'_, T>, n: usize, budget: u64) -> Option<Self> {
        Self::grouped(centers, n, budget, 1)
    }

    /// The same with at least `least_panels` panels in a group.
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
        let mut new = Self {
            order,
            slot,
            group_panels,
            n_groups,
            drift: vec![0.0; n_groups],
            moves: vec![0.0; k],
            scale: 0.0,
            unit: 1.0,
            age: 0,
            far_drift: 0.0,
            few_centers: false,
            balls: false,
            fine: false,
            rows: RowBounds::default(),
        };
        new.rows.reset(n, n_groups);
        Some(new)
    }

    /// One bound a row, for `n` rows; `None` where `budget` bytes do not hold it. With `balls`, rows meet only centers about their own one,
    /// where the distances between all centers fit too.
    pub(super) fn single<T: Compute>(
        centers: MatRef<'_, T>,
        n: usize,
        budget: u64,
        balls: bool,
    ) -> Option<Self> {
        let left = budget.checked_sub(8 * n as u64)?;
        let k = centers.rows() as u64;
        // Distances between all centers are made by one thread, before each sweep.
        let few_centers = k * k <= 64 * n as u64;
        let mut new = Self {
            order: (0..centers.rows() as u32).collect(),
            slot: (0..centers.rows() as u32).collect(),
            group_panels: 0,
            n_groups: 0,
            drift: Vec::new(),
            moves: vec![0.0; centers.rows()],
            scale: 0.0,
            unit: 1.0,
            age: 0,
            far_drift: 0.0,
            few_centers: false,
            balls: false,
            fine: false,
            rows: RowBounds::default(),
        };
        new.rows.reset(n, 0);
        new.few_centers = few_centers;
        new.balls = balls && few_centers && left >= 4 * k * k;
        Some(new)
    }

    /// A bound for every row and center, for `n` rows; `None` where `budget` bytes do not hold them.
    pub(super) fn fine<T: Compute>(centers: MatRef<'_, T>, n: usize, budget: u64) -> Option<Self> {
        let width = PackedCenters::<T>::panel_centers();
        // The last panel is filled up with slots that no center has.
        let slots = centers.rows().next_multiple_of(width);
        if affordable(n, budget) < slots as u64 {
            return None;
        }
        let mut new = Self::grouped(centers, 0, budget, 1)?;
        new.rows.reset(n, 0);
        (new.group_panels, new.n_groups, new.fine) = (1, slots, true);
        new.drift = vec![0.0; slots];
        // The lower bounds are made when centers are packed first.
        Some(new)
    }

    /// Whether there is one bound a row, and none by group.
    fn is_single(&self) -> bool {
        self.n_groups == 0
    }

    /// Rows that are tested together: where they meet their centers label by label, as many as there are in a tile.
    pub(super) fn chunk_rows(&self, dim: usize) -> usize {
        if self.balls && dim <= ROWS_IN_LANES_DIM { usize::MAX } else { bounded_chunk_rows(dim) }
    }

    /// Takes the bounds of all rows out for a sweep.
    pub(super) fn take_rows(&mut self) -> RowBounds {
        std::mem::take(&mut self.rows)
    }

    /// Puts them back. Left out, they are lost: a sweep that fails begins anew.
    pub(super) fn put_rows(&mut self, rows: RowBounds) {
        self.rows = rows;
    }

    /// The exact method whose bounds these are most like.
    pub(super) fn name(&self) -> &'static str {
        match (self.group_panels, self.n_groups) {
            (_, 0) => "hamerly",
            (1, _) => "elkan",
            (_, 1) => "hamerly",
            _ => "yinyang",
        }
    }

    /// Lower bounds of a row.
    pub(super) fn n_groups(&self) -> usize {
        self.n_groups
    }

    /// Packs the centers for a sweep over rows that are `sparse`, or dense.
    pub(super) fn pack<T: Compute>(&mut self, centers: MatRef<'_, T>, sparse: bool) -> PackedCenters<T> {
        let packed = self.laid_out(centers, sparse);
        if packed.by_difference() {
            // A plain sweep follows.
            self.forget();
            return packed;
        }
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

    /// The centers, packed in the order of the bounds.
    fn laid_out<T: Compute>(&self, centers: MatRef<'_, T>, sparse: bool) -> PackedCenters<T> {
        if self.is_single() {
            PackedCenters::for_rows(centers, sparse)
        } else {
            PackedCenters::in_order(centers, &self.order, sparse)
        }
    }

    /// Whether packed centers of that largest length can be told apart by bounds in their present unit.
    fn can_tell(&self, largest: f64) -> bool {
        largest == 0.0 || (1e-6..1e6).contains(&(largest * self.unit))
    }

    /// Labels were changed by somebody else, or centers jumped: nothing is known any more.
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

    /// The centers moved from `old` to `new` after a sweep by [`PanelBounds::rules`].
    pub(super) fn follow<T: Compute>(&mut self, old: MatRef<'_, T>, new: MatRef<'_, T>) {
        if self.age >= BASE_SWEEPS {
            self.drift.fill(0.0);
            self.far_drift = 0.0;
            self.age = 0;
        }
        self.age += 1;
        let moves = old.iter().zip(new.iter()).map(|(old, new)| {
            // Scaled before it is squared: the square must neither overflow nor vanish.
            let moves = old.iter().zip(new).map(|(old, new)| (new.to_f64() - old.to_f64()) * self.scale);
            moves.map(|moved| moved * moved).sum::<f64>().sqrt() * self.unit * (1.0 + 1e-12)
        });
        let moves: Vec<f64> = moves.collect();
        self.moves.iter_mut().zip(&moves).for_each(|(last, &moved)| *last = up(moved));
        if self.drift_by::<T>(&moves).is_infinite() {
            self.forget();
        }
    }

    /// Adds the largest of these moves to the drift of each group and of all centers; gives the latter.
    fn drift_by<T: Compute>(&mut self, moves: &[f64]) -> f64 {
        let group_centers =
            if self.fine { 1 } else { self.group_panels * PackedCenters::<T>::panel_centers() };
        let group_centers = group_centers.max(1);
        let mut largest = vec![0.0f64; self.n_groups];
        // What is not a number is as good as infinite.
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
