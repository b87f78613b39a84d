//! The nearest centers of rows, and the packing of centers that serves them best.

use super::by_tiles::{nearest_by_tiles, with_doubts};
use super::certified::Certified;
use super::distances::sq_dists;
use super::isa::Isa;
use super::pack::{Form, PackedCenters, fitting};
use super::scratch::Scratch;
use super::strips::{fits, for_each_panel, for_each_strip};
use super::tier::{Compute, tier_of};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rows::Rows;
use crate::tuning::ROWS_IN_LANES_DIM;

/// Whether kernels hold rows in the lanes and broadcast centers, or the other way round (bench `kernels`,
/// group `low-d`).
///
/// With few columns, the reduction of running minima takes longer than the distances, and it is fastest with
/// rows in the lanes. This layout needs one register per column. With 16 registers and more than 4 columns it
/// is faster only for few centers, which would leave lanes empty.
const fn rows_in_lanes(dim: usize, k: usize, registers: usize) -> bool {
    dim <= ROWS_IN_LANES_DIM && (registers >= 32 || dim <= 4 || k <= 64)
}

impl<T: Compute> PackedCenters<T> {
    /// Packs `centers` for the active instruction set.
    ///
    /// # Panics
    /// Without centers, or with more than [`MAX_CENTERS`](super::MAX_CENTERS).
    pub fn new(centers: MatRef<'_, T>) -> Self {
        Self::for_isa(centers, Isa::active())
    }

    /// Packs `centers` for a given instruction set. If the centers would fill at most half of a vector, a
    /// narrower set with bit-identical results is used.
    ///
    /// # Panics
    /// Same as [`PackedCenters::new`], and if this processor does not support `isa`.
    pub fn for_isa(centers: MatRef<'_, T>, isa: Isa) -> Self {
        Self::dense_for_isa(centers, isa, Executor::caller())
    }

    fn dense_for_isa(centers: MatRef<'_, T>, isa: Isa, cx: &Executor) -> Self {
        let (k, dim) = (centers.rows(), centers.cols());
        let tier = tier_of(isa);
        if rows_in_lanes(dim, k, tier.registers) {
            return Self::pack(centers, tier, Form::RowsInLanes, cx);
        }
        let packed = Self::pack(centers, fitting(isa, k), Form::CentersInLanes, cx);
        let certified = Certified::new(isa, k, dim).map(|certified| Box::new(certified) as _);
        Self { shortcut: certified, ..packed }
    }

    /// Packs `centers` for sparse rows if `sparse`, else for dense rows.
    ///
    /// # Panics
    /// Same as [`PackedCenters::new`].
    ///
    /// ```
    /// use shoal::{MatRef, SparseRef, kernel::{PackedCenters, Scratch, nearest}};
    /// let packed = PackedCenters::for_rows(MatRef::new(&[0.0f32, 0.0, 10.0, 10.0], 2), true);
    /// let rows = SparseRef::new(&[0, 1, 1], &[1], &[19.0f32], 2);
    /// let mut labels = [0; 2];
    /// nearest(rows, &packed, &mut labels, &mut Scratch::default());
    /// assert_eq!(labels, [1, 0]);
    /// ```
    pub fn for_rows(centers: MatRef<'_, T>, sparse: bool) -> Self {
        Self::on(centers, sparse, Executor::caller())
    }

    /// Like [`PackedCenters::for_rows`], on the threads of an executor.
    pub(crate) fn on(centers: MatRef<'_, T>, sparse: bool, cx: &Executor) -> Self {
        if sparse {
            Self::sparse_for_isa(centers, Isa::active(), cx)
        } else {
            Self::dense_for_isa(centers, Isa::active(), cx)
        }
    }

    /// Like [`PackedCenters::on`], but reuses the memory of `last` if it has the same kind and size. Page faults on
    /// fresh memory take longer than writing the values.
    pub(crate) fn in_place_of(
        last: Option<Self>,
        centers: MatRef<'_, T>,
        sparse: bool,
        cx: &Executor,
    ) -> Self {
        if !sparse {
            // Packing is cheap compared with the work on dense rows.
            return Self::on(centers, sparse, cx);
        }
        let tier = fitting(Isa::active(), centers.rows());
        Self::pack_as(centers, None, tier, Form::Sparse, None, last, cx)
    }
}

/// Labels every row with its nearest center. Costs `2 n k d` operations.
///
/// A row with a value that is not finite gets the label 0, and its distance from [`accumulate`](super::accumulate) and
/// [`sq_dists`] is not finite.
///
/// See the [module](super) for an example.
///
/// # Panics
/// If `labels` is not as long as `rows`, or rows and centers have different numbers of columns. Also if the rows are
/// sparse and the centers are packed for dense rows, or the other way round: see [`PackedCenters::for_rows`].
pub fn nearest<'a, T: Compute>(
    rows: impl Into<Rows<'a, T>>,
    packed: &PackedCenters<T>,
    labels: &mut [u32],
    scratch: &mut Scratch<T>,
) {
    let rows = rows.into();
    assert_eq!(rows.rows(), labels.len(), "one label per row");
    fits(rows, packed);
    if let (Rows::Dense(dense), Some(shortcut)) = (rows, &packed.shortcut)
        && shortcut.label(dense, packed, labels, scratch)
    {
        return;
    }
    nearest_by_tiles(rows, packed, labels, scratch);
}

