//! Squared distances, and distances, of rows and centers.

use super::arbiter;
use super::doubt::vanishing;
use super::frame;
use super::generic::pair;
use super::operations;
use super::pack::PackedCenters;
use super::scratch::Scratch;
use super::strips::{fits, for_each_panel, for_each_strip, sq_dist_of};
use super::tier::{Compute, Tier, active};
use crate::matrix::MatRef;
use crate::rows::Rows;

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
    let (doubtful, vanishing) = (T::EPSILON.sqrt(), vanishing::<T>().to_f64());
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
    if let Rows::Dense(rows) = rows {
        return operations::sq_dists(packed.tier, rows, labels, packed.centers(), out);
    }
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

/// A few fixed points for distances to dense or sparse rows, at most 32.
pub(crate) struct Points<'a, T: Compute> {
    each: Vec<Point<'a, T>>,
    /// The points as `f64`, for dense rows.
    pub(super) wide: Vec<f64>,
    tier: Tier<T>,
}

impl<'a, T: Compute> Points<'a, T> {
    /// Copies the points.
    pub(crate) fn new(points: MatRef<'a, T>) -> Self {
        assert!(points.rows() <= u32::BITS as usize, "a bit for each point");
        let stride = points.cols().next_multiple_of(pair::LANES);
        let mut wide = vec![0.0; points.rows() * stride];
        for (point, wide) in points.iter().zip(wide.chunks_exact_mut(stride)) {
            wide.iter_mut().zip(point).for_each(|(wide, x)| *wide = x.to_f64());
        }
        Self { each: points.iter().map(Point::new).collect(), wide, tier: active::<T>() }
    }

    /// Single points.
    pub(crate) fn each(&self) -> &[Point<'a, T>] {
        &self.each
    }

    /// The squared distances of the `picked` rows to those points whose bit is set in `needed` (per picked row), as
    /// those of [`Point::sq_dist`]. `out` receives a value per row and point; those that are not needed are arbitrary.
    pub(crate) fn sq_dists(&self, rows: Rows<'_, T>, (picked, needed): (&[u32], &[u32]), out: &mut Vec<f64>) {
        assert!(self.each.iter().all(|point| point.values.len() == rows.cols()), "rows of the same length");
        out.resize(picked.len() * self.each.len(), 0.0);
        if let Rows::Dense(rows) = rows {
            return operations::sq_dists_to(self.tier, rows, (picked, needed), &self.wide, out);
        }
        for ((&r, needed), out) in picked.iter().zip(needed).zip(out.chunks_exact_mut(self.each.len())) {
            for (p, (point, out)) in self.each.iter().zip(out).enumerate() {
                if needed >> p & 1 == 1 {
                    *out = point.sq_dist(rows, r as usize);
                }
            }
        }
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
        let sq_norm = frame::sq_norm(values, T::from_f32(1.0));
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

impl<T: Compute> PackedCenters<T> {
    /// The distance of row `i` to center `j`, by difference.
    fn length(&self, rows: Rows<'_, T>, i: usize, j: usize) -> f64 {
        let sq_dist = self.sq_dist(rows, i, j);
        if sq_dist.is_finite() && sq_dist >= vanishing::<f64>() {
            sq_dist.sqrt()
        } else {
            arbiter::length(rows, i, self.centers().row(j))
        }
    }
}
