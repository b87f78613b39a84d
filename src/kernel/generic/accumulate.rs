//! This module knows the second half of a sweep: rows are added to the sums of their centers, in `f64`.

use super::pair::sq_dist;
use crate::float::Float;
use crate::matrix::MatRef;

/// `sums[label] += weight * row`, `totals[label] += weight`; gives the weighted sum of squared differences.
#[inline(always)]
pub(in crate::kernel) fn accumulate<T: Float>(
    rows: MatRef<'_, T>,
    labels: &[u32],
    weights: Option<&[f64]>,
    centers: MatRef<'_, T>,
    sums: &mut [f64],
    totals: &mut [f64],
) -> f64 {
    let d = rows.cols();
    let mut energy = 0.0;
    for (i, row) in rows.iter().enumerate() {
        let j = labels[i] as usize;
        let sum = &mut sums[j * d..][..d];
        if let Some(weights) = weights {
            let w = weights[i];
            for (s, x) in sum.iter_mut().zip(row) {
                *s += w * x.to_f64();
            }
            totals[j] += w;
            energy += w * sq_dist(row, centers.row(j));
        } else {
            for (s, x) in sum.iter_mut().zip(row) {
                *s += x.to_f64();
            }
            totals[j] += 1.0;
            energy += sq_dist(row, centers.row(j));
        }
    }
    energy
}
