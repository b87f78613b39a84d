//! Sums that the next sweep starts from.

use crate::kernel::Compute;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::stats::ClusterSums;

/// Sums carried from sweep to sweep, so that the next sweep only updates the rows whose label changes.
#[derive(Clone, Debug)]
pub(in crate::kmeans) struct Carried {
    pub(super) clusters: ClusterSums,
    /// The squared error when it was last summed row by row.
    pub(super) energy_afresh: f64,
}

impl Carried {
    pub(in crate::kmeans) fn of(clusters: ClusterSums, energy_afresh: f64) -> Self {
        Self { clusters, energy_afresh }
    }

    pub(in crate::kmeans) fn clusters(&self) -> &ClusterSums {
        &self.clusters
    }

    /// The squared error when it was last summed row by row.
    pub(in crate::kmeans) fn energy_afresh(&self) -> f64 {
        self.energy_afresh
    }

    /// A copy with the squared errors about `new` centers, given those about `old`.
    pub(in crate::kmeans) fn about<T: Compute>(&self, old: MatRef<'_, T>, new: MatRef<'_, T>) -> Self {
        let mut carried = self.clone();
        carried.clusters.follow(old, new, Executor::caller());
        carried
    }

    /// A copy for a sweep from centers that are the means of these sums, so that [`to_means`](crate::stats::to_means)
    /// moves only centers whose sums change. `last` are the sums before the sweep that made these; their memory is
    /// reused.
    pub(in crate::kmeans) fn copy(&self, last: Option<Self>) -> Self {
        Self { clusters: self.clusters.copy(last.map(|last| last.clusters)), ..*self }
    }

    pub(in crate::kmeans) fn into_clusters(self) -> ClusterSums {
        self.clusters
    }
}
