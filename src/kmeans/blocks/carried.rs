//! Candidates of a branch that serve for several sweeps.
//!
//! With a skin, a center is dropped for a box only if it stays dropped while each center moves by at most its
//! allowance (`kernel::blocks`). Let `R` be the candidates of the root of a branch, and let a later sweep find
//! the candidates `N` of the root afresh. If `N` is a subset of `R`, and no center of `R` is farther from its
//! place at the time than its allowance, then the nearest center of every row of the branch is in `R`, and every
//! drop below the root still holds: both centers of each test are in `R`. So boxes with one candidate keep their
//! label, and the rows of the other leaves are compared with the same lists.

use crate::kernel::blocks::{Candidates, Skin, apart};
use crate::kernel::{Compute, PackedCenters};

/// The candidates of a branch, with the places of the centers at the time.
#[derive(Clone, Debug)]
pub(super) struct Carried<T> {
    /// The candidates of the root, their places in the data, and how far each may move.
    ids: Vec<u32>,
    places: Vec<T>,
    allowed: Vec<T>,
    /// The frame of the packed centers, and how far its shift may move.
    frame: (Vec<T>, T),
    shift_allowed: T,
    /// The leaves with several candidates, and where the list of each ends.
    open: Vec<(u32, u32)>,
    lists: Vec<u32>,
}

impl<T: Compute> Carried<T> {
    /// The candidates of the root, before any leaf is added.
    pub(super) fn of(packed: &PackedCenters<T>, root: &Candidates<T>, skin: Skin<T>) -> Self {
        let places = root.ids().iter().flat_map(|&j| packed.centers().row(j as usize));
        Self {
            ids: root.ids().to_vec(),
            places: places.copied().collect(),
            allowed: root.allowed(skin),
            frame: (packed.frame().0.to_vec(), packed.frame().1),
            shift_allowed: skin.shift(),
            open: Vec::new(),
            lists: Vec::new(),
        }
    }

    /// Adds a leaf with several candidates. Returns `false` if the lists would be longer than `most`.
    pub(super) fn push(&mut self, leaf: usize, list: &[u32], most: usize) -> bool {
        if self.lists.len() + list.len() > most {
            return false;
        }
        self.lists.extend_from_slice(list);
        self.open.push((leaf as u32, self.lists.len() as u32));
        true
    }

    /// Whether the candidates still serve, given those that the root has now.
    pub(super) fn holds(&self, packed: &PackedCenters<T>, now: &Candidates<T>) -> bool {
        let (shift, scale) = packed.frame();
        let near = |a: &[T], b: &[T], allowed: T| apart(a, b, scale) <= allowed;
        let mut known = self.ids.iter();
        scale == self.frame.1
            && near(shift, &self.frame.0, self.shift_allowed)
            && now.ids().iter().all(|id| known.any(|known| known == id))
            && self
                .ids
                .iter()
                .zip(self.places.chunks_exact(packed.dim()))
                .zip(&self.allowed)
                .all(|((&j, place), &allowed)| near(packed.centers().row(j as usize), place, allowed))
    }

    /// The leaves with several candidates, and their candidates.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let mut start = 0;
        self.open.iter().map(move |&(leaf, end)| {
            let list = &self.lists[start..end as usize];
            start = end as usize;
            (leaf as usize, list)
        })
    }
}
