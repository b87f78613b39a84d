//! Passes over rows with given labels: the distance of every row to its center, and sums per cluster.

use super::assign::{check_labels, with_metric};
use super::sum_labeled;
use crate::data::DataSource;
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::{self, Compute};
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::pass::{Chunk, TILE_ROWS, sweep};
use crate::stats::ClusterSums;

/// Squared Euclidean distances of rows to the centers of their labels.
///
/// # Errors
/// Same as [`super::KMeansModel::predict`], and [`crate::Error::InvalidParam`] for a label that is no center.
pub(crate) fn sq_dists_to<T: Compute>(
    centers: &[T],
    labels: &[u32],
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Vec<f64>> {
    let k = centers.len() / data.dim().max(1);
    check_labels(labels.into(), k)?;
    let mut sq_dists = Vec::new();
    make_room(&mut sq_dists, "distances", labels.len() as u64, 1)?;
    sq_dists.resize(labels.len(), 0.0);
    with_metric(centers, Metric::Euclidean, data, |packed, data| {
        let absorb = |chunk: Chunk<'_, T>, (labels, out): (&[u32], &mut [f64]), (): &mut (), (): &mut ()| {
            kernel::sq_dists(chunk.rows, labels, packed, out);
            if out.iter().all(|sq_dist| sq_dist.is_finite()) { Ok(()) } else { Err(chunk.not_finite()) }
        };
        let state = (labels, &mut sq_dists[..]);
        sweep(data, cx, TILE_ROWS, state, &mut (), (|| (), || ()), absorb, |(), ()| ())
    })?;
    Ok(sq_dists)
}

/// Weights, and weighted sums of the rows, per cluster of given labels.
///
/// # Errors
/// Those of reading; [`crate::Error::NotFinite`]; [`crate::Error::InvalidParam`] for a label of `k` or more.
pub(crate) fn sums_of<T: Compute>(
    labels: &[u32],
    k: usize,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<ClusterSums> {
    check_labels(labels.into(), k)?;
    // Squared errors about the origin are not needed, but show values that are not finite.
    let origin = vec![T::ZERO; k * data.dim()];
    with_metric(&origin, Metric::Euclidean, data, |packed, data| sum_labeled(labels.into(), packed, data, cx))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dense, Weighted};
    use crate::rng::{Purpose, Rng};

    fn some_rows(n: usize, dim: usize, k: usize) -> (Vec<f32>, Vec<u32>) {
        let mut rng = Rng::keyed(7, Purpose::Coreset, 0);
        let rows = (0..n * dim).map(|_| rng.unit() as f32 - 0.5).collect();
        (rows, (0..n).map(|_| rng.below(k as u64) as u32).collect())
    }

    #[test]
    fn sums_and_distances_by_definition() {
        for (n, dim, k) in [(1, 1, 1), (300, 3, 5), (9000, 17, 40)] {
            let (x, labels) = some_rows(n, dim, k);
            let (centers, _) = some_rows(k, dim, k);
            let weights: Vec<f64> = (0..n).map(|i| (i % 3) as f64 + 0.5).collect();
            let rows = Dense::new(&x, dim).unwrap();
            let weighted = Weighted::new(Dense::new(&x, dim).unwrap(), weights.clone()).unwrap();
            let found = |threads| {
                let cx = Executor::new(Some(threads)).unwrap();
                let sums = sums_of::<f32>(&labels, k, &weighted, &cx).unwrap();
                let sq_dists = sq_dists_to(&centers, &labels, &rows, &cx).unwrap();
                (sums.weights().to_vec(), sums.sums().to_vec(), sq_dists)
            };
            let (totals, sums, sq_dists) = found(1);
            assert_eq!((totals.clone(), sums.clone(), sq_dists.clone()), found(3));
            for j in 0..k {
                let mine = || (0..n).filter(|&i| labels[i] as usize == j);
                assert!((totals[j] - mine().map(|i| weights[i]).sum::<f64>()).abs() < 1e-9);
                for t in 0..dim {
                    let sum: f64 = mine().map(|i| weights[i] * f64::from(x[i * dim + t])).sum();
                    assert!((sums[j * dim + t] - sum).abs() < 1e-9, "{n} {j} {t}");
                }
            }
            for (i, found) in sq_dists.iter().enumerate() {
                let center = &centers[labels[i] as usize * dim..][..dim];
                let row = &x[i * dim..][..dim];
                let expected: f64 =
                    row.iter().zip(center).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
                assert!((found - expected).abs() <= 1e-12 * expected, "{i} {found} {expected}");
            }
        }
    }

    #[test]
    fn labels_and_values_are_checked() {
        let cx = Executor::new(Some(1)).unwrap();
        let rows = [[0.0f64], [1.0]];
        let told = |labels: &[u32]| sums_of::<f64>(labels, 2, &rows, &cx).unwrap_err().to_string();
        assert!(told(&[0, 2]).contains("labels must be below 2, got 2 at row 1"), "{}", told(&[0, 2]));
        assert!(told(&[0]).contains("rows"), "{}", told(&[0]));
        let bad = [[0.0f64], [f64::NAN]];
        let cases = [
            sums_of::<f64>(&[0, 1], 2, &bad, &cx).map(|_| ()),
            sq_dists_to(&[0.0, 1.0], &[0, 1], &bad, &cx).map(|_| ()),
        ];
        for found in cases {
            assert_eq!(found.unwrap_err().to_string(), "rows must be finite, got NaN at row 1, column 0");
        }
    }
}
