//! This module knows how a chunk of rows is labelled by one bound a row (Hamerly, "Making k-means even faster", 2010).
//!
//! A row keeps its label while the lower bound of the distances to all other centers, or half the distance from its own center to the
//! nearest other one, exceeds the upper bound of the distance to its own center. All other rows are compacted. With few columns they meet, label by label,
//! only the centers in a ball about their own one that must hold the nearest two (Exponion: Newling and Fleuret, "Fast k-means with
//! accurate bounds", 2016), else all centers.

use super::sweep::{Part, RowBoundsMut, Rules, Work};
use crate::kernel::bounded::{
    BEHIND, Margins, Nearest, ROUNDING, Radii, between, measure, meets_single_centers, nearest_listed,
    nearest_others, nearest_pair, put_in_columns, radii, reach, renew, upper, within,
};
use crate::kernel::{Compute, PackedCenters};
use crate::tuning::BALL_CENTERS;

/// How near centers are to each other, in units of bounds.
#[derive(Default)]
pub(super) struct Neighbours {
    /// Half the distance from each to the nearest other one, rounded down.
    halves: Vec<f32>,
    /// The distances between all of them, rounded down; empty where rows meet all centers.
    apart: Vec<f32>,
    /// The distance from each to the nearest other one, rounded up.
    nearest: Vec<f32>,
}

impl Neighbours {
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
        // Twice what rounding down took away.
        let (norm, gamma) = ((margins.norm * margins.unit).to_f32(), margins.gamma.to_f32());
        let more =
            |&least: &f32| (least + 32.0 * T::EPSILON as f32 * norm) * (1.0 + 4.0 * gamma + 8.0 * ROUNDING);
        let nearest = nearest.iter().map(more).collect();
        Self { halves, apart, nearest }
    }
}

/// Lower bounds of half the distance from each center to the nearest other one.
fn halves<T: Compute>(packed: &PackedCenters<T>, margins: Margins<T>) -> Vec<f32> {
    let mut found = Nearest::default();
    let sq_norms = nearest_others(packed, &mut found);
    let norm = packed.largest_norm();
    let off = 8.0 * margins.gamma.to_f64() * norm * norm;
    let half = |(j, (&nearest, (next, sq_norm))): (usize, (&u32, (&T, f64)))| {
        // A center that coincides with one before it is not its own nearest one.
        let sq_dist = if nearest as usize == j { next.to_f64() + sq_norm - off } else { 0.0 };
        (0.5 * sq_dist.max(0.0).sqrt() * margins.unit.to_f64()) as f32 * (1.0 - ROUNDING)
    };
    found.ids.iter().zip(found.next.iter().zip(sq_norms)).enumerate().map(half).collect()
}

