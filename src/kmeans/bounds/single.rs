//! Labels a chunk of rows with one lower bound per row (Hamerly, "Making k-means even faster", 2010).
//!
//! A row keeps its label while its upper bound is below its lower bound to all other centers, or below half
//! the distance from its own center to the nearest other center. All other rows are compacted. With few
//! columns they are compared, label by label, only with the centers in a ball around their own that must
//! contain the two nearest (Exponion: Newling and Fleuret, "Fast k-means with accurate bounds", 2016).
//! Otherwise they are compared with all centers.

use super::buffers::{BoundBuffers, BoundedChunk, RowBoundsMut};
use super::rounded::sum_up;
use super::rules::Rules;
use crate::kernel::Compute;
use crate::kernel::bounded::{
    BEHIND, BoundColumn, Nearest, Radii, is_in_doubt, measure, nearest_listed, nearest_pair, put_in_columns,
    radii, renew, upper, within,
};

impl<T: Compute> Rules<'_, T> {
    /// [`Rules::label`] for rows with a single bound.
    pub(super) fn label_by_one_bound(
        &self,
        chunk: &mut BoundedChunk<'_, T>,
        work: &mut BoundBuffers<T>,
    ) -> u64 {
        let measured = self.open_by_one_bound(chunk, work);
        let open = std::mem::take(&mut work.open);
        work.nearest.resize(open.len() + BEHIND);
        let met = if self.neighbors.apart.is_empty() {
            self.meet_all(&open, chunk, work)
        } else {
            self.meet_balls(&open, chunk, work)
        };
        // The open rows, in the order of their entries in `work.nearest`.
        let met_rows =
            if self.neighbors.apart.is_empty() { &open[..] } else { &work.lists.rows[..open.len()] };
        for ((&row, &label), &best) in met_rows.iter().zip(&work.nearest.ids).zip(&work.nearest.best) {
            let r = row as usize;
            if label != chunk.old[r] {
                work.changes.push((row, label));
                chunk.bounds.upper[r] = upper(&work.gathered, r, best, work.error[r], self.margins);
            }
        }
        // In row order, so that sums are updated in the same order whichever method found the changes.
        work.changes.sort_unstable();
        let found = (&work.nearest.next[..open.len()], &work.error[..]);
        let to = BoundColumn { lower: chunk.bounds.least, width: 1, column: 0 };
        renew(&work.gathered, met_rows, found, self.margins, self.new_far_drift, to);
        work.open = open;
        (measured + met) as u64
    }

    /// Finds the rows whose label the bounds do not settle.
    pub(super) fn near_by_one_bound(
        &self,
        old: &[u32],
        bounds: &RowBoundsMut<'_>,
        work: &mut BoundBuffers<T>,
    ) {
        work.least.clear();
        work.least.extend(bounds.least.iter().zip(old).map(|(&least, &j)| {
            let (others, half) = (least - self.new_far_drift, self.neighbors.halves[j as usize]);
            if half > others { half } else { others }
        }));
        // `within` writes whole vectors: leave room for one more.
        work.open.resize(old.len() + 16, 0);
        let near = within(&work.least, 0.0, bounds.upper, &mut work.open);
        work.open.truncate(near);
    }

    /// Computes the distance of each open row to its own center, and keeps the rows whose label may still
    /// change. Returns the number of distances computed.
    fn open_by_one_bound(&self, chunk: &mut BoundedChunk<'_, T>, work: &mut BoundBuffers<T>) -> usize {
        let measured = work.open.len();
        let picked = &work.open[..];
        measure(self.packed, chunk.values, picked, chunk.old, &mut work.gathered, &mut work.radii);
        radii(self.margins, &mut work.radii);
        work.error.resize(chunk.old.len(), T::ZERO);
        let Radii { upper: uppers, error, .. } = &work.radii;
        let mut kept = 0;
        for i in 0..measured {
            let row = work.open[i];
            let r = row as usize;
            chunk.bounds.upper[r] = uppers[i];
            work.error[r] = error[i];
            work.open[kept] = row;
            kept += usize::from(work.least[r] < uppers[i] + self.beyond);
        }
        work.open.truncate(kept);
        measured
    }

    /// Compares the open rows with all centers.
    fn meet_all(&self, open: &[u32], chunk: &BoundedChunk<'_, T>, work: &mut BoundBuffers<T>) -> usize {
        work.open_rows.clear(chunk.values.cols());
        for &r in open {
            work.open_rows.push(chunk.values, r as usize);
        }
        if !open.is_empty() {
            nearest_pair(work.open_rows.rows(), self.packed, &mut work.nearest, &mut work.scratch);
        }
        open.len() * self.packed.n_centers()
    }

    /// Compares the open rows, label by label, with the centers near their own. With `u` the row's upper
    /// bound and `s(a)` the distance from its center `c_a` to the nearest other center, the second nearest
    /// center is within `u + s(a)` of the row. So no center farther from `c_a` than `u + (u + s(a))` can be
    /// among the nearest two.
    fn meet_balls(&self, open: &[u32], chunk: &BoundedChunk<'_, T>, work: &mut BoundBuffers<T>) -> usize {
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
            let farthest = farthest.fold(0.0, f32::max);
            let radius = sum_up(farthest, sum_up(farthest, self.neighbors.nearest[j]));
            // The distance of centers that are not finite is NaN.
            let radius = if radius.is_nan() { f32::INFINITY } else { radius };
            work.near_enough.clear();
            work.near_enough.resize(k, radius);
            let near = within(&self.neighbors.apart[j * k..][..k], 0.0, &work.near_enough, &mut work.list);
            met += near * rows.len();
            let list = &work.list[..near];
            nearest_listed(self.packed, &work.compact[..dim * stride], rows.clone(), list, &mut work.nearest);
            let Nearest { ids, best, next } = &mut work.nearest;
            for at in rows {
                let r = work.lists.rows[at] as usize;
                let doubt = self.doubt.of(work.gathered.sq_norm(r), best[at]);
                if is_in_doubt(best[at], next[at], doubt) {
                    // The label may be another center than that of `best`. It is not farther than that center, and
                    // its value is at least `next`: so `next` is a bound for that center too.
                    ids[at] = self.packed.nearest_of(chunk.values, r, list);
                }
            }
        }
        met
    }
}
