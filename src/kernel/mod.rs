//! Kernels: distances, labels and sums for a block of rows against packed centers, on this processor.
//!
//! All functions are safe and start no threads. The functions of a sweep do not allocate once their
//! [`Scratch`] has grown. They process strips of rows and write a row by center matrix only if asked to.
//!
//! All functions use the same label: the center with the smallest sum of squared differences in `f64`, and the
//! lowest index among equals. Faster comparisons only exclude centers, by error bounds. Labels, and distances to the
//! centers of labels, are the same on every instruction set.
//!
//! ```
//! use shoal::MatRef;
//! use shoal::kernel::{PackedCenters, Scratch, nearest};
//! let centers = PackedCenters::new(MatRef::new(&[0.0f32, 0.0, 10.0, 10.0], 2));
//! let rows = MatRef::new(&[9.0f32, 8.0, 1.0, -1.0, 10.0, 10.0], 2);
//! let mut labels = [0; 3];
//! nearest(rows, &centers, &mut labels, &mut Scratch::default());
//! assert_eq!(labels, [1, 0, 1]);
//! ```

mod aligned;
mod arbiter;
mod arch;
pub(crate) mod blocks;
pub(crate) mod bounded;
mod bytes;
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64")),
    allow(dead_code, unused_variables, reason = "other targets have no engine, and only test this")
)]
mod certified;
mod chosen;
mod generic;
mod isa;
pub(crate) mod listed;
pub(crate) mod near;
mod operations;
mod pack;
pub(crate) mod sketched;
#[cfg(test)]
mod tests;
mod tier;

pub(crate) use arbiter::{Doubts, is_exact};
pub(crate) use bytes::{add_bytes, byte_sq_dists};
pub use isa::Isa;
pub(crate) use pack::Frame;
pub use pack::{MAX_CENTERS, PackedCenters, Scratch};
pub use tier::Compute;

use crate::matrix::MatRef;
use crate::rows::{Rows, SparseRef};
use generic::accumulate::{self as sums_of, TwoPartSums};
use generic::sparse;
use pack::Form;
use tier::{Tier, active};

impl Compute for f32 {
    fn by_matrix_unit(
        rows: MatRef<'_, Self>,
        packed: &PackedCenters<Self>,
        labels: &mut [u32],
        scratch: &mut Scratch<Self>,
    ) -> bool {
        certified::by_matrix_unit(rows, packed, labels, scratch)
    }
}

impl Compute for f64 {}

/// Cuts `rows` into strips and loads each strip if its kernel reads loaded rows. Calls `f(range, strip,
/// scratch)`.
fn for_each_strip<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    scratch: &mut Scratch<T>,
    mut f: impl FnMut(std::ops::Range<usize>, Strip<'_, T>, &mut Scratch<T>),
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
fn fits<T: Compute>(rows: Rows<'_, T>, packed: &PackedCenters<T>) {
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
struct Strip<'a, T> {
    rows: usize,
    sparse: Option<SparseRef<'a, T>>,
}

impl<T: Compute> Strip<'_, T> {
    /// The smallest tile value per row, its center, and whether another center may be nearer; see
    /// [`operations::argmin`].
    fn argmin(
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
    fn two(self, packed: &PackedCenters<T>, scratch: &mut Scratch<T>, labels: &mut [u32]) {
        match self.sparse {
            None => operations::two(packed.tier, packed, scratch, labels),
            Some(rows) => operations::sparse_two(packed.tier, packed, rows, scratch, labels),
        }
    }

    /// The tile values against one panel.
    fn values(self, packed: &PackedCenters<T>, scratch: &mut Scratch<T>, panel: usize) {
        match self.sparse {
            None => operations::values(packed.tier, packed, scratch, self.rows, panel),
            Some(rows) => operations::sparse_values(packed.tier, packed, rows, scratch, panel),
        }
    }
}

/// Labels every row with its nearest center. Costs `2 n k d` operations.
///
/// A row with a value that is not finite gets the label 0, and its distance from [`accumulate`] and [`sq_dists`]
/// is not finite.
///
/// See the [module](self) for an example.
///
/// # Panics
/// If `labels` is not as long as `rows`, or rows and centers have different numbers of columns.
pub fn nearest<'a, T: Compute>(
    rows: impl Into<Rows<'a, T>>,
    packed: &PackedCenters<T>,
    labels: &mut [u32],
    scratch: &mut Scratch<T>,
) {
    let rows = rows.into();
    assert_eq!(rows.rows(), labels.len(), "one label per row");
    fits(rows, packed);
    if let Rows::Dense(dense) = rows
        && packed.certified.pays(rows.rows())
        && (T::by_matrix_unit(dense, packed, labels, scratch)
            || certified::by_sketches(dense, packed, labels, scratch))
    {
        return;
    }
    nearest_by_tiles(rows, packed, labels, scratch);
}

