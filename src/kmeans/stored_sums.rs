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
use crate::stats::{ClusterSums, Terms};

/// Whether the state is of rows computed in `f64`.
pub(super) fn is_wide(contents: &Contents) -> Result<bool, String> {
    Ok(contents.array("centers")?.dtype() == Dtype::F64)
}

pub(crate) fn keep_sums(contents: &mut Contents, prefix: &str, sums: &ClusterSums) {
    for (name, Terms { values, places }) in sums.parts() {
        let name = format!("{prefix}_{name}");
        if places.is_empty() {
            // A row of terms for all clusters: the values, then what their rounding left.
            let width = if name.ends_with("_sums") { sums.sums().len() } else { sums.weights().len() };
            keep(contents, &name, Array::new(&[values.len() / width.max(1), width], &values));
        } else {
            keep(contents, &name, Array::new(&[1, values.len()], &values));
            keep(contents, &format!("{name}_places"), Array::new(&[places.len()], &places));
        }
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
        let name = format!("{prefix}_{name}");
        let shape = contents.array(&name)?.shape();
        if shape.len() != 2 {
            return Err(format!(
                "its {name:?} are of an earlier version, whose sums were rounded: fit again"
            ));
        }
        let values: Vec<f64> = contents.values(&name, shape)?;
        if !values.iter().all(|x| x.is_finite()) {
            return Err(format!("its {prefix:?} are not finite"));
        }
        let name = format!("{name}_places");
        let places = if contents.arrays.contains_key(&name) { list(contents, &name)? } else { Vec::new() };
        Ok(Terms { values, places })
    };
    let parts = [part("sums")?, part("weights")?, part("squares")?, part("energies")?];
    let sums = ClusterSums::of_parts(k, dim, parts)
        .ok_or_else(|| format!("its {prefix:?} do not belong to {k} clusters of {dim} columns"))?;
    if !sums.weights().iter().chain(sums.energies()).chain(sums.sums()).all(|x| x.is_finite()) {
        return Err(format!("its {prefix:?} are not finite"));
    }
    if sums.weights().iter().any(|&weight| weight < 0.0) {
        return Err(format!("its {prefix:?} have negative weights"));
    }
    Ok(Some(sums))
}

/// Writes carried sums with their energy.
pub(super) fn keep_carried(to: &mut StateWriter, prefix: &str, carried: &Carried) {
    keep_sums(&mut to.contents, prefix, carried.clusters());
    to.put(&format!("{prefix}_energy"), &carried.energy_afresh());
}

/// Reads what [`keep_carried`] wrote; `None` if nothing was written.
pub(super) fn carried_of(
    from: &StateReader<'_>,
    prefix: &str,
    k: usize,
    dim: usize,
) -> Result<Option<Carried>, String> {
    let Some(sums) = sums_of(from.contents, prefix, k, dim)? else { return Ok(None) };
    Ok(Some(Carried::of(sums, from.get(&format!("{prefix}_energy"))?)))
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
