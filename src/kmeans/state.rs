//! Writes sums and carried sums to checkpoints, reads them back, and validates them.

use serde_json::json;

use super::labels::Carried;
use crate::data::Dtype;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::matrix::MatRef;
pub(super) use crate::persist::kept::{count, keep, list, number};
use crate::persist::{Array, Contents};
use crate::stats::ClusterSums;

/// Whether the state is of rows computed in `f64`.
pub(super) fn is_wide(contents: &Contents) -> Result<bool, String> {
    Ok(contents.array("centers")?.dtype() == Dtype::F64)
}

pub(crate) fn keep_sums(contents: &mut Contents, prefix: &str, sums: &ClusterSums) {
    for (name, values) in sums.parts() {
        keep(contents, &format!("{prefix}_{name}"), Array::new(&[values.len()], values));
    }
}

/// Reads what [`keep_sums`] wrote; `None` if nothing was written.
pub(crate) fn sums_of(
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
        return Err(format!("its {prefix:?} do not belong to {k} clusters"));
    }
    ClusterSums::of_parts(dim, parts)
        .map(Some)
        .ok_or_else(|| format!("its {prefix:?} do not match each other"))
}

/// Writes carried sums with their age and energy.
pub(super) fn keep_carried(contents: &mut Contents, prefix: &str, carried: &Carried) {
    keep_sums(contents, prefix, carried.clusters());
    let (age, energy_afresh) = carried.age();
    let numbers = json!({ "age": age, "energy_afresh": energy_afresh.to_bits() });
    contents.meta.insert(prefix.into(), numbers.to_string());
}

/// Reads what [`keep_carried`] wrote; `None` if nothing was written.
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

/// Returns an error for carried sums that contradict the labels (every row has weight 1) or the means.
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
        return Err("its \"carried_weights\" do not match its \"labels\"".into());
    }
    if !clusters.have_means_at(means, metric == Metric::Cosine) {
        return Err("its \"carried_sums\" do not match its centers".into());
    }
    Ok(())
}
