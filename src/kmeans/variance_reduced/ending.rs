//! Final centers of a variance-reduced fit, with labels, weights and inertia.

use super::solver::{FinishedCenters, SweptMeans, VarianceReducedSolver};
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::Compute;
use crate::kmeans::labels::Labels;
use crate::matrix::MatRef;
use crate::parallel::Executor;

impl<T: Compute> VarianceReducedSolver<T> {
    /// Labels, weights and inertia of the current centers. With `close`, first computes the final centers:
    /// the means, if `polish` is on, or the means of the last sweep, if the steps from there made the energy
    /// worse.
    pub(super) fn finished(
        &mut self,
        close: bool,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<FinishedCenters<T>> {
        let (dim, metric, polish) = (self.dim, self.params.metric, self.params.polish);
        // The next epoch continues from the current labels; bounds are rebuilt.
        let mut labels = Labels::of(self.labels.of_rows.clone());
        labels.bounds = self.labels.bounds.take();
        let mut centers = self.centers.clone();
        let mut last = None;
        if close && !self.settled {
            let from = MatRef::new(&self.centers, dim);
            // Carried sums save most of a pass, but the reported inertia is summed from scratch.
            let carried = self.carried.clone().filter(|_| polish);
            let pass = Self::pass(&mut labels, (from, metric), carried, data, cx)?;
            let worse = self.is_worse(pass.swept.clusters.energy());
            if worse || polish {
                centers = if worse { self.means.clone() } else { pass.means };
                if let Some(bounds) = &mut labels.bounds {
                    bounds.follow(from, MatRef::new(&centers, dim), cx);
                }
            } else {
                last = Some(pass);
            }
        }
        let from = (MatRef::new(&centers, dim), metric);
        let last = last.map_or_else(|| Self::pass(&mut labels, from, None, data, cx), Ok)?;
        let SweptMeans { swept, .. } = last;
        let (weights, inertia) = (swept.clusters.weights().to_vec(), swept.clusters.energy());
        Ok(FinishedCenters { centers, labels: labels.of_rows, weights, inertia, closed: close })
    }
}
