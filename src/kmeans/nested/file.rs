//! Writes the state of nested mini-batch k-means to a file and reads it back.

use super::{Nested, NestedParams};
use crate::centers::{LabelList, NO_LABEL};
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::kmeans::labels::{Carried, Labels};
use crate::kmeans::state::{carried_of, keep_carried, keep_sums, sums_of};
use crate::matrix::MatRef;
use crate::persist::Contents;
use crate::persist::schema::{NESTED_CHECKPOINT, NESTED_STATE};
use crate::persist::state::{StateReader, StateWriter, are_weights, stored_fields};
use crate::seeding::Seeding;

impl<T: Compute> Nested<T> {
    stored_fields! {
        dim, due, fed, carry, voted, retired, weights, places = rows, row_weights = kept.weights, energy, exact, current,
        changed, lowest, stalled, threshold, iteration, rows_seen, seeded_by,
    }

    /// Everything that the next rows depend on. The rows of a fit count as retired, because the state does
    /// not hold them.
    pub(super) fn to_file(&self) -> Contents {
        if !self.fed && !self.centers.is_empty() {
            let mut votes = Self::plan(self.params.clone());
            (votes.dim, votes.centers, votes.fed) = (self.dim, self.centers.clone(), true);
            votes.gone = self.sums.clone().map(Carried::into_clusters);
            votes.retired = self.retired + self.voted;
            votes.weights.clone_from(&self.weights);
            (votes.threshold, votes.iteration, votes.rows_seen) =
                (self.threshold, self.iteration, self.rows_seen);
            votes.seeded_by.clone_from(&self.seeded_by);
            return votes.whole(NESTED_STATE);
        }
        self.whole(NESTED_STATE)
    }

    /// Everything that the next sweep depends on, except the rows of the fit.
    pub(super) fn to_checkpoint(&self) -> Contents {
        self.whole(NESTED_CHECKPOINT)
    }

    fn whole(&self, kind: &str) -> Contents {
        let mut to = StateWriter::new(kind);
        self.put_fields(&mut to);
        to.put_value("seed", self.params.rng_seed);
        to.put_value("bounds", self.snapshot().algorithm);
        to.put_matrix("centers", &self.centers, self.dim);
        to.put_rows("rows", &self.kept.rows);
        to.put("labels", &self.labels.of_rows.view().to_vec());
        if let (true, Seeding::Given(centers)) = (self.centers.is_empty(), &self.params.seeding) {
            to.put_list("given", centers);
        }
        if let Some(sums) = &self.sums {
            keep_carried(&mut to, "votes", sums);
        }
        if let Some(gone) = &self.gone {
            keep_sums(&mut to.contents, "gone", gone);
        }
        to.finish()
    }

    /// Reads what [`Nested::to_file`] wrote, to resume with `params`. The error says what is wrong.
    pub(super) fn of_file(params: NestedParams, contents: &Contents) -> Result<Self, String> {
        let state = Self::of_whole(params, NESTED_STATE, contents)?;
        if state.fed { Ok(state) } else { Err("its rows are missing".into()) }
    }

    /// Reads what [`Nested::to_checkpoint`] wrote.
    pub(super) fn of_checkpoint(params: NestedParams, contents: &Contents) -> Result<Self, String> {
        Self::of_whole(params, NESTED_CHECKPOINT, contents)
    }

    fn of_whole(params: NestedParams, kind: &str, contents: &Contents) -> Result<Self, String> {
        contents.must_be(kind)?;
        let from = StateReader::new(contents)?;
        let mut state = Self::plan(params);
        state.get_fields(&from)?;
        // A stream state written before the first rows has `fed` unset.
        state.fed |= kind == NESTED_STATE;
        state.params.rng_seed = from.seed()?;
        state.known_as = Some(from.get("bounds")?);
        let dim = state.dim;
        state.centers = from.finite_matrix("centers", dim)?;
        state.kept.rows = from.rows("rows", dim)?;
        let k = state.centers.len() / dim.max(1);
        let labels: Vec<u32> = from.get("labels")?;
        if !labels.iter().all(|&j| (j as usize) < k || j == NO_LABEL) {
            return Err("its \"labels\" do not belong to its \"rows\"".into());
        }
        state.labels = Labels::of(LabelList::of(labels, state.params.n_clusters));
        if k == 0 && contents.arrays.contains_key("given") {
            state.params.seeding = Seeding::Given(from.get("given")?);
        }
        state.sums = carried_of(&from, "votes", k, dim)?;
        state.gone = sums_of(contents, "gone", k, dim)?;
        state.validate(k)?;
        state.carry = state.carry && state.sums.is_some() && !state.labels.are_missing();
        Ok(state)
    }

    /// Returns an error for parts that do not match each other or `k` centers.
    fn validate(&self, k: usize) -> Result<(), String> {
        let (rows, weights, batch) = (&self.kept.rows, &self.kept.weights, self.batch());
        if !(rows.values.iter().all(|x| x.finite()) && are_weights(weights)) {
            return Err("it holds values that are not finite, or negative weights".into());
        }
        if !weights.is_empty() && weights.len() != rows.len() {
            return Err("its \"row_weights\" do not belong to its \"rows\"".into());
        }
        if self.fed && (batch > rows.len() || self.due > rows.len() as u64) {
            return Err("its \"labels\" do not belong to its \"rows\"".into());
        }
        let ascending = self.rows.is_sorted_by(|a, b| a < b);
        if !(self.rows.is_empty() || (ascending && !self.fed && self.rows.len() == batch)) {
            return Err("its \"places\" do not belong to its \"labels\"".into());
        }
        if k > 0 && (k != self.params.n_clusters || self.weights.len() > k) {
            return Err(format!("it holds {k} centers, but n_clusters={}", self.params.n_clusters));
        }
        let centers = MatRef::new(&self.centers, self.dim.max(1));
        let (votes, gone) = (self.sums.as_ref().map(Carried::clusters), &self.gone);
        if votes.is_some_and(|votes| !votes.have_means_at(centers, self.params.metric == Metric::Cosine)) {
            return Err("its \"votes\" do not match its \"centers\"".into());
        }
        if gone.as_ref().is_some_and(|gone| !gone.have_errors_about(centers)) {
            return Err("its \"gone\" are not sums of rows".into());
        }
        if let (Some(votes), Some(gone)) = (votes, gone) {
            let less = |(votes, gone): (&f64, &f64)| *votes < gone * (1.0 - 1e-9);
            if votes.weights().iter().zip(gone.weights()).any(less) {
                return Err("its \"votes\" are fewer than its \"gone\"".into());
            }
        }
        Ok(())
    }
}
