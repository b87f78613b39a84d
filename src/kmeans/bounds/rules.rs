//! The bounds as one sweep sees them: margins for rounding, and the drift to add and remove.

use super::neighbors::Neighbors;
use super::rounded::up;
use super::{BASE_SWEEPS, PanelBounds};
use crate::kernel::bounded::{Doubt, Margins};
use crate::kernel::{Compute, PackedCenters};

/// The bounds as one sweep sees them.
pub(in crate::kmeans) struct Rules<'a, T: Compute> {
    pub(super) bounds: &'a PanelBounds,
    pub(super) packed: &'a PackedCenters<T>,
    /// Centers in a panel.
    pub(super) width: usize,
    pub(super) margins: Margins<T>,
    pub(super) doubt: Doubt<T>,
    /// Whether the sweep writes all lower bounds with the drift removed.
    pub(super) rebase: bool,
    /// Drift contained in the stored bounds, and in the bounds that this sweep writes: per group, and of all
    /// centers.
    pub(super) drift: Vec<f32>,
    pub(super) new_drift: Vec<f32>,
    pub(super) far_drift: f32,
    pub(super) new_far_drift: f32,
    /// Distances between centers, if rows have a single bound.
    pub(super) neighbors: Neighbors,
    /// Extra distance added to the upper bound of every row.
    pub(super) beyond: f32,
}

impl PanelBounds {
    /// The rules of the next sweep, over rows that store at most `values` values.
    pub(in crate::kmeans) fn rules<'a, T: Compute>(
        &'a self,
        packed: &'a PackedCenters<T>,
        values: usize,
    ) -> Rules<'a, T> {
        let (norm, gamma) = (packed.largest_norm(), rounding_of(packed, values));
        let off = lost_of(packed);
        let margins = Margins {
            norm: T::from_f64(norm),
            gamma: T::from_f64(gamma),
            unit: T::from_f64(self.unit),
            off: T::from_f64(off),
        };
        let rebase = self.age >= BASE_SWEEPS;
        let drift: Vec<f32> = self.drift.iter().map(|&drift| up(drift)).collect();
        let far_drift = up(self.far_drift);
        Rules {
            bounds: self,
            packed,
            width: PackedCenters::<T>::panel_centers(),
            margins,
            doubt: packed.doubt(values),
            rebase,
            neighbors: if self.is_single() {
                // Centers are dense: for sparse rows, center-to-center distances would cost more than they
                // save.
                let few = self.few_centers && !packed.is_sparse();
                Neighbors::of(packed, margins, (few, few && self.balls))
            } else {
                Neighbors::default()
            },
            new_drift: if rebase { vec![0.0; drift.len()] } else { drift.clone() },
            drift,
            far_drift,
            new_far_drift: if rebase { 0.0 } else { far_drift },
            beyond: 0.0,
        }
    }
}

/// Upper limit on the rounding error of tile values, relative to the squared lengths involved, for rows that
/// store at most `values` values.
pub(in crate::kmeans) fn rounding_of<T: Compute>(packed: &PackedCenters<T>, values: usize) -> f64 {
    // The lengths of centers packed for sparse rows are f64 sums over all columns.
    let sparse_wide = packed.is_sparse() && T::WIDE;
    let values = if sparse_wide { values.max(packed.dim()) } else { values };
    (values as f64 + 16.0) * T::EPSILON
}

/// Upper limit on the f64 rounding error of the squared distance of a sparse row to a center, in packed
/// lengths. Every sum over columns that is computed separately loses at most one rounding per column.
pub(super) fn lost_of<T: Compute>(packed: &PackedCenters<T>) -> f64 {
    lost_share(packed) * packed.largest_norm().powi(2)
}

/// [`lost_of`] relative to the square of the largest norm.
pub(in crate::kmeans) fn lost_share<T: Compute>(packed: &PackedCenters<T>) -> f64 {
    if packed.is_sparse() { (2.0 * packed.dim() as f64 + 16.0) * f64::EPSILON } else { 0.0 }
}
