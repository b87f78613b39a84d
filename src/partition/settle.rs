//! The centers of fetched cells move to the means of their rows.

use super::advice::sq_shift;
use super::draft::Draft;
use super::update::Rules;
use crate::error::Result;
use crate::kernel::Compute;
use crate::stats::to_mean;

impl<T: Compute> Draft<'_, '_, T> {
    /// Holds the cells whose centers have drifted most, by the squared error that a move to the mean would save: a
    /// share of the number of cells that are held already.
    pub(super) fn hold_drifted(&mut self, rules: &Rules) -> Result<()> {
        let held = self.held[..self.cells.ids.len()].iter().filter(|&&held| held).count();
        let most = (rules.refreshed * held as f64) as usize;
        if most == 0 {
            return Ok(());
        }
        let (counts, shifts) = (self.counts(), self.shifts());
        let mut drifted: Vec<(f64, u32)> = Vec::new();
        for slot in self.slots(|slot| self.is_live(slot) && !self.is_held(slot)) {
            let shift = &shifts[slot as usize * self.dim()..][..self.dim()];
            let saved =
                sq_shift(self.cells.metric, self.center(slot), shift) / counts[slot as usize].max(1) as f64;
            if saved > 0.0 {
                drifted.push((saved, slot));
            }
        }
        drifted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        drifted.truncate(most);
        self.hold_some(drifted.into_iter().enumerate().map(|(rank, (_, slot))| (rank, slot)).collect(), rules)
    }

    /// Per slot, the sum of the rows minus the center.
    pub(super) fn shifts(&self) -> Vec<f64> {
        let dim = self.dim();
        let mut shifts = self.cells.shifts.clone();
        shifts.resize(self.centers.len(), 0.0);
        for slot in self.slots(|slot| self.is_held(slot)) {
            shifts[slot as usize * dim..][..dim].fill(0.0);
        }
        for (row, &slot) in (0..).zip(&self.cell) {
            let shift = &mut shifts[slot as usize * dim..][..dim];
            for ((shift, x), c) in shift.iter_mut().zip(self.row(row)).zip(self.center(slot)) {
                *shift += x.to_f64() - c.to_f64();
            }
        }
        shifts
    }

    /// Sweeps of k-means over the rows of the held cells. A row moves to the nearest of the centers around that of its
    /// cell; the centers of other cells stay.
    pub(super) fn settle(&mut self, rules: &Rules) -> Result<()> {
        let held = self.slots(|slot| self.is_live(slot) && self.is_held(slot));
        if held.is_empty() || self.cell.is_empty() {
            return Ok(());
        }
        let live = self.live_slots();
        let m = rules.candidates.min(live.len());
        for _ in 0..rules.sweeps {
            self.recenter(&held);
            let near = self.nearest(&self.centers_of(&held), &live, m)?.0;
            let mut lists: Vec<Vec<u32>> = vec![Vec::new(); self.live.len()];
            for (&slot, near) in held.iter().zip(near.chunks_exact(m)) {
                lists[slot as usize].extend_from_slice(near);
                lists[slot as usize].sort_unstable();
            }
            let before = self.cell.clone();
            self.relabel(&lists)?;
            if before == self.cell {
                break;
            }
        }
        Ok(())
    }

    /// Moves the centers of held cells to the means of their rows.
    fn recenter(&mut self, held: &[u32]) {
        let dim = self.dim();
        let counts = self.counts();
        let mut sums = vec![0.0; self.centers.len()];
        for (row, &slot) in (0..).zip(&self.cell).filter(|(_, slot)| self.is_held(**slot)) {
            let sum = &mut sums[slot as usize * dim..][..dim];
            sum.iter_mut().zip(self.row(row)).for_each(|(sum, x)| *sum += x.to_f64());
        }
        for &slot in held {
            let at = slot as usize * dim;
            let sum = (&sums[at..at + dim], counts[slot as usize] as f64);
            to_mean(&mut self.centers[at..at + dim], self.cells.metric, sum, &mut 0.0);
        }
    }
}
