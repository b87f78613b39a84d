//! The result of a Laplacian K-modes fit, and prediction for new rows.

use crate::kernel::Compute;
use std::sync::Arc;

use super::affinity::Affinity;
use super::laplacian::labels;
use super::outside::{FittedRows, NeighborWeight, responsibilities};
use super::shares::Shares;
use crate::data::{AnySource, DataSource, Normalized, Source};
use crate::error::{Error, Result};
use crate::fit::{Typed, either};
use crate::float::{Float, PerFloat};
use crate::parallel::Executor;

/// A fitted Laplacian K-modes model: modes, labels, and the responsibilities of the rows of the fit.
///
/// See [`KModesParams::fit`](super::KModesParams::fit) for an example.
#[derive(Clone, Debug)]
pub struct KModesModel {
    pub(super) typed: Typed<Fitted<f32>, Fitted<f64>>,
    pub(super) dim: usize,
    pub(super) mode_rows: Vec<u64>,
    pub(super) labels: Vec<u32>,
    /// The energy after each iteration.
    pub(super) energies: Vec<f64>,
    /// The objective of the inner loop of each iteration, after each update.
    pub(super) relaxed: Vec<Vec<f64>>,
    pub(super) n_iter: u64,
    pub(super) normalize: bool,
    pub(super) n_neighbors: usize,
    /// `None` before the first step.
    pub(super) affinity: Option<Arc<Affinity>>,
    pub(super) pull: NeighborWeight,
    pub(super) bandwidth: f64,
    pub(super) lambda: f64,
    /// How the neighbors were found, or [`PRECOMPUTED`].
    pub(super) graph_method: String,
    pub(super) graph_recall: f64,
    pub(super) collapsed: bool,
    pub(super) shifted: bool,
    pub(super) seeded_by: String,
    /// Seconds for the graph, for the first modes, and for iterations.
    pub(super) timings: [f64; 3],
    pub(super) threads: Option<usize>,
}

/// In place of the method that found the neighbors: the caller gave the affinity.
pub(super) const PRECOMPUTED: &str = "precomputed";

/// The parts in the compute type of the rows.
#[derive(Clone, Debug)]
pub(super) struct Fitted<T> {
    pub(super) modes: Vec<T>,
    pub(super) responsibilities: Shares<T>,
}

impl PerFloat for Fitted<()> {
    type Of<T: Float> = Fitted<T>;
}

/// Calls `f` with the rows as the fit sees them: scaled to length 1 if `normalize`.
fn seen<T: Float, R>(
    normalize: bool,
    data: &dyn DataSource<T>,
    f: impl FnOnce(&dyn DataSource<T>) -> R,
) -> R {
    if normalize { f(&Normalized::new(data)) } else { f(data) }
}

impl KModesModel {
    /// Number of clusters.
    pub fn n_clusters(&self) -> usize {
        either!(&self.typed, fitted => fitted.modes.len()) / self.dim.max(1)
    }

    /// Columns of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The modes, one per row, of rows as the fit saw them: of length 1 unless `normalize` was off.
    pub fn modes<T: Compute>(&self) -> Vec<T> {
        either!(&self.typed, fitted => fitted.modes.iter().map(|&x| T::from_f64(Float::to_f64(x))).collect())
    }

