//! Per-cluster sums of products of rows with their projections onto the axes of the cluster.

use std::mem::take;

use super::shares::add_up;
use crate::kernel::Compute;
use crate::kernel::listed::RowCenters;

/// Sums over rows, each counted with its shares, in `f64`: of its projections onto the axes of a cluster, of
/// their products with each other, and of their products with the difference of the row from the center. Two
/// of them merge by addition.
#[derive(Clone, Debug)]
pub(crate) struct ProjectionSums {
    k: usize,
    dim: usize,
    n_axes: usize,
    firsts: Vec<f64>,
    seconds: Vec<f64>,
    /// Empty before the first row.
    products: Vec<f64>,
    /// Clusters that may be nonempty; a merge skips the others.
    touched: Vec<bool>,
    /// The projections of one row times a share.
    parts: Vec<f64>,
}

impl ProjectionSums {
    /// Empty sums for `k` clusters of `dim` columns with `n_axes` axes each.
    pub(crate) fn new(k: usize, dim: usize, n_axes: usize) -> Self {
        Self {
            k,
            dim,
            n_axes,
            firsts: vec![0.0; k * n_axes],
            seconds: vec![0.0; k * n_axes * n_axes],
            products: Vec::new(),
            touched: vec![false; k],
            parts: Vec::new(),
        }
    }

    /// Empty sums for `k` clusters of `dim` columns, for [`ProjectionSums::add_scatter`].
    pub(crate) fn of_scatters(k: usize, dim: usize) -> Self {
        Self { n_axes: dim, firsts: vec![0.0; k * dim], ..Self::new(k, dim, 0) }
    }

    /// The sums of the projections of cluster `j`.
    pub(crate) fn first(&self, j: usize) -> &[f64] {
        &self.firsts[j * self.n_axes..][..self.n_axes]
    }

    /// The sums of products of projections of cluster `j`, a symmetric matrix.
    pub(crate) fn second(&self, j: usize) -> &[f64] {
        let size = self.n_axes * self.n_axes;
        &self.seconds[j * size..][..size]
    }

    /// The sums of products with differences of cluster `j`, one row per axis. The cluster must have a row.
    pub(crate) fn product(&self, j: usize) -> &[f64] {
        let size = self.n_axes * self.dim;
        &self.products[j * size..][..size]
    }

    /// Adds a row to the listed clusters, with a share and projections for each.
    pub(crate) fn add<T: Compute>(
        &mut self,
        row: &[T],
        (list, shares, projections): (&[u32], &[f64], &[T]),
        centers: &RowCenters<T>,
    ) {
        let n = self.n_axes;
        self.fill();
        self.parts.clear();
        for ((&j, &share), onto) in list.iter().zip(shares).zip(projections.chunks_exact(n)) {
            let j = j as usize;
            self.touched[j] = true;
            let of_row = self.parts.len();
            self.parts.extend(onto.iter().map(|x| share * x.to_f64()));
            let parts = &self.parts[of_row..];
            self.firsts[j * n..][..n].iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            for (sums, part) in self.seconds[j * n * n..][..n * n].chunks_exact_mut(n).zip(parts) {
                sums.iter_mut().zip(onto).for_each(|(sum, x)| *sum += part * x.to_f64());
            }
        }
        centers.add_products(row, list, &self.parts, &mut self.products);
    }

    /// Adds the products of the differences of a row from the listed centers, with a share for each. The columns
    /// are the axes; products of projections with each other are the same and not summed.
    pub(crate) fn add_scatter<T: Compute>(
        &mut self,
        row: &[T],
        list: &[u32],
        shares: &[f64],
        centers: &RowCenters<T>,
    ) {
        self.fill();
        self.parts.clear();
        for (&j, &share) in list.iter().zip(shares) {
            self.touched[j as usize] = true;
            let apart = row.iter().zip(centers.row(j as usize)).map(|(x, c)| x.to_f64() - c.to_f64());
            self.parts.extend(apart.map(|apart| share * apart));
        }
        centers.add_products(row, list, &self.parts, &mut self.products);
    }

    /// Allocates the products if needed.
    fn fill(&mut self) {
        if self.products.is_empty() {
            self.products = vec![0.0; self.k * self.n_axes * self.dim];
        }
    }

    /// Adds the values of `part` and leaves `part` empty.
    pub(crate) fn merge(&mut self, part: &mut Self) {
        let (n, d) = (self.n_axes, self.dim);
        for j in 0..part.touched.len() {
            if !take(&mut part.touched[j]) {
                continue;
            }
            self.touched[j] = true;
            self.fill();
            let second = if self.seconds.is_empty() { 0 } else { n * n };
            for (total, part, size) in [
                (&mut self.firsts, &mut part.firsts, n),
                (&mut self.seconds, &mut part.seconds, second),
                (&mut self.products, &mut part.products, n * d),
            ] {
                add_up(&mut total[j * size..][..size], &mut part[j * size..][..size]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::MatRef;

    #[test]
    fn parts_merge_to_the_sums_of_all_rows() {
        let centers = [1.0f64, 0.0, 3.0, 1.0, 0.0, 0.0];
        let axes = [0.5f64, 0.0, 0.0, -0.25, 0.0, 1.0];
        let centers = RowCenters::with_axes(MatRef::new(&centers, 2), &[2.0; 6], &axes);
        let (mut total, mut part) = (ProjectionSums::new(3, 2, 1), ProjectionSums::new(3, 2, 1));
        for (row, share) in [([2.0, 5.0], 0.25), ([0.0, -1.0], 0.5)] {
            for list in [&[0, 1][..], &[1]] {
                let (mut dists, mut onto) = (vec![0.0; list.len()], vec![0.0; list.len()]);
                centers.project(&row, list, &mut dists, &mut onto);
                part.add(&row, (list, &vec![share; list.len()], &onto), &centers);
            }
            total.merge(&mut part);
        }
        // Cluster 0: projections 1 and -1 of differences (1, 5) and (-1, -1).
        assert_eq!((total.first(0), total.second(0)), (&[-0.25][..], &[0.75][..]));
        assert_eq!(total.product(0), [0.75, 1.75]);
        // Cluster 1, twice: projections -2 and 1 of differences (-1, 4) and (-3, -2).
        assert_eq!((total.first(1), total.second(1)), (&[0.0][..], &[3.0][..]));
        assert_eq!(total.product(1), [-2.0, -6.0]);
        assert_eq!((total.first(2), total.product(2)), (&[0.0][..], &[0.0, 0.0][..]));
        assert!(part.products.iter().chain(&part.firsts).chain(&part.seconds).all(|x| *x == 0.0));
    }
}
