//! Sums of rows by label.

use super::operations;
use super::pack::PackedCenters;
use super::strips::fits;
use super::tier::Compute;
use crate::rows::Rows;

/// Adds every row to the sum of its center, in `f64`.
///
/// For each row: `sums[label] += weight * row`, `totals[label] += weight`, and `energies[label] += weight *
/// |row - center|^2`.
///
/// # Panics
/// If a length does not match, or a label is not below the number of centers.
///
/// ```
/// use shoal::MatRef;
/// use shoal::kernel::{PackedCenters, accumulate};
/// let centers = PackedCenters::new(MatRef::new(&[0.0f64, 4.0], 1));
/// let (mut sums, mut totals) = ([0.0; 2], [0.0; 2]);
/// let mut energies = [0.0; 2];
/// accumulate(MatRef::new(&[1.0, 5.0], 1), &[0, 1], None, &centers, &mut sums, &mut totals, &mut energies);
/// assert_eq!((energies, sums, totals), ([1.0, 1.0], [1.0, 5.0], [1.0, 1.0]));
/// ```
pub fn accumulate<'a, T: Compute>(
    rows: impl Into<Rows<'a, T>>,
    labels: &[u32],
    weights: Option<&[f64]>,
    packed: &PackedCenters<T>,
    sums: &mut [f64],
    totals: &mut [f64],
    energies: &mut [f64],
) {
    let rows = rows.into();
    fits(rows, packed);
    assert!(
        labels.len() == rows.rows() && weights.is_none_or(|w| w.len() == rows.rows()),
        "one label per row"
    );
    assert!(sums.len() == packed.k * packed.dim, "one sum per center");
    assert!(totals.len() == packed.k && energies.len() == packed.k, "one weight and one energy per center");
    match rows {
        Rows::Dense(rows) => {
            let to = (sums, totals, energies);
            operations::accumulate(packed.tier, rows, labels, weights, packed.centers(), to);
        }
        Rows::Sparse(sparse) => {
            for (i, (&label, (columns, values))) in labels.iter().zip(sparse.iter()).enumerate() {
                let j = label as usize;
                let (weight, sum) =
                    (weights.map_or(1.0, |w| w[i]), &mut sums[j * packed.dim..][..packed.dim]);
                for (&column, x) in columns.iter().zip(values) {
                    sum[column as usize] += weight * x.to_f64();
                }
                totals[j] += weight;
                energies[j] += weight * packed.sq_dist(rows, i, j);
            }
        }
    }
}
