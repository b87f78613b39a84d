//! Components with factors: a covariance `L L' + D` with `H` columns of loadings `L` and a diagonal `D`.
//!
//! The model is that of Ghahramani and Hinton, "The EM algorithm for mixtures of factor analyzers", 1996; its
//! truncated form that of Salwig et al., arXiv 2501.12299 (v-MFA). With `B = D^-1/2 L` and the Cholesky factor
//! `R` of `M = I + B' B`, the columns of `B R^-T` are the *axes* of a component. By the identity of Woodbury,
//! the Mahalanobis distance is the squared length of `a = D^-1/2 (x - mean)` less the squares of its
//! projections onto the axes, and `det(L L' + D) = det(M) det(D)`.
//!
//! The E-step sums these projections `u`. The posterior mean of the factors is `R^-T u`, and their posterior
//! covariance is the identity in units of `u`. So the M-step is a linear regression of the columns on `u`.

use super::matrices::{cholesky, solve, solve_transposed, subtract};
use super::mixture::Mixture;
use crate::error::Result;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::stats::{ProjectionSums, ShareSums};

/// The share of the variance that a column keeps as its own when it becomes a factor. The E-step that follows
/// does not depend on it. With less, the variance grows back slowly; with more, factors grow slowly.
const KEPT: f64 = 0.5;

/// Number of components that a worker updates at a time.
pub(super) const COMPONENTS: usize = 4;

/// The Cholesky factor of `M` for the loadings and variances of a component, as a lower triangle.
fn root_of(loadings: &[f64], variances: &[f64]) -> Vec<f64> {
    let dim = variances.len();
    let n = loadings.len() / dim;
    let mut root = vec![0.0; n * n];
    for (h, of_h) in loadings.chunks_exact(dim).enumerate() {
        for (g, of_g) in loadings.chunks_exact(dim).enumerate().take(h + 1) {
            let inner: f64 = of_h.iter().zip(of_g).zip(variances).map(|((a, b), s2)| a * b / s2).sum();
            root[h * n + g] = inner + f64::from(u8::from(g == h));
        }
    }
    cholesky(&mut root, n);
    root
}

/// The axes of a component, and the logarithm of the determinant of its `M`.
fn axes_of(loadings: &[f64], variances: &[f64]) -> (Vec<f64>, f64) {
    let dim = variances.len();
    let n = loadings.len() / dim;
    let root = root_of(loadings, variances);
    let mut axes = loadings.to_vec();
    for row in axes.chunks_exact_mut(dim) {
        row.iter_mut().zip(variances).for_each(|(x, s2)| *x /= s2.sqrt());
    }
    solve(&root, n, &mut axes, dim);
    (axes, 2.0 * (0..n).map(|h| root[h * n + h].ln()).sum::<f64>())
}

/// The sums of the rows of one component, with all shares divided by their sum.
struct ComponentSums<'a> {
    /// The mean difference from the old mean, and the mean of its squares.
    apart: Vec<f64>,
    squares: Vec<f64>,
    first: Vec<f64>,
    second: &'a [f64],
    product: &'a [f64],
    weight: f64,
}

/// A regression of the columns on the projections.
struct Regression {
    /// Coefficients, one row per axis.
    slopes: Vec<f64>,
    /// The mean per column at projections of 0, as a difference from the old mean.
    offsets: Vec<f64>,
    /// The variances that projections do not explain.
    residuals: Vec<f64>,
}

impl<'a> ComponentSums<'a> {
    /// The sums of component `c`, with these old means; `None` if it has no weight.
    fn new<T: Compute>(
        sums: &ShareSums,
        projections: &'a ProjectionSums,
        c: usize,
        means: &[T],
    ) -> Option<Self> {
        let weight = sums.weights()[c];
        (weight > 0.0).then(|| Self {
            apart: sums.sum(c).iter().zip(means).map(|(sum, old)| sum / weight - old.to_f64()).collect(),
            squares: sums.squares(c).iter().map(|square| square / weight).collect(),
            first: projections.first(c).iter().map(|sum| sum / weight).collect(),
            second: projections.second(c),
            product: projections.product(c),
            weight,
        })
    }

