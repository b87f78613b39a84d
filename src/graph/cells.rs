//! Approximate search: rows search only the cells of a coarse partition that are nearest to them.
//!
//! The partition comes from k-means on a sample of the rows. The number of probed cells is chosen on another
//! sample, whose true neighbors are found by brute force. A pair that is compared is offered to both rows.
//! Whether a neighbor is found therefore depends only on the order of the cells about the row and about the
//! neighbor.

use super::brute::{frame, nearest_of, packed};
use super::lists::{Neighbor, NeighborLists, offer, reach};
use super::{About, GraphMethod};
use crate::centers::{nearest, predict, probes_for};
use crate::data::{AnySource, DataSource, RowRange, copy, count_rows, row_values};
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::near::{Near, near};
use crate::kernel::{Compute, Frame, PackedCenters, Scratch, distances};
use crate::kmeans::KMeans;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::seeding::{Seeding, sample_rows};
use crate::tuning::{CELL_SAMPLE_ROWS, CELL_SWEEPS, STRIP_ROWS, n_cells, packed_rows};

/// Rows that search a part of a cell together: enough to make its packing, of `dim` columns, cheap, also if
/// rows store only `values` of them.
fn visitors_together(dim: usize, values: usize) -> usize {
    (32 * dim / values).max(2048)
}

/// Visits that run at the same time without each other's results: enough for many threads, few enough that
/// rows soon know their search radius.
const VISITS_TOGETHER: usize = 64;

/// Upper limit of the results of visits that run at the same time, at 24 bytes each.
const NEWS_TOGETHER: usize = 4 << 20;

/// Pairs of a row and a cell to search that are stored at a time, at 16 bytes each, or the number of rows if
/// it is larger. All cells are packed each time.
const LOOKS_TOGETHER: u64 = 8 << 20;

/// Rows whose true neighbors are computed to measure the recall: with 5 neighbors each, a recall of 0.95 has
/// an error of half a percent.
const RECALL_ROWS: usize = 384;

/// The nearest rows of all rows, as far as they are in probed cells.
///
/// # Errors
/// Same as [`brute::neighbors`](super::brute::neighbors).
pub(super) fn neighbors<T: Compute>(
    data: &dyn DataSource<T>,
    m: usize,
    recall: f64,
    cx: &Executor,
) -> Result<(NeighborLists, About)> {
    let n = count_rows(data)?;
    let _phase = cx.phase("neighbors", 0);
    let frame = frame(data, None, cx)?;
    let centers = partition(data, n, n_cells(n), cx)?;
    let centers = MatRef::new(&centers, data.dim());
    let (n_probes, found) = probes(data, n, m, recall, centers, &frame, cx)?;
    // Each row visits its probed cells, and each part visits itself.
    let _phase = cx.phase("neighbors", n.saturating_mul(n_probes as u64 + 2));
    // Probes are stored for some rows at a time, so that memory does not grow with the number of probes.
    let slab = (n.max(LOOKS_TOGETHER) / n_probes as u64).clamp(1, n);
    let mut lists = look(data, m, centers, n_probes, slab, &frame, cx)?;
    fill(data, &frame, &mut lists, cx)?;
    Ok((lists, About { method: GraphMethod::Cells, recall: found, n_cells: centers.rows(), n_probes }))
}

