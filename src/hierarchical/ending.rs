//! The end of a fit: exact labels, and centers that are nearest to no row.

use super::HierarchicalSolver;
use super::groups::Groups;
use crate::centers::{LabelsRef, inertia, predict};
use crate::data::{DataSource, Subset};
use crate::error::Result;
use crate::fit::{Element, Metric};
use crate::parallel::Executor;

/// Rounds in which clusters that exact labels leave empty are filled.
const FILLED: usize = 3;

/// Exact labels of the current centers.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) labels: Vec<u32>,
    pub(super) weights: Vec<f64>,
    pub(super) energy: f64,
    /// Share of the rows whose label the lists proved.
    pub(super) certified: f64,
}

impl<T: Element> HierarchicalSolver<T> {
    /// Puts centers that are nearest to no row, as exact labels show, to rows of the clusters with the largest squared
    /// errors.
    pub(super) fn fill(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        for _ in 0..FILLED {
            if self.finished.is_none() {
                self.finished = Some(self.exact(data, cx)?);
            }
            let Some(finished) = self.finished.as_ref() else { break };
            let mut clusters = self.clusters.clone();
            clusters.weights.clone_from(&finished.weights);
            let mut labels = finished.labels.clone();
            let groups = Groups::new(&labels, clusters.len());
            if clusters.repair(data, &mut labels, &groups, self.params.metric, cx)? == 0 {
                break;
            }
            (self.clusters, self.labels) = (clusters, labels);
            (self.lists, self.slacks, self.finished) = (None, Vec::new(), None);
        }
        Ok(())
    }

    /// The exact labels of the current centers.
    pub(super) fn exact(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Finished> {
        let centers = &self.clusters.centers;
        let mut labels = self.labels.clone();
        let mut certified = 0.0;
        let open: Vec<u64> = match &self.lists {
            Some(lists) if lists.certify() && self.grown => {
                let all = self.packed(data, centers);
                let groups = Groups::new(&self.labels, self.clusters.len());
                let found = self.compare(lists, false, &all, &groups, data, cx)?;
                let mut open = Vec::new();
                for ((&row, &label), &slack) in groups.rows().iter().zip(&found.labels).zip(&found.slacks) {
                    labels[row as usize] = label;
                    let slack = if slack.is_nan() { self.slacks[row as usize] } else { slack };
                    if f64::from(slack) < lists.far {
                        open.push(u64::from(row));
                    }
                }
                certified = 1.0 - open.len() as f64 / labels.len() as f64;
                open.sort_unstable();
                open
            }
            _ => (0..labels.len() as u64).collect(),
        };
        if open.len() == labels.len() {
            labels = predict(centers, Metric::Euclidean, data, cx)?;
        } else if !open.is_empty() {
            let found = predict(centers, Metric::Euclidean, &Subset::new(data, &open), cx)?;
            open.iter().zip(found).for_each(|(&row, label)| labels[row as usize] = label);
        }
        let energy = inertia(centers, Some(LabelsRef::from(&labels[..])), Metric::Euclidean, data, cx)?;
        let mut weights = vec![0.0; self.clusters.len()];
        for (row, &j) in labels.iter().enumerate() {
            weights[j as usize] += data.weights().map_or(1.0, |weights| weights[row]);
        }
        Ok(Finished { labels, weights, energy, certified })
    }
}
