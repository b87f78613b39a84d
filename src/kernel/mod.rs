//! A block of rows against packed centers, on this processor.
//!
//! The verbs here are safe, own no threads, and those of a sweep allocate nothing once their [`Scratch`] has grown. They work strip by strip and never
//! write a row by center matrix unless asked for one. Labels follow one rule everywhere, the *canonical label*: the center with the
//! smallest tile value (see [`PackedCenters`]), the lowest index among equals. Distances that are reported are recomputed by difference
//! in `f64`, so that they are exact to rounding.
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
mod arch;
pub(crate) mod bounded;
mod generic;
mod isa;
mod pack;
mod table;
#[cfg(test)]
mod tests;

pub use isa::Isa;
pub use pack::{MAX_CENTERS, PackedCenters, Scratch};
pub use table::Compute;

use crate::matrix::MatRef;
use pack::Form;

/// Cuts `rows` into strips and loads each.
fn for_each_strip<T: Compute>(
    rows: MatRef<'_, T>,
    packed: &PackedCenters<T>,
    scratch: &mut Scratch<T>,
    mut f: impl FnMut(std::ops::Range<usize>, &mut Scratch<T>),
) {
    assert_eq!(rows.cols(), packed.dim, "rows and centers have different numbers of columns");
    let most = packed.strip_rows();
    let mut start = 0;
    while start < rows.rows() {
        let end = rows.rows().min(start + most);
        (packed.table.load)(packed, rows.slice(start, end), scratch);
        f(start..end, scratch);
        start = end;
    }
}

/// Labels every row with its nearest center.
///
/// A row with a value that is not finite gets some label within range; [`accumulate`] and [`sq_dists`] show it by a distance that is not
/// finite. So does a row so far away that its tile values overflow `T`: it is then further than 1e16 times the centers' spread, where
/// their distances are equal even in `f64`. Costs `2 n k d` operations.
///
/// # Panics
/// When `labels` is not as long as `rows`, or rows and centers differ in their columns.
///
/// See the [module](self) for an example.
pub fn nearest<T: Compute>(
    rows: MatRef<'_, T>,
    packed: &PackedCenters<T>,
    labels: &mut [u32],
    scratch: &mut Scratch<T>,
) {
    assert_eq!(rows.rows(), labels.len(), "one label a row");
    for_each_strip(rows, packed, scratch, |strip, scratch| {
        (packed.table.argmin)(packed, scratch, &mut labels[strip]);
    });
}

/// As [`nearest`], with the squared distances to the nearest center (by difference) and to the second nearest (tile form, never negative;
/// infinite with a single center).
///
/// # Panics
/// As [`nearest`], for `best` and `second` too.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, Scratch, nearest_two};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let (mut labels, mut best, mut second) = ([0], [0.0], [0.0]);
/// nearest_two(MatRef::new(&[1.0], 1), &centers, &mut labels, &mut best, &mut second, &mut Scratch::default());
/// assert_eq!((labels, best, second), ([0], [1.0], [9.0]));
/// ```
pub fn nearest_two<T: Compute>(
    rows: MatRef<'_, T>,
    packed: &PackedCenters<T>,
    labels: &mut [u32],
    best: &mut [f64],
    second: &mut [f64],
    scratch: &mut Scratch<T>,
) {
    let n = rows.rows();
    assert!(labels.len() == n && best.len() == n && second.len() == n, "one label and two distances a row");
    for_each_strip(rows, packed, scratch, |strip, scratch| {
        (packed.table.two)(packed, scratch, &mut labels[strip.clone()]);
        for (i, r) in strip.enumerate() {
            let row = rows.row(r);
            best[r] = (packed.table.sq_dist)(row, packed.centers().row(labels[r] as usize));
            second[r] = packed.unscaled(scratch.second[i].to_f64() + packed.sq_norm(row));
        }
    });
}