    fn regress(&self) -> Regression {
        let (n, dim) = (self.first.len(), self.apart.len());
        let mut root = vec![0.0; n * n];
        let mut slopes = self.product.to_vec();
        for (h, row) in slopes.chunks_exact_mut(dim).enumerate() {
            for (g, place) in root[h * n..][..n].iter_mut().enumerate() {
                // The posterior covariance of the projections is the identity.
                let inner = self.second[h * n + g] / self.weight - self.first[h] * self.first[g];
                *place = inner + f64::from(u8::from(g == h));
            }
            for (x, apart) in row.iter_mut().zip(&self.apart) {
                *x = *x / self.weight - self.first[h] * apart;
            }
        }
        cholesky(&mut root, n);
        solve(&root, n, &mut slopes, dim);
        let mut residuals: Vec<f64> = self.squares.iter().zip(&self.apart).map(|(s, a)| s - a * a).collect();
        for row in slopes.chunks_exact(dim) {
            residuals.iter_mut().zip(row).for_each(|(rest, x)| *rest -= x * x);
        }
        solve_transposed(&root, n, &mut slopes, dim);
        let mut offsets = self.apart.clone();
        for (row, first) in slopes.chunks_exact(dim).zip(&self.first) {
            subtract(*first, row, &mut offsets);
        }
        Regression { slopes, offsets, residuals }
    }
}

impl Regression {
    /// Replaces the parameters of the component. Returns the squared length of the move of its mean.
    fn update<T: Compute>(
        &self,
        means: &mut [T],
        (variances, floors, reg_covar): (&mut [f64], &[f64], f64),
        loadings: &mut [f64],
    ) -> f64 {
        let dim = means.len();
        let n = loadings.len() / dim;
        let root = root_of(loadings, variances);
        // Factors of variance 1 are the projections times `R^-T`.
        loadings.fill(0.0);
        for (h, row) in loadings.chunks_exact_mut(dim).enumerate() {
            for (g, slopes) in self.slopes.chunks_exact(dim).enumerate().take(h + 1) {
                subtract(-root[h * n + g], slopes, row);
            }
        }
        let mut moved = 0.0;
        for (t, mean) in means.iter_mut().enumerate() {
            let old = mean.to_f64();
            *mean = T::from_f64(old + self.offsets[t]);
            let step = mean.to_f64() - old;
            moved += step * step;
            // The mean is rounded to `T`.
            let rounding = step - self.offsets[t];
            variances[t] = (self.residuals[t] + rounding * rounding + reg_covar).max(floors[t]);
        }
        moved
    }
}

impl<T: Compute> Mixture<T> {
    /// The axes of all components, and the logarithm of the determinant of `M` per component.
    pub(super) fn axes(&self, cx: &Executor) -> Result<(Vec<T>, Vec<f64>)> {
        let (dim, size) = (self.dim, self.n_factors * self.dim);
        let of = |c: usize| axes_of(&self.loadings[c * size..][..size], &self.variances[c * dim..][..dim]);
        self.axes_by(size, of, cx)
    }

    /// The axes of all components, `size` values each, and a number per component, as `of` a component returns them.
    pub(super) fn axes_by(
        &self,
        size: usize,
        of: impl Fn(usize) -> (Vec<f64>, f64) + Sync,
        cx: &Executor,
    ) -> Result<(Vec<T>, Vec<f64>)> {
        let (mut axes, mut log_dets) = (vec![T::ZERO; self.k() * size], vec![0.0; self.k()]);
        let parts = axes.chunks_mut(COMPONENTS * size).zip(log_dets.chunks_mut(COMPONENTS)).enumerate();
        cx.for_each(
            parts,
            || (),
            |(part, (axes, log_dets)), ()| {
                for (i, (axes, log_det)) in axes.chunks_exact_mut(size).zip(log_dets).enumerate() {
                    let found = of(part * COMPONENTS + i);
                    axes.iter_mut().zip(&found.0).for_each(|(axis, &x)| *axis = T::from_f64(x));
                    *log_det = found.1;
                }
                Ok(())
            },
        )?;
        Ok((axes, log_dets))
    }

    /// Gives each component factors without a change of its density: the columns with the largest variances
    /// become a factor each, with a part of their variance. Without any loadings, factors would never grow.
    pub(super) fn begin_factors(&mut self) {
        let (n, dim) = (self.n_factors, self.dim);
        self.loadings = vec![0.0; n * self.means.len()];
        let of_each = self.variances.chunks_exact_mut(dim).zip(self.loadings.chunks_exact_mut(n * dim));
        for (variances, loadings) in of_each {
            let mut columns: Vec<usize> = (0..dim).collect();
            columns.sort_by(|&a, &b| variances[b].total_cmp(&variances[a]));
            for (loadings, &t) in loadings.chunks_exact_mut(dim).zip(&columns) {
                let own = (KEPT * variances[t]).max(self.floors[t]);
                loadings[t] = (variances[t] - own).max(0.0).sqrt();
                variances[t] = own;
            }
        }
    }

