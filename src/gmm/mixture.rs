//! The densities of a mixture of Gaussians: the cost of a distance, and new parameters from sums of rows.
//!
//! Equations are those of Hirschberger, Forster and Lücke. A component's *cost* for a row orders components: the larger the joint density, the
//! smaller the cost. With one shared variance and equal priors that is the squared distance itself, which is why a search needs no variance.

use std::f64::consts::TAU;

use crate::kernel::Compute;
use crate::kernel::listed::RowCenters;
use crate::matrix::MatRef;
use crate::names::names;
use crate::stats::ShareSums;

/// The shape of the components.
///
/// ```
/// use shoal::gmm::{Covariance, TruncatedGaussianMixture};
/// let rows: Vec<[f64; 1]> = (0..40).map(|i| [f64::from(i % 2) * 50.0 + f64::from(i % (3 + i % 2 * 7))]).collect();
/// let params = TruncatedGaussianMixture::params(2).covariance(Covariance::Spherical);
/// assert_eq!(params.fit(&rows).unwrap().variances().len(), 2);
/// assert_eq!((Covariance::Diag.to_string(), "spherical".parse().ok()), ("diag".to_owned(), Some(Covariance::Spherical)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Covariance {
    /// Choose for many components, or to find clusters as k-means does: one variance for all, and equal weights.
    #[default]
    TiedSpherical,
    /// Choose where clusters differ in size or spread: a variance and a weight for each component.
    Spherical,
    /// Choose for densities in up to some hundred columns: a variance for each component and column, and a weight for each component.
    Diag,
}

names! {
    Covariance("covariance") {
        TiedSpherical = "tied_spherical",
        Spherical = "spherical",
        Diag = "diag",
    }
}

impl Covariance {
    /// Numbers that describe the variances of `k` components in `dim` columns.
    pub(super) fn variances(self, k: usize, dim: usize) -> usize {
        match self {
            Self::TiedSpherical => 1,
            Self::Spherical => k,
            Self::Diag => k * dim,
        }
    }
}

/// The share of the shared variance, at the end of the warm-up, below which no component's variance falls, where each has its own: a component
/// on a single row would have an infinite density. It is small, since seeds that share a cluster leave one with many clusters, far larger than each.
const OWN_FLOOR: f64 = 1e-9;

/// The parameters of a mixture as they are now.
#[derive(Clone, Debug)]
pub(super) struct Mixture<T> {
    pub(super) dim: usize,
    pub(super) means: Vec<T>,
    /// Of the shape that the mixture has now, which is a shared variance until it has warmed up. None before the first search.
    pub(super) variances: Vec<f64>,
    /// The priors; 0 for a component that is dead.
    pub(super) weights: Vec<f64>,
    /// The shape that the mixture has now.
    pub(super) shape: Covariance,
    /// The smallest variances allowed: one, or one a column.
    pub(super) floors: Vec<f64>,
}