/// Searches the `n_probes` nearest cells of all rows, `slab` rows at a time. Neighbors are offered to both
/// sides.
fn look<T: Compute>(
    data: &dyn DataSource<T>,
    m: usize,
    centers: MatRef<'_, T>,
    n_probes: usize,
    slab: u64,
    frame: &Frame<T>,
    cx: &Executor,
) -> Result<NeighborLists> {
    let (n, k) = (count_rows(data)?, centers.rows());
    let probed = |first: u64| -> Result<Vec<u32>> {
        let rows = RowRange::new::<T>(data, first..n.min(first + slab))?;
        Ok(nearest(centers.data(), n_probes, Metric::Euclidean, &rows, cx)?.0)
    };
    let mut cells = probed(0)?;
    let members = if slab < n {
        by_cell(predict(centers.data(), Metric::Euclidean, data, cx)?.iter(), 0, k, 1)
    } else {
        by_cell(cells.iter().step_by(n_probes), 0, k, 1)
    };
    let part_rows = packed_rows::<T>(data.dim());
    let parts = (0..k).map(|cell| members.of(cell).len().div_ceil(part_rows)).max().unwrap_or(0);
    let mut lists = NeighborLists::new(n, m)?;
    // First each part by itself: afterwards rows have a finite reach, if the part has enough rows.
    let by_itself = |part| Visit { part, visitors: part, known: &[] };
    let visits: Vec<_> = (0..k).flat_map(|cell| members.of(cell).chunks(part_rows)).map(by_itself).collect();
    run_visits(&visits, data, frame, &mut lists, cx)?;
    let together = visitors_together(data.dim(), row_values(data));
    for first in (0..n).step_by(slab as usize) {
        if first > 0 {
            cells = probed(first)?;
        }
        let visitors = by_cell(cells.iter(), first, k, n_probes);
        // Process the parts of a cell in order: if many rows coincide, the first parts fill the lists of all
        // others.
        for level in 0..parts {
            let mut visits = Vec::new();
            for cell in 0..k {
                let Some(part) = members.of(cell).chunks(part_rows).nth(level) else { continue };
                let known = &members.of(cell)[..level * part_rows + part.len()];
                let some = visitors.of(cell).chunks(together);
                visits.extend(some.map(|visitors| Visit { part, visitors, known }));
            }
            run_visits(&visits, data, frame, &mut lists, cx)?;
        }
    }
    Ok(lists)
}

/// The centers of the cells: a few k-means sweeps over a sample.
fn partition<T: Compute>(data: &dyn DataSource<T>, n: u64, k: usize, cx: &Executor) -> Result<Vec<T>> {
    let rows = copy(data, &sample_rows(n, CELL_SAMPLE_ROWS * k, 0, 0))?;
    let rows = AnySource::of::<T>(&rows);
    let params = KMeans::params(k).seeding(Seeding::Random).max_iter(CELL_SWEEPS).tolerance(0.0);
    let mut run = params.start(&rows)?;
    while run.advance_on(&rows, cx)?.is_some() {}
    Ok(run.centers())
}

/// The number of cells to probe for the share `recall` of true neighbors, and the share that is then found,
/// both measured on a sample.
fn probes<T: Compute>(
    data: &dyn DataSource<T>,
    n: u64,
    m: usize,
    recall: f64,
    centers: MatRef<'_, T>,
    frame: &Frame<T>,
    cx: &Executor,
) -> Result<(usize, f64)> {
    let rows = sample_rows(n, RECALL_ROWS, 0, 1);
    let found = nearest_of(data, &rows, m, frame, cx)?;
    let sparse = data.most_values().is_some();
    let (packed, k) = (PackedCenters::for_rows(centers, sparse), centers.rows());
    let mut needed: Vec<usize> = Vec::with_capacity(found.len());
    // Some rows at a time: 32 MB of distances.
    let group = ((4 << 20) / (k * (m + 1))).max(1);
    for (rows, found) in rows.chunks(group).zip(found.chunks(group * m)) {
        // The order of the cells about each of these rows, and about each of their neighbors.
        let others = found.iter().map(|&(_, id)| u64::from(id));
        let mut all: Vec<u64> = rows.iter().copied().chain(others).collect();
        all.sort_unstable();
        all.dedup();
        let mut sq_dists = vec![0.0; all.len() * k];
        let values = copy(data, &all)?;
        let parts = sq_dists.chunks_mut(STRIP_ROWS * k).enumerate();
        cx.for_each(parts, Scratch::default, |(part, out), scratch| {
            let first = part * STRIP_ROWS;
            distances(values.rows().slice(first, first + out.len() / k), &packed, out, scratch);
            Ok(())
        })?;
        let about = |row: u64| {
            let at = all.binary_search(&row).expect("every row is among them");
            &sq_dists[at * k..][..k]
        };
        let own = |row: u64| {
            let by_distance = |a: &(usize, &f64), b: &(usize, &f64)| a.1.total_cmp(b.1);
            about(row).iter().enumerate().min_by(by_distance).map_or(0, |(cell, _)| cell)
        };
        let rank = |row: u64, cell: usize| {
            let to = about(row);
            to.iter().enumerate().filter(|&(other, &d)| (d, other) < (to[cell], cell)).count()
        };
        for (&row, found) in rows.iter().zip(found.chunks_exact(m)) {
            let mine = own(row);
            for &(_, id) in found {
                let other = u64::from(id);
                needed.push(1 + rank(row, own(other)).min(rank(other, mine)));
            }
        }
    }
    Ok(probes_for(recall, needed, rows.len()))
}

