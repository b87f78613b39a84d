//! Errors that all passes share.

use crate::error::Error;

/// The error for numbers of rows or partitions that are too large.
pub(super) fn of_too_many() -> Error {
    Error::Source("the partial results must hold at most 2^62 rows and partitions in all, got more".into())
}

/// The error for sums of different passes or shapes.
pub(super) fn of_others() -> Error {
    Error::Source(
        "the partial results must belong to the same pass: they hold sums of different shapes".into(),
    )
}
