//! Sums of rows per cluster, by their labels.

use super::LabelsRef;
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::parallel::Executor;
use crate::pass::{Chunk, gather};
use crate::stats::ClusterSums;

/// Sums all rows by their labels, without computing distances to other centers.
pub(crate) fn sum_labeled<T: Compute>(
    labels: LabelsRef<'_>,
    packed: &PackedCenters<T>,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<ClusterSums> {
    let (k, dim) = (packed.n_centers(), packed.dim());
    let mut total = ClusterSums::new(k, dim);
    let absorb = |chunk: Chunk<'_, T>, labels: LabelsRef<'_>, part: &mut ClusterSums, wide: &mut Vec<u32>| {
        let labels = labels.wide(wide);
        part.absorb(chunk.rows, labels, chunk.weights, packed);
        if part.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
    };
    let make = (|| ClusterSums::part(k, dim), Vec::new);
    gather(data, cx, labels, &mut total, make, absorb, |total, parts| total.merge_parts(parts, cx))?;
    Ok(total)
}
