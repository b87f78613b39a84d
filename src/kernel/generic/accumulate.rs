//! Adds rows to the sums of their centers, in `f64`: the second half of a sweep.
#![allow(clippy::needless_range_loop, reason = "loops of known length over several arrays are unrolled")]

use super::pair::{sq_dist, sq_dist_of};
use super::simd::Widen;
use crate::float::Float;
use crate::matrix::MatRef;

/// A row of `D` columns.
#[inline(always)]
fn short<T, const D: usize>(values: &[T]) -> &[T; D] {
    values.try_into().expect("a row of this length")
}

/// [`accumulate`] for `D` columns.
#[inline(always)]
fn accumulate_few<T: Float, const D: usize>(
    rows: MatRef<'_, T>,
    labels: &[u32],
    weights: Option<&[f64]>,
    centers: MatRef<'_, T>,
    (sums, totals, energies): (&mut [f64], &mut [f64], &mut [f64]),
) {
    let (sums, _) = sums.as_chunks_mut::<D>();
    for (i, row) in rows.iter().enumerate() {
        let (row, j) = (short::<T, D>(row), labels[i] as usize);
        let (sum, sq_dist) = (&mut sums[j], sq_dist_of(row, short(centers.row(j))));
        if let Some(weights) = weights {
            let w = weights[i];
            for t in 0..D {
                sum[t] += w * row[t].to_f64();
            }
            totals[j] += w;
            energies[j] += w * sq_dist;
        } else {
            for t in 0..D {
                sum[t] += row[t].to_f64();
            }
            totals[j] += 1.0;
            energies[j] += sq_dist;
        }
    }
}

/// The statistics of clusters between which rows move. The sum of a cluster has two parts, so that a removed
/// row leaves no residue.
pub(in crate::kernel) struct TwoPartSums<'a> {
    pub(in crate::kernel) sums: &'a mut [f64],
    /// The rounding errors of `sums`.
    pub(in crate::kernel) lows: &'a mut [f64],
    pub(in crate::kernel) totals: &'a mut [f64],
    pub(in crate::kernel) energies: &'a mut [f64],
}

/// [`reassign`] for `D` columns.
#[inline(always)]
fn reassign_few<T: Float, const D: usize>(
    rows: MatRef<'_, T>,
    (old, new): (&[u32], &[u32]),
    centers: MatRef<'_, T>,
    TwoPartSums { sums, lows, totals, energies }: TwoPartSums<'_>,
) {
    let ((sums, _), (lows, _)) = (sums.as_chunks_mut::<D>(), lows.as_chunks_mut::<D>());
    for (i, row) in rows.iter().enumerate() {
        let (from, to) = (old[i] as usize, new[i] as usize);
        if from == to {
            continue;
        }
        let row = short::<T, D>(row);
        for (j, sign) in [(from, -1.0), (to, 1.0)] {
            let (sum, low) = (&mut sums[j], &mut lows[j]);
            for t in 0..D {
                add(&mut sum[t], &mut low[t], sign * row[t].to_f64());
            }
            totals[j] += sign;
            energies[j] += sign * sq_dist_of(row, short(centers.row(j)));
        }
    }
}

/// Adds `weight * row` to `sums[label]`, `weight` to `totals[label]`, and the weighted squared differences to
/// `energies[label]`, row by row.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn accumulate<S: Widen>(
    rows: MatRef<'_, S::T>,
    labels: &[u32],
    weights: Option<&[f64]>,
    centers: MatRef<'_, S::T>,
    sums: &mut [f64],
    totals: &mut [f64],
    energies: &mut [f64],
) {
    let d = rows.cols();
    with_columns!(d, D => {
        return accumulate_few::<_, D>(rows, labels, weights, centers, (sums, totals, energies));
    }, else {});
    for (i, row) in rows.iter().enumerate() {
        let j = labels[i] as usize;
        let sum = &mut sums[j * d..][..d];
        if let Some(weights) = weights {
            let w = weights[i];
            for (s, x) in sum.iter_mut().zip(row) {
                *s += w * x.to_f64();
            }
            totals[j] += w;
            // SAFETY: this function requires the instruction set, as `sq_dist` does.
            energies[j] += w * unsafe { sq_dist::<S>(row, centers.row(j)) };
        } else {
            for (s, x) in sum.iter_mut().zip(row) {
                *s += x.to_f64();
            }
            totals[j] += 1.0;
            // SAFETY: this function requires the instruction set, as `sq_dist` does.
            energies[j] += unsafe { sq_dist::<S>(row, centers.row(j)) };
        }
    }
}

/// Adds `x` to a two-part sum: `sum` is rounded, and the rounding error goes to `low` (Knuth's two-sum).
#[inline(always)]
pub(in crate::kernel) fn add(sum: &mut f64, low: &mut f64, x: f64) {
    let total = *sum + x;
    let rest = total - *sum;
    *low += (*sum - (total - rest)) + (x - rest);
    *sum = total;
}

/// Moves every row whose label changed from the sum of its old center to the sum of its new center.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn reassign<S: Widen>(
    rows: MatRef<'_, S::T>,
    (old, new): (&[u32], &[u32]),
    centers: MatRef<'_, S::T>,
    to: TwoPartSums<'_>,
) {
    let d = rows.cols();
    with_columns!(d, D => return reassign_few::<_, D>(rows, (old, new), centers, to), else {});
    let TwoPartSums { sums, lows, totals, energies } = to;
    for (i, row) in rows.iter().enumerate() {
        let (from, to) = (old[i] as usize, new[i] as usize);
        if from == to {
            continue;
        }
        for (j, sign) in [(from, -1.0), (to, 1.0)] {
            let (sum, low) = (&mut sums[j * d..][..d], &mut lows[j * d..][..d]);
            for ((s, l), x) in sum.iter_mut().zip(low).zip(row) {
                add(s, l, sign * x.to_f64());
            }
            totals[j] += sign;
            // SAFETY: this function requires the instruction set, as `sq_dist` does.
            energies[j] += sign * unsafe { sq_dist::<S>(row, centers.row(j)) };
        }
    }
}
