//! An update in progress: cells in slots, and the rows at hand. The partition stays as it was until the end.

use super::fetch::Fetch;
use super::{Cells, Fetched};
use crate::centers::nearest;
use crate::data::normalize_rows;
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::kernel::{Compute, sq_dist};
use crate::parallel::Executor;

/// The place of a new row before the update.
pub(super) const NEW: u32 = u32::MAX;

/// The cells are in slots: first those of the partition, then those that splits make. All rows of a *held* cell are at
/// hand; of other cells only new rows, and rows that moved there.
pub(super) struct Draft<'a, 'f, T: Compute> {
    pub(super) cells: &'a Cells<T>,
    pub(super) cx: &'a Executor,
    fetch: Option<&'a mut Fetch<'f, T>>,

    // Per slot.
    pub(super) centers: Vec<T>,
    pub(super) live: Vec<bool>,
    pub(super) held: Vec<bool>,
    /// Rows that are not at hand.
    stored: Vec<u64>,

    // Per row at hand.
    pub(super) rows: Vec<T>,
    pub(super) cell: Vec<u32>,
    /// The slot in which the row is stored, or [`NEW`].
    pub(super) home: Vec<u32>,
    /// Keys of the rows after the new ones.
    keys: Vec<u64>,
    pub(super) n_new: usize,

    /// The squared distances of the fetched rows to the centers of the cells in which they are stored.
    fetched_inertia: f64,
    /// Rows that cells should have had, and that were not fetched: they were deleted.
    missing: u64,
    /// Cells whose rows are identical.
    pub(super) indivisible: Vec<u32>,
}

impl<'a, 'f, T: Compute> Draft<'a, 'f, T> {
    /// Takes in new rows, each at its nearest center.
    pub(super) fn new(
        cells: &'a Cells<T>,
        rows: Vec<T>,
        fetch: Option<&'a mut Fetch<'f, T>>,
        cx: &'a Executor,
    ) -> Result<Self> {
        let (k, n) = (cells.ids.len(), rows.len() / cells.dim);
        check_count(n)?;
        let mut draft = Self {
            cells,
            cx,
            fetch,
            centers: cells.centers.clone(),
            live: vec![true; k],
            held: vec![false; k],
            stored: cells.sizes.clone(),
            rows,
            cell: Vec::new(),
            home: vec![NEW; n],
            keys: Vec::new(),
            n_new: n,
            fetched_inertia: 0.0,
            missing: 0,
            indivisible: Vec::new(),
        };
        draft.cell = if n == 0 { Vec::new() } else { draft.nearest(&draft.rows, &draft.live_slots(), 1)?.0 };
        Ok(draft)
    }

    pub(super) fn dim(&self) -> usize {
        self.cells.dim
    }

    /// Whether stored rows can be asked for.
    pub(super) fn can_fetch(&self) -> bool {
        self.fetch.is_some()
    }

    pub(super) fn center(&self, slot: u32) -> &[T] {
        &self.centers[slot as usize * self.dim()..][..self.dim()]
    }

    pub(super) fn row(&self, row: u32) -> &[T] {
        &self.rows[row as usize * self.dim()..][..self.dim()]
    }

    /// The squared distance of a row at hand to a center.
    pub(super) fn sq_dist(&self, row: u32, slot: u32) -> f64 {
        sq_dist(self.row(row), self.center(slot))
    }

    pub(super) fn is_live(&self, slot: u32) -> bool {
        self.live[slot as usize]
    }

    pub(super) fn is_held(&self, slot: u32) -> bool {
        self.held[slot as usize]
    }

    /// Whether a split of this update made the cell.
    pub(super) fn is_part(&self, slot: u32) -> bool {
        slot as usize >= self.cells.ids.len()
    }

    /// The cells for which `holds` is true, ascending.
    pub(super) fn slots(&self, holds: impl Fn(u32) -> bool) -> Vec<u32> {
        (0..self.live.len() as u32).filter(|&slot| holds(slot)).collect()
    }

    pub(super) fn live_slots(&self) -> Vec<u32> {
        self.slots(|slot| self.is_live(slot))
    }

    /// The centers of some cells, one after the other.
    pub(super) fn centers_of(&self, slots: &[u32]) -> Vec<T> {
        slots.iter().flat_map(|&slot| self.center(slot)).copied().collect()
    }

