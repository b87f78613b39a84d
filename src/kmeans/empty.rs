//! Rows for empty clusters: those that are farthest from their centers.

use std::cmp::Ordering;

use crate::centers::LabelsRef;
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{self, Compute, PackedCenters};
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::stats::ClusterSums;
use crate::tuning::tile_rows;

/// An empty cluster, and the index, the values and the weight of a row for it.
type Place<T> = (usize, u64, Vec<T>, f64);

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

/// The clusters without weight, each with the index, the values and the weight of one of the rows that are farthest
/// from their centers.
///
/// Rows without weight, or at their center, are not used, so there may be fewer. If a cluster is empty, this takes one
/// more pass over the rows.
pub(super) fn farthest<T: Compute>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    packed: &PackedCenters<T>,
    labels: LabelsRef<'_>,
    sums: &ClusterSums,
) -> Result<Vec<Place<T>>> {
    let empty: Vec<usize> =
        sums.weights().iter().enumerate().filter(|&(_, &w)| w <= 0.0).map(|(j, _)| j).collect();
    if empty.is_empty() {
        return Ok(Vec::new());
    }
    let most = empty.len();
    let mut far: Vec<Far> = Vec::new();
    let absorb = |chunk: Chunk<'_, T>,
                  labels: LabelsRef<'_>,
                  far: &mut Vec<Far>,
                  (dists, wide): &mut (Vec<f64>, Vec<u32>)| {
        let labels = labels.wide(wide);
        dists.resize(labels.len(), 0.0);
        kernel::sq_dists(chunk.rows, labels, packed, dists);
        far.extend(dists.iter().enumerate().filter_map(|(i, &sq_dist)| {
            let weight = chunk.weights.map_or(1.0, |w| w[i]);
            (sq_dist > 0.0 && weight > 0.0).then_some((sq_dist, chunk.first_row + i as u64, weight))
        }));
        prune(far, most);
        Ok(())
    };
    let merge = |total: &mut Vec<Far>, part: &mut Vec<Far>| {
        total.append(part);
        prune(total, most);
    };
    let make = (Vec::new, Default::default);
    sweep(data, cx, tile_rows(packed.n_centers()), labels, &mut far, make, absorb, merge)?;
    let pairs = empty.into_iter().zip(far);
    pairs.map(|(to, (_, row, weight))| Ok((to, row, crate::data::take(data, &[row])?, weight))).collect()
}

/// Moves clusters without weight to the [`farthest`] rows, and removes these from their old clusters, as scikit-learn
/// does. Returns the number of clusters moved.
pub(super) fn relocate<T: Compute>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    packed: &PackedCenters<T>,
    labels: LabelsRef<'_>,
    sums: &mut ClusterSums,
) -> Result<usize> {
    let found = farthest(data, cx, packed, labels, sums)?;
    for (to, row, values, weight) in &found {
        sums.move_row(values, *weight, labels.get(*row as usize) as usize, *to);
    }
    Ok(found.len())
}
