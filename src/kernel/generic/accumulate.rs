//! Adds rows to the sums of their centers, in `f64`: the second half of a sweep.

use super::pair::sq_dist;
use super::simd::Widen;
use crate::float::Float;
use crate::matrix::MatRef;

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
    for (i, row) in rows.iter().enumerate() {
        let j = labels[i] as usize;
        let sum = &mut sums[j * d..][..d];
        if let Some(weights) = weights {
            let w = weights[i];
            for (s, x) in sum.iter_mut().zip(row) {
                *s += w * x.to_f64();
            }
            totals[j] += w;
            // SAFETY: guaranteed by the caller.
            energies[j] += w * unsafe { sq_dist::<S>(row, centers.row(j)) };
        } else {
            for (s, x) in sum.iter_mut().zip(row) {
                *s += x.to_f64();
            }
            totals[j] += 1.0;
            // SAFETY: guaranteed by the caller.
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

/// Moves every row whose label changed from the sum of its old center to the sum of its new center, and
/// updates `energies`. Sums have two parts, so that a removed row leaves no residue.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn reassign<S: Widen>(
    rows: MatRef<'_, S::T>,
    (old, new): (&[u32], &[u32]),
    centers: MatRef<'_, S::T>,
    (sums, lows): (&mut [f64], &mut [f64]),
    totals: &mut [f64],
    energies: &mut [f64],
) {
    let d = rows.cols();
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
            // SAFETY: guaranteed by the caller.
            energies[j] += sign * unsafe { sq_dist::<S>(row, centers.row(j)) };
        }
    }
}
