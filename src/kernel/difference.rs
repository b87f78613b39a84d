//! Detects centers that tile values of `T` cannot tell apart, and computes distances by difference for them.
//!
//! Tile values cannot order two centers whose distance is below their rounding error. A single such pair
//! among the compared centers makes a whole pass slow. Equal centers do not count, since the lower index wins
//! either way. Pairs that are not compared keep tile values, and a row near both gets the label of either.
//!
//! The square of a difference of `f32` values neither overflows nor underflows in `f64`. There is no wider
//! type for `f64` values: there, each difference vector is first divided by its largest component, and
//! lengths are compared instead of squares.

use super::generic::differences::{ROWS, is_length};
use super::operations;
use super::pack::{PackedCenters, Scratch, moved};
use super::tier::Compute;
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::Rows;
use crate::tuning::{COMPARED_CENTERS, COMPARED_COLUMNS};

/// Whether tile values in a frame tell these centers apart; see the limits of [`PackedCenters`]. `norms` are
/// the centers' `|c'|^2` in any order, with infinite values at the end. The result depends neither on the
/// order of `norms` nor on the instruction set.
pub(super) fn are_told_apart<T: Compute>(centers: MatRef<'_, T>, norms: &[T], shift: &[T], scale: T) -> bool {
    if norms.iter().filter(|&&norm| norm < vanishing()).count() > 1
        && !vanishing_are_equal(centers, shift, scale)
    {
        return false;
    }
    let picked: Vec<(&[T], f64)> = compared(centers).map(|c| (c, sq_norm(c, shift, scale))).collect();
    let first = centers.cols().min(COMPARED_COLUMNS);
    picked.iter().enumerate().all(|(i, (a, a_norm))| {
        picked[..i].iter().all(|(b, b_norm)| {
            let too_near = 4.0 * T::EPSILON * a_norm.max(*b_norm);
            (a_norm.sqrt() - b_norm.sqrt()).powi(2) > too_near
                || scaled_sq_dist(&a[..first], &b[..first], scale) > too_near
                || scaled_sq_dist(a, b, scale) > too_near
                || a == b
        })
    })
}

/// Two centers with squared lengths below this value may lose the digits that tell them apart.
pub(super) fn vanishing<T: Float>() -> T {
    T::from_f64(2f64.powi(if size_of::<T>() == 4 { -112 } else { -960 }))
}

/// Whether squared differences, times the square of `scale`, tell these centers apart in `T`. Checks all
/// centers near the origin, and the pairs that [`are_told_apart`] compares.
pub(super) fn squares_tell_apart<T: Compute>(centers: MatRef<'_, T>, scale: T) -> bool {
    let origin = vec![T::ZERO; centers.cols()];
    let picked: Vec<&[T]> = compared(centers).collect();
    let vanishes = |a: &[T], b: &[T]| scaled_sq_dist(a, b, scale) < vanishing::<T>().to_f64() && a != b;
    vanishing_are_equal(centers, &origin, scale)
        && picked.iter().enumerate().all(|(i, a)| picked[..i].iter().all(|b| !vanishes(a, b)))
}

/// The distance of row `i` to a center, also if its square overflows or underflows `f64`.
#[cold]
pub(super) fn length<T: Float>(rows: Rows<'_, T>, i: usize, center: &[T]) -> f64 {
    let mut apart: Vec<f64> = center.iter().map(|c| c.to_f64()).collect();
    match rows {
        Rows::Dense(rows) => apart.iter_mut().zip(rows.row(i)).for_each(|(apart, x)| *apart -= x.to_f64()),
        Rows::Sparse(rows) => {
            let (columns, values) = rows.row(i);
            columns.iter().zip(values).for_each(|(&t, x)| apart[t as usize] -= x.to_f64());
        }
    }
    let largest = apart.iter().fold(0.0, |most: f64, apart| most.max(apart.abs()));
    if largest == 0.0 || largest.is_infinite() {
        return largest;
    }
    largest * apart.iter().map(|apart| (apart / largest).powi(2)).sum::<f64>().sqrt()
}

