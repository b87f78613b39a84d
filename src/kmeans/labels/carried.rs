//! Sums that the next sweep starts from.

use crate::kernel::Compute;
use crate::matrix::MatRef;
use crate::stats::ClusterSums;

/// Sums carried from sweep to sweep, so that the next sweep only updates the rows whose label changes.
#[derive(Clone, Debug)]
pub(in crate::kmeans) struct Carried {
    pub(super) clusters: ClusterSums,
    /// Sweeps since the sums were recomputed; each sweep adds rounding.
    pub(super) age: u32,
    /// The squared error when the sums were recomputed.
    pub(super) energy_afresh: f64,
}

impl Carried {
    pub(in crate::kmeans) fn of(clusters: ClusterSums, age: u32, energy_afresh: f64) -> Self {
        Self { clusters, age, energy_afresh }
    }

    pub(in crate::kmeans) fn clusters(&self) -> &ClusterSums {
        &self.clusters
    }

    /// Sweeps since the sums were recomputed, and the squared error at that time.
    pub(in crate::kmeans) fn age(&self) -> (u32, f64) {
        (self.age, self.energy_afresh)
    }

    /// A copy with the squared errors about `new` centers, given those about `old`.
    pub(in crate::kmeans) fn about<T: Compute>(&self, old: MatRef<'_, T>, new: MatRef<'_, T>) -> Self {
        let mut carried = self.clone();
        carried.clusters.follow(old, new);
        carried
    }

    pub(in crate::kmeans) fn into_clusters(self) -> ClusterSums {
        self.clusters
    }
}
