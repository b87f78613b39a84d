//! Centers with the weights and squared errors of their rows. A cluster is summed in the order of its rows, by one
//! thread at a time, so nothing of the size of all centers is needed per thread.

use crate::data::DataSource;
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::matrix::{MatRef, make_room};
use crate::parallel::Executor;
use crate::pass::{Copies, Groups, for_each_window};
use crate::stats::{check_mean, project, to_mean};
use crate::tuning::GROUPED_ROWS;

/// Centers, and the weight and squared error of the rows of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clusters<T> {
    pub(crate) dim: usize,
    pub(crate) centers: Vec<T>,
    pub(crate) weights: Vec<f64>,
    pub(crate) energies: Vec<f64>,
}

/// Buffers of a worker.
#[derive(Default)]
struct SettleBuffers<T> {
    copies: Copies<T>,
    sums: Vec<f64>,
}

impl<T: Compute> Clusters<T> {
    /// Clusters with these centers, whose rows are not known yet.
    pub(crate) fn new(dim: usize, centers: Vec<T>) -> Self {
        let k = centers.len() / dim;
        Self { dim, centers, weights: vec![0.0; k], energies: vec![0.0; k] }
    }

    /// Number of clusters.
    pub(crate) fn len(&self) -> usize {
        self.weights.len()
    }

    /// The centers as rows.
    pub(crate) fn centers(&self) -> MatRef<'_, T> {
        MatRef::new(&self.centers, self.dim)
    }

    /// The total squared error.
    pub(crate) fn energy(&self) -> f64 {
        self.energies.iter().sum()
    }

    /// Drops the clusters without rows, renumbers `labels` and `stale`, and groups the rows.
    pub(crate) fn without_empty(&mut self, labels: &mut [u32], stale: &mut Vec<bool>) -> Groups {
        let groups = Groups::new(labels, self.len());
        let kept: Vec<usize> = (0..self.len()).filter(|&j| groups.len(j) > 0).collect();
        if kept.len() == self.len() {
            return groups;
        }
        let mut places = vec![0; self.len()];
        for (place, &j) in kept.iter().enumerate() {
            places[j] = place as u32;
        }
        for label in labels.iter_mut() {
            *label = places[*label as usize];
        }
        let centers = kept.iter().flat_map(|&j| self.centers().row(j).to_vec()).collect();
        let of = |values: &[f64]| kept.iter().map(|&j| values[j]).collect();
        (self.weights, self.energies) = (of(&self.weights), of(&self.energies));
        *stale = kept.iter().map(|&j| stale[j]).collect();
        self.centers = centers;
        Groups::new(labels, self.len())
    }

    /// Adds clusters without rows, at the place of the last center, until there are `k`.
    pub(crate) fn extend_to(&mut self, k: usize) {
        let last = self.centers[self.centers.len() - self.dim..].to_vec();
        while self.len() < k {
            self.centers.extend_from_slice(&last);
            self.weights.push(0.0);
            self.energies.push(0.0);
        }
    }

    /// Moves the centers of all clusters in `stale` to the means of their rows, and sums their weights and squared
    /// errors again. A cluster without weight keeps its center. Of a file larger than memory, up to `memory` bytes of
    /// rows are copied at a time, and the sums of all clusters take `8 k d` bytes.
    pub(crate) fn settle(
        &mut self,
        data: &dyn DataSource<T>,
        groups: &Groups,
        stale: &[bool],
        metric: Metric,
        memory: u64,
        cx: &Executor,
    ) -> Result<()> {
        let dim = self.dim;
        // Two visits per row: one for the mean, one for the squared error.
        let visits = |j: usize| 2 * groups.len(j) as u64;
        let _phase = cx.phase("", (0..self.len()).filter(|&j| stale[j]).map(visits).sum());
        if data.scarce_memory().is_some() {
            return self.settle_in_windows(data, groups, stale, metric, memory, cx);
        }
        let together = together(self.len(), groups);
        let centers = self.centers.chunks_mut(together * dim);
        let sums = self.weights.chunks_mut(together).zip(self.energies.chunks_mut(together));
        let items = centers.zip(sums).enumerate();
        cx.for_each(items, SettleBuffers::default, |(part, (centers, (weights, energies))), desk| {
            let each = centers.chunks_exact_mut(dim).zip(weights.iter_mut().zip(energies));
            for (j, (center, (weight, energy))) in (part * together..).zip(each) {
                if stale[j] {
                    cx.check()?;
                    (*weight, *energy) = settle(center, data, groups.of(j), metric, desk)?;
                    cx.count(visits(j));
                }
            }
            Ok(())
        })
    }

    /// As [`Clusters::settle`], in two passes over a file larger than memory. Rows are added in the same order.
    fn settle_in_windows(
        &mut self,
        data: &dyn DataSource<T>,
        groups: &Groups,
        stale: &[bool],
        metric: Metric,
        memory: u64,
        cx: &Executor,
    ) -> Result<()> {
        let (k, dim) = (self.len(), self.dim);
        let (mut sums, mut weights, mut energies) = (Vec::new(), vec![0.0; k], vec![0.0; k]);
        make_room(&mut sums, "sums of clusters", k as u64, dim)?;
        sums.resize(k * dim, 0.0);
        for_each_window(data, groups, memory, &|j| stale[j], cx, |data, groups| {
            let together = together(k, groups);
            let items = sums.chunks_mut(together * dim).zip(weights.chunks_mut(together)).enumerate();
            cx.for_each(items, Copies::default, |(part, (sums, weights)), copies| {
                let each = sums.chunks_exact_mut(dim).zip(weights);
                for (j, (sums, weight)) in (part * together..).zip(each).filter(|(j, _)| stale[*j]) {
                    cx.check()?;
                    for rows in groups.of(j).chunks(GROUPED_ROWS) {
                        copies.read(data, rows)?;
                        copies.add_to(sums, weight);
                    }
                    cx.count(groups.len(j) as u64);
                }
                Ok(())
            })
        })?;
        let each = self.centers.chunks_exact_mut(dim).zip(sums.chunks_exact(dim)).zip(&weights).zip(stale);
        for (((center, sums), &weight), _) in each.filter(|(_, stale)| **stale) {
            move_to_mean(center, sums, weight, metric)?;
        }
        drop(sums);
        let centers = self.centers();
        for_each_window(data, groups, memory, &|j| stale[j], cx, |data, groups| {
            let together = together(k, groups);
            let items = energies.chunks_mut(together).enumerate();
            cx.for_each(items, Copies::default, |(part, energies), copies| {
                for (j, energy) in (part * together..).zip(energies).filter(|(j, _)| stale[*j]) {
                    cx.check()?;
                    for rows in groups.of(j).chunks(GROUPED_ROWS).filter(|_| weights[j] > 0.0) {
                        copies.read(data, rows)?;
                        copies.add_errors(centers.row(j), energy)?;
                    }
                    cx.count(groups.len(j) as u64);
                }
                Ok(())
            })
        })?;
        for j in (0..k).filter(|&j| stale[j]) {
            (self.weights[j], self.energies[j]) = (weights[j], energies[j]);
        }
        Ok(())
    }

    /// As [`Clusters::settle`], for cluster `j` with the given rows.
    pub(crate) fn settle_one(
        &mut self,
        j: usize,
        data: &dyn DataSource<T>,
        rows: &[u32],
        metric: Metric,
    ) -> Result<()> {
        let center = &mut self.centers[j * self.dim..][..self.dim];
        (self.weights[j], self.energies[j]) =
            settle(center, data, rows, metric, &mut SettleBuffers::default())?;
        Ok(())
    }
}

