//! Checks of row weights, and the errors that they raise.

use crate::error::{Error, Result};

/// The error for weights that are all 0.
pub(crate) fn no_weight() -> Error {
    Error::param("sample_weight must not be zero for every row")
}

/// The error for weights whose sums overflow `f64`.
pub(crate) fn too_heavy() -> Error {
    Error::param(
        "sample_weight is too large: its sum, or that of its products with squared distances, overflows",
    )
}

/// The error for weights so small that their products with squared distances lose all digits.
pub(crate) fn too_light() -> Error {
    Error::param("sample_weight is too small: it must add up to at least 1e-280, scale the weights")
}

/// Checks that all weights are finite and at least 0; `weights[0]` is the weight of row `first_row`.
pub(super) fn check_weights(weights: &[f64], first_row: u64) -> Result<()> {
    match weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        None => Ok(()),
        Some(bad) => Err(Error::param(format!(
            "sample_weight must be finite and at least 0, got {} at row {}",
            weights[bad],
            first_row + bad as u64
        ))),
    }
}

/// Checks that there are as many weights as rows.
pub(super) fn check_length(weights: usize, rows: u64) -> Result<()> {
    if weights as u64 == rows {
        return Ok(());
    }
    Err(Error::Shape(format!("sample_weight has {weights} values, X has {rows} rows")))
}

/// Checks that a source of `rows` rows announces one weight per row.
pub(super) fn check_announced(weights: Option<&[f64]>, rows: u64) -> Result<()> {
    match weights {
        Some(weights) if weights.len() as u64 != rows => {
            Err(Error::Source(format!("the source gave {} weights for {rows} rows", weights.len())))
        }
        _ => Ok(()),
    }
}
