//! The parameters of a Gaussian mixture, and the M-step that updates them.
//!
//! Equations are those of Hirschberger, Forster and Lücke.

use super::covariance::Covariance;
use super::matrices::{diagonal, inverse};
use super::params::MixtureParams;
use crate::error::Result;
use crate::kernel::Compute;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::stats::{ProjectionSums, ShareSums};

/// Lower limit of per-component variances, relative to the shared variance at the end of the warm-up. Without
/// it, a component on a single row would have infinite density. The limit is small: if seeds share clusters,
/// one component covers many clusters, and its variance is far larger than theirs.
const OWN_FLOOR: f64 = 1e-9;

/// The same for components with factors. With a smaller limit, factors explain all of the few rows of a small
/// component, and held-out rows lose density. The limit also bounds the digits that distances lose. With this
/// value, held-out rows of four sets of 16 to 784 columns have a higher density than with `diag`
/// (`benches/python/factor_mixture.py`).
const FACTOR_FLOOR: f64 = 1e-4;

/// A variance at its lower limit, given the columns before it, exceeds the limit by what rounding errors of these
/// columns explain.
const ROUNDED: f64 = 1.01;

/// The current parameters of a mixture.
#[derive(Clone, Debug)]
pub(super) struct Mixture<T> {
    pub(super) dim: usize,
    pub(super) means: Vec<T>,
    /// Variances in the current shape, which is a shared variance during the warm-up. Empty before the first
    /// search.
    pub(super) variances: Vec<f64>,
    /// The weights (priors). 0 for a dead component.
    pub(super) weights: Vec<f64>,
    /// The current shape.
    pub(super) shape: Covariance,
    /// Lower limits of the variances: one, or one per column.
    pub(super) floors: Vec<f64>,
    /// A number that the M-step adds to every variance.
    pub(super) reg_covar: f64,
    /// Number of factors per component of [`Covariance::Factor`], else 0.
    pub(super) n_factors: usize,
    /// The loadings of all factors, `n_factors` rows per component. Empty unless the current shape has factors.
    pub(super) loadings: Vec<f64>,
}

impl<T: Compute> Mixture<T> {
    /// Components with equal weights at `means`, with unknown variance and `n_factors` factors each.
    pub(super) fn new(means: Vec<T>, dim: usize, n_factors: usize) -> Self {
        let k = means.len() / dim;
        let weights = vec![1.0 / k as f64; k];
        Self {
            dim,
            means,
            variances: Vec::new(),
            weights,
            shape: Covariance::TiedSpherical,
            floors: Vec::new(),
            reg_covar: 0.0,
            n_factors,
            loadings: Vec::new(),
        }
    }

    /// Number of components.
    pub(super) fn k(&self) -> usize {
        self.weights.len()
    }

