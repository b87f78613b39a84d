//! Writes the state of nested mini-batch k-means to a file and reads it back.

use super::super::labels::NOTED_ROWS;
use super::kept::Kept;
use super::members::Members;
use super::params::NestedParams;
use super::solver::Nested;
use crate::fit::{FitSolver, Metric, SolverState, Timings};
use crate::kernel::Compute;
use crate::kmeans::labels::{Carried, Labels};
use crate::kmeans::stored_sums::{carried_of, keep_carried, keep_sums, sums_of};
use crate::matrix::MatRef;
use crate::persist::Contents;
use crate::persist::schema::{NESTED_CHECKPOINT, NESTED_STATE};
use crate::persist::state::{StateReader, StateWriter, are_weights, stored_fields};
use crate::seeding::Seeding;

impl<T: Compute> Nested<T> {
    stored_fields! {
        dim, due, fed, carry, voted, retired, weights, row_weights = kept.weights, energy, exact, current,
        changed, lowest, stalled, threshold, iteration, rows_seen, seeded_by,
    }

    /// Everything that the next sweep depends on, except the rows of a fit.
    pub(super) fn write(&self, kind: &str) -> Contents {
        let mut to = StateWriter::new(kind);
        self.put_fields(&mut to);
        to.put_value("seed", self.params.rng_seed);
        to.put_value("bounds", self.snapshot().algorithm);
        to.put_matrix("centers", &self.centers, self.dim);
        to.put_rows("rows", &self.kept.rows);
        // The rows of a stream are stored, so its labels are few.
        if !self.labels.put(&mut to, if self.fed { usize::MAX } else { NOTED_ROWS }) {
            to.put_matrix("labeled_by", &self.labeled_by, self.dim);
        }
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

    /// Reads what [`Nested::write`] wrote, to resume with `params`. The error says what is wrong.
    pub(super) fn restore_from(
        params: &NestedParams,
        kind: &str,
        contents: &Contents,
    ) -> Result<Self, String> {
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
        state.labels = Labels::get(&from, k, state.params.n_clusters)?;
        if state.labels.are_lost() {
            state.labeled_by = from.finite_matrix("labeled_by", dim)?;
        }
        if k == 0 && contents.arrays.contains_key("given") {
            state.params.seeding = Seeding::Given(from.get("given")?);
        }
        state.sums = carried_of(&from, "votes", k, dim)?;
        state.gone = sums_of(contents, "gone", k, dim)?;
        state.validate(k)?;
        state.carry = state.carry && state.sums.is_some() && !state.labels.of_rows.view().are_missing().0;
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
        // A failed sweep may have admitted rows.
        if !(self.fed || batch as u64 == self.voted || batch as u64 == self.due) {
            return Err("its \"labels\" are not those of its batch".into());
        }
        let voted = self.fed || (1..=batch as u64).contains(&self.voted);
        // Before the first sweep, no row has a label.
        let none = self.voted == 0 && self.labeled_by.is_empty() && self.sums.is_none();
        if self.labels.are_lost() && !none && !(voted && self.labeled_by.len() == k * self.dim) {
            return Err("its \"labeled_by\" do not belong to its \"centers\"".into());
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

impl<T: Compute> SolverState for Nested<T> {
    type Params = NestedParams;

    fn plan(params: &NestedParams) -> Self {
        let k = params.n_clusters;
        Self {
            params: params.clone(),
            dim: 0,
            centers: Vec::new(),
            labels: Labels::new(0, k),
            labeled_by: Vec::new(),
            rows: Members::First,
            due: 0,
            sums: None,
            carry: false,
            voted: 0,
            fed: false,
            kept: Kept::default(),
            gone: None,
            retired: 0,
            weights: Vec::new(),
            energy: f64::NAN,
            lowest: f64::INFINITY,
            stalled: 0,
            exact: false,
            current: false,
            changed: 0,
            threshold: None,
            iteration: 0,
            rows_seen: 0,
            known_as: None,
            finished: None,
            seeded_by: String::new(),
            timings: Timings::default(),
        }
    }

    fn checkpoint(&self) -> Contents {
        self.write(NESTED_CHECKPOINT)
    }

    fn restore(params: &NestedParams, contents: &Contents) -> Result<Self, String> {
        Self::restore_from(params, NESTED_CHECKPOINT, contents)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        let (batch, n) = (self.batch() as u64, n.unwrap_or(u64::MAX));
        !self.fed && batch <= n && self.due <= n
    }
}
