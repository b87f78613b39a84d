//! Where centers move: to the means of their rows, or with the cosine metric to the directions of their sums.

use super::clusters::{ClusterSums, sum_of};
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::tuning::shared_rows;

/// The number by which a sum of rows is divided to give their center: their weight, or the length of the sum, so that
/// the center lies on the unit sphere. 0 if the rows do not determine a center, which then keeps its place.
pub(crate) fn divisor(metric: Metric, sum: &[f64], weight: f64) -> f64 {
    match metric {
        _ if weight <= 0.0 => 0.0,
        Metric::Euclidean => weight,
        Metric::Cosine => sum.iter().map(|s| s * s).sum::<f64>().sqrt(),
    }
}

/// Moves a center to the mean of its rows, of total weight `weight`. Adds the squared length of the move to `moved`.
pub(crate) fn to_mean<T: Compute>(
    center: &mut [T],
    metric: Metric,
    (sum, weight): (&[f64], f64),
    moved: &mut f64,
) {
    let divisor = divisor(metric, sum, weight);
    if divisor > 0.0 {
        let sum = &sum[..center.len()];
        *moved += sum_of(center.len(), |i| {
            let new = T::from_f64(sum[i] / divisor);
            let by = new.to_f64() - center[i].to_f64();
            center[i] = new;
            by * by
        });
    }
}

/// Moves every center that has weight to the mean of its rows. If the sums know which clusters have changed, the other
/// centers are at their means. Returns the squared length of all moves.
pub(crate) fn to_means<T: Compute>(
    centers: &mut [T],
    dim: usize,
    metric: Metric,
    sums: &ClusterSums,
    cx: &Executor,
) -> f64 {
    let part = shared_rows(dim);
    let mut moves = vec![0.0; centers.len() / dim];
    let parts = centers.chunks_mut(part * dim).zip(moves.chunks_mut(part)).enumerate();
    cx.share(parts, |(i, (centers, moves))| {
        let first = i * part;
        for j in sums.changed_in(first..first + moves.len()) {
            let center = &mut centers[(j - first) * dim..][..dim];
            to_mean(center, metric, (sums.sum(j), sums.weights()[j]), &mut moves[j - first]);
        }
    });
    moves.iter().sum()
}

/// The variance of all rows, averaged over columns, from their sums about `origin`.
pub(crate) fn mean_variance<T: Compute>(all: &ClusterSums, origin: &[T]) -> f64 {
    let n = all.weights()[0];
    let offset: f64 = all.sum(0).iter().zip(origin).map(|(s, o)| (s / n - o.to_f64()).powi(2)).sum();
    ((all.energy() / n - offset) / origin.len() as f64).max(0.0)
}
