//! This module knows how a chunk of rows is labelled by bounds.

use super::single::Neighbours;
use super::{BASE_SWEEPS, PanelBounds, up};
use crate::kernel::bounded::{
    Better, Fine, Gathered, Margins, Meeting, Nearest, ROUNDING, Radii, gather, least, lowest, near, reach,
    renew, upper, within,
};
use crate::kernel::{Compute, PackedCenters, Scratch};
use crate::rows::{RowBuf, Rows};

/// One sweep's view of the bounds.
pub(in crate::kmeans) struct Rules<'a, T: Compute> {
    bounds: &'a PanelBounds,
    pub(super) packed: &'a PackedCenters<T>,
    /// Centers in a panel.
    width: usize,
    pub(super) margins: Margins<T>,
    /// The same for bounds.
    pub(super) outer: Margins<f32>,
    /// Write all lower bounds without drift.
    rebase: bool,
    /// What is in a stored bound, and what will be in one that is written; of each group, and of all.
    drift: Vec<f32>,
    new_drift: Vec<f32>,
    far_drift: f32,
    pub(super) new_far_drift: f32,
    /// How near centers are to each other, where there is one bound a row.
    pub(super) neighbours: Neighbours,
    /// Rows meet groups that are so much further away than has to be.
    pub(super) beyond: f32,
}

/// Bounds of the rows of a chunk, see [`RowBounds`](super::RowBounds).
pub(in crate::kmeans) struct RowBoundsMut<'a> {
    pub(in crate::kmeans) upper: &'a mut [f32],
    pub(in crate::kmeans) least: &'a mut [f32],
    pub(in crate::kmeans) lower: &'a mut [f32],
}

/// How far tile values of rows that store at most so many `values` may be off, relative to the squared lengths that they are made of.
pub(in crate::kmeans) fn rounding_of<T: Compute>(packed: &PackedCenters<T>, values: usize) -> f64 {
    // The lengths of packed centers for sparse rows are sums over all columns, in f64.
    let sparse_wide = packed.is_sparse() && size_of::<T>() == size_of::<f64>();
    let values = if sparse_wide { values.max(packed.dim()) } else { values };
    (values as f64 + 16.0) * T::EPSILON
}

/// How far the squared distance of a sparse row to a center may be off, in packed lengths: each sum over columns that is taken apart loses at
/// most a rounding of f64 for each.
pub(in crate::kmeans) fn lost_of<T: Compute>(packed: &PackedCenters<T>) -> f64 {
    let norm = packed.largest_norm();
    if packed.is_sparse() { (2.0 * packed.dim() as f64 + 16.0) * f64::EPSILON * norm * norm } else { 0.0 }
}

impl PanelBounds {
    /// The rules of the next sweep, over rows that store at most so many `values`.
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
        let outer = Margins { norm: up(norm * self.unit), gamma: up(gamma), unit: 1.0, off: 0.0 };
        let rebase = self.age >= BASE_SWEEPS;
        let drift: Vec<f32> = self.drift.iter().map(|&drift| up(drift)).collect();
        let far_drift = up(self.far_drift);
        Rules {
            bounds: self,
            packed,
            width: PackedCenters::<T>::panel_centers(),
            margins,
            outer,
            rebase,
            neighbours: if self.is_single() {
                // Between centers, which are dense, distances would cost more than they save among sparse rows.
                let few = self.few_centers && !packed.is_sparse();
                Neighbours::of(packed, margins, (few, few && self.balls))
            } else {
                Neighbours::default()
            },
            new_drift: if rebase { vec![0.0; drift.len()] } else { drift.clone() },
            drift,
            far_drift,
            new_far_drift: if rebase { 0.0 } else { far_drift },
            beyond: 0.0,
        }
    }
}

/// The buffers of one worker. What is kept of a row is indexed by its place in the chunk.
#[derive(Default)]
pub(in crate::kmeans) struct Work<T: Compute> {
    pub(super) gathered: Gathered<T>,
    pub(super) radii: Radii<T>,
    /// Groups whose bound is below this may hold the nearest center.
    pub(super) reach: Vec<f32>,
    /// Slot of the center that the row comes with.
    pub(super) slot: Vec<u32>,
    /// Squared distance to that center, and how far squared distances made of tile values may be off.
    pub(super) own: Vec<T>,
    pub(super) error: Vec<T>,
    /// The best tile value so far, and the next one in its center's group. The center is the new label.
    pub(super) best: Vec<T>,
    pub(super) next: Vec<T>,
    /// The label of each open row as far as it is known.
    pub(super) new: Vec<u32>,
    /// The labels that changed: rows and new labels.
    pub(in crate::kmeans) changes: Vec<(u32, u32)>,
    /// Rows whose label may change, and their least bounds in the same order.
    pub(super) open: Vec<u32>,
    pub(super) least: Vec<f32>,
    pub(super) lists: Lists,
    /// The rows within reach of each group: lists of equal room, and their lengths.
    pub(super) near: Vec<u32>,
    pub(super) counts: Vec<u32>,
    // Of the rows that meet a group together, in their order.
    pub(super) low: Vec<T>,
    pub(super) low_next: Vec<T>,
    pub(super) panel_low: Vec<T>,
    pub(super) better: Vec<Better<T>>,
    // Of the open rows, where there is one bound a row: themselves, row by row or as columns, and what they found.
    pub(super) scratch: Scratch<T>,
    pub(super) open_rows: RowBuf<T>,
    pub(super) compact: Vec<T>,
    pub(super) nearest: Nearest<T>,
    /// Centers that are near enough to some center, and as many copies of how near that is.
    pub(super) list: Vec<u32>,
    pub(super) near_enough: Vec<f32>,
}

