//! Distances between centers, with which sweeps with one bound per row exclude centers.

use super::rounded::{down, length_up, up};
use crate::kernel::bounded::{Margins, Nearest, between, meets_single_centers, nearest_others};
use crate::kernel::{Compute, PackedCenters};

/// Number of centers from which rows with one bound search for the centers near their own center: computing
/// the distances to fewer centers is as fast.
const BALL_CENTERS: usize = 24;

/// Distances between centers, in units of bounds.
#[derive(Default)]
pub(super) struct Neighbors {
    /// Half the distance from each center to the nearest other, rounded down.
    pub(super) halves: Vec<f32>,
    /// The distances between all centers, rounded down; empty if rows are compared with all centers.
    pub(super) apart: Vec<f32>,
    /// The distance from each center to the nearest other, rounded up.
    pub(super) nearest: Vec<f32>,
}

impl Neighbors {
    pub(super) fn of<T: Compute>(
        packed: &PackedCenters<T>,
        margins: Margins<T>,
        (few, balls): (bool, bool),
    ) -> Self {
        let k = packed.n_centers();
        if !few {
            return Self { halves: vec![0.0; k], ..Self::default() };
        }
        if !balls || !meets_single_centers(packed) || k < BALL_CENTERS {
            return Self { halves: halves(packed, margins), ..Self::default() };
        }
        let apart = between(packed, margins);
        let (centers, unit) = (packed.centers(), margins.unit.to_f64());
        let nearest = apart.chunks_exact(k).enumerate().map(|(j, row)| {
            let others = (0..k).filter(|&i| i != j);
            let i = others.min_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(j);
            let at_most = length_up(centers.row(j), centers.row(i), packed.scale(), unit);
            (0.5 * row[i], up(at_most))
        });
        let (halves, nearest) = nearest.unzip();
        Self { halves, apart, nearest }
    }
}

/// Lower bounds on half the distance from each center to the nearest other.
fn halves<T: Compute>(packed: &PackedCenters<T>, margins: Margins<T>) -> Vec<f32> {
    let mut found = Nearest::default();
    let sq_norms = nearest_others(packed, &mut found);
    let norm = packed.largest_norm();
    let off = 8.0 * margins.gamma.to_f64() * norm * norm;
    // The second smallest value, whether the smallest is that of the center itself or of an equal one.
    let half = |(next, sq_norm): (&T, f64)| {
        let sq_dist = next.to_f64() + sq_norm - off;
        down(0.5 * sq_dist.max(0.0).sqrt() * margins.unit.to_f64())
    };
    found.next.iter().zip(sq_norms).map(half).collect()
}
