//! This module knows how a chunk of rows is labelled by bounds.

use super::{BASE_SWEEPS, PanelBounds, ROUNDING, down, up};
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;

/// Lists of rows, one after the other.
#[derive(Default)]
struct Lists {
    rows: Vec<u32>,
    /// Where each ends.
    ends: Vec<usize>,
}

/// The buffers of one worker. Those of a chunk are indexed by row.
pub(in crate::kmeans) struct Work<T> {
    scratch: Scratch<T>,
    least: Vec<f32>,
    /// Groups whose bound is below this may hold the nearest center; minus infinity where the label is settled.
    reach: Vec<f32>,
    /// Slot of the center that the row comes with.
    slot: Vec<u32>,
    /// Squared distance to that center.
    own: Vec<f64>,
    /// `|x'|^2` as tile values see it: added to one it gives a squared distance, to within `error / 2`.
    sq_norm: Vec<f64>,
    error: Vec<f64>,
    /// The best tile value so far, and the next one in its center's group. The center is the new label.
    best: Vec<T>,
    next: Vec<T>,
    /// Rows whose label may change.
    open: Vec<u32>,
    /// Those in the order of their own panels.
    by_panel: Lists,
    near: Lists,
    // Of the rows that meet a group together.
    skip: Vec<u32>,
    bound: Vec<T>,
    low: Vec<T>,
    low_next: Vec<T>,
    picked_norm: Vec<f64>,
    picked_error: Vec<f64>,
    lengths: Vec<f64>,
}

impl<T: Compute> Default for Work<T> {
    fn default() -> Self {
        Self {
            scratch: Scratch::default(),
            least: Vec::new(),
            reach: Vec::new(),
            slot: Vec::new(),
            own: Vec::new(),
            sq_norm: Vec::new(),
            error: Vec::new(),
            best: Vec::new(),
            next: Vec::new(),
            open: Vec::new(),
            by_panel: Lists::default(),
            near: Lists::default(),
            skip: Vec::new(),
            bound: Vec::new(),
            low: Vec::new(),
            low_next: Vec::new(),
            picked_norm: Vec::new(),
            picked_error: Vec::new(),
            lengths: Vec::new(),
        }
    }
}

impl<T> Work<T> {
    /// The open rows by the panel of their slot: a counting sort.
    fn open_by_panel(&mut self, width: usize, panels: usize) -> Lists {
        let mut lists = std::mem::take(&mut self.by_panel);
        lists.ends.clear();
        lists.ends.resize(panels + 1, 0);
        let panel = |r: u32| self.slot[r as usize] as usize / width;
        for &r in &self.open {
            lists.ends[panel(r) + 1] += 1;
        }
        for p in 0..panels {
            lists.ends[p + 1] += lists.ends[p];
        }
        lists.rows.resize(self.open.len(), 0);
        for &r in &self.open {
            // Starts become ends.
            let at = &mut lists.ends[panel(r)];
            lists.rows[*at] = r;
            *at += 1;
        }
        lists.ends.truncate(panels);
        lists
    }
}

/// One sweep's view of the bounds.
pub(in crate::kmeans) struct Rules<'a, T: Compute> {
    bounds: &'a PanelBounds,
    packed: &'a PackedCenters<T>,
    width: usize,
    /// The largest `|c'|`.
    norm: f64,
    /// Rounding of a tile value, relative to the squared norms that it is made of.
    gamma: f64,
    /// Write all lower bounds without drift.
    rebase: bool,
    drift: Vec<f32>,
}

/// A chunk of rows and what is kept of each.
struct Rows<'a, T> {
    values: MatRef<'a, T>,
    old: &'a [u32],
    new: &'a mut [u32],
    upper: &'a mut [f32],
    lower: &'a mut [f32],
}

impl PanelBounds {
    /// The rules of the next sweep.
    pub(in crate::kmeans) fn rules<'a, T: Compute>(&'a self, packed: &'a PackedCenters<T>) -> Rules<'a, T> {
        let (norm, d) = (packed.largest_norm(), packed.dim() as f64);
        Rules {
            bounds: self,
            packed,
            width: PackedCenters::<T>::panel_centers(),
            norm,
            gamma: (d + 8.0) * T::EPSILON,
            rebase: self.age >= BASE_SWEEPS,
            drift: self.drift.iter().map(|&drift| up(drift)).collect(),
        }
    }
}

