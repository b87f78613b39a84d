//! Responsibilities: all of every row, or the largest ones plus an equal share for each of the others.
//!
//! The clusters that are left out share the rest of a row equally. Rows stay positive with sum 1, and
//! neighbors pull as with all values, except for differences among small ones.

use crate::error::Result;
use crate::kernel::Compute;
use crate::matrix::make_room;

/// Responsibilities of all rows.
#[derive(Clone, Debug)]
pub(crate) struct Shares<T> {
    k: usize,
    /// Number of responsibilities stored per row: all `k`, or fewer.
    top: usize,
    /// All `k` values of a row, or the stored ones followed by the value of each other cluster.
    values: Vec<T>,
    /// The stored clusters per row, ascending; empty if all are stored.
    clusters: Vec<u32>,
}

impl<T: Compute> Shares<T> {
    /// Zero rows.
    pub(super) fn new(k: usize, top: usize) -> Self {
        Self { k, top: top.min(k), values: Vec::new(), clusters: Vec::new() }
    }

    /// Responsibilities for all `k` clusters.
    pub(super) fn whole_of(k: usize, values: Vec<T>) -> Self {
        Self { k, top: k, values, clusters: Vec::new() }
    }

    /// Responsibility 1 for every row's label, 0 for the other clusters.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory).
    pub(super) fn of_labels(k: usize, top: usize, labels: &[u32]) -> Result<Self> {
        let mut shares = Self::new(k, top);
        shares.resize(labels.len())?;
        let width = shares.width();
        for (p, &label) in labels.iter().enumerate() {
            let at = if shares.is_whole() {
                label as usize
            } else {
                // Store the label and the lowest of the other clusters.
                let kept = &mut shares.clusters[p * top..][..top];
                (0..).zip(&mut *kept).for_each(|(l, kept)| *kept = l);
                kept[top - 1] = kept[top - 1].max(label);
                (label as usize).min(top - 1)
            };
            shares.values[p * width + at] = T::from_f64(1.0);
        }
        Ok(shares)
    }

    /// Rebuilds `n` rows from the stored values and their `clusters`, or from all values if `clusters` is
    /// empty. `None` if the arrays do not fit together.
    pub(crate) fn of_kept(k: usize, kept: Vec<T>, clusters: Vec<u32>, n: usize) -> Option<Self> {
        if clusters.is_empty() {
            return (kept.len() == n * k).then(|| Self::whole_of(k, kept));
        }
        let top = kept.len() / n.max(1);
        let fit = kept.len() == n * top && clusters.len() == kept.len() && top > 0 && top < k;
        if !fit || clusters.iter().any(|&l| l as usize >= k) {
            return None;
        }
        let mut values = Vec::with_capacity(n * (top + 1));
        for kept in kept.chunks_exact(top) {
            let rest = 1.0 - kept.iter().map(|z| z.to_f64()).sum::<f64>();
            values.extend_from_slice(kept);
            values.push(T::from_f64((rest / (k - top) as f64).max(0.0)));
        }
        Some(Self { k, top, values, clusters })
    }

    pub(super) fn k(&self) -> usize {
        self.k
    }

