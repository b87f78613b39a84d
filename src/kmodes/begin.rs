//! The start of a Laplacian K-modes fit: neighbor graph, kernel width, Laplacian weight and first modes.

use crate::kernel::Compute;
use std::sync::Arc;
use std::time::Instant;

use super::affinity::Affinity;
use super::modes::{Gauss, densest, first_labels, nearness};
use super::params::ModeUpdate;
use super::parts::{GRAPH_RECALL, joined_graph};
use super::shares::Shares;
use super::solver::KModesSolver;
use super::width::{mean_sq_dist, refuse_overflow, sound_variance, weight_for};
use crate::centers::nearest;
use crate::data::{DataSource, count_rows, normalize_rows, take};
use crate::error::Result;
use crate::fit::Metric;
use crate::graph::{About, knn_graph};
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::seeding::Seeding;

/// An affinity, the number of neighbors of its graph, and how the graph was computed.
type Built = (Affinity, usize, About);

impl<T: Compute> KModesSolver<T> {
    /// Builds the graph, if none was given, and chooses the kernel's width.
    pub(super) fn prepare(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        if self.variance > 0.0 {
            return Ok(());
        }
        let begun = Instant::now();
        let (made, variance) = self.prepared(data, cx)?;
        if let Some((affinity, n_neighbors, About { method, recall, .. })) = made {
            self.affinity = Some(Arc::new(affinity));
            self.n_neighbors = n_neighbors;
            self.about = method.name().into();
            self.recall = recall;
        }
        self.variance = variance;
        self.timings[0] += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Starts from labels that took `seconds` to find. Each iteration then continues from the previous
    /// responsibilities.
    pub(super) fn begin_with(&mut self, labels: Vec<Option<u32>>, (name, seconds): (&str, f64)) {
        self.first = labels;
        self.warm_start = true;
        // An interrupted first step may have started from seeds.
        self.begun = false;
        self.seeded_by = name.into();
        self.timings[1] += seconds;
    }

    /// The graph, the kernel's width and the first modes.
    pub(super) fn begin(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let (k, n, d) = (self.params.n_clusters, count_rows(data)?, data.dim());
        self.prepare(data, cx)?;
        let begun = Instant::now();
        let gauss = self.gauss();
        let mut near = Vec::new();
        make_room(&mut near, "kernel values", n, k)?;
        near.resize(n as usize * k, T::ZERO);
        let kept = self.params.kept(n, size_of::<T>());
        let spare = [Shares::new(k, kept), Shares::new(k, kept)];
        let degree = self.affinity.as_ref().map_or(0.0, |affinity| affinity.sums().1 / n as f64);
        let lambda = self.params.laplacian_weight.unwrap_or_else(|| weight_for(k, degree, self.warm_start));
        let mut z = Shares::new(k, kept);
        let (modes, mode_rows, labels, seeded_by) = if self.warm_start {
            let (modes, rows, labels) = self.modes_of_labels(data, cx)?;
            z = Shares::of_labels(k, kept, &labels)?;
            let by_product = self.params.mode_update == ModeUpdate::ByProduct;
            (modes, if by_product { rows } else { Vec::new() }, labels, self.seeded_by.clone())
        } else {
            let mut seeds = self.params.seeding.choose(data, k, self.params.rng_seed, 0, cx)?;
            let given = matches!(self.params.seeding, Seeding::Given(_));
            if self.params.scales() && given {
                normalize_rows(&mut seeds.centers, d);
            }
            let labels = first_labels(data, &mut seeds.centers, given, cx)?;
            if self.params.mode_update == ModeUpdate::ByProduct {
                let rows = densest(data, &each(&labels), k, gauss, cx)?;
                (take(data, &rows)?, rows, labels, seeds.method)
            } else {
                (seeds.centers, Vec::new(), labels, seeds.method)
            }
        };
        nearness(data, &modes, gauss, &mut near, cx)?;
        // Nothing below can fail: an interrupted start keeps only the graph.
        (self.dim, self.near, self.lambda) = (d, near, lambda);
        (self.z, self.spare) = (z, spare);
        (self.modes, self.mode_rows, self.labels) = (modes, mode_rows, labels);
        self.seeded_by = seeded_by;
        self.timings[1] += begun.elapsed().as_secs_f64();
        self.begun = true;
        Ok(())
    }

    /// Modes for given labels: the densest row per cluster. Rows without a label get that of the nearest
    /// mode. If modes coincide, some are replaced, and all rows are labeled by the nearest mode.
    fn modes_of_labels(
        &self,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<(Vec<T>, Vec<u64>, Vec<u32>)> {
        let (k, d) = (self.params.n_clusters, data.dim());
        let found = |labels: &[Option<u32>]| -> Result<(Vec<T>, Vec<u64>)> {
            let rows = densest(data, labels, k, self.gauss(), cx)?;
            Ok((take(data, &rows)?, rows))
        };
        let (mut modes, mut rows) = found(&self.first)?;
        let all: Vec<&[T]> = modes.chunks_exact(d).collect();
        let labels: Vec<u32> = if (1..k).any(|l| all[..l].contains(&all[l])) {
            let labels = first_labels(data, &mut modes, false, cx)?;
            (modes, rows) = found(&each(&labels))?;
            labels
        } else if self.first.contains(&None) {
            let (nearest, _) = nearest(&modes, 1, Metric::Euclidean, data, cx)?;
            self.first.iter().zip(nearest).map(|(first, near)| first.unwrap_or(near)).collect()
        } else {
            self.first.iter().flatten().copied().collect()
        };
        Ok((modes, rows, labels))
    }

    /// The affinity, with its number of neighbors, if none was given, and the kernel's variance.
    fn prepared(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<(Option<Built>, f64)> {
        let Self { params, .. } = self;
        let given = params.bandwidth.map(|bandwidth| bandwidth * bandwidth);
        let sure = |mean| sound_variance::<T>(mean, params.scales());
        let (made, variance) = if let Some(affinity) = &self.affinity {
            (None, given.map_or_else(|| sure(mean_sq_dist(data, affinity, cx)?), Ok)?)
        } else {
            let (k, method) = (params.n_clusters, params.graph_method);
            let graph = match params.n_neighbors {
                Some(m) => knn_graph(data, m, method, GRAPH_RECALL, cx)?,
                None => joined_graph(data, k, method, cx)?,
            };
            let sq_dists = graph.sq_dists();
            let mean = || sure(sq_dists.iter().sum::<f64>() / sq_dists.len() as f64);
            let variance = given.map_or_else(mean, Ok)?;
            let gauss = Gauss::new(variance);
            let weight = |sq_dist| gauss.of(sq_dist);
            let affinity = Affinity::of_graph(&graph, params.gaussian.then_some(&weight));
            (Some((affinity, graph.n_neighbors(), graph.about())), variance)
        };
        let affinity = made.as_ref().map(|(affinity, ..)| affinity).or(self.affinity.as_deref());
        let sums = affinity.map_or((0.0, 0.0), Affinity::sums);
        let degree = sums.1 / count_rows(data)?.max(1) as f64;
        let weight = params.laplacian_weight.unwrap_or_else(|| {
            weight_for(params.n_clusters, degree, false).max(weight_for(params.n_clusters, degree, true))
        });
        refuse_overflow::<T>(params.shift, weight, sums)?;
        Ok((made, variance))
    }
}

fn each(labels: &[u32]) -> Vec<Option<u32>> {
    labels.iter().copied().map(Some).collect()
}
