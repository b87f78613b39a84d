//! Rows that move one by one, each only if its move lowers the squared error.
//!
//! A row pulls the center of its cluster to itself. With ten rows in a cluster, its distance to this center is too
//! short by a tenth, so sweeps that move rows only to nearer centers end too early. Taking a row of weight `w` from a
//! cluster of weight `a`, at the squared distance `x`, lowers the squared error by `w a / (a - w) x`; adding it to a
//! cluster of weight `b` at the distance `y` raises it by `w b / (b + w) y` (Hartigan, "Clustering Algorithms", 1975).

use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::pass::Copies;
use crate::rows::Rows;
use crate::seeding::Clusters;
use crate::tuning::GROUPED_ROWS;

/// The increase of the squared error when a row of weight `row` joins a cluster, per squared distance and
/// weight.
pub(super) fn joining(cluster: f64, row: f64) -> f64 {
    cluster / (cluster + row)
}

/// The decrease of the squared error when a row of weight `row` leaves a cluster, per squared distance and
/// weight. The last row never leaves.
pub(super) fn leaving(cluster: f64, row: f64) -> f64 {
    let rest = cluster - row;
    if rest > cluster * f64::EPSILON { cluster / rest } else { 0.0 }
}

/// Moves rows to the clusters `wanted`, in the order of the rows, as long as the squared error falls. Centers follow
/// each move, up to rounding; the squared errors in `clusters` do not.
pub(super) fn move_rows<T: Compute>(
    clusters: &mut Clusters<T>,
    labels: &mut [u32],
    wanted: &[u32],
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<()> {
    let dim = clusters.dim;
    let rows: Vec<u32> =
        (0..labels.len() as u32).filter(|&row| labels[row as usize] != wanted[row as usize]).collect();
    let mut copies = Copies::default();
    for part in rows.chunks(GROUPED_ROWS) {
        cx.check()?;
        copies.read(data, part)?;
        for (i, &row) in part.iter().enumerate() {
            let (from, to) = (labels[row as usize] as usize, wanted[row as usize] as usize);
            let weight = copies.weight(i);
            let (old, new) = (clusters.weights[from], clusters.weights[to]);
            let leaving = leaving(old, weight) * copies.sq_dist(i, clusters.centers().row(from));
            let joining = joining(new, weight) * copies.sq_dist(i, clusters.centers().row(to));
            // Also false for a weight of 0 in an empty cluster.
            if joining < leaving {
                let row_values = copies.rows.rows();
                pull(&mut clusters.centers[to * dim..][..dim], row_values, i, weight / (new + weight));
                pull(&mut clusters.centers[from * dim..][..dim], row_values, i, -weight / (old - weight));
                (clusters.weights[to], clusters.weights[from]) = (new + weight, old - weight);
                labels[row as usize] = to as u32;
            }
        }
    }
    Ok(())
}

/// Moves a center toward row `i`, by the share `by` of the way.
fn pull<T: Compute>(center: &mut [T], rows: Rows<'_, T>, i: usize, by: f64) {
    match rows {
        Rows::Dense(rows) => {
            for (c, x) in center.iter_mut().zip(rows.row(i)) {
                *c = T::from_f64(c.to_f64() + by * (x.to_f64() - c.to_f64()));
            }
        }
        Rows::Sparse(rows) => {
            for c in &mut *center {
                *c = T::from_f64((1.0 - by) * c.to_f64());
            }
            let (columns, values) = rows.row(i);
            for (&column, x) in columns.iter().zip(values) {
                let c = &mut center[column as usize];
                *c = T::from_f64(c.to_f64() + by * x.to_f64());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::{Dense, Weighted};
    use crate::fit::Metric;
    use crate::pass::Groups;
    use crate::rng::{Purpose, Rng};

    /// The squared error of the clusters about their means.
    fn settled(
        clusters: &Clusters<f64>,
        labels: &[u32],
        data: &dyn DataSource<f64>,
        cx: &Executor,
    ) -> Clusters<f64> {
        let mut clusters = clusters.clone();
        let (k, groups) = (clusters.len(), Groups::new(labels, clusters.len()));
        clusters.settle(data, &groups, &vec![true; k], Metric::Euclidean, u64::MAX, cx).unwrap();
        clusters
    }

    #[test]
    fn the_change_of_the_squared_error_is_that_of_the_formula() {
        let cx = Executor::new(Some(1)).unwrap();
        let values = [0.0, 1.0, 5.0, 9.0, 10.0, 14.0];
        let data = Weighted::new::<f64>(Dense::new(&values, 1).unwrap(), vec![1.0, 2.0, 3.0, 1.0, 0.5, 4.0])
            .unwrap();
        let old = settled(&Clusters::new(1, vec![0.0, 0.0]), &[0, 0, 0, 1, 1, 1], &data, &cx);
        let new = settled(&old, &[0, 0, 1, 1, 1, 1], &data, &cx);
        let away = |j: usize| 3.0 * (5.0 - old.centers[j]).powi(2);
        let change = joining(old.weights[1], 3.0) * away(1) - leaving(old.weights[0], 3.0) * away(0);
        assert!((new.energy() - old.energy() - change).abs() < 1e-12);
        assert_eq!((leaving(2.0, 2.0), joining(0.0, 0.0) > 0.0), (0.0, false));
    }

    proptest! {
        #[test]
        fn moves_lower_the_squared_error_and_centers_stay_means(
            n in 2usize..60, dim in 1usize..5, k in 2usize..9, weighted in any::<bool>(), seed in any::<u64>(),
        ) {
            let cx = Executor::new(Some(1)).unwrap();
            let rng = &mut Rng::keyed(seed, Purpose::Seeding, 0);
            let values: Vec<f64> = (0..n * dim).map(|_| rng.below(200) as f64).collect();
            let weights: Vec<f64> = (0..n).map(|i| if weighted { (1 + i % 3) as f64 } else { 1.0 }).collect();
            let data = Weighted::new::<f64>(Dense::new(&values, dim).unwrap(), weights).unwrap();
            let mut labels: Vec<u32> = (0..n).map(|_| rng.below(k as u64) as u32).collect();
            let wanted: Vec<u32> = (0..n).map(|_| rng.below(k as u64) as u32).collect();
            let old = settled(&Clusters::new(dim, vec![0.0; k * dim]), &labels, &data, &cx);
            let mut moved = old.clone();
            move_rows(&mut moved, &mut labels, &wanted, &data, &cx).unwrap();
            let new = settled(&moved, &labels, &data, &cx);
            prop_assert!(new.energy() <= old.energy() * (1.0 + 1e-12));
            for j in 0..k {
                // No cluster loses its last row.
                prop_assert!(old.weights[j] == 0.0 || new.weights[j] > 0.0);
                prop_assert!((moved.weights[j] - new.weights[j]).abs() < 1e-9);
                for (a, b) in moved.centers().row(j).iter().zip(new.centers().row(j)) {
                    prop_assert!(new.weights[j] == 0.0 || (a - b).abs() < 1e-9);
                }
            }
        }
    }
}