    /// Whether all responsibilities are stored.
    pub(super) fn is_whole(&self) -> bool {
        self.top == self.k
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn n_rows(&self) -> usize {
        self.values.len() / self.width().max(1)
    }

    /// Values per row.
    fn width(&self) -> usize {
        if self.is_whole() { self.k } else { self.top + 1 }
    }

    fn kept_clusters(&self) -> usize {
        if self.is_whole() { 0 } else { self.top }
    }

    /// Resizes to `n` rows; the values are unspecified.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory).
    pub(super) fn resize(&mut self, n: usize) -> Result<()> {
        let (width, kept) = (self.width(), self.kept_clusters());
        if self.values.len() != n * width {
            make_room(&mut self.values, "responsibilities", n as u64, width)?;
            self.values.resize(n * width, T::ZERO);
            make_room(&mut self.clusters, "responsibilities", n as u64, kept)?;
            self.clusters.resize(n * kept, 0);
        }
        Ok(())
    }

    /// All values, if all are stored.
    pub(super) fn whole(&self) -> &[T] {
        debug_assert!(self.is_whole());
        &self.values
    }

    pub(super) fn whole_mut(&mut self) -> &mut [T] {
        debug_assert!(self.is_whole());
        &mut self.values
    }

    /// The stored values per row, without the rest, and their clusters.
    pub(crate) fn kept(&self) -> (Vec<T>, &[u32]) {
        if self.is_whole() {
            return (self.values.clone(), &[]);
        }
        let rows = self.values.chunks_exact(self.top + 1);
        (rows.flat_map(|row| &row[..self.top]).copied().collect(), &self.clusters)
    }

    /// The rest value per row; empty if all responsibilities are stored.
    pub(super) fn rests(&self) -> Vec<T> {
        if self.is_whole() {
            return Vec::new();
        }
        self.values.chunks_exact(self.top + 1).map(|row| row[self.top]).collect()
    }

    /// Sets the rest values from [`rests`](Self::rests). `None` if their number is wrong.
    pub(super) fn with_rests(mut self, rests: &[T]) -> Option<Self> {
        let n = if self.is_whole() { 0 } else { self.n_rows() };
        if rests.len() != n {
            return None;
        }
        let top = self.top;
        self.values.chunks_exact_mut(top + 1).zip(rests).for_each(|(row, &rest)| row[top] = rest);
        Some(self)
    }

    /// Mutable parts of `rows` rows each, for writing with [`keep`].
    pub(super) fn parts(&mut self, rows: usize) -> impl Iterator<Item = (&mut [T], &mut [u32])> + Send {
        let (width, top) = (self.top + 1, self.top);
        self.values.chunks_mut(rows * width).zip(self.clusters.chunks_mut(rows * top))
    }

    /// Writes the responsibilities of a row for all clusters to `out`.
    pub(super) fn spread(&self, p: usize, out: &mut [T]) {
        if self.is_whole() {
            out.copy_from_slice(&self.values[p * self.k..][..self.k]);
            return;
        }
        let (row, clusters) = self.row(p);
        out.fill(row[self.top]);
        row.iter().zip(clusters).for_each(|(&z, &l)| out[l as usize] = z);
    }

    /// Adds `weight` times the responsibilities of a row to `out`.
    pub(super) fn add(&self, p: usize, weight: T, out: &mut [T]) {
        if self.is_whole() {
            let row = &self.values[p * self.k..][..self.k];
            out.iter_mut().zip(row).for_each(|(out, &z)| *out = *out + weight * z);
            return;
        }
        let (row, clusters) = self.row(p);
        let rest = row[self.top];
        let even = weight * rest;
        for out in &mut *out {
            *out = *out + even;
        }
        for (&z, &l) in row.iter().zip(clusters) {
            let out = &mut out[l as usize];
            *out = *out + weight * (z - rest);
        }
    }

    fn row(&self, p: usize) -> (&[T], &[u32]) {
        let width = self.top + 1;
        (&self.values[p * width..][..width], &self.clusters[p * self.top..][..self.top])
    }

    /// Calls `f` with the index and the responsibilities of every row.
    pub(super) fn each(&self, mut f: impl FnMut(usize, &[T])) {
        if self.is_whole() {
            self.values.chunks_exact(self.k).enumerate().for_each(|(p, row)| f(p, row));
            return;
        }
        let mut row = vec![T::ZERO; self.k];
        for p in 0..self.n_rows() {
            self.spread(p, &mut row);
            f(p, &row);
        }
    }

    /// Copies the rows of `other`, or those listed in `order`, in that order.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory).
    pub(super) fn take_from(&mut self, other: &Self, order: Option<&[u32]>) -> Result<()> {
        fn put<V: Copy>(from: &[V], order: Option<&[u32]>, width: usize, out: &mut [V]) {
            let Some(order) = order else {
                out.copy_from_slice(from);
                return;
            };
            for (row, &place) in out.chunks_exact_mut(width.max(1)).zip(order) {
                row.copy_from_slice(&from[place as usize * width..][..width]);
            }
        }
        self.resize(other.n_rows())?;
        put(&other.values, order, other.width(), &mut self.values);
        put(&other.clusters, order, other.kept_clusters(), &mut self.clusters);
        Ok(())
    }

    /// Writes row `i` to row `order[i]` of `out`.
    pub(super) fn put_back(&self, order: &[u32], out: &mut Self) {
        fn put<V: Copy>(from: &[V], order: &[u32], width: usize, out: &mut [V]) {
            for (row, &place) in from.chunks_exact(width.max(1)).zip(order) {
                out[place as usize * width..][..width].copy_from_slice(row);
            }
        }
        put(&self.values, order, self.width(), &mut out.values);
        put(&self.clusters, order, self.kept_clusters(), &mut out.clusters);
    }
}

/// Stores the largest responsibilities of a row, the lower cluster first among equals, and the mean of the
/// others. Updates `row` to the stored approximation.
pub(super) fn keep<T: Compute>(row: &mut [T], values: &mut [T], clusters: &mut [u32], order: &mut Vec<u32>) {
    let top = clusters.len();
    order.clear();
    order.extend(0..row.len() as u32);
    order.select_nth_unstable_by(top - 1, |&a, &b| {
        row[b as usize].to_f64().total_cmp(&row[a as usize].to_f64()).then(a.cmp(&b))
    });
    let (kept, others) = order.split_at_mut(top);
    kept.sort_unstable();
    // Selection leaves an unspecified order; sort for reproducible sums.
    others.sort_unstable();
    let rest: f64 = others.iter().map(|&l| row[l as usize].to_f64()).sum();
    let rest = T::from_f64(rest / others.len() as f64);
    for ((value, cluster), &l) in values.iter_mut().zip(clusters).zip(&*kept) {
        (*value, *cluster) = (row[l as usize], l);
    }
    values[top] = rest;
    for &mut l in others {
        row[l as usize] = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_and_the_rest_is_shared() {
        let mut row = [0.1f64, 0.4, 0.05, 0.3, 0.15];
        let mut shares = Shares::new(5, 2);
        shares.resize(1).unwrap();
        for (values, clusters) in shares.parts(1) {
            keep(&mut row, values, clusters, &mut Vec::new());
        }
        assert_eq!(shares.kept(), (vec![0.4, 0.3], &[1, 3][..]));
        let mut out = [0.0; 5];
        shares.spread(0, &mut out);
        assert_eq!(out, row);
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-15 && row[0] == row[2] && row[2] == row[4]);
        let mut sum = [1.0; 5];
        shares.add(0, 2.0, &mut sum);
        assert!(sum.iter().zip(row).all(|(sum, z)| (sum - 1.0 - 2.0 * z).abs() < 1e-15));
        let again = Shares::of_kept(5, vec![0.4, 0.3], vec![1, 3], 1).unwrap();
        again.spread(0, &mut sum);
        assert!(sum.iter().zip(row).all(|(sum, z)| (sum - z).abs() < 1e-15));
        assert!(Shares::of_kept(5, vec![0.4f64, 0.3], vec![1, 5], 1).is_none());
    }

    #[test]
    fn those_of_labels_are_one_for_each_row() {
        let labels = [4, 0, 2, 1, 3];
        for top in [2, 3, 5] {
            let shares = Shares::<f64>::of_labels(5, top, &labels).unwrap();
            let mut out = [0.5; 5];
            for (p, &label) in labels.iter().enumerate() {
                shares.spread(p, &mut out);
                let wanted: [f64; 5] = std::array::from_fn(|l| f64::from(l == label as usize));
                assert_eq!(out, wanted);
            }
            let order = [3, 1, 4, 0, 2];
            let (mut moved, mut back) = (Shares::new(5, top), Shares::of_labels(5, top, &[0; 5]).unwrap());
            moved.take_from(&shares, Some(&order)).unwrap();
            moved.put_back(&order, &mut back);
            assert_eq!(back.kept(), shares.kept());
            moved.take_from(&shares, None).unwrap();
            assert_eq!(moved.kept(), shares.kept());
        }
    }
}
