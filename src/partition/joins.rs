//! Cells with too few rows join their neighbors.

use super::draft::Draft;
use crate::error::Result;
use crate::kernel::Compute;

/// Nearest cells of a row, in which room is looked for before it is looked for in all cells.
const NEAREST: usize = 16;

/// The nearest cells of all rows that are left are found again after a search in all cells for one row in so many.
const SEARCHED: usize = 16;

/// The nearest cells of rows, when they were found last.
struct Near {
    /// Per row at hand, its place in `slots`; `u32::MAX` for other rows.
    places: Vec<u32>,
    slots: Vec<u32>,
    width: usize,
    /// Number of the rows, and searches in all cells since then.
    rows: usize,
    searches: usize,
}

impl<T: Compute> Draft<'_, '_, T> {
    /// Joins the cells with less than a quarter of the target, the smallest first: each of their rows goes to the
    /// nearest cell with room. Returns their slots.
    pub(super) fn join(&mut self) -> Result<Vec<u32>> {
        let mut counts = self.counts();
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
        let mut left = self.live_slots().len();
        let mut near = self.near(members.iter().flatten().copied().collect(), &counts)?;
        let mut joined = Vec::new();
        for (done, &slot) in starved.iter().enumerate() {
            self.cx.check()?;
            // The rows of other cells may have joined this one.
            if left == 1 || !small(counts[slot as usize]) {
                continue;
            }
            let mut rows = std::mem::take(&mut members[slot as usize]);
            rows.sort_unstable();
            self.live[slot as usize] = false;
            let mut places = Vec::with_capacity(rows.len());
            for &row in &rows {
                let Some(place) = self.place(row, &mut near, &counts)? else { break };
                counts[place as usize] += 1;
                places.push(place);
            }
            if places.len() < rows.len() {
                // All other cells are full.
                for place in places {
                    counts[place as usize] -= 1;
                }
                self.live[slot as usize] = true;
                members[slot as usize] = rows;
                continue;
            }
            counts[slot as usize] = 0;
            for (row, place) in rows.into_iter().zip(places) {
                self.cell[row as usize] = place;
                members[place as usize].push(row);
            }
            left -= 1;
            joined.push(slot);
            if near.searches * SEARCHED > near.rows {
                let rows = starved[done + 1..].iter().flat_map(|&slot| &members[slot as usize]).copied();
                near = self.near(rows.collect(), &counts)?;
            }
        }
        Ok(joined)
    }

    /// Finds the nearest cells with room for some rows.
    fn near(&self, rows: Vec<u32>, counts: &[u64]) -> Result<Near> {
        let free = self.slots(|slot| self.has_room(slot, counts));
        let width = NEAREST.min(free.len());
        let mut near = Near {
            places: vec![u32::MAX; self.cell.len()],
            slots: Vec::new(),
            width,
            rows: rows.len(),
            searches: 0,
        };
        if width > 0 && !rows.is_empty() {
            let values: Vec<T> = rows.iter().flat_map(|&row| self.row(row)).copied().collect();
            near.slots = self.nearest(&values, &free, width)?.0;
            for (place, row) in (0..).zip(rows) {
                near.places[row as usize] = place;
            }
        }
        Ok(near)
    }

    /// The nearest cell with room for a row.
    fn place(&self, row: u32, near: &mut Near, counts: &[u64]) -> Result<Option<u32>> {
        let free = |slot: &u32| self.has_room(*slot, counts);
        let place = near.places[row as usize] as usize;
        let known = near.slots.chunks_exact(near.width.max(1)).nth(place);
        if let Some(place) = known.and_then(|slots| slots.iter().copied().find(free)) {
            return Ok(Some(place));
        }
        self.cx.check()?;
        near.searches += 1;
        let all = (0..self.live.len() as u32).filter(free).map(|slot| (self.sq_dist(row, slot), slot));
        Ok(all.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, slot)| slot))
    }

    fn has_room(&self, slot: u32, counts: &[u64]) -> bool {
        self.is_live(slot) && counts[slot as usize] < self.cells.limit()
    }
}
