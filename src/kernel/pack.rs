//! The memory layout of packed centers.
//!
//! The tile form of a squared distance is `|c'|^2 - 2 x'.c' + |x'|^2`, where `x'` and `c'` are the row and the center
//! in the [frame](super::frame) of the centers. Packed centers hold `-2 c'` and `|c'|^2`. `|x'|^2` is the same for
//! every center and is left out where only the order matters.
//!
//! A tile value is one chain of multiply-adds: `|c'|^2` first, then the columns in ascending order. It does not
//! depend on where the (row, center) pair is in a tile.

use std::fmt::Debug;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::aligned::{Aligned, LINE};
use super::frame::{Frame, moved, sq_norm};
use super::isa::Isa;
use super::scratch::{Scratch, block_depth};
use super::tier::{Compute, Tier, active, tier_of};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::tuning::shared_rows;

/// Vectors of centers that a sparse row is compared with at a time: their sums, a value and a load fit into
/// 16 registers, and longer runs of a column need fewer cache lines (`sparse.py`).
const SPARSE_VECTORS: usize = 8;

/// The largest number of centers. Indices pass through the kernels as `f32` lanes, which limits them.
pub const MAX_CENTERS: usize = 1 << 24;

/// Which operand is in the vector lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Panels of centers; rows are broadcast.
    CentersInLanes,
    /// For few columns: strips of rows; centers are broadcast.
    RowsInLanes,
    /// Panels of centers for sparse rows. Never shifted.
    Sparse,
}

impl Form {
    /// Slots for `k` centers: panels end with a whole vector.
    fn slots(self, k: usize, lanes: usize) -> usize {
        if self == Self::RowsInLanes { k } else { k.next_multiple_of(lanes) }
    }
}

/// Centers in the memory layout of the kernels: packed once, used for every row.
///
/// Rows whose nearest center `T` cannot tell, because centers coincide or are far from the origin, take longer:
/// they are compared in `f64`.
///
/// ```
/// use shoal::kernel::PackedCenters;
/// let packed = PackedCenters::new(shoal::MatRef::new(&[0.0f32, 0.0, 10.0, 10.0], 2));
/// assert_eq!((packed.n_centers(), packed.dim()), (2, 2));
/// ```
#[derive(Debug)]
pub struct PackedCenters<T: Float> {
    pub(super) tier: Tier<T>,
    pub(super) form: Form,
    pub(super) k: usize,
    pub(super) dim: usize,
    /// Number of centers in a full panel.
    pub(super) width: usize,
    /// Number of columns in one depth block.
    pub(super) depth: usize,
    /// `-2 c'`: panels of `width` centers (the last one may be narrower), or plain rows for
    /// [`Form::RowsInLanes`].
    pub(super) data: Aligned<T>,
    /// `|c'|^2`; infinite for padding.
    pub(super) norms: Aligned<T>,
    pub(super) shift: Vec<T>,
    pub(super) scale: T,
    pub(super) centers: Vec<T>,
    /// `c'` of each slot, one row each, where rows are gathered; `-2 c'` per center, where some are chosen.
    pub(super) plain: Aligned<T>,
    /// `|c|^2` per center, in the original order. Only for sparse rows.
    pub(super) sq_norms: Vec<f64>,
    /// The center in each slot, if the slots are reordered.
    pub(super) order: Vec<u32>,
    /// The price per center, which is added to squared distances where centers are compared. Empty without
    /// prices.
    pub(super) prices: Vec<f64>,
    /// How much tile values are reduced, relative to squared lengths, so that rounding never lifts one above
    /// the true value. Nonzero only for [`PackedCenters::framed`].
    pub(super) slack: f64,
    /// Only for whole sets of dense centers.
    pub(super) shortcut: Option<Box<dyn Shortcut<T>>>,
}

/// A faster way to label rows than by tile values, with the same labels.
pub(super) trait Shortcut<T: Float>: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Labels rows. Returns false if it does not suit them, or does not pay.
    fn label(
        &self,
        rows: MatRef<'_, T>,
        packed: &PackedCenters<T>,
        labels: &mut [u32],
        scratch: &mut Scratch<T>,
    ) -> bool;

    #[cfg(test)]
    fn as_any(&self) -> &dyn std::any::Any;
}

impl<T: Compute> PackedCenters<T> {
    /// Packs `centers` for [`nearest_listed`](super::bounded::nearest_listed), for rows of up to
    /// [`ROWS_IN_LANES_DIM`](crate::tuning::ROWS_IN_LANES_DIM) columns. Tile values are bit-identical.
    pub(crate) fn for_listed(centers: MatRef<'_, T>) -> Self {
        Self::pack(centers, active::<T>(), Form::RowsInLanes, Executor::caller())
    }

