//! This module knows what bounded sweeps ask of the kernels: some rows of a chunk against one panel of centers, and loops over bounds.

use super::aligned::Aligned;
use super::isa::Isa;
use super::pack::PackedCenters;
use super::table::Compute;
use crate::float::Float;
use crate::matrix::MatRef;

/// Rows of a chunk as the kernels read them, each at its place in the chunk; only those that were gathered.
#[derive(Debug)]
pub(crate) struct Gathered<T> {
    pub(super) x: Aligned<T>,
    /// `|x'|^2` of each.
    pub(super) sq_norm: Vec<T>,
    /// Tile values of a few rows.
    pub(super) tile: Aligned<T>,
}

impl<T: Float> Default for Gathered<T> {
    fn default() -> Self {
        Self { x: Aligned::default(), sq_norm: Vec::new(), tile: Aligned::default() }
    }
}

/// A meeting of some gathered rows with a panel of centers. What is kept of a row is indexed by its place in the chunk.
pub(crate) struct Meeting<'a, T> {
    pub(crate) panel: usize,
    /// The rows, each once.
    pub(crate) picked: &'a [u32],
    /// The slot of each row's own center, which is left out.
    pub(crate) slot: &'a [u32],
    /// The best tile value of each row so far.
    pub(crate) best: &'a mut [T],
    /// The panel is that of the rows' own centers: their tile values become the best ones first.
    pub(crate) begin: bool,
    /// The smallest tile value of each of `picked`: comes out.
    pub(crate) low: &'a mut [T],
    /// The rows for which that is at most the best: added.
    pub(crate) better: &'a mut Vec<Better<T>>,
}

/// A row that has a center in the panel as near as the best so far, or nearer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Better<T> {
    /// Which of the picked rows.
    pub(crate) at: u32,
    /// Where the nearest center stands in the panel.
    pub(crate) lane: u32,
    /// The second smallest tile value.
    pub(crate) next: T,
}

/// What bounds are made of, the same for all rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margins<T> {
    /// The largest `|c'|`.
    pub(crate) norm: T,
    /// Rounding of a tile value, relative to the squared norms that it is made of.
    pub(crate) gamma: T,
    /// The factor from lengths between packed values to lengths of bounds.
    pub(crate) unit: T,
}

/// What follows from the squared distances of some rows to their own centers, in the order of these rows.
#[derive(Debug, Default)]
pub(crate) struct Radii<T> {
    /// The squared distances, as [`gather`] found them.
    pub(crate) own: Vec<T>,
    /// How far a squared distance, made of a tile value and `|x'|^2`, may be from the true one.
    pub(crate) error: Vec<T>,
    /// Upper bounds of the distances.
    pub(crate) upper: Vec<f32>,
    /// Centers further than this have larger tile values.
    pub(crate) reach: Vec<f32>,
}

/// What a sum, a product or a root of a few `f32` can lose.
pub(crate) const ROUNDING: f32 = 4e-7;

/// Copies the `picked` rows of a chunk for [`lowest`], and measures them: distances to the centers in `slot` (by row), and what follows.
pub(crate) fn gather<T: Compute>(
    packed: &PackedCenters<T>,
    rows: MatRef<'_, T>,
    picked: &[u32],
    slot: &[u32],
    margins: Margins<T>,
    gathered: &mut Gathered<T>,
    radii: &mut Radii<T>,
) {
    gathered.x.grow(rows.rows() * packed.gathered_stride(), T::ZERO);
    gathered.tile.grow(packed.table.height * packed.table.width, T::ZERO);
    if gathered.sq_norm.len() < rows.rows() {
        gathered.sq_norm.resize(rows.rows(), T::ZERO);
    }
    let n = picked.len();
    radii.own.resize(n, T::ZERO);
    radii.error.resize(n, T::ZERO);
    radii.upper.resize(n, 0.0);
    radii.reach.resize(n, 0.0);
    (packed.table.gather)(packed, rows, picked, slot, gathered, &mut radii.own);
    (packed.table.radii)(margins, radii);
}

/// Some gathered rows against one panel: the smallest tile value of each, its own center left out, and which rows it betters.
pub(crate) fn lowest<T: Compute>(
    packed: &PackedCenters<T>,
    gathered: &mut Gathered<T>,
    meeting: &mut Meeting<'_, T>,
) {
    assert!(meeting.panel < packed.n_panels() && meeting.low.len() == meeting.picked.len());
    (packed.table.lowest)(packed, gathered, meeting);
}

/// Lower bounds of the distances of `picked` rows, from their lowest tile values `low`, with `drift` added: written to `lower`, as `error`
/// is read, by row. `of` gives each row's place among `picked` and `low`.
pub(crate) fn renew<T: Compute>(
    gathered: &Gathered<T>,
    picked: &[u32],
    low: &[T],
    error: &[T],
    margins: Margins<T>,
    drift: f32,
    lower: &mut [f32],
) {
    (T::table(Isa::active()).renew)(&gathered.sq_norm, picked, low, error, margins.unit, drift, lower);
}

/// An upper bound on a distance, from a tile value.
pub(crate) fn upper<T: Compute>(
    gathered: &Gathered<T>,
    row: usize,
    value: T,
    error: T,
    margins: Margins<T>,
) -> f32 {
    let sq_dist = (value + gathered.sq_norm[row] + error).to_f64().max(0.0);
    (sq_dist.sqrt() * margins.unit.to_f64()) as f32 * (1.0 + ROUNDING)
}

/// `least[r]` becomes at most `lower[r] - drift`.
pub(crate) fn settle(lower: &[f32], drift: f32, least: &mut [f32]) {
    (<f32 as Compute>::table(Isa::active()).settle)(lower, drift, least);
}

/// The rows with `lower[r] - drift < reach[r]`, into the front of `rows`; gives their number.
pub(crate) fn within(lower: &[f32], drift: f32, reach: &[f32], rows: &mut [u32]) -> usize {
    (<f32 as Compute>::table(Isa::active()).within)(lower, drift, reach, rows)
}

/// Distances beyond which centers have larger tile values than one at most `upper` away.
pub(crate) fn reach(margins: Margins<f32>, upper: &[f32], out: &mut [f32]) {
    (<f32 as Compute>::table(Isa::active()).reach)(margins, upper, out);
}
