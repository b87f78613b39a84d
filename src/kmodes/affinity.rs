//! Affinity of rows: a sparse symmetric matrix, built from a neighbor graph or given by the caller.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::graph::KnnGraph;

/// A sparse symmetric matrix of nonnegative weights, stored row by row with ascending columns.
///
/// ```
/// use shoal::kmodes::Affinity;
/// // Row 0 lists row 1, but not the reverse: both get half of the weight.
/// let affinity = Affinity::symmetrized(&[0, 1, 1], &[1], &[1.0]).unwrap();
/// assert_eq!((affinity.row(0), affinity.row(1)), ((&[1][..], &[0.5][..]), (&[0][..], &[0.5][..])));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Affinity {
    starts: Vec<usize>,
    columns: Vec<u32>,
    weights: Vec<f64>,
}

impl Affinity {
    /// `(A + A^T) / 2` of a matrix `A` in CSR format: row `i` has the weights `starts[i]..starts[i + 1]` in
    /// those `columns`. Duplicate entries are added.
    ///
    /// The update minimizes its objective only if the matrix is symmetric.
    ///
    /// # Errors
    /// [`Error::Shape`] if the arrays are not a square sparse matrix. [`Error::InvalidParam`] if a weight is
    /// negative or not finite.
    pub fn symmetrized(starts: &[usize], columns: &[u32], weights: &[f64]) -> Result<Self> {
        let n = starts.len().saturating_sub(1);
        let whole = starts.first() == Some(&0) && starts.last() == Some(&weights.len()) && starts.is_sorted();
        if !whole || columns.len() != weights.len() || columns.iter().any(|&column| column as usize >= n) {
            return Err(Error::Shape("the affinity must be a square sparse matrix".into()));
        }
        if let Some(bad) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            let row = starts.partition_point(|&start| start <= bad) - 1;
            return Err(Error::param(
                "affinity",
                "finite and at least 0",
                format!("{} at row {row}, column {}", weights[bad], columns[bad]),
            ));
        }
        let matrix = Self { starts: starts.to_vec(), columns: columns.to_vec(), weights: weights.to_vec() };
        // Transposing twice sorts the columns of every row.
        let transposed = matrix.transposed();
        let mean = transposed.transposed().mean_with(&transposed);
        if mean.weights.iter().any(|w| !w.is_finite()) {
            return Err(Error::param(
                "affinity",
                "finite where entries of the same pair are added",
                "a sum that overflows",
            ));
        }
        Ok(mean)
    }

    /// The affinity of a graph. A neighbor has the weight 1, or `weight` of its squared distance.
    pub(crate) fn of_graph(graph: &KnnGraph, weight: Option<&dyn Fn(f64) -> f64>) -> Self {
        let m = graph.n_neighbors();
        let matrix = Self {
            starts: (0..=graph.n_rows()).map(|i| i * m).collect(),
            columns: graph.neighbors().to_vec(),
            weights: graph.sq_dists().iter().map(|&sq_dist| weight.map_or(1.0, |of| of(sq_dist))).collect(),
        };
        let transposed = matrix.transposed();
        transposed.transposed().mean_with(&transposed)
    }

    /// Rebuilds an affinity from its [`parts`](Self::parts), without checks.
    pub(crate) fn of_parts(starts: Vec<usize>, columns: Vec<u32>, weights: Vec<f64>) -> Self {
        Self { starts, columns, weights }
    }

    /// Returns the matrix if it is valid and has `n` rows, otherwise what is wrong.
    pub(super) fn checked(self, n: usize) -> Result<Self, String> {
        let Self { starts, columns, weights } = &self;
        let whole =
            starts.len() == n + 1 && starts[0] == 0 && starts.is_sorted() && starts[n] == weights.len();
        let sound = columns.len() == weights.len()
            && columns.iter().all(|&column| (column as usize) < n)
            && weights.iter().all(|w| w.is_finite() && *w >= 0.0);
        if whole && sound { Ok(self) } else { Err("its affinity is damaged".into()) }
    }

    pub(crate) fn parts(&self) -> (&[usize], &[u32], &[f64]) {
        (&self.starts, &self.columns, &self.weights)
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// The columns of a row, and their weights.
    ///
    /// # Panics
    /// If there is no row with this number.
    pub fn row(&self, i: usize) -> (&[u32], &[f64]) {
        let stored = self.starts[i]..self.starts[i + 1];
        (&self.columns[stored.clone()], &self.weights[stored])
    }

    /// Sum of the weights of a row.
    pub(super) fn degree(&self, i: usize) -> f64 {
        self.row(i).1.iter().sum()
    }

    /// The largest degree of a row, and the sum of all degrees.
    pub(super) fn sums(&self) -> (f64, f64) {
        (0..self.n_rows()).map(|i| self.degree(i)).fold((0.0, 0.0), |(most, sum), d| (d.max(most), sum + d))
    }

    /// Total weight between rows with different labels; each pair counts twice.
    pub(super) fn between(&self, labels: &[u32]) -> f64 {
        let of_row = |i: usize| {
            let (columns, weights) = self.row(i);
            let apart = columns.iter().zip(weights).filter(|(j, _)| labels[**j as usize] != labels[i]);
            apart.map(|(_, w)| w).sum::<f64>()
        };
        (0..self.n_rows()).map(of_row).sum()
    }

    /// Orders the rows so that neighbors are mostly close together, in parts of `part` rows that grow from
    /// row to neighbor. This keeps the memory accesses of a pass over all weights local.
    pub(super) fn local_order(&self, part: usize) -> Vec<u32> {
        let n = self.n_rows();
        let mut order = Vec::with_capacity(n);
        // The rows that have a place, and the part in whose queue a row waits.
        let (mut placed, mut waits_in) = (vec![false; n], vec![u32::MAX; n]);
        let mut waiting = VecDeque::new();
        let (mut first, mut at, mut grown) = (0, 0u32, 0);
        while order.len() < n {
            let next = waiting.pop_front().unwrap_or_else(|| {
                while placed[first] {
                    first += 1;
                }
                first as u32
            });
            if placed[next as usize] {
                continue;
            }
            if grown == part {
                // Start the next part.
                waiting.clear();
                (at, grown) = (at + 1, 0);
            }
            placed[next as usize] = true;
            order.push(next);
            grown += 1;
            for &other in self.row(next as usize).0 {
                let state = &mut waits_in[other as usize];
                if !placed[other as usize] && *state != at {
                    *state = at;
                    waiting.push_back(other);
                }
            }
        }
        order
    }

    /// The matrix with rows and columns permuted.
    pub(super) fn in_order(&self, order: &[u32]) -> Self {
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &row)| place[row as usize] = at as u32);
        let mut starts = vec![0];
        let mut columns = Vec::with_capacity(self.columns.len());
        let mut weights = Vec::with_capacity(self.columns.len());
        let mut row: Vec<(u32, f64)> = Vec::new();
        for &i in order {
            let (own, of) = self.row(i as usize);
            row.clear();
            row.extend(own.iter().zip(of).map(|(&column, &weight)| (place[column as usize], weight)));
            row.sort_unstable_by_key(|&(column, _)| column);
            columns.extend(row.iter().map(|&(column, _)| column));
            weights.extend(row.iter().map(|&(_, weight)| weight));
            starts.push(columns.len());
        }
        Self { starts, columns, weights }
    }

    fn transposed(&self) -> Self {
        let mut starts = vec![0; self.starts.len()];
        self.columns.iter().for_each(|&column| starts[column as usize + 1] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let (mut columns, mut weights) = (vec![0; self.columns.len()], vec![0.0; self.weights.len()]);
        for i in 0..self.n_rows() {
            let row = self.row(i);
            for (&column, &weight) in row.0.iter().zip(row.1) {
                let place = &mut next[column as usize];
                (columns[*place], weights[*place]) = (i as u32, weight);
                *place += 1;
            }
        }
        Self { starts, columns, weights }
    }

    /// The mean of two matrices with ascending columns.
    fn mean_with(&self, other: &Self) -> Self {
        let mut starts = vec![0];
        let most = 2 * self.columns.len();
        let (mut columns, mut weights) = (Vec::with_capacity(most), Vec::with_capacity(most));
        for i in 0..self.n_rows() {
            let ((one, own), (two, others)) = (self.row(i), other.row(i));
            let (mut a, mut b) = (0, 0);
            while a < one.len() || b < two.len() {
                let column =
                    one.get(a).copied().unwrap_or(u32::MAX).min(two.get(b).copied().unwrap_or(u32::MAX));
                let mut sum = 0.0;
                // The caller's matrix may contain duplicate entries.
                while one.get(a) == Some(&column) {
                    sum += 0.5 * own[a];
                    a += 1;
                }
                let mut from_other = 0.0;
                while two.get(b) == Some(&column) {
                    from_other += 0.5 * others[b];
                    b += 1;
                }
                columns.push(column);
                weights.push(sum + from_other);
            }
            starts.push(columns.len());
        }
        columns.shrink_to_fit();
        weights.shrink_to_fit();
        Self { starts, columns, weights }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_row_once_and_neighbors_together() {
        // A ring with its rows scattered.
        let n = 400u32;
        let at = |i: u32| i * 171 % n;
        let mut beside = vec![(0, 0); n as usize];
        for i in 0..n {
            beside[at(i) as usize] = (at((i + 1) % n), at((i + n - 1) % n));
        }
        let columns: Vec<u32> = beside.iter().flat_map(|&(one, other)| [one, other]).collect();
        let starts: Vec<usize> = (0..=n as usize).map(|i| 2 * i).collect();
        let ring = Affinity::symmetrized(&starts, &columns, &vec![1.0; columns.len()]).unwrap();
        let order = ring.local_order(50);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..n));
        let local = ring.in_order(&order);
        let gap = |i: usize| local.row(i).0.iter().map(|&j| j.abs_diff(i as u32)).max().unwrap();
        assert!((0..n as usize).filter(|&i| gap(i) <= 4).count() > 350);
        for (i, &row) in order.iter().enumerate() {
            let mut back: Vec<u32> = local.row(i).0.iter().map(|&j| order[j as usize]).collect();
            back.sort_unstable();
            assert_eq!(back, ring.row(row as usize).0);
        }
    }

    #[test]
    fn pairs_share_their_weights() {
        // 0 -> 2, 0 -> 1, 1 -> 0, 2 -> 2.
        let affinity = Affinity::symmetrized(&[0, 2, 3, 4], &[2, 1, 0, 2], &[1.0, 2.0, 4.0, 3.0]).unwrap();
        assert_eq!(affinity.row(0), (&[1, 2][..], &[3.0, 0.5][..]));
        assert_eq!(affinity.row(1), (&[0][..], &[3.0][..]));
        assert_eq!(affinity.row(2), (&[0, 2][..], &[0.5, 3.0][..]));
        assert_eq!((affinity.degree(0), affinity.between(&[0, 0, 1])), (3.5, 1.0));
        assert!(Affinity::symmetrized(&[0, 1], &[1], &[1.0]).is_err());
        let refused = Affinity::symmetrized(&[0, 0, 1], &[0], &[-1.0]).unwrap_err().to_string();
        assert!(refused.ends_with("got -1 at row 1, column 0"), "{refused}");
    }
}
