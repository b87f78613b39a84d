//! Strips of rows, and tile values and distances of their rows.

use std::ops::Range;

use super::doubt::Doubts;
use super::frame::{self, moved};
use super::generic::sparse;
use super::operations;
use super::pack::{Form, PackedCenters};
use super::scratch::Scratch;
use super::tier::{Compute, Tier};
use crate::rows::{Rows, SparseRef};

/// Cuts `rows` into strips and loads each strip if its kernel reads loaded rows. Calls `f(range, strip,
/// scratch)`.
pub(super) fn for_each_strip<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    scratch: &mut Scratch<T>,
    mut f: impl FnMut(Range<usize>, Strip<'_, T>, &mut Scratch<T>),
) {
    fits(rows, packed);
    let most = packed.strip_rows();
    let mut start = 0;
    while start < rows.rows() {
        let end = rows.rows().min(start + most);
        let strip = match rows.slice(start, end) {
            Rows::Dense(rows) => {
                operations::load(packed.tier, packed, rows, scratch);
                Strip { rows: end - start, sparse: None }
            }
            Rows::Sparse(rows) => Strip { rows: end - start, sparse: Some(rows) },
        };
        f(start..end, strip, scratch);
        start = end;
    }
}

/// Checks that rows have the columns, and the kind (dense or sparse), for which the centers were packed.
pub(super) fn fits<T: Compute>(rows: Rows<'_, T>, packed: &PackedCenters<T>) {
    assert_eq!(rows.cols(), packed.dim, "rows and centers have different numbers of columns");
    let sparse = matches!(rows, Rows::Sparse(_));
    assert_eq!(
        sparse,
        packed.is_sparse(),
        "centers must be packed for the kind of the rows, dense or sparse"
    );
}

/// A strip of rows: either loaded into the scratch, or sparse and read in place.
#[derive(Clone, Copy)]
pub(super) struct Strip<'a, T> {
    pub(super) rows: usize,
    sparse: Option<SparseRef<'a, T>>,
}

impl<T: Compute> Strip<'_, T> {
    /// The smallest tile value per row, its center, and whether another center may be nearer; see
    /// [`operations::argmin`].
    pub(super) fn argmin(
        self,
        packed: &PackedCenters<T>,
        doubts: &Doubts<T>,
        scratch: &mut Scratch<T>,
        labels: &mut [u32],
    ) {
        match self.sparse {
            None => operations::argmin(packed.tier, packed, doubts.of_dense(), scratch, labels),
            Some(rows) => operations::sparse_two(packed.tier, packed, rows, scratch, labels),
        }
    }

    /// The two smallest tile values per row, and the center of the smallest.
    pub(super) fn two(self, packed: &PackedCenters<T>, scratch: &mut Scratch<T>, labels: &mut [u32]) {
        match self.sparse {
            None => operations::two(packed.tier, packed, scratch, labels),
            Some(rows) => operations::sparse_two(packed.tier, packed, rows, scratch, labels),
        }
    }

    /// The tile values against one panel.
    pub(super) fn values(self, packed: &PackedCenters<T>, scratch: &mut Scratch<T>, panel: usize) {
        match self.sparse {
            None => operations::values(packed.tier, packed, scratch, self.rows, panel),
            Some(rows) => operations::sparse_values(packed.tier, packed, rows, scratch, panel),
        }
    }
}

/// Calls `f(row of the strip, first slot, tile values)` for every row and panel of the strip, with ascending
/// panels for each row.
pub(super) fn for_each_panel<T: Compute>(
    packed: &PackedCenters<T>,
    scratch: &mut Scratch<T>,
    strip: Strip<'_, T>,
    mut f: impl FnMut(usize, usize, &[T]),
) {
    let width = packed.width;
    for panel in 0..packed.k.div_ceil(width) {
        strip.values(packed, scratch, panel);
        let first = panel * width;
        // The last panel may have fewer centers and padding.
        let stride = packed.panel_width(first);
        let centers = stride.min(packed.k - first);
        for i in 0..strip.rows {
            f(i, first, &scratch.tile[i * stride..][..centers]);
        }
    }
}

/// The squared distance of row `i` to a center with squared length `sq_norm`.
#[inline]
pub(super) fn sq_dist_of<T: Compute>(
    tier: Tier<T>,
    rows: Rows<'_, T>,
    i: usize,
    center: &[T],
    sq_norm: impl FnOnce() -> f64,
) -> f64 {
    match rows {
        Rows::Dense(rows) => operations::sq_dist(tier, rows.row(i), center),
        Rows::Sparse(rows) => {
            let sq_dist = sparse::sq_dist(rows.row(i), center, sq_norm(), T::from_f32(1.0));
            if sq_dist.is_finite() {
                sq_dist
            } else {
                sparse::sq_dist_in_full(rows.row(i), center, T::from_f64(1.0))
            }
        }
    }
}

impl<T: Compute> PackedCenters<T> {
    /// The squared distance of row `i` to center `j`, by difference.
    #[inline]
    pub(crate) fn sq_dist(&self, rows: Rows<'_, T>, i: usize, j: usize) -> f64 {
        sq_dist_of(self.tier, rows, i, self.centers().row(j), || self.sq_norms[j])
    }

    /// The squared distance of a sparse row to the center in a slot, and the row's squared length, both in
    /// the packed scale.
    pub(super) fn sq_dist_to_slot(&self, rows: SparseRef<'_, T>, i: usize, slot: usize) -> (T, T) {
        let (row, j) = (rows.row(i), self.center_in(slot) as usize);
        let scale = self.scale.to_f64();
        let sq_norm = self.sq_norms[j] * scale * scale;
        let sq_dist = sparse::sq_dist(row, self.centers().row(j), sq_norm, self.scale);
        (T::from_f64(sq_dist), T::from_f64(frame::sq_norm(row.1, self.scale)))
    }

    /// `|x'|^2` of a row, from the values that the kernels read. Zeros add nothing to the sum, so sparse rows
    /// get the same value as dense rows.
    pub(super) fn sq_norm(&self, rows: Rows<'_, T>, i: usize) -> f64 {
        match rows {
            Rows::Dense(rows) => rows.row(i).iter().zip(&self.shift).fold(0.0, |sum, (&x, &s)| {
                let moved = moved(x, s, self.scale).to_f64();
                sum + moved * moved
            }),
            Rows::Sparse(rows) => frame::sq_norm(rows.row(i).1, self.scale),
        }
    }

    /// Converts a squared distance from the packed scale to the scale of the data.
    pub(super) fn unscaled(&self, sq_dist: f64) -> f64 {
        let scale = self.scale.to_f64();
        sq_dist.max(0.0) / scale / scale
    }

    /// Number of values per row in `values` for the panel that starts at center `first`.
    pub(super) fn panel_width(&self, first: usize) -> usize {
        match self.form {
            Form::CentersInLanes | Form::Sparse => self.width.min(self.norms.len() - first),
            Form::RowsInLanes => self.tier.width,
        }
    }
}
