//! Rows near the border of a split cell change their cells: the rules of LIRE.

use super::draft::Draft;
use super::split::Split;
use super::update::Rules;
use crate::data::Dense;
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters, sq_dist};
use crate::matrix::MatRef;
use crate::pass::{Compared, Groups};
use crate::tuning::DEFAULT_MEMORY;

impl<T: Compute> Draft<'_, '_, T> {
    /// Moves rows of split cells, and of the cells around them, to nearer cells. Slots from `first` on are parts of
    /// these splits.
    pub(super) fn move_rows(&mut self, splits: &[Split<T>], first: u32, rules: &Rules) -> Result<()> {
        // No other center is nearer than the old one. So only a row that is farther from both of the new ones can be
        // nearer to another.
        let leaving = |split: &Split<T>| {
            let far = |&&row: &&u32| {
                sq_dist(self.row(row), &split.center) < self.sq_dist(row, self.cell[row as usize])
            };
            split.rows.iter().filter(far).copied().collect::<Vec<u32>>()
        };
        let old = splits.iter().filter(|split| split.slot < first);
        let mut leaving: Vec<u32> = old.flat_map(leaving).collect();
        leaving.sort_unstable();
        let lists = self.lists_around(splits, rules)?;
        self.relabel(&lists)?;
        if !leaving.is_empty() {
            let values: Vec<T> = leaving.iter().flat_map(|&row| self.row(row)).copied().collect();
            let found = self.nearest(&values, &self.live_slots(), 1)?.0;
            leaving.iter().zip(found).for_each(|(&row, slot)| self.cell[row as usize] = slot);
        }
        Ok(())
    }

    /// Per cell, itself and the new centers that its rows are compared with. Holds the cells around those that were
    /// split.
    fn lists_around(&mut self, splits: &[Split<T>], rules: &Rules) -> Result<Vec<Vec<u32>>> {
        let whole = self.slots(|slot| self.is_live(slot) && !self.is_part(slot));
        let parts = self.slots(|slot| self.is_live(slot) && self.is_part(slot));
        let centers: Vec<T> = splits.iter().flat_map(|split| &split.center).copied().collect();
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); self.live.len()];
        let mut around = Vec::new();
        for among in [&whole, &parts] {
            let m = rules.neighbors.min(among.len());
            if m == 0 {
                continue;
            }
            let found = self.nearest(&centers, among, m)?.0;
            for (split, near) in splits.iter().zip(found.chunks_exact(m)) {
                for (rank, &slot) in near.iter().enumerate() {
                    let own = split.parts.iter().copied().filter(|&part| self.is_live(part));
                    lists[slot as usize].extend(own);
                    around.push((rank, slot));
                }
            }
        }
        self.hold_some(around, rules)?;
        for (slot, list) in (0..).zip(&mut lists).filter(|(_, list)| !list.is_empty()) {
            list.push(slot);
            list.sort_unstable();
            list.dedup();
        }
        Ok(lists)
    }

    /// Holds the cells with the lowest ranks, as far as the limit of fetched cells allows.
    pub(super) fn hold_some(&mut self, mut ranked: Vec<(usize, u32)>, rules: &Rules) -> Result<()> {
        ranked.retain(|&(_, slot)| !self.is_held(slot));
        ranked.sort_unstable();
        let mut chosen: Vec<u32> = Vec::new();
        let mut taken = vec![false; self.live.len()];
        for (_, slot) in ranked {
            if !std::mem::replace(&mut taken[slot as usize], true) {
                chosen.push(slot);
            }
        }
        let n = self.cells.ids.len();
        let held = self.held[..n].iter().filter(|&&held| held).count();
        chosen.truncate(((n as f64 * rules.most_fetched) as usize).saturating_sub(held));
        self.hold(&chosen)
    }

    /// Moves the rows at hand of every slot to the nearest of its list. The lowest slot wins a tie; an empty list moves
    /// no row.
    pub(super) fn relabel(&mut self, lists: &[Vec<u32>]) -> Result<()> {
        let data = Dense::new(&self.rows, self.dim())?;
        let all = PackedCenters::new(MatRef::new(&self.centers, self.dim())).with_rows();
        let groups = Groups::new(&self.cell, lists.len());
        let longest = lists.iter().map(Vec::len).max().unwrap_or_default().max(1);
        let list = |slot: usize, list: &mut Vec<u32>| list.extend_from_slice(&lists[slot]);
        let compared = Compared { all: &all, list: &list, longest, reach: None, memory: DEFAULT_MEMORY };
        compared.relabel(&data, &groups, self.cx, |row, slot, _| self.cell[row as usize] = slot)?;
        Ok(())
    }
}
