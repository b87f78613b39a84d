//! Per-cluster sums of rows: weighted sums, weights and squared errors.

use std::mem::take;

use crate::error::{Error, Result};
use crate::float::Float;
use crate::kernel::{self, Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::rows::{Rows, SparseRef};

use super::waiting::Waiting;

/// Weighted sums, weights and squared errors of rows per cluster, in `f64`. Two of them merge by addition.
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
    /// The weighted squared error per cluster.
    energies: Vec<f64>,
    /// Sums of squared weights. Empty while every row has weight 1, because they then equal the weights.
    squares: Vec<f64>,
    /// Clusters that may be nonempty; a merge skips the others.
    touched: Vec<bool>,
    /// Rounding errors of the sums, once rows were moved. Empty until then.
    lows: Vec<f64>,
    /// `sums` is allocated and may be nonzero.
    filled: bool,
    /// Sparse rows not yet added to the sums. Their weights and errors are already included.
    waiting: Waiting,
    /// A partial result, which is merged before its sums are read. Its sparse rows may stay in `waiting`.
    is_part: bool,
}

/// Sums and weights below this value are not compared: their quotients have few exact digits.
const VANISHING: f64 = 1e-290;

/// The share of the largest sum that may remain in other sums by rounding.
const RESIDUE: f64 = 1e-6;

/// A rounded sum and its rounding error (Knuth's two-sum).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let total = a + b;
    let rest = total - a;
    (total, (a - (total - rest)) + (b - rest))
}

/// Returns an error if the mean of a cluster overflows `T`.
fn check_mean<T: Float>(j: usize, weight: f64, mut sums: impl Iterator<Item = f64>) -> Result<()> {
    let most = (T::MAX * (1.0 + 1e-9)).min(f64::MAX);
    let limit = (most * weight).min(f64::MAX);
    // NaN fails this test too.
    if sums.all(|sum| sum.abs() <= limit) {
        return Ok(());
    }
    Err(Error::Source(format!(
        "the mean of cluster {j} overflows {}: scale `rows` or the `weights`",
        T::NAME
    )))
}

impl ClusterSums {
    /// Empty sums for `k` clusters of `dim` columns.
    pub fn new(k: usize, dim: usize) -> Self {
        Self {
            dim,
            sums: vec![0.0; k * dim],
            weights: vec![0.0; k],
            energies: vec![0.0; k],
            squares: Vec::new(),
            touched: vec![false; k],
            lows: Vec::new(),
            filled: false,
            waiting: Waiting::default(),
            is_part: false,
        }
    }

    /// Empty sums for a partial result, which is merged before its sums are read.
    pub(crate) fn part(k: usize, dim: usize) -> Self {
        // Sums are allocated when needed.
        let none = Self { is_part: true, ..Self::new(k, 0) };
        Self { dim, ..none }
    }

    /// Creates sums from known values, `dim` values for each of `weights`.
    ///
    /// # Panics
    /// If the number of sums does not match the number of weights.
    pub(crate) fn of(dim: usize, sums: Vec<f64>, weights: Vec<f64>) -> Self {
        assert_eq!(sums.len(), weights.len() * dim, "one sum per cluster");
        let touched = vec![true; weights.len()];
        let energies = vec![0.0; weights.len()];
        let (squares, lows, waiting) = (Vec::new(), Vec::new(), Waiting::default());
        let (filled, is_part) = (true, false);
        Self { dim, sums, weights, energies, squares, touched, lows, filled, waiting, is_part }
    }

