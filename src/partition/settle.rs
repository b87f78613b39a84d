//! The centers of fetched cells move to the means of their rows.

use super::advice::sq_shift;
use super::draft::Draft;
use super::update::Rules;
use crate::error::Result;
use crate::kernel::{self, Compute, PackedCenters, Scratch, sq_dist};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::Groups;
use crate::stats::to_mean;
use crate::tuning::GROUPED_ROWS;

impl<T: Compute> Draft<'_, '_, T> {
    /// Holds the cells whose centers have drifted most, by the squared error that a move to the mean would save: a
    /// share of the number of cells that are held already.
    pub(super) fn hold_drifted(&mut self, rules: &Rules) -> Result<()> {
        let held = self.held[..self.cells.ids.len()].iter().filter(|&&held| held).count();
        let most = (rules.refreshed * held as f64) as usize;
        if most == 0 {
            return Ok(());
        }
        let (counts, shifts) = (self.counts(), self.shifts(|slot| !self.is_held(slot)));
        let rounding = ROUNDING.max(T::EPSILON);
        let mut drifted: Vec<(f64, u32)> = Vec::new();
        for slot in self.slots(|slot| self.is_live(slot) && !self.is_held(slot)) {
            let (center, count) = (self.center(slot), counts[slot as usize].max(1) as f64);
            let shift = &shifts[slot as usize * self.dim()..][..self.dim()];
            let saved = sq_shift(self.cells.metric, center, shift) / count;
            // A center that is a mean up to rounding saves less than that.
            let sq_norm: f64 = center.iter().map(|c| c.to_f64().powi(2)).sum();
            if saved > rounding.powi(2) * count * sq_norm {
                drifted.push((saved, slot));
            }
        }
        drifted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        drifted.truncate(most);
        self.hold_some(drifted.into_iter().enumerate().map(|(rank, (_, slot))| (rank, slot)).collect(), rules)
    }

    /// Per slot for which `wanted` holds, the sum of the rows minus the center.
    pub(super) fn shifts(&self, wanted: impl Fn(u32) -> bool) -> Vec<f64> {
        let dim = self.dim();
        let mut shifts = self.cells.shifts.clone();
        shifts.resize(self.centers.len(), 0.0);
        for slot in self.slots(|slot| self.is_held(slot)) {
            shifts[slot as usize * dim..][..dim].fill(0.0);
        }
        for (row, &slot) in (0..).zip(&self.cell).filter(|(_, slot)| wanted(**slot)) {
            let shift = &mut shifts[slot as usize * dim..][..dim];
            for ((shift, x), c) in shift.iter_mut().zip(self.row(row)).zip(self.center(slot)) {
                *shift += x.to_f64() - c.to_f64();
            }
        }
        shifts
    }

    /// Sweeps of k-means over the rows of the held cells. A row moves to the nearest of the centers that are around
    /// that of its cell after the first move to the means; the centers of other cells stay.
    ///
    /// Per row, bounds on the distances to its center and to the others of the list skip rows that cannot move.
    pub(super) fn settle(&mut self, rules: &Rules) -> Result<()> {
        let held = self.slots(|slot| self.is_live(slot) && self.is_held(slot));
        if held.is_empty() || self.cell.is_empty() || rules.sweeps == 0 {
            return Ok(());
        }
        let mut moves = self.recenter(&held);
        let lists = self.lists_of(&held, rules)?;
        let mut bounds = Bounds::none(self.cell.len());
        for sweep in 1..=rules.sweeps {
            bounds.follow(self, &lists, &moves);
            let changed = bounds.sweep(self, &lists)?;
            if changed.is_empty() || sweep == rules.sweeps {
                break;
            }
            moves = self.recenter(&changed);
        }
        Ok(())
    }

