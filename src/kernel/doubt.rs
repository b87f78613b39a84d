//! Rows whose nearest center tile values do not determine.

use crate::float::Float;

/// By how much tile values must differ to exclude a center: `share |x'|^2 + fixed`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt<T> {
    pub(super) share: T,
    pub(super) fixed: T,
}

impl<T: Float> Doubt<T> {
    /// No doubt: every difference counts.
    pub(super) const NONE: Self = Self { share: T::ZERO, fixed: T::ZERO };

    /// The difference for a row with this `|x'|^2`.
    #[inline(always)]
    pub(crate) fn of(self, sq_norm: T) -> T {
        self.share * sq_norm + self.fixed
    }
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
#[derive(Debug)]
pub(crate) struct Doubts<T> {
    pub(super) rows: Vec<u32>,
    /// Per row: centers with larger tile values are not the nearest.
    pub(super) limits: Vec<T>,
    /// The largest `|c'|`, and the doubt about dense rows.
    pub(super) largest: f64,
    pub(super) of_dense: Doubt<T>,
}

impl<T: Float> Default for Doubts<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), limits: Vec::new(), largest: 0.0, of_dense: Doubt::NONE }
    }
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
