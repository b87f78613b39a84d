//! This module knows the kernel's width where it is left to the fit, and what weights are too large to be summed.

use super::affinity::Affinity;
use super::exponent::Exponent;
use super::params::{KModesParams, Shift};
use crate::data::{self, DataSource};
use crate::error::{Error, Result};
use crate::kernel::sq_dist;
use crate::parallel::Executor;

/// The mean squared distance of rows that are neighbours.
pub(super) fn mean_sq_dist<T: Exponent>(
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

/// A mean squared distance of neighbours as a variance, if it is one: rows of length 1 coincide where nothing but rounding tells them apart.
pub(super) fn sound_variance<T: Exponent>(mean: f64, normalized: bool) -> Result<f64> {
    let least = if normalized { (4.0 * T::EPSILON).powi(2) } else { f64::MIN_POSITIVE };
    if mean >= least && mean.is_finite() {
        return Ok(mean);
    }
    Err(Error::param(format!(
        "bandwidth=\"auto\" is the root of the mean squared distance of neighbours, which is {mean}: all of them coincide, or there are none, or rows \
         are far too small or too large to be squared; give a number, or scale the rows"
    )))
}

/// Refuses weights whose sums are no numbers of the type any more, given the largest sum of a row and that of all.
pub(super) fn refuse_overflow<T: Exponent>(params: &KModesParams, (most, all): (f64, f64)) -> Result<()> {
    let shift = if let Shift::By(shift) = params.shift { shift } else { 0.0 };
    let weight = params.laplacian_weight;
    let largest = 4.0 * (most + shift + 1.0) * weight.max(1.0);
    if T::from_f64(largest).finite() && (largest * all.max(1.0)).is_finite() {
        return Ok(());
    }
    Err(Error::param(format!(
        "laplacian_weight={weight} and diagonal_shift={shift} are too large for an affinity whose largest sum of a row is {most}: their product \
         overflows"
    )))
}