    /// The means as a matrix.
    pub(super) fn centers(&self) -> MatRef<'_, T> {
        MatRef::new(&self.means, self.dim)
    }

    /// The variances, converted to a shape with at least as many variances.
    pub(super) fn variances_as(&self, shape: Covariance) -> Vec<f64> {
        let (k, dim) = (self.k(), self.dim);
        if self.variances.is_empty() || shape == self.shape {
            return self.variances.clone();
        }
        if shape.is_whole() {
            return diagonal(dim, self.variances[0]).repeat(shape.variances(k, dim) / (dim * dim));
        }
        (0..shape.variances(k, dim)).map(|at| self.kept(at * k / shape.variances(k, dim), 0)).collect()
    }

    /// The loadings; zeros as long as the current shape has none.
    pub(super) fn loadings(&self) -> Vec<f64> {
        let size = self.n_factors * self.means.len();
        if self.loadings.is_empty() { vec![0.0; size] } else { self.loadings.clone() }
    }

    /// Whether all variances are at their lower limits, and factors add no more to them.
    pub(super) fn is_floored(&self) -> bool {
        let floors = || self.floors.iter().cycle();
        let most = if self.shape.is_whole() { ROUNDED } else { 1.0 };
        !self.floors.is_empty()
            && self.diagonals().zip(floors()).all(|(s2, floor)| *s2 <= floor * most)
            && self.loadings.iter().zip(floors()).all(|(x, floor)| x * x <= *floor)
    }

    /// The variances, without the covariances of columns.
    fn diagonals(&self) -> impl Iterator<Item = &f64> {
        let size = if self.shape.is_whole() { self.dim * self.dim } else { usize::MAX };
        let step = if self.shape.is_whole() { self.dim + 1 } else { 1 };
        self.variances.chunks(size).flat_map(move |of| of.iter().step_by(step))
    }

    /// Sets the shared variance after a first search (equation 8), and its lower limit from the variance of
    /// the data, as estimated from random pairs. `least` is the sum of the smallest squared distances and
    /// `spread` half the sum of the mean squared distances, of rows with total weight `weight`.
    pub(super) fn begin(&mut self, (least, spread, weight): (f64, f64, f64)) {
        let values = weight * self.dim as f64;
        if self.floors.is_empty() {
            self.floors = vec![floor_of::<T>(spread / values, &self.means)];
        }
        self.variances = vec![(least / values + self.reg_covar).max(self.floors[0])];
    }

    /// Replaces the shared variance and the equal weights of a first search by the parameters with which the fit
    /// begins, in its own shape.
    pub(super) fn begin_given(&mut self, params: &MixtureParams) {
        let (shape, dim) = (params.covariance, self.dim);
        self.variances = match &params.precisions_init {
            Some(precisions) if shape.is_whole() => {
                precisions.chunks_exact(dim * dim).flat_map(|precision| inverse(precision, dim)).collect()
            }
            Some(precisions) => precisions.iter().map(|precision| 1.0 / precision).collect(),
            None => self.variances_as(shape),
        };
        if let Some(weights) = &params.weights_init {
            let total: f64 = weights.iter().sum();
            self.weights = weights.iter().map(|weight| weight / total).collect();
        }
        self.loadings = params.loadings_init.clone().unwrap_or_default();
        self.shape = shape;
    }

    /// The M-step (equation 6): new parameters with the given shape, from the sums of a sweep with the
    /// current parameters. Components without weight keep their means.
    ///
    /// With `own_limits`, sets the lower limits of the variances for this shape, as a change of shape does.
    ///
    /// Returns the squared length of all moves, and the share of the squared distances that remains about the
    /// new means. With per-component variances, the share is the smallest of all components.
    pub(super) fn follow(
        &mut self,
        sums: &ShareSums,
        projections: &ProjectionSums,
        shape: Covariance,
        own_limits: bool,
        cx: &Executor,
    ) -> Result<(f64, f64)> {
        if self.shape == Covariance::Factor || self.shape.is_whole() {
            if own_limits {
                self.floors = self.own_floors(sums, &self.means, shape);
            }
            let moved = if self.shape.is_whole() {
                self.follow_whole(sums, projections, cx)?
            } else {
                self.follow_factors(sums, projections, cx)?
            };
            self.weights = shares(sums);
            return Ok((moved, 1.0));
        }
        let old = self.means.clone();
        let (moved, energies) = self.move_means(sums);
        let left = self.left(sums, &energies, shape);
        if self.shape != shape || own_limits && shape != Covariance::TiedSpherical {
            self.floors = self.own_floors(sums, &old, shape);
        }
        self.variances = match shape {
            Covariance::TiedSpherical => {
                let total: f64 = sums.weights().iter().sum();
                let mean = energies.iter().sum::<f64>() / (self.dim as f64 * total);
                vec![(mean + self.reg_covar).max(self.floors[0])]
            }
            Covariance::Spherical => self.by_component(sums, &energies),
            Covariance::Diag | Covariance::Factor | Covariance::Tied | Covariance::Full => {
                self.by_column(sums, &old)
            }
        };
        if shape != Covariance::TiedSpherical {
            self.weights = shares(sums);
        }
        self.shape = shape;
        if shape == Covariance::Factor {
            self.begin_factors();
        } else if shape.is_whole() {
            self.begin_whole(sums.weights());
        }
        Ok((moved, left))
    }

    /// Moves the means to those of their rows. Returns the squared length of all moves, and the squared distances per
    /// component about the new means.
    fn move_means(&mut self, sums: &ShareSums) -> (f64, Vec<f64>) {
        let (mut moved, mut energies) = (0.0, vec![0.0; self.k()]);
        for c in alive(sums) {
            let weight = sums.weights()[c];
            let mut growth = 0.0;
            for (place, sum) in self.means[c * self.dim..][..self.dim].iter_mut().zip(sums.sum(c)) {
                let (old, mean) = (place.to_f64(), sum / weight);
                *place = T::from_f64(mean);
                let new = place.to_f64();
                // The squared distances about a point are those about the mean, plus the squared distance to
                // the mean.
                growth += (new - old) * ((new - mean) + (old - mean));
                moved += (new - old) * (new - old);
            }
            energies[c] = (sums.energies()[c] + weight * growth).max(0.0);
        }
        (moved, energies)
    }

    /// The share of the squared distances that remains about the new means, where they are `energies`.
    fn left(&self, sums: &ShareSums, energies: &[f64], shape: Covariance) -> f64 {
        let before = sums.energies();
        match shape {
            Covariance::TiedSpherical => {
                let before: f64 = alive(sums).map(|c| before[c]).sum();
                if before > 0.0 { energies.iter().sum::<f64>() / before } else { 1.0 }
            }
            Covariance::Spherical => {
                let floor = |c: usize| sums.weights()[c] * self.dim as f64 * self.floors[0];
                let spread = alive(sums).filter(|&c| before[c] > floor(c));
                spread.map(|c| energies[c] / before[c]).fold(1.0, f64::min)
            }
            // Per-column squares are not rounded to `T`.
            _ => 1.0,
        }
    }

    /// The current variance of component `c` in column `t`.
    fn kept(&self, c: usize, t: usize) -> f64 {
        match self.shape {
            Covariance::TiedSpherical => self.variances[0],
            Covariance::Spherical => self.variances[c],
            Covariance::Diag | Covariance::Factor => self.variances[c * self.dim + t],
            Covariance::Tied => self.variances[t * self.dim + t],
            Covariance::Full => self.variances[(c * self.dim + t) * self.dim + t],
        }
    }

    /// Per-component variances, from the squared errors of the components.
    fn by_component(&self, sums: &ShareSums, energies: &[f64]) -> Vec<f64> {
        let of = |(c, energy): (usize, &f64)| {
            let weight = sums.weights()[c] * self.dim as f64;
            if weight > 0.0 {
                (energy / weight + self.reg_covar).max(self.floors[0])
            } else {
                self.kept(c, 0)
            }
        };
        energies.iter().enumerate().map(of).collect()
    }

    /// Per-column variances about the current means, from squares about the `old` means.
    fn by_column(&self, sums: &ShareSums, old: &[T]) -> Vec<f64> {
        let dim = self.dim;
        let mut variances = Vec::with_capacity(self.means.len());
        for c in 0..self.k() {
            let weight = sums.weights()[c];
            for t in 0..dim {
                variances.push(if weight > 0.0 {
                    (self.measured(sums, old, (c, t)) + self.reg_covar).max(self.floors[t])
                } else {
                    self.kept(c, t)
                });
            }
        }
        variances
    }

    /// The variance of component `c` in column `t` about its current mean, from squares about the `old` mean.
    /// The component must have weight.
    fn measured(&self, sums: &ShareSums, old: &[T], (c, t): (usize, usize)) -> f64 {
        let (at, weight) = (c * self.dim + t, sums.weights()[c]);
        let (new, old, mean) = (self.means[at].to_f64(), old[at].to_f64(), sums.sum(c)[t] / weight);
        sums.squares(c)[t] / weight + (new - old) * ((new - mean) + (old - mean))
    }

    /// The lower limits for a shape with per-component variances. At most the current mean variance, so
    /// that the bound does not fall, and at least the rounding error of values.
    fn own_floors(&self, sums: &ShareSums, old: &[T], shape: Covariance) -> Vec<f64> {
        let shared = self.diagonals().sum::<f64>() / self.diagonals().count() as f64;
        let least = self.floors[0];
        if !shape.is_by_column() {
            return vec![(OWN_FLOOR * shared).max(least)];
        }
        let share = if shape == Covariance::Factor { FACTOR_FLOOR } else { OWN_FLOOR };
        let total: f64 = sums.weights().iter().sum();
        let of_column = |t: usize| {
            let (mut within, mut square) = (0.0, 0.0);
            for c in alive(sums) {
                let (share, mean) = (sums.weights()[c] / total, self.means[c * self.dim + t].to_f64());
                within += share * self.measured(sums, old, (c, t)).max(0.0);
                square += share * mean * mean;
            }
            // Each column has its own unit. A column in which no component spreads uses the shared variance,
            // for every type of rows.
            let rounding = rounding_of::<T>().powi(2) * (within + square);
            let unit = if within > rounding { within } else { shared };
            (share * unit).max(rounding).max(least_of::<T>()).min(shared)
        };
        (0..self.dim).map(of_column).collect()
    }
}

