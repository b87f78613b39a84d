//! Writes a start of exact k-means to a checkpoint and reads it back. Bounds are not stored; they are
//! rebuilt.

use super::params::KMeansParams;
use super::solver::Lloyd;
use crate::centers::{LabelList, NO_LABEL};
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

    pub(in crate::kmeans) fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new("");
        self.put_fields(&mut to);
        self.choice.put_fields(&mut to);
        to.put_matrix("centers", &self.centers, self.dim);
        to.put("labels", &self.labels.of_rows.view().to_vec());
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
        let labels: Vec<u32> = from.get("labels")?;
        if !labels.iter().all(|&j| (j as usize) < k || j == NO_LABEL) {
            return Err("its \"labels\" do not match its \"centers\"".into());
        }
        if state.weights.len() > k || !are_weights(&state.weights) {
            return Err("its \"weights\" do not match its \"centers\"".into());
        }
        // Carried sums are valid only if every row has a label.
        state.carried = carried_of(&from, "carried", k, dim)?.filter(|_| !labels.contains(&NO_LABEL));
        if let Some(carried) = &state.carried {
            check_carried(carried, &labels, MatRef::new(&state.centers, dim), state.params.metric)?;
        }
        state.labels = Labels::of(LabelList::of(labels, k));
        Ok(state)
    }
}
