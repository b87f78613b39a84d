//! What a solver shows between two steps.

use super::{Metric, Timings};
use crate::stats::labels::LabelsRef;

/// What a solver shows between two steps, borrowed: centers, labels, weights and counters.
///
/// ```
/// use shoal::KMeans;
/// use shoal::centers::Snapshot;
/// use shoal::fit::{FitSolver, Method};
/// let solver = KMeans::solver::<f32>(&KMeans::params(2));
/// let before: Snapshot<'_, f32> = solver.snapshot();
/// assert!(before.centers.is_empty() && before.n_iter == 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a, T> {
    /// Number of columns of a row.
    pub dim: usize,
    /// The distance that the method minimizes.
    pub metric: Metric,
    /// The current centers, row by row. Empty before the first step.
    pub centers: &'a [T],
    /// Weight per cluster, as the method counts it.
    pub weights: &'a [f64],
    /// The label per row, if the method keeps labels. After
    /// [`FitSolver::finish`](crate::fit::FitSolver::finish), these are the labels of the current centers.
    pub labels: LabelsRef<'a>,
    /// Weighted sum of squared distances that belongs to `labels`. NaN if no pass has computed it.
    pub inertia: f64,
    /// Number of iterations, in the method's unit.
    pub n_iter: u64,
    /// Number of times that the centers have moved.
    pub n_steps: u64,
    /// The seeding that chose the first centers.
    pub seeded_by: &'a str,
    /// The algorithm that finds the nearest centers.
    pub algorithm: &'static str,
    /// Seconds by phase.
    pub timings: Timings,
}

impl<T> Snapshot<'_, T> {
    /// The facts that a run needs from the solver.
    pub fn facts(&self) -> Facts {
        let has_weight = self.weights.iter().any(|&w| w > 0.0);
        Facts { dim: self.dim, metric: self.metric, has_weight }
    }
}

/// What a run needs to know of its solver.
///
/// ```
/// use shoal::fit::{FitSolver, Method};
/// let facts = shoal::KMeans::solver::<f32>(&shoal::KMeans::params(2)).facts();
/// assert_eq!((facts.dim, facts.metric, facts.has_weight), (0, shoal::Metric::Euclidean, false));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Columns of a row; 0 before the first step.
    pub dim: usize,
    /// The metric: with [`Metric::Cosine`], the run passes rows of length 1.
    pub metric: Metric,
    /// Whether any row seen so far has weight.
    pub has_weight: bool,
}
