//! Kernel calls of truncated methods: one row against a few listed centers, and adding one row to the sums of
//! a few centers.

use super::aligned::{Aligned, LINE};
use super::doubt::vanishing;
use super::frame::{scale_of, sq_norm};
use super::generic::listed::Padded;
use super::generic::projected::Axes;
use super::generic::sparse;
use super::isa::Isa;
use super::operations;
use super::strips::sq_dist_of;
use super::tier::{Compute, Tier, tier_of};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rows::Rows;

/// Number of centers of which all pairs are compared to find centers that squared differences cannot tell apart:
/// 120 pairs take less time than one row against a thousand centers.
const COMPARED_CENTERS: usize = 16;

/// Centers stored as rows, for methods that compare each row with only a few centers. Squared distances are
/// those of the data times [`RowCenters::unit`], or weighted per column.
#[derive(Debug)]
pub(crate) struct RowCenters<T: Compute> {
    tier: Tier<T>,
    k: usize,
    dim: usize,
    stride: usize,
    rows: Aligned<T>,
    /// The factors of differences: per center, shared by all centers, or empty for no factor.
    factors: Aligned<T>,
    factor_stride: usize,
    /// The axes of the centers, `n_axes` rows per center; empty if distances count in full in all directions.
    axes: Aligned<T>,
    n_axes: usize,
    /// A power of two, nearly always 1, that keeps squares of huge and tiny differences in range.
    scale: T,
    /// Squared lengths of the centers times the scale. Only for sparse rows.
    sq_norms: Vec<f64>,
    /// Squared differences between centers do not underflow in `T`.
    told_apart: bool,
}

impl<T: Compute> RowCenters<T> {
    /// Lays out `centers` for sparse or dense rows.
    pub(crate) fn new(centers: MatRef<'_, T>, sparse: bool) -> Self {
        Self::for_isa(centers, sparse, Isa::active())
    }

    /// Like [`RowCenters::new`], for a given instruction set.
    pub(super) fn for_isa(centers: MatRef<'_, T>, sparse: bool, isa: Isa) -> Self {
        let scale = scale_of(centers, None, Executor::caller());
        let mut new = Self::plain(centers, scale, isa);
        // At scale 1, only differences far below the rounding error of other values underflow.
        new.told_apart = scale == T::from_f32(1.0) || squares_tell_apart(centers, scale);
        if sparse {
            new.sq_norms = centers.iter().map(|center| sq_norm(center, scale)).collect();
        } else if scale != T::from_f32(1.0) {
            new.factors = Aligned::filled(new.stride, scale);
        }
        new
    }

    /// Like [`RowCenters::new`] for dense rows, with one factor per value of `centers` that scales the
    /// differences.
    ///
    /// # Panics
    /// If `factors` and `centers` have different lengths.
    pub(crate) fn with_factors(centers: MatRef<'_, T>, factors: &[T]) -> Self {
        Self::with_factors_for_isa(centers, factors, Isa::active())
    }

    /// Like [`RowCenters::with_factors`], for a given instruction set.
    pub(super) fn with_factors_for_isa(centers: MatRef<'_, T>, factors: &[T], isa: Isa) -> Self {
        assert_eq!(factors.len(), centers.rows() * centers.cols(), "one factor per value");
        let mut new = Self::plain(centers, T::from_f32(1.0), isa);
        new.factors = padded(MatRef::new(factors, centers.cols()), new.stride);
        new.factor_stride = new.stride;
        new
    }

    /// Like [`RowCenters::with_factors`], with `axes` per center, given one after the other: the squared
    /// projections of scaled differences onto the axes of a center are subtracted from their squared length.
    ///
    /// # Panics
    /// If lengths do not match, or there are no axes.
    pub(crate) fn with_axes(centers: MatRef<'_, T>, factors: &[T], axes: &[T]) -> Self {
        Self::with_axes_for_isa(centers, factors, axes, Isa::active())
    }