impl<T: Compute> Rules<'_, T> {
    /// How far a tile value of a row within `distance` of some center may be from the true squared distance.
    fn error(&self, distance: f64) -> f64 {
        let row = self.norm + distance;
        self.gamma * (row * row + self.norm * self.norm)
    }

    /// A center further than this from a row within `upper` of its own center has the larger tile value.
    fn reach(&self, upper: f32) -> f32 {
        let (norm, gamma) = ((self.norm * self.bounds.unit) as f32, 4.0 * self.gamma as f32);
        let row = norm + upper;
        (upper * upper + gamma * (row * row + norm * norm)).sqrt() * (1.0 + 4.0 * ROUNDING)
            + f32::MIN_POSITIVE
    }

    /// Labels a chunk: `new` from `old`, with the bounds of its rows; gives the number of distances that were computed.
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
        self.drift_apart(chunk, work);
        let measured = self.open(chunk, work);
        let distances = measured + self.own_panels(chunk, work) + self.groups(chunk, work);
        self.close(chunk, work);
        distances
    }

    /// Moves the bounds with the centers; leaves the least lower bound of each row in `least`.
    fn drift_apart(&self, chunk: &mut Rows<'_, T>, work: &mut Work<T>) {
        for (upper, &j) in chunk.upper.iter_mut().zip(chunk.old) {
            *upper = (*upper + self.bounds.moves[j as usize]) * (1.0 + ROUNDING);
        }
        let m = chunk.old.len();
        work.least.clear();
        work.least.resize(m, f32::INFINITY);
        for (lower, &drift) in chunk.lower.chunks_exact_mut(m).zip(&self.drift) {
            kernel::settle(lower, drift, &mut work.least);
            if self.rebase {
                for lower in lower {
                    *lower -= drift + (drift + lower.abs()) * ROUNDING;
                }
            }
        }
    }

    /// Finds the rows whose label may change, and measures the distance to their own center; gives the number of those measured.
    fn open(&self, chunk: &mut Rows<'_, T>, work: &mut Work<T>) -> u64 {
        let m = chunk.old.len();
        work.open.clear();
        work.reach.clear();
        work.reach.resize(m, f32::NEG_INFINITY);
        work.slot.resize(m, 0);
        work.own.resize(m, 0.0);
        work.sq_norm.resize(m, 0.0);
        work.error.resize(m, 0.0);
        work.best.resize(m, T::INFINITY);
        work.next.resize(m, T::INFINITY);
        let mut measured = 0;
        for r in 0..m {
            let (least, old) = (work.least[r], chunk.old[r] as usize);
            if least >= self.reach(chunk.upper[r]) {
                continue;
            }
            measured += 1;
            let own = kernel::sq_dist(chunk.values.row(r), self.packed.centers().row(old))
                * (self.bounds.scale * self.bounds.scale);
            let distance = own.sqrt();
            chunk.upper[r] = up(distance * self.bounds.unit * (1.0 + 1e-12));
            let reach = self.reach(chunk.upper[r]);
            if least >= reach {
                continue;
            }
            work.open.push(r as u32);
            work.reach[r] = reach;
            work.slot[r] = self.bounds.slot[old];
            work.own[r] = own;
            work.error[r] = 2.0 * self.error(distance);
        }
        measured
    }

    /// Every open row against the panel of its own center, whose tile value is what the others are compared with.
    fn own_panels(&self, chunk: &mut Rows<'_, T>, work: &mut Work<T>) -> u64 {
        let width = self.width as u32;
        let by_panel = work.open_by_panel(self.width, self.packed.n_panels());
        for (panel, picked) in by_panel.ends.iter().enumerate().map(|(panel, &end)| {
            let start = if panel == 0 { 0 } else { by_panel.ends[panel - 1] };
            (panel as u32, &by_panel.rows[start..end])
        }) {
            for picked in picked.chunks(self.packed.strip_rows()) {
                kernel::load(self.packed, chunk.values, picked, &mut work.scratch);
                work.skip.clear();
                work.skip.extend(picked.iter().map(|&r| work.slot[r as usize] % width));
                work.bound.clear();
                work.bound.resize(picked.len(), T::INFINITY);
                let found =
                    kernel::lowest(self.packed, &mut work.scratch, panel as usize, &work.skip, &work.bound);
                work.low.clear();
                work.low.extend_from_slice(found.low);
                for (i, &r) in picked.iter().enumerate() {
                    let r = r as usize;
                    work.best[r] = found.own[i];
                    work.sq_norm[r] = work.own[r] - found.own[i].to_f64();
                    if found.low[i] <= found.own[i] {
                        let center = self.center(panel as usize, found.lane[i]);
                        if found.low[i] < found.own[i] || center < chunk.new[r] {
                            (work.best[r], work.next[r], chunk.new[r]) =
                                (found.low[i], found.next[i], center);
                            let reach = self.reach(self.upper(found.low[i], work.sq_norm[r], work.error[r]));
                            work.reach[r] = work.reach[r].min(reach);
                        }
                    }
                }
                if self.bounds.group_panels == 1 {
                    self.renew(panel as usize, picked, chunk.lower, work);
                }
            }
        }
        let distances = by_panel.rows.len() * self.width;
        work.by_panel = by_panel;
        distances as u64
    }

    /// The open rows against all groups within their reach.
    fn groups(&self, chunk: &mut Rows<'_, T>, work: &mut Work<T>) -> u64 {
        let m = chunk.old.len();
        let single = self.bounds.group_panels == 1;
        let mut panels = 0;
        // The rows within reach of each group, one list after the other. Whole vectors are written: room for one more.
        let mut near = std::mem::take(&mut work.near);
        near.rows.resize(m * self.bounds.n_groups + 16, 0);
        near.ends.clear();
        let mut end = 0;
        for (group, lower) in chunk.lower.chunks_exact(m).enumerate() {
            let drift = if self.rebase { 0.0 } else { self.drift[group] };
            end += kernel::within(lower, drift, &work.reach, &mut near.rows[end..]);
            near.ends.push(end);
        }
        if 2 * end > work.open.len() * self.bounds.n_groups {
            // Most bounds fail: every open row meets every group, and is loaded once.
            let open = std::mem::take(&mut work.open);
            for picked in open.chunks(self.packed.strip_rows()) {
                kernel::load(self.packed, chunk.values, picked, &mut work.scratch);
                for group in 0..self.bounds.n_groups {
                    panels += picked.len() * self.group(group, picked, chunk, work);
                }
            }
            work.open = open;
        } else {
            let mut start = 0;
            for group in 0..self.bounds.n_groups {
                let drift = if self.rebase { 0.0 } else { self.drift[group] };
                let end = near.ends[group];
                // Own panels are done, and what was found meanwhile may have put the group out of reach.
                let mut kept = start;
                for i in start..end {
                    let r = near.rows[i];
                    near.rows[kept] = r;
                    let r = r as usize;
                    let done = single && work.slot[r] as usize / self.width == group;
                    kept += usize::from(!done && chunk.lower[group * m + r] - drift < work.reach[r]);
                }
                for picked in near.rows[start..kept].chunks(self.packed.strip_rows()) {
                    kernel::load(self.packed, chunk.values, picked, &mut work.scratch);
                    panels += picked.len() * self.group(group, picked, chunk, work);
                }
                start = end;
            }
        }
        work.near = near;
        (panels * self.width) as u64
    }

    /// The loaded rows `picked` against the panels of `group`; gives the number of panels.
    fn group(&self, group: usize, picked: &[u32], chunk: &mut Rows<'_, T>, work: &mut Work<T>) -> usize {
        let first = group * self.bounds.group_panels;
        let panels = first..(first + self.bounds.group_panels).min(self.packed.n_panels());
        work.low.clear();
        work.low.resize(picked.len(), T::INFINITY);
        work.low_next.clear();
        work.low_next.resize(picked.len(), T::INFINITY);
        let least = |a: T, b: T| if b < a { b } else { a };
        for panel in panels.clone() {
            work.skip.clear();
            work.skip.extend(
                picked.iter().map(|&r| work.slot[r as usize].wrapping_sub((panel * self.width) as u32)),
            );
            work.bound.clear();
            work.bound.extend(picked.iter().map(|&r| work.best[r as usize]));
            let found = kernel::lowest(self.packed, &mut work.scratch, panel, &work.skip, &work.bound);
            for (i, &r) in picked.iter().enumerate() {
                let (low, r) = (found.low[i], r as usize);
                let next = if low > work.best[r] {
                    low
                } else {
                    let center = self.center(panel, found.lane[i]);
                    if low < work.best[r] || center < chunk.new[r] {
                        (work.best[r], chunk.new[r]) = (low, center);
                        let reach = self.reach(self.upper(low, work.sq_norm[r], work.error[r]));
                        work.reach[r] = work.reach[r].min(reach);
                        work.next[r] = least(work.low[i], found.next[i]);
                        work.low_next[i] = work.next[r];
                    }
                    if center == chunk.new[r] { found.next[i] } else { low }
                };
                work.low_next[i] = least(work.low_next[i], next);
                work.low[i] = least(work.low[i], low);
            }
        }
        // A later panel may have come between the best and the next one.
        for (i, &r) in picked.iter().enumerate() {
            let r = r as usize;
            if chunk.new[r] != chunk.old[r] && self.group_of(chunk.new[r]) == group {
                work.next[r] = least(work.next[r], work.low_next[i]);
            }
        }
        self.renew(group, picked, chunk.lower, work);
        panels.len()
    }

    /// Writes the bounds of `picked` rows for `group`, from their lowest values there.
    fn renew(&self, group: usize, picked: &[u32], lower: &mut [f32], work: &mut Work<T>) {
        let m = lower.len() / self.bounds.n_groups;
        work.picked_norm.clear();
        work.picked_norm.extend(picked.iter().map(|&r| work.sq_norm[r as usize]));
        work.picked_error.clear();
        work.picked_error.extend(picked.iter().map(|&r| work.error[r as usize]));
        work.lengths.resize(picked.len(), 0.0);
        kernel::lengths(&work.low, &work.picked_norm, &work.picked_error, &mut work.lengths);
        for (&r, &length) in picked.iter().zip(&work.lengths) {
            lower[group * m + r as usize] = self.stored(length, group);
        }
    }

    /// The center in a lane of a panel.
    fn center(&self, panel: usize, lane: u32) -> u32 {
        // Lanes that fill up the last panel have infinite values: they are named only where all values are.
        let slot = (panel * self.width + lane as usize).min(self.bounds.order.len() - 1);
        self.bounds.order[slot]
    }

    /// An upper bound on a distance, from a tile value.
    fn upper(&self, value: T, sq_norm: f64, error: f64) -> f32 {
        up((value.to_f64() + sq_norm + error).max(0.0).sqrt() * self.bounds.unit * (1.0 + 1e-12))
    }

    /// A lower bound, a packed length, as it is stored: with the drift of its group until now.
    fn stored(&self, lower: f64, group: usize) -> f32 {
        let drift = if self.rebase { 0.0 } else { self.drift[group] };
        down(lower * self.bounds.unit + f64::from(drift))
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
            chunk.upper[r] = self.upper(work.best[r], work.sq_norm[r], work.error[r]);
            // The new center is no longer among the others of its group, the old one is.
            let to = self.group_of(chunk.new[r]);
            let mut next = [0.0];
            kernel::lengths(&work.next[r..=r], &work.sq_norm[r..=r], &work.error[r..=r], &mut next);
            chunk.lower[to * m + r] = self.stored(next[0], to);
            let from = self.group_of(chunk.old[r]);
            let own = self.stored(work.own[r].sqrt() * (1.0 - 1e-12), from);
            let bound = &mut chunk.lower[from * m + r];
            *bound = bound.min(own);
        }
    }
}
