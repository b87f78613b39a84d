//! Cells with too few rows join their neighbors.

use super::draft::Draft;
use crate::error::Result;
use crate::kernel::Compute;

/// Nearest cells of a row, in which room is looked for before it is looked for in all cells.
const NEAREST: usize = 8;

impl<T: Compute> Draft<'_, '_, T> {
    /// Joins the cells with less than a quarter of the target, the smallest first: each of their rows goes to the nearest
    /// cell with room. Returns their slots.
    pub(super) fn join(&mut self) -> Result<Vec<u32>> {
        let mut counts = self.counts();
        let limit = self.cells.limit();
        let small = |rows: u64| 4 * rows < self.cells.target;
        let mut starved =
            self.slots(|slot| self.is_live(slot) && !self.is_part(slot) && small(counts[slot as usize]));
        if starved.is_empty() || !self.can_fetch() {
            return Ok(Vec::new());
        }
        starved.sort_by_key(|&slot| (counts[slot as usize], slot));
        self.hold(&starved)?;
        counts = self.counts();
        let mut is_starved = vec![false; self.live.len()];
        for &slot in &starved {
            is_starved[slot as usize] = true;
        }
        let mut members = self.members(|slot| is_starved[slot as usize]);
        let live = self.live_slots();
        let mut left = live.len();
        let mut joined = Vec::new();
        for slot in starved {
            self.cx.check()?;
            // The rows of other cells may have joined this one.
            if left == 1 || !small(counts[slot as usize]) {
                continue;
            }
            let mut rows = std::mem::take(&mut members[slot as usize]);
            rows.sort_unstable();
            self.live[slot as usize] = false;
            let mut places = Vec::with_capacity(rows.len());
            let mut room = counts.clone();
            let values: Vec<T> = rows.iter().flat_map(|&row| self.row(row)).copied().collect();
            let m = NEAREST.min(live.len());
            let near = if rows.is_empty() { Vec::new() } else { self.nearest(&values, &live, m)?.0 };
            for (&row, near) in rows.iter().zip(near.chunks_exact(m)) {
                let free = |slot: &u32| self.is_live(*slot) && room[*slot as usize] < limit;
                let place = near.iter().copied().find(free).or_else(|| self.nearest_free(row, &live, free));
                let Some(place) = place else { break };
                room[place as usize] += 1;
                places.push(place);
            }
            if places.len() < rows.len() {
                // All other cells are full.
                self.live[slot as usize] = true;
                continue;
            }
            for (row, place) in rows.into_iter().zip(places) {
                self.cell[row as usize] = place;
                members[place as usize].push(row);
            }
            counts = room;
            left -= 1;
            joined.push(slot);
        }
        Ok(joined)
    }

    /// The nearest of the cells `among` for which `free` holds.
    fn nearest_free(&self, row: u32, among: &[u32], free: impl Fn(&u32) -> bool) -> Option<u32> {
        let free = among.iter().copied().filter(free);
        free.min_by(|&a, &b| self.sq_dist(row, a).total_cmp(&self.sq_dist(row, b)).then(a.cmp(&b)))
    }
}
