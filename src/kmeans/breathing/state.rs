//! Writes a fit by breathing k-means to a checkpoint and reads it back.

use super::params::BreathingParams;
use super::solver::{BreathPhase, BreathingSolver};
use crate::fit::{SolverState, Timings};
use crate::kernel::Compute;
use crate::kmeans::blocks::Shared;
use crate::kmeans::lloyd::solver::Lloyd;
use crate::persist::Contents;
use crate::persist::schema::BREATHING_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter, stored_fields};

impl<T: Compute> SolverState for BreathingSolver<T> {
    type Params = BreathingParams;

    fn plan(params: &BreathingParams) -> Self {
        Self {
            plan: Lloyd::plan(params.run_of(params.n_clusters)),
            current: None,
            phase: BreathPhase::Start,
            best: None,
            m: params.m,
            breaths: 0,
            failures: 0,
            start_inertia: f64::NAN,
            threshold: f64::NAN,
            ended: None,
            iteration: 0,
            rows_seen: 0,
            seeded_by: String::new(),
            timings: Timings::default(),
            shared: Shared::default(),
            params: params.clone(),
        }
    }

    fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new(BREATHING_CHECKPOINT);
        self.put_fields(&mut to);
        to.put_value("seed", self.params.rng_seed);
        to.put_value("centers", self.current.as_ref().map(Lloyd::n_clusters));
        for (name, run) in [("current", &self.current), ("best", &self.best)] {
            if let Some(run) = run {
                to.contents.put(name, run.checkpoint(usize::MAX));
            }
        }
        to.finish()
    }

    fn restore(params: &BreathingParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(BREATHING_CHECKPOINT)?;
        let from = StateReader::new(contents)?;
        let mut state = Self::plan(&params.clone().rng_seed(from.seed()?));
        state.get_fields(&from)?;
        let (k, m) = (state.params.n_clusters, state.m);
        if m > state.params.m {
            return Err(format!("its \"m\" is {m}, but m={}", state.params.m));
        }
        let run = |name: &str, k: usize| {
            contents.part(name).map(|part| Lloyd::restore(state.params.run_of(k), &part)).transpose()
        };
        (state.current, state.best) = if contents.part("current").is_some() {
            let centers = from.get("centers")?;
            let of_phase = if state.phase == BreathPhase::In { k + 1..=k + m } else { k..=k };
            if !of_phase.contains(&centers) {
                return Err(format!("it holds {centers} centers, but n_clusters={k}"));
            }
            (run("current", centers)?, run("best", k)?)
        } else {
            (None, run("best", k)?)
        };
        state.validate()?;
        Ok(state.sharing())
    }

    fn fits(&self, n: Option<u64>) -> bool {
        let runs = [&self.best, &self.current].into_iter().flatten();
        n.is_none_or(|n| runs.into_iter().all(|run| run.rows() as u64 == n))
    }
}

impl<T: Compute> BreathingSolver<T> {
    stored_fields! {
        phase, m, breaths, failures, start_inertia, threshold, ended, iteration, rows_seen, seeded_by, timings,
    }

    /// Returns an error for runs that do not match the phase or each other.
    fn validate(&self) -> Result<(), String> {
        let Self { current, best, phase, threshold, .. } = self;
        if best.as_ref().is_some_and(|best| !best.is_finished()) {
            return Err("its best clustering is not finished".into());
        }
        let known = best.is_some() && *threshold >= 0.0 && threshold.is_finite();
        let consistent = match phase {
            BreathPhase::Start => best.is_none() && current.is_some(),
            BreathPhase::In | BreathPhase::Out => known && current.is_some(),
            BreathPhase::Last => known,
        };
        if !consistent {
            return Err(format!("its runs do not match its \"phase\", {:?}", phase.name()));
        }
        if let (Some(best), Some(run)) = (best, current)
            && (best.dim() != run.dim() || best.rows() != run.rows())
        {
            return Err("its runs are of different rows".into());
        }
        if self.ended.is_some() && current.is_none() {
            return Err("it holds a step, but no centers".into());
        }
        Ok(())
    }
}
