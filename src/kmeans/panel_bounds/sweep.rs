//! This module knows how a chunk of rows is labelled by bounds.

use super::{BASE_SWEEPS, PanelBounds, up};
use crate::kernel::bounded::{
    Better, Gathered, Margins, Meeting, ROUNDING, Radii, gather, lowest, reach, renew, settle, upper, within,
};
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;

/// One sweep's view of the bounds.
pub(in crate::kmeans) struct Rules<'a, T: Compute> {
    bounds: &'a PanelBounds,
    packed: &'a PackedCenters<T>,
    /// Centers in a panel.
    width: usize,
    margins: Margins<T>,
    /// The same for bounds.
    outer: Margins<f32>,
    /// Write all lower bounds without drift.
    rebase: bool,
    drift: Vec<f32>,
}

impl PanelBounds {
    /// The rules of the next sweep.
    pub(in crate::kmeans) fn rules<'a, T: Compute>(&'a self, packed: &'a PackedCenters<T>) -> Rules<'a, T> {
        let (norm, gamma) = (packed.largest_norm(), (packed.dim() as f64 + 16.0) * T::EPSILON);
        let margins =
            Margins { norm: T::from_f64(norm), gamma: T::from_f64(gamma), unit: T::from_f64(self.unit) };
        let outer = Margins { norm: up(norm * self.unit), gamma: up(gamma), unit: 1.0 };
        Rules {
            bounds: self,
            packed,
            width: PackedCenters::<T>::panel_centers(),
            margins,
            outer,
            rebase: self.age >= BASE_SWEEPS,
            drift: self.drift.iter().map(|&drift| up(drift)).collect(),
        }
    }
}

/// The buffers of one worker. What is kept of a row is indexed by its place in the chunk.
#[derive(Default)]
pub(in crate::kmeans) struct Work<T: Compute> {
    gathered: Gathered<T>,
    radii: Radii<T>,
    least: Vec<f32>,
    /// Groups whose bound is below this may hold the nearest center; minus infinity where the label is settled.
    reach: Vec<f32>,
    /// Slot of the center that the row comes with.
    slot: Vec<u32>,
    /// Squared distance to that center, and how far squared distances made of tile values may be off.
    own: Vec<T>,
    error: Vec<T>,
    /// The best tile value so far, and the next one in its center's group. The center is the new label.
    best: Vec<T>,
    next: Vec<T>,
    /// Rows whose label may change.
    open: Vec<u32>,
    lists: Lists,
    // Of the rows that meet a group together, in their order.
    low: Vec<T>,
    low_next: Vec<T>,
    panel_low: Vec<T>,
    better: Vec<Better<T>>,
}

/// Lists of rows, one after the other.
#[derive(Default)]
struct Lists {
    rows: Vec<u32>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Lists {
    fn start(&self, list: usize) -> usize {
        if list == 0 { 0 } else { self.ends[list - 1] }
    }

    /// `open` by the panel of the rows' slots: a counting sort.
    fn by_panel(&mut self, open: &[u32], slot: &[u32], width: usize, panels: usize) {
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
struct Rows<'a, T> {
    values: MatRef<'a, T>,
    old: &'a [u32],
    new: &'a mut [u32],
    upper: &'a mut [f32],
    lower: &'a mut [f32],
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
        upper: &mut [f32],
        lower: &mut [f32],
        work: &'w mut Work<T>,
    ) -> &'w [u32] {
        let m = old.len();
        for (upper, &j) in upper.iter_mut().zip(old) {
            *upper = (*upper + self.bounds.moves[j as usize]) * (1.0 + ROUNDING);
        }
        work.least.clear();
        work.least.resize(m, f32::INFINITY);
        for (lower, &drift) in lower.chunks_exact_mut(m).zip(&self.drift) {
            settle(lower, drift, &mut work.least);
            if self.rebase {
                for lower in lower {
                    *lower -= drift + (drift + lower.abs()) * ROUNDING;
                }
            }
        }
        work.reach.resize(m, 0.0);
        // Whole vectors are written: room for one more.
        work.open.resize(m + 16, 0);
        reach(self.outer, upper, &mut work.reach);
        let near = within(&work.least, 0.0, &work.reach, &mut work.open);
        work.open.truncate(near);
        &work.open
    }

    /// Labels a chunk after [`Rules::near`]: `new` from `old`, with the bounds of its rows; gives the number of distances that were
    /// computed.
    pub(in crate::kmeans) fn label(
        &self,
        rows: MatRef<'_, T>,
        old: &[u32],
        new: &mut [u32],
        upper: &mut [f32],
        lower: &mut [f32],
        work: &mut Work<T>,
    ) -> u64 {
        new.copy_from_slice(old);
        let chunk = &mut Rows { values: rows, old, new, upper, lower };
        let measured = self.open(chunk, work);
        let met = self.own_panels(chunk, work) + self.groups(chunk, work);
        self.close(chunk, work);
        (measured + met * self.width) as u64
    }

