//! Automatic kernel width and Laplacian weight, and the check for weights that overflow.

use super::affinity::Affinity;
use super::params::Shift;
use crate::data::{self, DataSource};
use crate::error::{InvalidParam, Result};
use crate::kernel::{Compute, sq_dist};
use crate::parallel::Executor;

/// The ratio of the mean to the smallest row sum of a neighbor graph: a row that is no neighbor of another
/// row has half the weights.
const MEAN_OVER_LEAST: f64 = 2.0;

/// The mean squared distance of neighboring rows.
pub(super) fn mean_sq_dist<T: Compute>(
    data: &dyn DataSource<T>,
    affinity: &Affinity,
    cx: &Executor,
) -> Result<f64> {
    let (mut sum, mut pairs) = (0.0, 0u64);
    let mut values = Vec::new();
    for p in 0..affinity.n_rows() {
        cx.check()?;
        let (columns, weights) = affinity.row(p);
        // Each pair once.
        let later = columns.iter().zip(weights).filter(|&(&q, &w)| q as usize > p && w > 0.0);
        let rows: Vec<u64> = std::iter::once(p as u64).chain(later.map(|(&q, _)| u64::from(q))).collect();
        values.clear();
        data::gather(data, &rows, &mut values)?;
        let (own, others) = values.split_at(data.dim());
        sum += others.chunks_exact(data.dim()).map(|other| sq_dist(own, other)).sum::<f64>();
        pairs += rows.len() as u64 - 1;
    }
    Ok(sum / pairs as f64)
}

/// Checks a mean squared distance of neighbors for use as a variance. Rows of length 1 coincide if only
/// rounding separates them.
pub(super) fn sound_variance<T: Compute>(mean: f64, normalized: bool) -> Result<f64> {
    let least = if normalized { (4.0 * T::EPSILON).powi(2) } else { f64::MIN_POSITIVE };
    if mean >= least && mean.is_finite() {
        return Ok(mean);
    }
    let remedy = format!(
        "the mean squared distance of neighbors is {mean:?}, because all of them coincide, or there are none, or the \
         rows are too small or too large to be squared; give a number, or scale the rows"
    );
    Err(InvalidParam::new("bandwidth", "a number for these rows", "none").with_remedy(remedy).into())
}

/// The weight of the Laplacian for `k` clusters and an affinity of mean degree `degree`.
///
/// Responsibilities that follow only their neighbors, `z = softmax(lambda degree z)`, are the mean field of a
/// Potts model with `k` states. If `lambda degree` is below `2 (k - 1) / (k - 2) ln(k - 1)`, equal shares are
/// optimal, and no labels emerge. From there up to `k`, existing labels are stable, but nearly equal shares
/// stay nearly equal unless the modes break the tie. A fit that starts from labels uses the lower end, scaled
/// for rows of the smallest degree. A fit that starts from modes uses half of the upper end, where modes
/// still matter. `benches/python/papers/slk.py --part defaults` compares.
pub(super) fn weight_for(k: usize, degree: f64, from_labels: bool) -> f64 {
    if degree <= 0.0 {
        return 0.0;
    }
    let states = k as f64;
    let holding = if k <= 2 { 2.0 } else { 2.0 * (states - 1.0) / (states - 2.0) * (states - 1.0).ln() };
    let pull = if from_labels { MEAN_OVER_LEAST * holding } else { holding.max(0.5 * states) };
    pull / degree
}

/// Returns an error if sums of weights overflow `T`, given the largest degree of a row and the sum of all.
pub(super) fn refuse_overflow<T: Compute>(shift: Shift, weight: f64, (most, all): (f64, f64)) -> Result<()> {
    let shift = if let Shift::By(shift) = shift { shift } else { 0.0 };
    let largest = 4.0 * (most + shift + 1.0) * weight.max(1.0);
    if T::from_f64(largest).finite() && (largest * all.max(1.0)).is_finite() {
        return Ok(());
    }
    let expected =
        format!("smaller for an affinity whose largest sum of a row is {most} and a shift of {shift}");
    let problem = InvalidParam::new("laplacian_weight", expected, weight);
    Err(problem.with_remedy("their product overflows").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_grow_with_the_clusters_and_shrink_with_the_sums() {
        for from_labels in [false, true] {
            let weights: Vec<f64> = (1..60).map(|k| weight_for(k, 5.0, from_labels)).collect();
            assert!(weights.is_sorted() && weights[0] > 0.0);
            assert!(
                (weight_for(20, 10.0, from_labels) / weight_for(20, 5.0, from_labels) - 0.5).abs() < 1e-15
            );
            assert_eq!(weight_for(7, 0.0, from_labels), 0.0);
        }
        // The paper tunes between 1 and 4 for 4 to 40 clusters with five neighbors.
        assert!((weight_for(10, 5.0, false) - 1.0).abs() < 1e-12);
    }
}
