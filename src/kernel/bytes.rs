//! Sums and distances of rows of bytes, as stored.

use super::table::active;
use crate::matrix::MatRef;

/// Adds every column of `rows` to `sums`, and returns the sum of all squares. Exact.
///
/// # Panics
/// If there is not one sum per column.
pub(crate) fn add_bytes(rows: MatRef<'_, u8>, sums: &mut [u64]) -> u64 {
    assert_eq!(sums.len(), rows.cols(), "one sum per column");
    (active::<f32>().add_bytes)(rows, sums)
}

/// Squared distances of all rows to a point, bit-identical to [`sq_dist`](super::sq_dist) of the rows as `f32`.
///
/// # Panics
/// If lengths do not match.
pub(crate) fn byte_sq_dists(rows: MatRef<'_, u8>, point: &[f64], out: &mut [f64]) {
    assert!(
        point.len() == rows.cols() && out.len() == rows.rows(),
        "one value per column, one result per row"
    );
    (active::<f32>().byte_sq_dists)(rows, point, out);
}
