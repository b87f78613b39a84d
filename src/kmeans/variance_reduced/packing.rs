//! Packed copies of moving centers, updated when they are read.

use super::moving::Moving;
use crate::kernel::{Compute, PackedCenters};

/// Marks a center without a place.
const NOWHERE: u32 = u32::MAX;

/// All centers, packed.
pub(super) struct Packing<'a, T: Compute> {
    pub(super) packed: PackedCenters<T>,
    /// The slot per center; empty if the slot is the center's index.
    slots: &'a [u32],
    stale: Stale,
}

/// The places that must be packed again.
struct Stale {
    places: Vec<u32>,
    is: Vec<bool>,
}

impl Stale {
    fn new(n: usize) -> Self {
        Self { places: Vec::new(), is: vec![false; n] }
    }

    fn note(&mut self, place: usize) {
        if !std::mem::replace(&mut self.is[place], true) {
            self.places.push(place as u32);
        }
    }

    /// Removes all places and calls `f` with each.
    fn take(&mut self, mut f: impl FnMut(usize)) {
        for place in self.places.drain(..) {
            self.is[place as usize] = false;
            f(place as usize);
        }
    }
}

impl<'a, T: Compute> Packing<'a, T> {
    pub(super) fn new(packed: PackedCenters<T>, slots: &'a [u32]) -> Self {
        let stale = Stale::new(packed.n_centers());
        Self { packed, slots, stale }
    }

    /// Records that center `j` has moved.
    pub(super) fn touch(&mut self, j: usize) {
        self.stale.note(j);
    }

    /// All centers, up to date. `center` is a buffer.
    pub(super) fn sync(&mut self, moving: &Moving, center: &mut [T]) -> &PackedCenters<T> {
        self.stale.take(|j| {
            moving.write(j, center);
            self.packed.place(j, self.slots.get(j).map_or(j, |&slot| slot as usize), center);
        });
        &self.packed
    }
}

/// The few centers that have moved far since the start of a block, packed.
pub(super) struct Few<T: Compute> {
    pub(super) packed: PackedCenters<T>,
    /// The center in each place, and the place per center.
    pub(super) centers: Vec<u32>,
    place: Vec<u32>,
    stale: Stale,
}

impl<T: Compute> Few<T> {
    /// An empty set of centers packed like `all`, with room for `room`.
    pub(super) fn new(all: &PackedCenters<T>, room: usize) -> Self {
        Self {
            packed: all.places(room.max(1)),
            centers: Vec::with_capacity(room),
            place: vec![NOWHERE; all.n_centers()],
            stale: Stale::new(room),
        }
    }

    pub(super) fn contains(&self, j: usize) -> bool {
        self.place[j] != NOWHERE
    }

    /// Number of centers that can still be added.
    pub(super) fn room(&self) -> usize {
        self.stale.is.len() - self.centers.len()
    }

    /// Records that center `j` has moved, and adds it if it is new.
    pub(super) fn touch(&mut self, j: usize) {
        if !self.contains(j) {
            self.place[j] = self.centers.len() as u32;
            self.centers.push(j as u32);
        }
        self.stale.note(self.place[j] as usize);
    }

    /// Records that all of these centers have moved.
    pub(super) fn touch_all(&mut self) {
        (0..self.centers.len()).for_each(|place| self.stale.note(place));
    }

    pub(super) fn clear(&mut self) {
        if !self.centers.is_empty() {
            self.stale.take(|_| ());
            self.centers.drain(..).for_each(|j| self.place[j as usize] = NOWHERE);
            self.packed.clear();
        }
    }

    /// These centers, up to date. `center` is a buffer.
    pub(super) fn sync(&mut self, moving: &Moving, center: &mut [T]) -> &PackedCenters<T> {
        self.stale.take(|place| {
            moving.write(self.centers[place] as usize, center);
            self.packed.place(place, place, center);
        });
        &self.packed
    }
}
