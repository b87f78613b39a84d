//! Balanced k-means: limits of the sizes of clusters.

mod ascent;
mod assign;
mod choices;
mod coarse;
mod limits;
mod lists;
mod params;
mod repair;
mod solver;
mod state;
#[cfg(test)]
mod tests;
mod transport;

use crate::centers::{CenterMethod, KMeansModel};
use crate::error::Result;
use crate::fit::{Method, Run, either};
use crate::kernel::Compute;
pub use limits::Size;
use lists::CANDIDATE_BYTES;
pub use params::{Balanced, BalancedParams};
pub use solver::BalancedSolver;

/// A fit by balanced k-means that advances step by step. It does not hold the data.
///
/// See [`BalancedParams::start`].
pub type BalancedRun = Run<Balanced>;

impl BalancedRun {
    /// The weight of the rows per cluster.
    ///
    /// ```
    /// use shoal::kmeans::Size;
    /// let rows = [[0.0f64], [1.0], [2.0], [9.0]];
    /// let mut run = shoal::Balanced::params(2).size_max(Size::Rows(2)).start(&rows).unwrap();
    /// while run.advance(&rows).unwrap().is_some() {}
    /// run.finish(&rows).unwrap();
    /// assert_eq!(run.sizes(), [2.0, 2.0]);
    /// assert_eq!(run.gap(), 0.0);
    /// assert_eq!(run.lower_bound(), run.inertia());
    /// assert!(run.prices().iter().any(|&price| price > 0.0));
    /// ```
    pub fn sizes(&self) -> &[f64] {
        self.cluster_weights()
    }

    /// The price per cluster, in the unit of squared distances: positive for a cluster at its upper limit
    /// whose center is nearest to more rows, negative for a cluster that has some rows only because of its
    /// lower limit, 0 for others. Empty without limits and before the first sweep with limits.
    ///
    /// See [`BalancedRun::sizes`] for an example.
    pub fn prices(&self) -> &[f64] {
        either!(self.solver(), solver => solver.prices())
    }

    /// A lower bound of the inertia of all labels that keep the limits, for the present centers after [`Run::finish`],
    /// and for those at the start of the last sweep before it. NaN before the first sweep with limits.
    ///
    /// See [`BalancedRun::sizes`] for an example.
    pub fn lower_bound(&self) -> f64 {
        either!(self.solver(), solver => solver.lower_bound())
    }

    /// Upper bound on the share of the inertia that other labels could save: how far the inertia is above
    /// [`BalancedRun::lower_bound`], relative to the inertia. With 0, no labels that keep the limits are better for
    /// these centers.
    ///
    /// See [`BalancedRun::sizes`] for an example.
    pub fn gap(&self) -> f64 {
        let (bound, inertia) = (self.lower_bound(), self.inertia());
        if inertia > 0.0 { ((inertia - bound) / inertia).max(0.0) } else { bound - inertia }
    }
}

impl Method for Balanced {
    const NAME: &'static str = "balanced";
    type Params = BalancedParams;
    type Model = KMeansModel;
    type Solver<T: Compute> = BalancedSolver<T>;

    fn labels_at_end(_params: &BalancedParams) -> bool {
        true
    }

    fn memory_per_row(params: &BalancedParams, n: u64) -> (&'static str, usize) {
        let candidates = if params.has_limits() { CANDIDATE_BYTES * params.n_clusters.min(2) } else { 0 };
        ("labels, candidates and seeding", 12 + params.seeding.bytes_per_row(n) + candidates)
    }

    fn check(params: &BalancedParams, n: Option<u64>, dim: usize) -> Result<()> {
        // With weights, limits are compared with their sum later.
        params.check_alone(n, dim)?;
        Self::check_memory(params, n)
    }
}

impl CenterMethod for Balanced {}
