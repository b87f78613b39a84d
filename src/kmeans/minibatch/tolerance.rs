//! The move threshold that ends a mini-batch fit: the tolerance, scaled by the variance of the first batch.

use super::solver::MiniBatchSolver;
use crate::data::{DataSource, copy};
use crate::error::Result;
use crate::kernel::Compute;
use crate::rows::SparseRef;

/// Upper limit of the rows of a batch from which the variance of the data is estimated: to 1%, which is more
/// than a tolerance needs.
const VARIANCE_ROWS: u64 = 16_384;

impl<T: Compute> MiniBatchSolver<T> {
    /// Sets the move threshold from the variance of the first batch, if there is a tolerance.
    pub(super) fn measure_variance(&mut self, batch: &dyn DataSource<T>) -> Result<()> {
        if self.params.tolerance <= 0.0 || self.state.threshold.is_some() {
            return Ok(());
        }
        let dim = batch.dim();
        // An evenly spaced sample of a large batch: its first rows may be sorted.
        let some = batch.rows().unwrap_or_default();
        let every = some.div_ceil(VARIANCE_ROWS).max(1);
        let some: Vec<u64> = (0..some).step_by(every as usize).collect();
        let rows = copy(batch, &some)?;
        if let Some(rows) = rows.as_sparse() {
            self.state.threshold = Some(self.params.tolerance * mean_variance(rows));
            return Ok(());
        }
        let rows = rows.values;
        let n = (rows.len() / dim) as f64;
        let variance = |column: usize| {
            let values = || rows[column..].iter().step_by(dim).map(|x| x.to_f64());
            let mean = values().sum::<f64>() / n;
            values().map(|x| (x - mean).powi(2)).sum::<f64>() / n
        };
        let mean = (0..dim).map(variance).sum::<f64>() / dim as f64;
        self.state.threshold = Some(self.params.tolerance * mean);
        Ok(())
    }
}

/// The variance of sparse rows, averaged over columns.
fn mean_variance<T: Compute>(rows: SparseRef<'_, T>) -> f64 {
    let (n, mut means) = (rows.rows() as f64, vec![0.0; rows.cols()]);
    let stored = || rows.iter().flat_map(|(columns, values)| columns.iter().zip(values));
    stored().for_each(|(&column, x)| means[column as usize] += x.to_f64() / n);
    // First as if all values were 0, then the correction for the stored values.
    let zeros: f64 = means.iter().map(|mean| n * mean * mean).sum();
    let more = stored().map(|(&column, x)| {
        let mean = means[column as usize];
        (x.to_f64() - mean).powi(2) - mean * mean
    });
    ((zeros + more.sum::<f64>()) / n / means.len() as f64).max(0.0)
}
