//! Divides the rows of a cell that outgrew its limit.

use super::draft::Draft;
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::{Compute, sq_dist};
use crate::matrix::MatRef;
use crate::stats::project;
use crate::tuning::{PARTITION_LEAST_SHARE, PARTITION_SPLIT_SWEEPS};

/// A cell that was split.
pub(super) struct Split<T> {
    pub(super) slot: u32,
    pub(super) center: Vec<T>,
    pub(super) parts: Vec<u32>,
    /// The rows of the cell.
    pub(super) rows: Vec<u32>,
}

impl<T: Compute> Draft<'_, '_, T> {
    /// Splits cells until none has more rows than the limit, identical rows aside.
    pub(super) fn split_all(&mut self) -> Result<Vec<Split<T>>> {
        let limit = self.cells.limit();
        let mut splits = Vec::new();
        // Other rows may have moved to such a cell.
        self.indivisible.clear();
        loop {
            let counts = self.counts();
            let over = |slot| self.is_live(slot) && counts[slot as usize] > limit;
            let large = self.slots(|slot| over(slot) && !self.indivisible.contains(&slot));
            if large.is_empty() || !self.can_fetch() {
                return Ok(splits);
            }
            self.hold(&large)?;
            let mut members = self.members(|slot| large.binary_search(&slot).is_ok());
            for slot in large {
                self.cx.check()?;
                let rows = std::mem::take(&mut members[slot as usize]);
                // Rows may have been deleted.
                if rows.len() as u64 <= limit {
                    continue;
                }
                let values: Vec<T> = rows.iter().flat_map(|&row| self.row(row)).copied().collect();
                let parts = (rows.len() as f64 / self.cells.target as f64).round().max(2.0) as usize;
                let (labels, centers) = divide(MatRef::new(&values, self.dim()), parts, self.cells.metric);
                if centers.len() == self.dim() {
                    self.indivisible.push(slot);
                    continue;
                }
                let center = self.center(slot).to_vec();
                let parts = self.split(slot, &centers);
                for (&row, label) in rows.iter().zip(labels) {
                    self.cell[row as usize] = parts[label as usize];
                }
                splits.push(Split { slot, center, parts, rows });
            }
        }
    }
}

/// Divides rows into about `parts` parts: a label per row, and the centers. Every part has rows; identical rows are one
/// part.
fn divide<T: Compute>(rows: MatRef<'_, T>, parts: usize, metric: Metric) -> (Vec<u32>, Vec<T>) {
    let centers = centers_of_parts(rows, parts, metric);
    let label = |row: &[T]| {
        let mut best = (f64::INFINITY, 0);
        for (j, center) in centers.chunks_exact(rows.cols()).enumerate() {
            let found = sq_dist(row, center);
            if found < best.0 {
                best = (found, j as u32);
            }
        }
        best.1
    };
    let labels: Vec<u32> = rows.iter().map(label).collect();
    let mut used = labels.clone();
    used.sort_unstable();
    used.dedup();
    let place = |label: &u32| used.partition_point(|known| known < label) as u32;
    let kept = used.iter().flat_map(|&j| &centers[j as usize * rows.cols()..][..rows.cols()]);
    (labels.iter().map(place).collect(), kept.copied().collect())
}

/// The centers of about `parts` parts: the two sides of a balanced 2-means, and parts of them.
fn centers_of_parts<T: Compute>(rows: MatRef<'_, T>, parts: usize, metric: Metric) -> Vec<T> {
    let (left, centers) = bisect(rows, metric);
    if parts <= 2 || left.iter().all(|&side| side == left[0]) {
        return centers;
    }
    let n_left = left.iter().filter(|&&side| side).count();
    let share = (parts as f64 * n_left as f64 / rows.rows() as f64).round() as usize;
    let of_left = share.clamp(1, parts - 1);
    let mut all = Vec::new();
    for (wanted, parts, center) in [(true, of_left, 0), (false, parts - of_left, 1)] {
        if parts == 1 {
            all.extend_from_slice(&centers[center * rows.cols()..][..rows.cols()]);
        } else {
            let mine = rows.iter().zip(&left).filter(|(_, side)| **side == wanted);
            let values: Vec<T> = mine.flat_map(|(row, _)| row).copied().collect();
            all.extend(centers_of_parts(MatRef::new(&values, rows.cols()), parts, metric));
        }
    }
    all
}

/// 2-means with at least a third of the rows on each side: whether each row is nearer to the first center, and the two
/// centers.
fn bisect<T: Compute>(rows: MatRef<'_, T>, metric: Metric) -> (Vec<bool>, Vec<T>) {
    let (n, dim) = (rows.rows(), rows.cols());
    let least = (n as f64 * PARTITION_LEAST_SHARE).ceil() as usize;
    let wide = |row: &[T]| row.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let everyone: Vec<usize> = (0..n).collect();
    let first = farthest(rows, &mean(rows, &everyone));
    let mut a = wide(rows.row(first));
    let mut b = wide(rows.row(farthest(rows, &a)));
    let mut order = everyone;
    for _ in 0..PARTITION_SPLIT_SWEEPS {
        // The squared distance to a minus that to b.
        let nearer: Vec<f64> = rows
            .iter()
            .map(|row| {
                row.iter().zip(&a).zip(&b).map(|((x, a), b)| (b - a) * (2.0 * x.to_f64() - a - b)).sum()
            })
            .collect();
        order.sort_by(|&i, &j| nearer[i].total_cmp(&nearer[j]).then(i.cmp(&j)));
        let cut = nearer.iter().filter(|&&x| x < 0.0).count().max(least).min(n - least);
        (a, b) = (mean(rows, &order[..cut]), mean(rows, &order[cut..]));
    }
    let mut centers: Vec<T> = a.iter().chain(&b).map(|&x| T::from_f64(x)).collect();
    project(&mut centers, dim, metric);
    let (a, b) = centers.split_at(dim);
    let left = rows.iter().map(|row| sq_dist(row, a) <= sq_dist(row, b)).collect();
    (left, centers)
}

/// The row with the largest squared distance from a point, the first among equals.
fn farthest<T: Compute>(rows: MatRef<'_, T>, from: &[f64]) -> usize {
    let mut best = (-1.0, 0);
    for (i, row) in rows.iter().enumerate() {
        let found: f64 = row.iter().zip(from).map(|(x, c)| (x.to_f64() - c).powi(2)).sum();
        if found > best.0 {
            best = (found, i);
        }
    }
    best.1
}

/// The mean of some rows, which are added in ascending order so that their order does not count.
fn mean<T: Compute>(rows: MatRef<'_, T>, chosen: &[usize]) -> Vec<f64> {
    let mut chosen = chosen.to_vec();
    chosen.sort_unstable();
    let mut sum = vec![0.0; rows.cols()];
    for &i in &chosen {
        sum.iter_mut().zip(rows.row(i)).for_each(|(sum, x)| *sum += x.to_f64());
    }
    let n = chosen.len().max(1) as f64;
    sum.iter().map(|sum| sum / n).collect()
}