impl<T: Compute> Mixture<T> {
    /// Equal components at `means`, whose variance is still unknown.
    pub(super) fn new(means: Vec<T>, dim: usize) -> Self {
        let k = means.len() / dim;
        let weights = vec![1.0 / k as f64; k];
        Self {
            dim,
            means,
            variances: Vec::new(),
            weights,
            shape: Covariance::TiedSpherical,
            floors: Vec::new(),
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

    /// The variances as those of another shape that is at least as free.
    pub(super) fn variances_as(&self, shape: Covariance) -> Vec<f64> {
        let (k, dim) = (self.k(), self.dim);
        if self.variances.is_empty() || shape == self.shape {
            return self.variances.clone();
        }
        (0..shape.variances(k, dim)).map(|at| self.kept(at * k / shape.variances(k, dim), 0)).collect()
    }

    /// Whether all variances are as small as they may be.
    pub(super) fn is_floored(&self) -> bool {
        let floors = self.floors.iter().cycle();
        !self.floors.is_empty() && self.variances.iter().zip(floors).all(|(s2, floor)| s2 <= floor)
    }

    /// The shared variance that a first search gives (equation 8), with the variance of the data as random pairs show it: `least` is the sum of
    /// the smallest squared distances, `spread` half the sum of mean ones, both of rows that weigh `weight`.
    pub(super) fn begin(&mut self, (least, spread, weight): (f64, f64, f64)) {
        let values = weight * self.dim as f64;
        if self.floors.is_empty() {
            self.floors = vec![floor_of::<T>(spread / values, &self.means)];
        }
        self.variances = vec![(least / values).max(self.floors[0])];
    }

    /// What a search and the weighing of its finds ask for; rows are `sparse`, or dense.
    pub(super) fn densities(&self, sparse: bool) -> Densities<T> {
        let d = self.dim as f64;
        if self.shape == Covariance::TiedSpherical {
            let centers = RowCenters::new(self.centers(), sparse);
            let known = self.variances.first().map(|&s2| {
                (0.5 / (s2 * centers.unit()), -(self.k() as f64).ln() - 0.5 * d * (TAU * s2).ln())
            });
            let (half, constant) = known.unwrap_or((f64::NAN, f64::NAN));
            return Densities { centers, half, constant, of_each: Vec::new() };
        }
        let (centers, per_center): (RowCenters<T>, Vec<(f64, f64)>) = if self.shape == Covariance::Spherical {
            let centers = RowCenters::new(self.centers(), sparse);
            let unit = centers.unit();
            let of = |s2: &f64| (1.0 / (s2 * unit), d * (TAU * s2).ln());
            (centers, self.variances.iter().map(of).collect())
        } else {
            let factors: Vec<T> = self.variances.iter().map(|s2| T::from_f64(1.0 / s2.sqrt())).collect();
            let log_det = |s2: &[f64]| s2.iter().map(|s2| (TAU * s2).ln()).sum();
            let of = self.variances.chunks_exact(self.dim).map(|s2| (1.0, log_det(s2))).collect();
            (RowCenters::with_factors(self.centers(), &factors), of)
        };
        let of_each = per_center.into_iter().zip(&self.weights);
        let of_each = of_each.map(|((inverse, log_det), weight)| Component {
            inverse,
            // A dead component is infinitely far away.
            log_det: if *weight > 0.0 { log_det } else { f64::INFINITY },
            prior: if *weight > 0.0 { 2.0 * weight.ln() } else { 0.0 },
        });
        Densities { centers, half: 0.5, constant: 0.0, of_each: of_each.collect() }
    }

    /// The M-step (equation 6): parameters of the given shape from the sums of a sweep with these. Components without weight keep their means.
    /// Gives the squared length of all moves, and the share of the squared distances that is left about the new means, that of the component with
    /// the smallest one where each has its own variance.
    pub(super) fn follow(&mut self, sums: &ShareSums, shape: Covariance) -> (f64, f64) {
        let (k, dim) = (self.k(), self.dim);
        let total: f64 = sums.weights().iter().sum();
        let old = self.means.clone();
        let mut energies = vec![0.0; k];
        let (mut moved, mut before, mut least) = (0.0, 0.0, 1.0f64);
        for c in 0..k {
            let weight = sums.weights()[c];
            if weight <= 0.0 {
                continue;
            }
            before += sums.energies()[c];
            let mut growth = 0.0;
            let means = self.means[c * dim..][..dim].iter_mut().zip(&old[c * dim..]);
            for ((new, old), sum) in means.zip(sums.sum(c)) {
                *new = T::from_f64(sum / weight);
                let (new, old, mean) = (new.to_f64(), old.to_f64(), sum / weight);
                // About any point: that about the mean, and the squared distance to it.
                growth += (new - old) * ((new - mean) + (old - mean));
                moved += (new - old) * (new - old);
            }
            energies[c] = (sums.energies()[c] + weight * growth).max(0.0);
            if sums.energies()[c] > weight * dim as f64 * self.floors[0] {
                least = least.min(energies[c] / sums.energies()[c]);
            }
        }
        let after: f64 = energies.iter().sum();
        if self.shape != shape {
            self.floors = self.own_floors(sums, &old, shape);
        }
        match shape {
            Covariance::TiedSpherical => {
                self.variances = vec![(after / (dim as f64 * total)).max(self.floors[0])];
            }
            Covariance::Spherical => {
                let of = |(c, energy): (usize, &f64)| {
                    let weight = sums.weights()[c] * dim as f64;
                    if weight > 0.0 { (energy / weight).max(self.floors[0]) } else { self.kept(c, 0) }
                };
                self.variances = energies.iter().enumerate().map(of).collect();
            }
            Covariance::Diag => self.variances = self.by_column(sums, &old),
        }
        if shape != Covariance::TiedSpherical {
            self.weights = sums.weights().iter().map(|weight| weight / total).collect();
        }
        self.shape = shape;
        let left = match shape {
            Covariance::TiedSpherical if before > 0.0 => after / before,
            Covariance::Spherical => least,
            // Squares by column are not rounded.
            _ => 1.0,
        };
        (moved, left)
    }

    /// The variance of component `c` in column `t` as it is.
    fn kept(&self, c: usize, t: usize) -> f64 {
        match self.shape {
            Covariance::TiedSpherical => self.variances[0],
            Covariance::Spherical => self.variances[c],
            Covariance::Diag => self.variances[c * self.dim + t],
        }
    }

    /// Variances column by column about the present means, from squares about the `old` ones.
    fn by_column(&self, sums: &ShareSums, old: &[T]) -> Vec<f64> {
        let dim = self.dim;
        let mut variances = Vec::with_capacity(self.means.len());
        for c in 0..self.k() {
            let weight = sums.weights()[c];
            for t in 0..dim {
                variances.push(if weight > 0.0 {
                    self.measured(sums, old, (c, t)).max(self.floors[t])
                } else {
                    self.kept(c, t)
                });
            }
        }
        variances
    }

    /// The variance in column `t` of the rows of component `c`, which has some, about its present mean, from squares about the `old` one.
    fn measured(&self, sums: &ShareSums, old: &[T], (c, t): (usize, usize)) -> f64 {
        let (at, weight) = (c * self.dim + t, sums.weights()[c]);
        let (new, old, mean) = (self.means[at].to_f64(), old[at].to_f64(), sums.sum(c)[t] / weight);
        sums.squares(c)[t] / weight + (new - old) * ((new - mean) + (old - mean))
    }

    /// The floors of a shape where each component has variances of its own: never above the shared variance up to now, so that the bound does not
    /// fall, nor below what rounding makes of values.
    fn own_floors(&self, sums: &ShareSums, old: &[T], shape: Covariance) -> Vec<f64> {
        let (shared, least) = (self.variances[0], self.floors[0]);
        if shape != Covariance::Diag {
            return vec![(OWN_FLOOR * shared).max(least)];
        }
        let alive = || (0..self.k()).filter(|&c| sums.weights()[c] > 0.0);
        let total: f64 = sums.weights().iter().sum();
        let of_column = |t: usize| {
            let (mut within, mut square) = (0.0, 0.0);
            for c in alive() {
                let (share, mean) = (sums.weights()[c] / total, self.means[c * self.dim + t].to_f64());
                within += share * self.measured(sums, old, (c, t)).max(0.0);
                square += share * mean * mean;
            }
            // Each column has its own unit; one in which no component spreads has that of all of them, whatever the type of the rows.
            let rounding = rounding_of::<T>().powi(2) * (within + square);
            let unit = if within > rounding { within } else { shared };
            (OWN_FLOOR * unit).max(rounding).max(least_of::<T>()).min(shared)
        };
        (0..self.dim).map(of_column).collect()
    }
}

/// How far a value may be off by rounding, and a mean of many of them, as a share of it.
fn rounding_of<T: Compute>() -> f64 {
    (4.0 * T::EPSILON).max(64.0 * f64::EPSILON)
}

/// The smallest variance of which the inverse of the root, and its product with what is not tiny, are still numbers of `T`.
fn least_of<T: Compute>() -> f64 {
    if T::EPSILON > f64::EPSILON { 1e-70 } else { f64::MIN_POSITIVE.sqrt() }
}

/// The smallest shared variance for data of that variance: what the rounding of values makes of it, or of the squares of rows that are all the same.
fn floor_of<T: Compute>(variance: f64, means: &[T]) -> f64 {
    let square = means.iter().map(|x| x.to_f64() * x.to_f64()).sum::<f64>() / means.len() as f64;
    let floor = rounding_of::<T>().powi(2) * variance.max(square);
    if floor.is_finite() { floor.max(least_of::<T>()) } else { f64::MAX.sqrt() }
}

/// What a component adds to the costs of rows, where each has its own variance.
#[derive(Clone, Copy, Debug)]
struct Component {
    /// What a squared distance is multiplied by.
    inverse: f64,
    /// The logarithm of the determinant of the covariance, times `2 pi` for each column.
    log_det: f64,
    /// Twice the logarithm of the weight.
    prior: f64,
}

/// The joint densities of rows and components.
#[derive(Debug)]
pub(super) struct Densities<T: Compute> {
    pub(super) centers: RowCenters<T>,
    /// A log density is `constant - half * cost`; NaN while the variance is unknown.
    pub(super) half: f64,
    pub(super) constant: f64,
    /// Empty where all are alike.
    of_each: Vec<Component>,
}

impl<T: Compute> Densities<T> {
    /// Whether the components differ in nothing but their means.
    pub(super) fn are_alike(&self) -> bool {
        self.of_each.is_empty()
    }

    /// Whether the variance is known.
    pub(super) fn are_known(&self) -> bool {
        !self.half.is_nan()
    }

    /// What a squared distance to component `j`, as [`RowCenters::sq_dists`] gives it, costs.
    #[inline]
    pub(super) fn cost(&self, j: u32, sq_dist: f64) -> f64 {
        match self.of_each.get(j as usize) {
            None => sq_dist,
            Some(of) => sq_dist * of.inverse + of.log_det - of.prior,
        }
    }

    /// How far component `j` is from the cluster of a row at that squared distance: its cost, but for its weight. The mean over the rows of a
    /// cluster is their cross-entropy, which differs from the divergence of the two by what is the same for all.
    #[inline]
    pub(super) fn far(&self, j: u32, sq_dist: f64) -> f64 {
        match self.of_each.get(j as usize) {
            None => sq_dist,
            Some(of) => sq_dist * of.inverse + of.log_det,
        }
    }
}
