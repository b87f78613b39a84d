//! Components with whole covariances: one that all share ([`Covariance::Tied`]), or one each
//! ([`Covariance::Full`]).
//!
//! With the Cholesky factor `L` of a covariance, the Mahalanobis distance is the squared length of `L^-1 (x -
//! mean)`. With a shared covariance, rows and means are multiplied by `L^-1` first. Distances are then those
//! between points.

use super::covariance::Covariance;
use super::factors::COMPONENTS;
use super::matrices::{add_outer, cholesky, diagonal, diagonal_of, solve, symmetrize};
use super::mixture::{Mixture, alive};
use crate::error::Result;
use crate::kernel::Compute;
use crate::kernel::listed::RowCenters;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rows::Rows;
use crate::stats::{ProjectionSums, ShareSums};

/// Least variance of a column given the earlier ones, relative to the second moment from which its variance was
/// computed: rounding errors of the difference, and of the Cholesky factor, stay far below it.
const LEAST: f64 = 1e-12;

/// How a row is compared with whole covariances.
#[derive(Debug)]
pub(super) enum Whole<T: Compute> {
    /// There are none.
    None,
    Shared(Box<Shared<T>>),
    /// The axes of the centers are the rows of their `L^-1`.
    Own,
}

/// A covariance that all components share.
#[derive(Debug)]
pub(super) struct Shared<T: Compute> {
    /// The transpose of `L^-1`.
    whitener: Vec<f64>,
    /// The point from which rows and means are measured.
    origin: Vec<T>,
    /// The origin as the only center.
    pub(super) from: RowCenters<T>,
    /// The projected means.
    pub(super) centers: RowCenters<T>,
}

/// A row as whole covariances see it.
#[derive(Debug)]
pub(super) struct Seen<T> {
    wide: Vec<f64>,
    values: Vec<T>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self { wide: Vec::new(), values: Vec::new() }
    }
}

impl<T: Compute> Shared<T> {
    /// Multiplies the difference of a row from the origin by `L^-1`.
    fn project(&self, row: &[T], seen: &mut Seen<T>) {
        let dim = self.origin.len();
        seen.wide.clear();
        seen.wide.resize(dim, 0.0);
        for (t, (x, o)) in row.iter().zip(&self.origin).enumerate() {
            let apart = x.to_f64() - o.to_f64();
            for (sum, factor) in seen.wide[t..].iter_mut().zip(&self.whitener[t * dim + t..][..dim - t]) {
                *sum += factor * apart;
            }
        }
        seen.values.clear();
        seen.values.extend(seen.wide.iter().map(|&x| T::from_f64(x)));
    }
}

impl<T: Compute> Whole<T> {
    /// Number of clusters, and of axes, of the sums of products that the M-step needs; `None` without whole
    /// covariances.
    pub(super) fn scatters(&self, k: usize) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Shared(_) => Some(1),
            Self::Own => Some(k),
        }
    }

    /// Squared Mahalanobis distances of a row to the listed components.
    pub(super) fn sq_dists(
        &self,
        centers: &RowCenters<T>,
        (rows, i): (Rows<'_, T>, usize),
        list: &[u32],
        out: &mut [T],
        seen: &mut Seen<T>,
    ) {
        let (Rows::Dense(dense), false) = (rows, matches!(self, Self::None)) else {
            return centers.sq_dists(rows, i, list, out);
        };
        let dim = centers.dim();
        if let Self::Shared(shared) = self {
            shared.project(dense.row(i), seen);
            return shared.centers.sq_dists(MatRef::new(&seen.values, dim).into(), 0, list, out);
        }
        seen.values.resize(list.len() * dim, T::ZERO);
        centers.project(dense.row(i), list, out, &mut seen.values[..list.len() * dim]);
        for (out, onto) in out.iter_mut().zip(seen.values.chunks_exact(dim)) {
            *out = T::from_f64(onto.iter().map(|x| x.to_f64() * x.to_f64()).sum());
        }
    }
}

