//! The sums of a sweep: rows, weights and squared errors per cluster, and the farthest rows.

use super::errors::of_others;
use super::numbers::as_size;
use super::picked::Picked;
use super::sums::Sums;
use crate::error::Result;
use crate::kmeans::{keep_sums, sums_of};
use crate::persist::kept::{keep, list};
use crate::persist::{Array, Contents};
use crate::stats::ClusterSums;
use crate::tuning::FARTHEST_ROWS;

/// The sums of a sweep over some partitions, of all clusters or of a range.
#[derive(Clone, Debug)]
pub(super) struct ClusterTotals {
    /// The number of all clusters.
    pub(super) k: usize,
    pub(super) dim: usize,
    /// The first cluster of `clusters`.
    pub(super) first: usize,
    pub(super) clusters: ClusterSums,
    /// The rows farthest from their centers, if a cluster has no weight. A key is minus a squared distance. Only the first
    /// range has them.
    pub(super) far: Picked,
}

impl ClusterTotals {
    /// The sums of clusters, with room for their farthest rows, which are `f64` if `wide`, as the centers.
    pub(super) fn new(clusters: ClusterSums, (k, dim): (usize, usize), wide: bool) -> Self {
        Self { k, dim, first: 0, clusters, far: Picked::new(dim, FARTHEST_ROWS, wide) }
    }

    fn shape(&self) -> (usize, usize, usize, usize) {
        (self.k, self.dim, self.first, self.clusters.weights().len())
    }

    /// Whether every cluster has weight. Then no cluster of all rows is empty, and no farthest row is needed.
    pub(super) fn is_full(&self) -> bool {
        let weights = self.clusters.weights();
        weights.len() == self.k && weights.iter().all(|&weight| weight > 0.0)
    }

    /// Prunes the farthest rows, or drops them if they are not needed.
    pub(super) fn settle(&mut self) {
        if self.is_full() {
            self.far.clear();
        } else {
            self.far.prune();
        }
    }
}

impl Sums for ClusterTotals {
    const KIND: &'static str = "clusters";

    fn add(&mut self, mut next: Self) -> Result<()> {
        if self.shape() != next.shape() {
            return Err(of_others());
        }
        self.clusters.merge(&mut next.clusters);
        self.far.append(&mut next.far);
        self.settle();
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        let own = self.clusters.weights().len();
        keep(contents, "shape", Array::new(&[2], &[own as u64, self.dim as u64]));
        if own != self.k {
            keep(contents, "range", Array::new(&[2], &[self.first as u64, self.k as u64]));
        }
        keep_sums(contents, "clusters", &self.clusters);
        self.far.put(contents);
    }

    fn of_file(contents: &Contents, _: usize) -> Result<Self, String> {
        let shape: Vec<u64> = list(contents, "shape")?;
        let &[own, dim] = &shape[..] else { return Err("its shape is damaged".into()) };
        let (own, dim) = (as_size(own)?, as_size(dim)?);
        if own.checked_mul(dim).is_none() {
            return Err("its shape is damaged".into());
        }
        let (mut first, mut k) = (0, own);
        if contents.arrays.contains_key("range") {
            let range: Vec<u64> = contents.values("range", &[2])?;
            // The first cluster may be 0, which is no size.
            (first, k) = (as_size(range[0].saturating_add(1))? - 1, as_size(range[1])?);
            if first + own > k || own == k {
                return Err("its range is damaged".into());
            }
        }
        let clusters = sums_of(contents, "clusters", own, dim)?.ok_or("it lacks the sums of clusters")?;
        let far = Picked::of_file(contents, dim, FARTHEST_ROWS)?;
        if far.entries.iter().any(|entry| entry.label as usize >= k || entry.key > 0.0 || entry.weight < 0.0)
        {
            return Err("its farthest rows are damaged".into());
        }
        Ok(Self { k, dim, first, clusters, far })
    }

    /// Sums of partitions without rows know their width only from the pass.
    fn fits(&self, _: u64, dim: usize) -> bool {
        dim == 0 || self.dim == dim
    }
}