    /// Moves the centers of those of these slots that are held to the means of their rows. Returns an upper bound on
    /// the length of the move per slot.
    ///
    /// All rows of a slot are summed again: after a row left a sum, its rounding would stay.
    fn recenter(&mut self, slots: &[u32]) -> Vec<f64> {
        let (dim, metric) = (self.dim(), self.cells.metric);
        let mut wanted = vec![false; self.live.len()];
        for &slot in slots {
            wanted[slot as usize] = self.is_held(slot);
        }
        let mut sums = vec![0.0; self.centers.len()];
        let mut counts = vec![0u64; self.live.len()];
        for (row, &slot) in (0..).zip(&self.cell).filter(|(_, slot)| wanted[**slot as usize]) {
            let sum = &mut sums[slot as usize * dim..][..dim];
            sum.iter_mut().zip(self.row(row)).for_each(|(sum, x)| *sum += x.to_f64());
            counts[slot as usize] += 1;
        }
        let mut moves = vec![0.0; self.live.len()];
        for (slot, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (at, mut sq_move) = (slot * dim, 0.0);
            let sum = (&sums[at..at + dim], count as f64);
            to_mean(&mut self.centers[at..at + dim], metric, sum, &mut sq_move);
            moves[slot] = sq_move.sqrt() * (1.0 + ROUNDING);
        }
        moves
    }

    /// Per held cell, the cells whose centers are nearest to its own, ascending; itself is one of them.
    fn lists_of(&self, held: &[u32], rules: &Rules) -> Result<Vec<Vec<u32>>> {
        let live = self.live_slots();
        let m = rules.candidates.min(live.len());
        let near = self.nearest(&self.centers_of(held), &live, m)?.0;
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); self.live.len()];
        for (&slot, near) in held.iter().zip(near.chunks_exact(m)) {
            let list = &mut lists[slot as usize];
            list.extend_from_slice(near);
            // More centers than that may coincide with its own.
            list.push(slot);
            list.sort_unstable();
            list.dedup();
        }
        Ok(lists)
    }
}

/// Relative rounding of lengths in `f64`, with room to spare.
const ROUNDING: f64 = 1e-9;

/// Bounds on distances per row at hand.
struct Bounds {
    /// At least the distance to the center of the row's cell.
    own: Vec<f64>,
    /// At most the distances to all other centers in the list of the row's cell.
    others: Vec<f64>,
}

/// Where a row belongs: slot, the distance to its center, and a lower bound on the distances to other centers.
type Home = (u32, f64, f64);

/// Buffers of a worker.
struct Desk<T: Compute> {
    chosen: PackedCenters<T>,
    rows: Vec<T>,
    labels: Vec<u32>,
    best: Vec<f64>,
    second: Vec<f64>,
    scratch: Scratch<T>,
}

impl Bounds {
    /// Bounds that skip no row.
    fn none(rows: usize) -> Self {
        Self { own: vec![f64::INFINITY; rows], others: vec![0.0; rows] }
    }

    /// Keeps the bounds valid after moves of the centers.
    fn follow<T: Compute>(&mut self, draft: &Draft<'_, '_, T>, lists: &[Vec<u32>], moves: &[f64]) {
        let others = |(slot, list): (usize, &Vec<u32>)| {
            let moves =
                list.iter().filter(|&&other| other as usize != slot).map(|&other| moves[other as usize]);
            moves.fold(0.0, f64::max)
        };
        let most: Vec<f64> = lists.iter().enumerate().map(others).collect();
        let bounds = self.own.iter_mut().zip(&mut self.others);
        for ((own, others), &slot) in bounds.zip(&draft.cell) {
            *own += moves[slot as usize];
            *others = *others * (1.0 - ROUNDING) - most[slot as usize];
        }
    }

    /// Moves every row to the nearest of the list of its cell; the lowest slot wins a tie, and an empty list moves no
    /// row. Returns the slots whose rows changed, ascending.
    fn sweep<T: Compute>(&mut self, draft: &mut Draft<'_, '_, T>, lists: &[Vec<u32>]) -> Result<Vec<u32>> {
        let open = self.open_rows(draft, lists)?;
        let slots: Vec<u32> = open.iter().map(|&row| draft.cell[row as usize]).collect();
        let groups = Groups::new(&slots, lists.len());
        let found = compare(draft, lists, &open, &groups)?;
        let mut changed = vec![false; lists.len()];
        for (&place, (slot, own, others)) in groups.rows().iter().zip(found) {
            let row = open[place as usize];
            let from = std::mem::replace(&mut draft.cell[row as usize], slot);
            (self.own[row as usize], self.others[row as usize]) = (own, others);
            if from != slot {
                changed[from as usize] = true;
                changed[slot as usize] = true;
                // The bounds are those of the list of the other cell.
                self.others[row as usize] = 0.0;
            }
        }
        Ok((0..lists.len() as u32).filter(|&slot| changed[slot as usize]).collect())
    }

