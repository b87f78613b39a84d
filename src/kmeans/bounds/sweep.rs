//! Labels a chunk of rows with the help of bounds.
//!
//! Each phase passes on the rows that it cannot settle. A row that is not passed on keeps its label.
//!
//! ```text
//! near         all rows: move the bounds with the centers, test the bounds
//!   v          rows whose bounds do not settle the label
//! open         compute the distance to the own center, test the bounds again
//!   v          rows whose label may change
//! own_panels   compare with the panel of the own center: the value to beat
//!   v
//! groups       compare with every group within reach, nearer centers shrink the reach
//!   v
//! close        list the changed labels, update their bounds
//! ```
//!
//! With a single bound per row, the phases are those of [`single`](super::single).

use super::buffers::{BoundBuffers, BoundedChunk, RowBoundsMut};
use super::rounded::{difference_down, down, sum_down, sum_up};
use super::rules::Rules;
use crate::kernel::Compute;
use crate::kernel::bounded::{
    Better, BoundColumn, Fine, GroupLists, Margins, PanelComparison, gather, least, lowest, near, renew,
    upper, within,
};
use crate::rows::Rows;

/// The minimum, or `a` if either is NaN.
fn lesser<T: Compute>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

impl<T: Compute> Rules<'_, T> {
    /// Moves the bounds of a chunk along with the centers. Returns the rows whose label the bounds do not
    /// settle; `old` are the current labels.
    pub(in crate::kmeans) fn near<'w>(
        &self,
        old: &[u32],
        bounds: &mut RowBoundsMut<'_>,
        work: &'w mut BoundBuffers<T>,
    ) -> &'w [u32] {
        self.drift_apart(old, bounds);
        if self.bounds.is_single() {
            self.near_by_one_bound(old, bounds, work);
            return &work.open;
        }
        let m = old.len();
        work.least.resize(m, 0.0);
        // `within` writes whole vectors: leave room for one more.
        work.open.resize(m + 16, 0);
        let RowBoundsMut { upper, least: all, lower } = bounds;
        // Test the bound to all other centers first, then the group bounds.
        let doubtful = within(all, self.new_far_drift, upper, &mut work.open);
        least(lower, &self.new_drift, &work.open[..doubtful], &mut work.least);
        let mut near = 0;
        for i in 0..doubtful {
            let (r, least) = (work.open[i], work.least[i]);
            all[r as usize] = sum_down(least, self.new_far_drift);
            (work.open[near], work.least[near]) = (r, least);
            near += usize::from(least < upper[r as usize]);
        }
        work.open.truncate(near);
        &work.open
    }

    /// Labels a chunk after [`Rules::near`] and updates the bounds of its rows. Leaves the changed labels in
    /// `work.changes`. Returns the number of distances computed.
    pub(in crate::kmeans) fn label(
        &self,
        rows: Rows<'_, T>,
        old: &[u32],
        bounds: RowBoundsMut<'_>,
        work: &mut BoundBuffers<T>,
    ) -> u64 {
        work.changes.clear();
        let chunk = &mut BoundedChunk { values: rows, old, bounds };
        if self.bounds.is_single() {
            return self.label_by_one_bound(chunk, work);
        }
        let measured = self.open(chunk, work);
        let met = self.own_panels(chunk, work) + self.groups(chunk, work);
        self.close(chunk, work);
        (measured + met * self.width) as u64
    }

    /// Adds the centers' moves to the upper bounds. If the sweep rebases, removes the drift from the lower
    /// bounds.
    fn drift_apart(&self, old: &[u32], bounds: &mut RowBoundsMut<'_>) {
        for (upper, &j) in bounds.upper.iter_mut().zip(old) {
            *upper = sum_up(*upper, self.bounds.moves[j as usize]);
        }
        if self.rebase {
            bounds.least.iter_mut().for_each(|bound| *bound = difference_down(*bound, self.far_drift));
            for row in bounds.lower.chunks_exact_mut(self.drift.len().max(1)) {
                row.iter_mut()
                    .zip(&self.drift)
                    .for_each(|(bound, &drift)| *bound = difference_down(*bound, drift));
            }
        }
    }

    /// Gathers the rows that `near` found, computes the distance of each to its own center, and keeps those
    /// whose label may change. Returns the number of rows gathered.
    fn open(&self, chunk: &mut BoundedChunk<'_, T>, work: &mut BoundBuffers<T>) -> usize {
        let m = chunk.old.len();
        work.slot.resize(m, 0);
        work.reach.resize(m, 0.0);
        work.own.resize(m, T::ZERO);
        work.error.resize(m, T::ZERO);
        work.best.resize(m, T::INFINITY);
        work.next.resize(m, T::INFINITY);
        work.rival.resize(m, T::INFINITY);
        work.new.resize(m, 0);
        let measured = work.open.len();
        for &r in &work.open[..measured] {
            work.slot[r as usize] = self.bounds.slot[chunk.old[r as usize] as usize];
        }
        let (picked, radii) = (&work.open[..measured], &mut work.radii);
        gather(self.packed, chunk.values, picked, &work.slot, self.margins, &mut work.gathered, radii);
        let mut kept = 0;
        for i in 0..measured {
            let r = work.open[i];
            work.open[kept] = r;
            let r = r as usize;
            chunk.bounds.upper[r] = work.radii.upper[i];
            (work.own[r], work.error[r]) = (work.radii.own[i], work.radii.error[i]);
            work.reach[r] = work.radii.upper[i] + self.beyond;
            (work.new[r], work.rival[r]) = (chunk.old[r], T::INFINITY);
            kept += usize::from(work.least[i] < work.reach[r]);
        }
        work.open.truncate(kept);
        measured
    }

    /// Compares every open row with the panel of its own center, which sets the value to beat. Returns the
    /// number of row-panel comparisons.
    fn own_panels(&self, chunk: &mut BoundedChunk<'_, T>, work: &mut BoundBuffers<T>) -> usize {
        let mut lists = std::mem::take(&mut work.lists);
        lists.by_panel(&work.open, &work.slot, self.width, self.packed.n_panels());
        for (panel, &end) in lists.ends.iter().enumerate() {
            let picked = &lists.rows[lists.start(panel)..end];
            if picked.is_empty() {
                continue;
            }
            work.low.resize(picked.len(), T::INFINITY);
            self.label_by(panel, picked, true, chunk, work);
            if self.bounds.group_panels == 1 && !self.bounds.fine {
                self.renew(&work.low, panel, picked, chunk, work);
            }
        }
        work.lists = lists;
        work.open.len()
    }

    /// Compares the rows `picked` with one panel, and labels them by the centers that are nearer. Leaves the smallest
    /// values in `work.low`.
    #[inline(always)]
    fn label_by(
        &self,
        panel: usize,
        picked: &[u32],
        begin: bool,
        chunk: &mut BoundedChunk<'_, T>,
        work: &mut BoundBuffers<T>,
    ) {
        self.meet(panel, picked, begin, chunk, work);
        std::mem::swap(&mut work.low, &mut work.panel_low);
        for i in 0..work.better.len() {
            let found = work.better[i];
            let (r, low) = (picked[found.at as usize] as usize, work.low[found.at as usize]);
            if self.take(r, panel, found, low, work) {
                work.next[r] = found.next;
            }
        }
    }

    /// Compares the open rows with all groups within reach. Returns the number of row-panel comparisons.
    fn groups(&self, chunk: &mut BoundedChunk<'_, T>, work: &mut BoundBuffers<T>) -> usize {
        let (columns, room) = (self.bounds.n_groups, work.open.len());
        let span = if self.bounds.fine { self.width } else { 1 };
        let (groups, single) = (columns / span, self.bounds.group_panels == 1);
        let (mut lists, mut counts) = (std::mem::take(&mut work.near), std::mem::take(&mut work.counts));
        if lists.len() < groups * room {
            lists.resize(groups * room, 0);
        }
        counts.clear();
        counts.resize(groups, 0);
        let to = GroupLists { rows: &mut lists, room, counts: &mut counts };
        near(chunk.bounds.lower, (&self.new_drift, span), &work.open, &work.reach, to);
        let mut met = 0;
        for (group, &count) in counts.iter().enumerate() {
            let list = &mut lists[group * room..][..count as usize];
            // Own panels are done, and a center found since may have put the group out of reach. With one
            // bound per center, that second test would cost as much as it saves.
            let done = if single { (group * self.width) as u32 } else { u32::MAX - self.width as u32 };
            let mut kept = 0;
            for i in 0..list.len() {
                let r = list[i];
                list[kept] = r;
                let r = r as usize;
                let own = work.slot[r].wrapping_sub(done) < self.width as u32;
                let within =
                    || chunk.bounds.lower[r * groups + group] - self.new_drift[group] < work.reach[r];
                kept += usize::from(!own && (span > 1 || within()));
            }
            if kept > 0 {
                met += self.group(group, &list[..kept], chunk, work);
            }
        }
        (work.near, work.counts) = (lists, counts);
        met
    }

    /// Compares the rows `picked` with the panels of `group`. Returns the number of row-panel comparisons.
    fn group(
        &self,
        group: usize,
        picked: &[u32],
        chunk: &mut BoundedChunk<'_, T>,
        work: &mut BoundBuffers<T>,
    ) -> usize {
        let first = group * self.bounds.group_panels;
        let panels = first..(first + self.bounds.group_panels).min(self.packed.n_panels());
        work.low.clear();
        work.low.resize(picked.len(), T::INFINITY);
        if panels.len() == 1 {
            self.label_by(first, picked, false, chunk, work);
            if !self.bounds.fine {
                self.renew(&work.low, group, picked, chunk, work);
            }
            return picked.len();
        }
        work.low_next.clear();
        work.low_next.resize(picked.len(), T::INFINITY);
        for panel in panels.clone() {
            self.meet(panel, picked, false, chunk, work);
            let mut better = std::mem::take(&mut work.better);
            let mut found = better.iter().peekable();
            for (i, &r) in picked.iter().enumerate() {
                let (r, low) = (r as usize, work.panel_low[i]);
                let mut next = low;
                if let Some(found) = found.next_if(|found| found.at == i as u32) {
                    if self.take(r, panel, *found, low, work) {
                        (work.next[r], work.low_next[i]) = (work.low[i], work.low[i]);
                    }
                    if self.center(panel, found.lane) == work.new[r] {
                        next = found.next;
                    }
                }
                work.low_next[i] = lesser(work.low_next[i], next);
                work.low[i] = lesser(work.low[i], low);
            }
            better.clear();
            work.better = better;
        }
        // A later panel may hold a value between the best and the second best.
        for (i, &r) in picked.iter().enumerate() {
            let r = r as usize;
            if work.new[r] != chunk.old[r] && self.group_of(work.new[r]) == group {
                work.next[r] = lesser(work.next[r], work.low_next[i]);
            }
        }
        self.renew(&work.low, group, picked, chunk, work);
        panels.len() * picked.len()
    }

    /// Compares the rows `picked` with one panel. Writes their lowest values to `panel_low`, and to `better`
    /// the ones that may improve on the row's best.
    fn meet(
        &self,
        panel: usize,
        picked: &[u32],
        begin: bool,
        chunk: &mut BoundedChunk<'_, T>,
        work: &mut BoundBuffers<T>,
    ) {
        work.panel_low.resize(picked.len(), T::INFINITY);
        work.better.clear();
        let comparison = &mut PanelComparison {
            panel,
            picked,
            slot: &work.slot,
            best: &mut work.best,
            begin,
            low: &mut work.panel_low,
            doubt: self.doubt,
            better: &mut work.better,
            fine: self.bounds.fine.then_some(Fine {
                lower: &mut *chunk.bounds.lower,
                columns: self.bounds.n_groups,
                drift: &self.new_drift,
                error: &work.error,
                unit: self.margins.unit,
            }),
        };
        lowest(self.packed, chunk.values, &mut work.gathered, comparison);
    }

    /// Takes the center that was found in a panel as the row's label if its tile value is lower. Returns whether
    /// it did.
    fn take(&self, r: usize, panel: usize, found: Better<T>, low: T, work: &mut BoundBuffers<T>) -> bool {
        let nearer = low < work.best[r];
        let center = self.center(panel, found.lane);
        let other = if nearer {
            lesser(work.best[r], found.next)
        } else if center == work.new[r] {
            // A panel that was met before.
            found.next
        } else {
            low
        };
        work.rival[r] = lesser(work.rival[r], other);
        if nearer {
            (work.best[r], work.new[r]) = (low, center);
            let upper = upper(&work.gathered, r, low, work.error[r], self.margins);
            work.reach[r] = work.reach[r].min(upper + self.beyond);
        }
        nearer
    }

    /// Writes the bounds of the `picked` rows for `group`, from their lowest values there, `low`.
    fn renew(
        &self,
        low: &[T],
        group: usize,
        picked: &[u32],
        chunk: &mut BoundedChunk<'_, T>,
        work: &BoundBuffers<T>,
    ) {
        let to = BoundColumn { lower: chunk.bounds.lower, width: self.bounds.n_groups, column: group };
        renew(&work.gathered, picked, (low, &work.error), self.margins, self.new_drift[group], to);
    }

    fn center(&self, panel: usize, lane: u32) -> u32 {
        // Padding lanes have infinite values; they win only if all values are infinite.
        let slot = (panel * self.width + lane as usize).min(self.bounds.order.len() - 1);
        self.bounds.order[slot]
    }

    fn group_of(&self, center: u32) -> usize {
        let slot = self.bounds.slot[center as usize] as usize;
        if self.bounds.fine { slot } else { slot / self.width / self.bounds.group_panels }
    }

    /// Updates the bounds that a new label affects, and lists the change.
    fn close(&self, chunk: &mut BoundedChunk<'_, T>, work: &mut BoundBuffers<T>) {
        let groups = self.bounds.n_groups;
        self.settle(chunk, work);
        let open = std::mem::take(&mut work.open);
        for &row in &open {
            let r = row as usize;
            let (old, new) = (chunk.old[r], work.new[r]);
            if new == old {
                continue;
            }
            work.changes.push((row, new));
            chunk.bounds.upper[r] = upper(&work.gathered, r, work.best[r], work.error[r], self.margins);
            // The new center leaves the others of its group, and the old center joins them. The bound to all other
            // centers stays: it is at most the distance to the new center, which is nearer than the old one.
            let (to, from) = (self.group_of(new), self.group_of(old));
            if self.bounds.fine {
                chunk.bounds.lower[r * groups + to] = f32::INFINITY;
            } else {
                self.renew(&[work.next[r]], to, &[row], chunk, work);
            }
            let own = self.at_least(work.own[r]);
            let bound = &mut chunk.bounds.lower[r * groups + from];
            *bound = bound.min(sum_down(own, self.new_drift[from]));
        }
        work.open = open;
    }

    /// Decides the labels of open rows that tile values leave in doubt.
    fn settle(&self, chunk: &BoundedChunk<'_, T>, work: &mut BoundBuffers<T>) {
        work.doubts.clear();
        for &r in &work.open {
            let r = r as usize;
            let doubt = self.doubt.of(work.gathered.sq_norm(r), work.best[r]);
            if work.doubts.note(r, work.best[r], work.rival[r], doubt) {
                // The label may be another one, so that the best value is that of another center.
                work.next[r] = work.best[r];
            }
        }
        work.doubts.settle(chunk.values, self.packed, &mut work.new, &mut work.scratch);
    }

    /// A lower bound on a distance, from the squared distance that [`gather`] computed.
    pub(super) fn at_least(&self, own: T) -> f32 {
        let Margins { norm, gamma, unit, off } = self.margins;
        let least = own - off;
        let distance = (if least > T::ZERO { least } else { T::ZERO }).sqrt();
        let lost = distance * gamma + T::from_f64(4.0 * T::EPSILON) * (norm + norm + distance);
        down(((distance - lost) * unit).to_f64().max(0.0))
    }
}