    /// All values by name: sums, rounding errors of sums, weights, squared weights, squared errors. The
    /// second and the fourth may be empty.
    pub(crate) fn parts(&self) -> [(&'static str, &[f64]); 5] {
        let Self { sums, lows, weights, squares, energies, .. } = self;
        [("sums", sums), ("lows", lows), ("weights", weights), ("squares", squares), ("energies", energies)]
    }

    /// Restores the values that [`ClusterSums::parts`] returned, in that order. `None` if lengths do not
    /// match.
    pub(crate) fn of_parts(
        dim: usize,
        [sums, lows, weights, squares, energies]: [Vec<f64>; 5],
    ) -> Option<Self> {
        let k = weights.len();
        let fits = sums.len() == k * dim
            && energies.len() == k
            && (lows.is_empty() || lows.len() == sums.len())
            && (squares.is_empty() || squares.len() == k);
        fits.then(|| Self {
            dim,
            sums,
            weights,
            energies,
            squares,
            touched: vec![true; k],
            lows,
            filled: true,
            waiting: Waiting::default(),
            is_part: false,
        })
    }

    /// Returns an error if the mean of a cluster overflows `T`.
    pub(crate) fn check_means<T: Float>(&self) -> Result<()> {
        if self.sums.is_empty() {
            return Ok(());
        }
        let mut weights = self.weights.iter().copied().enumerate().filter(|&(_, weight)| weight > 0.0);
        weights.try_for_each(|(j, weight)| check_mean::<T>(j, weight, self.sum(j).iter().copied()))
    }

    /// Like [`ClusterSums::check_means`] for `factor` times these sums plus `more`, for the clusters with
    /// weight in `more`. Waiting rows are ignored, since there are few of them.
    pub(crate) fn check_means_with<T: Float>(&self, factor: f64, more: &Self) -> Result<()> {
        if more.sums.is_empty() {
            return Ok(());
        }
        for (j, &added) in more.weights.iter().enumerate().filter(|&(_, &added)| added > 0.0) {
            let sums = self.sum(j).iter().zip(more.sum(j)).map(|(old, new)| old * factor + new);
            check_mean::<T>(j, self.weights[j] * factor + added, sums)?;
        }
        Ok(())
    }

    /// Whether every cluster with weight has its mean at its center, and the others have zero sums, up to
    /// rounding. If `unit`, the rows have length 1, and the direction of the sum is compared.
    pub(crate) fn have_means_at<T: Float>(&self, centers: MatRef<'_, T>, unit: bool) -> bool {
        let largest = self.sums.iter().fold(0.0, |most: f64, s| most.max(s.abs()));
        if self.lows.iter().any(|low| low.abs() > RESIDUE * largest + VANISHING) {
            return false;
        }
        centers.iter().enumerate().all(|(j, center)| {
            let (sum, weight) = (self.sum(j), self.weights[j]);
            if weight <= 0.0 {
                return sum.iter().all(|s| s.abs() <= RESIDUE * largest + VANISHING);
            }
            let length = sum.iter().map(|s| s * s).sum::<f64>().sqrt();
            let divisor = if unit { length } else { weight };
            let longest = center.iter().fold(0.0, |most: f64, c| most.max(c.to_f64().abs()));
            let off = divisor * (1e-5 * longest + T::MIN_POSITIVE) + VANISHING;
            (!unit || length <= weight * (1.0 + 1e-5))
                && sum.iter().zip(center).all(|(s, c)| (s - divisor * c.to_f64()).abs() <= off)
        })
    }

    /// Whether the squared error of every cluster with weight, about its center, is at least the squared
    /// distance of its mean times its weight, up to rounding.
    pub(crate) fn have_errors_about<T: Float>(&self, centers: MatRef<'_, T>) -> bool {
        centers.iter().enumerate().filter(|&(j, _)| self.weights[j] > 0.0).all(|(j, center)| {
            let (weight, mut of_mean, mut lengths) = (self.weights[j], 0.0, 0.0);
            for (sum, c) in self.sum(j).iter().zip(center) {
                let (mean, c) = (sum / weight, c.to_f64());
                of_mean += weight * (mean - c) * (mean - c);
                lengths += weight * (mean * mean + c * c);
            }
            of_mean <= self.energies[j] * (1.0 + 1e-6) + 1e-6 * lengths + VANISHING
        })
    }

    /// The sums of all clusters, one after the other.
    pub(crate) fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// Replaces cluster `j` by `weight` copies of `row`.
    pub(crate) fn replace<T: Float>(&mut self, j: usize, row: &[T], weight: f64) {
        let sum = &mut self.sums[j * self.dim..][..self.dim];
        sum.iter_mut().zip(row).for_each(|(s, x)| *s = weight * x.to_f64());
        self.weights[j] = weight;
        (self.touched[j], self.filled) = (true, true);
    }

    /// Multiplies all weights by `factor`.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.square();
        self.squares.iter_mut().for_each(|s| *s *= factor * factor);
        let Self { sums, lows, weights, energies, .. } = self;
        sums.iter_mut().chain(lows).chain(weights).chain(energies).for_each(|s| *s *= factor);
    }