    /// The `m` nearest of the cells `among` for every row, and the squared distances.
    pub(super) fn nearest(&self, rows: &[T], among: &[u32], m: usize) -> Result<(Vec<u32>, Vec<f64>)> {
        let rows = self.cells.rows(rows)?;
        let (mut found, sq_dists) = nearest(&self.centers_of(among), m, Metric::Euclidean, &rows, self.cx)?;
        for place in &mut found {
            *place = among[*place as usize];
        }
        Ok((found, sq_dists))
    }

    /// The number of rows per slot.
    pub(super) fn counts(&self) -> Vec<u64> {
        let mut counts = self.stored.clone();
        self.cell.iter().for_each(|&slot| counts[slot as usize] += 1);
        counts
    }

    /// The rows at hand of the cells for which `wanted` holds, per slot and in order.
    pub(super) fn members(&self, wanted: impl Fn(u32) -> bool) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.live.len()];
        for (row, &slot) in self.cell.iter().enumerate() {
            if wanted(slot) {
                members[slot as usize].push(row as u32);
            }
        }
        members
    }

    /// Fetches the rows of those cells that are not held.
    pub(super) fn hold(&mut self, slots: &[u32]) -> Result<()> {
        let mut missing: Vec<u32> = slots.iter().copied().filter(|&slot| !self.is_held(slot)).collect();
        missing.sort_unstable();
        missing.dedup();
        let Some(fetch) = self.fetch.as_mut() else { return Ok(()) };
        let ids: Vec<u64> = missing
            .iter()
            .filter(|&&slot| self.stored[slot as usize] > 0)
            .map(|&slot| self.cells.ids[slot as usize])
            .collect();
        let fetched = if ids.is_empty() { Fetched::default() } else { fetch(&ids)? };
        fetched.check(&ids, self.cells.dim)?;
        check_count(self.cell.len() + fetched.keys.len())?;
        let Fetched { keys, cells, mut rows } = fetched;
        if self.cells.metric == Metric::Cosine {
            normalize_rows(&mut rows, self.cells.dim);
        }
        let mut expected: u64 = 0;
        for slot in missing {
            self.held[slot as usize] = true;
            expected += std::mem::take(&mut self.stored[slot as usize]);
        }
        self.missing += expected.saturating_sub(keys.len() as u64);
        let first = self.cell.len() as u32;
        self.rows.append(&mut rows);
        self.keys.extend(keys);
        for (row, id) in (first..).zip(cells) {
            let slot = self.cells.ids.partition_point(|&known| known < id) as u32;
            self.cell.push(slot);
            self.home.push(slot);
            self.fetched_inertia += self.sq_dist(row, slot);
        }
        Ok(())
    }

    /// Replaces a cell by parts with these centers. Returns their slots.
    pub(super) fn split(&mut self, slot: u32, centers: &[T]) -> Vec<u32> {
        self.live[slot as usize] = false;
        let first = self.live.len() as u32;
        let parts = centers.len() / self.dim();
        self.centers.extend_from_slice(centers);
        self.live.resize(self.live.len() + parts, true);
        self.held.resize(self.live.len(), true);
        self.stored.resize(self.live.len(), 0);
        (first..first + parts as u32).collect()
    }

    /// The key of a fetched row.
    pub(super) fn key(&self, row: usize) -> u64 {
        self.keys[row - self.n_new]
    }

    /// The number of rows that were fetched.
    pub(super) fn n_fetched(&self) -> u64 {
        self.keys.len() as u64
    }

    /// The squared distances of all rows to their centers.
    pub(super) fn inertia(&self) -> f64 {
        let n: u64 = self.cells.sizes.iter().sum();
        // Those of the deleted rows are not known: they count as the mean.
        let deleted = self.cells.inertia * self.missing as f64 / n.max(1) as f64;
        let at_hand: f64 =
            self.cell.iter().enumerate().map(|(row, &slot)| self.sq_dist(row as u32, slot)).sum();
        let others = self.cells.inertia - self.fetched_inertia - deleted;
        // Rounding may leave less than nothing; NaN stays.
        if others < 0.0 { at_hand } else { others + at_hand }
    }
}

/// Row numbers take 32 bits.
fn check_count(n: usize) -> Result<()> {
    let most = NEW as usize - 1;
    if n <= most {
        Ok(())
    } else {
        Err(Error::param("number of new and fetched rows", format!("at most {most}"), n))
    }
}
