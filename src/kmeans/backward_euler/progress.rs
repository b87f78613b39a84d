//! State of stochastic backward Euler between two batches: plain arrays and numbers.

use super::trajectory::Trajectory;
use crate::kernel::Compute;
use crate::kmeans::batches::Waiting;
use crate::tuning::{RECENT_ROWS, RECENT_STAYS, STARVED};

#[derive(Clone, Debug)]
pub(in crate::kmeans) struct State<T> {
    /// The centers of the model: the average of the trajectory. Empty before the seeding.
    pub(super) centers: Vec<T>,
    pub(super) trajectory: Trajectory,
    /// Total weight assigned to each cluster so far.
    pub(super) given: Vec<f64>,
    /// Rows per cluster in recent batches, with older batches faded.
    pub(super) recent: Vec<f64>,
    /// Rows that wait until there are enough to seed from.
    pub(super) waiting: Waiting<T>,
    pub(super) seeded_by: String,
    pub(super) seed: u64,
    /// Product of the decay factors so far: the step size is the first step size times `fade`.
    pub(super) fade: f64,
    /// Steps of the fit, final sweeps included.
    pub(super) steps: u64,
    /// Outer steps.
    pub(super) n_iter: u64,
    /// Batches, which are inner iterations.
    pub(super) n_steps: u64,
    pub(super) rows_seen: u64,
    /// Rows already taken from the current pass, for sources without random access.
    pub(super) position: u64,
}

impl<T: Compute> State<T> {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            centers: Vec::new(),
            trajectory: Trajectory::default(),
            given: Vec::new(),
            recent: Vec::new(),
            waiting: Waiting::default(),
            seeded_by: String::new(),
            seed,
            fade: 1.0,
            steps: 0,
            n_iter: 0,
            n_steps: 0,
            rows_seen: 0,
            position: 0,
        }
    }

    /// Records a batch of `rows` rows and total weight `weight`, of which cluster `j` got `given[j]`.
    pub(super) fn note(&mut self, rows: u64, given: &[f64], weight: f64) {
        let each = self.given.iter_mut().zip(&mut self.recent).zip(given);
        for ((all, recent), more) in each {
            *all += more;
            *recent = *recent * RECENT_STAYS + rows as f64 * (more / weight);
        }
    }

    /// Clusters that get almost no rows; empty until enough rows have been seen to tell.
    pub(super) fn starved(&self) -> Vec<u32> {
        let mean = self.recent.iter().sum::<f64>() / self.recent.len().max(1) as f64;
        if mean < RECENT_ROWS {
            return Vec::new();
        }
        let shares = self.recent.iter().enumerate();
        shares.filter(|(_, rows)| **rows < STARVED * mean).map(|(j, _)| j as u32).collect()
    }

    /// Restarts the trajectory from `centers`.
    pub(super) fn place(&mut self, centers: &[T]) {
        let scale = std::mem::take(&mut self.trajectory.scale);
        self.trajectory = Trajectory { scale, ..Trajectory::new(self.trajectory.dim, centers) };
        self.centers = centers.to_vec();
    }

    /// Ends the outer step.
    pub(super) fn close(&mut self, decay: f64) {
        self.trajectory.close();
        self.fade *= decay;
        self.n_iter += 1;
    }
}
