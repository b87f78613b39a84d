//! Sums and distances of rows of bytes, as stored.

use super::operations;
use super::tier::active;
use crate::matrix::MatRef;

/// Adds every column of `rows` to `sums`, and returns the sum of all squares. Exact.
///
/// # Panics
/// If there is not one sum per column.
pub(crate) fn add_bytes(rows: MatRef<'_, u8>, sums: &mut [u64]) -> u64 {
    assert_eq!(sums.len(), rows.cols(), "one sum per column");
    operations::add_bytes(active::<f32>(), rows, sums)
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
    operations::byte_sq_dists(active::<f32>(), rows, point, out);
}
