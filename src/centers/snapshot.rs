//! What a center-based method shows between two of its steps.

use crate::fit::{Facts, Metric, Timings};

/// What a center-based method shows between two of its steps.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a, T> {
    /// Columns of a row.
    pub dim: usize,
    /// The distance that the method minimizes.
    pub metric: Metric,
    /// The present centers, row by row; empty before the first step.
    pub centers: &'a [T],
    /// Weight of each cluster, as the method counts it.
    pub weights: &'a [f64],
    /// The label of each row, if the method keeps labels: those of the present centers after [`FitSolver::finish`](crate::fit::FitSolver::finish).
    pub labels: &'a [u32],
    /// Weighted sum of squared distances that belongs to `labels`; NaN where no pass has measured it.
    pub inertia: f64,
    /// Units of work that the method counts.
    pub n_iter: u64,
    /// Number of times that the centers have moved.
    pub n_steps: u64,
    /// How the first centers were chosen.
    pub seeded_by: &'a str,
    /// How steps find the nearest centers.
    pub algorithm: &'static str,
    /// Seconds by phase.
    pub timings: Timings,
}

impl<T> Snapshot<'_, T> {
    /// What a run needs to know of the solver.
    pub fn facts(&self) -> Facts {
        let has_weight = self.weights.iter().any(|&w| w > 0.0);
        Facts { dim: self.dim, metric: self.metric, has_weight }
    }
}