    /// The rows that may be nearer to another center of their list.
    fn open_rows<T: Compute>(&mut self, draft: &Draft<'_, '_, T>, lists: &[Vec<u32>]) -> Result<Vec<u32>> {
        let (rows, cells, others) = (MatRef::new(&draft.rows, draft.dim()), &draft.cell, &self.others);
        let centers = MatRef::new(&draft.centers, draft.dim());
        let find = |(part, own): (usize, &mut [f64]), open: &mut Vec<u32>, (): &mut ()| {
            for (row, own) in (part * GROUPED_ROWS..).zip(own) {
                let (slot, others) = (cells[row] as usize, others[row]);
                if lists[slot].is_empty() || *own < others {
                    continue;
                }
                if others > 0.0 {
                    *own = sq_dist(rows.row(row), centers.row(slot)).sqrt() * (1.0 + ROUNDING);
                    if *own < others {
                        continue;
                    }
                }
                open.push(row as u32);
            }
            Ok(())
        };
        let items = self.own.chunks_mut(GROUPED_ROWS).enumerate();
        let mut open = Vec::new();
        draft.cx.ordered_reduce(items, &mut open, Vec::new, || (), find, Vec::append)?;
        Ok(open)
    }
}

/// Compares the rows `open`, grouped by their cells, with the lists of these cells. The result follows the groups.
fn compare<T: Compute>(
    draft: &Draft<'_, '_, T>,
    lists: &[Vec<u32>],
    open: &[u32],
    groups: &Groups,
) -> Result<Vec<Home>> {
    let (dim, cx): (usize, &Executor) = (draft.dim(), draft.cx);
    let rows = MatRef::new(&draft.rows, dim);
    let all = PackedCenters::new(MatRef::new(&draft.centers, dim)).with_rows();
    let norm = all.largest_norm() / all.scale();
    let longest = lists.iter().map(Vec::len).max().unwrap_or_default().max(1);
    let gamma = (dim as f64 + 16.0) * T::EPSILON;
    // A lower bound on the distance to the second center, from a squared distance with the rounding of tile values.
    let second_at_least = |sq_dist: f64| {
        let off = 4.0 * gamma * ((norm + sq_dist.sqrt()).powi(2) + norm * norm);
        (sq_dist - off).max(0.0).sqrt() * (1.0 - ROUNDING)
    };
    let desk = || Desk {
        chosen: all.places(longest),
        rows: Vec::new(),
        labels: Vec::new(),
        best: Vec::new(),
        second: Vec::new(),
        scratch: Scratch::default(),
    };
    let mut found: Vec<Home> = vec![(0, 0.0, 0.0); open.len()];
    let items = found.chunks_mut(GROUPED_ROWS).enumerate();
    cx.for_each(items, desk, |(part, found), desk| {
        let (mut at, end) = (part * GROUPED_ROWS, part * GROUPED_ROWS + found.len());
        let mut slot = groups.at(at);
        while at < end {
            let next = end.min(groups.start(slot) + groups.len(slot));
            let n = next - at;
            if n > 0 {
                let list = &lists[slot];
                desk.rows.clear();
                for &place in &groups.rows()[at..next] {
                    desk.rows.extend_from_slice(rows.row(open[place as usize] as usize));
                }
                desk.chosen.choose(list, &all);
                desk.labels.resize(n, 0);
                desk.best.resize(n, 0.0);
                desk.second.resize(n, 0.0);
                let mine = MatRef::new(&desk.rows, dim);
                kernel::nearest_two(
                    mine,
                    &desk.chosen,
                    &mut desk.labels,
                    &mut desk.best,
                    &mut desk.second,
                    &mut desk.scratch,
                );
                let each = desk.labels.iter().zip(&desk.best).zip(&desk.second);
                let start = at - part * GROUPED_ROWS;
                for (found, ((&label, &best), &second)) in found[start..start + n].iter_mut().zip(each) {
                    *found = (list[label as usize], best.sqrt() * (1.0 + ROUNDING), second_at_least(second));
                }
            }
            (at, slot) = (next, slot + 1);
        }
        Ok(())
    })?;
    Ok(found)
}