    /// Packs `centers` in panels for any number of columns: for rows that are searched one by one. Tile values are
    /// bit-identical.
    pub(crate) fn in_panels(centers: MatRef<'_, T>, sparse: bool) -> Self {
        let form = if sparse { Form::Sparse } else { Form::CentersInLanes };
        Self::pack(centers, fitting(Isa::active(), centers.rows()), form, Executor::caller())
    }

    /// Packs `centers` for sparse rows and a given instruction set.
    pub(super) fn sparse_for_isa(centers: MatRef<'_, T>, isa: Isa, cx: &Executor) -> Self {
        Self::pack(centers, fitting(isa, centers.rows()), Form::Sparse, cx)
    }

    /// Packs `centers` in panels in the given order, which defines the slots. Tile values stay bit-identical.
    ///
    /// # Panics
    /// Same as [`PackedCenters::new`], and if `order` is not a permutation.
    pub(crate) fn in_order(centers: MatRef<'_, T>, order: &[u32], sparse: bool, cx: &Executor) -> Self {
        let form = if sparse { Form::Sparse } else { Form::CentersInLanes };
        let mut packed = Self::pack_as(centers, Some(order), active::<T>(), form, None, None, cx);
        packed.order = order.to_vec();
        if !sparse {
            packed.plain = Aligned::filled(packed.k * packed.gathered_stride(), T::ZERO);
            for (slot, &j) in order.iter().enumerate() {
                packed.fill_plain(slot, centers.row(j as usize));
            }
        }
        packed
    }

    /// Packs `centers` in their order and their own frame.
    pub(super) fn pack(centers: MatRef<'_, T>, tier: Tier<T>, form: Form, cx: &Executor) -> Self {
        Self::pack_as(centers, None, tier, form, None, None, cx)
    }

    /// Packs `centers` in a given order and frame, if there are any, in the memory of `last` if it suits.
    pub(super) fn pack_as(
        centers: MatRef<'_, T>,
        order: Option<&[u32]>,
        tier: Tier<T>,
        form: Form,
        frame: Option<&Frame<T>>,
        last: Option<Self>,
        cx: &Executor,
    ) -> Self {
        let (k, dim) = (centers.rows(), centers.cols());
        assert!((1..=MAX_CENTERS).contains(&k), "the number of centers must be 1 to {MAX_CENTERS}, got {k}");
        let sparse = form == Form::Sparse;
        let Frame { shift, scale } = match frame {
            Some(frame) => frame.clone(),
            None if sparse => Frame::at_origin(centers, cx),
            None => Frame::about(centers, cx),
        };
        // With an order, one bound covers one panel. Without an order, wider panels are faster.
        let width = if sparse && order.is_none() { SPARSE_VECTORS * tier.lanes } else { tier.width };
        let last = last.filter(|last| {
            let same = (last.form, last.k, last.dim, last.width) == (form, k, dim, width);
            // Padding must be in the same places.
            same && last.order.is_empty() && order.is_none()
        });
        let (data, copies) = last.map_or((None, None), |last| (Some(last.data), Some(last.centers)));

        let padded = k.next_multiple_of(tier.lanes);
        let size = form.slots(k, tier.lanes) * dim;
        let made = || if sparse { Aligned::scattered(size) } else { Aligned::filled(size, T::ZERO) };
        let mut packed = Self {
            tier,
            form,
            k,
            dim,
            width,
            depth: block_depth::<T>(dim),
            data: data.unwrap_or_else(made),
            norms: Aligned::filled(padded, T::INFINITY),
            shift,
            scale,
            centers: copies.unwrap_or_else(|| vec![T::ZERO; k * dim]),
            plain: Aligned::default(),
            sq_norms: vec![0.0; if sparse { k } else { 0 }],
            order: Vec::new(),
            prices: Vec::new(),
            slack: 0.0,
            shortcut: None,
        };
        packed.fill_data(centers, order, cx);
        packed
    }

