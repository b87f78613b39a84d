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
mod params;
mod solver;
mod state;
mod stream;
#[cfg(test)]
mod tests;

pub use params::{Bounds, NestedMiniBatch, NestedParams, NestedRun, NestedSteps};
pub use solver::Nested;
