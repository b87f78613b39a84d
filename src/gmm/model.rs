//! The fitted mixture, and how it scores new rows.

use super::covariance::Covariance;
use super::matrices::is_positive_definite;
use super::mixture::Mixture;
use super::neighborhoods::Neighborhoods;
use super::scores::Scores;
use crate::data::{AnySource, DataSource, Normalized, Source};
use crate::error::{Error, Result};
use crate::fit::{Metric, Timings};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::kept::Values;

/// A fitted Gaussian mixture. It is immutable and can be shared between threads.
///
/// See [`TruncatedGaussianMixture`](super::TruncatedGaussianMixture) for an example.
#[derive(Clone, Debug)]
pub struct GaussianMixture {
    pub(super) means: Values,
    pub(super) dim: usize,
    pub(super) covariance: Covariance,
    pub(super) metric: Metric,
    pub(super) variances: Vec<f64>,
    pub(super) loadings: Vec<f64>,
    pub(super) weights: Vec<f64>,
    /// Number of components that share a row.
    pub(super) active: usize,
    pub(super) neighbors: Neighborhoods,
    /// The weight of the rows per component.
    pub(super) counts: Vec<f64>,
    /// The bound after each iteration.
    pub(super) bounds: Vec<f64>,
    pub(super) converged: bool,
    pub(super) inertia: f64,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
    pub(super) threads: Option<usize>,
}

/// The parameters of a fitted mixture.
pub(crate) struct KnownComponents {
    pub(crate) means: Values,
    pub(crate) dim: usize,
    pub(crate) covariance: Covariance,
    pub(crate) variances: Vec<f64>,
    pub(crate) weights: Vec<f64>,
    pub(crate) loadings: Vec<f64>,
    pub(crate) active: usize,
    /// The neighbors of all components, and the number of neighbors of one.
    pub(crate) neighbors: Option<(Vec<u32>, usize)>,
}

impl GaussianMixture {
    /// Creates a model from known parameters. The error names what does not match.
    pub(crate) fn of_known(components: KnownComponents) -> Result<Self> {
        let KnownComponents { means, dim, covariance, variances, weights, loadings, active, neighbors } =
            components;
        let k = weights.len();
        let wrong =
            |what: &str| Err(Error::Shape(format!("{what} do not match {k} components of {dim} columns")));
        if k == 0 || dim == 0 || means.len() != k * dim {
            return wrong("means");
        }
        if variances.len() != covariance.variances(k, dim)
            || !if covariance.is_whole() {
                variances.chunks(dim * dim).all(|matrix| is_positive_definite(matrix, dim))
            } else {
                variances.iter().all(|s2| s2.is_finite() && *s2 > 0.0)
            }
        {
            return wrong("variances");
        }
        let (n_factors, rest) = (loadings.len() / means.len(), loadings.len() % means.len());
        let expected = if covariance == Covariance::Factor { 1..dim.max(1) } else { 0..1 };
        if rest != 0 || !expected.contains(&n_factors) || !loadings.iter().all(|x| x.is_finite()) {
            return wrong("loadings");
        }
        if !weights.iter().all(|w| w.is_finite() && *w >= 0.0) || weights.iter().all(|w| *w == 0.0) {
            return wrong("weights");
        }
        let neighbors = match neighbors {
            None => Some(Neighborhoods::default()),
            Some((ids, size)) => Neighborhoods::of(ids, k, size),
        };
        let Some(neighbors) = neighbors else { return wrong("neighbors") };
        Ok(Self {
            means,
            dim,
            covariance,
            metric: Metric::Euclidean,
            variances,
            loadings,
            weights,
            active: active.clamp(1, k),
            neighbors,
            counts: Vec::new(),
            bounds: Vec::new(),
            converged: false,
            inertia: f64::NAN,
            seeded_by: String::new(),
            timings: Timings::default(),
            threads: None,
        })
    }

    /// Number of components.
    pub fn n_components(&self) -> usize {
        self.weights.len()
    }

    /// Number of columns of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The shape of the components.
    pub fn covariance(&self) -> Covariance {
        self.covariance
    }

    /// Number of components that share a row.
    pub(crate) fn n_active(&self) -> usize {
        self.active
    }

    /// The means as `n_components` rows of `dim` values, converted to `T`. The conversion is exact if the fit
    /// computed in `T`.
    pub fn means<T: Compute>(&self) -> Vec<T> {
        self.means.get()
    }

