//! Writes a start of exact k-means to a checkpoint and reads it back. Bounds are not stored; they are
//! rebuilt.

use super::params::KMeansParams;
use super::solver::Lloyd;
use crate::kernel::Compute;
use crate::kmeans::labels::Labels;
use crate::kmeans::stored_sums::{carried_of, check_carried, keep_carried};
use crate::matrix::MatRef;
use crate::persist::Contents;
use crate::persist::state::{StateReader, StateWriter, are_weights, stored_fields};

impl<T: Compute> Lloyd<T> {
    stored_fields! {
        dim, weights, energy, exact, current, threshold, iteration, rows_seen, seeded_by, timings,
    }

    /// The state, with the labels of at most `most_labels` rows. Labels of more rows are recomputed after
    /// [`Lloyd::restore`].
    pub(in crate::kmeans) fn checkpoint(&self, most_labels: usize) -> Contents {
        let mut to = StateWriter::new("");
        self.put_fields(&mut to);
        self.choice.put_fields(&mut to);
        to.put_matrix("centers", &self.centers, self.dim);
        if !self.labels.put(&mut to, most_labels) {
            to.put_matrix("labeled_by", &self.labeled_by, self.dim);
        }
        if let Some(carried) = &self.carried {
            keep_carried(&mut to, "carried", carried);
        }
        to.finish()
    }

    /// Reads what [`Lloyd::checkpoint`] wrote, to resume with `params`. The error says what is wrong.
    pub(in crate::kmeans) fn restore(params: KMeansParams, contents: &Contents) -> Result<Self, String> {
        let from = StateReader::new(contents)?;
        let mut state = Self::plan(params);
        state.get_fields(&from)?;
        state.choice.restore(&from)?;
        let (k, dim) = (state.n_clusters(), state.dim);
        state.centers = from.centers("centers", k, dim)?;
        state.labels = Labels::get(&from, k, k)?;
        if state.labels.are_lost() {
            state.labeled_by = from.finite_matrix("labeled_by", dim)?;
            let expected = if state.iteration > 0 { state.centers.len() } else { 0 };
            if state.labeled_by.len() != expected {
                return Err("its \"labeled_by\" do not match its \"centers\"".into());
            }
        }
        if state.weights.len() > k || !are_weights(&state.weights) {
            return Err("its \"weights\" do not match its \"centers\"".into());
        }
        // Carried sums are valid only if every row has a label.
        let labels = state.labels.of_rows.view();
        let labeled = !labels.are_missing().0 && (state.iteration > 0 || !state.labels.are_lost());
        state.carried = carried_of(&from, "carried", k, dim)?.filter(|_| labeled);
        if let Some(carried) = &state.carried {
            let known = (!state.labels.are_lost()).then_some(labels);
            check_carried(carried, known, MatRef::new(&state.centers, dim), state.params.metric)?;
        }
        Ok(state)
    }
}
