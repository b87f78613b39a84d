//! Kernel calls of bounded sweeps: some rows of a chunk against one panel of centers, and loops over bounds.

use std::ops::Range;

use super::by_tiles::with_doubts;
pub(crate) use super::comparison::{
    Better, BoundColumn, Fine, Gathered, GroupLists, Margins, Nearest, PanelComparison, ROUNDING, Radii,
};
pub(crate) use super::doubt::{Doubt, Doubts, is_in_doubt};
use super::frame::moved;
use super::operations;
use super::pack::{Form, PackedCenters};
use super::scratch::Scratch;
use super::strips::{fits, for_each_strip};
use super::tier::{Compute, active};
use crate::rows::{Rows, SparseRef};

/// Whether rows are in the vector lanes. If so, a row can be compared with single centers.
pub(crate) fn meets_single_centers<T: Compute>(packed: &PackedCenters<T>) -> bool {
    packed.form == Form::RowsInLanes
}

/// Copies the `picked` rows of a chunk for [`lowest`], and computes their distances to the centers in `slot`
/// (per row) and the derived radii.
pub(crate) fn gather<T: Compute>(
    packed: &PackedCenters<T>,
    rows: Rows<'_, T>,
    picked: &[u32],
    slot: &[u32],
    margins: Margins<T>,
    gathered: &mut Gathered<T>,
    radii: &mut Radii<T>,
) {
    fits(rows, packed);
    gathered.tile.grow(packed.tier.height * packed.width, T::ZERO);
    if gathered.sq_norm.len() < rows.rows() {
        gathered.sq_norm.resize(rows.rows(), T::ZERO);
    }
    radii.resize(picked.len());
    match rows {
        Rows::Dense(rows) => {
            gathered.x.grow(rows.rows() * packed.gathered_stride(), T::ZERO);
            operations::gather(packed.tier, packed, rows, picked, slot, gathered, &mut radii.own);
        }
        Rows::Sparse(rows) => {
            measure_sparse(packed, rows, picked, slot, &mut gathered.sq_norm, &mut radii.own);
        }
    }
    operations::radii(packed.tier, margins, radii);
}

/// Computes squared distances of the `picked` rows to the centers in `labels` (per row) and `|x'|^2`, without
/// gathering the rows. For few columns or sparse rows.
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
    fits(rows, packed);
    let (sq_norm, own) = (&mut gathered.sq_norm[..], &mut radii.own[..]);
    match rows {
        Rows::Dense(rows) => operations::measure(packed.tier, packed, rows, picked, labels, sq_norm, own),
        Rows::Sparse(rows) => measure_sparse(packed, rows, picked, labels, sq_norm, own),
    }
}

/// The squared distances of picked sparse rows to the centers in `slot` (per row), and `|x'|^2` (per row).
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

/// Computes the values that follow from the squared distances.
pub(crate) fn radii<T: Compute>(margins: Margins<T>, radii: &mut Radii<T>) {
    operations::radii(active::<T>(), margins, radii);
}

/// Number of rows after the last one that [`nearest_listed`] may overwrite.
pub(crate) const BEHIND: usize = 16;

/// Distances between all centers, rounded down: `k` rows of `k` values. Costs `k^2 d` operations.
pub(crate) fn between<T: Compute>(packed: &PackedCenters<T>, margins: Margins<T>) -> Vec<f32> {
    let (k, d) = (packed.n_centers(), packed.dim());
    let mut columns = vec![T::ZERO; k * d];
    for (j, center) in packed.centers().iter().enumerate() {
        for (t, (&c, &s)) in center.iter().zip(&packed.shift).enumerate() {
            columns[t * k + j] = moved(c, s, packed.scale);
        }
    }
    let mut out = vec![0.0; k * k];
    operations::between(packed.tier, &columns, margins, &mut vec![T::ZERO; k], &mut out);
    out
}

/// Writes a row of a chunk into column-major storage, in the layout of the kernels.
pub(crate) fn put_in_columns<T: Compute>(packed: &PackedCenters<T>, row: &[T], columns: &mut [T], at: usize) {
    let stride = columns.len() / packed.dim();
    for (t, (&x, &s)) in row.iter().zip(&packed.shift).enumerate() {
        columns[t * stride + at] = moved(x, s, packed.scale);
    }
}

/// The smallest tile value, its center, and the second smallest value of some rows, stored as columns, among the
/// listed centers. Columns and `nearest` need room for [`BEHIND`] more rows.
pub(crate) fn nearest_listed<T: Compute>(
    packed: &PackedCenters<T>,
    columns: &[T],
    rows: Range<usize>,
    list: &[u32],
    nearest: &mut Nearest<T>,
) {
    assert_eq!(packed.form, Form::RowsInLanes);
    operations::nearest_listed(packed.tier, packed, columns, rows, list, nearest);
}

/// The nearest other center and `|c'|^2`, per center.
pub(crate) fn nearest_others<T: Compute>(packed: &PackedCenters<T>, nearest: &mut Nearest<T>) -> Vec<f64> {
    nearest.resize(packed.n_centers());
    let centers = Rows::from(packed.centers());
    nearest_pair(centers, packed, nearest, &mut Scratch::default());
    (0..packed.n_centers()).map(|j| packed.sq_norm(centers, j)).collect()
}