/// Rows grouped by cell, ascending.
struct ByCell {
    starts: Vec<usize>,
    rows: Vec<u64>,
}

impl ByCell {
    fn of(&self, cell: usize) -> &[u64] {
        &self.rows[self.starts[cell]..self.starts[cell + 1]]
    }
}

/// The rows of each of `k` cells, given `width` cells of every row from `first` on.
fn by_cell<'a>(cells: impl Iterator<Item = &'a u32> + Clone, first: u64, k: usize, width: usize) -> ByCell {
    let mut starts = vec![0; k + 1];
    cells.clone().for_each(|&cell| starts[cell as usize + 1] += 1);
    for cell in 0..k {
        starts[cell + 1] += starts[cell];
    }
    let (mut next, mut rows) = (starts.clone(), vec![0; starts[k]]);
    for (i, &cell) in cells.enumerate() {
        rows[next[cell as usize]] = first + (i / width) as u64;
        next[cell as usize] += 1;
    }
    ByCell { starts, rows }
}

/// A search by some rows (visitors) in a part of a cell.
struct Visit<'a> {
    part: &'a [u64],
    visitors: &'a [u64],
    /// Visitors that were compared with the part before: its own rows, and rows of parts that its rows
    /// probed. Empty for a part by itself.
    known: &'a [u64],
}

/// Runs visits, several at a time. Visits that run together do not see each other's results.
fn run_visits<T: Compute>(
    mut visits: &[Visit<'_>],
    data: &dyn DataSource<T>,
    frame: &Frame<T>,
    lists: &mut NeighborLists,
    cx: &Executor,
) -> Result<()> {
    while !visits.is_empty() {
        let mut most = 0;
        let fits = |visit: &&Visit<'_>| {
            most += visit.most_news(lists.width);
            most <= NEWS_TOGETHER
        };
        let count = visits.iter().take(VISITS_TOGETHER).take_while(fits).count().max(1);
        let (together, rest) = visits.split_at(count);
        let mut told = Vec::new();
        let run = |visit: &Visit<'_>, told: &mut Vec<_>, buffers: &mut Near<T>| {
            cx.count(visit.visitors.len() as u64);
            visit.run(data, frame, lists, told, buffers, cx)
        };
        let merge = |all: &mut Vec<_>, part: &mut Vec<_>| all.append(part);
        cx.ordered_reduce(together.iter(), &mut told, Vec::new, Near::default, run, merge)?;
        for (row, (sq_dist, id)) in told {
            offer(lists.of_mut(row), sq_dist, id);
        }
        visits = rest;
    }
    Ok(())
}