/// Lists of rows, one after the other.
#[derive(Default)]
pub(super) struct Lists {
    pub(super) rows: Vec<u32>,
    /// Where each ends.
    pub(super) ends: Vec<usize>,
}

impl Lists {
    pub(super) fn start(&self, list: usize) -> usize {
        if list == 0 { 0 } else { self.ends[list - 1] }
    }

    /// `open` by the panel of the rows' slots: a counting sort.
    pub(super) fn by_panel(&mut self, open: &[u32], slot: &[u32], width: usize, panels: usize) {
        self.ends.clear();
        self.ends.resize(panels + 1, 0);
        let panel = |r: u32| slot[r as usize] as usize / width;
        for &r in open {
            self.ends[panel(r) + 1] += 1;
        }
        for p in 0..panels {
            self.ends[p + 1] += self.ends[p];
        }
        if self.rows.len() < open.len() {
            self.rows.resize(open.len(), 0);
        }
        for &r in open {
            // Starts become ends.
            let at = &mut self.ends[panel(r)];
            self.rows[*at] = r;
            *at += 1;
        }
        self.ends.truncate(panels);
    }
}

/// A chunk of rows and what is kept of each.
pub(super) struct Part<'a, T> {
    pub(super) values: Rows<'a, T>,
    pub(super) old: &'a [u32],
    pub(super) bounds: RowBoundsMut<'a>,
}

/// The smaller one, or `a` where one is not a number.
fn lesser<T: Compute>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