    /// The means as an array of `n_components` rows.
    ///
    /// ```
    /// use shoal::{gmm::TruncatedGaussianMixture, ndarray::Array2};
    /// let rows = Array2::from_shape_fn((90, 1), |(i, _)| (i * i % 89) as f64);
    /// let model = TruncatedGaussianMixture::params(9).fit(&rows)?;
    /// assert_eq!(model.means_array::<f64>().dim(), (9, 1));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn means_array<T: Compute>(&self) -> ndarray::Array2<T> {
        crate::matrix::array_of_rows(self.means(), self.dim)
    }

    /// The variances: one, one per component, or `dim` per component, depending on the [shape](Covariance); or
    /// covariances in `dim` rows of `dim` values, once or per component. With
    /// factors: what these leave of the variance of each column.
    pub fn variances(&self) -> &[f64] {
        &self.variances
    }

    /// The loadings of [`Covariance::Factor`], empty for other shapes: [`n_factors`](Self::n_factors) rows of `dim`
    /// values per component. The covariance of a component with loadings `L`, one factor per row, and variances `D` is
    /// `L' L + diag(D)`.
    ///
    /// See [`MixtureParams::n_factors`](super::MixtureParams::n_factors) for an example.
    pub fn loadings(&self) -> &[f64] {
        &self.loadings
    }

    /// Number of factors per component; 0 for shapes without factors.
    ///
    /// ```
    /// let model = shoal::TruncatedGaussianMixture::params(1).fit(&[[0.0f64], [2.0]])?;
    /// assert_eq!(model.n_factors(), 0);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn n_factors(&self) -> usize {
        self.loadings.len() / self.means.len().max(1)
    }

    /// The size of a neighborhood, and the neighbors per component, itself first.
    pub(crate) fn neighbors(&self) -> (usize, &[u32]) {
        (self.neighbors.size(), self.neighbors.ids())
    }

    /// The weight (prior) per component. 0 for a component that lost all rows.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The lower bound of the mean log-likelihood of the training rows, at the last search.
    pub fn lower_bound(&self) -> f64 {
        self.bounds.last().copied().unwrap_or(f64::NAN)
    }

    /// The lower bound of the mean log-likelihood of the training rows, after each iteration.
    ///
    /// ```
    /// use shoal::gmm::TruncatedGaussianMixture;
    /// let rows: Vec<[f64; 1]> = (0..90).map(|i| [f64::from(i * i % 89)]).collect();
    /// let model = TruncatedGaussianMixture::params(9).fit(&rows)?;
    /// assert!(model.lower_bounds().is_sorted());
    /// assert_eq!(model.lower_bounds().last(), Some(&model.lower_bound()));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn lower_bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Total weight of the training rows per component. A row counts for every component that shares it, by its share.
    ///
    /// ```
    /// let rows = [[0.0f64], [2.0]];
    /// let model = shoal::TruncatedGaussianMixture::params(1).fit(&rows)?;
    /// assert_eq!(model.cluster_weights(), [2.0]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn cluster_weights(&self) -> &[f64] {
        &self.counts
    }

    /// Weighted sum of squared distances of the training rows to the means of their components. NaN unless
    /// [`Run::finish`](crate::fit::Run::finish) computed it: a fit does not need it.
    ///
    /// ```
    /// let rows = [[0.0f64], [2.0]];
    /// let mut run = shoal::TruncatedGaussianMixture::params(1).start(&rows)?;
    /// while run.advance(&rows)?.is_some() {}
    /// run.finish(&rows)?;
    /// assert_eq!(run.model().inertia(), 2.0);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn inertia(&self) -> f64 {
        self.inertia
    }

    /// The seeding that chose the first means.
    ///
    /// ```
    /// let model = shoal::TruncatedGaussianMixture::params(1).fit(&[[0.0f64], [2.0]])?;
    /// assert_eq!(model.seeded_by(), "afk-mc2");
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn seeded_by(&self) -> &str {
        &self.seeded_by
    }

    /// Seconds spent in each phase, summed over all starts.
    ///
    /// ```
    /// let model = shoal::TruncatedGaussianMixture::params(1).fit(&[[0.0f64], [2.0]])?;
    /// assert!(model.timings().sweeps >= 0.0);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// The same model, which uses that many threads to predict. `None`, the default: as many as
    /// [`Executor::new`] takes. The results do not depend on it.
    ///
    /// ```
    /// let rows = [[0.0f64], [1.0], [9.0], [8.0]];
    /// let model = shoal::TruncatedGaussianMixture::params(2).fit(&rows)?;
    /// assert_eq!(model.predict(&rows)?, model.clone().with_threads(Some(1)).predict(&rows)?);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    #[must_use]
    pub fn with_threads(self, threads: Option<usize>) -> Self {
        Self { threads, ..self }
    }

    /// Number of iterations of the best start.
    pub fn n_iter(&self) -> u64 {
        self.bounds.len() as u64
    }

    /// Whether the stop rule ended the fit. With several starts: the best one.
    ///
    /// ```
    /// use shoal::gmm::TruncatedGaussianMixture;
    /// let rows: Vec<[f64; 1]> = (0..90).map(|i| [f64::from(i * i % 89)]).collect();
    /// let params = TruncatedGaussianMixture::params(9);
    /// assert!(params.fit(&rows).unwrap().converged());
    /// assert!(!params.max_iter(1).fit(&rows).unwrap().converged());
    /// ```
    pub fn converged(&self) -> bool {
        self.converged
    }

    /// The parameters in the type of the rows.
    fn mixture<T: Compute>(&self) -> Mixture<T> {
        Mixture {
            dim: self.dim,
            means: self.means.get(),
            variances: self.variances.clone(),
            weights: self.weights.clone(),
            shape: self.covariance,
            floors: Vec::new(),
            reg_covar: 0.0,
            n_factors: self.n_factors(),
            loadings: self.loadings.clone(),
        }
    }

    /// Calls `f` with scores for rows of `T`.
    pub(crate) fn scoring<T: Compute, R>(&self, f: impl FnOnce(&Scores<'_, T>) -> R) -> R {
        f(&Scores::new(&self.mixture(), Some(&self.neighbors)))
    }

    /// The component with the largest density for every row.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if rows have a different number of columns.
    /// [`Error::NotFinite`](crate::Error::NotFinite) for NaN or infinite values.
    /// [`Error::Memory`](crate::Error::Memory) if the result does not fit into memory. Errors of the source.
    pub fn predict<S: Source>(&self, rows: S) -> Result<Vec<u32>> {
        let cx = Executor::of_call(self.threads)?;
        self.either(rows, |s, data| s.predict(false, data, &cx), |s, data| s.predict(false, data, &cx))
    }

    /// The components that share every row, and their shares, largest first. There are
    /// [`n_active`](super::MixtureParams::n_active) of them per row, and the shares of a row add up to 1.
    ///
    /// ```
    /// use shoal::gmm::TruncatedGaussianMixture;
    /// let rows = [[0.0f64], [1.0], [9.0], [8.0]];
    /// let model = TruncatedGaussianMixture::params(2).fit(&rows).unwrap();
    /// let (components, shares) = model.shares(&rows).unwrap();
    /// assert_eq!(components.len(), 8);
    /// assert!((shares[0] + shares[1] - 1.0).abs() < 1e-12);
    /// ```
    ///
    /// # Errors
    /// Same as [`GaussianMixture::predict`].
    pub fn shares<S: Source>(&self, rows: S) -> Result<(Vec<u32>, Vec<f64>)> {
        let (cx, m) = (Executor::of_call(self.threads)?, self.active);
        self.either(rows, |s, data| s.shares(m, false, data, &cx), |s, data| s.shares(m, false, data, &cx))
    }

    /// The logarithm of the density of every row, over all components.
    ///
    /// ```
    /// use shoal::gmm::TruncatedGaussianMixture;
    /// let rows = [[0.0f64], [2.0]];
    /// let model = TruncatedGaussianMixture::params(1).fit(&rows).unwrap();
    /// let expected = -0.5 * (std::f64::consts::TAU.ln() + 1.0);
    /// assert!((model.log_densities(&rows).unwrap()[0] - expected).abs() < 1e-12);
    /// ```
    ///
    /// # Errors
    /// Same as [`GaussianMixture::predict`].
    pub fn log_densities<S: Source>(&self, rows: S) -> Result<Vec<f64>> {
        let cx = Executor::of_call(self.threads)?;
        self.either(rows, |s, data| s.log_densities(data, &cx), |s, data| s.log_densities(data, &cx))
    }

    /// The weighted mean of the log densities of rows.
    ///
    /// # Errors
    /// Same as [`GaussianMixture::predict`].
    pub fn score<S: Source>(&self, rows: S) -> Result<f64> {
        let cx = Executor::of_call(self.threads)?;
        let (sum, weight) =
            self.either(rows, |s, data| s.log_likelihood(data, &cx), |s, data| s.log_likelihood(data, &cx))?;
        Ok(sum / weight)
    }

    /// Calls the function for the type of the rows.
    fn either<R>(
        &self,
        rows: impl Source,
        narrow: impl FnOnce(&Scores<'_, f32>, &dyn DataSource<f32>) -> Result<R>,
        wide: impl FnOnce(&Scores<'_, f64>, &dyn DataSource<f64>) -> Result<R>,
    ) -> Result<R> {
        match (rows.any(), self.metric) {
            (AnySource::F32(data), Metric::Euclidean) => self.scoring(|scores| narrow(scores, data)),
            (AnySource::F64(data), Metric::Euclidean) => self.scoring(|scores| wide(scores, data)),
            (AnySource::F32(data), Metric::Cosine) => {
                self.scoring(|scores| narrow(scores, &Normalized::new(data)))
            }
            (AnySource::F64(data), Metric::Cosine) => {
                self.scoring(|scores| wide(scores, &Normalized::new(data)))
            }
        }
    }
}
