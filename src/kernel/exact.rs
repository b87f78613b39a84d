//! The parts of exact sums that are compiled for each instruction set. Their bits do not depend on it.

use super::operations;
use super::tier::{Compute, active};
use crate::matrix::MatRef;

pub(crate) use super::generic::limbs::{Limbs, NO_GRID, plus, split, values_of};

/// Adds every row, times its weight, to the sums of its cluster. Returns whether all sums are exact.
///
/// # Panics
/// If a length does not match, or a label is not the number of a cluster.
pub(crate) fn add_rows<T: Compute>(
    rows: MatRef<'_, T>,
    labels: &[u32],
    weights: Option<&[f64]>,
    to: Limbs<'_>,
) -> bool {
    operations::add_rows(active::<T>(), rows, labels, weights, to)
}

/// Moves every row whose label changed to the sums of its new cluster. Returns whether all sums are exact.
///
/// # Panics
/// If a length does not match, or a label is not the number of a cluster.
pub(crate) fn reassign<T: Compute>(rows: MatRef<'_, T>, labels: (&[u32], &[u32]), to: Limbs<'_>) -> bool {
    operations::reassign(active::<T>(), rows, labels, to)
}

/// Adds the whole numbers of a cluster to its sums of two parts, and clears them. Numbers whose sum two parts cannot
/// hold stay. Returns whether there are none.
pub(crate) fn settle(from: Limbs<'_>, sums: &mut [f64], lows: &mut [f64]) -> bool {
    operations::settle(active::<f64>(), from, sums, lows)
}

/// Adds sums of two parts to others, and clears them. Those that cannot be added without loss stay. Returns whether
/// there are none.
pub(crate) fn merge_pairs(from: (&mut [f64], &mut [f64]), sums: &mut [f64], lows: &mut [f64]) -> bool {
    operations::merge_pairs(active::<f64>(), from, sums, lows)
}
