//! This module knows what a fit ends in: the last centers, and everything that goes with them.

use super::VarianceReducedSolver;
use super::solver::SweptMeans;
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::Compute;
use crate::kmeans::labels::Labels;
use crate::matrix::MatRef;
use crate::parallel::Executor;

/// Centers, and labels, weights and inertia about them.
#[derive(Clone, Debug)]
pub(super) struct Finished<T> {
    pub(super) centers: Vec<T>,
    pub(super) labels: Vec<u32>,
    pub(super) weights: Vec<f64>,
    pub(super) inertia: f64,
    /// These are the last centers, not those that a run was left with.
    pub(super) closed: bool,
}

impl<T: Compute> VarianceReducedSolver<T> {
    /// What belongs to the centers as they are. To `close` them, they are first made means, if that is wanted, and those of the last sweep if
    /// the steps from there were not worth having.
    pub(super) fn finished(
        &mut self,
        close: bool,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Finished<T>> {
        let (dim, polish) = (self.dim, self.params.polish);
        // The next epoch goes on from the labels as they are; bounds begin anew.
        let mut labels = Labels::default();
        labels.bounds = self.labels.bounds.take();
        labels.of_rows.clone_from(&self.labels.of_rows);
        let mut centers = self.centers.clone();
        let mut last = None;
        if close && !self.settled {
            let from = MatRef::new(&self.centers, dim);
            // Carried sums save most of a pass, but the inertia that is shown is summed afresh.
            let carried = self.carried.clone().filter(|_| polish);
            let pass = Self::pass(&mut labels, from, carried, data, cx)?;
            let worse = self.is_worse(pass.swept.clusters.energy());
            if worse || polish {
                centers = if worse { self.means.clone() } else { pass.means };
                if let Some(bounds) = &mut labels.bounds {
                    bounds.follow(from, MatRef::new(&centers, dim));
                }
            } else {
                last = Some(pass);
            }
        }
        let last =
            last.map_or_else(|| Self::pass(&mut labels, MatRef::new(&centers, dim), None, data, cx), Ok)?;
        let SweptMeans { swept, .. } = last;
        let (weights, inertia) = (swept.clusters.weights().to_vec(), swept.clusters.energy());
        Ok(Finished { centers, labels: labels.of_rows, weights, inertia, closed: close })
    }
}