    /// Gathers the rows that are near, and keeps those whose label may change; gives the number of the former, whose distances to their own
    /// centers were measured.
    fn open(&self, chunk: &mut Rows<'_, T>, work: &mut Work<T>) -> usize {
        let m = chunk.old.len();
        work.slot.resize(m, 0);
        work.own.resize(m, T::ZERO);
        work.error.resize(m, T::ZERO);
        work.best.resize(m, T::INFINITY);
        work.next.resize(m, T::INFINITY);
        let measured = work.open.len();
        work.reach.fill(f32::NEG_INFINITY);
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
            chunk.upper[r] = work.radii.upper[i];
            (work.own[r], work.error[r]) = (work.radii.own[i], work.radii.error[i]);
            let reach = work.radii.reach[i];
            let open = work.least[r] < reach;
            work.reach[r] = if open { reach } else { f32::NEG_INFINITY };
            kept += usize::from(open);
        }
        work.open.truncate(kept);
        measured
    }

    /// Every open row against the panel of its own center, whose tile value is what the others are compared with; gives the number of
    /// meetings of a row and a panel.
    fn own_panels(&self, chunk: &mut Rows<'_, T>, work: &mut Work<T>) -> usize {
        let mut lists = std::mem::take(&mut work.lists);
        lists.by_panel(&work.open, &work.slot, self.width, self.packed.n_panels());
        for (panel, &end) in lists.ends.iter().enumerate() {
            let picked = &lists.rows[lists.start(panel)..end];
            if picked.is_empty() {
                continue;
            }
            work.low.resize(picked.len(), T::INFINITY);
            self.meet(panel, picked, true, work);
            std::mem::swap(&mut work.low, &mut work.panel_low);
            for i in 0..work.better.len() {
                let Better { at, lane, next } = work.better[i];
                let (r, low) = (picked[at as usize], work.low[at as usize]);
                if self.take(r as usize, panel, lane, low, chunk, work) {
                    work.next[r as usize] = next;
                }
            }
            if self.bounds.group_panels == 1 {
                self.renew(panel, picked, chunk, work);
            }
        }
        work.lists = lists;
        work.open.len()
    }

    /// The open rows against all groups within their reach; gives the number of meetings of a row and a panel.
    fn groups(&self, chunk: &mut Rows<'_, T>, work: &mut Work<T>) -> usize {
        let m = chunk.old.len();
        let single = self.bounds.group_panels == 1;
        let mut met = 0;
        if work.open.is_empty() {
            return 0;
        }
        // The rows within reach of each group. Whole vectors are written: room for one more.
        let mut lists = std::mem::take(&mut work.lists);
        if lists.rows.len() < m * self.bounds.n_groups + 16 {
            lists.rows.resize(m * self.bounds.n_groups + 16, 0);
        }
        lists.ends.clear();
        let mut end = 0;
        for (lower, &drift) in chunk.lower.chunks_exact(m).zip(&self.drift) {
            let drift = if self.rebase { 0.0 } else { drift };
            end += within(lower, drift, &work.reach, &mut lists.rows[end..]);
            lists.ends.push(end);
        }
        for group in 0..self.bounds.n_groups {
            let drift = if self.rebase { 0.0 } else { self.drift[group] };
            let lower = &chunk.lower[group * m..][..m];
            let (start, end) = (lists.start(group), lists.ends[group]);
            // Own panels are done, and what was found meanwhile may have put the group out of reach.
            let done = if single { (group * self.width) as u32 } else { u32::MAX - self.width as u32 };
            let mut kept = start;
            for i in start..end {
                let r = lists.rows[i];
                lists.rows[kept] = r;
                let r = r as usize;
                let own = work.slot[r].wrapping_sub(done) < self.width as u32;
                kept += usize::from(!own & (lower[r] - drift < work.reach[r]));
            }
            if kept > start {
                met += self.group(group, &lists.rows[start..kept], chunk, work);
            }
        }
        work.lists = lists;
        met
    }

    /// The rows `picked` against the panels of `group`; gives the number of meetings.
    fn group(&self, group: usize, picked: &[u32], chunk: &mut Rows<'_, T>, work: &mut Work<T>) -> usize {
        let first = group * self.bounds.group_panels;
        let panels = first..(first + self.bounds.group_panels).min(self.packed.n_panels());
        work.low.clear();
        work.low.resize(picked.len(), T::INFINITY);
        if panels.len() == 1 {
            self.meet(first, picked, false, work);
            std::mem::swap(&mut work.low, &mut work.panel_low);
            for i in 0..work.better.len() {
                let Better { at, lane, next } = work.better[i];
                let (r, low) = (picked[at as usize] as usize, work.low[at as usize]);
                if self.take(r, first, lane, low, chunk, work) {
                    work.next[r] = next;
                }
            }
            self.renew(group, picked, chunk, work);
            return picked.len();
        }
        work.low_next.clear();
        work.low_next.resize(picked.len(), T::INFINITY);
        for panel in panels.clone() {
            self.meet(panel, picked, false, work);
            let mut better = std::mem::take(&mut work.better);
            let mut found = better.iter().peekable();
            for (i, &r) in picked.iter().enumerate() {
                let (r, low) = (r as usize, work.panel_low[i]);
                let mut next = low;
                if let Some(found) = found.next_if(|found| found.at == i as u32) {
                    if self.take(r, panel, found.lane, low, chunk, work) {
                        work.next[r] = lesser(work.low[i], found.next);
                        work.low_next[i] = work.next[r];
                    }
                    if self.center(panel, found.lane) == chunk.new[r] {
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
            if chunk.new[r] != chunk.old[r] && self.group_of(chunk.new[r]) == group {
                work.next[r] = lesser(work.next[r], work.low_next[i]);
            }
        }
        self.renew(group, picked, chunk, work);
        panels.len() * picked.len()
    }

    /// The rows `picked` against one panel: their lowest values go to `panel_low`, those that it may better to `better`.
    fn meet(&self, panel: usize, picked: &[u32], begin: bool, work: &mut Work<T>) {
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
        };
        lowest(self.packed, &mut work.gathered, meeting);
    }

    /// Makes the center in a lane the row's label, if it is the better one; says whether it was.
    fn take(
        &self,
        r: usize,
        panel: usize,
        lane: u32,
        low: T,
        chunk: &mut Rows<'_, T>,
        work: &mut Work<T>,
    ) -> bool {
        let center = self.center(panel, lane);
        let nearer = low < work.best[r] || low == work.best[r] && center < chunk.new[r];
        if nearer {
            (work.best[r], chunk.new[r]) = (low, center);
            let upper = [upper(&work.gathered, r, low, work.error[r], self.margins)];
            let mut within = [0.0];
            reach(self.outer, &upper, &mut within);
            work.reach[r] = work.reach[r].min(within[0]);
        }
        nearer
    }

    /// Writes the bounds of `picked` rows for `group`, from their lowest values there.
    fn renew(&self, group: usize, picked: &[u32], chunk: &mut Rows<'_, T>, work: &Work<T>) {
        let m = chunk.old.len();
        let lower = &mut chunk.lower[group * m..][..m];
        renew(&work.gathered, picked, &work.low, &work.error, self.margins, self.drift_of(group), lower);
    }

    /// What is added to a bound when it is stored.
    fn drift_of(&self, group: usize) -> f32 {
        if self.rebase { 0.0 } else { self.drift[group] }
    }

    /// The center in a lane of a panel.
    fn center(&self, panel: usize, lane: u32) -> u32 {
        // Lanes that fill up the last panel have infinite values: they are named only where all values are.
        let slot = (panel * self.width + lane as usize).min(self.bounds.order.len() - 1);
        self.bounds.order[slot]
    }

    fn group_of(&self, center: u32) -> usize {
        self.bounds.slot[center as usize] as usize / self.width / self.bounds.group_panels
    }

    /// Writes the bounds that a new label changes.
    fn close(&self, chunk: &mut Rows<'_, T>, work: &mut Work<T>) {
        let m = chunk.old.len();
        for &r in &work.open {
            let r = r as usize;
            if chunk.new[r] == chunk.old[r] {
                continue;
            }
            chunk.upper[r] = upper(&work.gathered, r, work.best[r], work.error[r], self.margins);
            // The new center is no longer among the others of its group, the old one is.
            let to = self.group_of(chunk.new[r]);
            let column = &mut chunk.lower[to * m..][..m];
            let next = [work.next[r]];
            renew(&work.gathered, &[r as u32], &next, &work.error, self.margins, self.drift_of(to), column);
            let from = self.group_of(chunk.old[r]);
            let own = work.own[r].sqrt();
            // As an upper bound, but downwards.
            let least = own
                - (own * self.margins.gamma
                    + T::from_f64(4.0 * T::EPSILON) * (self.margins.norm + own + self.margins.norm));
            let length = (least * self.margins.unit).to_f32().max(0.0) * (1.0 - ROUNDING);
            let bound = &mut chunk.lower[from * m + r];
            *bound = bound.min((length + self.drift_of(from)) * (1.0 - ROUNDING));
        }
    }
}