/// The components with weight.
pub(super) fn alive(sums: &ShareSums) -> impl Iterator<Item = usize> {
    (0..sums.weights().len()).filter(|&c| sums.weights()[c] > 0.0)
}

/// The weights of the components by these sums.
fn shares(sums: &ShareSums) -> Vec<f64> {
    let total: f64 = sums.weights().iter().sum();
    sums.weights().iter().map(|weight| weight / total).collect()
}

/// The relative rounding error of a value, and of a mean of many values.
fn rounding_of<T: Compute>() -> f64 {
    (4.0 * T::EPSILON).max(64.0 * f64::EPSILON)
}

/// The smallest variance whose inverse root, times values that are not tiny, is still a number of `T`.
fn least_of<T: Compute>() -> f64 {
    if T::EPSILON > f64::EPSILON { 1e-70 } else { f64::MIN_POSITIVE.sqrt() }
}

/// The lower limit of the shared variance for data with the given variance: the rounding error of values, or
/// of the squares of identical rows.
fn floor_of<T: Compute>(variance: f64, means: &[T]) -> f64 {
    let square = means.iter().map(|x| x.to_f64() * x.to_f64()).sum::<f64>() / means.len() as f64;
    let floor = rounding_of::<T>().powi(2) * variance.max(square);
    if floor.is_finite() { floor.max(least_of::<T>()) } else { f64::MAX.sqrt() }
}
