//! This module knows the second half of a sweep: rows are added to the sums of their centers, in `f64`.

use super::pair::sq_dist;
use super::simd::Widen;
use crate::float::Float;
use crate::matrix::MatRef;

/// `sums[label] += weight * row`, `totals[label] += weight`; `energy` grows by the weighted sum of squared
/// differences, row by row.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn accumulate<S: Widen>(
    rows: MatRef<'_, S::T>,
    labels: &[u32],
    weights: Option<&[f64]>,
    centers: MatRef<'_, S::T>,
    sums: &mut [f64],
    totals: &mut [f64],
    energy: &mut f64,
) {
    let d = rows.cols();
    for (i, row) in rows.iter().enumerate() {
        let j = labels[i] as usize;
        let sum = &mut sums[j * d..][..d];
        if let Some(weights) = weights {
            let w = weights[i];
            for (s, x) in sum.iter_mut().zip(row) {
                *s += w * x.to_f64();
            }
            totals[j] += w;
            // SAFETY: the caller's promise.
            *energy += w * unsafe { sq_dist::<S>(row, centers.row(j)) };
        } else {
            for (s, x) in sum.iter_mut().zip(row) {
                *s += x.to_f64();
            }
            totals[j] += 1.0;
            // SAFETY: the caller's promise.
            *energy += unsafe { sq_dist::<S>(row, centers.row(j)) };
        }
    }
}

/// Moves every row whose label changed from the sum of its old center to that of its new one; `energy` follows the sum of
/// squared differences to the labelled centers.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn reassign<S: Widen>(
    rows: MatRef<'_, S::T>,
    (old, new): (&[u32], &[u32]),
    centers: MatRef<'_, S::T>,
    sums: &mut [f64],
    totals: &mut [f64],
    energy: &mut f64,
) {
    let d = rows.cols();
    for (i, row) in rows.iter().enumerate() {
        let (from, to) = (old[i] as usize, new[i] as usize);
        if from == to {
            continue;
        }
        for (s, x) in sums[from * d..][..d].iter_mut().zip(row) {
            *s -= x.to_f64();
        }
        for (s, x) in sums[to * d..][..d].iter_mut().zip(row) {
            *s += x.to_f64();
        }
        totals[from] -= 1.0;
        totals[to] += 1.0;
        // SAFETY: the caller's promise.
        *energy += unsafe { sq_dist::<S>(row, centers.row(to)) - sq_dist::<S>(row, centers.row(from)) };
    }
}