/// As [`nearest`], by tile values alone.
fn nearest_by_tiles<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    labels: &mut [u32],
    scratch: &mut Scratch<T>,
) {
    with_doubts(packed, scratch, |doubts, scratch| {
        for_each_strip(rows, packed, scratch, |range, strip, scratch| {
            strip.argmin(packed, doubts, scratch, &mut labels[range.clone()]);
            doubts.note_strip(rows, range, packed, scratch);
        });
        doubts.settle(rows, packed, labels, scratch);
    });
}

/// Calls `f` with an empty list of doubts, whose memory stays in the scratch.
fn with_doubts<T: Compute>(
    packed: &PackedCenters<T>,
    scratch: &mut Scratch<T>,
    f: impl FnOnce(&mut Doubts<T>, &mut Scratch<T>),
) {
    let mut doubts = std::mem::take(&mut scratch.doubts);
    doubts.begin(packed);
    f(&mut doubts, scratch);
    scratch.doubts = doubts;
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
            values.iter().enumerate().for_each(|(c, &value)| take_in(found, value, first + c));
        });
        for (i, r) in range.enumerate() {
            let near = &found[i * kept..(i + 1) * kept];
            let values = rows.stored(r).len();
            let doubt = || packed.doubt_about(values, largest).of(T::from_f64(packed.sq_norm(rows, r)));
            // Values that overflowed are not among the found.
            let decided = near[kept - 1].1 != u32::MAX && (kept == m || near[m].0 > near[m - 1].0 + doubt());
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

/// Inserts a center into the sorted list of the nearest centers of a row, if it belongs there.
fn take_in<V: PartialOrd>(nearest: &mut [(V, u32)], value: V, center: usize) {
    let last = nearest.len() - 1;
    if value < nearest[last].0 {
        let at = nearest.partition_point(|(v, _)| *v <= value);
        nearest[at..].rotate_right(1);
        nearest[at] = (value, center as u32);
    }
}

/// Calls `f(row of the strip, first slot, tile values)` for every row and panel of the strip, with ascending
/// panels for each row.
fn for_each_panel<T: Compute>(
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

/// Squared distances of every row to every center: `out` holds `k` values per row.
///
/// Values are computed from tile values and never negative. A value that would lose more than half of the
/// digits of `T` to cancellation or underflow is recomputed by difference.
///
/// # Panics
/// If the length of `out` is not rows times centers.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, Scratch, distances};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let mut out = [0.0; 2];
/// distances(MatRef::new(&[1.0], 1), &centers, &mut out, &mut Scratch::default());
/// assert_eq!(out, [1.0, 9.0]);
/// ```
pub fn distances<'a, T: Compute>(
    rows: impl Into<Rows<'a, T>>,
    packed: &PackedCenters<T>,
    out: &mut [f64],
    scratch: &mut Scratch<T>,
) {
    let rows = rows.into();
    measure_all(
        rows,
        packed,
        out,
        scratch,
        |value| packed.unscaled(value),
        |r, j| packed.sq_dist(rows, r, j),
    );
}

/// As [`distances`], but not squared: distances whose squares would overflow or underflow `f64` are exact too.
pub(crate) fn lengths<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    out: &mut [f64],
    scratch: &mut Scratch<T>,
) {
    let scale = packed.scale();
    measure_all(rows, packed, out, scratch, |value| value.sqrt() / scale, |r, j| packed.length(rows, r, j));
}

