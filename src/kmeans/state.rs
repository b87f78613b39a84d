//! This module knows how what a method keeps between two steps becomes arrays and texts, and comes back.

use serde_json::{Map, Value, json};

use super::labels::Carried;
use super::lloyd::Timings;
use super::params::Metric;
use crate::data::Dtype;
use crate::kernel::Compute;
use crate::matrix::MatRef;
pub(super) use crate::persist::kept::{
    count, figure, flag, keep, keep_rows, kept_rows, list, matrix, number, rows, stored_rows, text,
};
use crate::persist::{Array, Contents};
use crate::solver::{Step, StopReason};
use crate::stats::ClusterSums;

/// Whether a state is one of rows that are computed in `f64`.
pub(super) fn is_wide(contents: &Contents) -> Result<bool, String> {
    Ok(contents.array("centers")?.dtype() == Dtype::F64)
}

pub(super) fn keep_sums(contents: &mut Contents, prefix: &str, sums: &ClusterSums) {
    for (name, values) in sums.parts() {
        keep(contents, &format!("{prefix}_{name}"), Array::new(&[values.len()], values));
    }
}

/// What [`keep_sums`] kept, if it did.
pub(super) fn sums_of(
    contents: &Contents,
    prefix: &str,
    k: usize,
    dim: usize,
) -> Result<Option<ClusterSums>, String> {
    if !contents.arrays.contains_key(&format!("{prefix}_weights")) {
        return Ok(None);
    }
    let part = |name: &str| {
        let values: Vec<f64> = list(contents, &format!("{prefix}_{name}"))?;
        if values.iter().all(|x| x.is_finite()) {
            Ok(values)
        } else {
            Err(format!("its {prefix:?} are not finite"))
        }
    };
    let parts = [part("sums")?, part("lows")?, part("weights")?, part("squares")?, part("energies")?];
    if parts[2].len() != k || parts[2].iter().any(|&w| w < 0.0) {
        return Err(format!("its {prefix:?} are not those of {k} clusters"));
    }
    ClusterSums::of_parts(dim, parts).map(Some).ok_or_else(|| format!("its {prefix:?} do not fit together"))
}

/// As [`keep_sums`], with how old they are.
pub(super) fn keep_carried(contents: &mut Contents, prefix: &str, carried: &Carried) {
    keep_sums(contents, prefix, carried.clusters());
    let (age, energy_afresh) = carried.age();
    let numbers = json!({ "age": age, "energy_afresh": energy_afresh.to_bits() });
    contents.meta.insert(prefix.into(), numbers.to_string());
}

/// What [`keep_carried`] kept, if it did.
pub(super) fn carried_of(
    contents: &Contents,
    prefix: &str,
    k: usize,
    dim: usize,
) -> Result<Option<Carried>, String> {
    let Some(sums) = sums_of(contents, prefix, k, dim)? else { return Ok(None) };
    let numbers = contents.object(prefix)?;
    let age = u32::try_from(count(&numbers, "age")?).map_err(|_| "its \"age\" is too large")?;
    Ok(Some(Carried::of(sums, age, number(&numbers, "energy_afresh")?)))
}

/// Refuses carried sums that contradict the labels (every row has weight 1) or the means.
pub(super) fn check_carried<T: Compute>(
    carried: &Carried,
    labels: &[u32],
    means: MatRef<'_, T>,
    metric: Metric,
) -> Result<(), String> {
    let clusters = carried.clusters();
    let mut counts = vec![0.0; means.rows()];
    for &j in labels {
        counts[j as usize] += 1.0;
    }
    if clusters.weights() != counts {
        return Err("its \"carried_weights\" are not those of its \"labels\"".into());
    }
    if !clusters.have_means_at(means, metric == Metric::Cosine) {
        return Err("its \"carried_sums\" do not give its centers".into());
    }
    Ok(())
}

/// Seconds by phase.
pub(crate) fn stored_timings(timings: Timings) -> Value {
    json!([timings.seeding, timings.sweeps, timings.finish])
}

/// What [`stored_timings`] gave.
pub(crate) fn timings_of(object: &Map<String, Value>) -> Result<Timings, String> {
    let seconds = |at: usize| {
        let found = object.get("timings").and_then(|all| all.get(at)).and_then(Value::as_f64);
        found.filter(|&s| s >= 0.0).ok_or_else(|| "its \"timings\" are missing".to_owned())
    };
    Ok(Timings { seeding: seconds(0)?, sweeps: seconds(1)?, finish: seconds(2)? })
}

/// A step, its figures as bits.
pub(super) fn stored_step(step: &Step) -> Value {
    let counts = [step.iteration, step.rows_seen, step.batch_size, step.n_changed, step.n_distances];
    let figures = [step.objective, step.center_shift, step.elapsed].map(f64::to_bits);
    json!({ "counts": counts, "figures": figures, "stop_reason": step.stop_reason.map(StopReason::name) })
}

/// What [`stored_step`] gave.
pub(super) fn step_of(value: &Value) -> Result<Step, String> {
    let number = |name: &str, at: usize| {
        let found = value.get(name).and_then(|all| all.get(at)).and_then(Value::as_u64);
        found.ok_or_else(|| format!("a step has no {name}"))
    };
    let counts = |at| number("counts", at);
    let figures = |at| number("figures", at).map(f64::from_bits);
    Ok(Step {
        iteration: counts(0)?,
        rows_seen: counts(1)?,
        batch_size: counts(2)?,
        n_changed: counts(3)?,
        n_distances: counts(4)?,
        objective: figures(0)?,
        center_shift: figures(1)?,
        elapsed: figures(2)?,
        stop_reason: value.get("stop_reason").and_then(Value::as_str).and_then(StopReason::named),
    })
}

/// Steps as two arrays, counts and figures, and why the last one was the last.
pub(crate) fn keep_history(contents: &mut Contents, steps: &[Step]) {
    let counts: Vec<u64> = steps
        .iter()
        .flat_map(|s| [s.iteration, s.rows_seen, s.batch_size, s.n_changed, s.n_distances])
        .collect();
    let figures: Vec<f64> = steps.iter().flat_map(|s| [s.objective, s.center_shift, s.elapsed]).collect();
    keep(contents, "history_counts", Array::new(&[steps.len(), 5], &counts));
    keep(contents, "history_figures", Array::new(&[steps.len(), 3], &figures));
}

/// What [`keep_history`] kept; the last step ended for `reason`.
pub(crate) fn history_of(contents: &Contents, reason: Option<StopReason>) -> Result<Vec<Step>, String> {
    let counts: Vec<u64> = matrix(contents, "history_counts", 5)?;
    let figures: Vec<f64> = matrix(contents, "history_figures", 3)?;
    if counts.len() / 5 != figures.len() / 3
        || !figures.iter().skip(2).step_by(3).all(|&elapsed| elapsed >= 0.0)
    {
        return Err("its history does not fit together".into());
    }
    let mut steps: Vec<Step> = counts
        .chunks_exact(5)
        .zip(figures.chunks_exact(3))
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
