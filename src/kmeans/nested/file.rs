//! Writes the state of nested mini-batch k-means to a file and reads it back.

use serde_json::json;

use super::stream::Kept;
use super::{Bounds, Nested, NestedParams};
use crate::centers::{LabelList, NO_LABEL};
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::kmeans::labels::{Carried, Labels};
use crate::kmeans::state::{carried_of, keep_carried, keep_sums, sums_of};
use crate::matrix::MatRef;
use crate::persist::kept::{
    bits, count, figure, flag, keep, keep_rows, kept_rows, list, number, rows, stored_rows, text,
};
use crate::persist::schema::{NESTED_CHECKPOINT, NESTED_STATE};
use crate::persist::{Array, Contents};
use crate::seeding::Seeding;

impl<T: Compute> Nested<T> {
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
        let mut contents = Contents::new(kind);
        let cols = self.dim.max(1);
        keep(&mut contents, "centers", stored_rows(&self.centers, cols));
        keep_rows(&mut contents, "rows", &self.kept.rows);
        keep(&mut contents, "row_weights", Array::new(&[self.kept.weights.len()], &self.kept.weights));
        keep(&mut contents, "labels", Array::new(&[self.batch()], &self.labels.of_rows.view().to_vec()));
        keep(&mut contents, "weights", Array::new(&[self.weights.len()], &self.weights));
        if let (true, Seeding::Given(centers)) = (self.centers.is_empty(), &self.params.seeding) {
            keep(&mut contents, "given", Array::new(&[centers.len()], centers));
        }
        keep(&mut contents, "places", Array::new(&[self.rows.len()], &self.rows));
        if let Some(sums) = &self.sums {
            keep_carried(&mut contents, "votes", sums);
        }
        if let Some(gone) = &self.gone {
            keep_sums(&mut contents, "gone", gone);
        }
        // Floats are stored as bits, so that a resumed fit is bit-identical.
        let numbers = json!({
            "dim": self.dim,
            "due": self.due,
            "fed": self.fed,
            "carry": self.carry,
            "voted": self.voted,
            "retired": self.retired,
            "energy": self.energy.to_bits(),
            "exact": self.exact,
            "current": self.current,
            "bounds": self.snapshot().algorithm,
            "changed": self.changed,
            "lowest": self.lowest.to_bits(),
            "stalled": self.stalled,
            "threshold": self.threshold.map(f64::to_bits),
            "iteration": self.iteration,
            "rows_seen": self.rows_seen,
            "seed": self.params.rng_seed,
            "seeded_by": self.seeded_by,
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
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
        let numbers = contents.object("state")?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "its \"dim\" is too large")?;
        let mut state = Self::plan(params);
        state.dim = dim;
        // A stream state written before the first rows has `fed` unset.
        state.fed = flag(&numbers, "fed")? || kind == NESTED_STATE;
        state.params.rng_seed = bits(&numbers, "seed")?;
        state.centers = rows(contents, "centers", dim)?;
        state.kept =
            Kept { rows: kept_rows(contents, "rows", dim)?, weights: list(contents, "row_weights")? };
        let labels: Vec<u32> = list(contents, "labels")?;
        state.rows = list(contents, "places")?;
        state.weights = list(contents, "weights")?;
        let (k, kept) = (state.centers.len() / dim.max(1), state.kept.rows.len());
        let finite = |values: &[T]| values.iter().all(|x| x.finite());
        let sound = |values: &[f64]| values.iter().all(|x| x.is_finite() && *x >= 0.0);
        if !(finite(&state.centers) && finite(&state.kept.rows.values) && sound(&state.kept.weights)) {
            return Err("it holds values that are not finite, or negative weights".into());
        }
        if !state.kept.weights.is_empty() && state.kept.weights.len() != kept {
            return Err("its \"row_weights\" do not belong to its \"rows\"".into());
        }
        state.due = count(&numbers, "due")?;
        let known = labels.iter().all(|&j| (j as usize) < k || j == NO_LABEL);
        state.labels = Labels::of(LabelList::of(labels, state.params.n_clusters));
        let too_many = state.fed && (state.batch() > kept || state.due > kept as u64);
        if too_many || !known {
            return Err("its \"labels\" do not belong to its \"rows\"".into());
        }
        let ascending = state.rows.is_sorted_by(|a, b| a < b);
        if !(state.rows.is_empty() || (ascending && !state.fed && state.rows.len() == state.batch())) {
            return Err("its \"places\" do not belong to its \"labels\"".into());
        }
        if k == 0 {
            if contents.arrays.contains_key("given") {
                state.params.seeding = Seeding::Given(list(contents, "given")?);
            }
        } else if k != state.params.n_clusters || state.weights.len() > k {
            return Err(format!("it holds {k} centers, but n_clusters={}", state.params.n_clusters));
        }
        state.sums = carried_of(contents, "votes", k, dim)?;
        state.gone = sums_of(contents, "gone", k, dim)?;
        let centers = MatRef::new(&state.centers, dim.max(1));
        let (votes, gone) = (state.sums.as_ref().map(Carried::clusters), &state.gone);
        if votes.is_some_and(|votes| !votes.have_means_at(centers, state.params.metric == Metric::Cosine)) {
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
        let unlabeled = state.labels.are_missing();
        state.carry = flag(&numbers, "carry")? && state.sums.is_some() && !unlabeled;
        (state.exact, state.current) = (flag(&numbers, "exact")?, flag(&numbers, "current")?);
        state.energy = number(&numbers, "energy")?;
        let known_as: Bounds = text(&numbers, "bounds")?.parse().map_err(|_| "its \"bounds\" are unknown")?;
        state.known_as = Some(known_as);
        state.voted = count(&numbers, "voted")?;
        state.retired = count(&numbers, "retired")?;
        state.changed = count(&numbers, "changed")?;
        state.lowest = number(&numbers, "lowest")?;
        state.stalled = count(&numbers, "stalled")?;
        state.threshold = figure(&numbers, "threshold")?;
        state.iteration = count(&numbers, "iteration")?;
        state.rows_seen = count(&numbers, "rows_seen")?;
        state.seeded_by = text(&numbers, "seeded_by")?;
        Ok(state)
    }
}