impl<T: Compute> Rules<'_, T> {
    /// Moves the bounds of a chunk with the centers; gives the rows that [`Rules::label`] has to look at, with the labels `old`.
    pub(in crate::kmeans) fn near<'w>(
        &self,
        old: &[u32],
        bounds: &mut RowBoundsMut<'_>,
        work: &'w mut Work<T>,
    ) -> &'w [u32] {
        self.drift_apart(old, bounds);
        if self.bounds.is_single() {
            self.near_by_one_bound(old, bounds, work);
            return &work.open;
        }
        let m = old.len();
        work.reach.resize(m, 0.0);
        work.least.resize(m, 0.0);
        // Whole vectors are written: room for one more.
        work.open.resize(m + 16, 0);
        let RowBoundsMut { upper, least: all, lower } = bounds;
        reach(self.outer, upper, &mut work.reach);
        // By the bound of all other centers, then by those of the groups.
        let doubtful = within(all, self.new_far_drift, &work.reach, &mut work.open);
        least(lower, &self.new_drift, &work.open[..doubtful], &mut work.least);
        let mut near = 0;
        for i in 0..doubtful {
            let (r, least) = (work.open[i], work.least[i]);
            all[r as usize] = (least + self.new_far_drift) * (1.0 - ROUNDING);
            (work.open[near], work.least[near]) = (r, least);
            near += usize::from(least < work.reach[r as usize]);
        }
        work.open.truncate(near);
        &work.open
    }

    /// Labels a chunk after [`Rules::near`], with the bounds of its rows: the labels that differ from `old` are left in `work.changes`. Gives the
    /// number of distances that were computed.
    pub(in crate::kmeans) fn label(
        &self,
        rows: Rows<'_, T>,
        old: &[u32],
        bounds: RowBoundsMut<'_>,
        work: &mut Work<T>,
    ) -> u64 {
        work.changes.clear();
        let chunk = &mut Part { values: rows, old, bounds };
        if self.bounds.is_single() {
            return self.label_by_one_bound(chunk, work);
        }
        let measured = self.open(chunk, work);
        let met = self.own_panels(chunk, work) + self.groups(chunk, work);
        self.close(chunk, work);
        (measured + met * self.width) as u64
    }

    /// Moves the bounds with the centers.
    fn drift_apart(&self, old: &[u32], bounds: &mut RowBoundsMut<'_>) {
        for (upper, &j) in bounds.upper.iter_mut().zip(old) {
            *upper = (*upper + self.bounds.moves[j as usize]) * (1.0 + ROUNDING);
        }
        if self.rebase {
            // An infinite bound, where there is no other center, must not become what is not a number.
            let less = |bound: f32, drift: f32| match bound {
                f32::INFINITY => bound,
                _ => bound - (drift + (drift + bound.abs()) * ROUNDING),
            };
            bounds.least.iter_mut().for_each(|bound| *bound = less(*bound, self.far_drift));
            for row in bounds.lower.chunks_exact_mut(self.drift.len().max(1)) {
                row.iter_mut().zip(&self.drift).for_each(|(bound, &drift)| *bound = less(*bound, drift));
            }
        }
    }

    /// Gathers the rows that are near, and keeps those whose label may change: by the true distance to the own center. Gives the number of the
    /// former.
    fn open(&self, chunk: &mut Part<'_, T>, work: &mut Work<T>) -> usize {
        let m = chunk.old.len();
        work.slot.resize(m, 0);
        work.own.resize(m, T::ZERO);
        work.error.resize(m, T::ZERO);
        work.best.resize(m, T::INFINITY);
        work.next.resize(m, T::INFINITY);
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
            work.reach[r] = work.radii.reach[i] + self.beyond;
            work.new[r] = chunk.old[r];
            // Where a row holds what is not a number, it is open.
            kept += usize::from(work.least[i] < work.reach[r] || work.reach[r].is_nan());
        }
        work.open.truncate(kept);
        measured
    }

    /// Every open row against the panel of its own center, whose tile value is what the others are compared with; gives the number of
    /// meetings of a row and a panel.
    fn own_panels(&self, chunk: &mut Part<'_, T>, work: &mut Work<T>) -> usize {
        let mut lists = std::mem::take(&mut work.lists);
        lists.by_panel(&work.open, &work.slot, self.width, self.packed.n_panels());
        for (panel, &end) in lists.ends.iter().enumerate() {
            let picked = &lists.rows[lists.start(panel)..end];
            if picked.is_empty() {
                continue;
            }
            work.low.resize(picked.len(), T::INFINITY);
            self.meet(panel, picked, true, chunk, work);
            std::mem::swap(&mut work.low, &mut work.panel_low);
            for i in 0..work.better.len() {
                let Better { at, lane, next } = work.better[i];
                let (r, low) = (picked[at as usize], work.low[at as usize]);
                if self.take(r as usize, panel, lane, low, work) {
                    work.next[r as usize] = next;
                }
            }
            if self.bounds.group_panels == 1 && !self.bounds.fine {
                self.renew(panel, picked, chunk, work);
            }
        }
        work.lists = lists;
        work.open.len()
    }

    /// The open rows against all groups within their reach; gives the number of meetings of a row and a panel.
    fn groups(&self, chunk: &mut Part<'_, T>, work: &mut Work<T>) -> usize {
        let (columns, room) = (self.bounds.n_groups, work.open.len());
        let span = if self.bounds.fine { self.width } else { 1 };
        let (groups, single) = (columns / span, self.bounds.group_panels == 1);
        let (mut lists, mut counts) = (std::mem::take(&mut work.near), std::mem::take(&mut work.counts));
        if lists.len() < groups * room {
            lists.resize(groups * room, 0);
        }
        counts.clear();
        counts.resize(groups, 0);
        let to = (&mut lists[..], room, &mut counts[..]);
        near(chunk.bounds.lower, (&self.new_drift, span), &work.open, &work.reach, to);
        let mut met = 0;
        for (group, &count) in counts.iter().enumerate() {
            let list = &mut lists[group * room..][..count as usize];
            // Own panels are done, and what was found meanwhile may have put the group out of reach; to see that of all its centers
            // would cost as much as it saves.
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

    /// The rows `picked` against the panels of `group`; gives the number of meetings.
    fn group(&self, group: usize, picked: &[u32], chunk: &mut Part<'_, T>, work: &mut Work<T>) -> usize {
        let first = group * self.bounds.group_panels;
        let panels = first..(first + self.bounds.group_panels).min(self.packed.n_panels());
        work.low.clear();
        work.low.resize(picked.len(), T::INFINITY);
        if panels.len() == 1 {
            self.meet(first, picked, false, chunk, work);
            std::mem::swap(&mut work.low, &mut work.panel_low);
            for i in 0..work.better.len() {
                let Better { at, lane, next } = work.better[i];
                let (r, low) = (picked[at as usize] as usize, work.low[at as usize]);
                if self.take(r, first, lane, low, work) {
                    work.next[r] = next;
                }
            }
            if !self.bounds.fine {
                self.renew(group, picked, chunk, work);
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
                    if self.take(r, panel, found.lane, low, work) {
                        work.next[r] = lesser(work.low[i], found.next);
                        work.low_next[i] = work.next[r];
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
        // A later panel may have come between the best and the next one.
        for (i, &r) in picked.iter().enumerate() {
            let r = r as usize;
            if work.new[r] != chunk.old[r] && self.group_of(work.new[r]) == group {
                work.next[r] = lesser(work.next[r], work.low_next[i]);
            }
        }
        self.renew(group, picked, chunk, work);
        panels.len() * picked.len()
    }

    /// The rows `picked` against one panel: their lowest values go to `panel_low`, those that it may better to `better`.
    fn meet(&self, panel: usize, picked: &[u32], begin: bool, chunk: &mut Part<'_, T>, work: &mut Work<T>) {
        work.panel_low.resize(picked.len(), T::INFINITY);
        work.better.clear();
        let meeting = &mut Meeting {
            panel,
            picked,
            slot: &work.slot,
            best: &mut work.best,
            begin,
            low: &mut work.panel_low,
            better: &mut work.better,
            fine: self.bounds.fine.then_some(Fine {
                lower: &mut *chunk.bounds.lower,
                columns: self.bounds.n_groups,
                drift: &self.new_drift,
                error: &work.error,
                unit: self.margins.unit,
            }),
        };
        lowest(self.packed, chunk.values, &mut work.gathered, meeting);
    }

    /// Makes the center in a lane the row's label, if it is the better one; says whether it was.
    fn take(&self, r: usize, panel: usize, lane: u32, low: T, work: &mut Work<T>) -> bool {
        let center = self.center(panel, lane);
        let nearer = low < work.best[r] || low == work.best[r] && center < work.new[r];
        if nearer {
            (work.best[r], work.new[r]) = (low, center);
            let upper = [upper(&work.gathered, r, low, work.error[r], self.margins)];
            let mut within = [0.0];
            reach(self.outer, &upper, &mut within);
            work.reach[r] = work.reach[r].min(within[0] + self.beyond);
        }
        nearer
    }

    /// Writes the bounds of `picked` rows for `group`, from their lowest values there.
    fn renew(&self, group: usize, picked: &[u32], chunk: &mut Part<'_, T>, work: &Work<T>) {
        self.renew_from(&work.low, group, picked, chunk, work);
    }

    fn renew_from(&self, low: &[T], group: usize, picked: &[u32], chunk: &mut Part<'_, T>, work: &Work<T>) {
        let to = (&mut chunk.bounds.lower[..], self.bounds.n_groups, group);
        renew(&work.gathered, picked, (low, &work.error), self.margins, self.new_drift[group], to);
    }

    /// The center in a lane of a panel.
    fn center(&self, panel: usize, lane: u32) -> u32 {
        // Lanes that fill up the last panel have infinite values: they are named only where all values are.
        let slot = (panel * self.width + lane as usize).min(self.bounds.order.len() - 1);
        self.bounds.order[slot]
    }

    fn group_of(&self, center: u32) -> usize {
        let slot = self.bounds.slot[center as usize] as usize;
        if self.bounds.fine { slot } else { slot / self.width / self.bounds.group_panels }
    }

    /// Writes the bounds that a new label changes, and lists it.
    fn close(&self, chunk: &mut Part<'_, T>, work: &mut Work<T>) {
        let groups = self.bounds.n_groups;
        let open = std::mem::take(&mut work.open);
        for &row in &open {
            let r = row as usize;
            let (old, new) = (chunk.old[r], work.new[r]);
            if new == old {
                continue;
            }
            work.changes.push((row, new));
            chunk.bounds.upper[r] = upper(&work.gathered, r, work.best[r], work.error[r], self.margins);
            // The new center is no longer among the others of its group, the old one is.
            let (to, from) = (self.group_of(new), self.group_of(old));
            if self.bounds.fine {
                chunk.bounds.lower[r * groups + to] = f32::INFINITY;
            } else {
                self.renew_from(&[work.next[r]], to, &[row], chunk, work);
            }
            let own = self.at_least(work.own[r]);
            let bound = &mut chunk.bounds.lower[r * groups + from];
            *bound = bound.min((own + self.new_drift[from]) * (1.0 - ROUNDING));
            let all = &mut chunk.bounds.least[r];
            *all = all.min((own + self.new_far_drift) * (1.0 - ROUNDING));
        }
        work.open = open;
    }

    /// A lower bound of a distance, from the square that [`gather`] found.
    pub(super) fn at_least(&self, own: T) -> f32 {
        let Margins { norm, gamma, unit, off } = self.margins;
        let least = own - off;
        let distance = (if least > T::ZERO { least } else { T::ZERO }).sqrt();
        let lost = distance * gamma + T::from_f64(4.0 * T::EPSILON) * (norm + norm + distance);
        ((distance - lost) * unit).to_f32().max(0.0) * (1.0 - ROUNDING)
    }
}
