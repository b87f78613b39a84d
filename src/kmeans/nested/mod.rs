//! Nested mini-batch k-means: each batch contains the previous one, every row counts once, and the batch
//! doubles when the centers move less than their statistical error.
//!
//! Source: Newling and Fleuret, "Nested mini-batch k-means", NIPS 2016 (algorithm 5, with the error of a
//! center as in the text before it). Two deviations keep the paper's own invariants: sums start at zero and
//! seeds do not count twice, so that fixed points are those of Lloyd's algorithm; and a cluster takes part in
//! the growth rule only from an effective number of two rows. Bounds are per group of panels, and groups
//! widen as the batch grows; bounds do not change results.
//!
//! The rows of a batch are read in ascending order, for any order of the draws. The full batch is read in a
//! plain pass over the source.

mod batch;
mod kept;
mod members;
mod params;
mod reading;
mod solver;
mod state;
mod stream;
#[cfg(test)]
mod tests;

use crate::centers::{CenterMethod, KMeansModel};
use crate::data::Access;
use crate::error::{Error, Result};
use crate::fit::{Method, Run, Steps, either};
use crate::kernel::Compute;
pub use params::{Bounds, NestedMiniBatch, NestedParams};
pub use solver::Nested;

/// A nested mini-batch fit that advances step by step. It does not hold the data.
///
/// See [`NestedParams::start`] for an example.
pub type NestedRun = Run<NestedMiniBatch>;

/// The steps of a nested mini-batch fit. See [`NestedParams::solve`].
pub type NestedSteps<S> = Steps<NestedMiniBatch, S>;

impl NestedRun {
    /// Number of rows in the current batch. Every sweep updates their labels.
    ///
    /// ```
    /// use shoal::{Executor, NestedMiniBatch};
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let mut run = NestedMiniBatch::params(2).start(&rows).unwrap();
    /// run.advance(&rows).unwrap();
    /// assert_eq!((run.rows_used(), run.rows_retired(), run.rows_kept()), (4, 0, 0));
    /// ```
    pub fn rows_used(&self) -> u64 {
        either!(self.solver(), solver => solver.batch() as u64)
    }

    /// Rows of a stream that left memory: their last votes count for ever.
    pub fn rows_retired(&self) -> u64 {
        either!(self.solver(), solver => solver.retired)
    }
}

impl Method for NestedMiniBatch {
    const NAME: &'static str = "nested";
    type Params = NestedParams;
    type Model = KMeansModel;
    type Solver<T: Compute> = Nested<T>;

    fn admit(params: &NestedParams, has: Access, _sparse: bool) -> Result<()> {
        if params.shuffle && has < Access::Random {
            return Err(Error::Source(
                "batches of rows in random order read rows in any order, but `rows` can only be read from the first \
                 to the last: pass an array, write the rows to a .npy file and open it, or set shuffle to false if the \
                 rows come in random order"
                    .into(),
            ));
        }
        Ok(())
    }

    fn labels_at_end(params: &NestedParams) -> bool {
        params.compute_labels
    }
}

impl CenterMethod for NestedMiniBatch {}
