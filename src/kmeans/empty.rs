//! Relocates empty clusters to the rows that are farthest from their centers.

use std::cmp::Ordering;

use crate::centers::LabelsRef;
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{self, Compute, PackedCenters};
use crate::parallel::Executor;
use crate::pass::sweep;
use crate::stats::ClusterSums;
use crate::tuning::tile_rows;

/// Squared distance to its center, index and weight of a row.
type Far = (f64, u64, f64);

/// Descending distance, then ascending row index.
fn order(a: &Far, b: &Far) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

fn prune(far: &mut Vec<Far>, most: usize) {
    far.sort_unstable_by(order);
    far.truncate(most);
}

/// Moves every cluster without weight to one of the rows farthest from their centers, and removes that row
/// from its old cluster, as scikit-learn does. Returns the number of clusters moved.
///
/// Rows without weight, or at their center, are not used. If a cluster is empty, this takes one more pass
/// over the rows.
pub(super) fn relocate<T: Compute>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    packed: &PackedCenters<T>,
    labels: LabelsRef<'_>,
    sums: &mut ClusterSums,
) -> Result<usize> {
    let empty: Vec<usize> =
        sums.weights().iter().enumerate().filter(|&(_, &w)| w <= 0.0).map(|(j, _)| j).collect();
    if empty.is_empty() {
        return Ok(0);
    }
    let most = empty.len();
    let mut far: Vec<Far> = Vec::new();
    sweep(
        data,
        cx,
        tile_rows(packed.n_centers()),
        labels,
        &mut far,
        (Vec::new, Default::default),
        |chunk, labels, far: &mut Vec<Far>, (dists, wide): &mut (Vec<f64>, Vec<u32>)| {
            let labels = labels.wide(wide);
            dists.resize(labels.len(), 0.0);
            kernel::sq_dists(chunk.rows, labels, packed, dists);
            far.extend(dists.iter().enumerate().filter_map(|(i, &sq_dist)| {
                let weight = chunk.weights.map_or(1.0, |w| w[i]);
                (sq_dist > 0.0 && weight > 0.0).then_some((sq_dist, chunk.first_row + i as u64, weight))
            }));
            prune(far, most);
            Ok(())
        },
        |total, part| {
            total.append(part);
            prune(total, most);
        },
    )?;
    for (&to, &(_, row, weight)) in empty.iter().zip(&far) {
        let values = crate::data::take(data, &[row])?;
        sums.move_row(&values, weight, labels.get(row as usize) as usize, to);
    }
    Ok(far.len())
}