    /// The modes as an array, one per row: see [`KModesModel::modes`].
    ///
    /// ```
    /// use shoal::{kmodes::LaplacianKModes, ndarray::Array2};
    /// let rows = Array2::from_shape_fn((40, 2), |(i, j)| ((i + j) % 2) as f64 + i as f64 * 1e-3);
    /// let model = LaplacianKModes::params(2).fit(&rows)?;
    /// assert_eq!(model.modes_array::<f64>().dim(), (2, 2));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn modes_array<T: Compute>(&self) -> ndarray::Array2<T> {
        crate::matrix::array_of_rows(self.modes(), self.dim)
    }

    /// The row numbers of the modes; empty if the modes are means.
    pub fn mode_rows(&self) -> &[u64] {
        &self.mode_rows
    }

    /// The label of every row of the fit.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The energy of the labels; NaN before the first step.
    pub fn energy(&self) -> f64 {
        self.energies.last().copied().unwrap_or(f64::NAN)
    }

    /// The energy of the labels after each iteration.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
    /// let model = LaplacianKModes::params(3).fit(&rows)?;
    /// assert_eq!(model.energies().last(), Some(&model.energy()));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn energies(&self) -> &[f64] {
        &self.energies
    }

    /// The affinity of the rows of the fit; `None` before the first step.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
    /// let model = LaplacianKModes::params(3).fit(&rows)?;
    /// assert_eq!(model.affinity().map(|affinity| affinity.n_rows()), Some(40));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn affinity(&self) -> Option<&Affinity> {
        self.affinity.as_deref()
    }

    /// The width `sigma` of the kernel.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
    /// assert_eq!(LaplacianKModes::params(3).bandwidth(Some(0.5)).fit(&rows)?.bandwidth(), 0.5);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth
    }

    /// The weight `lambda` of the Laplacian term at the end of the fit.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
    /// let params = LaplacianKModes::params(3).laplacian_weight(0.25);
    /// assert_eq!(params.fit(&rows)?.laplacian_weight(), 0.25);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn laplacian_weight(&self) -> f64 {
        self.lambda
    }

    /// Whether rows are scaled to length 1: the parameter, or the choice of the fit.
    ///
    /// See [`KModesParams::normalize`](super::KModesParams::normalize) for an example.
    pub fn normalize(&self) -> bool {
        self.normalize
    }

    /// Neighbors per row of the graph: the parameter, or the choice of the fit.
    ///
    /// See [`KModesParams::n_neighbors`](super::KModesParams::n_neighbors) for an example.
    pub fn n_neighbors(&self) -> usize {
        self.n_neighbors
    }

    /// How the first modes were found.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
    /// assert_eq!(LaplacianKModes::params(3).fit(&rows)?.seeded_by(), "k-means++");
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn seeded_by(&self) -> &str {
        &self.seeded_by
    }

    /// The same model, which uses that many threads to predict. `None`, the default: as many as
    /// [`Executor::new`] takes. The results do not depend on it.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
    /// let model = LaplacianKModes::params(3).fit(&rows)?;
    /// let labels = model.predict(&rows, &rows)?;
    /// assert_eq!(model.with_threads(Some(1)).predict(&rows, &rows)?, labels);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    #[must_use]
    pub fn with_threads(self, threads: Option<usize>) -> Self {
        Self { threads, ..self }
    }

    /// Number of outer iterations.
    pub fn n_iter(&self) -> u64 {
        self.n_iter
    }

    /// Predicts the labels of new rows from the modes and from their neighbors among the rows of the fit,
    /// `fitted`.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 2), f64::from(1 - i % 2) + f64::from(i) * 1e-3]).collect();
    /// let model = LaplacianKModes::params(2).fit(&rows).unwrap();
    /// assert_eq!(model.predict(&[[0.9, 0.1]], &rows).unwrap(), [model.labels()[1]]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Source`] if the rows have another compute type than the fit. [`Error::Shape`] if `fitted` are
    /// not the rows of the fit. Errors of the sources.
    pub fn predict<S: Source, F: Source>(&self, rows: S, fitted: F) -> Result<Vec<u32>> {
        let cx = Executor::of_call(self.threads)?;
        match (&self.typed, rows.any(), fitted.any()) {
            (Typed::F32(found), AnySource::F32(rows), AnySource::F32(fitted)) => {
                self.label(found, rows, fitted, &cx)
            }
            (Typed::F64(found), AnySource::F64(rows), AnySource::F64(fitted)) => {
                self.label(found, rows, fitted, &cx)
            }
            _ => Err(Error::Source("the rows must have the compute type of the model: convert them".into())),
        }
    }

    fn label<T: Compute>(
        &self,
        found: &Fitted<T>,
        rows: &dyn DataSource<T>,
        fitted: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Vec<u32>> {
        for (what, data) in [("`rows`", rows), ("the rows of the fit", fitted)] {
            if data.dim() != self.dim {
                return Err(Error::Shape(format!(
                    "{what} must have {} columns, as in the fit, got {}",
                    self.dim,
                    data.dim()
                )));
            }
        }
        seen(self.normalize, rows, |rows| {
            seen(self.normalize, fitted, |fitted| {
                let known = FittedRows {
                    rows: fitted,
                    modes: &found.modes,
                    responsibilities: &found.responsibilities,
                    n_neighbors: self.n_neighbors,
                    pull: self.pull,
                    bandwidth: self.bandwidth,
                    lambda: self.lambda,
                };
                let z = responsibilities(rows, &known, cx)?;
                Ok(labels(&Shares::whole_of(known.modes.len() / rows.dim(), z)))
            })
        })
    }
}
