//! The end of a fit: exact labels, and new places for centers that are nearest to no row.

use crate::kernel::Compute;
use std::cmp::Ordering;
use std::collections::HashSet;

use super::solver::{ExactLabels, HierarchicalSolver};
use crate::centers::{LabelsRef, errors, predict};
use crate::data::{DataSource, Subset, take};
use crate::error::Result;
use crate::fit::Metric;
use crate::parallel::Executor;
use crate::pass::Groups;
use crate::seeding::packed;
use crate::tuning::GROUPED_ROWS;

/// Rounds in which clusters that exact labels leave empty are filled.
const FILLED: usize = 3;

impl<T: Compute> HierarchicalSolver<T> {
    /// Moves centers that are nearest to no row, as exact labels show, to rows of the clusters with the
    /// largest squared errors, unless the fit ends without exact labels. Afterwards, no two centers are
    /// equal, as far as rows differ.
    pub(super) fn fill(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let rounds = if self.params.compute_labels { FILLED } else { 0 };
        for _ in 0..rounds {
            if self.finished.is_none() {
                self.finished = Some(self.exact(data, cx)?);
            }
            let Some(finished) = self.finished.as_ref() else { break };
            let mut clusters = self.clusters.clone();
            clusters.weights.clone_from(&finished.weights);
            clusters.energies.clone_from(&finished.energies);
            let mut labels = finished.labels.clone();
            let groups = Groups::new(&labels, clusters.len());
            if clusters.repair(data, &mut labels, &groups, self.params.metric, cx)? == 0 {
                break;
            }
            (self.clusters, self.labels) = (clusters, labels);
            (self.lists, self.slacks, self.finished) = (None, Vec::new(), None);
        }
        if self.part(data, cx)? {
            (self.lists, self.slacks, self.finished) = (None, Vec::new(), None);
        }
        Ok(())
    }

    /// Moves every center that equals another one to a row that equals none. Returns whether there was such a
    /// center.
    fn part(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<bool> {
        let dim = self.clusters.dim;
        let old = self.clusters.clone();
        let center = |j: u32| old.centers().row(j as usize);
        let mut order: Vec<u32> = (0..old.len() as u32).collect();
        order.sort_by(|&a, &b| compare(center(a), center(b)).then(a.cmp(&b)));
        let same = order.windows(2).filter(|two| compare(center(two[0]), center(two[1])).is_eq());
        let mut same: Vec<u32> = same.map(|two| two[1]).collect();
        same.sort_unstable();
        let (mut same, mut taken) = (same.into_iter().peekable(), HashSet::new());
        let n = self.labels.len() as u64;
        let mut parted = false;
        for first in (0..n).step_by(GROUPED_ROWS) {
            if same.peek().is_none() {
                break;
            }
            cx.check()?;
            let rows: Vec<u64> = (first..n.min(first + GROUPED_ROWS as u64)).collect();
            let values = take(data, &rows)?;
            for (&number, row) in rows.iter().zip(values.chunks_exact(dim)) {
                let weight = data.weights().map_or(1.0, |weights| weights[number as usize]);
                let known = order.binary_search_by(|&j| compare(center(j), row)).is_ok();
                let key = || row.iter().map(|x| (x.to_f64() + 0.0).to_bits()).collect::<Vec<u64>>();
                if weight <= 0.0 || known || same.peek().is_none() || !taken.insert(key()) {
                    continue;
                }
                if let Some(j) = same.next() {
                    self.clusters.centers[j as usize * dim..][..dim].copy_from_slice(row);
                    parted = true;
                }
            }
        }
        Ok(parted)
    }

    /// The exact labels of the current centers.
    pub(super) fn exact(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<ExactLabels> {
        let centers = &self.clusters.centers;
        let mut labels = self.labels.clone();
        let mut certified = 0.0;
        let open: Vec<u64> = match &self.lists {
            Some(lists) if self.grown => {
                let all = packed(data, centers);
                let mut open = Vec::new();
                self.compare(lists, false, &all, data, cx, |row, label, slack| {
                    labels[row as usize] = label;
                    let slack = if slack.is_nan() { self.slacks[row as usize] } else { slack };
                    if f64::from(slack) < lists.far {
                        open.push(u64::from(row));
                    }
                })?;
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
        let energies = errors(centers, Some(LabelsRef::from(&labels[..])), Metric::Euclidean, data, cx)?;
        let mut weights = vec![0.0; self.clusters.len()];
        for (row, &j) in labels.iter().enumerate() {
            weights[j as usize] += data.weights().map_or(1.0, |weights| weights[row]);
        }
        Ok(ExactLabels { labels, weights, energies, certified })
    }
}

/// The order of two centers or rows, value by value.
fn compare<T: Compute>(a: &[T], b: &[T]) -> Ordering {
    a.partial_cmp(b).unwrap_or(Ordering::Equal)
}
