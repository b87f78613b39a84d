//! Writes a fit by breathing k-means to a checkpoint and reads it back.

use serde_json::json;

use super::BreathingParams;
use super::solver::{BreathingSolver, Phase};
use crate::error::Error;
use crate::fit::{step_of, stored_step, stored_timings, timings_of};
use crate::kernel::Compute;
use crate::kmeans::lloyd::Lloyd;
use crate::persist::Contents;
use crate::persist::kept::{bits, count, number, text};
use crate::persist::schema::BREATHING_CHECKPOINT;

impl<T: Compute> BreathingSolver<T> {
    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new(BREATHING_CHECKPOINT);
        // Floats are stored as bits, so that a resumed fit is bit-identical.
        let numbers = json!({
            "seed": self.params.rng_seed,
            "phase": self.phase.name(),
            "centers": self.current.as_ref().map(Lloyd::n_clusters),
            "m": self.m,
            "breaths": self.breaths,
            "failures": self.failures,
            "start_inertia": self.start_inertia.to_bits(),
            "threshold": self.threshold.to_bits(),
            "ended": self.ended.as_ref().map(stored_step),
            "iteration": self.iteration,
            "rows_seen": self.rows_seen,
            "seeded_by": self.seeded_by,
            "timings": stored_timings(self.timings),
        });
        contents.meta.insert("state".into(), numbers.to_string());
        for (name, run) in [("current", &self.current), ("best", &self.best)] {
            if let Some(run) = run {
                contents.put(name, run.to_file());
            }
        }
        contents
    }

    /// Reads what [`BreathingSolver::to_file`] wrote, to resume with `params`. The error says what is wrong.
    pub(super) fn of_file(mut params: BreathingParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(BREATHING_CHECKPOINT)?;
        let numbers = contents.object("state")?;
        params.rng_seed = bits(&numbers, "seed")?;
        let phase: Phase = text(&numbers, "phase")?.parse().map_err(|e: Error| e.to_string())?;
        let m = count(&numbers, "m")?;
        if m > params.m as u64 {
            return Err(format!("its \"m\" is {m}, but m={}", params.m));
        }
        let m = m as usize;
        let (k, most) = (params.n_clusters, params.n_clusters + m);
        let run = |name: &str, k: usize| {
            contents.part(name).map(|part| Lloyd::of_file(params.run_of(k), &part)).transpose()
        };
        let current = if contents.part("current").is_some() {
            let centers = count(&numbers, "centers")?;
            let of_phase = if phase == Phase::In { k as u64 + 1..=most as u64 } else { k as u64..=k as u64 };
            if !of_phase.contains(&centers) {
                return Err(format!("it holds {centers} centers, but n_clusters={k}"));
            }
            run("current", centers as usize)?
        } else {
            None
        };
        let best: Option<Lloyd<T>> = run("best", k)?;
        if best.as_ref().is_some_and(|best| !best.is_finished()) {
            return Err("its best clustering is not finished".into());
        }
        let threshold = number(&numbers, "threshold")?;
        let known = best.is_some() && threshold >= 0.0 && threshold.is_finite();
        let consistent = match phase {
            Phase::Start => best.is_none() && current.is_some(),
            Phase::In | Phase::Out => known && current.is_some(),
            Phase::Last => known,
        };
        if !consistent {
            return Err(format!("its runs do not match its \"phase\", {:?}", phase.name()));
        }
        if let (Some(best), Some(run)) = (&best, &current)
            && (best.dim() != run.dim() || best.labels().len() != run.labels().len())
        {
            return Err("its runs are of different rows".into());
        }
        let ended = numbers.get("ended").filter(|ended| !ended.is_null()).map(step_of).transpose()?;
        if ended.is_some() && current.is_none() {
            return Err("it holds a step, but no centers".into());
        }
        Ok(Self {
            current,
            phase,
            best,
            m,
            breaths: count(&numbers, "breaths")?,
            failures: count(&numbers, "failures")?,
            start_inertia: number(&numbers, "start_inertia")?,
            threshold,
            ended,
            iteration: count(&numbers, "iteration")?,
            rows_seen: count(&numbers, "rows_seen")?,
            seeded_by: text(&numbers, "seeded_by")?,
            timings: timings_of(&numbers)?,
            ..Self::plan(params)
        }
        .sharing())
    }
}
