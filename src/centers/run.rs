//! What a run of a center-based method shows between two steps: centers, labels, weights, inertia.

use crate::fit::{FitSolver, Method, Run, Timings, either};
use crate::float::Float;
use crate::kernel::Compute;

/// A method whose clusters are defined by centers.
///
/// ```
/// use shoal::centers::CenterMethod;
/// use shoal::fit::Run;
/// fn spread<M: CenterMethod>(run: &Run<M>) -> f64 {
///     run.centers::<f64>().iter().fold(0.0, |most, c| c.abs().max(most))
/// }
/// let rows = [[0.0f64], [1.0]];
/// let mut run = shoal::KMeans::params(2).start(&rows).unwrap();
/// run.advance(&rows).unwrap();
/// assert_eq!(spread(&run), 1.0);
/// ```
pub trait CenterMethod: Method {}

impl<M: CenterMethod> Run<M> {
    /// The current centers, `n_clusters` rows. Empty before the first step.
    pub fn centers<T: Compute>(&self) -> Vec<T> {
        let convert = |c: f64| T::from_f64(c);
        either!(self.solver(), solver => solver.snapshot().centers.iter().map(|&c| convert(Float::to_f64(c))).collect())
    }

    /// A copy of the labels that the method keeps. After [`Run::finish`], these are the labels of the current
    /// centers.
    pub fn labels(&self) -> Vec<u32> {
        either!(self.solver(), solver => solver.snapshot().labels.to_vec())
    }

    /// Weight per cluster, as the method counts it.
    pub fn cluster_weights(&self) -> &[f64] {
        either!(self.solver(), solver => solver.snapshot().weights)
    }

    /// Weighted sum of squared distances that belongs to the labels. NaN if no pass has computed it.
    pub fn inertia(&self) -> f64 {
        either!(self.solver(), solver => solver.snapshot().inertia)
    }

    /// Number of iterations, in the method's unit. With several starts: of the best one.
    pub fn n_iter(&self) -> u64 {
        either!(self.solver(), solver => solver.snapshot().n_iter)
    }

    /// Number of times that the centers have moved. With several starts: of the best one.
    pub fn n_steps(&self) -> u64 {
        either!(self.solver(), solver => solver.snapshot().n_steps)
    }

    /// The seeding that chose the first centers.
    pub fn seeded_by(&self) -> &str {
        either!(self.solver(), solver => solver.snapshot().seeded_by)
    }

    /// The algorithm that finds the nearest centers.
    pub(crate) fn found_by(&self) -> &'static str {
        either!(self.solver(), solver => solver.snapshot().algorithm)
    }

    /// Seconds spent so far, by phase.
    pub fn timings(&self) -> Timings {
        either!(self.solver(), solver => solver.snapshot().timings)
    }
}
