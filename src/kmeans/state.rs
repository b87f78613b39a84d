//! This module knows how what a method keeps between two steps becomes arrays and texts, and comes back.

use serde_json::{Map, Value, json};

use super::labels::Carried;
use super::lloyd::Timings;
use super::model::Values;
use crate::data::Dtype;
use crate::error::Result as Checked;
use crate::kernel::Compute;
use crate::persist::{Array, Contents, Number};
use crate::rows::RowBuf;
use crate::solver::{Step, StopReason};
use crate::stats::ClusterSums;

/// Whether a state is one of rows that are computed in `f64`.
pub(super) fn is_wide(contents: &Contents) -> Result<bool, String> {
    Ok(contents.array("centers")?.dtype() == Dtype::F64)
}

/// The values of a matrix of `dim` columns, or of none at all.
pub(super) fn matrix<E: Number>(contents: &Contents, name: &str, dim: usize) -> Result<Vec<E>, String> {
    let &[rows, cols] = contents.array(name)?.shape() else {
        return Err(format!("its {name:?} is no matrix"));
    };
    if rows > 0 && cols != dim {
        return Err(format!("its {name:?} has {cols} columns, and {dim} are needed"));
    }
    contents.values(name, &[rows, cols])
}

/// The same of values in the compute type.
pub(crate) fn rows<T: Compute>(contents: &Contents, name: &str, dim: usize) -> Result<Vec<T>, String> {
    Ok(if size_of::<T>() == size_of::<f32>() {
        Values::F32(matrix(contents, name, dim)?).get()
    } else {
        Values::F64(matrix(contents, name, dim)?).get()
    })
}

/// Rows of `cols` values as an array.
pub(crate) fn stored_rows<T: Compute>(values: &[T], cols: usize) -> Checked<Array> {
    match Values::of(values) {
        Values::F32(values) => Array::new(&[values.len() / cols, cols], &values),
        Values::F64(values) => Array::new(&[values.len() / cols, cols], &values),
    }
}

/// Keeps rows of either kind: sparse ones as their stored values, with columns and beginnings beside them.
pub(super) fn keep_rows<T: Compute>(contents: &mut Contents, name: &str, rows: &RowBuf<T>) {
    if rows.is_sparse() {
        let starts: Vec<u64> = rows.starts.iter().map(|&start| start as u64).collect();
        keep(contents, name, stored_rows(&rows.values, 1));
        keep(contents, &format!("{name}_columns"), Array::new(&[rows.columns.len()], &rows.columns));
        keep(contents, &format!("{name}_starts"), Array::new(&[starts.len()], &starts));
    } else {
        keep(contents, name, stored_rows(&rows.values, rows.cols().max(1)));
    }
}

/// What [`keep_rows`] kept, of `dim` columns.
pub(super) fn kept_rows<T: Compute>(
    contents: &Contents,
    name: &str,
    dim: usize,
) -> Result<RowBuf<T>, String> {
    let mut kept = RowBuf::new(dim);
    let beginnings = format!("{name}_starts");
    if !contents.arrays.contains_key(&beginnings) {
        kept.values = rows(contents, name, dim)?;
        return Ok(kept);
    }
    kept.values = rows(contents, name, 1)?;
    kept.columns = list(contents, &format!("{name}_columns"))?;
    let starts: Vec<u64> = list(contents, &beginnings)?;
    kept.starts = starts.iter().map(|&start| usize::try_from(start).unwrap_or(usize::MAX)).collect();
    let ends = kept.starts.first() == Some(&0) && kept.starts.last() == Some(&kept.values.len());
    let whole = ends && kept.starts.is_sorted() && kept.columns.len() == kept.values.len();
    let in_order = |row: &[usize]| {
        let columns = &kept.columns[row[0]..row[1]];
        let within = columns.iter().all(|&column| column >= 0 && (column as usize) < dim);
        within && columns.is_sorted_by(|a, b| a < b)
    };
    if whole && kept.starts.windows(2).all(in_order) {
        Ok(kept)
    } else {
        Err(format!("its {name:?} do not fit together"))
    }
}

pub(crate) fn count(object: &Map<String, Value>, name: &str) -> Result<u64, String> {
    object.get(name).and_then(Value::as_u64).ok_or_else(|| format!("its {name:?} is no count"))
}

/// A number that was kept as bits, or none.
pub(crate) fn figure(object: &Map<String, Value>, name: &str) -> Result<Option<f64>, String> {
    match object.get(name) {
        Some(Value::Null) => Ok(None),
        _ => Ok(Some(f64::from_bits(count(object, name)?))),
    }
}

/// A number that was kept as bits.
pub(crate) fn number(object: &Map<String, Value>, name: &str) -> Result<f64, String> {
    Ok(f64::from_bits(count(object, name)?))
}

pub(crate) fn flag(object: &Map<String, Value>, name: &str) -> Result<bool, String> {
    object.get(name).and_then(Value::as_bool).ok_or_else(|| format!("its {name:?} is neither true nor false"))
}

pub(crate) fn text(object: &Map<String, Value>, name: &str) -> Result<String, String> {
    let found = object.get(name).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| format!("its {name:?} is no text"))
}

/// Keeps an array of as many values as its shape says.
pub(crate) fn keep(contents: &mut Contents, name: &str, array: Checked<Array>) {
    contents.arrays.insert(name.into(), array.expect("as many values as the shape says"));
}

/// Values of any number.
pub(crate) fn list<E: Number>(contents: &Contents, name: &str) -> Result<Vec<E>, String> {
    let length = contents.array(name)?.shape().iter().product();
    contents.values(name, &[length])
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

/// Seconds by phase.
pub(super) fn stored_timings(timings: Timings) -> Value {
    json!([timings.seeding, timings.sweeps, timings.finish])
}

/// What [`stored_timings`] gave.
pub(super) fn timings_of(object: &Map<String, Value>) -> Result<Timings, String> {
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
