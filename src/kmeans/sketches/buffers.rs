//! Buffers of a worker that labels chunks of rows by sketches.

use crate::kernel::sketched::{FinePoint, FineSketching, Hit, Lists, Scan, Sketching};

/// A row that a sweep looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) row: u32,
    /// Its center.
    pub(super) label: u32,
    /// An upper bound of the distance to its center.
    pub(super) upper: f32,
    /// The squared distance, if it was measured; until then a lower limit, in the units of sketches, if the row has a
    /// finer sketch.
    pub(super) sq_dist: f64,
}

/// The centers that a scan listed, by row.
#[derive(Default)]
pub(super) struct HitsByRow {
    /// Lower bounds of the distances, and the centers.
    sorted: Vec<(f32, u32)>,
    /// Per row, the end of its centers.
    ends: Vec<u32>,
}

impl HitsByRow {
    /// Sorts the hits of a chunk of `n` rows.
    pub(super) fn sort(&mut self, n: usize, hits: &[Hit]) {
        let Self { sorted, ends } = self;
        ends.clear();
        ends.resize(n + 1, 0);
        for hit in hits {
            ends[hit.row as usize + 1] += 1;
        }
        for r in 0..n {
            ends[r + 1] += ends[r];
        }
        sorted.clear();
        sorted.resize(hits.len(), (0.0, 0));
        // `ends[r]` is where the centers of row `r` begin, and grows to where they end.
        for hit in hits {
            let at = &mut ends[hit.row as usize];
            sorted[*at as usize] = (hit.bound, hit.center);
            *at += 1;
        }
    }

    /// The centers of a row, with lower bounds of their distances.
    pub(super) fn of(&mut self, row: u32) -> &mut [(f32, u32)] {
        let r = row as usize;
        let start = if r == 0 { 0 } else { self.ends[r - 1] };
        &mut self.sorted[start as usize..self.ends[r] as usize]
    }
}

/// Buffers of one worker.
#[derive(Default)]
pub(in crate::kmeans) struct SketchBuffers {
    pub(super) sketching: Sketching,
    pub(super) fine_sketching: FineSketching,
    pub(super) point: FinePoint,
    pub(super) scan: Scan,
    pub(super) listed: HitsByRow,
    pub(super) open: Vec<Open>,
    /// The rows that each set of centers is compared with.
    pub(super) lists: Lists,
    /// Rows that are read.
    pub(super) picked: Vec<u32>,
    /// Centers of a row that may be nearest, with lower bounds, and those that were measured.
    pub(super) rivals: Vec<(f32, u32)>,
    pub(super) measured: Vec<(f64, u32)>,
    /// Rows whose label changed, with the new labels.
    pub(in crate::kmeans) changes: Vec<(u32, u32)>,
    /// Distances that were measured.
    pub(in crate::kmeans) distances: u64,
}