/// Adds `reg_covar` to the diagonal of a covariance, and what else it takes for the variance of each column, given
/// the earlier ones, to be at least its limit. The covariance is a difference of matrices; the first one has the
/// diagonal `seconds`.
fn limit(covariance: &mut [f64], floors: &[f64], seconds: &[f64], reg_covar: f64) {
    let n = floors.len();
    symmetrize(covariance, n);
    covariance.iter_mut().step_by(n + 1).for_each(|x| *x += reg_covar);
    let mut root = covariance.to_vec();
    for i in 0..n {
        for j in 0..=i {
            let (before, row) = root.split_at_mut(i * n);
            let of_j = if i == j { &row[..j] } else { &before[j * n..][..j] };
            let inner: f64 = row[..j].iter().zip(of_j).map(|(a, b)| a * b).sum();
            let rest = row[j] - inner;
            row[j] = if i == j {
                let least = floors[i].max(LEAST * seconds[i].max(covariance[i * n + i]));
                covariance[i * n + i] += (least - rest).max(0.0);
                rest.max(least).sqrt()
            } else {
                rest / before[j * n + j]
            };
        }
    }
}

/// `L^-1`, row by row, and the logarithm of the determinant of the covariance.
fn whitener_of(covariance: &[f64], n: usize) -> (Vec<f64>, f64) {
    let (mut root, mut inverse) = (covariance.to_vec(), diagonal(n, 1.0));
    cholesky(&mut root, n);
    solve(&root, n, &mut inverse, n);
    (inverse, 2.0 * root.iter().step_by(n + 1).map(|x| x.ln()).sum::<f64>())
}

impl<T: Compute> Mixture<T> {
    /// The mean of the means, rounded to `T`.
    fn origin(&self) -> Vec<T> {
        let k = self.k() as f64;
        let of = |t: usize| self.means.iter().skip(t).step_by(self.dim).map(|x| x.to_f64() / k).sum();
        (0..self.dim).map(|t| T::from_f64(of(t))).collect()
    }

    /// The centers, the way to compare rows with them, and the logarithm of the determinant per component.
    pub(super) fn whitened(&self, cx: &Executor) -> Result<(RowCenters<T>, Whole<T>, Vec<f64>)> {
        let (k, dim, size) = (self.k(), self.dim, self.dim * self.dim);
        let ones = vec![T::from_f64(1.0); self.means.len()];
        if self.shape == Covariance::Tied {
            let (inverse, log_det) = whitener_of(&self.variances, dim);
            let origin = self.origin();
            let mut whitener = vec![0.0; size];
            for (t, column) in whitener.chunks_exact_mut(dim).enumerate() {
                column.iter_mut().enumerate().for_each(|(h, x)| *x = inverse[h * dim + t]);
            }
            let plain = |rows: &[T]| RowCenters::new(MatRef::new(rows, dim), false);
            let mut shared = Shared { whitener, from: plain(&origin), centers: plain(&origin), origin };
            let (mut seen, mut projected) = (Seen::default(), Vec::with_capacity(self.means.len()));
            for mean in self.means.chunks_exact(dim) {
                shared.project(mean, &mut seen);
                projected.extend_from_slice(&seen.values);
            }
            shared.centers = plain(&projected);
            let centers = RowCenters::with_factors(self.centers(), &ones);
            return Ok((centers, Whole::Shared(Box::new(shared)), vec![log_det; k]));
        }
        let of = |c: usize| whitener_of(&self.variances[c * size..][..size], dim);
        let (axes, log_dets) = self.axes_by(size, of, cx)?;
        Ok((RowCenters::with_axes(self.centers(), &ones, &axes), Whole::Own, log_dets))
    }

    /// Turns the variances per column into covariances without correlation. All components have some share.
    pub(super) fn begin_whole(&mut self, shares: &[f64]) {
        let (dim, total) = (self.dim, shares.iter().sum::<f64>());
        let of_each = self.variances.chunks_exact(dim);
        let mut whole = if self.shape == Covariance::Tied {
            let mut pooled = vec![0.0; dim];
            for (variances, share) in of_each.zip(shares) {
                pooled.iter_mut().zip(variances).for_each(|(sum, s2)| *sum += share / total * s2);
            }
            pooled
        } else {
            self.variances.clone()
        };
        let mut out = vec![0.0; whole.len() * dim];
        for (matrix, variances) in out.chunks_exact_mut(dim * dim).zip(whole.chunks_exact_mut(dim)) {
            matrix.iter_mut().step_by(dim + 1).zip(variances).for_each(|(x, s2)| *x = *s2);
        }
        self.variances = out;
    }