    /// Like [`RowCenters::with_axes`], for a given instruction set.
    pub(super) fn with_axes_for_isa(centers: MatRef<'_, T>, factors: &[T], axes: &[T], isa: Isa) -> Self {
        let mut new = Self::with_factors_for_isa(centers, factors, isa);
        new.n_axes = axes.len() / factors.len();
        assert!(new.n_axes > 0 && axes.len() == new.n_axes * factors.len(), "axes for every center");
        new.axes = padded(MatRef::new(axes, centers.cols()), new.stride);
        new
    }

    fn plain(centers: MatRef<'_, T>, scale: T, isa: Isa) -> Self {
        let (k, dim) = (centers.rows(), centers.cols());
        let stride = (dim * size_of::<T>()).next_multiple_of(LINE) / size_of::<T>();
        Self {
            tier: tier_of(isa),
            k,
            dim,
            stride,
            rows: padded(centers, stride),
            factors: Aligned::default(),
            factor_stride: 0,
            axes: Aligned::default(),
            n_axes: 0,
            scale,
            sq_norms: Vec::new(),
            told_apart: true,
        }
    }

    /// Number of centers.
    pub(crate) fn len(&self) -> usize {
        self.k
    }

    /// Number of columns of a center.
    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    /// Number of axes of a center.
    pub(crate) fn n_axes(&self) -> usize {
        self.n_axes
    }

    /// Whether [`RowCenters::sq_dists`] tells the centers apart. If `false`, some centers are so far away
    /// that squared differences between others underflow in `T`. With factors the result is always `true`,
    /// unchecked: callers choose factors for which the relevant scaled differences are about 1.
    pub(crate) fn are_told_apart(&self) -> bool {
        self.told_apart
    }

    /// The factor by which squared distances of the data are multiplied.
    pub(crate) fn unit(&self) -> f64 {
        self.scale.to_f64() * self.scale.to_f64()
    }

    /// Center `j`.
    pub(crate) fn row(&self, j: usize) -> &[T] {
        &self.rows[j * self.stride..][..self.dim]
    }