/// Like [`nearest`], with the squared distances to the nearest and second nearest center.
///
/// The first is computed by difference. The second is computed from the tile value, is never negative, and is
/// infinite for a single center.
///
/// # Panics
/// Same as [`nearest`], also for the lengths of `best` and `second`.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, Scratch, nearest_two};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let (mut labels, mut best, mut second) = ([0], [0.0], [0.0]);
/// nearest_two(MatRef::new(&[1.0], 1), &centers, &mut labels, &mut best, &mut second, &mut Scratch::default());
/// assert_eq!((labels, best, second), ([0], [1.0], [9.0]));
/// ```
pub fn nearest_two<'a, T: Compute>(
    rows: impl Into<Rows<'a, T>>,
    packed: &PackedCenters<T>,
    labels: &mut [u32],
    best: &mut [f64],
    second: &mut [f64],
    scratch: &mut Scratch<T>,
) {
    let rows = rows.into();
    let n = rows.rows();
    assert!(labels.len() == n && best.len() == n && second.len() == n, "one label and two distances per row");
    with_doubts(packed, scratch, |doubts, scratch| {
        for_each_strip(rows, packed, scratch, |range, strip, scratch| {
            strip.two(packed, scratch, &mut labels[range.clone()]);
            for (r, &value) in range.clone().zip(&scratch.second) {
                second[r] = packed.unscaled(value.to_f64() + packed.sq_norm(rows, r));
            }
            doubts.note_strip(rows, range, packed, scratch);
        });
        doubts.settle(rows, packed, labels, scratch);
        // Tile values do not determine which center is the second.
        for &r in doubts.rows() {
            let mut listed = packed.all_listed();
            packed.rank(rows, r as usize, &mut listed);
            second[r as usize] = listed.get(1).map_or(f64::INFINITY, |&(sq_dist, _)| sq_dist);
        }
    });
    sq_dists(rows, labels, packed, best);
}

/// The `m` nearest centers of every row, nearest first, with squared distances by difference.
///
/// They are ordered by distance, then index, so the first is the label. `labels` and `sq_dists` hold `m` values
/// per row. Costs `2 n k d` operations and up to `n k m` comparisons.
///
/// # Panics
/// If `m` is 0 or above the number of centers, or an output does not have `m` values per row.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, Scratch, nearest_m};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0, 6.0], 1));
/// let (mut labels, mut sq_dists) = ([0; 2], [0.0; 2]);
/// nearest_m(MatRef::new(&[3.0], 1), &centers, 2, &mut labels, &mut sq_dists, &mut Scratch::default());
/// assert_eq!((labels, sq_dists), ([1, 0], [1.0, 9.0]));
/// ```
pub fn nearest_m<'a, T: Compute>(
    rows: impl Into<Rows<'a, T>>,
    packed: &PackedCenters<T>,
    m: usize,
    labels: &mut [u32],
    sq_dists: &mut [f64],
    scratch: &mut Scratch<T>,
) {
    let rows = rows.into();
    let n = rows.rows();
    assert!((1..=packed.k).contains(&m), "m must be in 1..={}, got {m}", packed.k);
    assert!(labels.len() == n * m && sq_dists.len() == n * m, "m labels and distances per row");
    // One more, to see whether the last one is in doubt.
    let (kept, largest) = (packed.k.min(m + 1), packed.largest_norm());
    let mut found: Vec<(T, u32)> = vec![(T::INFINITY, 0); packed.strip_rows() * kept];
    let mut listed = Vec::new();
    for_each_strip(rows, packed, scratch, |range, strip, scratch| {
        found.fill((T::INFINITY, u32::MAX));
        for_each_panel(packed, scratch, strip, |i, first, values| {
            let found = &mut found[i * kept..(i + 1) * kept];
            for (some, values) in values.chunks(LANES).enumerate() {
                // Most groups have no center that is near enough; one comparison of all tells.
                let farthest = found[kept - 1].0;
                if values.iter().fold(0, |near, &value| near | u32::from(value < farthest)) != 0 {
                    let first = first + some * LANES;
                    values.iter().enumerate().for_each(|(c, &value)| take_in(found, value, first + c));
                }
            }
        });
        for (i, r) in range.enumerate() {
            let near = &found[i * kept..(i + 1) * kept];
            let values = rows.stored(r).len();
            let last = near[m - 1].0;
            let doubt = || packed.doubt_about(values, largest).of(T::from_f64(packed.sq_norm(rows, r)), last);
            // Values that overflowed are not among the found.
            let decided = near[kept - 1].1 != u32::MAX && (kept == m || near[m].0 > last + doubt());
            listed.clear();
            if decided {
                listed.extend(near[..m].iter().map(|&(_, j)| (0.0, j)));
            } else {
                listed.extend((0..packed.k as u32).map(|j| (0.0, j)));
            }
            packed.rank(rows, r, &mut listed);
            for (q, &(cost, j)) in listed[..m].iter().enumerate() {
                let priced = !packed.prices.is_empty();
                labels[r * m + q] = j;
                sq_dists[r * m + q] = if priced { packed.sq_dist(rows, r, j as usize) } else { cost };
            }
        }
    });
}

/// Values that are compared at a time with the last of the nearest centers.
const LANES: usize = 16;

/// Inserts a center into the sorted list of the nearest centers of a row, if its value is small enough. Equal values
/// stay in the order in which they come.
fn take_in<V: Copy + PartialOrd>(nearest: &mut [(V, u32)], value: V, center: usize) {
    let mut at = nearest.len() - 1;
    if value < nearest[at].0 {
        while at > 0 && value < nearest[at - 1].0 {
            nearest[at] = nearest[at - 1];
            at -= 1;
        }
        nearest[at] = (value, center as u32);
    }
}
