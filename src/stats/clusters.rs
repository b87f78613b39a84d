//! Per-cluster sums of rows: weighted sums, weights and squared errors.

use std::mem::take;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::float::Float;
use crate::kernel::{self, Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rows::{Rows, SparseRef};
use crate::tuning::shared_rows;

use super::exact::{Added, ExactSums, Terms, check_energy, rows_together};
use super::waiting::Waiting;

/// Weighted sums, weights and squared errors of rows per cluster. Two of them merge by addition.
///
/// Every number is an exact sum, which is rounded to `f64` once. The summands are the values of the rows, or their
/// products with the weights, rounded to `f64`, and the squared distances, likewise. So results are bit-identical in
/// any order of the same rows, however they are cut into parts.
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
    sums: ExactSums,
    weights: ExactSums,
    /// The weighted squared error per cluster.
    energies: ExactSums,
    /// Sums of squared weights. `None` while every row has weight 1, because they then equal the weights.
    squares: Option<ExactSums>,
    /// Clusters that may be nonempty; a merge skips the others.
    touched: Vec<bool>,
    /// Rows since they were settled; their clusters may be nonempty too.
    added: Added,
    /// `sums` may be nonzero.
    filled: bool,
    /// Sparse rows not yet added to the sums. Their weights and errors are already included.
    waiting: Waiting,
    /// A partial result, which is merged before its sums are read. Its sparse rows may stay in `waiting`.
    is_part: bool,
    /// Squared errors of some rows.
    errors: Vec<f64>,
    /// The clusters whose sums have changed since [`ClusterSums::copy`] made these. `None` if all may have.
    changed: Option<Vec<u32>>,
}

/// Sums and weights below this value are not compared: their quotients have few exact digits.
const VANISHING: f64 = 1e-290;

/// The sum of `n` values in a fixed order, without a chain of dependent additions.
#[inline(always)]
pub(crate) fn sum_of(n: usize, mut value: impl FnMut(usize) -> f64) -> f64 {
    let mut sums = [0.0; 8];
    let whole = n / sums.len() * sums.len();
    for first in (0..whole).step_by(sums.len()) {
        for (l, sum) in sums.iter_mut().enumerate() {
            *sum += value(first + l);
        }
    }
    for (i, sum) in (whole..n).zip(&mut sums) {
        *sum += value(i);
    }
    sums.iter().sum()
}