/// The `m` nearest centers of every row, nearest first, with their squared distances by difference.
///
/// The first is the canonical label, the others are ordered by distance, then index. `labels` and `sq_dists` hold `m` values a row.
/// Costs `2 n k d` operations and up to `n k m` comparisons.
///
/// # Panics
/// When `m` is 0 or above the number of centers, or an output has not `m` values a row.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, Scratch, nearest_m};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0, 6.0], 1));
/// let (mut labels, mut sq_dists) = ([0; 2], [0.0; 2]);
/// nearest_m(MatRef::new(&[3.0], 1), &centers, 2, &mut labels, &mut sq_dists, &mut Scratch::default());
/// assert_eq!((labels, sq_dists), ([1, 0], [1.0, 9.0]));
/// ```
pub fn nearest_m<T: Compute>(
    rows: MatRef<'_, T>,
    packed: &PackedCenters<T>,
    m: usize,
    labels: &mut [u32],
    sq_dists: &mut [f64],
    scratch: &mut Scratch<T>,
) {
    let n = rows.rows();
    assert!((1..=packed.k).contains(&m), "{m} nearest of {} centers", packed.k);
    assert!(labels.len() == n * m && sq_dists.len() == n * m, "m labels and distances a row");
    let mut found: Vec<(T, u32)> = vec![(T::INFINITY, 0); packed.strip_rows() * m];
    for_each_strip(rows, packed, scratch, |strip, scratch| {
        found.fill((T::INFINITY, u32::MAX));
        for_each_panel(packed, scratch, strip.len(), |i, j, value| {
            let row = &mut found[i * m..(i + 1) * m];
            if value < row[m - 1].0 {
                let at = row.partition_point(|&(v, _)| v <= value);
                row[at..].rotate_right(1);
                row[at] = (value, j as u32);
            }
        });
        for (i, r) in strip.enumerate() {
            let row = rows.row(r);
            let mut exact: Vec<(f64, u32)> = if found[i * m + m - 1].1 == u32::MAX {
                // Some tile values left the range of T: measure all by difference.
                let all = packed.centers().iter().enumerate();
                let mut all: Vec<_> = all.map(|(j, c)| ((packed.table.sq_dist)(row, c), j as u32)).collect();
                all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                all.truncate(m);
                all
            } else {
                let near = found[i * m..(i + 1) * m].iter();
                near.map(|&(_, j)| ((packed.table.sq_dist)(row, packed.centers().row(j as usize)), j))
                    .collect()
            };
            exact[1..].sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            for (q, (sq_dist, j)) in exact.into_iter().enumerate() {
                (labels[r * m + q], sq_dists[r * m + q]) = (j, sq_dist);
            }
        }
    });
}

/// Calls `f(row of the strip, center, tile value)` for every pair of the loaded strip, centers ascending for each row.
fn for_each_panel<T: Compute>(
    packed: &PackedCenters<T>,
    scratch: &mut Scratch<T>,
    rows: usize,
    mut f: impl FnMut(usize, usize, T),
) {
    let width = packed.table.width;
    for panel in 0..packed.k.div_ceil(width) {
        (packed.table.values)(packed, scratch, rows, panel);
        let first = panel * width;
        // The last panel may be narrower, and filled up.
        let stride = packed.panel_width(first);
        let centers = stride.min(packed.k - first);
        for i in 0..rows {
            for (c, &value) in scratch.tile[i * stride..][..centers].iter().enumerate() {
                f(i, first + c, value);
            }
        }
    }
}

/// Squared distances of every row to every center: `out` holds one row of `k` values for each row.
///
/// Tile form, never negative; where it would lose more than half of the digits of `T` to cancellation the value is recomputed by
/// difference.
///
/// # Panics
/// When `out` is not rows times centers long.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, Scratch, distances};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let mut out = [0.0; 2];
/// distances(MatRef::new(&[1.0], 1), &centers, &mut out, &mut Scratch::default());
/// assert_eq!(out, [1.0, 9.0]);
/// ```
pub fn distances<T: Compute>(
    rows: MatRef<'_, T>,
    packed: &PackedCenters<T>,
    out: &mut [f64],
    scratch: &mut Scratch<T>,
) {
    let k = packed.k;
    assert_eq!(out.len(), rows.rows() * k, "one value for each row and center");
    let doubtful = T::EPSILON.sqrt();
    let mut norms = vec![0.0; packed.strip_rows()];
    for_each_strip(rows, packed, scratch, |strip, scratch| {
        for (norm, r) in norms.iter_mut().zip(strip.clone()) {
            *norm = packed.sq_norm(rows.row(r));
        }
        for_each_panel(packed, scratch, strip.len(), |i, j, value| {
            let r = strip.start + i;
            let sq_dist = value.to_f64() + norms[i];
            out[r * k + j] = if sq_dist.is_finite() && sq_dist > doubtful * norms[i] {
                packed.unscaled(sq_dist)
            } else {
                (packed.table.sq_dist)(rows.row(r), packed.centers().row(j))
            };
        });
    });
}

