//! Writes the state of mini-batch k-means to a file and reads it back.

use super::state::State;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::kmeans::batches::Waiting;
use crate::matrix::MatRef;
use crate::persist::Array;
use crate::persist::kept::{keep, matrix};
use crate::persist::state::{StateReader, StateWriter, stored_fields};
use crate::stats::ClusterSums;

impl<T: Compute> State<T> {
    stored_fields! {
        dim, seeded_by, n_steps, rows_seen, n_iter, position, since_reassigned, threshold,
        stalled = progress.stalled, inertia = progress.inertia, lowest = progress.lowest,
    }

    pub(super) fn to_file(&self, kind: &str) -> StateWriter {
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

    /// Reads what [`State::to_file`] wrote. The error says what is wrong.
    pub(super) fn of_file(from: &StateReader<'_>, metric: Metric) -> Result<Self, String> {
        let mut state = Self::new(from.seed()?, metric);
        state.get_fields(from)?;
        let dim = state.dim;
        state.centers = from.finite_matrix("centers", dim)?;
        state.waiting = Waiting::get(from, dim)?;
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