/// Evenly spaced centers, all pairs of which are compared.
fn compared<T: Float>(centers: MatRef<'_, T>) -> impl Iterator<Item = &[T]> {
    let (k, some) = (centers.rows(), centers.rows().min(COMPARED_CENTERS));
    (0..some).map(move |i| centers.row(i * k / some))
}

/// The squared distance of two centers, times the square of `scale`.
fn scaled_sq_dist<T: Float>(a: &[T], b: &[T], scale: T) -> f64 {
    let factor = scale.to_f64();
    let apart = a.iter().zip(b).map(|(a, b)| (a.to_f64() - b.to_f64()) * factor);
    apart.map(|apart| apart * apart).sum()
}

fn sq_norm<T: Float>(center: &[T], shift: &[T], scale: T) -> f64 {
    let moved = center.iter().zip(shift).map(|(&c, &s)| moved(c, s, scale).to_f64());
    moved.map(|c| c * c).sum()
}

/// Whether all centers with a vanishing squared length are equal.
fn vanishing_are_equal<T: Compute>(centers: MatRef<'_, T>, shift: &[T], scale: T) -> bool {
    let mut vanish = centers.iter().filter(|c| T::from_f64(sq_norm(c, shift, scale)) < vanishing());
    vanish.next().is_none_or(|first| vanish.all(|c| c == first))
}

/// Calls `f(rows, center, values)` for small groups of rows and all centers in ascending order. `values` are
/// squared distances, or distances for `f64`.
pub(super) fn for_each_center<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    scratch: &mut Scratch<T>,
    mut f: impl FnMut(std::ops::Range<usize>, usize, &[f64]),
) {
    super::fits(rows, packed);
    let mut values = [0.0; ROWS];
    for start in (0..rows.rows()).step_by(ROWS) {
        let range = start..rows.rows().min(start + ROWS);
        scratch.columns_f64.resize(ROWS * packed.dim, 0.0);
        let columns = &mut scratch.columns_f64;
        match rows.slice(range.start, range.end) {
            Rows::Dense(some) => {
                for i in 0..some.rows() {
                    let places = columns[i..].iter_mut().step_by(ROWS);
                    places.zip(some.row(i)).for_each(|(place, x)| *place = x.to_f64());
                }
            }
            // Expand sparse rows, so that they get the same labels as equal dense rows.
            Rows::Sparse(some) => {
                columns.fill(0.0);
                for (i, (stored, x)) in some.iter().enumerate() {
                    stored.iter().zip(x).for_each(|(&t, x)| columns[t as usize * ROWS + i] = x.to_f64());
                }
            }
        }
        for (j, center) in packed.centers().iter().enumerate() {
            operations::differences(packed.tier, &scratch.columns_f64, center, &mut values);
            f(range.clone(), j, &values[..range.len()]);
        }
    }
}

/// Calls `f(row, label, nearest, second nearest)` for every row, with squared distances, which may be
/// infinite. A row with a non-finite value gets the label 0.
pub(super) fn nearest_two<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    scratch: &mut Scratch<T>,
    mut f: impl FnMut(usize, u32, f64, f64),
) {
    let mut found = [(0, f64::INFINITY, f64::INFINITY); ROWS];
    for_each_center(rows, packed, scratch, |range, j, values| {
        for ((id, best, second), &value) in found.iter_mut().zip(values) {
            if j == 0 {
                (*id, *best, *second) = (0, f64::INFINITY, f64::INFINITY);
            }
            if value < *best {
                (*id, *second, *best) = (j as u32, *best, value);
            } else if value < *second {
                *second = value;
            }
        }
        if j + 1 == packed.k {
            for (r, &(id, best, second)) in range.zip(&found) {
                f(r, id, squared::<T>(best), squared::<T>(second));
            }
        }
    });
}

/// Converts a value of [`for_each_center`] to a squared distance.
pub(super) fn squared<T: Float>(value: f64) -> f64 {
    if is_length::<T>() { value * value } else { value }
}
