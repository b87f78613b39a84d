//! Buffers of a worker that labels chunks of rows by sketches.

use crate::kernel::sketched::{FinePoint, FineSketching, Hit, Lists, Scan, Sketching};

/// A row that a sweep looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) row: u32,
    /// Its center.
    pub(super) label: u32,
    /// An upper bound of the distance to its center, and the same with room for rounding.
    pub(super) upper: f32,
    pub(super) radius: f32,
    /// The squared distance, if it was measured; until then a lower limit, in the units of sketches, if the row has a
    /// finer sketch.
    pub(super) sq_dist: f64,
}

/// Buffers of one worker.
#[derive(Default)]
pub(in crate::kmeans) struct Work {
    pub(super) sketching: Sketching,
    pub(super) fine_sketching: FineSketching,
    pub(super) point: FinePoint,
    pub(super) scan: Scan,
    pub(super) hits: Vec<Hit>,
    /// The hits by row, and where they end, per row.
    pub(super) sorted: Vec<(f32, u32)>,
    pub(super) ends: Vec<u32>,
    pub(super) open: Vec<Open>,
    /// The rows that each set of centers is compared with.
    pub(super) lists: Lists,
    /// Rows that are read.
    pub(in crate::kmeans) picked: Vec<u32>,
    /// Centers of a row that may be nearest, with lower bounds, and those that were measured.
    pub(super) rivals: Vec<(f32, u32)>,
    pub(super) measured: Vec<(f64, u32)>,
    /// Rows whose label changed, with the new labels.
    pub(in crate::kmeans) changes: Vec<(u32, u32)>,
    /// Distances that were measured.
    pub(in crate::kmeans) distances: u64,
}