/// Measures every row against every center: `of_tile` converts a squared distance in the packed scale, and
/// `by_difference` measures a row and a center for which tile values do not suffice.
fn measure_all<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    out: &mut [f64],
    scratch: &mut Scratch<T>,
    of_tile: impl Fn(f64) -> f64,
    by_difference: impl Fn(usize, usize) -> f64,
) {
    let k = packed.k;
    assert_eq!(out.len(), rows.rows() * k, "one value per row and center");
    let (doubtful, vanishing) = (T::EPSILON.sqrt(), arbiter::vanishing::<T>().to_f64());
    let mut norms = vec![0.0; packed.strip_rows()];
    for_each_strip(rows, packed, scratch, |range, strip, scratch| {
        for (norm, r) in norms.iter_mut().zip(range.clone()) {
            *norm = packed.sq_norm(rows, r);
        }
        for_each_panel(packed, scratch, strip, |i, first, values| {
            let r = range.start + i;
            for (j, value) in (first..).zip(values) {
                let sq_dist = value.to_f64() + norms[i];
                out[r * k + j] = if sq_dist.is_finite() && sq_dist > vanishing.max(doubtful * norms[i]) {
                    of_tile(sq_dist)
                } else {
                    by_difference(r, j)
                };
            }
        });
    });
}

/// Adds every row to the sum of its center, in `f64`.
///
/// For each row: `sums[label] += weight * row`, `totals[label] += weight`, and `energies[label] += weight *
/// |row - center|^2`.
///
/// # Panics
/// If a length does not match, or a label is not below the number of centers.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, accumulate};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let (mut sums, mut totals) = ([0.0; 2], [0.0; 2]);
/// let mut energies = [0.0; 2];
/// accumulate(MatRef::new(&[1.0, 5.0], 1), &[0, 1], None, &centers, &mut sums, &mut totals, &mut energies);
/// assert_eq!((energies, sums, totals), ([1.0, 1.0], [1.0, 5.0], [1.0, 1.0]));
/// ```
pub fn accumulate<'a, T: Compute>(
    rows: impl Into<Rows<'a, T>>,
    labels: &[u32],
    weights: Option<&[f64]>,
    packed: &PackedCenters<T>,
    sums: &mut [f64],
    totals: &mut [f64],
    energies: &mut [f64],
) {
    let rows = rows.into();
    fits(rows, packed);
    assert!(
        labels.len() == rows.rows() && weights.is_none_or(|w| w.len() == rows.rows()),
        "one label per row"
    );
    assert!(sums.len() == packed.k * packed.dim, "one sum per center");
    assert!(totals.len() == packed.k && energies.len() == packed.k, "one weight and one energy per center");
    match rows {
        Rows::Dense(rows) => {
            operations::accumulate(
                packed.tier,
                rows,
                labels,
                weights,
                packed.centers(),
                sums,
                totals,
                energies,
            );
        }
        Rows::Sparse(sparse) => {
            for (i, (&label, (columns, values))) in labels.iter().zip(sparse.iter()).enumerate() {
                let j = label as usize;
                let (weight, sum) =
                    (weights.map_or(1.0, |w| w[i]), &mut sums[j * packed.dim..][..packed.dim]);
                for (&column, x) in columns.iter().zip(values) {
                    sum[column as usize] += weight * x.to_f64();
                }
                totals[j] += weight;
                energies[j] += weight * packed.sq_dist(rows, i, j);
            }
        }
    }
}

