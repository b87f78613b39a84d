//! Adds rows to the sums of their centers, in `f64`: the second half of a sweep.
#![allow(clippy::needless_range_loop, reason = "loops of known length over several arrays are unrolled")]

use super::pair::{sq_dist, sq_dist_of};
use crate::float::Float;
use crate::kernel::simd::Widen;
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