    /// Adds labeled rows, and their weighted squared errors about `centers`.
    ///
    /// # Panics
    /// Same as [`kernel::accumulate`].
    pub fn absorb<'a, T: Compute>(
        &mut self,
        rows: impl Into<Rows<'a, T>>,
        labels: &[u32],
        weights: Option<&[f64]>,
        centers: &PackedCenters<T>,
    ) {
        if let Some(weights) = weights {
            self.square();
            labels.iter().zip(weights).for_each(|(&j, w)| self.squares[j as usize] += w * w);
        } else if !self.squares.is_empty() {
            for &j in labels {
                self.squares[j as usize] += 1.0;
            }
        }
        let rows = rows.into();
        self.touch(labels);
        if let Rows::Sparse(sparse) = rows
            && self.can_wait(sparse)
        {
            let mut sq_dists = vec![0.0; labels.len()];
            kernel::sq_dists(rows, labels, centers, &mut sq_dists);
            for (i, (&label, sq_dist)) in labels.iter().zip(sq_dists).enumerate() {
                let (j, weight) = (label as usize, weights.map_or(1.0, |w| w[i]));
                self.weights[j] += weight;
                self.energies[j] += weight * sq_dist;
                self.waiting.push(sparse.row(i), label, weight);
            }
            return;
        }
        self.settle();
        self.fill();
        let Self { sums, weights: totals, energies, .. } = self;
        kernel::accumulate(rows, labels, weights, centers, sums, totals, energies);
    }

    /// Moves rows of weight 1 whose labels changed, and updates the squared errors about `centers`. `self`
    /// holds the sums of these rows, or is an empty partial result that is merged into those sums later.
    ///
    /// # Panics
    /// Same as [`kernel::reassign`].
    ///
    /// ```
    /// use shoal::{MatRef, kernel::PackedCenters, stats::ClusterSums};
    /// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
    /// let (rows, mut sums) = (MatRef::new(&[1.0, 5.0, 6.0], 1), ClusterSums::new(2, 1));
    /// sums.absorb(rows, &[0, 0, 1], None, &centers);
    /// sums.reassign(rows, &[0, 0, 1], &[0, 1, 1], &centers);
    /// assert_eq!((sums.weights(), sums.sum(1), sums.energy()), (&[1.0, 2.0][..], &[11.0][..], 6.0));
    /// ```
    pub fn reassign<'a, T: Compute>(
        &mut self,
        rows: impl Into<Rows<'a, T>>,
        old: &[u32],
        new: &[u32],
        centers: &PackedCenters<T>,
    ) {
        self.settle();
        self.fill();
        self.make_lows();
        let Self { sums, lows, weights: totals, energies, .. } = self;
        kernel::reassign(rows, old, new, centers, (sums, lows), totals, energies);
        for (&from, &to) in old.iter().zip(new) {
            if from != to {
                self.touch(&[from, to]);
                if !self.squares.is_empty() {
                    self.squares[from as usize] -= 1.0;
                    self.squares[to as usize] += 1.0;
                }
            }
        }
    }

    /// Whether more sparse rows may wait. Waiting rows must take less memory than sums. Adding them later to
    /// other sums touches only a few values.
    fn can_wait<T: Float>(&self, rows: SparseRef<'_, T>) -> bool {
        let more: usize = rows.iter().map(|(columns, _)| columns.len()).sum();
        self.is_part && !self.filled && 2 * (self.waiting.len() + more) <= self.weights.len() * self.dim
    }

    /// Allocates the sums if needed.
    fn fill(&mut self) {
        self.filled = true;
        if self.sums.is_empty() {
            self.sums = vec![0.0; self.weights.len() * self.dim];
        }
    }

    fn make_lows(&mut self) {
        if self.lows.is_empty() {
            // Zero pages that nobody writes to take no memory.
            self.lows = vec![0.0; self.sums.len()];
        }
    }

    /// Adds the waiting rows.
    fn settle(&mut self) {
        if !self.waiting.is_empty() {
            let mut waiting = take(&mut self.waiting);
            self.add(&mut waiting);
            self.waiting = waiting;
        }
    }

    /// Adds and removes the rows in `waiting`.
    fn add(&mut self, waiting: &mut Waiting) {
        self.fill();
        let Self { dim, sums, .. } = self;
        waiting.drain(|label, weight, columns, values| {
            let sum = &mut sums[label as usize * *dim..][..*dim];
            for (&column, x) in columns.iter().zip(values) {
                sum[column as usize] += weight * x;
            }
        });
    }

    /// Like [`ClusterSums::merge`], but sparse rows keep waiting as long as they take little memory.
    pub(crate) fn collect(&mut self, part: &mut Self) {
        let fits = 2 * (self.waiting.len() + part.waiting.len()) <= self.weights.len() * self.dim;
        if !self.filled && !part.filled && fits {
            self.waiting.append(&mut part.waiting);
        } else {
            self.settle();
        }
        self.merge(part);
    }

    /// Converts the squared errors about the centers `old` to squared errors about `new`.
    pub(crate) fn follow<T: Float>(&mut self, old: MatRef<'_, T>, new: MatRef<'_, T>) {
        for (j, (old, new)) in old.iter().zip(new.iter()).enumerate() {
            let weight = self.weights[j];
            if weight > 0.0 {
                // The squared error about a point is the squared error about the mean, plus the weight times
                // the squared distance to the mean.
                let growth = old.iter().zip(new).zip(&self.sums[j * self.dim..]).map(|((old, new), sum)| {
                    let (old, new, mean) = (old.to_f64(), new.to_f64(), sum / weight);
                    (new - old) * ((new - mean) + (old - mean))
                });
                self.energies[j] += weight * growth.sum::<f64>();
            }
        }
    }

    /// Starts to sum squared weights. Until now every row had weight 1.
    fn square(&mut self) {
        if self.squares.is_empty() {
            self.squares.clone_from(&self.weights);
        }
    }

    /// Adds the values of `part` and leaves `part` empty.
    pub fn merge(&mut self, part: &mut Self) {
        let touched =
            part.touched.iter_mut().enumerate().filter_map(|(j, touched)| take(touched).then_some(j));
        if !part.squares.is_empty() {
            self.square();
        }
        let filled = take(&mut part.filled);
        if !part.waiting.is_empty() {
            self.settle();
            self.add(&mut part.waiting);
        }
        if filled {
            self.fill();
        }
        for j in touched {
            let row = j * self.dim..(j + 1) * self.dim;
            if !filled {
                // The part has no sums: all of its rows were waiting.
            } else if part.lows.is_empty() {
                for (total, part) in self.sums[row.clone()].iter_mut().zip(&mut part.sums[row]) {
                    *total += take(part);
                }
            } else {
                self.make_lows();
                for at in row {
                    let low = take(&mut part.lows[at]);
                    let (total, lost) = two_sum(self.sums[at], take(&mut part.sums[at]));
                    (self.sums[at], self.lows[at]) = two_sum(total, self.lows[at] + (lost + low));
                }
            }
            if !self.squares.is_empty() {
                self.squares[j] += part.squares.get_mut(j).map_or(part.weights[j], take);
            }
            self.weights[j] += take(&mut part.weights[j]);
            self.energies[j] += take(&mut part.energies[j]);
            self.touched[j] = true;
        }
    }

    fn touch(&mut self, labels: &[u32]) {
        for &j in labels {
            self.touched[j as usize] = true;
        }
    }

    /// Weight per cluster.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Weighted sum of the rows of cluster `j`.
    ///
    /// # Panics
    /// If there is no cluster `j`.
    pub fn sum(&self, j: usize) -> &[f64] {
        &self.sums[j * self.dim..][..self.dim]
    }

    /// Weighted sum of squared differences between the rows and the centers with which they were absorbed.
    pub fn energy(&self) -> f64 {
        self.energies.iter().sum()
    }

    /// [`ClusterSums::energy`] per cluster.
    ///
    /// ```
    /// use shoal::{MatRef, kernel::PackedCenters, stats::ClusterSums};
    /// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
    /// let mut sums = ClusterSums::new(2, 1);
    /// sums.absorb(MatRef::new(&[1.0, 5.0, 6.0], 1), &[0, 1, 1], None, &centers);
    /// assert_eq!(sums.energies(), [1.0, 5.0]);
    /// ```
    pub fn energies(&self) -> &[f64] {
        &self.energies
    }

    /// Whether the squared errors of the clusters in `labels` are finite.
    pub(crate) fn is_finite(&self, labels: &[u32]) -> bool {
        labels.iter().all(|&j| self.energies[j as usize].is_finite())
    }

    /// The effective number of rows of cluster `j`: the squared sum of its weights over the sum of their
    /// squares. As many rows of equal weight determine the mean equally well.
    ///
    /// ```
    /// use shoal::{MatRef, kernel::PackedCenters, stats::ClusterSums};
    /// let centers = PackedCenters::new(MatRef::new(&[0.0f64], 1));
    /// let mut sums = ClusterSums::new(1, 1);
    /// sums.absorb(MatRef::new(&[1.0, 5.0, 6.0], 1), &[0, 0, 0], Some(&[1.0, 1.0, 4.0]), &centers);
    /// assert_eq!(sums.effective_rows(0), 2.0);
    /// ```
    ///
    /// # Panics
    /// If there is no cluster `j`.
    pub fn effective_rows(&self, j: usize) -> f64 {
        let weight = self.weights[j];
        match self.squares.get(j) {
            Some(&squares) if squares > 0.0 => weight * weight / squares,
            Some(_) => 0.0,
            None => weight,
        }
    }

    /// Removes the rows of cluster `j`, but not their squared errors.
    pub(crate) fn clear(&mut self, j: usize) {
        let row = j * self.dim..(j + 1) * self.dim;
        if let Some(lows) = self.lows.get_mut(row.clone()) {
            lows.fill(0.0);
        }
        if let Some(squares) = self.squares.get_mut(j) {
            *squares = 0.0;
        }
        self.sums[row].fill(0.0);
        self.weights[j] = 0.0;
        (self.touched[j], self.filled) = (true, true);
    }

    /// Moves one row with weight `weight` from cluster `from` to cluster `to`.
    pub(crate) fn move_row<T: Float>(&mut self, row: &[T], weight: f64, from: usize, to: usize) {
        for (t, x) in row.iter().enumerate() {
            self.sums[from * self.dim + t] -= weight * x.to_f64();
            self.sums[to * self.dim + t] += weight * x.to_f64();
        }
        self.filled = true;
        self.weights[from] -= weight;
        self.weights[to] += weight;
        self.touch(&[from as u32, to as u32]);
    }
}
