//! The unit sphere, where the centers of the cosine metric lie.

use crate::data::normalize_rows;
use crate::fit::Metric;
use crate::float::Float;

/// With the cosine metric, divides every center by its length. A center at the origin stays there.
///
/// A center of length 1 up to rounding, of its values and of this sum, does not change: dividing it again would move it
/// by a rounding error, and the labels of a fit would differ from those of a later pass.
pub(crate) fn project<T: Float>(centers: &mut [T], dim: usize, metric: Metric) {
    if metric == Metric::Euclidean {
        return;
    }
    let rounding = 4.0 * T::EPSILON + 2.0 * dim as f64 * f64::EPSILON;
    for center in centers.chunks_exact_mut(dim) {
        let sq_norm: f64 = center.iter().map(|c| c.to_f64().powi(2)).sum();
        if (sq_norm - 1.0).abs() > rounding {
            normalize_rows(center, dim);
        }
    }
}
