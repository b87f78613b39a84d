//! The rows of a source with the columns shifted and scaled.

use std::sync::Arc;

use super::transformed::{RowChange, Transformed};
use crate::data::DataSource;
use crate::error::{Error, Result};
use crate::float::Float;

/// The rows of a source as `(x - mean) / scale`, per column. [`ColumnMoments`](crate::stats::ColumnMoments) measures
/// both.
///
/// Values are computed in `f64` when a row is read, and rounded once to the compute type. Sparse rows stay sparse:
/// their mean must be 0.
///
/// ```
/// use shoal::KMeans;
/// use shoal::data::{DataSource, Standardized};
/// let rows = Standardized::new([[1.0f32, 20.0], [3.0, 60.0]], &[2.0, 40.0], &[1.0, 20.0])?;
/// let mut found = Vec::new();
/// rows.gather(&[0, 1], &mut found)?;
/// assert_eq!(found, [-1.0, -1.0, 1.0, 1.0]);
/// assert_eq!(KMeans::params(1).fit(&rows)?.centers::<f32>(), [0.0, 0.0]);
/// # Ok::<(), shoal::Error>(())
/// ```
pub type Standardized<S> = Transformed<S, Standard>;

/// What is subtracted from the columns, and what they are divided by.
#[derive(Debug)]
pub struct Standard {
    mean: Vec<f64>,
    scale: Vec<f64>,
}

impl Standard {
    /// Checks the values for rows of `dim` columns, which are sparse or dense.
    pub(crate) fn new(dim: usize, sparse: bool, mean: &[f64], scale: &[f64]) -> Result<Self> {
        for (name, values) in [("mean", mean), ("scale", scale)] {
            if values.len() != dim {
                let found = values.len();
                return Err(Error::Shape(format!("{name} has {found} values, `rows` have {dim} columns")));
            }
        }
        let refused = |name, allowed: &str, values: &[f64], bad: usize| {
            Err(Error::param(name, allowed, format!("{} at column {bad}", values[bad])))
        };
        if let Some(bad) = mean.iter().position(|x| !x.is_finite()) {
            return refused("mean", "finite", mean, bad);
        }
        if let Some(bad) = scale.iter().position(|&x| !(x.is_finite() && x > 0.0)) {
            return refused("scale", "finite and above 0", scale, bad);
        }
        if let Some(bad) = mean.iter().position(|&x| sparse && x != 0.0) {
            return refused(
                "mean",
                "0 for sparse rows, because any other mean would fill in the zeros",
                mean,
                bad,
            );
        }
        Ok(Self { mean: mean.to_vec(), scale: scale.to_vec() })
    }
}

impl RowChange for Standard {
    /// A tiny scale makes finite values infinite.
    const KEEPS_FINITE: bool = false;

    fn change<T: Float>(&self, values: &mut [T], columns: Option<&[i32]>) -> bool {
        match columns {
            None => {
                for ((x, mean), scale) in values.iter_mut().zip(&self.mean).zip(&self.scale) {
                    *x = T::from_f64((x.to_f64() - mean) / scale);
                }
            }
            // The means of sparse rows are 0.
            Some(columns) => {
                for (x, &column) in values.iter_mut().zip(columns) {
                    *x = T::from_f64(x.to_f64() / self.scale[column as usize]);
                }
            }
        }
        false
    }
}

impl<S> Standardized<S> {
    /// The rows of `source` as `(x - mean) / scale`, with one value of each per column. For the type parameter see
    /// [`Weighted::new`](super::Weighted::new).
    ///
    /// # Errors
    /// [`Error::Shape`] if `mean` or `scale` has not one value per column, [`Error::InvalidParam`] for a mean that is
    /// not finite, or not 0 for sparse rows, and for a scale that is not finite and above 0.
    ///
    /// ```
    /// use shoal::data::Standardized;
    /// let refused = Standardized::new([[3.0f32]], &[0.0], &[0.0]).unwrap_err();
    /// assert_eq!(refused.to_string(), "scale must be finite and above 0, got 0 at column 0");
    /// ```
    pub fn new<T: Float>(source: S, mean: &[f64], scale: &[f64]) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let by = Standard::new(source.dim(), source.most_values().is_some(), mean, scale)?;
        Ok(Self::by(source, Arc::new(by)))
    }
}
