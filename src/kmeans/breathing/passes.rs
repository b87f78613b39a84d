//! What a breath measures: how much each center is missed if it is removed.

use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::tuning::tile_rows;

/// Labels, and the distances to the nearest and the second nearest center.
type TwoNearestBuffers<T> = (Vec<u32>, Vec<f64>, Vec<f64>, Scratch<T>);

/// The utility of each of at least two centers: the weighted sum, over its rows, of the squared distance to the second
/// nearest center minus that to the nearest. The inertia grows by as much if the center is removed.
pub(super) fn utilities<T: Compute>(
    centers: MatRef<'_, T>,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Vec<f64>> {
    let packed = PackedCenters::on(centers, data.most_values().is_some(), cx);
    let k = centers.rows();
    let mut total = vec![0.0; k];
    let absorb = |chunk: Chunk<'_, T>,
                  (): (),
                  part: &mut Vec<f64>,
                  (labels, best, second, scratch): &mut TwoNearestBuffers<T>| {
        let rows = chunk.rows.rows();
        labels.resize(rows, 0);
        best.resize(rows, 0.0);
        second.resize(rows, 0.0);
        kernel::nearest_two(chunk.rows, &packed, labels, best, second, scratch);
        let mut finite = true;
        for (i, &j) in labels.iter().enumerate() {
            let weight = chunk.weights.map_or(1.0, |w| w[i]);
            // The second distance is rounded, and may fall below the first.
            let utility = &mut part[j as usize];
            *utility += weight * (second[i] - best[i]).max(0.0);
            finite &= utility.is_finite();
        }
        if finite { Ok(()) } else { Err(chunk.not_finite()) }
    };
    let merge = |total: &mut Vec<f64>, part: &mut Vec<f64>| {
        total.iter_mut().zip(part).for_each(|(total, part)| *total += std::mem::take(part));
    };
    let make = (|| vec![0.0; k], TwoNearestBuffers::default);
    sweep(data, cx, tile_rows(k), (), &mut total, make, absorb, merge)?;
    Ok(total)
}
