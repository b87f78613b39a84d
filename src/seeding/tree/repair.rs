//! Clusters without weight take a row of the cluster with the largest squared error.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::clusters::Clusters;
use crate::data::DataSource;
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::pass::{Copies, Groups};
use crate::tuning::GROUPED_ROWS;

/// A cluster, ordered by its squared error; of equal ones, the lowest index comes first.
#[derive(PartialEq)]
struct ClusterToSplit(f64, usize);

impl Eq for ClusterToSplit {}

impl PartialOrd for ClusterToSplit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ClusterToSplit {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(other.1.cmp(&self.1))
    }
}

impl<T: Compute> Clusters<T> {
    /// Moves every cluster without weight to the farthest row of the cluster with the largest squared error, as long as
    /// any has one. `groups` are those of `labels`, which change. Returns the number of clusters moved.
    pub(crate) fn repair(
        &mut self,
        data: &dyn DataSource<T>,
        labels: &mut [u32],
        groups: &Groups,
        metric: Metric,
        cx: &Executor,
    ) -> Result<usize> {
        let empty: Vec<usize> = (0..self.len()).filter(|&j| self.weights[j] <= 0.0).collect();
        if empty.is_empty() {
            return Ok(0);
        }
        let sized = self.energies.iter().zip(&self.weights).enumerate();
        let sized = sized.filter(|(_, (energy, weight))| **energy > 0.0 && **weight > 0.0);
        let mut splits: BinaryHeap<ClusterToSplit> =
            sized.map(|(j, (&energy, _))| ClusterToSplit(energy, j)).collect();
        let (mut copies, mut moved) = (Copies::default(), 0);
        let mut empty = empty.into_iter().peekable();
        while let Some(&to) = empty.peek() {
            cx.check()?;
            let Some(ClusterToSplit(_, from)) = splits.pop() else { break };
            let mut rows: Vec<u32> =
                groups.of(from).iter().copied().filter(|&row| labels[row as usize] == from as u32).collect();
            // Without a row away from its center, the next cluster is split.
            let Some((row, weight)) = self.farthest(data, from, &rows, &mut copies)? else { continue };
            empty.next();
            labels[row as usize] = to as u32;
            rows.retain(|&other| other != row);
            let center = crate::data::take(data, &[u64::from(row)])?;
            self.centers[to * self.dim..][..self.dim].copy_from_slice(&center);
            (self.weights[to], self.energies[to]) = (weight, 0.0);
            self.settle_one(from, data, &rows, metric)?;
            if self.energies[from] > 0.0 {
                splits.push(ClusterToSplit(self.energies[from], from));
            }
            moved += 1;
        }
        Ok(moved)
    }

    /// The row with weight that is farthest from center `j`, and its weight; the first of equal ones. `None` if all are
    /// at the center.
    fn farthest(
        &self,
        data: &dyn DataSource<T>,
        j: usize,
        rows: &[u32],
        copies: &mut Copies<T>,
    ) -> Result<Option<(u32, f64)>> {
        let (mut best, mut most) = (None, 0.0);
        for part in rows.chunks(GROUPED_ROWS) {
            copies.read(data, part)?;
            copies.for_each_sq_dist(self.centers().row(j), |i, sq_dist| {
                if sq_dist > most && copies.weight(i) > 0.0 {
                    (best, most) = (Some((part[i], copies.weight(i))), sq_dist);
                }
            });
        }
        Ok(best)
    }
}
