//! State of stochastic backward Euler between two batches, and how a file stores it.

use super::trajectory::Trajectory;
use crate::kernel::Compute;
use crate::kmeans::batches::WaitingRows;
use crate::persist::Array;
use crate::persist::kept::{keep, matrix};
use crate::persist::state::{StateReader, StateWriter, are_weights, stored_fields};

/// The factor by which a batch decays the per-cluster number of recent rows of stochastic backward Euler,
/// which covers some 100 batches.
const RECENT_STAYS: f64 = 0.99;

/// A cluster starves if it has less than this share of the rows of the mean cluster: steps of a useful length
/// hardly move its center. On real sets (`defaults.py`) clusters of exact k-means have 3% and more, except
/// clusters of a few outliers, which steps do not reach either.
const STARVED: f64 = 0.01;

/// Minimum mean rows per cluster before starvation is reported: of 200, a cluster with a twentieth of them
/// gets fewer than 2 once in 2,000 times.
const RECENT_ROWS: f64 = 200.0;

#[derive(Clone, Debug)]
pub(in crate::kmeans) struct BackwardEulerState<T> {
    /// The centers of the model: the average of the trajectory. Empty before the seeding.
    pub(super) centers: Vec<T>,
    pub(super) trajectory: Trajectory,
    /// Total weight assigned to each cluster so far.
    pub(super) given: Vec<f64>,
    /// Rows per cluster in recent batches, with older batches faded.
    pub(super) recent: Vec<f64>,
    /// Rows that wait until there are enough to seed from.
    pub(super) waiting: WaitingRows<T>,
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

impl<T: Compute> BackwardEulerState<T> {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            centers: Vec::new(),
            trajectory: Trajectory::default(),
            given: Vec::new(),
            recent: Vec::new(),
            waiting: WaitingRows::default(),
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

impl<T: Compute> BackwardEulerState<T> {
    stored_fields! {
        dim = trajectory.dim, inner = trajectory.inner,
        middle = trajectory.scale.middle, sq_scale = trajectory.scale.sq_dist,
        given, recent, seeded_by, fade, steps, n_iter, n_steps, rows_seen, position,
    }

    pub(super) fn write(&self, kind: &str) -> StateWriter {
        let mut to = StateWriter::new(kind);
        self.put_fields(&mut to);
        to.put_value("seed", self.seed);
        let way = &self.trajectory;
        to.put_matrix("centers", &self.centers, way.dim);
        let cols = way.dim.max(1);
        for (name, values) in [("anchor", &way.anchor), ("iterate", &way.iterate), ("mean", &way.mean)] {
            keep(&mut to.contents, name, Array::new(&[values.len() / cols, cols], values));
        }
        self.waiting.put(&mut to);
        to
    }

    /// Reads what [`BackwardEulerState::write`] wrote. The error says what is wrong.
    pub(super) fn restore(from: &StateReader<'_>) -> Result<Self, String> {
        let mut state = Self::new(from.seed()?);
        state.get_fields(from)?;
        let dim = state.trajectory.dim;
        state.centers = from.finite_matrix("centers", dim)?;
        state.waiting = WaitingRows::get(from, dim)?;
        let part = |name: &str| {
            let values: Vec<f64> = matrix(from.contents, name, dim)?;
            if values.len() == state.centers.len() && values.iter().all(|&x| T::from_f64(x).finite()) {
                Ok(values)
            } else {
                Err(format!("its {name:?} does not belong to its \"centers\", or is not finite"))
            }
        };
        let (anchor, iterate, mean) = (part("anchor")?, part("iterate")?, part("mean")?);
        (state.trajectory.anchor, state.trajectory.iterate, state.trajectory.mean) = (anchor, iterate, mean);
        state.validate()?;
        Ok(state)
    }

    /// Returns an error for parts that do not match each other.
    fn validate(&self) -> Result<(), String> {
        let (way, centers) = (&self.trajectory, &self.centers);
        if way.mean.iter().zip(centers).any(|(&x, c)| T::from_f64(x) != *c) {
            return Err("its \"mean\" does not match its \"centers\"".into());
        }
        let k = centers.len() / way.dim.max(1);
        for (name, weights) in [("given", &self.given), ("recent", &self.recent)] {
            if weights.len() != k || !are_weights(weights) {
                return Err(format!("its {name:?} are not {k} finite numbers of at least 0"));
            }
        }
        let (middle, sq_dist) = (&way.scale.middle, way.scale.sq_dist);
        if !(middle.is_empty() || middle.len() == way.dim) || !middle.iter().all(|x| x.is_finite()) {
            return Err("its \"middle\" is not a finite row".into());
        }
        if sq_dist.is_nan() || sq_dist < 0.0 {
            return Err(format!("its \"sq_scale\" is {sq_dist}"));
        }
        if !(0.0..=1.0).contains(&self.fade) {
            return Err(format!("its \"fade\" is {}", self.fade));
        }
        Ok(())
    }
}
