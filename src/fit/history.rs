//! Writes the steps of a run to a checkpoint and reads them back.

use serde_json::{Value, json};

use super::{Step, StopReason};
use crate::error::Error;
use crate::persist::kept::{keep, matrix};
use crate::persist::state::{Field, StateReader, StateWriter};
use crate::persist::{Array, Contents};

/// Reads a stop reason from its name; `None` if there is no text.
pub(super) fn stop_reason_of(stored: Option<&Value>) -> Result<Option<StopReason>, String> {
    let name = stored.and_then(Value::as_str);
    name.map(str::parse).transpose().map_err(|e: Error| e.to_string())
}

/// A step as JSON, with its real numbers as bits; `None` as `null`.
impl Field for Option<Step> {
    fn put(&self, name: &str, to: &mut StateWriter) {
        let stored = self.as_ref().map(|step| {
            let counts = [step.iteration, step.rows_seen, step.batch_size, step.n_changed, step.n_distances];
            let figures = [step.objective, step.center_shift, step.elapsed].map(f64::to_bits);
            json!({ "counts": counts, "figures": figures, "stop_reason": step.stop_reason.map(StopReason::name) })
        });
        to.put_value(name, stored);
    }

    fn get(name: &str, from: &StateReader<'_>) -> Result<Self, String> {
        let Some(stored) = from.value(name) else { return Ok(None) };
        let number = |list: &str, at: usize| {
            let found = stored.get(list).and_then(|all| all.get(at)).and_then(Value::as_u64);
            found.ok_or_else(|| format!("a step has no {list}"))
        };
        let counts = |at| number("counts", at);
        let figures = |at| number("figures", at).map(f64::from_bits);
        Ok(Some(Step {
            iteration: counts(0)?,
            rows_seen: counts(1)?,
            batch_size: counts(2)?,
            n_changed: counts(3)?,
            n_distances: counts(4)?,
            objective: figures(0)?,
            center_shift: figures(1)?,
            elapsed: figures(2)?,
            stop_reason: stop_reason_of(stored.get("stop_reason"))?,
        }))
    }
}

/// Writes steps as two arrays: whole numbers and real numbers.
pub(crate) fn keep_history(contents: &mut Contents, steps: &[Step]) {
    let counts: Vec<u64> = steps
        .iter()
        .flat_map(|s| [s.iteration, s.rows_seen, s.batch_size, s.n_changed, s.n_distances])
        .collect();
    let figures: Vec<f64> = steps.iter().flat_map(|s| [s.objective, s.center_shift, s.elapsed]).collect();
    keep(contents, "history_counts", Array::new(&[steps.len(), 5], &counts));
    keep(contents, "history_figures", Array::new(&[steps.len(), 3], &figures));
}

/// Reads what [`keep_history`] wrote; the last step gets the stop reason `reason`.
pub(crate) fn history_of(contents: &Contents, reason: Option<StopReason>) -> Result<Vec<Step>, String> {
    let counts: Vec<u64> = matrix(contents, "history_counts", 5)?;
    let figures: Vec<f64> = matrix(contents, "history_figures", 3)?;
    if counts.len() / 5 != figures.len() / 3
        || !figures.iter().skip(2).step_by(3).all(|&elapsed| elapsed >= 0.0)
    {
        return Err("its history is inconsistent".into());
    }
    let mut steps: Vec<Step> = counts
        .as_chunks::<5>()
        .0
        .iter()
        .zip(figures.as_chunks::<3>().0)
        .map(|(counts, figures)| Step {
            iteration: counts[0],
            rows_seen: counts[1],
            batch_size: counts[2],
            n_changed: counts[3],
            n_distances: counts[4],
            objective: figures[0],
            center_shift: figures[1],
            elapsed: figures[2],
            stop_reason: None,
        })
        .collect();
    if let Some(last) = steps.last_mut() {
        last.stop_reason = reason;
    }
    Ok(steps)
}
