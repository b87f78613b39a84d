//! Distances between centers, with which sweeps with one bound per row exclude centers.

use crate::kernel::bounded::{Margins, Nearest, ROUNDING, between, meets_single_centers, nearest_others};
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
        let nearest = apart.chunks_exact(k).enumerate().map(|(j, row)| {
            let (before, after) = row.split_at(j);
            before.iter().chain(&after[1..]).copied().fold(f32::INFINITY, f32::min)
        });
        let nearest: Vec<f32> = nearest.collect();
        let halves = nearest.iter().map(|&nearest| 0.5 * nearest).collect();
        // Adds twice the amount that rounding down removed.
        let (norm, gamma) = ((margins.norm * margins.unit).to_f32(), margins.gamma.to_f32());
        let more =
            |&least: &f32| (least + 32.0 * T::EPSILON as f32 * norm) * (1.0 + 4.0 * gamma + 8.0 * ROUNDING);
        let nearest = nearest.iter().map(more).collect();
        Self { halves, apart, nearest }
    }
}

/// Lower bounds on half the distance from each center to the nearest other.
fn halves<T: Compute>(packed: &PackedCenters<T>, margins: Margins<T>) -> Vec<f32> {
    let mut found = Nearest::default();
    let sq_norms = nearest_others(packed, &mut found);
    let norm = packed.largest_norm();
    let off = 8.0 * margins.gamma.to_f64() * norm * norm;
    let half = |(j, (&nearest, (next, sq_norm))): (usize, (&u32, (&T, f64)))| {
        // A center that coincides with an earlier one is not nearest to itself.
        let sq_dist = if nearest as usize == j { next.to_f64() + sq_norm - off } else { 0.0 };
        (0.5 * sq_dist.max(0.0).sqrt() * margins.unit.to_f64()) as f32 * (1.0 - ROUNDING)
    };
    found.ids.iter().zip(found.next.iter().zip(sq_norms)).enumerate().map(half).collect()
}