/// Moves every row whose label changed from the sum of its old center to the sum of its new center.
///
/// The result equals [`accumulate`] for `new`, up to rounding. Every row has weight 1. Each sum has two
/// parts, `sums` and the much smaller `lows` (0 at first), so that subtraction leaves no residue. `energies`
/// are updated row by row. Costs `d` operations per changed row and one comparison per other row.
///
/// # Panics
/// If a length does not match, or a changed label is not below the number of centers.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, reassign};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let (mut sums, mut totals, mut energies) = ([6.0, 0.0], [2.0, 0.0], [26.0, 0.0]);
/// let rows = MatRef::new(&[1.0, 5.0], 1);
/// reassign(rows, &[0, 0], &[0, 1], &centers, (&mut sums, &mut [0.0; 2]), &mut totals, &mut energies);
/// assert_eq!((energies, sums, totals), ([1.0, 1.0], [1.0, 5.0], [1.0, 1.0]));
/// ```
pub fn reassign<'a, T: Compute>(
    rows: impl Into<Rows<'a, T>>,
    old: &[u32],
    new: &[u32],
    packed: &PackedCenters<T>,
    (sums, lows): (&mut [f64], &mut [f64]),
    totals: &mut [f64],
    energies: &mut [f64],
) {
    let rows = rows.into();
    fits(rows, packed);
    assert!(lows.len() == sums.len(), "both parts of a sum");
    assert!(old.len() == rows.rows() && new.len() == rows.rows(), "two labels per row");
    assert!(sums.len() == packed.k * packed.dim, "one sum per center");
    assert!(totals.len() == packed.k && energies.len() == packed.k, "one weight and one energy per center");
    match rows {
        Rows::Dense(rows) => {
            let to = TwoPartSums { sums, lows, totals, energies };
            operations::reassign(packed.tier, rows, (old, new), packed.centers(), to);
        }
        Rows::Sparse(sparse) => {
            for (i, (columns, values)) in sparse.iter().enumerate().filter(|(i, _)| old[*i] != new[*i]) {
                for (j, sign) in [(old[i] as usize, -1.0), (new[i] as usize, 1.0)] {
                    let first = j * packed.dim;
                    let (sum, low) = (&mut sums[first..][..packed.dim], &mut lows[first..][..packed.dim]);
                    for (&column, x) in columns.iter().zip(values) {
                        sums_of::add(&mut sum[column as usize], &mut low[column as usize], sign * x.to_f64());
                    }
                    totals[j] += sign;
                    energies[j] += sign * packed.sq_dist(rows, i, j);
                }
            }
        }
    }
}

/// Squared distances of rows to the centers that label them, by difference in `f64`.
///
/// # Panics
/// If a length does not match, or a label is not below the number of centers.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, sq_dists};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let mut out = [0.0; 2];
/// sq_dists(MatRef::new(&[1.0, 6.0], 1), &[0, 1], &centers, &mut out);
/// assert_eq!(out, [1.0, 4.0]);
/// ```
pub fn sq_dists<'a, T: Compute>(
    rows: impl Into<Rows<'a, T>>,
    labels: &[u32],
    packed: &PackedCenters<T>,
    out: &mut [f64],
) {
    let rows = rows.into();
    fits(rows, packed);
    assert!(labels.len() == rows.rows() && out.len() == rows.rows(), "one label and one distance per row");
    for (i, (&label, out)) in labels.iter().zip(out).enumerate() {
        *out = packed.sq_dist(rows, i, label as usize);
    }
}

/// Squared distance between two rows. Differences and sums are `f64`, and the result is bit-identical on
/// every processor.
///
/// # Panics
/// If the rows have different lengths.
///
/// ```
/// assert_eq!(shoal::kernel::sq_dist(&[0.0f32, 3.0], &[4.0, 0.0]), 25.0);
/// ```
pub fn sq_dist<T: Compute>(a: &[T], b: &[T]) -> f64 {
    assert_eq!(a.len(), b.len(), "rows of the same length");
    operations::sq_dist(active::<T>(), a, b)
}

/// Squared distances of one row to several others, as [`sq_dist`].
///
/// # Panics
/// If rows have different lengths, or `out` does not have one value per row of `others`.
///
/// ```
/// let mut out = [0.0; 2];
/// shoal::kernel::sq_dists_few(&[0.0f32], shoal::MatRef::new(&[1.0, 3.0], 1), &mut out);
/// assert_eq!(out, [1.0, 9.0]);
/// ```
pub fn sq_dists_few<T: Compute>(row: &[T], others: MatRef<'_, T>, out: &mut [f64]) {
    assert!(
        row.len() == others.cols() && out.len() == others.rows(),
        "rows of the same length, a value for each"
    );
    let tier = active::<T>();
    for (other, out) in others.iter().zip(out) {
        *out = operations::sq_dist(tier, row, other);
    }
}