    /// The M-step for whole covariances, without the weights of components. Components without weight keep everything.
    /// Returns the squared length of all moves.
    pub(super) fn follow_whole(
        &mut self,
        sums: &ShareSums,
        scatters: &ProjectionSums,
        cx: &Executor,
    ) -> Result<f64> {
        let (k, dim, size, reg_covar) = (self.k(), self.dim, self.dim * self.dim, self.reg_covar);
        let origin = self.origin();
        // Per component, the move of the mean, the move before rounding, and the mean from the origin.
        let mut moved = 0.0;
        let mut shifts = vec![[0.0f64; 3]; k * dim];
        for c in alive(sums) {
            let weight = sums.weights()[c];
            let means = self.means[c * dim..][..dim].iter_mut().zip(sums.sum(c)).zip(&origin);
            for (((mean, sum), o), shift) in means.zip(&mut shifts[c * dim..]) {
                let old = mean.to_f64();
                *mean = T::from_f64(sum / weight);
                *shift = [mean.to_f64() - old, sum / weight - old, sum / weight - o.to_f64()];
                moved += shift[0] * shift[0];
            }
        }
        let of = |c: usize, f: fn(&[f64; 3]) -> f64| -> Vec<f64> {
            shifts[c * dim..][..dim].iter().map(f).collect()
        };
        if self.shape == Covariance::Tied {
            let total: f64 = sums.weights().iter().sum();
            let mut covariance: Vec<f64> = scatters.product(0).iter().map(|x| x / total).collect();
            let seconds = diagonal_of(&covariance, dim);
            for c in alive(sums) {
                let weight = sums.weights()[c];
                add_outer(&mut covariance, -weight / total, &of(c, |shift| shift[2]));
                add_outer(&mut covariance, weight / total, &of(c, |shift| shift[0] - shift[1]));
            }
            for (floor, second) in self.floors.iter_mut().zip(&seconds) {
                *floor = floor.max(LEAST * second);
            }
            limit(&mut covariance, &self.floors, &seconds, reg_covar);
            self.variances = covariance;
        } else {
            let floors = &self.floors;
            cx.for_each(
                self.variances.chunks_mut(COMPONENTS * size).enumerate(),
                || (),
                |(part, covariances), ()| {
                    for (i, covariance) in covariances.chunks_exact_mut(size).enumerate() {
                        let c = part * COMPONENTS + i;
                        let weight = sums.weights()[c];
                        if weight > 0.0 {
                            let scatter = covariance.iter_mut().zip(scatters.product(c));
                            scatter.for_each(|(x, sum)| *x = sum / weight);
                            let seconds = diagonal_of(covariance, dim);
                            add_outer(covariance, -1.0, &of(c, |shift| shift[1]));
                            add_outer(covariance, 1.0, &of(c, |shift| shift[0] - shift[1]));
                            limit(covariance, floors, &seconds, reg_covar);
                        }
                    }
                    Ok(())
                },
            )?;
        }
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gmm::matrices::{inverse, is_positive_definite};

    fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
        let at = |i: usize, j: usize| (0..n).map(|h| a[i * n + h] * b[h * n + j]).sum();
        (0..n * n).map(|ij| at(ij / n, ij % n)).collect()
    }

    #[test]
    fn inverses_and_limits_of_matrices() {
        let matrix = [4.0, 1.0, 0.5, 1.0, 3.0, -1.0, 0.5, -1.0, 2.0];
        assert!(is_positive_definite(&matrix, 3));
        let unit = product(&matrix, &inverse(&matrix, 3), 3);
        assert!(unit.iter().zip(diagonal(3, 1.0)).all(|(x, y)| (x - y).abs() < 1e-14));
        let mut limited = matrix.to_vec();
        limit(&mut limited, &[1e-3; 3], &[0.0; 3], 0.0);
        assert_eq!(limited, matrix);
        limit(&mut limited, &[1e-3; 3], &[0.0; 3], 0.5);
        assert_eq!(limited[0], 4.5);
        // All columns are equal: the second and third vary by the limit alone, given the first.
        let mut flat = vec![1.0; 9];
        assert!(!is_positive_definite(&flat, 3));
        limit(&mut flat, &[1e-3; 3], &[0.0; 3], 0.0);
        assert_eq!((flat[0], flat[4], flat[1]), (1.0, 1.001, 1.0));
        assert!(is_positive_definite(&flat, 3));
    }
}