    fn padded(&self) -> Padded<'_, T> {
        Padded { values: &self.rows, stride: self.stride }
    }

    fn padded_factors(&self) -> Padded<'_, T> {
        Padded { values: &self.factors, stride: self.factor_stride }
    }

    fn padded_axes(&self) -> Axes<'_, T> {
        Axes { rows: Padded { values: &self.axes, stride: self.stride }, per_center: self.n_axes }
    }

    /// Prefetches row `i`.
    #[inline]
    pub(crate) fn prefetch(&self, rows: Rows<'_, T>, i: usize) {
        operations::prefetch(self.tier, rows.stored(i));
    }

    /// Squared distances of row `i` to the listed centers, by difference in `T`.
    ///
    /// # Panics
    /// If lengths do not match, a listed center does not exist, or there are factors for sparse rows.
    pub(crate) fn sq_dists(&self, rows: Rows<'_, T>, i: usize, list: &[u32], out: &mut [T]) {
        assert_eq!(rows.cols(), self.dim, "rows and centers have different numbers of columns");
        match rows {
            Rows::Dense(rows) => {
                if self.n_axes > 0 {
                    self.project(rows.row(i), list, out, &mut []);
                } else if self.factors.is_empty() {
                    operations::few(self.tier, rows.row(i), self.padded(), list, out);
                } else {
                    operations::few_scaled(
                        self.tier,
                        rows.row(i),
                        self.padded(),
                        self.padded_factors(),
                        list,
                        out,
                    );
                }
            }
            Rows::Sparse(rows) => {
                assert!(self.factors.is_empty() && self.sq_norms.len() == self.k, "centers for sparse rows");
                let row = rows.row(i);
                for (&j, out) in list.iter().zip(out) {
                    let (center, sq_norm) = (self.row(j as usize), self.sq_norms[j as usize]);
                    let sq_dist = sparse::sq_dist(row, center, sq_norm, self.scale);
                    *out = T::from_f64(if sq_dist.is_finite() {
                        sq_dist
                    } else {
                        sparse::sq_dist_in_full(row, center, self.scale)
                    });
                }
            }
        }
    }

    /// The distances of [`RowCenters::sq_dists`] for centers with axes, and the projections of the scaled
    /// differences onto these, `n_axes` per listed center, unless `onto` is empty.
    ///
    /// # Panics
    /// If lengths do not match, a listed center does not exist, or there are no axes.
    pub(crate) fn project(&self, row: &[T], list: &[u32], out: &mut [T], onto: &mut [T]) {
        let (centers, factors) = (self.padded(), self.padded_factors());
        operations::few_projected(self.tier, row, centers, factors, self.padded_axes(), list, (out, onto));
    }

    /// The squared distance of row `i` to center `j` in the units of the data, with differences and sums in
    /// `f64`.
    pub(crate) fn sq_dist(&self, rows: Rows<'_, T>, i: usize, j: usize) -> f64 {
        sq_dist_of(self.tier, rows, i, self.row(j), || self.sq_norms[j] / self.unit())
    }

    /// `sums[j] += part * row i` for each of the listed centers `j`.
    ///
    /// # Panics
    /// If lengths do not match.
    pub(crate) fn add_parts(
        &self,
        rows: Rows<'_, T>,
        i: usize,
        list: &[u32],
        parts: &[f64],
        sums: &mut [f64],
    ) {
        match rows {
            Rows::Dense(rows) => operations::add_parts(self.tier, rows.row(i), list, parts, sums),
            Rows::Sparse(rows) => {
                let (columns, values) = rows.row(i);
                for (&j, &part) in list.iter().zip(parts) {
                    let sum = &mut sums[j as usize * self.dim..][..self.dim];
                    for (&column, x) in columns.iter().zip(values) {
                        sum[column as usize] += part * x.to_f64();
                    }
                }
            }
        }
    }

    /// `squares[j] += part * (row - center j)^2`, per column, for each of the listed centers `j`.
    ///
    /// # Panics
    /// If lengths do not match.
    pub(crate) fn add_squares(&self, row: &[T], list: &[u32], parts: &[f64], squares: &mut [f64]) {
        operations::add_squares(self.tier, row, self.padded(), list, parts, squares);
    }

    /// `products += part * (row - center j)` for each axis of each of the listed centers `j`, with one part for
    /// each.
    ///
    /// # Panics
    /// If lengths do not match.
    pub(crate) fn add_products(&self, row: &[T], list: &[u32], parts: &[f64], products: &mut [f64]) {
        operations::add_products(self.tier, row, self.padded(), list, parts, products);
    }
}

/// Whether squared differences, times the square of `scale`, tell these centers apart in `T`. Checks all centers
/// near the origin, and all pairs of a few evenly spaced centers.
fn squares_tell_apart<T: Compute>(centers: MatRef<'_, T>, scale: T) -> bool {
    let (k, some) = (centers.rows(), centers.rows().min(COMPARED_CENTERS));
    let least = vanishing::<T>().to_f64();
    let origin = vec![T::ZERO; centers.cols()];
    let mut near = centers.iter().filter(|c| scaled_sq_dist(c, &origin, scale) < least);
    let near_are_equal = near.next().is_none_or(|first| near.all(|c| c == first));
    let picked: Vec<&[T]> = (0..some).map(|i| centers.row(i * k / some)).collect();
    let vanishes = |a: &[T], b: &[T]| scaled_sq_dist(a, b, scale) < least && a != b;
    near_are_equal && picked.iter().enumerate().all(|(i, a)| picked[..i].iter().all(|b| !vanishes(a, b)))
}

/// The squared distance of two centers, times the square of `scale`.
fn scaled_sq_dist<T: Float>(a: &[T], b: &[T], scale: T) -> f64 {
    let factor = scale.to_f64();
    let apart = a.iter().zip(b).map(|(a, b)| (a.to_f64() - b.to_f64()) * factor);
    apart.map(|apart| apart * apart).sum()
}

/// Rows at a distance of `stride` values, padded with zeros.
fn padded<T: Float>(rows: MatRef<'_, T>, stride: usize) -> Aligned<T> {
    let mut out = Aligned::filled(rows.rows() * stride, T::ZERO);
    for (place, row) in out.chunks_exact_mut(stride).zip(rows.iter()) {
        place[..row.len()].copy_from_slice(row);
    }
    out
}
