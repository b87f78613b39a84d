//! This module knows what bounded sweeps ask of the kernels: some rows of a chunk against one panel of centers, and loops over bounds.

use std::ops::Range;

use super::aligned::Aligned;
use super::difference;
use super::isa::Isa;
use super::pack::{Form, PackedCenters, Scratch, moved};
use super::table::Compute;
use crate::float::Float;
use crate::rows::{Rows, SparseRef};

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
    /// Bounds for each center of the panel, if there are such.
    pub(crate) fine: Option<Fine<'a, T>>,
}

/// Lower bounds for every row and center, to be written for the rows of a meeting.
pub(crate) struct Fine<'a, T> {
    /// `columns` bounds a row.
    pub(crate) lower: &'a mut [f32],
    pub(crate) columns: usize,
    /// What is added to the bounds of each center.
    pub(crate) drift: &'a [f32],
    /// How far a squared distance may be off, by row.
    pub(crate) error: &'a [T],
    pub(crate) unit: T,
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

/// Whether rows lie in the lanes: then a row may meet single centers.
pub(crate) fn meets_single_centers<T: Compute>(packed: &PackedCenters<T>) -> bool {
    packed.form == Form::RowsInLanes
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
    /// How far the squared distance of a row to its own center may be off beside its rounding: that of a sparse row is a difference of sums.
    pub(crate) off: T,
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

impl<T: Float> Radii<T> {
    fn resize(&mut self, n: usize) {
        self.own.resize(n, T::ZERO);
        self.error.resize(n, T::ZERO);
        self.upper.resize(n, 0.0);
        self.reach.resize(n, 0.0);
    }
}

/// What a sum, a product or a root of a few `f32` can lose.
pub(crate) const ROUNDING: f32 = 4e-7;

/// Copies the `picked` rows of a chunk for [`lowest`], and measures them: distances to the centers in `slot` (by row), and what follows.
pub(crate) fn gather<T: Compute>(
    packed: &PackedCenters<T>,
    rows: Rows<'_, T>,
    picked: &[u32],
    slot: &[u32],
    margins: Margins<T>,
    gathered: &mut Gathered<T>,
    radii: &mut Radii<T>,
) {
    super::fits(rows, packed);
    gathered.tile.grow(packed.table.height * packed.width, T::ZERO);
    if gathered.sq_norm.len() < rows.rows() {
        gathered.sq_norm.resize(rows.rows(), T::ZERO);
    }
    radii.resize(picked.len());
    match rows {
        Rows::Dense(rows) => {
            gathered.x.grow(rows.rows() * packed.gathered_stride(), T::ZERO);
            (packed.table.gather)(packed, rows, picked, slot, gathered, &mut radii.own);
        }
        Rows::Sparse(rows) => {
            measure_sparse(packed, rows, picked, slot, &mut gathered.sq_norm, &mut radii.own);
        }
    }
    (packed.table.radii)(margins, radii);
}

/// Measures the `picked` rows of a chunk without gathering them: squared distances to the centers in `labels` (by row) and `|x'|^2`. For few
/// columns, or sparse rows.
pub(crate) fn measure<T: Compute>(
    packed: &PackedCenters<T>,
    rows: Rows<'_, T>,
    picked: &[u32],
    labels: &[u32],
    gathered: &mut Gathered<T>,
    radii: &mut Radii<T>,
) {
    if gathered.sq_norm.len() < rows.rows() {
        gathered.sq_norm.resize(rows.rows(), T::ZERO);
    }
    radii.resize(picked.len());
    super::fits(rows, packed);
    let (sq_norm, own) = (&mut gathered.sq_norm[..], &mut radii.own[..]);
    match rows {
        Rows::Dense(rows) => (packed.table.measure)(packed, rows, picked, labels, sq_norm, own),
        Rows::Sparse(rows) => measure_sparse(packed, rows, picked, labels, sq_norm, own),
    }
}

/// The squared distances of picked sparse rows to the centers in `slot` (by row), and `|x'|^2` (by row).
fn measure_sparse<T: Compute>(
    packed: &PackedCenters<T>,
    rows: SparseRef<'_, T>,
    picked: &[u32],
    slot: &[u32],
    sq_norm: &mut [T],
    own: &mut [T],
) {
    for (own, &r) in own.iter_mut().zip(picked) {
        let r = r as usize;
        (*own, sq_norm[r]) = packed.sq_dist_to_slot(rows, r, slot[r] as usize);
    }
}

/// What follows from squared distances.
pub(crate) fn radii<T: Compute>(margins: Margins<T>, radii: &mut Radii<T>) {
    (T::table(Isa::active()).radii)(margins, radii);
}

/// What is nearest to some rows, in their order.
#[derive(Debug, Default)]
pub(crate) struct Nearest<T> {
    pub(crate) ids: Vec<u32>,
    /// The smallest tile values, and the second smallest.
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

/// Rows behind the last one that [`nearest_listed`] may overwrite.
pub(crate) const BEHIND: usize = 16;

/// Distances between all centers, rounded down: `k` rows of `k`. Costs `k^2 d` operations.
pub(crate) fn between<T: Compute>(packed: &PackedCenters<T>, margins: Margins<T>) -> Vec<f32> {
    let (k, d) = (packed.n_centers(), packed.dim());
    let mut columns = vec![T::ZERO; k * d];
    for (j, center) in packed.centers().iter().enumerate() {
        for (t, (&c, &s)) in center.iter().zip(&packed.shift).enumerate() {
            columns[t * k + j] = moved(c, s, packed.scale);
        }
    }
    let mut out = vec![0.0; k * k];
    (packed.table.between)(&columns, margins, &mut vec![T::ZERO; k], &mut out);
    out
}

/// Puts a row of a chunk into its place among columns, as the kernels read it.
pub(crate) fn put_in_columns<T: Compute>(packed: &PackedCenters<T>, row: &[T], columns: &mut [T], at: usize) {
    let stride = columns.len() / packed.dim();
    for (t, (&x, &s)) in row.iter().zip(&packed.shift).enumerate() {
        columns[t * stride + at] = moved(x, s, packed.scale);
    }
}

/// Some rows, as columns, against the listed centers only, which ascend. Columns and `nearest` have room for [`BEHIND`] rows more.
pub(crate) fn nearest_listed<T: Compute>(
    packed: &PackedCenters<T>,
    columns: &[T],
    rows: Range<usize>,
    list: &[u32],
    nearest: &mut Nearest<T>,
) {
    assert!(packed.form == Form::RowsInLanes);
    (packed.table.listed)(packed, columns, rows, list, nearest);
}

/// The centers as rows among themselves: what is nearest to each, and `|c'|^2`.
pub(crate) fn nearest_others<T: Compute>(packed: &PackedCenters<T>, nearest: &mut Nearest<T>) -> Vec<f64> {
    nearest.resize(packed.n_centers());
    let centers = Rows::from(packed.centers());
    nearest_pair(centers, packed, nearest, &mut Scratch::default());
    (0..packed.n_centers()).map(|j| packed.sq_norm(centers, j)).collect()
}

/// As [`nearest`](super::nearest), with the smallest and the second smallest tile value of each row.
pub(crate) fn nearest_pair<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    nearest: &mut Nearest<T>,
    scratch: &mut Scratch<T>,
) {
    let Nearest { ids, best, next } = nearest;
    if packed.by_difference() {
        return difference::nearest_two(rows, packed, scratch, |r, label, nearest, second| {
            (ids[r], best[r], next[r]) = (label, T::from_f64(nearest), T::from_f64(second));
        });
    }
    super::for_each_strip(rows, packed, scratch, |range, strip, scratch| {
        strip.two(packed, scratch, &mut ids[range.clone()]);
        best[range.clone()].copy_from_slice(&scratch.best[..range.len()]);
        next[range.clone()].copy_from_slice(&scratch.second[..range.len()]);
    });
}

/// As [`nearest_pair`] for a single row, in the least time.
pub(crate) fn nearest_single<T: Compute>(
    row: Rows<'_, T>,
    packed: &PackedCenters<T>,
    nearest: &mut Nearest<T>,
    (gathered, scratch): (&mut Gathered<T>, &mut Scratch<T>),
) {
    nearest.resize(1);
    let (Rows::Dense(dense), Form::CentersInLanes, false) = (row, packed.form, packed.by_difference) else {
        return nearest_pair(row, packed, nearest, scratch);
    };
    super::fits(row, packed);
    // A strip would fill a micro tile with copies of the row; gathered rows have lower ones.
    gathered.tile.grow(packed.table.height * packed.width, T::ZERO);
    gathered.x.grow(packed.gathered_stride(), T::ZERO);
    gathered.sq_norm.resize(gathered.sq_norm.len().max(1), T::ZERO);
    for ((to, &x), &s) in gathered.x.iter_mut().zip(dense.row(0)).zip(&packed.shift) {
        *to = moved(x, s, packed.scale);
    }
    let (mut low, mut better) = ([T::INFINITY], Vec::with_capacity(1));
    (nearest.ids[0], nearest.best[0], nearest.next[0]) = (0, T::INFINITY, T::INFINITY);
    for panel in 0..packed.n_panels() {
        better.clear();
        let mut best = [nearest.next[0]];
        let meeting = &mut Meeting {
            panel,
            picked: &[0],
            slot: &[u32::MAX],
            best: &mut best,
            begin: false,
            low: &mut low,
            better: &mut better,
            fine: None,
        };
        (packed.table.lowest)(packed, gathered, meeting);
        // What is no better than the second best so far changes nothing.
        let Some(&Better { lane, next, .. }) = better.first() else { continue };
        if low[0] < nearest.best[0] {
            let second = if next < nearest.best[0] { next } else { nearest.best[0] };
            (nearest.best[0], nearest.next[0]) = (low[0], second);
            nearest.ids[0] = (panel * packed.width) as u32 + lane;
        } else {
            nearest.next[0] = low[0];
        }
    }
}

/// Some gathered rows against one panel: the smallest tile value of each, its own center left out, and which rows it betters. `rows` are those of
/// the chunk, of which sparse ones were not gathered.
pub(crate) fn lowest<T: Compute>(
    packed: &PackedCenters<T>,
    rows: Rows<'_, T>,
    gathered: &mut Gathered<T>,
    meeting: &mut Meeting<'_, T>,
) {
    assert!(meeting.panel < packed.n_panels() && meeting.low.len() == meeting.picked.len());
    match rows {
        Rows::Dense(_) => (packed.table.lowest)(packed, gathered, meeting),
        Rows::Sparse(rows) => (packed.table.sparse_lowest)(packed, rows, gathered, meeting),
    }
}

/// Lower bounds of the distances of `picked` rows, from their lowest tile values `low` (in their order) and what may be wrong with those (by
/// row), with `drift` added: into a column of `lower`, which has `width` of them.
pub(crate) fn renew<T: Compute>(
    gathered: &Gathered<T>,
    picked: &[u32],
    (low, error): (&[T], &[T]),
    margins: Margins<T>,
    drift: f32,
    (lower, width, column): (&mut [f32], usize, usize),
) {
    let to = (lower, width, column);
    (T::table(Isa::active()).renew)(&gathered.sq_norm, picked, low, error, margins.unit, drift, to);
}

/// An upper bound on a distance, from a tile value.
pub(crate) fn upper<T: Compute>(
    gathered: &Gathered<T>,
    row: usize,
    value: T,
    error: T,
    margins: Margins<T>,
) -> f32 {
    let sq_dist = (value + gathered.sq_norm[row] + error).to_f64();
    // What is not a number bounds nothing: the row has values that are too large for tile values.
    let sq_dist = if sq_dist.is_nan() { f64::INFINITY } else { sq_dist.max(0.0) };
    (sq_dist.sqrt() * margins.unit.to_f64()) as f32 * (1.0 + ROUNDING)
}

/// The least of the lower bounds of each of the `picked` rows, without drift.
pub(crate) fn least(lower: &[f32], drift: &[f32], picked: &[u32], out: &mut [f32]) {
    (<f32 as Compute>::table(Isa::active()).least)(lower, drift, picked, out);
}

/// Lists the `picked` rows by the groups of `span` bounds of which one is within their `reach` (by row): group `g` finds its `counts[g]` rows from
/// `lists[g * room]` on.
pub(crate) fn near(
    lower: &[f32],
    (drift, span): (&[f32], usize),
    picked: &[u32],
    reach: &[f32],
    lists: (&mut [u32], usize, &mut [u32]),
) {
    (<f32 as Compute>::table(Isa::active()).near)(lower, (drift, span), picked, reach, lists);
}

/// The rows with `lower[r] - drift < reach[r]`, into the front of `rows`; gives their number.
pub(crate) fn within(lower: &[f32], drift: f32, reach: &[f32], rows: &mut [u32]) -> usize {
    (<f32 as Compute>::table(Isa::active()).within)(lower, drift, reach, rows)
}

/// Distances beyond which centers have larger tile values than one at most `upper` away.
pub(crate) fn reach(margins: Margins<f32>, upper: &[f32], out: &mut [f32]) {
    (<f32 as Compute>::table(Isa::active()).reach)(margins, upper, out);
}