    /// Writes the moved values of the centers, in the given order, their norms, and their copies.
    fn fill_data(&mut self, centers: MatRef<'_, T>, order: Option<&[u32]>, cx: &Executor) {
        let Self { form, k, dim, width, ref shift, scale, .. } = *self;
        let panel = if form == Form::RowsInLanes { 1 } else { width };
        let part = shared_rows(dim).next_multiple_of(panel);
        let index = |j: usize| order.map_or(j, |order| order[j] as usize);
        let mut sq_norms = vec![0.0; k];
        let outs = self.data.chunks_mut(part * dim).zip(sq_norms.chunks_mut(part));
        cx.share(
            outs.zip(self.centers.chunks_mut(part * dim)).enumerate(),
            |(i, ((data, sq_norms), copies))| {
                let members = i * part..i * part + sq_norms.len();
                for (copy, j) in copies.chunks_exact_mut(dim).zip(members.clone()) {
                    copy.copy_from_slice(centers.row(j));
                }
                let rows: Vec<&[T]> = members.map(|j| centers.row(index(j))).collect();
                if form == Form::RowsInLanes {
                    for ((row, sq_norm), out) in
                        rows.into_iter().zip(sq_norms).zip(data.chunks_exact_mut(dim))
                    {
                        *sq_norm = fill(0.0, row, shift, scale, out.iter_mut());
                    }
                    return;
                }
                let panels = rows.chunks(width).zip(sq_norms.chunks_mut(width));
                for ((rows, sq_norms), panel) in panels.zip(data.chunks_mut(width * dim)) {
                    fill_panel(panel, rows, sq_norms, shift, scale);
                }
            },
        );
        for (j, (norm, sq_norm)) in self.norms.iter_mut().zip(sq_norms).enumerate() {
            *norm = T::from_f64(sq_norm);
            if form == Form::Sparse {
                self.sq_norms[index(j)] = sq_norm_in_data(sq_norm, centers.row(index(j)), scale);
            }
        }
    }

    /// Empty places for `k` centers with the same shift and scale. An empty place is infinitely far from all
    /// rows.
    pub(crate) fn places(&self, k: usize) -> Self {
        let lanes = self.tier.lanes;
        Self {
            k,
            data: Aligned::filled(self.form.slots(k, lanes) * self.dim, T::ZERO),
            norms: Aligned::filled(k.next_multiple_of(lanes), T::INFINITY),
            shift: self.shift.clone(),
            centers: vec![T::ZERO; k * self.dim],
            plain: Aligned::default(),
            sq_norms: vec![0.0; if self.form == Form::Sparse { k } else { 0 }],
            order: Vec::new(),
            prices: Vec::new(),
            shortcut: None,
            ..*self
        }
    }

    /// Makes all places empty.
    pub(crate) fn clear(&mut self) {
        self.shortcut = None;
        self.norms.fill(T::INFINITY);
    }

    /// Packs a center into place `j` with the given slot, keeping shift and scale.
    pub(crate) fn place(&mut self, j: usize, slot: usize, center: &[T]) {
        let dim = self.dim;
        assert!(
            j < self.k && slot < self.k && center.len() == dim,
            "the place must exist and the center have {dim} columns"
        );
        // The copies of the centers in low precision would be out of date.
        self.shortcut = None;
        self.centers[j * dim..][..dim].copy_from_slice(center);
        let norm = if self.form == Form::RowsInLanes {
            fill(0.0, center, &self.shift, self.scale, self.data[slot * dim..].iter_mut())
        } else {
            let first = slot / self.width * self.width;
            let width = self.width.min(self.norms.len() - first);
            let out = self.data[first * dim + slot - first..].iter_mut().step_by(width);
            fill(0.0, center, &self.shift, self.scale, out)
        };
        self.norms[slot] = T::from_f64(norm);
        if let Some(sq_norm) = self.sq_norms.get_mut(j) {
            *sq_norm = sq_norm_in_data(norm, center, self.scale);
        }
        if !self.plain.is_empty() {
            self.fill_plain(slot, center);
        }
    }

    /// Writes `c'` of the center in a slot to `plain`.
    fn fill_plain(&mut self, slot: usize, center: &[T]) {
        let first = slot * self.gathered_stride();
        for ((out, &c), &s) in self.plain[first..].iter_mut().zip(center).zip(&self.shift) {
            *out = moved(c, s, self.scale);
        }
    }

    /// The same centers, with a price each that adds to squared distances wherever centers are compared: labels are
    /// those of the smallest sum. Distances that are reported stay those to the centers.
    pub(crate) fn priced(mut self, prices: &[f64]) -> Self {
        assert!(prices.len() == self.k && self.order.is_empty(), "one price per center, in their order");
        // A constant changes no label, and no squared length becomes negative.
        let least = prices.iter().copied().fold(f64::INFINITY, f64::min);
        let square = self.scale.to_f64() * self.scale.to_f64();
        for (norm, price) in self.norms.iter_mut().zip(prices) {
            *norm = T::from_f64(norm.to_f64() + (price - least) * square);
        }
        self.prices = prices.iter().map(|price| price - least).collect();
        self.shortcut = None;
        self
    }

