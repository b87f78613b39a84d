//! Per-cluster sums of rows that belong to several clusters, each with a share.

use std::mem::take;

use super::waiting::Waiting;
use crate::kernel::Compute;
use crate::kernel::listed::RowCenters;
use crate::rows::Rows;

/// Per-cluster sums of rows, each counted with its shares, in `f64`. Two of them merge by addition.
#[derive(Clone, Debug)]
pub(crate) struct ShareSums {
    dim: usize,
    /// Sums of rows.
    sums: Vec<f64>,
    /// Sums of shares.
    weights: Vec<f64>,
    /// Sums of squared distances to the centers.
    energies: Vec<f64>,
    /// Sums of squared distances per column. Empty unless `by_column`.
    squares: Vec<f64>,
    by_column: bool,
    /// Clusters that may be nonempty; a merge skips the others.
    touched: Vec<bool>,
    /// Sparse rows not yet added to the sums. Their weights and squared distances are already included.
    waiting: Waiting,
    /// `sums` is allocated and may be nonzero.
    filled: bool,
}

impl ShareSums {
    /// Empty sums for `k` clusters of `dim` columns. With `by_column`, squared distances are also summed per
    /// column.
    pub(crate) fn new(k: usize, dim: usize, by_column: bool) -> Self {
        let mut new = Self::part(k, dim, by_column);
        new.fill();
        new
    }

    /// Empty sums for a partial result, which is merged before its sums are read.
    pub(crate) fn part(k: usize, dim: usize, by_column: bool) -> Self {
        Self {
            dim,
            sums: Vec::new(),
            weights: vec![0.0; k],
            energies: vec![0.0; k],
            squares: Vec::new(),
            by_column,
            touched: vec![false; k],
            waiting: Waiting::default(),
            filled: false,
        }
    }

    /// The sum of the rows of cluster `j`.
    pub(crate) fn sum(&self, j: usize) -> &[f64] {
        &self.sums[j * self.dim..][..self.dim]
    }

    /// The sums of shares.
    pub(crate) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The sums of squared distances to the centers of the sweep.
    pub(crate) fn energies(&self) -> &[f64] {
        &self.energies
    }

    /// The sums of squared distances of cluster `j`, per column.
    pub(crate) fn squares(&self, j: usize) -> &[f64] {
        &self.squares[j * self.dim..][..self.dim]
    }

    /// Adds row `i` to the listed clusters, with a share and a squared distance for each.
    pub(crate) fn add<T: Compute>(
        &mut self,
        rows: Rows<'_, T>,
        i: usize,
        (list, shares, sq_dists): (&[u32], &[f64], &[f64]),
        centers: &RowCenters<T>,
    ) {
        for ((&j, &share), &sq_dist) in list.iter().zip(shares).zip(sq_dists) {
            let j = j as usize;
            self.weights[j] += share;
            // A share of 0 can have an infinite distance.
            if share > 0.0 {
                self.energies[j] += share * sq_dist;
            }
            self.touched[j] = true;
        }
        match rows {
            Rows::Sparse(sparse) if self.can_wait(list.len() * sparse.row(i).0.len()) => {
                let shares = list.iter().zip(shares);
                shares.for_each(|(&j, &share)| self.waiting.push(sparse.row(i), j, share));
            }
            _ => {
                self.settle();
                self.fill();
                centers.add_parts(rows, i, list, shares, &mut self.sums);
            }
        }
        if let (true, Rows::Dense(rows)) = (self.by_column, rows) {
            centers.add_squares(rows.row(i), list, shares, &mut self.squares);
        }
    }

    /// Whether `more` stored values may wait. All waiting values must take less memory than the sums.
    fn can_wait(&self, more: usize) -> bool {
        !self.filled && 2 * (self.waiting.len() + more) <= self.weights.len() * self.dim
    }

    /// Allocates the sums if needed.
    fn fill(&mut self) {
        self.filled = true;
        let size = self.weights.len() * self.dim;
        if self.sums.is_empty() {
            self.sums = vec![0.0; size];
        }
        if self.by_column && self.squares.is_empty() {
            self.squares = vec![0.0; size];
        }
    }

    /// Adds the waiting rows.
    fn settle(&mut self) {
        if !self.waiting.is_empty() {
            let mut waiting = take(&mut self.waiting);
            self.take_in(&mut waiting);
            self.waiting = waiting;
        }
    }

    /// Adds and removes the rows in `waiting`.
    fn take_in(&mut self, waiting: &mut Waiting) {
        self.fill();
        let Self { dim, sums, .. } = self;
        waiting.drain(|j, share, columns, values| {
            let sum = &mut sums[j as usize * *dim..][..*dim];
            for (&column, x) in columns.iter().zip(values) {
                sum[column as usize] += share * x;
            }
        });
    }

    /// Adds the values of `part` and leaves `part` empty.
    pub(crate) fn merge(&mut self, part: &mut Self) {
        if !part.waiting.is_empty() {
            self.settle();
            self.take_in(&mut part.waiting);
        }
        let filled = take(&mut part.filled);
        if filled {
            self.fill();
        }
        for j in 0..part.touched.len() {
            if !take(&mut part.touched[j]) {
                continue;
            }
            self.touched[j] = true;
            self.weights[j] += take(&mut part.weights[j]);
            self.energies[j] += take(&mut part.energies[j]);
            if filled {
                let row = j * self.dim..(j + 1) * self.dim;
                add_up(&mut self.sums[row.clone()], &mut part.sums[row.clone()]);
                if self.by_column {
                    add_up(&mut self.squares[row.clone()], &mut part.squares[row]);
                }
            }
        }
    }
}

/// Adds values and leaves zeros.
pub(super) fn add_up(total: &mut [f64], part: &mut [f64]) {
    total.iter_mut().zip(part).for_each(|(total, part)| *total += take(part));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::MatRef;
    use crate::rows::SparseRef;

    #[test]
    fn dense_and_sparse_rows_merge_alike() {
        let centers = [0.0f64, 0.0, 3.0, 1.0];
        let dense = MatRef::new(&[1.0f64, 0.0, 0.0, 2.0], 2);
        let sparse = SparseRef::new(&[0, 1, 2], &[0, 1], &[1.0f64, 2.0], 2);
        let of = |rows: Rows<'_, f64>, by_column: bool| {
            let centers = RowCenters::new(MatRef::new(&centers, 2), matches!(rows, Rows::Sparse(_)));
            let mut total = ShareSums::new(2, 2, by_column);
            let mut part = ShareSums::part(2, 2, by_column);
            for _ in 0..2 {
                for (i, shares) in [[0.25, 0.75], [0.5, 0.0]].iter().enumerate() {
                    let list = [0, 1];
                    let dists = list.map(|j| centers.sq_dist(rows, i, j as usize));
                    part.add(rows, i, (&list, shares, &dists), &centers);
                }
                total.merge(&mut part);
            }
            total
        };
        let (a, b) = (of(dense.into(), true), of(sparse.into(), false));
        assert_eq!((a.weights(), b.weights()), (&[1.5, 1.5][..], &[1.5, 1.5][..]));
        assert_eq!((a.sum(0), a.sum(1)), (&[0.5, 2.0][..], &[1.5, 0.0][..]));
        assert_eq!((b.sum(0), b.sum(1)), (a.sum(0), a.sum(1)));
        assert_eq!((a.energies(), b.energies()), (&[4.5, 7.5][..], &[4.5, 7.5][..]));
        assert_eq!((a.squares(0), a.squares(1)), (&[0.5, 4.0][..], &[6.0, 1.5][..]));
    }
}
