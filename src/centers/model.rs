//! The model of a center-based fit, and how it labels new rows.

use super::Snapshot;
use super::assign::{inertia, nearest, predict, transform};
use crate::data::{AnySource, DataSource, Source};
use crate::error::{Error, Result};
use crate::fit::{Metric, Timings};
use crate::kernel::Compute;
use crate::parallel::Executor;
pub(crate) use crate::persist::kept::Values;

/// A fitted k-means model: immutable, and shared freely between threads.
///
/// See [`KMeans`](crate::KMeans) for an example.
#[derive(Clone, Debug)]
pub struct KMeansModel {
    pub(crate) centers: Values,
    pub(crate) dim: usize,
    pub(crate) metric: Metric,
    pub(crate) weights: Vec<f64>,
    pub(crate) labels: Vec<u32>,
    pub(crate) inertia: f64,
    pub(crate) n_iter: u64,
    pub(crate) seeded_by: String,
    pub(crate) algorithm: String,
    pub(crate) timings: Timings,
}

impl KMeansModel {
    pub(crate) fn new<T: Compute>(solver: &Snapshot<'_, T>) -> Self {
        Self {
            centers: Values::of(solver.centers),
            dim: solver.dim,
            metric: solver.metric,
            weights: solver.weights.to_vec(),
            labels: solver.labels.to_vec(),
            inertia: solver.inertia,
            n_iter: solver.n_iter,
            seeded_by: solver.seeded_by.to_string(),
            algorithm: solver.algorithm.to_string(),
            timings: solver.timings,
        }
    }

    /// Number of clusters.
    pub fn n_clusters(&self) -> usize {
        self.centers.len() / self.dim.max(1)
    }

    /// Columns of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// What "near" means to this model.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The centers, `n_clusters` rows of `dim` values, in the type asked for (exact in the type that they were computed in).
    pub fn centers<T: Compute>(&self) -> Vec<T> {
        self.centers.get()
    }

    /// Weight of the rows of each cluster.
    pub fn cluster_weights(&self) -> &[f64] {
        &self.weights
    }

    /// The labels of the rows that the model was fitted to; empty in a model that was loaded.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Weighted sum of squared distances of the rows that the model was fitted to.
    pub fn inertia(&self) -> f64 {
        self.inertia
    }

    /// Sweeps that the winning start made.
    pub fn n_iter(&self) -> u64 {
        self.n_iter
    }

    /// How its sweeps found the nearest centers.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// How the first centers were chosen.
    pub fn seeded_by(&self) -> &str {
        &self.seeded_by
    }

    /// Seconds spent by all starts.
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// The centers, once `data` is known to have as many columns.
    fn centers_for<T: Compute>(&self, data: &dyn DataSource<T>) -> Result<Vec<T>> {
        if data.dim() == self.dim {
            return Ok(self.centers.get());
        }
        Err(Error::Shape(format!("X has {} columns, but the model was fitted to {}", data.dim(), self.dim)))
    }

    /// The label of every row, on all threads.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another length, [`Error::NotFinite`], [`Error::Memory`] when the result is larger than memory, those of
    /// the source.
    pub fn predict<S: Source>(&self, rows: S) -> Result<Vec<u32>> {
        let cx = Executor::new(None)?;
        match rows.any() {
            AnySource::F32(data) => predict(&self.centers_for(data)?, self.metric, data, &cx),
            AnySource::F64(data) => predict(&self.centers_for(data)?, self.metric, data, &cx),
        }
    }

    /// Euclidean distances of every row to every center, a row of `n_clusters` values for each.
    ///
    /// ```
    /// let rows = [[0.0f64], [4.0]];
    /// let mut distances = shoal::KMeans::params(2).fit(&rows).unwrap().distances(&rows).unwrap();
    /// distances.sort_by(f64::total_cmp);
    /// assert_eq!(distances, [0.0, 0.0, 4.0, 4.0]);
    /// ```
    ///
    /// # Errors
    /// As [`KMeansModel::predict`].
    pub fn distances<S: Source>(&self, rows: S) -> Result<Vec<f64>> {
        fn all<T: Compute>(model: &KMeansModel, data: &dyn DataSource<T>) -> Result<Vec<f64>> {
            transform(&model.centers_for(data)?, model.metric, data, &Executor::new(None)?)
        }
        match rows.any() {
            AnySource::F32(data) => all(self, data),
            AnySource::F64(data) => all(self, data),
        }
    }

    /// The `m` nearest centers of every row, nearest first, and their squared distances: `m` of each a row.
    ///
    /// ```
    /// let rows = [[0.0f64], [4.0]];
    /// let (labels, sq_dists) = shoal::KMeans::params(2).fit(&rows).unwrap().nearest(&rows, 2).unwrap();
    /// assert_eq!((labels[0], labels[3], sq_dists), (labels[3], labels[0], vec![0.0, 16.0, 0.0, 16.0]));
    /// ```
    ///
    /// # Errors
    /// As [`KMeansModel::predict`]; [`Error::InvalidParam`] for an `m` that is not in `1..=n_clusters`.
    pub fn nearest<S: Source>(&self, rows: S, m: usize) -> Result<(Vec<u32>, Vec<f64>)> {
        let cx = Executor::new(None)?;
        match rows.any() {
            AnySource::F32(data) => nearest(&self.centers_for(data)?, m, self.metric, data, &cx),
            AnySource::F64(data) => nearest(&self.centers_for(data)?, m, self.metric, data, &cx),
        }
    }

    /// Weighted sum of squared distances of `rows` to their nearest centers.
    ///
    /// # Errors
    /// As [`KMeansModel::predict`].
    pub fn inertia_of<S: Source>(&self, rows: S) -> Result<f64> {
        let cx = Executor::new(None)?;
        match rows.any() {
            AnySource::F32(data) => inertia(&self.centers_for(data)?, None, self.metric, data, &cx),
            AnySource::F64(data) => inertia(&self.centers_for(data)?, None, self.metric, data, &cx),
        }
    }
}
