//! Buffers of a worker that labels chunks of rows by bounds.

use crate::kernel::bounded::{Better, Doubts, Gathered, Nearest, Radii};
use crate::kernel::{Compute, Scratch};
use crate::rows::{RowBuf, Rows};

/// Bounds of the rows of a chunk; see [`RowBounds`](super::RowBounds).
pub(in crate::kmeans) struct RowBoundsMut<'a> {
    pub(in crate::kmeans) upper: &'a mut [f32],
    pub(in crate::kmeans) least: &'a mut [f32],
    pub(in crate::kmeans) lower: &'a mut [f32],
}

/// A chunk of rows with their labels and bounds.
pub(super) struct BoundedChunk<'a, T> {
    pub(super) values: Rows<'a, T>,
    pub(super) old: &'a [u32],
    pub(super) bounds: RowBoundsMut<'a>,
}

/// Buffers of one worker. Per-row values are indexed by the row's place in the chunk.
#[derive(Default)]
pub(in crate::kmeans) struct BoundBuffers<T: Compute> {
    pub(super) gathered: Gathered<T>,
    pub(super) radii: Radii<T>,
    /// A group whose bound is below the row's reach may contain its nearest center.
    pub(super) reach: Vec<f32>,
    /// Slot of the row's old center.
    pub(super) slot: Vec<u32>,
    /// Squared distance to the old center, and the rounding error of squared distances derived from tile
    /// values.
    pub(super) own: Vec<T>,
    pub(super) error: Vec<T>,
    /// The lowest tile value so far, and the second lowest within the same group. The lowest belongs to the
    /// center in `new`.
    pub(super) best: Vec<T>,
    pub(super) next: Vec<T>,
    /// The lowest tile value of all other centers, if it may be that of a nearer center.
    pub(super) rival: Vec<T>,
    pub(super) doubts: Doubts<T>,
    /// The best label so far of each open row.
    pub(super) new: Vec<u32>,
    /// Rows whose label changed, with the new labels.
    pub(in crate::kmeans) changes: Vec<(u32, u32)>,
    /// Rows whose label may change, and their least lower bounds in the same order.
    pub(super) open: Vec<u32>,
    pub(super) least: Vec<f32>,
    pub(super) lists: RowLists,
    /// The rows within reach of each group: lists with equal capacity, and their lengths.
    pub(super) near: Vec<u32>,
    pub(super) counts: Vec<u32>,
    // Values of the rows that are compared with one group, in their order.
    pub(super) low: Vec<T>,
    pub(super) low_next: Vec<T>,
    pub(super) panel_low: Vec<T>,
    pub(super) better: Vec<Better<T>>,
    // For a single bound per row: the open rows, stored by row or by column, and their nearest centers.
    pub(super) scratch: Scratch<T>,
    pub(super) open_rows: RowBuf<T>,
    pub(super) compact: Vec<T>,
    pub(super) nearest: Nearest<T>,
    /// Indices of the centers in a ball, and the radius repeated for a vectorized comparison.
    pub(super) list: Vec<u32>,
    pub(super) near_enough: Vec<f32>,
}

/// Concatenated lists of rows.
#[derive(Default)]
pub(super) struct RowLists {
    pub(super) rows: Vec<u32>,
    /// The end of each list.
    pub(super) ends: Vec<usize>,
}

impl RowLists {
    pub(super) fn start(&self, list: usize) -> usize {
        if list == 0 { 0 } else { self.ends[list - 1] }
    }

    /// Sorts `open` by the panel of the row's slot (counting sort).
    pub(super) fn by_panel(&mut self, open: &[u32], slot: &[u32], width: usize, panels: usize) {
        self.ends.clear();
        self.ends.resize(panels + 1, 0);
        let panel = |r: u32| slot[r as usize] as usize / width;
        for &r in open {
            self.ends[panel(r) + 1] += 1;
        }
        for p in 0..panels {
            self.ends[p + 1] += self.ends[p];
        }
        if self.rows.len() < open.len() {
            self.rows.resize(open.len(), 0);
        }
        for &r in open {
            // Turns the starts into ends.
            let at = &mut self.ends[panel(r)];
            self.rows[*at] = r;
            *at += 1;
        }
        self.ends.truncate(panels);
    }
}
