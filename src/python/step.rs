//! The Python class `Step`: the report of one step of a run.
#![expect(clippy::too_many_arguments, reason = "the constructor, which takes all fields")]

use pyo3::prelude::*;

use crate::fit;

/// The report of one step.
#[pyclass(frozen, get_all, new = "from_fields", module = "shoal._core")]
#[derive(Clone)]
pub(super) struct Step {
    /// Number of the step, from 1.
    iteration: u64,
    /// Rows read so far, over all steps.
    rows_seen: u64,
    /// Rows that this step processed.
    batch_size: u64,
    /// The objective of the method, as measured by this step.
    objective: f64,
    /// Euclidean length of the move of all centers together.
    center_shift: f64,
    /// Rows whose label changed.
    n_changed: u64,
    /// Distances computed.
    n_distances: u64,
    /// Seconds since the run began.
    elapsed: f64,
    /// Why the run ended with this step; None if it continues.
    stop_reason: Option<String>,
}

impl From<fit::Step> for Step {
    fn from(step: fit::Step) -> Self {
        Self {
            iteration: step.iteration,
            rows_seen: step.rows_seen,
            batch_size: step.batch_size,
            objective: step.objective,
            center_shift: step.center_shift,
            n_changed: step.n_changed,
            n_distances: step.n_distances,
            elapsed: step.elapsed,
            stop_reason: step.stop_reason.map(|reason| reason.name().to_owned()),
        }
    }
}

#[pymethods]
impl Step {
    /// A copy with another stop reason.
    #[pyo3(signature = (stop_reason))]
    fn with_reason(&self, stop_reason: Option<String>) -> Self {
        Self { stop_reason, ..self.clone() }
    }

    /// A copy whose totals continue those of an earlier step.
    fn after(&self, earlier: &Self) -> Self {
        Self {
            iteration: self.iteration + earlier.iteration,
            rows_seen: self.rows_seen + earlier.rows_seen,
            elapsed: self.elapsed + earlier.elapsed,
            ..self.clone()
        }
    }

    fn __repr__(&self) -> String {
        let reason = self.stop_reason.as_ref().map_or("None".to_owned(), |reason| format!("'{reason}'"));
        format!(
            "Step(iteration={}, objective={:.6e}, center_shift={:.3e}, n_changed={}, elapsed={:.3}, stop_reason={reason})",
            self.iteration, self.objective, self.center_shift, self.n_changed, self.elapsed
        )
    }
}