/// Like [`nearest`](super::nearest), with the smallest and second smallest tile value per row. Where these do
/// not determine the nearest center, the second is the smallest as well.
pub(crate) fn nearest_pair<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    nearest: &mut Nearest<T>,
    scratch: &mut Scratch<T>,
) {
    let Nearest { ids, best, next } = nearest;
    with_doubts(packed, scratch, |doubts, scratch| {
        for_each_strip(rows, packed, scratch, |range, strip, scratch| {
            strip.two(packed, scratch, &mut ids[range.clone()]);
            best[range.clone()].copy_from_slice(&scratch.best[..range.len()]);
            next[range.clone()].copy_from_slice(&scratch.second[..range.len()]);
            doubts.note_strip(rows, range, packed, scratch);
        });
        doubts.settle(rows, packed, ids, scratch);
        doubts.rows().iter().for_each(|&r| next[r as usize] = best[r as usize]);
    });
}

/// Like [`nearest_pair`] for a single row, with the lowest latency.
pub(crate) fn nearest_single<T: Compute>(
    row: Rows<'_, T>,
    packed: &PackedCenters<T>,
    nearest: &mut Nearest<T>,
    (gathered, scratch): (&mut Gathered<T>, &mut Scratch<T>),
) {
    nearest.resize(1);
    let (Rows::Dense(dense), Form::CentersInLanes) = (row, packed.form) else {
        return nearest_pair(row, packed, nearest, scratch);
    };
    fits(row, packed);
    // A strip would fill a micro tile with copies of the row. Gathered rows can use lower micro tiles.
    gathered.tile.grow(packed.tier.height * packed.width, T::ZERO);
    gathered.x.grow(packed.gathered_stride(), T::ZERO);
    gathered.sq_norm.resize(gathered.sq_norm.len().max(1), T::ZERO);
    let mut sq_norm = T::ZERO;
    for ((to, &x), &s) in gathered.x.iter_mut().zip(dense.row(0)).zip(&packed.shift) {
        *to = moved(x, s, packed.scale);
        sq_norm = sq_norm + *to * *to;
    }
    let (mut low, mut better) = ([T::INFINITY], Vec::with_capacity(1));
    (nearest.ids[0], nearest.best[0], nearest.next[0]) = (0, T::INFINITY, T::INFINITY);
    for panel in 0..packed.n_panels() {
        better.clear();
        let mut best = [nearest.next[0]];
        let comparison = &mut PanelComparison {
            panel,
            picked: &[0],
            slot: &[u32::MAX],
            best: &mut best,
            begin: false,
            low: &mut low,
            doubt: Doubt::NONE,
            better: &mut better,
            fine: None,
        };
        operations::lowest(packed.tier, packed, gathered, comparison);
        // A tile value that is not below the second best so far changes nothing.
        let Some(&Better { lane, next, .. }) = better.first() else { continue };
        if low[0] < nearest.best[0] {
            let second = if next < nearest.best[0] { next } else { nearest.best[0] };
            (nearest.best[0], nearest.next[0]) = (low[0], second);
            nearest.ids[0] = (panel * packed.width) as u32 + lane;
        } else {
            nearest.next[0] = low[0];
        }
    }
    let (best, next) = (nearest.best[0], nearest.next[0]);
    if is_in_doubt(best, next, packed.doubt(packed.dim).of(sq_norm, best)) {
        (nearest.ids[0], nearest.next[0]) = (packed.nearest_of_all(row, 0), best);
    }
}

/// Compares some gathered rows with one panel: the smallest tile value of each, without its own center, and
/// the rows that it improves. `rows` are the rows of the chunk; sparse rows are read from there, since they
/// are not gathered.
pub(crate) fn lowest<T: Compute>(
    packed: &PackedCenters<T>,
    rows: Rows<'_, T>,
    gathered: &mut Gathered<T>,
    comparison: &mut PanelComparison<'_, T>,
) {
    assert!(comparison.panel < packed.n_panels() && comparison.low.len() == comparison.picked.len());
    match rows {
        Rows::Dense(_) => operations::lowest(packed.tier, packed, gathered, comparison),
        Rows::Sparse(rows) => operations::sparse_lowest(packed.tier, packed, rows, gathered, comparison),
    }
}

/// Writes lower bounds on the distances of `picked` rows. They follow from the lowest tile values `low` (in
/// the order of `picked`) and their errors (per row), plus `drift`.
pub(crate) fn renew<T: Compute>(
    gathered: &Gathered<T>,
    picked: &[u32],
    (low, error): (&[T], &[T]),
    margins: Margins<T>,
    drift: f32,
    to: BoundColumn<'_>,
) {
    operations::renew(active::<T>(), &gathered.sq_norm, picked, (low, error), margins.unit, drift, to);
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
    // NaN means that the row's values are too large for tile values, so there is no bound.
    let sq_dist = if sq_dist.is_nan() { f64::INFINITY } else { sq_dist.max(0.0) };
    (sq_dist.sqrt() * margins.unit.to_f64()) as f32 * (1.0 + ROUNDING)
}

/// The smallest lower bound of each of the `picked` rows, without drift.
pub(crate) fn least(lower: &[f32], drift: &[f32], picked: &[u32], out: &mut [f32]) {
    operations::least(active::<f32>(), lower, drift, picked, out);
}

/// Adds each of the `picked` rows to the lists of the groups of `span` bounds in which one bound is within
/// the row's `reach`.
pub(crate) fn near(
    lower: &[f32],
    (drift, span): (&[f32], usize),
    picked: &[u32],
    reach: &[f32],
    lists: GroupLists<'_>,
) {
    operations::near(active::<f32>(), lower, (drift, span), picked, reach, lists);
}

/// Writes the rows with `lower[r] - drift < reach[r]` to the front of `rows` and returns their number.
pub(crate) fn within(lower: &[f32], drift: f32, reach: &[f32], rows: &mut [u32]) -> usize {
    operations::within(active::<f32>(), lower, drift, reach, rows)
}
