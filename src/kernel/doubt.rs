//! Rows whose nearest center tile values do not determine.

use crate::float::Float;

/// By how much tile values must differ to exclude a center. There are two bounds, and the smaller one counts:
/// `share |x'|^2 + fixed` for all centers, and `of_row |x'|^2 + of_best (v + |x'|^2)` for those that are not much
/// farther from the row than a center with tile value `v`. Lost digits of vanishing squares are added to the second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubt<T> {
    pub(super) share: T,
    pub(super) fixed: T,
    of_row: T,
    of_best: T,
}

impl<T: Float> Doubt<T> {
    /// No doubt: every difference counts.
    pub(super) const NONE: Self = Self { share: T::ZERO, fixed: T::ZERO, of_row: T::ZERO, of_best: T::ZERO };

    /// The doubt about tile values with the relative error `gamma`, where `largest` is the largest length of a packed
    /// center. The [arbiter](super::arbiter) has the proof.
    pub(super) fn new(gamma: f64, largest: f64) -> Self {
        let near = if gamma <= 1.0 / 32.0 { gamma } else { f64::INFINITY };
        Self {
            share: T::from_f64(2.0 * gamma),
            fixed: T::from_f64(4.0 * gamma * largest * largest),
            of_row: T::from_f64(14.0 * near),
            of_best: T::from_f64(16.0 * near),
        }
    }

    /// The doubt of a bound for all centers.
    pub(super) fn for_all(share: T, fixed: T) -> Self {
        Self { share, fixed, of_row: T::INFINITY, of_best: T::INFINITY }
    }

    /// The difference for a row with this `|x'|^2`, and for the tile value `best` of any of the centers. The smaller it
    /// is, the smaller is the difference.
    #[inline(always)]
    pub(crate) fn of(self, sq_norm: T, best: T) -> T {
        let apart = best + sq_norm;
        let apart = if apart > T::ZERO { apart } else { T::ZERO };
        let near = self.of_row * sq_norm + self.of_best * (apart + vanishing());
        let all = self.share * sq_norm + self.fixed;
        if near < all { near } else { all }
    }
}

/// Squared lengths below this value may have lost digits to underflow.
pub(super) fn vanishing<T: Float>() -> T {
    T::from_f64(2f64.powi(if T::WIDE { -960 } else { -112 }))
}

/// Whether the two smallest tile values of a row differ by at most `doubt`, so that they do not determine the
/// nearest center. Values that are not numbers determine nothing.
#[inline(always)]
pub(crate) fn is_in_doubt<T: Float>(best: T, second: T, doubt: T) -> bool {
    // Not `second <= ...`, because of NaN.
    let decided = second > best + doubt;
    !decided
}

/// Rows whose two smallest tile values differ too little to determine the nearest center.
#[derive(Debug, Default)]
pub(crate) struct Doubts<T> {
    pub(super) rows: Vec<u32>,
    /// Per row: centers with larger tile values are not the nearest.
    pub(super) limits: Vec<T>,
    /// The largest `|c'|`, and the doubt about dense rows.
    pub(super) largest: f64,
    pub(super) of_dense: Doubt<T>,
}

impl<T: Float> Doubts<T> {
    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.limits.clear();
    }

    /// The doubt about dense rows.
    pub(super) fn of_dense(&self) -> Doubt<T> {
        self.of_dense
    }

    /// Notes a row if it [is in doubt](is_in_doubt). Returns whether it is.
    #[inline(always)]
    pub(crate) fn note(&mut self, row: usize, best: T, second: T, doubt: T) -> bool {
        let noted = is_in_doubt(best, second, doubt);
        if noted {
            self.rows.push(row as u32);
            self.limits.push(best + doubt);
        }
        noted
    }

    /// The rows in doubt.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }
}