    /// Packs rows as centers about a given frame, for [`near`](super::near::near): their tile values are
    /// lower bounds. Sparse rows have at most `values` stored values.
    ///
    /// # Panics
    /// Same as [`PackedCenters::new`], and if the frame has another number of columns.
    pub(crate) fn framed(centers: MatRef<'_, T>, frame: &Frame<T>, values: usize, sparse: bool) -> Self {
        assert_eq!(centers.cols(), frame.shift.len(), "rows and frame have different numbers of columns");
        let form = if sparse { Form::Sparse } else { Form::CentersInLanes };
        let tier = fitting(Isa::active(), centers.rows());
        let mut packed = Self::pack_as(centers, None, tier, form, Some(frame), None, Executor::caller());
        // A chain of `values` sums has an error of half an epsilon of `|c'|^2 + 2 |x'| |c'| <= 2 |c'|^2 +
        // |x'|^2` per sum. A few more terms cover values that are rounded when they are moved. The same
        // amount again covers distances of sparse rows.
        packed.slack = (values + 8) as f64 * T::EPSILON;
        for norm in packed.norms.iter_mut() {
            *norm = T::from_f64(norm.to_f64() * (1.0 - 2.0 * packed.slack - T::EPSILON));
        }
        packed
    }

    /// The center in a slot.
    #[inline(always)]
    pub(super) fn center_in(&self, slot: usize) -> u32 {
        self.order.get(slot).copied().unwrap_or(slot as u32)
    }

    /// Whether the centers are packed for sparse rows.
    pub(crate) fn is_sparse(&self) -> bool {
        self.form == Form::Sparse
    }

    /// Number of centers.
    pub fn n_centers(&self) -> usize {
        self.k
    }

    /// Number of columns of a center.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The centers in their original order and values.
    pub fn centers(&self) -> MatRef<'_, T> {
        MatRef::new(&self.centers, self.dim)
    }

    /// Number of centers in a full panel.
    pub(crate) fn panel_centers() -> usize {
        active::<T>().width
    }

    /// Number of panels.
    pub(crate) fn n_panels(&self) -> usize {
        self.k.div_ceil(self.width)
    }

    /// The shift and the scale.
    pub(crate) fn frame(&self) -> (&[T], T) {
        (&self.shift, self.scale)
    }

    /// The factor from lengths in the data to lengths of packed values: a power of two, nearly always 1.
    pub(crate) fn scale(&self) -> f64 {
        self.scale.to_f64()
    }

    /// The largest `|c'|`, rounded up.
    pub(crate) fn largest_norm(&self) -> f64 {
        let norms = self.norms.iter().map(|norm| norm.to_f64()).filter(|norm| norm.is_finite());
        norms.fold(0.0, f64::max).sqrt() * (1.0 + T::EPSILON)
    }

    /// Values between two gathered rows: whole vectors of any width, and an odd number of cache lines, so
    /// that rows fall into different cache sets.
    pub(super) fn gathered_stride(&self) -> usize {
        ((self.dim * size_of::<T>()).div_ceil(LINE) | 1) * (LINE / size_of::<T>())
    }
}

/// The kernels of `isa`, or of a narrower set with bit-identical results if `k` centers would fill at most
/// half of a vector.
pub(super) fn fitting<T: Compute>(isa: Isa, k: usize) -> Tier<T> {
    let tier = tier_of(isa);
    isa.narrower().filter(|_| 2 * k <= tier.lanes).map_or(tier, tier_of)
}

/// Number of columns that are packed together for all centers of a panel.
const PACKED_COLUMNS: usize = 16;

/// Writes `-2 c'` of the centers of a panel, column by column, and their `|c'|^2`.
fn fill_panel<T: Float>(panel: &mut [T], centers: &[&[T]], sq_norms: &mut [f64], shift: &[T], scale: T) {
    let dim = shift.len();
    let width = panel.len() / dim;
    // Process a few columns of all centers at a time, so that written values stay in the cache.
    for start in (0..dim).step_by(PACKED_COLUMNS) {
        let columns = start..dim.min(start + PACKED_COLUMNS);
        let lines = &mut panel[columns.start * width..columns.end * width];
        for (lane, (center, norm)) in centers.iter().zip(&mut *sq_norms).enumerate() {
            let out = lines[lane..].iter_mut().step_by(width);
            *norm = fill(*norm, &center[columns.clone()], &shift[columns.clone()], scale, out);
        }
    }
}

/// Writes `-2 c'` of some columns and returns `norm` plus the squares of these columns.
#[inline(always)]
fn fill<'a, T: Float>(
    mut norm: f64,
    center: &[T],
    shift: &[T],
    scale: T,
    out: impl Iterator<Item = &'a mut T>,
) -> f64 {
    for ((&c, &s), out) in center.iter().zip(shift).zip(out) {
        let moved = moved(c, s, scale);
        norm += moved.to_f64() * moved.to_f64();
        *out = T::from_f64(-2.0 * moved.to_f64());
    }
    norm
}

/// `|c|^2` of a center for sparse rows, from its `|c'|^2`: squares of scaled values may have underflowed.
fn sq_norm_in_data<T: Float>(of_packed: f64, center: &[T], scale: T) -> f64 {
    let one = T::from_f32(1.0);
    if scale == one { of_packed } else { sq_norm(center, one) }
}
