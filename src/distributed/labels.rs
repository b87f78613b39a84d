//! Labels of partitions for known centers.

use super::kmeans::KMeansPass;
use super::pass::check_fit;
use crate::centers;
use crate::data::{AnySource, DataSource, Source};
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::parallel::Executor;

/// Labels rows with their nearest centers, a partition at a time.
///
/// ```
/// use shoal::{Executor, Metric, distributed::LabelPass};
/// let task = LabelPass::new(&[0.0f32, 9.0], 1, Metric::Euclidean)?;
/// assert_eq!(task.label(&[[1.0f32], [8.0]], &Executor::new(Some(1))?)?, [0, 1]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LabelPass(KMeansPass);

impl LabelPass {
    /// A pass with these centers, `dim` values each.
    ///
    /// # Errors
    /// Same as [`KMeansPass::new`].
    pub fn new<T: Compute>(centers: &[T], dim: usize, metric: Metric) -> Result<Self> {
        KMeansPass::new(centers, dim, metric).map(Self)
    }

    /// The label of every row; the lower index wins a tie.
    ///
    /// # Errors
    /// Same as [`KMeansPass::absorb`].
    pub fn label<S: Source + ?Sized>(&self, rows: &S, cx: &Executor) -> Result<Vec<u32>> {
        match rows.any() {
            AnySource::F32(data) => self.typed(data, cx),
            AnySource::F64(data) => self.typed(data, cx),
        }
    }

    fn typed<T: Compute>(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Vec<u32>> {
        check_fit(data, self.0.dim(), self.0.is_wide())?;
        centers::predict(&self.0.centers::<T>(), self.0.metric(), data, cx)
    }
}