/// How many of `k` clusters a thread takes at a time.
fn together(k: usize, groups: &Groups) -> usize {
    (GROUPED_ROWS * k / groups.rows().len().max(1)).max(1)
}

/// Moves a center to the mean of `rows`. Returns their weight and squared error.
fn settle<T: Compute>(
    center: &mut [T],
    data: &dyn DataSource<T>,
    rows: &[u32],
    metric: Metric,
    SettleBuffers { copies, sums }: &mut SettleBuffers<T>,
) -> Result<(f64, f64)> {
    sums.clear();
    sums.resize(center.len(), 0.0);
    let (mut weight, mut energy) = (0.0, 0.0);
    for part in rows.chunks(GROUPED_ROWS) {
        copies.read(data, part)?;
        copies.add_to(sums, &mut weight);
    }
    if move_to_mean(center, sums, weight, metric)? {
        for part in rows.chunks(GROUPED_ROWS) {
            if rows.len() > GROUPED_ROWS {
                copies.read(data, part)?;
            }
            copies.add_errors(center, &mut energy)?;
        }
    }
    Ok((weight, energy))
}

/// Moves a center to the mean of rows with these sums, unless they have no weight. Returns whether they have.
fn move_to_mean<T: Compute>(center: &mut [T], sums: &[f64], weight: f64, metric: Metric) -> Result<bool> {
    if weight > 0.0 {
        check_mean::<T>(0, weight, sums.iter().copied())?;
        to_mean(center, metric, (sums, weight), &mut 0.0);
        project(center, center.len(), metric);
    }
    Ok(weight > 0.0)
}