/// A fixed point for distances to dense or sparse rows.
///
/// ```
/// use shoal::{SparseRef, kernel::Point};
/// let point = Point::new(&[1.0f32, 0.0, 2.0]);
/// let rows = SparseRef::new(&[0, 1], &[2], &[2.0f32], 3);
/// assert_eq!(point.sq_dist(rows.into(), 0), 1.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Point<'a, T: Compute> {
    values: &'a [T],
    sq_norm: f64,
    tier: Tier<T>,
}

impl<'a, T: Compute> Point<'a, T> {
    /// Creates a point from its values.
    pub fn new(values: &'a [T]) -> Self {
        let sq_norm = sparse::sq_norm(values, T::from_f32(1.0));
        Self { values, sq_norm, tier: active::<T>() }
    }

    /// The squared distance to row `i` of `rows`, by difference in `f64`. For a sparse row the error is up to
    /// one rounding of the point's squared length per column, and equal points have distance 0.
    ///
    /// # Panics
    /// If the row does not exist or has another length.
    pub fn sq_dist(&self, rows: Rows<'_, T>, i: usize) -> f64 {
        assert_eq!(rows.cols(), self.values.len(), "rows of the same length");
        sq_dist_of(self.tier, rows, i, self.values, || self.sq_norm)
    }
}

/// The squared distance of row `i` to a center with squared length `sq_norm`.
#[inline]
fn sq_dist_of<T: Compute>(
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

    /// The distance of row `i` to center `j`, by difference.
    fn length(&self, rows: Rows<'_, T>, i: usize, j: usize) -> f64 {
        let sq_dist = self.sq_dist(rows, i, j);
        if sq_dist.is_finite() && sq_dist >= arbiter::vanishing::<f64>() {
            sq_dist.sqrt()
        } else {
            arbiter::length(rows, i, self.centers().row(j))
        }
    }

    /// The squared distance of a sparse row to the center in a slot, and the row's squared length, both in
    /// the packed scale.
    fn sq_dist_to_slot(&self, rows: SparseRef<'_, T>, i: usize, slot: usize) -> (T, T) {
        let (row, j) = (rows.row(i), self.center_in(slot) as usize);
        let scale = self.scale.to_f64();
        let sq_norm = self.sq_norms[j] * scale * scale;
        let sq_dist = sparse::sq_dist(row, self.centers().row(j), sq_norm, self.scale);
        (T::from_f64(sq_dist), T::from_f64(sparse::sq_norm(row.1, self.scale)))
    }

    /// `|x'|^2` of a row, from the values that the kernels read. Zeros add nothing to the sum, so sparse rows
    /// get the same value as dense rows.
    fn sq_norm(&self, rows: Rows<'_, T>, i: usize) -> f64 {
        match rows {
            Rows::Dense(rows) => rows.row(i).iter().zip(&self.shift).fold(0.0, |sum, (&x, &s)| {
                let moved = pack::moved(x, s, self.scale).to_f64();
                sum + moved * moved
            }),
            Rows::Sparse(rows) => sparse::sq_norm(rows.row(i).1, self.scale),
        }
    }

    /// Converts a squared distance from the packed scale to the scale of the data.
    fn unscaled(&self, sq_dist: f64) -> f64 {
        let scale = self.scale.to_f64();
        sq_dist.max(0.0) / scale / scale
    }

    /// Number of values per row in `values` for the panel that starts at center `first`.
    fn panel_width(&self, first: usize) -> usize {
        match self.form {
            Form::CentersInLanes | Form::Sparse => self.width.min(self.norms.len() - first),
            Form::RowsInLanes => self.tier.width,
        }
    }
}
