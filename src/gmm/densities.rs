//! The joint densities of rows and components, for the E-step.
//!
//! The *cost* of a component for a row decreases with the joint density. With one shared variance and equal weights,
//! the cost is the squared distance, so a search does not need the variance.

use std::f64::consts::TAU;

use super::covariance::Covariance;
use super::mixture::Mixture;
use super::whole::{Seen, Whole};
use crate::error::Result;
use crate::kernel::Compute;
use crate::kernel::listed::RowCenters;
use crate::parallel::Executor;
use crate::rows::Rows;

/// The constants of a component with its own variance.
#[derive(Clone, Copy, Debug)]
struct Component {
    /// The factor of squared distances.
    inverse: f64,
    /// The logarithm of the determinant of the covariance, plus `ln(2 pi)` per column.
    log_det: f64,
    /// Twice the logarithm of the weight.
    prior: f64,
}

/// The joint densities of rows and components.
#[derive(Debug)]
pub(super) struct Densities<T: Compute> {
    pub(super) centers: RowCenters<T>,
    /// A log density is `constant - half * cost`. NaN while the variance is unknown.
    pub(super) half: f64,
    pub(super) constant: f64,
    /// Empty if all components share one variance and weight.
    of_each: Vec<Component>,
    /// How rows are compared with covariances of columns.
    pub(super) whole: Whole<T>,
}

impl<T: Compute> Densities<T> {
    /// Whether the components differ only in their means.
    pub(super) fn are_alike(&self) -> bool {
        self.of_each.is_empty()
    }

    /// Squared distances of row `i` to the listed components, in the units of [`Densities::cost`].
    #[inline]
    pub(super) fn sq_dists(
        &self,
        rows: Rows<'_, T>,
        i: usize,
        list: &[u32],
        out: &mut [T],
        seen: &mut Seen<T>,
    ) {
        self.whole.sq_dists(&self.centers, (rows, i), list, out, seen);
    }

    /// The factor by which [`Densities::sq_dists`] multiplies squared distances.
    pub(super) fn unit(&self) -> f64 {
        if let Whole::Shared(shared) = &self.whole { shared.centers.unit() } else { self.centers.unit() }
    }

    /// Whether the variance is known.
    pub(super) fn are_known(&self) -> bool {
        !self.half.is_nan()
    }

    /// The cost of a squared distance to component `j`, in the units of [`Densities::sq_dists`].
    #[inline]
    pub(super) fn cost(&self, j: u32, sq_dist: f64) -> f64 {
        match self.of_each.get(j as usize) {
            None => sq_dist,
            Some(of) => sq_dist * of.inverse + of.log_det - of.prior,
        }
    }

    /// The distance between component `j` and the cluster of a row at this squared distance: the cost without
    /// the weight. Its mean over the rows of a cluster is their cross-entropy, which equals the divergence up
    /// to a constant.
    #[inline]
    pub(super) fn far(&self, j: u32, sq_dist: f64) -> f64 {
        match self.of_each.get(j as usize) {
            None => sq_dist,
            Some(of) => sq_dist * of.inverse + of.log_det,
        }
    }
}

impl<T: Compute> Mixture<T> {
    /// The joint densities for the E-step, for sparse or dense rows.
    pub(super) fn densities(&self, sparse: bool, cx: &Executor) -> Result<Densities<T>> {
        let d = self.dim as f64;
        if self.shape == Covariance::TiedSpherical {
            let centers = RowCenters::new(self.centers(), sparse);
            let known = self.variances.first().map(|&s2| {
                (0.5 / (s2 * centers.unit()), -(self.k() as f64).ln() - 0.5 * d * (TAU * s2).ln())
            });
            let (half, constant) = known.unwrap_or((f64::NAN, f64::NAN));
            return Ok(Densities { centers, half, constant, of_each: Vec::new(), whole: Whole::None });
        }
        let mut whole = Whole::None;
        let (centers, per_center): (RowCenters<T>, Vec<(f64, f64)>) = if self.shape == Covariance::Spherical {
            let centers = RowCenters::new(self.centers(), sparse);
            let unit = centers.unit();
            let of = |s2: &f64| (1.0 / (s2 * unit), d * (TAU * s2).ln());
            (centers, self.variances.iter().map(of).collect())
        } else if self.shape.is_whole() {
            let (centers, seen, log_dets) = self.whitened(cx)?;
            whole = seen;
            let inverse = if let Whole::Shared(shared) = &whole { 1.0 / shared.centers.unit() } else { 1.0 };
            (centers, log_dets.iter().map(|log_det| (inverse, d * TAU.ln() + log_det)).collect())
        } else {
            let factors: Vec<T> = self.variances.iter().map(|s2| T::from_f64(1.0 / s2.sqrt())).collect();
            let log_det = |s2: &[f64]| s2.iter().map(|s2| (TAU * s2).ln()).sum();
            let mut of: Vec<(f64, f64)> =
                self.variances.chunks_exact(self.dim).map(|s2| (1.0, log_det(s2))).collect();
            let centers = if self.shape == Covariance::Diag {
                RowCenters::with_factors(self.centers(), &factors)
            } else {
                let (axes, more) = self.axes(cx)?;
                of.iter_mut().zip(more).for_each(|((_, log_det), more)| *log_det += more);
                RowCenters::with_axes(self.centers(), &factors, &axes)
            };
            (centers, of)
        };
        let of_each = per_center.into_iter().zip(&self.weights);
        let of_each = of_each.map(|((inverse, log_det), weight)| Component {
            inverse,
            // A dead component is infinitely far away.
            log_det: if *weight > 0.0 { log_det } else { f64::INFINITY },
            prior: if *weight > 0.0 { 2.0 * weight.ln() } else { 0.0 },
        });
        Ok(Densities { centers, half: 0.5, constant: 0.0, of_each: of_each.collect(), whole })
    }
}
