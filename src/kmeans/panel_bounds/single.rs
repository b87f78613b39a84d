//! This module knows how a chunk of rows is labelled by one bound a row (Hamerly, "Making k-means even faster", 2010).
//!
//! A row keeps its label while the lower bound of the distances to all other centers, or half the distance from its own center to the
//! nearest other one, exceeds the upper bound of the distance to its own center. All rows for which neither does are compacted and meet all
//! centers: the fastest way where distances are cheap, in few columns or with few centers.

use super::sweep::{Rows, Rules, Work};
use crate::kernel::bounded::{ROUNDING, Radii, measure, nearest_pair, radii, reach, renew, upper, within};
use crate::kernel::{Compute, PackedCenters, nearest_two};
use crate::matrix::MatRef;

impl<T: Compute> Rules<'_, T> {
    /// As [`Rules::label`].
    pub(super) fn label_by_one_bound(&self, chunk: &mut Rows<'_, T>, work: &mut Work<T>) -> u64 {
        let m = chunk.old.len();
        work.least.clear();
        work.least.extend(chunk.bounds.least.iter().zip(chunk.old).map(|(&least, &j)| {
            let (others, half) = (least - self.new_far_drift, self.halves[j as usize]);
            if half > others { half } else { others }
        }));
        work.reach.resize(m, 0.0);
        reach(self.outer, chunk.bounds.upper, &mut work.reach);
        // Whole vectors are written: room for one more.
        work.open.resize(m + 16, 0);
        let measured = within(&work.least, 0.0, &work.reach, &mut work.open);
        let picked = &work.open[..measured];
        measure(self.packed, chunk.values, picked, chunk.old, &mut work.gathered, &mut work.radii);
        radii(self.margins, &mut work.radii);
        work.error.resize(m, T::ZERO);
        work.compact.clear();
        let Radii { upper: uppers, reach: reaches, error, .. } = &work.radii;
        let mut kept = 0;
        for i in 0..measured {
            let r = work.open[i];
            chunk.bounds.upper[r as usize] = uppers[i];
            if work.least[r as usize] < reaches[i] {
                work.open[kept] = r;
                work.error[r as usize] = error[i];
                work.compact.extend_from_slice(chunk.values.row(r as usize));
                kept += 1;
            }
        }
        let open = &work.open[..kept];
        work.labels.resize(kept, 0);
        work.best.resize(kept, T::ZERO);
        work.next.resize(kept, T::ZERO);
        if kept > 0 {
            let rows = MatRef::new(&work.compact, chunk.values.cols());
            let pair = (&mut work.best[..], &mut work.next[..]);
            nearest_pair(rows, self.packed, &mut work.labels, pair, &mut work.scratch);
        }
        for ((&r, &label), &best) in open.iter().zip(&work.labels).zip(&work.best) {
            let r = r as usize;
            if label != chunk.old[r] {
                chunk.new[r] = label;
                chunk.bounds.upper[r] = upper(&work.gathered, r, best, work.error[r], self.margins);
            }
        }
        let found = (&work.next[..], &work.error[..]);
        let to = (&mut chunk.bounds.least[..], 1, 0);
        renew(&work.gathered, open, found, self.margins, self.new_far_drift, to);
        measured as u64 + kept as u64 * self.packed.n_centers() as u64
    }
}

/// Lower bounds of half the distance from each center to the nearest other one, in units of bounds.
pub(super) fn halves<T: Compute>(packed: &PackedCenters<T>, unit: f64, gamma: f64) -> Vec<f32> {
    let (centers, k) = (packed.centers(), packed.n_centers());
    let (mut labels, mut own, mut next) = (vec![0; k], vec![0.0; k], vec![0.0; k]);
    nearest_two(centers, packed, &mut labels, &mut own, &mut next, &mut Default::default());
    let (norm, scale) = (packed.largest_norm(), packed.scale());
    let off = 8.0 * gamma * norm * norm;
    let half = |(j, &nearest): (usize, &u32)| {
        // A center that coincides with one before it is not its own nearest one.
        let sq_dist = if nearest as usize == j { next[j] * scale * scale - off } else { 0.0 };
        (0.5 * sq_dist.max(0.0).sqrt() * unit) as f32 * (1.0 - ROUNDING)
    };
    labels.iter().enumerate().map(half).collect()
}
