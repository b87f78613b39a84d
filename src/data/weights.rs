//! Checks of row weights, and the errors that they raise.

use crate::error::{Error, InvalidParam, Result};

/// The error for weights that are all 0.
pub(crate) fn no_weight() -> Error {
    Error::param("weights", "above 0 for at least one row", "zero for every row")
}

/// The error for rows whose squared distances overflow `f64`, in a row or in sum.
pub(crate) fn too_far() -> Error {
    Error::Source("`rows` hold values so large that squared distances overflow: scale the data".into())
}

/// The error for rows whose squared distances underflow `f64`.
pub(crate) fn too_near() -> Error {
    Error::Source("`rows` hold values so small that squared distances underflow: scale the data".into())
}

/// The error for sums that overflow `f64`: because of the weights if the rows are `weighted`.
pub(crate) fn too_heavy(weighted: bool) -> Error {
    if !weighted {
        return too_far();
    }
    let expected = "of a finite sum, also when multiplied by squared distances";
    InvalidParam::new("weights", expected, "weights that are too large")
        .with_remedy("scale the weights")
        .into()
}

/// The error for weights so small that their products with squared distances lose all digits.
pub(crate) fn too_light() -> Error {
    let expected = "at least 1e-280 in sum";
    InvalidParam::new("weights", expected, "weights that are too small")
        .with_remedy("scale the weights")
        .into()
}

/// Checks that all weights are finite and at least 0; `weights[0]` is the weight of row `first_row`.
pub(super) fn check_weights(weights: &[f64], first_row: u64) -> Result<()> {
    match weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        None => Ok(()),
        Some(bad) => Err(Error::param(
            "weights",
            "finite and at least 0",
            format!("{} at row {}", weights[bad], first_row + bad as u64),
        )),
    }
}

/// Checks that there are as many weights as rows.
pub(super) fn check_length(weights: usize, rows: u64) -> Result<()> {
    if weights as u64 == rows {
        return Ok(());
    }
    Err(Error::Shape(format!("weights have {weights} values, `rows` have {rows} rows")))
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
