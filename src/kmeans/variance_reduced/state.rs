//! Writes a variance-reduced fit to a checkpoint and reads it back. Bounds are not stored; they are rebuilt.

use super::params::VarianceReducedParams;
use super::solver::VarianceReducedSolver;
use crate::centers::{LabelList, NO_LABEL};
use crate::fit::{SolverState, Timings};
use crate::kernel::Compute;
use crate::kmeans::choice::Choice;
use crate::kmeans::labels::Labels;
use crate::kmeans::lloyd::params::Algorithm;
use crate::kmeans::stored_sums::{carried_of, check_carried, keep_carried};
use crate::matrix::MatRef;
use crate::persist::Contents;
use crate::persist::schema::VARIANCE_REDUCED_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter, are_weights, stored_fields};

impl<T: Compute> VarianceReducedSolver<T> {
    stored_fields! {
        dim, weights, energy, rate, stalled, settled, iteration, rows_seen, seeded_by, timings,
    }

    /// Returns an error for parts that do not match each other or `labels`.
    fn validate(&self, labels: &[u32]) -> Result<(), String> {
        // Before the first epoch there are centers, but no means, labels, weights and energy.
        let new = self.iteration == 0;
        let k = if new { 0 } else { self.params.n_clusters };
        if self.means.len() != k * self.dim {
            return Err("its \"means\" do not match its \"centers\"".into());
        }
        if !labels.iter().all(|&j| if new { j == NO_LABEL } else { (j as usize) < k }) {
            return Err("its \"labels\" do not match its \"centers\"".into());
        }
        if self.weights.len() != k || !are_weights(&self.weights) {
            return Err("its \"weights\" do not match its \"centers\"".into());
        }
        if !(new || self.energy.is_finite()) {
            return Err(format!("its \"energy\" is {}", self.energy));
        }
        if let Some(carried) = &self.carried {
            if new {
                return Err("it carries sums, but has no labels".into());
            }
            check_carried(
                carried,
                Some(labels.into()),
                MatRef::new(&self.means, self.dim),
                self.params.metric,
            )?;
        }
        if !self.rate.map_or(new, |rate| (0.0..=1.0).contains(&rate)) {
            return Err("its \"rate\" does not lie within [0, 1]".into());
        }
        Ok(())
    }
}

impl<T: Compute> SolverState for VarianceReducedSolver<T> {
    type Params = VarianceReducedParams;

    fn plan(params: &VarianceReducedParams) -> Self {
        Self {
            // Bounds also serve the steps between sweeps, so they pay in any fit.
            choice: Choice::new(Algorithm::Auto, params.bounds_memory, u64::MAX),
            params: params.clone(),
            dim: 0,
            centers: Vec::new(),
            means: Vec::new(),
            labels: Labels::new(0, 1),
            weights: Vec::new(),
            energy: f64::NAN,
            carried: None,
            rate: None,
            stalled: 0,
            settled: false,
            iteration: 0,
            rows_seen: 0,
            seeded_by: String::new(),
            timings: Timings::default(),
            finished: None,
        }
    }

    fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new(VARIANCE_REDUCED_CHECKPOINT);
        self.put_fields(&mut to);
        self.choice.put_fields(&mut to);
        to.put_value("seed", self.params.rng_seed);
        to.put_matrix("centers", &self.centers, self.dim);
        to.put_matrix("means", &self.means, self.dim);
        to.put("labels", &self.labels.of_rows.view().to_vec());
        if let Some(carried) = &self.carried {
            keep_carried(&mut to, "carried", carried);
        }
        to.finish()
    }

    fn restore(params: &VarianceReducedParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(VARIANCE_REDUCED_CHECKPOINT)?;
        let from = StateReader::new(contents)?;
        let mut state = Self::plan(params);
        state.params.rng_seed = from.seed()?;
        state.get_fields(&from)?;
        state.choice.restore(&from)?;
        let (k, dim) = (state.params.n_clusters, state.dim);
        state.centers = from.centers("centers", k, dim)?;
        state.means = from.finite_matrix("means", dim)?;
        state.carried = carried_of(&from, "carried", k, dim)?;
        let labels: Vec<u32> = from.get("labels")?;
        state.validate(&labels)?;
        state.labels = Labels::of(LabelList::of(labels, k)).always_noted();
        Ok(state)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        n.is_none_or(|n| self.labels.of_rows.len() as u64 == n)
    }
}