/// Adds every row to the sum of its center, in `f64`: `sums[label] += weight * row`, `totals[label] += weight`, and to
/// `energies[label]`, row by row, the weighted squared difference between the row and its center.
///
/// # Panics
/// When a length does not fit, or a label is not below the number of centers.
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
pub fn accumulate<T: Compute>(
    rows: MatRef<'_, T>,
    labels: &[u32],
    weights: Option<&[f64]>,
    packed: &PackedCenters<T>,
    sums: &mut [f64],
    totals: &mut [f64],
    energies: &mut [f64],
) {
    assert_eq!(rows.cols(), packed.dim, "rows and centers have different numbers of columns");
    assert!(labels.len() == rows.rows() && weights.is_none_or(|w| w.len() == rows.rows()), "one label a row");
    assert!(sums.len() == packed.k * packed.dim, "one sum a center");
    assert!(totals.len() == packed.k && energies.len() == packed.k, "one weight and one energy a center");
    (packed.table.accumulate)(rows, labels, weights, packed.centers(), sums, totals, energies);
}

/// Takes every row whose label changed from the sum of its old center to that of its new one: what [`accumulate`] would give for `new`,
/// to rounding, from what it gave for `old`. Every row weighs 1. A sum has two parts, `sums` and the much smaller `lows` (0 at first), so that
/// what is taken away leaves no residue. `energies` follow, row by row. Costs `d` operations for each changed row, and one comparison for
/// every other.
///
/// # Panics
/// When a length does not fit, or a label that changes is not below the number of centers.
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
pub fn reassign<T: Compute>(
    rows: MatRef<'_, T>,
    old: &[u32],
    new: &[u32],
    packed: &PackedCenters<T>,
    (sums, lows): (&mut [f64], &mut [f64]),
    totals: &mut [f64],
    energies: &mut [f64],
) {
    assert_eq!(rows.cols(), packed.dim, "rows and centers have different numbers of columns");
    assert!(lows.len() == sums.len(), "both parts of a sum");
    assert!(old.len() == rows.rows() && new.len() == rows.rows(), "two labels a row");
    assert!(sums.len() == packed.k * packed.dim, "one sum a center");
    assert!(totals.len() == packed.k && energies.len() == packed.k, "one weight and one energy a center");
    (packed.table.reassign)(rows, (old, new), packed.centers(), (sums, lows), totals, energies);
}

/// Squared distances of rows to the centers that label them, by difference in `f64`.
///
/// # Panics
/// When a length does not fit, or a label is not below the number of centers.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, sq_dists};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let mut out = [0.0; 2];
/// sq_dists(MatRef::new(&[1.0, 6.0], 1), &[0, 1], &centers, &mut out);
/// assert_eq!(out, [1.0, 4.0]);
/// ```
pub fn sq_dists<T: Compute>(rows: MatRef<'_, T>, labels: &[u32], packed: &PackedCenters<T>, out: &mut [f64]) {
    assert_eq!(rows.cols(), packed.dim, "rows and centers have different numbers of columns");
    assert!(labels.len() == rows.rows() && out.len() == rows.rows(), "one label and one distance a row");
    for ((row, &label), out) in rows.iter().zip(labels).zip(out) {
        *out = (packed.table.sq_dist)(row, packed.centers().row(label as usize));
    }
}

/// Squared distance between two rows; differences and sums in `f64`, the same bits on every processor.
///
/// # Panics
/// When the rows differ in length.
///
/// ```
/// assert_eq!(shoal::kernel::sq_dist(&[0.0f32, 3.0], &[4.0, 0.0]), 25.0);
/// ```
pub fn sq_dist<T: Compute>(a: &[T], b: &[T]) -> f64 {
    assert_eq!(a.len(), b.len(), "rows of the same length");
    (T::table(Isa::active()).sq_dist)(a, b)
}

/// Squared distances of one row to a few others, as [`sq_dist`].
///
/// # Panics
/// When rows differ in length, or `out` is not one value for each of `others`.
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
    let table = T::table(Isa::active());
    for (other, out) in others.iter().zip(out) {
        *out = (table.sq_dist)(row, other);
    }
}

impl<T: Compute> PackedCenters<T> {
    /// `|x'|^2` of a row, from the values that the strip holds.
    fn sq_norm(&self, row: &[T]) -> f64 {
        row.iter().zip(&self.shift).fold(0.0, |sum, (&x, &s)| {
            let moved = pack::moved(x, s, self.scale).to_f64();
            sum + moved * moved
        })
    }

    /// A squared distance in the packed scale, in the scale of the data.
    fn unscaled(&self, sq_dist: f64) -> f64 {
        let scale = self.scale.to_f64();
        sq_dist.max(0.0) / scale / scale
    }

    /// Values that `values` leaves for a row of the panel that starts at center `first`.
    fn panel_width(&self, first: usize) -> usize {
        match self.form {
            Form::CentersInLanes => self.table.width.min(self.norms.len() - first),
            Form::RowsInLanes => self.table.width,
        }
    }
}
