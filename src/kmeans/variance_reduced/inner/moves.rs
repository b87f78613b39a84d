//! How far the centers have moved since the start of a block of steps.

use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::variance_reduced::packing::Few;

/// The moves of all centers. Lengths are upper bounds.
pub(super) struct Moves<T: Compute> {
    /// The length of the path per center, without `common`.
    pub(super) path: Vec<f64>,
    /// The centers with a path.
    moved: Vec<u32>,
    /// The longest path, and the longest path of a center that is not among the few.
    pub(super) farthest: f64,
    pub(super) creep: f64,
    /// The length of the moves that all centers have in common.
    pub(super) common: f64,
    /// Centers that moved by more than `near`, or because a row got a new label.
    pub(super) few: Few<T>,
    pub(super) near: f64,
    /// There is no room for another center that moved far.
    pub(super) over: bool,
}

impl<T: Compute> Moves<T> {
    /// No moves yet, with room for a few centers that move by more than `near`.
    pub(super) fn new(all: &PackedCenters<T>, room: usize, near: f64) -> Self {
        Self {
            path: vec![0.0; all.n_centers()],
            moved: Vec::new(),
            farthest: 0.0,
            creep: 0.0,
            common: 0.0,
            few: Few::new(all, room),
            near,
            over: false,
        }
    }

    /// Begins a new block.
    pub(super) fn clear(&mut self) {
        self.moved.drain(..).for_each(|j| self.path[j as usize] = 0.0);
        (self.farthest, self.creep, self.common, self.over) = (0.0, 0.0, 0.0, false);
        self.few.clear();
    }

    /// Records that center `j` moved by at most `moved`; `far` if a row got a new label.
    pub(super) fn note(&mut self, j: usize, moved: f64, far: bool) {
        if self.path[j] == 0.0 {
            self.moved.push(j as u32);
        }
        self.path[j] += moved;
        self.farthest = self.farthest.max(self.path[j]);
        if self.few.contains(j) || self.few.room() > 0 && (far || self.path[j] > self.near) {
            self.few.touch(j);
            self.over |= self.few.room() == 0;
        } else {
            self.creep = self.creep.max(self.path[j]);
        }
    }

    /// Records that all centers moved by at most `moved`.
    pub(super) fn note_all(&mut self, moved: f64) {
        self.common += moved;
        self.few.touch_all();
    }
}
