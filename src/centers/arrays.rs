//! Results of a center-based model as `ndarray` arrays.

use ndarray::{Array1, Array2};

use super::KMeansModel;
use crate::data::Source;
use crate::error::Result;
use crate::kernel::Compute;
use crate::matrix::array_of_rows;

impl KMeansModel {
    /// The centers as an array of `n_clusters` rows, in the requested type: see [`KMeansModel::centers`].
    ///
    /// ```
    /// use shoal::{KMeans, ndarray::array};
    /// let model = KMeans::params(1).fit(&array![[0.0f32, 1.0], [2.0, 3.0]])?;
    /// assert_eq!(model.centers_array::<f32>(), array![[1.0, 2.0]]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn centers_array<T: Compute>(&self) -> Array2<T> {
        array_of_rows(self.centers(), self.dim())
    }

    /// The labels of the rows of the fit as an array: see [`KMeansModel::labels`].
    ///
    /// ```
    /// use shoal::{KMeans, ndarray::array};
    /// let model = KMeans::params(1).fit(&array![[0.0f32, 1.0], [2.0, 3.0]])?;
    /// assert_eq!(model.labels_array(), array![0, 0]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn labels_array(&self) -> Array1<u32> {
        self.labels().to_vec().into()
    }

    /// The label of every row as an array: see [`KMeansModel::predict`].
    ///
    /// ```
    /// use shoal::{KMeans, ndarray::array};
    /// let model = KMeans::params(1).fit(&array![[0.0f32, 1.0], [2.0, 3.0]])?;
    /// assert_eq!(model.predict_array(&array![[5.0f32, 5.0]])?, array![0]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`KMeansModel::predict`].
    pub fn predict_array<S: Source>(&self, rows: S) -> Result<Array1<u32>> {
        self.predict(rows).map(Array1::from)
    }

    /// Euclidean distances of every row to every center, as an array of one row per row: see
    /// [`KMeansModel::transform`].
    ///
    /// ```
    /// use shoal::{KMeans, ndarray::array};
    /// let model = KMeans::params(1).fit(&array![[0.0f32], [2.0]])?;
    /// assert_eq!(model.transform_array(&array![[1.0f32], [4.0]])?, array![[0.0], [3.0]]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`KMeansModel::predict`].
    pub fn transform_array<S: Source>(&self, rows: S) -> Result<Array2<f64>> {
        Ok(array_of_rows(self.transform(rows)?, self.n_clusters()))
    }
}
