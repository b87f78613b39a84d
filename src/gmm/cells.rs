//! This module knows how rows find components near them before they know any: through the first few means, each of which knows the means around it.

use super::neighbourhoods::sort_by_key;
use crate::error::Result;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::tuning::{PROBED_CELLS, STRIP_ROWS};

/// All means in cells, one for each of the first few, the pivots: a mean lies in the cell of the pivot that is nearest to it, the first of equal
/// ones. Seedings by distance give means that are far apart first; where pivots lie together, some cells are large, and rows measure more.
#[derive(Debug)]
pub(super) struct Cells {
    /// Where the members of each begin.
    starts: Vec<u32>,
    members: Vec<u32>,
}

impl Cells {
    /// The cells of these means. Takes `k sqrt(2 k)` distances.
    pub(super) fn new<T: Compute>(means: MatRef<'_, T>, cx: &Executor) -> Result<Self> {
        let k = means.rows();
        // A row that measures the pivots, and the members of the cells that it looks into, measures fewest in all.
        let pivots = (((PROBED_CELLS * k) as f64).sqrt().ceil() as usize).min(k);
        let packed = PackedCenters::new(means.slice(0, pivots));
        let mut cell_of = vec![0; k];
        let tiles = cell_of.chunks_mut(STRIP_ROWS).enumerate();
        cx.for_each(tiles, Scratch::default, |(tile, cells), scratch| {
            let rows = means.slice(tile * STRIP_ROWS, tile * STRIP_ROWS + cells.len());
            kernel::nearest(rows, &packed, cells, scratch);
            Ok(())
        })?;
        let (mut starts, mut members) = (Vec::new(), Vec::new());
        sort_by_key(cell_of.iter().copied(), pivots, &mut starts, &mut members);
        // Sorting has left there where each cell ends.
        starts.rotate_right(1);
        starts[0] = 0;
        Ok(Self { starts, members })
    }

    /// Number of pivots: the means 0 to before that.
    pub(super) fn pivots(&self) -> usize {
        self.starts.len() - 1
    }

    /// Distances that it took to make them.
    pub(super) fn distances(&self) -> u64 {
        (self.members.len() * self.pivots()) as u64
    }

    /// The means in the cell of a pivot: none where an equal one comes before it.
    #[inline]
    pub(super) fn of_pivot(&self, pivot: u32) -> &[u32] {
        let pivot = pivot as usize;
        &self.members[self.starts[pivot] as usize..self.starts[pivot + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mean_lies_in_the_cell_of_its_nearest_pivot() {
        let cx = Executor::new(Some(2)).unwrap();
        for (k, distinct) in [(1usize, 1), (2, 2), (3, 3), (50, 50), (50, 7), (700, 700)] {
            let means: Vec<f32> =
                (0..2 * k).map(|i| i % (2 * distinct)).map(|i| ((i * i * 7919) % 1009) as f32).collect();
            let means = MatRef::new(&means, 2);
            let cells = Cells::new(means, &cx).unwrap();
            assert_eq!(cells.pivots(), k.min(((2 * k) as f64).sqrt().ceil() as usize));
            let mut seen = vec![false; k];
            for pivot in 0..cells.pivots() {
                for &j in cells.of_pivot(pivot as u32) {
                    let sq = |p: usize| {
                        means
                            .row(p)
                            .iter()
                            .zip(means.row(j as usize))
                            .map(|(a, b)| (a - b).powi(2))
                            .sum::<f32>()
                    };
                    assert!((0..cells.pivots()).all(|other| sq(pivot) <= sq(other)));
                    assert!(!std::mem::replace(&mut seen[j as usize], true));
                }
            }
            assert!(seen.iter().all(|&seen| seen));
        }
    }
}
