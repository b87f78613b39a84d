//! The report of one step of a fit.

use super::StopReason;

/// What one unit of work did. A solver begins with `Step::default()` and sets the fields that it knows.
///
/// ```
/// let rows: Vec<[f64; 1]> = (0..100).map(|i| [f64::from(i * i % 31)]).collect();
/// let mut run = shoal::KMeans::params(4).start(&rows)?;
/// let step = run.advance(&rows)?.unwrap();
/// assert_eq!((step.iteration, step.rows_seen, step.n_changed), (1, 100, 100));
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// Number of the step, from 1.
    pub iteration: u64,
    /// Rows read so far, over all steps.
    pub rows_seen: u64,
    /// Rows that this step worked on.
    pub batch_size: u64,
    /// The objective, measured by this step over its rows. K-means methods and Laplacian K-modes minimize it,
    /// mixtures maximize it.
    pub objective: f64,
    /// Euclidean length of the move of all centers together.
    pub center_shift: f64,
    /// Rows whose label changed.
    pub n_changed: u64,
    /// Distances between a row and a center computed by this step.
    pub n_distances: u64,
    /// Seconds since the run began.
    pub elapsed: f64,
    /// Why the run ended with this step; `None` while it continues.
    pub stop_reason: Option<StopReason>,
}