/// Returns an error if the mean of a cluster overflows `T`.
pub(crate) fn check_mean<T: Float>(j: usize, weight: f64, mut sums: impl Iterator<Item = f64>) -> Result<()> {
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
        let mut new = Self::part(k, dim);
        new.sums.fill();
        Self { is_part: false, ..new }
    }

    /// Empty sums for a partial result, which is merged before its sums are read.
    pub(crate) fn part(k: usize, dim: usize) -> Self {
        let numbers = || {
            let mut numbers = ExactSums::new(k, 1);
            numbers.fill();
            numbers
        };
        Self {
            dim,
            // Allocated when needed.
            sums: ExactSums::new(k, dim),
            weights: numbers(),
            energies: numbers(),
            squares: None,
            touched: vec![false; k],
            added: Added::new(k),
            filled: false,
            waiting: Waiting::default(),
            is_part: true,
            errors: Vec::new(),
            changed: None,
        }
    }

    /// Creates sums from known values, `dim` values for each of `weights`.
    ///
    /// # Panics
    /// If the number of sums does not match the number of weights.
    pub(crate) fn of(dim: usize, sums: Vec<f64>, weights: Vec<f64>) -> Self {
        assert_eq!(sums.len(), weights.len() * dim, "one sum per cluster");
        let new = Self::part(weights.len(), dim);
        let touched = vec![true; weights.len()];
        let (sums, weights) = (ExactSums::of(dim, sums), ExactSums::of(1, weights));
        Self { sums, weights, touched, filled: true, is_part: false, ..new }
    }

    /// All values by name, each as its terms: the value, then what the rounding left, and so on. Equal sums have equal
    /// terms. Squared weights may be empty.
    pub(crate) fn parts(&self) -> [(&'static str, Terms); 4] {
        [
            ("sums", self.sums.terms()),
            ("weights", self.weights.terms()),
            ("squares", self.squares.as_ref().map_or_else(Terms::default, ExactSums::terms)),
            ("energies", self.energies.terms()),
        ]
    }

    /// Restores `k` clusters from the values that [`ClusterSums::parts`] returned, in that order. `None` if lengths do
    /// not match.
    pub(crate) fn of_parts(k: usize, dim: usize, parts: [Terms; 4]) -> Option<Self> {
        let [sums, weights, squares, energies] = parts;
        let numbers = [&weights, &energies].into_iter().all(|terms| terms.fit(k));
        if !(numbers && sums.fit(k * dim) && (squares.values.is_empty() || squares.fit(k))) {
            return None;
        }
        Some(Self {
            sums: ExactSums::of_terms(k, dim, sums),
            weights: ExactSums::of_terms(k, 1, weights),
            energies: ExactSums::of_terms(k, 1, energies),
            squares: (!squares.values.is_empty()).then(|| ExactSums::of_terms(k, 1, squares)),
            touched: vec![true; k],
            filled: true,
            is_part: false,
            ..Self::part(k, dim)
        })
    }

    /// Returns an error if the mean of a cluster overflows `T`.
    pub(crate) fn check_means<T: Float>(&self, cx: &Executor) -> Result<()> {
        if self.sums.values().is_empty() {
            return Ok(());
        }
        let (k, part) = (self.touched.len(), shared_rows(self.dim));
        let mut found: Vec<Result<()>> = (0..k.div_ceil(part)).map(|_| Ok(())).collect();
        cx.share(found.iter_mut().enumerate(), |(i, found)| {
            let mut clusters =
                self.changed_in(i * part..k.min((i + 1) * part)).filter(|&j| self.weights()[j] > 0.0);
            *found =
                clusters.try_for_each(|j| check_mean::<T>(j, self.weights()[j], self.sum(j).iter().copied()));
        });
        found.into_iter().collect::<Result<()>>()?;
        check_energy(self.energy())
    }

    /// Like [`ClusterSums::check_means`] for `factor` times these sums plus `more`, for the clusters with
    /// weight in `more`. Waiting rows are ignored, since there are few of them.
    pub(crate) fn check_means_with<T: Float>(&self, factor: f64, more: &Self) -> Result<()> {
        check_energy(more.energy())?;
        if more.sums.values().is_empty() {
            return Ok(());
        }
        for (j, &added) in more.weights().iter().enumerate().filter(|&(_, &added)| added > 0.0) {
            let sums = self.sum(j).iter().zip(more.sum(j)).map(|(old, new)| old * factor + new);
            check_mean::<T>(j, self.weights()[j] * factor + added, sums)?;
        }
        Ok(())
    }

    /// Whether every cluster with weight has its mean at its center, and the others have no sums. If `unit`, the rows
    /// have length 1, and the direction of the sum is compared.
    pub(crate) fn have_means_at<T: Float>(&self, centers: MatRef<'_, T>, unit: bool) -> bool {
        centers.iter().enumerate().all(|(j, center)| {
            let (sum, weight) = (self.sum(j), self.weights()[j]);
            if weight <= 0.0 {
                return sum.iter().all(|s| s.abs() <= VANISHING);
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
        centers.iter().enumerate().filter(|&(j, _)| self.weights()[j] > 0.0).all(|(j, center)| {
            let (weight, mut of_mean, mut lengths) = (self.weights()[j], 0.0, 0.0);
            for (sum, c) in self.sum(j).iter().zip(center) {
                let (mean, c) = (sum / weight, c.to_f64());
                of_mean += weight * (mean - c) * (mean - c);
                lengths += weight * (mean * mean + c * c);
            }
            of_mean <= self.energies()[j] * (1.0 + 1e-6) + 1e-6 * lengths + VANISHING
        })
    }

    /// The sums of all clusters, one after the other.
    pub(crate) fn sums(&self) -> &[f64] {
        self.sums.values()
    }

    /// Replaces cluster `j` by `weight` copies of `row`.
    pub(crate) fn replace<T: Float>(&mut self, j: usize, row: &[T], weight: f64) {
        self.sums.set(j, row.iter().map(|x| weight * x.to_f64()));
        self.weights.set(j, [weight].into_iter());
        (self.touched[j], self.filled, self.changed) = (true, true, None);
    }

    /// Multiplies all weights by `factor`. The sums must be rounded.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.changed = None;
        self.squares().scale(factor * factor);
        for numbers in [&mut self.sums, &mut self.weights, &mut self.energies] {
            numbers.scale(factor);
        }
    }

    /// Adds labeled rows, and their weighted squared errors about `centers`.
    ///
    /// # Panics
    /// If a length does not match, or a label is not the number of a cluster.
    pub fn absorb<'a, T: Compute>(
        &mut self,
        rows: impl Into<Rows<'a, T>>,
        labels: &[u32],
        weights: Option<&[f64]>,
        centers: &PackedCenters<T>,
    ) {
        let rows = rows.into();
        assert!(
            labels.len() == rows.rows() && weights.is_none_or(|w| w.len() == rows.rows()),
            "one label per row"
        );
        assert!(centers.n_centers() == self.touched.len() && centers.dim() == self.dim, "one sum per center");
        self.changed = None;
        let waits = matches!(rows, Rows::Sparse(sparse) if self.can_wait(sparse));
        if !waits {
            self.settle_waiting();
            self.filled = true;
        }
        let together = rows_together(self.dim);
        for start in (0..labels.len()).step_by(together) {
            let end = labels.len().min(start + together);
            let (rows, labels) = (rows.slice(start, end), &labels[start..end]);
            let weights = weights.map(|weights| &weights[start..end]);
            self.absorb_numbers(rows, labels, weights, centers);
            match rows {
                Rows::Dense(rows) => self.sums.add(rows, labels, weights),
                Rows::Sparse(rows) if waits => {
                    for (i, &label) in labels.iter().enumerate() {
                        self.waiting.push(rows.row(i), label, weights.map_or(1.0, |w| w[i]));
                    }
                }
                Rows::Sparse(rows) => {
                    self.sums.begin_values(T::WIDE || weights.is_some());
                    for (i, &label) in labels.iter().enumerate() {
                        self.sums.add_sparse(rows.row(i), label, weights.map_or(1.0, |w| w[i]));
                    }
                }
            }
            let unit = i32::from(weights.is_none());
            self.note(labels, |_| unit);
        }
    }

    /// Adds the weights of labeled rows, and their squared errors times the weights, but not the squares of the weights.
    /// There must be no columns.
    ///
    /// # Panics
    /// If a length does not match, or a label is not the number of a cluster.
    pub(crate) fn absorb_errors(&mut self, errors: &[f64], labels: &[u32], weights: Option<&[f64]>) {
        assert_eq!((self.dim, errors.len()), (0, labels.len()), "no columns, and one label per row");
        (self.filled, self.changed) = (true, None);
        let together = rows_together(1);
        for start in (0..labels.len()).step_by(together) {
            let these = start..labels.len().min(start + together);
            let (errors, labels) = (&errors[these.clone()], &labels[these.clone()]);
            let weights = weights.map(|weights| &weights[these]);
            self.energies.add(MatRef::new(errors, 1), labels, weights);
            if let Some(weights) = weights {
                self.weights.add(MatRef::new(weights, 1), labels, None);
            }
            let unit = i32::from(weights.is_none());
            self.note(labels, |_| unit);
        }
    }

    /// Adds the weights and squared errors of rows.
    fn absorb_numbers<T: Compute>(
        &mut self,
        rows: Rows<'_, T>,
        labels: &[u32],
        weights: Option<&[f64]>,
        centers: &PackedCenters<T>,
    ) {
        let mut errors = take(&mut self.errors);
        errors.resize(labels.len(), 0.0);
        kernel::sq_dists(rows, labels, centers, &mut errors);
        self.energies.add(MatRef::new(&errors, 1), labels, weights);
        self.errors = errors;
        if let Some(weights) = weights {
            let column = MatRef::new(weights, 1);
            self.squares().add(column, labels, Some(weights));
            self.weights.add(column, labels, None);
        }
    }

    /// Counts rows that were added together, each of which changes the weight of its cluster by so many rows of
    /// weight 1. Settles clusters that must be, or whose sums are read next.
    fn note(&mut self, labels: &[u32], by: impl Fn(usize) -> i32) {
        if !self.added.count(labels, by) && self.is_part {
            return;
        }
        for j in labels.iter().map(|&j| j as usize) {
            if !self.is_part || self.added.is_full(j) {
                self.settle(j);
            }
        }
        self.all_numbers().for_each(ExactSums::finish);
    }

    /// Adds the rows of cluster `j` that were counted to what is read.
    fn settle(&mut self, j: usize) {
        let (rows, weight) = self.added.take(j);
        if rows == 0 {
            return;
        }
        self.touched[j] = true;
        for numbers in [&mut self.weights].into_iter().chain(&mut self.squares) {
            numbers.add_value(j, f64::from(weight));
        }
        self.all_numbers().for_each(|numbers| numbers.settle(j));
    }

    fn all_numbers(&mut self) -> impl Iterator<Item = &mut ExactSums> {
        [&mut self.sums, &mut self.weights, &mut self.energies].into_iter().chain(&mut self.squares)
    }

    /// Moves rows of weight 1 whose labels changed, and updates the squared errors about `centers`. `self`
    /// holds the sums of these rows, or is an empty partial result that is merged into those sums later.
    ///
    /// # Panics
    /// If a length does not match, or a changed label is not the number of a cluster.
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
        let rows = rows.into();
        assert!(old.len() == rows.rows() && new.len() == rows.rows(), "two labels per row");
        (self.filled, self.changed) = (true, None);
        self.settle_waiting();
        let together = rows_together(self.dim);
        for start in (0..new.len()).step_by(together) {
            let end = new.len().min(start + together);
            let (rows, old, new) = (rows.slice(start, end), &old[start..end], &new[start..end]);
            let moved =
                || old.iter().copied().zip(new.iter().copied()).enumerate().filter(|(_, (j, l))| j != l);
            let mut errors = take(&mut self.errors);
            errors.clear();
            for (i, (from, to)) in moved() {
                let about = |j: u32| centers.sq_dist(rows, i, j as usize);
                errors.extend([-about(from), about(to)]);
            }
            if errors.is_empty() {
                self.errors = errors;
                continue;
            }
            let both: Vec<u32> = moved().flat_map(|(_, (from, to))| [from, to]).collect();
            self.energies.add(MatRef::new(&errors, 1), &both, None);
            self.errors = errors;
            match rows {
                Rows::Dense(rows) => self.sums.reassign(rows, (old, new)),
                Rows::Sparse(rows) => {
                    self.sums.begin_values(T::WIDE);
                    for (i, (from, to)) in moved() {
                        self.sums.add_sparse(rows.row(i), from, -1.0);
                        self.sums.add_sparse(rows.row(i), to, 1.0);
                    }
                }
            }
            self.note(&both, |i| if i % 2 == 0 { -1 } else { 1 });
        }
    }

    /// Whether more sparse rows may wait. Waiting rows must take less memory than sums. Adding them later to
    /// other sums touches only a few values.
    fn can_wait<T: Float>(&self, rows: SparseRef<'_, T>) -> bool {
        let more: usize = rows.iter().map(|(columns, _)| columns.len()).sum();
        self.is_part && !self.filled && 2 * (self.waiting.len() + more) <= self.touched.len() * self.dim
    }

    /// Adds the waiting rows.
    fn settle_waiting(&mut self) {
        if !self.waiting.is_empty() {
            let mut waiting = take(&mut self.waiting);
            self.add_waiting(&mut waiting, false);
            self.waiting = waiting;
        }
    }

    /// Adds and removes the rows in `waiting`. Then rounds their sums, if `rounded`.
    fn add_waiting(&mut self, waiting: &mut Waiting, rounded: bool) {
        (self.filled, self.changed) = (true, None);
        self.sums.fill();
        let (dim, sums) = (self.dim, &mut self.sums);
        let mut places = Vec::new();
        waiting.drain(|label, weight, columns, values| {
            for (&column, x) in columns.iter().zip(values) {
                let at = label as usize * dim + column as usize;
                sums.add_value(at, weight * x);
                if rounded {
                    places.push(at);
                }
            }
        });
        sums.finish();
        for at in places {
            sums.round(at..at + 1);
        }
    }

    /// Like [`ClusterSums::merge_parts`], but sparse rows keep waiting as long as they take little memory.
    pub(crate) fn collect<'a>(&mut self, parts: impl IntoIterator<Item = &'a mut Self>, cx: &Executor) {
        let mut parts = Vec::from_iter(parts);
        for part in &mut parts {
            let fits = 2 * (self.waiting.len() + part.waiting.len()) <= self.touched.len() * self.dim;
            if !self.filled && !part.filled && fits {
                self.waiting.append(&mut part.waiting);
            } else {
                self.settle_waiting();
            }
        }
        self.merge_all(&mut parts, false, cx);
        // Some parts may have filled the sums that rows of others wait for.
        if self.filled {
            self.settle_waiting();
        }
    }

    /// A copy that knows which clusters merges change. `last` are the sums whose copy became these by merging, if they
    /// are still there: then only what differs is copied.
    pub(crate) fn copy(&self, last: Option<Self>) -> Self {
        let sums = match (last, &self.changed) {
            (Some(Self { mut sums, .. }), Some(changed)) => {
                sums.catch_up(&self.sums, changed);
                sums
            }
            (last, _) => {
                // Frees its memory first.
                drop(last);
                self.sums.clone()
            }
        };
        let Self { dim, weights, energies, squares, touched, added, filled, waiting, is_part, .. } = self;
        debug_assert!(waiting.is_empty() && !is_part, "only totals of dense rows are copied");
        Self {
            dim: *dim,
            sums,
            weights: weights.clone(),
            energies: energies.clone(),
            squares: squares.clone(),
            touched: touched.clone(),
            added: added.clone(),
            filled: *filled,
            waiting: Waiting::default(),
            is_part: *is_part,
            errors: Vec::new(),
            changed: Some(Vec::new()),
        }
    }

    /// A copy of a range of clusters. There must be no waiting rows, as in all totals.
    pub(crate) fn range(&self, clusters: Range<usize>) -> Self {
        debug_assert!(self.waiting.is_empty() && !self.is_part, "only totals are cut");
        Self {
            sums: self.sums.range(clusters.clone()),
            weights: self.weights.range(clusters.clone()),
            energies: self.energies.range(clusters.clone()),
            squares: self.squares.as_ref().map(|squares| squares.range(clusters.clone())),
            touched: self.touched[clusters.clone()].to_vec(),
            filled: self.filled,
            is_part: false,
            ..Self::part(clusters.len(), self.dim)
        }
    }

    /// All clusters as one.
    pub(crate) fn together(&self) -> Self {
        let mut together = Self::new(1, self.dim);
        (0..self.touched.len()).for_each(|j| together.merge(&mut self.range(j..j + 1)));
        together
    }

    /// The clusters in a range whose sums may have changed since [`ClusterSums::copy`] made these, in ascending order.
    pub(crate) fn changed_in(&self, clusters: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let listed = self.changed.as_ref().map(|changed| {
            let place = |cluster: usize| changed.partition_point(|&j| (j as usize) < cluster);
            &changed[place(clusters.start)..place(clusters.end)]
        });
        let all = if listed.is_some() { 0..0 } else { clusters };
        listed.into_iter().flatten().map(|&j| j as usize).chain(all)
    }

    /// Converts the squared errors about the centers `old` to squared errors about `new`.
    pub(crate) fn follow<T: Float>(&mut self, old: MatRef<'_, T>, new: MatRef<'_, T>, cx: &Executor) {
        let mut energies = vec![0.0; old.rows()];
        cx.fill(&mut energies, self.dim, |j| self.energy_about(j, old.row(j), new.row(j)));
        energies.into_iter().enumerate().for_each(|(j, energy)| self.energies.set(j, [energy].into_iter()));
    }

    /// The squared error of cluster `j` about the center `new`, if the sum is that about `old`.
    fn energy_about<T: Float>(&self, j: usize, old: &[T], new: &[T]) -> f64 {
        let (weight, energy) = (self.weights()[j], self.energies()[j]);
        if weight <= 0.0 {
            return 0.0;
        }
        if old == new {
            return energy;
        }
        // The squared error about a point is the squared error about the mean, plus the weight times the squared
        // distance to the mean.
        let (n, sum) = (self.dim, self.sum(j));
        let (old, new, sum) = (&old[..n], &new[..n], &sum[..n]);
        let growth = sum_of(n, |i| {
            let (old, new, mean) = (old[i].to_f64(), new[i].to_f64(), sum[i] / weight);
            (new - old) * ((new - mean) + (old - mean))
        });
        energy + weight * growth
    }

    /// The sums of squared weights. Before the first call, every row had weight 1.
    fn squares(&mut self) -> &mut ExactSums {
        // Rows that are counted in `added` count for both when they are settled.
        self.squares.get_or_insert_with(|| self.weights.clone())
    }

    /// Adds the values of `part` and leaves `part` empty.
    pub fn merge(&mut self, part: &mut Self) {
        self.merge_all(&mut [part], false, Executor::caller());
    }

    /// Like [`ClusterSums::merge`], and rounds the sums that change.
    pub(crate) fn merge_rounded(&mut self, part: &mut Self, cx: &Executor) {
        self.merge_all(&mut [part], true, cx);
    }

    /// Like [`ClusterSums::merge`], for several parts.
    pub(crate) fn merge_parts<'a>(&mut self, parts: impl IntoIterator<Item = &'a mut Self>, cx: &Executor) {
        self.merge_all(&mut Vec::from_iter(parts), false, cx);
    }

    fn merge_all(&mut self, parts: &mut [&mut Self], rounded: bool, cx: &Executor) {
        let lists: Vec<Vec<u32>> = parts.iter_mut().map(|part| self.merge_weights(part)).collect();
        let filled = parts.iter_mut().zip(&lists).map(|(part, list)| {
            // Otherwise all rows of the part are waiting.
            let list = if take(&mut part.filled) { &list[..] } else { &[] };
            (list, &mut part.sums)
        });
        let mut filled: Vec<_> = filled.collect();
        self.filled |= filled.iter().any(|(list, _)| !list.is_empty());
        self.sums.take(&mut filled, cx);
        if rounded {
            self.sums.finish();
            for j in lists.iter().flatten().map(|&j| j as usize) {
                self.sums.round(j * self.dim..(j + 1) * self.dim);
            }
        }
        for part in parts.iter_mut().filter(|part| !part.waiting.is_empty()) {
            self.settle_waiting();
            self.add_waiting(&mut part.waiting, rounded);
        }
        if let Some(changed) = &mut self.changed {
            changed.extend(lists.iter().flatten());
            changed.sort_unstable();
            changed.dedup();
        }
        self.all_numbers().for_each(ExactSums::finish);
        if rounded {
            let k = self.touched.len();
            self.all_numbers().skip(1).for_each(|numbers| numbers.round(0..k));
        }
    }

    /// Adds what `part` has beside the sums of its rows, and removes it there. Returns the clusters that it touched.
    fn merge_weights(&mut self, part: &mut Self) -> Vec<u32> {
        if part.squares.is_some() {
            self.squares();
        }
        part.changed = None;
        let mut list = Vec::new();
        for j in 0..part.touched.len() {
            let (rows, weight) = part.added.take(j);
            if rows == 0 && !take(&mut part.touched[j]) {
                continue;
            }
            part.touched[j] = false;
            self.touched[j] = true;
            list.push(j as u32);
            part.weights.add_value(j, f64::from(weight));
            match (&mut self.squares, &mut part.squares) {
                (Some(_), Some(part)) => part.add_value(j, f64::from(weight)),
                (Some(squares), None) => squares.add_value(j, part.weights.values()[j]),
                (None, _) => {}
            }
        }
        let cx = Executor::caller();
        if let (Some(squares), Some(part)) = (&mut self.squares, &mut part.squares) {
            squares.take(&mut [(&list, part)], cx);
        }
        self.weights.take(&mut [(&list, &mut part.weights)], cx);
        self.energies.take(&mut [(&list, &mut part.energies)], cx);
        list
    }

    /// Number of clusters, and of columns.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.touched.len(), self.dim)
    }

    /// Weight per cluster.
    pub fn weights(&self) -> &[f64] {
        self.weights.values()
    }

    /// Weighted sum of the rows of cluster `j`.
    ///
    /// # Panics
    /// If there is no cluster `j`.
    pub fn sum(&self, j: usize) -> &[f64] {
        self.sums.row(j)
    }

    /// Weighted sum of squared differences between the rows and the centers with which they were absorbed.
    pub fn energy(&self) -> f64 {
        self.energies().iter().sum()
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
        self.energies.values()
    }

    /// The bytes of the sums.
    pub(crate) fn bytes(&self) -> usize {
        let squares = self.squares.as_ref().map_or(0, ExactSums::bytes);
        self.sums.bytes() + self.weights.bytes() + self.energies.bytes() + squares + 9 * self.touched.len()
    }

    /// Whether the squared errors of all absorbed rows are finite.
    pub(crate) fn is_finite(&self) -> bool {
        self.energies.is_finite()
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
        let weight = self.weights()[j];
        match self.squares.as_ref().map(|squares| squares.values()[j]) {
            Some(squares) if squares > 0.0 => weight * weight / squares,
            Some(_) => 0.0,
            None => weight,
        }
    }

    /// Moves one row with weight `weight` from cluster `from` to cluster `to`.
    pub(crate) fn move_row<T: Float>(&mut self, row: &[T], weight: f64, from: usize, to: usize) {
        self.add_row(row, -weight, from);
        self.add_row(row, weight, to);
    }

    /// Adds `weight` times a row to cluster `j`, and `weight` to its weight.
    pub(crate) fn add_row<T: Float>(&mut self, row: &[T], weight: f64, j: usize) {
        (self.filled, self.changed) = (true, None);
        self.all_numbers().for_each(ExactSums::fill);
        for (t, x) in row.iter().enumerate() {
            self.sums.add_value(j * self.dim + t, weight * x.to_f64());
        }
        self.weights.add_value(j, weight);
        self.touched[j] = true;
        self.all_numbers().for_each(ExactSums::finish);
    }
}
