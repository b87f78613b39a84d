//! The arguments and results of the kernels of bounded sweeps.

use super::aligned::Aligned;
use super::doubt::Doubt;
use crate::float::Float;

/// Rows of a chunk in the layout of the kernels, each at its index in the chunk. Only gathered rows are
/// valid.
#[derive(Debug, Default)]
pub(crate) struct Gathered<T> {
    pub(super) x: Aligned<T>,
    /// `|x'|^2` per row.
    pub(super) sq_norm: Vec<T>,
    /// Tile values of some rows.
    pub(super) tile: Aligned<T>,
}

impl<T: Float> Gathered<T> {
    /// `|x'|^2` of a gathered row.
    pub(crate) fn sq_norm(&self, row: usize) -> T {
        self.sq_norm[row]
    }
}

/// A comparison of some gathered rows with one panel of centers. Per-row slices are indexed by the row's
/// index in the chunk.
pub(crate) struct PanelComparison<'a, T> {
    pub(crate) panel: usize,
    /// The rows, without duplicates.
    pub(crate) picked: &'a [u32],
    /// The slot of the row's own center, per row. This center is excluded.
    pub(crate) slot: &'a [u32],
    /// The best tile value per row so far.
    pub(crate) best: &'a mut [T],
    /// The panel contains the rows' own centers: first initialize `best` with their tile values.
    pub(crate) begin: bool,
    /// Output: the smallest tile value per row in `picked`.
    pub(crate) low: &'a mut [T],
    /// By how much tile values must differ to exclude a center.
    pub(crate) doubt: Doubt<T>,
    /// Output, appended: the rows for which `best` does not exclude the center of `low`.
    pub(crate) better: &'a mut Vec<Better<T>>,
    /// Bounds for each center of the panel, if the sweep keeps per-center bounds.
    pub(crate) fine: Option<Fine<'a, T>>,
}

/// Lower bounds per row and center, to be updated for the rows of a comparison.
pub(crate) struct Fine<'a, T> {
    /// `columns` bounds per row.
    pub(crate) lower: &'a mut [f32],
    pub(crate) columns: usize,
    /// The drift that is added to the bounds, per center.
    pub(crate) drift: &'a [f32],
    /// The largest error of a squared distance, per row.
    pub(crate) error: &'a [T],
    pub(crate) unit: T,
}

/// A row with a center in the panel that may be nearer than the best so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Better<T> {
    /// Index into the picked rows.
    pub(crate) at: u32,
    /// Position of the nearest center in the panel.
    pub(crate) lane: u32,
    /// The second smallest tile value.
    pub(crate) next: T,
}

/// Rounding errors and units that all rows share, used to compute bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margins<T> {
    /// The largest `|c'|`.
    pub(crate) norm: T,
    /// Rounding error of a tile value, relative to the squared norms that enter it.
    pub(crate) gamma: T,
    /// The factor from lengths between packed values to lengths of bounds.
    pub(crate) unit: T,
    /// The error of a squared distance to the own center beyond its rounding. It is nonzero for sparse rows,
    /// whose distance is a difference of sums.
    pub(crate) off: T,
}

/// Values derived from the squared distances of some rows to their own centers, in the order of these rows.
#[derive(Debug, Default)]
pub(crate) struct Radii<T> {
    /// The squared distances that [`gather`](super::bounded::gather) computed.
    pub(crate) own: Vec<T>,
    /// The largest error of a squared distance that is computed from a tile value and `|x'|^2`.
    pub(crate) error: Vec<T>,
    /// Upper bounds on the distances.
    pub(crate) upper: Vec<f32>,
}

impl<T: Float> Radii<T> {
    pub(super) fn resize(&mut self, n: usize) {
        self.own.resize(n, T::ZERO);
        self.error.resize(n, T::ZERO);
        self.upper.resize(n, 0.0);
    }
}

/// The relative error of a sum, product or root of a few `f32` values.
pub(crate) const ROUNDING: f32 = 4e-7;

/// The nearest center of some rows, in their order.
#[derive(Debug, Default)]
pub(crate) struct Nearest<T> {
    pub(crate) ids: Vec<u32>,
    /// The smallest tile values. `next` holds the second smallest.
    pub(crate) best: Vec<T>,
    pub(crate) next: Vec<T>,
}

impl<T: Float> Nearest<T> {
    /// Makes room for `n` rows.
    pub(crate) fn resize(&mut self, n: usize) {
        self.ids.resize(n, 0);
        self.best.resize(n, T::ZERO);
        self.next.resize(n, T::ZERO);
    }
}

/// One column of a table of lower bounds, with a row of `width` bounds per row of a chunk.
pub(crate) struct BoundColumn<'a> {
    pub(crate) lower: &'a mut [f32],
    pub(crate) width: usize,
    pub(crate) column: usize,
}

/// Lists of rows, one per group of bounds.
pub(crate) struct GroupLists<'a> {
    /// The rows of group `g` start at index `g * room`.
    pub(crate) rows: &'a mut [u32],
    pub(crate) room: usize,
    /// Number of rows per group.
    pub(crate) counts: &'a mut [u32],
}
