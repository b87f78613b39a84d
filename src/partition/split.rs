//! Divides the rows of a cell that outgrew its limit.

use super::draft::Draft;
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::{self, Compute, PackedCenters, Scratch, sq_dists_few};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::stats::project;
use crate::tuning::GROUPED_ROWS;

/// The least share of the rows on a side of a split cell, and the sweeps of its 2-means.
const PARTITION_LEAST_SHARE: f64 = 1.0 / 3.0;
const PARTITION_SPLIT_SWEEPS: usize = 6;

/// The largest number of parts that a cell is split into at once: its rows are compared with the centers of all parts.
const PARTITION_PARTS: usize = 64;

/// A cell that was split.
pub(super) struct Split<T> {
    pub(super) slot: u32,
    pub(super) center: Vec<T>,
    pub(super) parts: Vec<u32>,
    /// The rows of the cell.
    pub(super) rows: Vec<u32>,
}

/// A label per row, and the centers of the parts.
type Divided<T> = (Vec<u32>, Vec<T>);

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
            let rows = |slot: u32| (slot, std::mem::take(&mut members[slot as usize]));
            // Rows may have been deleted.
            let large: Vec<_> =
                large.into_iter().map(rows).filter(|(_, rows)| rows.len() as u64 > limit).collect();
            let divided = self.divided(&large)?;
            for ((slot, rows), (labels, centers)) in large.into_iter().zip(divided) {
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

    /// Divides the rows of several cells.
    fn divided(&self, cells: &[(u32, Vec<u32>)]) -> Result<Vec<Divided<T>>> {
        let (all, cx) = (MatRef::new(&self.rows, self.dim()), self.cx);
        let (target, metric) = (self.cells.target, self.cells.metric);
        let one = |(_, rows): &(u32, Vec<u32>), part: &mut Vec<Divided<T>>, (): &mut ()| {
            let values: Vec<T> = rows.iter().flat_map(|&row| all.row(row as usize)).copied().collect();
            let parts = (rows.len() as f64 / target as f64).round().max(2.0) as usize;
            // More parts are parts of these two: the caller splits until no cell is too large.
            let parts = if parts > PARTITION_PARTS { 2 } else { parts };
            part.push(divide(MatRef::new(&values, all.cols()), parts, metric, cx)?);
            Ok(())
        };
        let mut divided = Vec::with_capacity(cells.len());
        let merge = |all: &mut Vec<_>, part: &mut Vec<_>| all.append(part);
        cx.ordered_reduce(cells.iter(), &mut divided, Vec::new, || (), one, merge)?;
        Ok(divided)
    }
}

/// Divides rows into about `parts` parts. Every part has rows; identical rows are one part.
fn divide<T: Compute>(
    rows: MatRef<'_, T>,
    parts: usize,
    metric: Metric,
    cx: &Executor,
) -> Result<Divided<T>> {
    let dim = rows.cols();
    let centers = centers_of_parts(rows, parts, metric, cx)?;
    let packed = PackedCenters::new(MatRef::new(&centers, dim));
    let (mut labels, mut scratch) = (vec![0; rows.rows()], Scratch::default());
    for (first, labels) in (0..).step_by(GROUPED_ROWS).zip(labels.chunks_mut(GROUPED_ROWS)) {
        cx.check()?;
        kernel::nearest(rows.slice(first, first + labels.len()), &packed, labels, &mut scratch);
    }
    let mut used = labels.clone();
    used.sort_unstable();
    used.dedup();
    let place = |label: &u32| used.partition_point(|known| known < label) as u32;
    let kept = used.iter().flat_map(|&j| &centers[j as usize * dim..][..dim]);
    Ok((labels.iter().map(place).collect(), kept.copied().collect()))
}

/// The centers of about `parts` parts: the two sides of a balanced 2-means, and parts of them.
fn centers_of_parts<T: Compute>(
    rows: MatRef<'_, T>,
    parts: usize,
    metric: Metric,
    cx: &Executor,
) -> Result<Vec<T>> {
    let (left, centers) = bisect(rows, metric, cx)?;
    if parts <= 2 || left.iter().all(|&side| side == left[0]) {
        return Ok(centers);
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
            all.extend(centers_of_parts(MatRef::new(&values, rows.cols()), parts, metric, cx)?);
        }
    }
    Ok(all)
}

/// 2-means with at least a third of the rows on each side: whether each row is nearer to the first center, and the two
/// centers.
fn bisect<T: Compute>(rows: MatRef<'_, T>, metric: Metric, cx: &Executor) -> Result<(Vec<bool>, Vec<T>)> {
    let (n, dim) = (rows.rows(), rows.cols());
    let least = (n as f64 * PARTITION_LEAST_SHARE).ceil() as usize;
    let (mut to_a, mut to_b) = (vec![0.0; n], vec![0.0; n]);
    let middle = means(rows, &vec![true; n]);
    sq_dists_few(&middle[..dim], rows, &mut to_a);
    let first = rows.row(largest(&to_a));
    sq_dists_few(first, rows, &mut to_a);
    let mut centers = [first, rows.row(largest(&to_a))].concat();
    let mut left = Vec::new();
    for _ in 0..PARTITION_SPLIT_SWEEPS {
        cx.check()?;
        let (a, b) = centers.split_at(dim);
        sq_dists_few(a, rows, &mut to_a);
        sq_dists_few(b, rows, &mut to_b);
        let last = std::mem::replace(&mut left, nearer(&to_a, &to_b, least));
        if left == last {
            break;
        }
        centers = means(rows, &left);
    }
    project(&mut centers, dim, metric);
    let (a, b) = centers.split_at(dim);
    sq_dists_few(a, rows, &mut to_a);
    sq_dists_few(b, rows, &mut to_b);
    let left = to_a.iter().zip(&to_b).map(|(a, b)| a <= b).collect();
    Ok((left, centers))
}

/// Whether each row is on the side of `a`: the rows that are nearer to it, or the relatively nearest if one of the
/// sides had fewer than `least` rows.
fn nearer(to_a: &[f64], to_b: &[f64], least: usize) -> Vec<bool> {
    let n = to_a.len();
    let apart: Vec<f64> = to_a.iter().zip(to_b).map(|(a, b)| a - b).collect();
    let wanted = apart.iter().filter(|&&x| x < 0.0).count();
    let cut = wanted.max(least).min(n - least);
    if cut == wanted {
        return apart.iter().map(|&x| x < 0.0).collect();
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.select_nth_unstable_by(cut, |&i, &j| apart[i].total_cmp(&apart[j]).then(i.cmp(&j)));
    let mut left = vec![false; n];
    order[..cut].iter().for_each(|&i| left[i] = true);
    left
}

/// The place of the largest value, the first among equals.
fn largest(values: &[f64]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// The means of the rows of the left side and of the others. A side without rows has a mean of 0.
fn means<T: Compute>(rows: MatRef<'_, T>, left: &[bool]) -> Vec<T> {
    let dim = rows.cols();
    let mut sums = vec![0.0; 2 * dim];
    for (row, &left) in rows.iter().zip(left) {
        let sum = &mut sums[if left { 0 } else { dim }..][..dim];
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x.to_f64());
    }
    let n_left = left.iter().filter(|&&left| left).count();
    let mean = |(i, sum): (usize, &f64)| {
        let n = if i < dim { n_left } else { left.len() - n_left };
        T::from_f64(sum / n.max(1) as f64)
    };
    sums.iter().enumerate().map(mean).collect()
}
