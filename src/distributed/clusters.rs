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

/// The sums of a sweep over some partitions.
#[derive(Clone, Debug)]
pub(super) struct ClusterTotals {
    pub(super) k: usize,
    pub(super) dim: usize,
    pub(super) clusters: ClusterSums,
    /// The rows farthest from their centers, if a cluster has no weight. A key is minus a squared distance.
    pub(super) far: Picked,
    /// All rows as one cluster about one point, for the variance of the data; only where it is wanted.
    pub(super) all: Option<ClusterSums>,
}

impl ClusterTotals {
    /// The sums of clusters, with room for their farthest rows, which are `f64` if `wide`, as the centers.
    pub(super) fn new(clusters: ClusterSums, (k, dim): (usize, usize), wide: bool) -> Self {
        Self { k, dim, clusters, far: Picked::new(dim, FARTHEST_ROWS, wide), all: None }
    }

    /// Whether every cluster has weight. Then no cluster of all rows is empty, and no farthest row is needed.
    pub(super) fn is_full(&self) -> bool {
        self.clusters.weights().iter().all(|&weight| weight > 0.0)
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

    fn add(&mut self, next: &Self) -> Result<()> {
        if (self.k, self.dim, self.all.is_some()) != (next.k, next.dim, next.all.is_some()) {
            return Err(of_others());
        }
        self.clusters.merge(&mut next.clusters.clone());
        self.far.append(&mut next.far.clone());
        if let (Some(all), Some(next)) = (&mut self.all, &next.all) {
            all.merge(&mut next.clone());
        }
        self.settle();
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        keep(contents, "shape", Array::new(&[2], &[self.k as u64, self.dim as u64]));
        keep_sums(contents, "clusters", &self.clusters);
        if let Some(all) = &self.all {
            keep_sums(contents, "all", all);
        }
        self.far.put(contents);
    }

    fn of_file(contents: &Contents, _: usize) -> Result<Self, String> {
        let shape: Vec<u64> = list(contents, "shape")?;
        let &[k, dim] = &shape[..] else { return Err("its shape is damaged".into()) };
        let (k, dim) = (as_size(k)?, as_size(dim)?);
        if k.checked_mul(dim).is_none() {
            return Err("its shape is damaged".into());
        }
        let clusters = sums_of(contents, "clusters", k, dim)?.ok_or("it lacks the sums of clusters")?;
        let all = sums_of(contents, "all", 1, dim)?;
        let far = Picked::of_file(contents, dim, FARTHEST_ROWS)?;
        if far.entries.iter().any(|entry| entry.label as usize >= k || entry.key > 0.0 || entry.weight < 0.0)
        {
            return Err("its farthest rows are damaged".into());
        }
        Ok(Self { k, dim, clusters, far, all })
    }

    /// Sums of partitions without rows know their width only from the pass.
    fn fits(&self, _: u64, dim: usize) -> bool {
        dim == 0 || self.dim == dim
    }
}
