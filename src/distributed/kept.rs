//! What a worker keeps of the rows of a partition between the sweeps of a fit.

use std::any::Any;
use std::sync::Arc;

use crate::data::ZeroRows;
use crate::kernel::Compute;
use crate::kmeans::Sweeps;

/// What a worker keeps of the rows of a partition between the sweeps of a fit: labels, and the bounds, blocks, sketches
/// and sums that [`KMeans`](crate::KMeans) keeps.
///
/// [`KMeansPass::absorb_keeping`](super::KMeansPass::absorb_keeping) uses it to skip distances, and results do not
/// depend on it. The state knows the centers to which it belongs, so that a worker may miss sweeps. Keep one for each
/// fit and partition.
///
/// ```
/// use shoal::distributed::{Kept, KMeansPass, Place};
/// use shoal::{Executor, Metric};
///
/// let (rows, cx) = ([[0.0f32], [1.0], [8.0], [9.0]], Executor::new(Some(1))?);
/// let mut task = KMeansPass::new(&[0.0f32, 1.0], 1, Metric::Euclidean)?.carrying();
/// let mut kept = Kept::new(300);
/// loop {
///     let part = task.absorb_keeping(&rows, Place::Partition(0), (&mut kept, 1_000_000), &cx)?;
///     let (next, step) = task.commit(&part)?;
///     task = next;
///     if step.stop_reason.is_some() {
///         break;
///     }
/// }
/// assert_eq!(task.centers::<f32>(), [0.5, 8.5]);
/// assert_eq!(kept.labels(&task.centers::<f32>()), Some(vec![0, 0, 1, 1]));
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Debug)]
pub struct Kept {
    /// [`Sweeps`] of the compute type.
    state: Option<Box<dyn Any + Send>>,
    /// The rows of zeros that were read. A sweep need not read them again.
    zeros: Arc<ZeroRows>,
    most_sweeps: u64,
    /// The number of rows, after the first sweep.
    rows: Option<u64>,
    bytes: usize,
    distances: u64,
}

impl Kept {
    /// Nothing yet, of a fit of at most `max_iter` sweeps: short fits keep less.
    pub fn new(max_iter: u64) -> Self {
        Self { state: None, zeros: Arc::default(), most_sweeps: max_iter, rows: None, bytes: 0, distances: 0 }
    }

    /// The bytes of the state; 0 if nothing is kept.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Distances between rows and centers that the last sweep computed to find the labels.
    pub fn distances(&self) -> u64 {
        self.distances
    }

    /// The labels of the last sweep, if it had these centers.
    ///
    /// See [`Kept`] for an example.
    pub fn labels<T: Compute>(&self, centers: &[T]) -> Option<Vec<u32>> {
        let sweeps: &Sweeps<T> = self.state.as_ref()?.downcast_ref()?;
        sweeps.labels_by(centers).map(|labels| labels.to_vec())
    }

    pub(super) fn most_sweeps(&self) -> u64 {
        self.most_sweeps
    }

    pub(super) fn rows(&self) -> Option<u64> {
        self.rows
    }

    pub(super) fn zeros(&self) -> Arc<ZeroRows> {
        Arc::clone(&self.zeros)
    }

    /// Takes the state out, if it is of this compute type.
    pub(super) fn take<T: Compute>(&mut self) -> Option<Box<Sweeps<T>>> {
        self.bytes = 0;
        self.state.take()?.downcast().ok()
    }

    /// Keeps a state for the next sweep, or nothing after a sweep over `rows` rows that computed all distances to `k`
    /// centers.
    pub(super) fn keep<T: Compute>(&mut self, state: Option<Box<Sweeps<T>>>, rows: u64, k: usize) {
        self.rows = Some(rows);
        self.distances = state.as_ref().map_or(rows * k as u64, |sweeps| sweeps.distances());
        self.bytes = state.as_ref().map_or(0, |sweeps| sweeps.bytes());
        self.state = state.map(|sweeps| sweeps as Box<dyn Any + Send>);
    }
}
