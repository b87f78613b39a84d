//! State of mini-batch k-means between two batches: how batches and merges move its centers, and how a file stores it.

use std::collections::HashSet;

use super::progress::Averages;
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::kmeans::batches::WaitingRows;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::persist::Array;
use crate::persist::kept::{keep, matrix};
use crate::persist::state::{StateReader, StateWriter, stored_fields};
use crate::stats::{ClusterSums, to_mean};

/// Everything that the next batch depends on, as plain arrays and numbers.
#[derive(Clone, Debug)]
pub(in crate::kmeans) struct MiniBatchState<T> {
    /// Columns of a row; 0 before the first.
    pub(super) dim: usize,
    pub(super) metric: Metric,
    /// The centers; empty before the seeding.
    pub(super) centers: Vec<T>,
    /// Sums and weights of all rows so far, including the seeds, rounded after every batch. A center is its sum divided
    /// by its weight, or with the cosine metric the direction of its sum.
    pub(super) clusters: ClusterSums,
    /// Rows that wait until there are enough to seed from.
    pub(super) waiting: WaitingRows<T>,
    pub(super) seeded_by: String,
    pub(super) seed: u64,
    pub(super) n_steps: u64,
    pub(super) rows_seen: u64,
    /// Passes that the rows seen so far amount to.
    pub(super) n_iter: u64,
    /// Rows already taken from the current pass, for sources without random access.
    pub(super) position: u64,
    /// Rows since the last search for starving centers.
    pub(super) since_reassigned: u64,
    pub(super) progress: Averages,
    /// The fit ends when the averaged squared moves are at most this; known after the first batch, if there
    /// is a tolerance.
    pub(super) threshold: Option<f64>,
}

impl<T: Compute> MiniBatchState<T> {
    pub(super) fn new(seed: u64, metric: Metric) -> Self {
        Self {
            dim: 0,
            metric,
            centers: Vec::new(),
            clusters: ClusterSums::new(0, 0),
            waiting: WaitingRows::default(),
            seeded_by: String::new(),
            seed,
            n_steps: 0,
            rows_seen: 0,
            n_iter: 0,
            position: 0,
            since_reassigned: 0,
            progress: Averages::default(),
            threshold: None,
        }
    }

    /// Starts from these centers, each of which counts as one row.
    pub(super) fn seed_with(&mut self, dim: usize, centers: &[T], method: String) {
        let k = centers.len() / dim;
        self.dim = dim;
        self.centers = centers.to_vec();
        self.clusters = ClusterSums::new(k, dim);
        self.seeded_by = method;
        let mut seen = HashSet::new();
        for (j, center) in centers.chunks_exact(dim).enumerate() {
            // With fewer distinct rows than clusters, duplicates stay empty.
            let bits: Vec<u64> = center.iter().map(|x| (x.to_f64() + 0.0).to_bits()).collect();
            if seen.insert(bits) {
                self.clusters.replace(j, center, 1.0);
            }
        }
    }

    /// Adds the sums and counts of another state.
    pub(super) fn merge(&mut self, other: &Self) -> Result<()> {
        let shape = |state: &Self| (state.clusters.weights().len(), state.dim);
        for (which, state) in [("this", self as &Self), ("the other", other)] {
            if state.centers.is_empty() {
                return Err(Error::Shape(format!(
                    "{which} state has no centers yet: fit more rows before merging"
                )));
            }
        }
        if shape(self) != shape(other) {
            let ((k, d), (l, e)) = (shape(self), shape(other));
            return Err(Error::Shape(format!(
                "the states must have the same shape: this one has {k} centers of {d} columns, the other {l} of {e}"
            )));
        }
        self.clusters.check_means_with::<T>(1.0, &other.clusters)?;
        self.clusters.merge_rounded(&mut other.clusters.clone(), Executor::caller());
        self.n_steps += other.n_steps;
        self.rows_seen += other.rows_seen;
        for j in 0..shape(other).0 {
            self.place(j);
        }
        Ok(())
    }

    /// Moves center `j` to its mean. Returns the squared length of the move.
    pub(super) fn place(&mut self, j: usize) -> f64 {
        let mut moved = 0.0;
        let center = &mut self.centers[j * self.dim..][..self.dim];
        to_mean(center, self.metric, (self.clusters.sum(j), self.clusters.weights()[j]), &mut moved);
        moved
    }

    /// Moves center `j` to a row, bit for bit. Returns the squared length of the move.
    pub(super) fn place_at(&mut self, j: usize, row: &[T]) -> f64 {
        let center = &mut self.centers[j * self.dim..][..self.dim];
        let moved = center.iter().zip(row).map(|(c, x)| (x.to_f64() - c.to_f64()).powi(2)).sum();
        center.copy_from_slice(row);
        moved
    }

    pub(super) fn has_center(&self, row: &[T]) -> bool {
        self.centers.chunks_exact(self.dim).any(|center| center == row)
    }
}

impl<T: Compute> MiniBatchState<T> {
    stored_fields! {
        dim, seeded_by, n_steps, rows_seen, n_iter, position, since_reassigned, threshold,
        stalled = progress.stalled, inertia = progress.inertia, lowest = progress.lowest,
    }

    pub(super) fn write(&self, kind: &str) -> StateWriter {
        let mut to = StateWriter::new(kind);
        self.put_fields(&mut to);
        to.put_value("seed", self.seed);
        let k = self.clusters.weights().len();
        to.put_matrix("centers", &self.centers, self.dim);
        keep(&mut to.contents, "sums", Array::new(&[k, self.dim.max(1)], self.clusters.sums()));
        to.put_list("weights", self.clusters.weights());
        self.waiting.put(&mut to);
        to
    }

    /// Reads what [`MiniBatchState::write`] wrote. The error says what is wrong.
    pub(super) fn restore(from: &StateReader<'_>, metric: Metric) -> Result<Self, String> {
        let mut state = Self::new(from.seed()?, metric);
        state.get_fields(from)?;
        let dim = state.dim;
        state.centers = from.finite_matrix("centers", dim)?;
        state.waiting = WaitingRows::get(from, dim)?;
        let sums: Vec<f64> = matrix(from.contents, "sums", dim)?;
        let weights = from.weights("weights")?;
        let k = state.centers.len() / dim.max(1);
        if sums.len() != state.centers.len() || weights.len() != k || !sums.iter().all(|x| x.is_finite()) {
            return Err("its \"sums\" do not belong to its \"centers\", or are not finite".into());
        }
        state.clusters = ClusterSums::of(if k == 0 { 0 } else { dim }, sums, weights);
        let centers = MatRef::new(&state.centers, dim.max(1));
        if !state.clusters.have_means_at(centers, metric == Metric::Cosine) {
            return Err("its \"sums\" and \"weights\" do not match its \"centers\"".into());
        }
        Ok(state)
    }
}