impl<T: Compute> Rules<'_, T> {
    /// As [`Rules::label`].
    pub(super) fn label_by_one_bound(&self, chunk: &mut Part<'_, T>, work: &mut Work<T>) -> u64 {
        let measured = self.open_by_one_bound(chunk, work);
        let open = std::mem::take(&mut work.open);
        work.nearest.resize(open.len() + BEHIND);
        let met = if self.neighbours.apart.is_empty() {
            self.meet_all(&open, chunk, work)
        } else {
            self.meet_balls(&open, chunk, work)
        };
        // The open rows in the order in which they met their centers.
        let met_rows =
            if self.neighbours.apart.is_empty() { &open[..] } else { &work.lists.rows[..open.len()] };
        for ((&row, &label), &best) in met_rows.iter().zip(&work.nearest.ids).zip(&work.nearest.best) {
            let r = row as usize;
            if label != chunk.old[r] {
                work.changes.push((row, label));
                chunk.bounds.upper[r] = upper(&work.gathered, r, best, work.error[r], self.margins);
            }
        }
        // Sums are moved in the order of the rows, whoever found out that they must be.
        work.changes.sort_unstable();
        let found = (&work.nearest.next[..open.len()], &work.error[..]);
        let to = (&mut chunk.bounds.least[..], 1, 0);
        renew(&work.gathered, met_rows, found, self.margins, self.new_far_drift, to);
        work.open = open;
        (measured + met) as u64
    }

    /// Finds the rows whose bounds do not settle the label.
    pub(super) fn near_by_one_bound(&self, old: &[u32], bounds: &RowBoundsMut<'_>, work: &mut Work<T>) {
        let m = old.len();
        work.least.clear();
        work.least.extend(bounds.least.iter().zip(old).map(|(&least, &j)| {
            let (others, half) = (least - self.new_far_drift, self.neighbours.halves[j as usize]);
            if half > others { half } else { others }
        }));
        work.reach.resize(m, 0.0);
        reach(self.outer, bounds.upper, &mut work.reach);
        // Whole vectors are written: room for one more.
        work.open.resize(m + 16, 0);
        let near = within(&work.least, 0.0, &work.reach, &mut work.open);
        work.open.truncate(near);
    }

    /// Measures these rows, and keeps those whose label may change; gives the number of those that were measured.
    fn open_by_one_bound(&self, chunk: &mut Part<'_, T>, work: &mut Work<T>) -> usize {
        let measured = work.open.len();
        let picked = &work.open[..];
        measure(self.packed, chunk.values, picked, chunk.old, &mut work.gathered, &mut work.radii);
        radii(self.margins, &mut work.radii);
        work.error.resize(chunk.old.len(), T::ZERO);
        let Radii { upper: uppers, reach: reaches, error, .. } = &work.radii;
        let mut kept = 0;
        for i in 0..measured {
            let row = work.open[i];
            let r = row as usize;
            chunk.bounds.upper[r] = uppers[i];
            work.error[r] = error[i];
            work.open[kept] = row;
            // Where a row holds what is not a number, it is open.
            kept += usize::from(work.least[r] < reaches[i] + self.beyond || reaches[i].is_nan());
        }
        work.open.truncate(kept);
        measured
    }

    /// The open rows against all centers.
    fn meet_all(&self, open: &[u32], chunk: &Part<'_, T>, work: &mut Work<T>) -> usize {
        work.open_rows.clear(chunk.values.cols());
        for &r in open {
            work.open_rows.push(chunk.values, r as usize);
        }
        if !open.is_empty() {
            nearest_pair(work.open_rows.rows(), self.packed, &mut work.nearest, &mut work.scratch);
        }
        open.len() * self.packed.n_centers()
    }

    /// The open rows, by label, against the centers that lie near enough to their own one. The nearest other center of `c_a` is at most
    /// `u + s(a)` away from a row, so that nothing beyond `u` and the reach of that, seen from `c_a`, can be among its nearest two.
    fn meet_balls(&self, open: &[u32], chunk: &Part<'_, T>, work: &mut Work<T>) -> usize {
        let (k, dim) = (self.packed.n_centers(), chunk.values.cols());
        work.lists.by_panel(open, chunk.old, 1, k);
        let stride = open.len() + BEHIND;
        work.compact.resize(dim * stride, T::ZERO);
        for (at, &r) in work.lists.rows[..open.len()].iter().enumerate() {
            put_in_columns(
                self.packed,
                chunk.values.stored(r as usize),
                &mut work.compact[..dim * stride],
                at,
            );
        }
        work.list.resize(k + 16, 0);
        let mut met = 0;
        for (j, &end) in work.lists.ends.iter().enumerate() {
            let rows = work.lists.start(j)..end;
            if rows.is_empty() {
                continue;
            }
            let farthest = work.lists.rows[rows.clone()].iter().map(|&r| chunk.bounds.upper[r as usize]);
            // NaN stays: then nothing is left out.
            let farthest = farthest.fold(0.0, |a: f32, u| if a.is_nan() || u <= a { a } else { u });
            let mut out = [0.0];
            reach(self.outer, &[(farthest + self.neighbours.nearest[j]) * (1.0 + ROUNDING)], &mut out);
            let radius = (farthest + out[0]) * (1.0 + ROUNDING);
            let radius = if radius.is_nan() { f32::INFINITY } else { radius.next_up() };
            work.near_enough.clear();
            work.near_enough.resize(k, radius);
            let near = within(&self.neighbours.apart[j * k..][..k], 0.0, &work.near_enough, &mut work.list);
            met += near * rows.len();
            nearest_listed(
                self.packed,
                &work.compact[..dim * stride],
                rows,
                &work.list[..near],
                &mut work.nearest,
            );
        }
        met
    }
}
