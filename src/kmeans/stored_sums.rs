//! Writes sums and carried sums to checkpoints, reads them back, and validates them.

use super::labels::Carried;
use crate::centers::LabelsRef;
use crate::data::Dtype;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::matrix::MatRef;
use crate::persist::kept::{keep, list};
use crate::persist::state::{StateReader, StateWriter};
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
pub(super) fn keep_carried(to: &mut StateWriter, prefix: &str, carried: &Carried) {
    keep_sums(&mut to.contents, prefix, carried.clusters());
    let (age, energy_afresh) = carried.age();
    to.put(&format!("{prefix}_age"), &age);
    to.put(&format!("{prefix}_energy"), &energy_afresh);
}

/// Reads what [`keep_carried`] wrote; `None` if nothing was written.
pub(super) fn carried_of(
    from: &StateReader<'_>,
    prefix: &str,
    k: usize,
    dim: usize,
) -> Result<Option<Carried>, String> {
    let Some(sums) = sums_of(from.contents, prefix, k, dim)? else { return Ok(None) };
    let (age, energy) = (from.get(&format!("{prefix}_age"))?, from.get(&format!("{prefix}_energy"))?);
    Ok(Some(Carried::of(sums, age, energy)))
}

/// Returns an error for carried sums that contradict the labels (every row has weight 1), if these are known, or the
/// means.
pub(super) fn check_carried<T: Compute>(
    carried: &Carried,
    labels: Option<LabelsRef<'_>>,
    means: MatRef<'_, T>,
    metric: Metric,
) -> Result<(), String> {
    let clusters = carried.clusters();
    if let Some(labels) = labels {
        let mut counts = vec![0.0; means.rows()];
        labels.iter().for_each(|j| counts[j as usize] += 1.0);
        if clusters.weights() != counts {
            return Err("its \"carried_weights\" do not match its \"labels\"".into());
        }
    }
    if !clusters.have_means_at(means, metric == Metric::Cosine) {
        return Err("its \"carried_sums\" do not match its centers".into());
    }
    Ok(())
}
