//! The rows of a source in another order.

use super::listed::{Listed, RowIndex};
use super::selected::Selected;
use crate::data::weights::check_announced;
use crate::data::{Access, DataSource, no_such_row};
use crate::error::{Error, Result};
use crate::float::Float;

/// The rows of a source in a given order. Rows may be left out or come more than once.
///
/// ```
/// use shoal::KMeans;
/// use shoal::data::{DataSource, Permuted};
/// let backwards = Permuted::new([[1.0f32], [2.0], [3.0]], vec![2u32, 1, 0])?;
/// let mut found = Vec::new();
/// backwards.gather(&[0, 1], &mut found)?;
/// assert_eq!(found, [3.0, 2.0]);
/// assert_eq!(KMeans::params(1).fit(&backwards)?.centers::<f32>(), [2.0]);
/// # Ok::<(), shoal::Error>(())
/// ```
pub type Permuted<S, I = u64> = Selected<S, Listed<Vec<I>>>;

impl<S, I: RowIndex> Permuted<S, I> {
    /// The rows `order` of `source`, which needs [`Access::Random`]. For the type parameter see
    /// [`Weighted::new`](super::Weighted::new).
    ///
    /// # Errors
    /// [`Error::Source`] for a source without random access or without one weight per row, [`Error::Shape`]
    /// for a row that does not exist.
    ///
    /// ```
    /// use shoal::data::Permuted;
    /// let refused = Permuted::new([[1.0f32], [2.0], [3.0]], vec![0u64, 3]).unwrap_err();
    /// assert_eq!(refused.to_string(), "row 3 does not exist");
    /// ```
    pub fn new<T: Float>(source: S, order: Vec<I>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let mut new = Self::unweighted(source, order)?;
        check_announced(new.source.weights(), new.source.rows().unwrap_or_default())?;
        new.rows.take_weights(new.source.weights());
        Ok(new)
    }

    /// As [`Permuted::new`], but without the weights of the source.
    pub(crate) fn unweighted<T: Float>(source: S, order: Vec<I>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let rows = source.rows().filter(|_| source.access() == Access::Random).ok_or_else(|| {
            Error::Source(
                "another row order needs random access: write the rows to a file and open that".into(),
            )
        })?;
        if let Some(beyond) = order.iter().find(|i| i.row() >= rows) {
            return Err(no_such_row(beyond.row()));
        }
        Ok(Self::of(source, Listed::new(order)))
    }

    /// The row numbers in order.
    pub(crate) fn order(&self) -> &[I] {
        self.rows.list()
    }
}
