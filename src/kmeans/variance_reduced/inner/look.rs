//! Labels and bounds for the rows of a block, computed together before the first step of the block.

use super::{DrawnRow, Inner, MORE, STEPS_TOGETHER};
use crate::error::Result;
use crate::kernel::bounded::{Nearest, nearest_pair};
use crate::kernel::{self, Compute, Scratch};
use crate::kmeans::bounds::{Apart, Settling};
use crate::kmeans::variance_reduced::draws::Origin;
use crate::rows::RowBuf;

/// Labels, upper and lower bounds of rows that were searched together, and the number of distances computed.
type SearchedRows = (Vec<(u32, f64, f64)>, u64);

/// Buffers of one worker.
#[derive(Default)]
struct Looking<T: Compute> {
    settling: Settling<T>,
    rows: Vec<u64>,
    numbers: Vec<u32>,
    labels: Vec<u32>,
    nearest: Nearest<T>,
    scratch: Scratch<T>,
    sq_dists: Vec<f64>,
}

impl<T: Compute> Inner<'_, T> {
    /// Finds labels and bounds of the drawn rows.
    pub(super) fn look(&mut self, origin: Origin<'_, T>) -> Result<()> {
        let bounds = self.start.bounds;
        let apart = bounds.map(|bounds| {
            let moves = self.to_means.iter().enumerate();
            let moves: Vec<f64> =
                moves.map(|(j, far)| (far + self.moving.apart(j)) * MORE + self.rounding).collect();
            bounds.apart::<T>(&moves)
        });
        let open = match &apart {
            Some(apart) => self.doubtful(apart),
            None => (0..self.drawn.len() as u32).collect(),
        };
        if open.is_empty() {
            return Ok(());
        }
        let chunks = open.len().div_ceil(STEPS_TOGETHER);
        self.copied.resize_with(chunks, RowBuf::default);
        let mut found: Vec<SearchedRows> = vec![SearchedRows::default(); chunks];
        let packing = self.panels.as_mut().unwrap_or(&mut self.all);
        let packed = packing.sync(&self.moving, &mut self.center);
        let dim = self.x.len();
        let (values, beyond) = (self.start.values.unwrap_or(dim), self.ahead as f32);
        let rules = apart.as_ref().map(|apart| apart.rules(packed, values, beyond));
        let norm = packed.largest_norm() * self.of_packed;
        let (drawn, gamma, lost, of_packed, unit) =
            (&self.drawn, self.gamma, self.lost, self.of_packed, self.unit);
        // The largest difference of two squared distances that have equal tile values.
        let error = |upper: f64| 4.0 * gamma * ((norm + upper).powi(2) + norm * norm);
        let chunks = open.chunks(STEPS_TOGETHER).zip(self.copied.iter_mut()).zip(&mut found);
        self.cx.for_each(chunks, Looking::default, |((open, copied), found), work| {
            work.rows.clear();
            work.rows.extend(open.iter().map(|&i| drawn[i as usize].row));
            origin.copy(&work.rows, dim, copied)?;
            let rows = copied.rows();
            let (found, measured) = found;
            if let (Some(apart), Some(rules)) = (&apart, &rules) {
                work.numbers.clear();
                work.numbers.extend(work.rows.iter().map(|&row| row as u32));
                work.labels.clear();
                work.labels.extend(open.iter().map(|&i| drawn[i as usize].label));
                let picked = (&work.numbers[..], &work.labels[..]);
                *measured = apart.settle(rules, rows, picked, &mut work.settling, found);
                return Ok(());
            }
            *measured = (open.len() * packed.n_centers()) as u64;
            work.nearest.resize(open.len());
            nearest_pair(rows, packed, &mut work.nearest, &mut work.scratch);
            work.sq_dists.resize(open.len(), 0.0);
            kernel::sq_dists(rows, &work.nearest.ids[..open.len()], packed, &mut work.sq_dists);
            for (i, sq_dist) in work.sq_dists.iter().enumerate() {
                let own = sq_dist * unit * unit;
                let upper = (own + lost).sqrt() * MORE;
                let gap =
                    (work.nearest.next[i].to_f64() - work.nearest.best[i].to_f64()) * of_packed * of_packed;
                let others = (own - lost + gap - error(upper)).max(0.0).sqrt() / MORE;
                found.push((work.nearest.ids[i], upper, others));
            }
            Ok(())
        })?;
        for ((chunk, open), (found, measured)) in open.chunks(STEPS_TOGETHER).enumerate().zip(found) {
            self.distances += measured;
            for (i, (&at, (label, upper, others))) in open.iter().zip(found).enumerate() {
                let drawn = &mut self.drawn[at as usize];
                *drawn = DrawnRow { label, upper, others, at: Some((chunk as u32, i as u32)), ..*drawn };
            }
        }
        Ok(())
    }

    /// The drawn rows whose label the bounds do not settle. Records the bounds of the others.
    fn doubtful(&mut self, apart: &Apart<'_>) -> Vec<u32> {
        let (mut open, mut rows) = (Vec::new(), Vec::new());
        for (i, drawn) in self.drawn.iter_mut().enumerate() {
            let (upper, others) = apart.of_row(drawn.row as usize, drawn.label);
            (drawn.upper, drawn.others) = (f64::from(upper), f64::from(others));
            if !drawn.is_settled(self.ahead) {
                open.push(i as u32);
                rows.push(drawn.row as u32);
            }
        }
        let mut by_group = Vec::new();
        apart.by_group(&rows, &mut by_group);
        let mut kept = 0;
        for i in 0..open.len() {
            let drawn = &mut self.drawn[open[i] as usize];
            if let Some(&others) = by_group.get(i) {
                drawn.others = drawn.others.max(f64::from(others));
            }
            open[kept] = open[i];
            kept += usize::from(!drawn.is_settled(self.ahead));
        }
        open.truncate(kept);
        open
    }
}