    /// The M-step for components that have factors, without the weights of components. Components without weight keep
    /// everything. Returns the squared length of all moves.
    pub(super) fn follow_factors(
        &mut self,
        sums: &ShareSums,
        projections: &ProjectionSums,
        cx: &Executor,
    ) -> Result<f64> {
        let (dim, size, floors) = (self.dim, self.n_factors * self.dim, &self.floors);
        let reg_covar = self.reg_covar;
        let mut moves = vec![0.0; self.weights.len()];
        let columns =
            self.means.chunks_mut(COMPONENTS * dim).zip(self.variances.chunks_mut(COMPONENTS * dim));
        let factors = self.loadings.chunks_mut(COMPONENTS * size).zip(moves.chunks_mut(COMPONENTS));
        cx.for_each(
            columns.zip(factors).enumerate(),
            || (),
            |(part, ((means, variances), (loadings, moves))), ()| {
                let columns = means.chunks_exact_mut(dim).zip(variances.chunks_exact_mut(dim));
                let of_each = columns.zip(loadings.chunks_exact_mut(size)).zip(moves);
                for (i, (((means, variances), loadings), moved)) in of_each.enumerate() {
                    let c = part * COMPONENTS + i;
                    if let Some(shared) = ComponentSums::new(sums, projections, c, means) {
                        *moved = shared.regress().update(means, (variances, floors, reg_covar), loadings);
                    }
                }
                Ok(())
            },
        )?;
        Ok(moves.iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Rng};

    /// `rows' rows` for `n` rows of `dim` values, plus a diagonal.
    fn gram(rows: &[f64], dim: usize, diagonal: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; dim * dim];
        for t in 0..dim {
            for s in 0..dim {
                out[t * dim + s] = rows.chunks_exact(dim).map(|row| row[t] * row[s]).sum();
            }
            out[t * dim + t] += diagonal[t];
        }
        out
    }

    #[test]
    fn axes_and_determinants_equal_those_of_the_whole_covariance() {
        let mut rng = Rng::keyed(1, Purpose::Exploring, 0);
        for (n, dim) in [(1, 2), (3, 4), (5, 9), (9, 30)] {
            let loadings: Vec<f64> = (0..n * dim).map(|_| 4.0 * rng.unit() - 2.0).collect();
            let variances: Vec<f64> = (0..dim).map(|_| 0.01 + rng.unit()).collect();
            let apart: Vec<f64> = (0..dim).map(|_| rng.unit() - 0.5).collect();
            let (axes, log_det) = axes_of(&loadings, &variances);
            let scaled: Vec<f64> = apart.iter().zip(&variances).map(|(x, s2)| x / s2.sqrt()).collect();
            let squares = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>();
            let onto: Vec<f64> = axes
                .chunks_exact(dim)
                .map(|axis| axis.iter().zip(&scaled).map(|(a, x)| a * x).sum())
                .collect();
            let mut whole = gram(&loadings, dim, &variances);
            cholesky(&mut whole, dim);
            let mut solved = apart.clone();
            solve(&whole, dim, &mut solved, 1);
            let exact = squares(&solved);
            assert!((squares(&scaled) - squares(&onto) - exact).abs() < 1e-9 * squares(&scaled));
            let exact: f64 = 2.0 * (0..dim).map(|t| whole[t * dim + t].ln()).sum::<f64>();
            let found = log_det + variances.iter().map(|s2| s2.ln()).sum::<f64>();
            assert!((found - exact).abs() < 1e-9 * exact.abs().max(1.0), "{found} not {exact}");
        }
    }

    #[test]
    fn factors_begin_without_a_change_of_the_covariance() {
        let (k, dim) = (2, 4);
        let mut mixture = Mixture::new(vec![0.0f64; k * dim], dim, 3);
        let before = [4.0, 1.0, 9.0, 0.5, 1e-3, 2e-3, 1e-3, 7.0];
        mixture.variances = before.to_vec();
        mixture.floors = vec![1e-3; dim];
        mixture.begin_factors();
        for c in 0..k {
            let whole = gram(&mixture.loadings[c * 3 * dim..][..3 * dim], dim, &mixture.variances[c * dim..]);
            for t in 0..dim {
                for s in 0..dim {
                    let exact = if t == s { before[c * dim + t] } else { 0.0 };
                    assert!((whole[t * dim + s] - exact).abs() < 1e-15);
                }
                assert!(mixture.variances[c * dim + t] >= 1e-3);
            }
        }
        let loaded = mixture.loadings.iter().filter(|x| **x > 0.0).count();
        // A column at its floor gets no loading.
        assert_eq!(loaded, 3 + 2);
    }
}
