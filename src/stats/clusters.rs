//! This module knows the sums of rows by cluster.

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
}

impl ClusterSums {
    /// Of no rows at all, for `k` clusters of `dim` columns.
    pub fn new(k: usize, dim: usize) -> Self {
        Self { dim, sums: vec![0.0; k * dim], weights: vec![0.0; k], energy: 0.0 }
    }

    /// Adds labelled rows; gives their weighted squared error about `centers`.
    ///
    /// # Panics
    /// As [`kernel::accumulate`].
    pub fn absorb<T: Compute>(
        &mut self,
        rows: MatRef<'_, T>,
        labels: &[u32],
        weights: Option<&[f64]>,
        centers: &PackedCenters<T>,
    ) -> f64 {
        let energy = kernel::accumulate(rows, labels, weights, centers, &mut self.sums, &mut self.weights);
        self.energy += energy;
        energy
    }

    /// Adds what `part` holds and leaves `part` empty.
    pub fn merge(&mut self, part: &mut Self) {
        for (total, part) in self.sums.iter_mut().zip(&mut part.sums) {
            *total += std::mem::take(part);
        }
        for (total, part) in self.weights.iter_mut().zip(&mut part.weights) {
            *total += std::mem::take(part);
        }
        self.energy += std::mem::take(&mut part.energy);
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
    }
}