impl Visit<'_> {
    /// The largest number of new list entries that the visit can produce.
    fn most_news(&self, m: usize) -> usize {
        let (part, visitors) = (self.part.len(), self.visitors.len());
        visitors * m.min(part) + part * m.min(visitors)
    }

    /// Appends the neighbors that visitors find in the part, and vice versa, unless `lists` already hold
    /// them.
    fn run<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        frame: &Frame<T>,
        lists: &NeighborLists,
        told: &mut Vec<(u64, Neighbor)>,
        buffers: &mut Near<T>,
        cx: &Executor,
    ) -> Result<()> {
        let m = lists.width;
        let &Self { part, visitors, known } = self;
        let telling = !known.is_empty();
        let looks = |row, first| reach(lists.of(row), first as u32) >= 0.0;
        // Rows with enough coinciding neighbors need no search.
        let asked = telling && part.iter().any(|&row| looks(row, visitors[0]));
        if !asked && !visitors.iter().any(|&row| looks(row, part[0])) {
            return Ok(());
        }
        let packed = packed(data, part, frame, data)?;
        let mut own = lists.copies(part);
        for rows in visitors.chunks(STRIP_ROWS) {
            cx.check()?;
            let reach_of = |list| if telling { reach(list, rows[0] as u32) } else { -1.0 };
            let limits: Vec<f64> = own.chunks_exact(m).map(reach_of).collect();
            // If no row of the part searches, visitors that do not search are skipped.
            let asked = limits.iter().any(|&reach| reach >= 0.0);
            let comes = |row| (asked || looks(row, part[0])) && known.binary_search(&row).is_err();
            let rows: Vec<u64> = rows.iter().copied().filter(|&row| comes(row)).collect();
            if rows.is_empty() {
                continue;
            }
            let mut mine = lists.copies(&rows);
            let reaches: Vec<f64> = mine.chunks_exact(m).map(|list| reach(list, part[0] as u32)).collect();
            let values = copy(data, &rows)?;
            let limits = packed.limits(limits.into_iter());
            near(values.rows(), &packed, &reaches, &limits, buffers, |i, j, sq_dist| {
                let (list, row, other) = (&mut mine[i * m..][..m], rows[i] as u32, part[j] as u32);
                if row != other {
                    if telling {
                        offer(&mut own[j * m..][..m], sq_dist, row);
                    }
                    offer(list, sq_dist, other);
                }
                // Later rows have higher numbers.
                reach(list, other + 1)
            });
            lists.news(&rows, &mine, told);
        }
        if telling {
            lists.news(part, &own, told);
        }
        Ok(())
    }
}

/// Searches all rows for rows whose probed cells held too few neighbors.
fn fill<T: Compute>(
    data: &dyn DataSource<T>,
    frame: &Frame<T>,
    lists: &mut NeighborLists,
    cx: &Executor,
) -> Result<()> {
    let m = lists.width;
    let short = |list: &[Neighbor]| list[m - 1].1 == u32::MAX;
    let of = lists.places.chunks_exact(m).enumerate();
    let rows: Vec<u64> = of.filter(|(_, list)| short(list)).map(|(i, _)| i as u64).collect();
    for part in rows.chunks(packed_rows::<T>(data.dim())) {
        let found = nearest_of(data, part, m, frame, cx)?;
        for (&row, list) in part.iter().zip(found.chunks_exact(m)) {
            lists.of_mut(row).copy_from_slice(list);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::rng::{Purpose, Rng};

    fn rows(n: usize, dim: usize, below: u64) -> Vec<f32> {
        let rng = &mut Rng::keyed(1, Purpose::Seeding, 0);
        (0..n * dim).map(|_| rng.below(below) as f32).collect()
    }

    fn found(
        values: &[f32],
        dim: usize,
        (m, k, n_probes): (usize, usize, usize),
        slab: u64,
    ) -> Vec<Neighbor> {
        let (rows, cx) = (Dense::new(values, dim).unwrap(), Executor::new(Some(2)).unwrap());
        let frame = frame::<f32>(&rows, None, &cx).unwrap();
        look(&rows, m, MatRef::new(&values[..k * dim], dim), n_probes, slab, &frame, &cx).unwrap().places
    }

    #[test]
    fn it_does_not_matter_how_many_rows_look_at_a_time() {
        let values = rows(900, 7, 50);
        let at_once = found(&values, 7, (4, 20, 3), 900);
        assert!(at_once.iter().all(|found| found.0.is_finite()));
        assert!([1, 64, 899].into_iter().all(|slab| found(&values, 7, (4, 20, 3), slab) == at_once));
    }

    #[test]
    fn cells_of_several_parts_hold_all_rows() {
        // Few distinct values, so that most distances are equal; the rows of the last third coincide.
        let mut values = rows(9000, 3, 9);
        values[18_000..].fill(1.0);
        let (source, cx) = (Dense::new(&values, 3).unwrap(), Executor::new(Some(2)).unwrap());
        let exact = super::super::brute::neighbors::<f32>(&source, 5, &cx).unwrap().places;
        for slab in [9000, 5000] {
            assert!(found(&values, 3, (5, 2, 2), slab) == exact, "{slab} rows at a time");
        }
    }
}
