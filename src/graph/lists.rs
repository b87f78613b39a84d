//! The nearest neighbors found so far: a short sorted list per row.

use super::{About, KnnGraph};
use crate::error::Result;
use crate::matrix::make_room;

/// A neighbor: its squared distance and its index. Lists are sorted by these pairs.
pub(super) type Neighbor = (f64, u32);

/// An empty place.
const FREE: Neighbor = (f64::INFINITY, u32::MAX);

/// The lists of all rows, `width` places each.
#[derive(Debug)]
pub(super) struct NeighborLists {
    pub(super) width: usize,
    pub(super) places: Vec<Neighbor>,
}

impl NeighborLists {
    /// Empty lists for `n` rows.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) if they do not fit into memory.
    pub(super) fn new(n: u64, width: usize) -> Result<Self> {
        let mut places = Vec::new();
        make_room(&mut places, "a neighbor graph", n, width)?;
        places.resize(n as usize * width, FREE);
        Ok(Self { width, places })
    }

    /// The list of a row.
    pub(super) fn of(&self, row: u64) -> &[Neighbor] {
        &self.places[row as usize * self.width..][..self.width]
    }

    /// The list of a row, mutable.
    pub(super) fn of_mut(&mut self, row: u64) -> &mut [Neighbor] {
        &mut self.places[row as usize * self.width..][..self.width]
    }

    /// Copies of the lists of some rows.
    pub(super) fn copies(&self, rows: &[u64]) -> Vec<Neighbor> {
        rows.iter().flat_map(|&row| self.of(row)).copied().collect()
    }

    /// Appends the entries of `copies` that the lists of `rows` do not hold yet.
    pub(super) fn news(&self, rows: &[u64], copies: &[Neighbor], out: &mut Vec<(u64, Neighbor)>) {
        for (&row, copy) in rows.iter().zip(copies.chunks_exact(self.width)) {
            let known = self.of(row);
            let is_new = |&found: &Neighbor| {
                let at = known.partition_point(|&one| is_before(one, found));
                known.get(at) != Some(&found)
            };
            out.extend(copy.iter().copied().filter(is_new).map(|found| (row, found)));
        }
    }

    pub(super) fn into_graph(self, about: About) -> KnnGraph {
        let (sq_dists, neighbors) = self.places.into_iter().unzip();
        KnnGraph { n_neighbors: self.width, neighbors, sq_dists, about }
    }
}

/// Inserts a neighbor into a list, if it is among the nearest.
pub(super) fn offer(list: &mut [Neighbor], sq_dist: f64, id: u32) {
    let last = list.len() - 1;
    if is_before((sq_dist, id), list[last]) && list.iter().all(|found| found.1 != id) {
        let at = list.partition_point(|&found| is_before(found, (sq_dist, id)));
        list[at..].rotate_right(1);
        list[at] = (sq_dist, id);
    }
}

/// Whether one neighbor is sorted before another.
pub(super) fn is_before(one: Neighbor, other: Neighbor) -> bool {
    one.0 < other.0 || (one.0 == other.0 && one.1 < other.1)
}

/// The squared distance within which rows from index `first` on can enter the list. Negative if none can,
/// because the list is full of coinciding rows with lower indices.
pub(super) fn reach(list: &[Neighbor], first: u32) -> f64 {
    let (sq_dist, id) = list[list.len() - 1];
    if sq_dist == 0.0 && id < first { -1.0 } else { sq_dist }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_stay_in_order_and_once() {
        let mut list = [FREE; 3];
        for (sq_dist, id) in [(4.0, 7), (2.0, 9), (4.0, 3), (4.0, 5), (9.0, 0)] {
            offer(&mut list, sq_dist, id);
        }
        assert_eq!(list, [(2.0, 9), (4.0, 3), (4.0, 5)]);
        assert_eq!((reach(&list, 100), reach(&[(0.0, 4)], 5), reach(&[(0.0, 4)], 4)), (4.0, -1.0, 0.0));
    }
}
