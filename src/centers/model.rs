//! The fitted model of a center-based method, and how it labels new rows.

use super::Snapshot;
use super::approximate::{Search, nearest_approximately};
use super::assign::{inertia, nearest, predict, transform};
use crate::data::{DataSource, Source};
use crate::error::{Error, Result};
use crate::fit::{Metric, Timings};
use crate::float::either;
use crate::kernel::Compute;
use crate::parallel::Executor;
pub(crate) use crate::persist::kept::Values;

/// A fitted k-means model. It is immutable and can be shared between threads.
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
    pub(crate) threads: Option<usize>,
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
            threads: None,
        }
    }

    /// Number of clusters.
    pub fn n_clusters(&self) -> usize {
        self.centers.len() / self.dim.max(1)
    }

    /// Number of columns of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The metric that the model was fitted with.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The centers as `n_clusters` rows of `dim` values, converted to `T`. The conversion is exact if the fit
    /// computed in `T`.
    #[doc(alias = "cluster_centers_")]
    pub fn centers<T: Compute>(&self) -> Vec<T> {
        self.centers.get()
    }

    /// Total weight of the rows per cluster.
    #[doc(alias = "counts_")]
    pub fn cluster_weights(&self) -> &[f64] {
        &self.weights
    }

    /// The labels of the training rows. Empty for a loaded model.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Weighted sum of squared distances of the training rows to their centers.
    pub fn inertia(&self) -> f64 {
        self.inertia
    }

    /// Number of sweeps of the best start.
    pub fn n_iter(&self) -> u64 {
        self.n_iter
    }

    /// The algorithm that found the nearest centers.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// The seeding that chose the first centers.
    pub fn seeded_by(&self) -> &str {
        &self.seeded_by
    }

    /// Seconds spent in each phase, summed over all starts.
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// The same model, which uses that many threads to predict. `None`, the default: as many as
    /// [`Executor::new`] takes. The results do not depend on it.
    ///
    /// ```
    /// let rows = [[0.0f64], [4.0]];
    /// let model = shoal::KMeans::params(2).fit(&rows)?.with_threads(Some(1));
    /// assert_eq!(model.predict(&rows)?, model.labels());
    /// # Ok::<(), shoal::Error>(())
    /// ```
    #[must_use]
    pub fn with_threads(self, threads: Option<usize>) -> Self {
        Self { threads, ..self }
    }

    /// The centers, after checking that `data` has the same number of columns.
    fn centers_for<T: Compute>(&self, data: &dyn DataSource<T>) -> Result<Vec<T>> {
        if data.dim() == self.dim {
            return Ok(self.centers.get());
        }
        Err(Error::Shape(format!(
            "`rows` have {} columns, but the model was fitted to {}",
            data.dim(),
            self.dim
        )))
    }

    /// Labels every row.
    ///
    /// # Errors
    /// [`Error::Shape`] if rows have a different number of columns. [`Error::NotFinite`] for NaN or infinite
    /// values. [`Error::Memory`] if the result does not fit into memory. Errors of the source.
    pub fn predict<S: Source>(&self, rows: S) -> Result<Vec<u32>> {
        let cx = Executor::of_call(self.threads)?;
        either!(rows.any(), data => predict(&self.centers_for(data)?, self.metric, data, &cx))
    }

    /// Euclidean distances of every row to every center, `n_clusters` values per row.
    ///
    /// ```
    /// let rows = [[0.0f64], [4.0]];
    /// let mut distances = shoal::KMeans::params(2).fit(&rows).unwrap().transform(&rows).unwrap();
    /// distances.sort_by(f64::total_cmp);
    /// assert_eq!(distances, [0.0, 0.0, 4.0, 4.0]);
    /// ```
    ///
    /// # Errors
    /// Same as [`KMeansModel::predict`].
    pub fn transform<S: Source>(&self, rows: S) -> Result<Vec<f64>> {
        fn all<T: Compute>(model: &KMeansModel, data: &dyn DataSource<T>) -> Result<Vec<f64>> {
            transform(&model.centers_for(data)?, model.metric, data, &Executor::of_call(model.threads)?)
        }
        either!(rows.any(), data => all(self, data))
    }

    /// The `m` nearest centers of every row, nearest first, and their squared distances, `m` of each per row.
    ///
    /// Every call packs the centers again. For many small queries, pack them once and use
    /// [`kernel::nearest_m`](crate::kernel::nearest_m), as the Rust guide shows.
    ///
    /// ```
    /// let rows = [[0.0f64], [4.0]];
    /// let (labels, sq_dists) = shoal::KMeans::params(2).fit(&rows).unwrap().nearest(&rows, 2).unwrap();
    /// assert_eq!((labels[0], labels[3], sq_dists), (labels[3], labels[0], vec![0.0, 16.0, 0.0, 16.0]));
    /// ```
    ///
    /// # Errors
    /// Same as [`KMeansModel::predict`], and [`Error::InvalidParam`] if `m` is not in `1..=n_clusters`.
    pub fn nearest<S: Source>(&self, rows: S, m: usize) -> Result<(Vec<u32>, Vec<f64>)> {
        let cx = Executor::of_call(self.threads)?;
        either!(rows.any(), data => nearest(&self.centers_for(data)?, m, self.metric, data, &cx))
    }

    /// Like [`KMeansModel::nearest`], for thousands of centers: finds only about the share `recall` of the nearest
    /// centers, in a fraction of the time. [`Search::recall`] is the share that was found, measured on a sample of
    /// the rows. All searches of few centers are exact.
    ///
    /// See [`Search`] for an example.
    ///
    /// # Errors
    /// Same as [`KMeansModel::nearest`], [`Error::InvalidParam`] if `recall` is not above 0 and at most 1, and
    /// [`Error::Source`] for a source without [`Access::Random`](crate::data::Access::Random).
    pub fn nearest_approximately<S: Source>(
        &self,
        rows: S,
        m: usize,
        recall: f64,
    ) -> Result<(Vec<u32>, Vec<f64>, Search)> {
        let cx = Executor::of_call(self.threads)?;
        either!(rows.any(), data => {
            nearest_approximately(&self.centers_for(data)?, m, recall, self.metric, data, &cx)
        })
    }

    /// Weighted sum of squared distances of `rows` to their nearest centers.
    ///
    /// # Errors
    /// Same as [`KMeansModel::predict`].
    #[doc(alias = "score")]
    pub fn inertia_of<S: Source>(&self, rows: S) -> Result<f64> {
        let cx = Executor::of_call(self.threads)?;
        either!(rows.any(), data => inertia(&self.centers_for(data)?, None, self.metric, data, &cx))
    }
}
