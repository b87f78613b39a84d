//! Writes a variance-reduced fit to a checkpoint and reads it back. Bounds are not stored; they are rebuilt.

use serde_json::json;

use super::{VarianceReducedParams, VarianceReducedSolver};
use crate::centers::{LabelList, NO_LABEL};
use crate::fit::{stored_timings, timings_of};
use crate::kernel::Compute;
use crate::kmeans::labels::Labels;
use crate::kmeans::params::Algorithm;
use crate::kmeans::state::{carried_of, check_carried, keep_carried};
use crate::matrix::MatRef;
use crate::persist::kept::{bits, count, figure, flag, keep, list, number, rows, stored_rows, text};
use crate::persist::schema::VARIANCE_REDUCED_CHECKPOINT;
use crate::persist::{Array, Contents};

impl<T: Compute> VarianceReducedSolver<T> {
    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new(VARIANCE_REDUCED_CHECKPOINT);
        let (labels, cols) = (self.labels.of_rows.view().to_vec(), self.dim.max(1));
        keep(&mut contents, "centers", stored_rows(&self.centers, cols));
        keep(&mut contents, "means", stored_rows(&self.means, cols));
        keep(&mut contents, "labels", Array::new(&[labels.len()], &labels));
        keep(&mut contents, "weights", Array::new(&[self.weights.len()], &self.weights));
        if let Some(carried) = &self.carried {
            keep_carried(&mut contents, "carried", carried);
        }
        // Floats are stored as bits, so that a resumed fit is bit-identical.
        let numbers = json!({
            "dim": self.dim,
            "seed": self.params.rng_seed,
            "energy": self.energy.to_bits(),
            "algorithm": self.choice.algorithm.name(),
            "changed": self.choice.changed,
            "unbounded_until": self.choice.unbounded_until,
            "cost_factor": self.choice.cost_factor.to_bits(),
            "blurred": self.choice.blurred,
            "rate": self.rate.map(f64::to_bits),
            "stalled": self.stalled,
            "settled": self.settled,
            "iteration": self.iteration,
            "rows_seen": self.rows_seen,
            "seeded_by": self.seeded_by,
            "timings": stored_timings(self.timings),
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
    }

    /// Reads what [`VarianceReducedSolver::to_file`] wrote, to resume with `params`. The error says what is
    /// wrong.
    pub(super) fn of_file(mut params: VarianceReducedParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(VARIANCE_REDUCED_CHECKPOINT)?;
        let numbers = contents.object("state")?;
        params.rng_seed = bits(&numbers, "seed")?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "its \"dim\" is too large")?;
        let centers: Vec<T> = rows(contents, "centers", dim)?;
        let means: Vec<T> = rows(contents, "means", dim)?;
        let k = centers.len() / dim.max(1);
        if k != params.n_clusters {
            return Err(format!("it holds {k} centers, but n_clusters={}", params.n_clusters));
        }
        let iteration = count(&numbers, "iteration")?;
        // Before the first epoch there are centers, but no means, labels, weights and energy.
        let new = iteration == 0;
        if means.len() != if new { 0 } else { centers.len() }
            || !centers.iter().chain(&means).all(|x| x.finite())
        {
            return Err("it holds centers that are not finite, or too few".into());
        }
        let of_rows: Vec<u32> = list(contents, "labels")?;
        if !of_rows.iter().all(|&j| if new { j == NO_LABEL } else { (j as usize) < k && j != NO_LABEL }) {
            return Err("its \"labels\" do not match its \"centers\"".into());
        }
        let weights: Vec<f64> = list(contents, "weights")?;
        if weights.len() != if new { 0 } else { k } || !weights.iter().all(|w| w.is_finite() && *w >= 0.0) {
            return Err("its \"weights\" do not match its \"centers\"".into());
        }
        let energy = number(&numbers, "energy")?;
        if !(new || energy.is_finite()) {
            return Err(format!("its \"energy\" is {energy}"));
        }
        let carried = carried_of(contents, "carried", k, dim)?;
        if let Some(carried) = &carried {
            if new {
                return Err("it carries sums, but has no labels".into());
            }
            check_carried(carried, &of_rows, MatRef::new(&means, dim), params.metric)?;
        }
        let rate = figure(&numbers, "rate")?;
        if !rate.map_or(new, |rate| (0.0..=1.0).contains(&rate)) {
            return Err("its \"rate\" does not lie within [0, 1]".into());
        }
        let labels = Labels::of(LabelList::of(of_rows, k));
        let algorithm = text(&numbers, "algorithm")?.parse::<Algorithm>();
        let mut state = Self::plan(params);
        state.choice.algorithm = algorithm.map_err(|_| "its \"algorithm\" is unknown")?;
        state.choice.changed = count(&numbers, "changed")?;
        state.choice.unbounded_until = count(&numbers, "unbounded_until")?;
        state.choice.blurred = flag(&numbers, "blurred")?;
        state.choice.cost_factor = number(&numbers, "cost_factor")?;
        if !(state.choice.cost_factor >= 1.0 && state.choice.cost_factor.is_finite()) {
            return Err("its \"cost_factor\" must be finite and at least 1".into());
        }
        Ok(Self {
            dim,
            centers,
            means,
            labels,
            weights,
            energy,
            carried,
            rate,
            stalled: count(&numbers, "stalled")?,
            settled: flag(&numbers, "settled")?,
            iteration,
            rows_seen: count(&numbers, "rows_seen")?,
            seeded_by: text(&numbers, "seeded_by")?,
            timings: timings_of(&numbers)?,
            ..state
        })
    }
}
