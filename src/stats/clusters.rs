//! This module knows the sums of rows by cluster.

use std::mem::take;

use crate::float::Float;
use crate::kernel::{self, Compute, PackedCenters};
use crate::matrix::MatRef;

/// Weighted sums, weights and squared error of rows by cluster, in `f64`. Two of them merge by addition.
///
/// ```
/// use shoal::{MatRef, kernel::PackedCenters, stats::ClusterSums};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let mut sums = ClusterSums::new(2, 1);
/// sums.absorb(MatRef::new(&[1.0, 5.0, 6.0], 1), &[0, 1, 1], None, &centers);
/// assert_eq!((sums.weights(), sums.sum(1), sums.energy()), (&[1.0, 2.0][..], &[11.0][..], 6.0));
/// ```
#[derive(Clone, Debug)]
pub struct ClusterSums {
    dim: usize,
    sums: Vec<f64>,
    weights: Vec<f64>,
    energy: f64,
    /// Clusters that may hold something: a merge skips the others.
    touched: Vec<bool>,
    /// What rounding took away from the sums where rows were moved; empty until then.
    lows: Vec<f64>,
}

/// A rounded sum, and what rounding took away from it (Knuth).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let total = a + b;
    let rest = total - a;
    (total, (a - (total - rest)) + (b - rest))
}

impl ClusterSums {
    /// Of no rows at all, for `k` clusters of `dim` columns.
    pub fn new(k: usize, dim: usize) -> Self {
        Self {
            dim,
            sums: vec![0.0; k * dim],
            weights: vec![0.0; k],
            energy: 0.0,
            touched: vec![false; k],
            lows: Vec::new(),
        }
    }

    /// Of known sums, `dim` values for each of `weights`.
    ///
    /// # Panics
    /// When there is not one sum a weight.
    pub(crate) fn of(dim: usize, sums: Vec<f64>, weights: Vec<f64>) -> Self {
        assert_eq!(sums.len(), weights.len() * dim, "one sum a cluster");
        let touched = vec![true; weights.len()];
        Self { dim, sums, weights, energy: 0.0, touched, lows: Vec::new() }
    }

    /// The sums of all clusters, one after the other.
    pub(crate) fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// Makes cluster `j` one of `weight` rows that are all `row`.
    pub(crate) fn replace<T: Float>(&mut self, j: usize, row: &[T], weight: f64) {
        let sum = &mut self.sums[j * self.dim..][..self.dim];
        sum.iter_mut().zip(row).for_each(|(s, x)| *s = weight * x.to_f64());
        self.weights[j] = weight;
        self.touched[j] = true;
    }

    /// Everything counts `factor` times what it did.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.sums.iter_mut().chain(&mut self.weights).for_each(|s| *s *= factor);
        self.energy *= factor;
    }

    /// Adds labelled rows, and their weighted squared error about `centers`.
    ///
    /// # Panics
    /// As [`kernel::accumulate`].
    pub fn absorb<T: Compute>(
        &mut self,
        rows: MatRef<'_, T>,
        labels: &[u32],
        weights: Option<&[f64]>,
        centers: &PackedCenters<T>,
    ) {
        let Self { sums, weights: totals, energy, .. } = self;
        kernel::accumulate(rows, labels, weights, centers, sums, totals, energy);
        self.touch(labels);
    }

    /// Moves rows of weight 1 whose labels changed; the squared error about `centers` follows. `self` may be the sums of these
    /// rows, or an empty one that is merged into them afterwards.
    ///
    /// # Panics
    /// As [`kernel::reassign`].
    ///
    /// ```
    /// use shoal::{MatRef, kernel::PackedCenters, stats::ClusterSums};
    /// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
    /// let (rows, mut sums) = (MatRef::new(&[1.0, 5.0, 6.0], 1), ClusterSums::new(2, 1));
    /// sums.absorb(rows, &[0, 0, 1], None, &centers);
    /// sums.reassign(rows, &[0, 0, 1], &[0, 1, 1], &centers);
    /// assert_eq!((sums.weights(), sums.sum(1), sums.energy()), (&[1.0, 2.0][..], &[11.0][..], 6.0));
    /// ```
    pub fn reassign<T: Compute>(
        &mut self,
        rows: MatRef<'_, T>,
        old: &[u32],
        new: &[u32],
        centers: &PackedCenters<T>,
    ) {
        self.lows.resize(self.sums.len(), 0.0);
        let Self { sums, lows, weights: totals, energy, .. } = self;
        kernel::reassign(rows, old, new, centers, (sums, lows), totals, energy);
        for (&from, &to) in old.iter().zip(new) {
            if from != to {
                self.touch(&[from, to]);
            }
        }
    }

    /// The squared error changes by `growth`: that of the same rows about other centers.
    pub(crate) fn grow_energy(&mut self, growth: f64) {
        self.energy += growth;
    }

    /// Adds what `part` holds and leaves `part` empty.
    pub fn merge(&mut self, part: &mut Self) {
        let touched =
            part.touched.iter_mut().enumerate().filter_map(|(j, touched)| take(touched).then_some(j));
        for j in touched {
            let row = j * self.dim..(j + 1) * self.dim;
            if part.lows.is_empty() {
                for (total, part) in self.sums[row.clone()].iter_mut().zip(&mut part.sums[row]) {
                    *total += take(part);
                }
            } else {
                self.lows.resize(self.sums.len(), 0.0);
                for at in row {
                    let low = take(&mut part.lows[at]);
                    let (total, lost) = two_sum(self.sums[at], take(&mut part.sums[at]));
                    (self.sums[at], self.lows[at]) = two_sum(total, self.lows[at] + (lost + low));
                }
            }
            self.weights[j] += take(&mut part.weights[j]);
            self.touched[j] = true;
        }
        self.energy += take(&mut part.energy);
    }

    fn touch(&mut self, labels: &[u32]) {
        for &j in labels {
            self.touched[j as usize] = true;
        }
    }

    /// Weight of each cluster.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Weighted sum of the rows of cluster `j`.
    ///
    /// # Panics
    /// When there is no such cluster.
    pub fn sum(&self, j: usize) -> &[f64] {
        &self.sums[j * self.dim..][..self.dim]
    }

    /// Weighted sum of squared differences between the rows and the centers that they were absorbed with.
    pub fn energy(&self) -> f64 {
        self.energy
    }

    /// Moves one row of weight `weight` from cluster `from` into cluster `to`.
    pub(crate) fn move_row<T: Float>(&mut self, row: &[T], weight: f64, from: usize, to: usize) {
        for (t, x) in row.iter().enumerate() {
            self.sums[from * self.dim + t] -= weight * x.to_f64();
            self.sums[to * self.dim + t] += weight * x.to_f64();
        }
        self.weights[from] -= weight;
        self.weights[to] += weight;
        self.touch(&[from as u32, to as u32]);
    }
}
