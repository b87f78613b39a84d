//! This module knows how rows look for neighbours only in the cells of a coarse partition that are nearest to them.
//!
//! The partition is our own k-means, of a sample of the rows. How many cells have to be looked into follows from another sample, whose true
//! neighbours are found by brute force: whether a neighbour is found depends on nothing but the order of the cells about the row and about
//! the neighbour, since whatever meets is told to both.

use super::brute::{frame, nearest_of, packed};
use super::lists::{Found, Lists, is_before, offer, reach};
use super::{About, GraphMethod};
use crate::data::{DataSource, Own, Subset, copy, count_rows};
use crate::error::Result;
use crate::kernel::near::{Near, near};
use crate::kernel::{Compute, Frame, PackedCenters, Scratch, distances};
use crate::kmeans::{KMeans, Metric, nearest};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::{Seeding, draw};
use crate::solver::sweep::{Chunk, Wide, sweep};
use crate::tuning::{CELL_SAMPLE_ROWS, CELL_SWEEPS, GRAPH_TILE_ROWS, RECALL_ROWS, STRIP_ROWS, n_cells};

/// Rows of a cell that are packed at a time.
const PART_ROWS: usize = 2048;

/// The nearest rows of all rows, as far as they lie in cells that are looked into.
///
/// # Errors
/// As [`brute::neighbors`](super::brute::neighbors).
pub(super) fn neighbors<T: Compute + Own>(
    data: &dyn DataSource<T>,
    m: usize,
    recall: f64,
    cx: &Executor,
) -> Result<(Lists, About)> {
    let n = count_rows(data)?;
    let frame = frame(data, None, cx)?;
    let centers = partition(data, n, n_cells(n), cx)?;
    let k = centers.len() / data.dim();
    let (n_probes, found) = probes(data, n, m, recall, (&centers, k), &frame, cx)?;
    let (probed, _) = nearest(&centers, n_probes, Metric::Euclidean, data, cx)?;

    let members = by_cell(probed.iter().step_by(n_probes), k, 1);
    let visitors = by_cell(probed.iter(), k, n_probes);
    let mut lists = Lists::new(n, m)?;
    for cell in 0..k {
        for part in members.of(cell).chunks(PART_ROWS) {
            let packed = packed(data, part, &frame)?;
            visit(data, visitors.of(cell), part, &packed, &mut lists, cx)?;
        }
    }
    fill(data, &frame, &mut lists, cx)?;
    Ok((lists, About { method: GraphMethod::Cells, recall: found, n_cells: k, n_probes }))
}

/// Centers of cells: those of a few sweeps over a sample.
fn partition<T: Compute + Own>(data: &dyn DataSource<T>, n: u64, k: usize, cx: &Executor) -> Result<Vec<T>> {
    let mut drawn = sample(n, CELL_SAMPLE_ROWS * k, 0);
    drawn.sort_unstable();
    let rows = copy(data, &drawn)?;
    let rows = T::own(&rows);
    let params = KMeans::params(k).seeding(Seeding::Random).max_iter(CELL_SWEEPS).tolerance(0.0);
    let mut run = params.start(&rows)?;
    while run.advance(&rows, cx)?.is_some() {}
    Ok(run.centers())
}

/// Up to `most` rows, all of them different; the same ones every time.
fn sample(n: u64, most: usize, step: u64) -> Vec<u64> {
    let rng = &mut Rng::keyed(0, Purpose::Seeding, step);
    if (most as u64) < n { draw(n, None, most, rng) } else { (0..n).collect() }
}

/// How many cells have to be looked into to find the share `recall` of neighbours, and the share that is found then, both of a sample.
fn probes<T: Compute>(
    data: &dyn DataSource<T>,
    n: u64,
    m: usize,
    recall: f64,
    (centers, k): (&[T], usize),
    frame: &Frame<T>,
    cx: &Executor,
) -> Result<(usize, f64)> {
    let mut rows = sample(n, RECALL_ROWS, 1);
    rows.sort_unstable();
    let found = nearest_of(data, &rows, m, frame, cx)?;
    // The cells in their order about each of the sample, and about each of its neighbours.
    let mut all: Vec<u64> = rows.iter().copied().chain(found.iter().map(|&(_, id)| u64::from(id))).collect();
    all.sort_unstable();
    all.dedup();
    let mut sq_dists = vec![0.0; all.len() * k];
    let values = copy(data, &all)?;
    let sparse = data.most_values().is_some();
    let packed = PackedCenters::for_rows(MatRef::new(centers, data.dim()), sparse);
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
    let mut needed: Vec<usize> = Vec::with_capacity(found.len());
    for (&row, found) in rows.iter().zip(found.chunks_exact(m)) {
        for &(_, id) in found {
            let other = u64::from(id);
            needed.push(1 + rank(row, own(other)).min(rank(other, own(row))));
        }
    }
    needed.sort_unstable();
    // Another sample would have found a little more or less.
    let spread = (recall * (1.0 - recall) / rows.len() as f64).sqrt();
    let wanted = ((recall + spread).min(1.0) * needed.len() as f64).ceil() as usize;
    let n_probes = needed[wanted.clamp(1, needed.len()) - 1];
    let within = needed.partition_point(|&needed| needed <= n_probes);
    Ok((n_probes, within as f64 / needed.len() as f64))
}

/// Rows by cell.
struct ByCell {
    starts: Vec<usize>,
    rows: Vec<u64>,
}

impl ByCell {
    fn of(&self, cell: usize) -> &[u64] {
        &self.rows[self.starts[cell]..self.starts[cell + 1]]
    }
}

/// The rows of each of `k` cells, ascending, given `width` cells of every row.
fn by_cell<'a>(cells: impl Iterator<Item = &'a u32> + Clone, k: usize, width: usize) -> ByCell {
    let mut starts = vec![0; k + 1];
    cells.clone().for_each(|&cell| starts[cell as usize + 1] += 1);
    for cell in 0..k {
        starts[cell + 1] += starts[cell];
    }
    let (mut next, mut rows) = (starts.clone(), vec![0; starts[k]]);
    for (i, &cell) in cells.enumerate() {
        rows[next[cell as usize]] = (i / width) as u64;
        next[cell as usize] += 1;
    }
    ByCell { starts, rows }
}

/// Rows look into a part of a cell, a growing number at a time, so that what both sides reach is soon known, and little waits to be told.
fn visit<T: Compute>(
    data: &dyn DataSource<T>,
    visitors: &[u64],
    part: &[u64],
    packed: &PackedCenters<T>,
    lists: &mut Lists,
    cx: &Executor,
) -> Result<()> {
    let mut first = 0;
    while first < visitors.len() {
        let last = visitors.len().min(first + first.clamp(GRAPH_TILE_ROWS, PART_ROWS));
        meet(data, &visitors[first..last], part, packed, lists, cx)?;
        first = last;
    }
    Ok(())
}

/// Rows look into a part of a cell, and whoever is found there is told, if the finder is among its nearest. Both sides are ascending: of many rows that
/// coincide the first ones soon content all others.
fn meet<T: Compute>(
    data: &dyn DataSource<T>,
    visitors: &[u64],
    part: &[u64],
    packed: &PackedCenters<T>,
    lists: &mut Lists,
    cx: &Executor,
) -> Result<()> {
    let m = lists.width;
    let place = |row: u64| row as usize * m..(row as usize + 1) * m;
    let wanted = |row: &u64, first: u64| reach(&lists.places[place(*row)], first as u32);
    let (furthest, reaches): (Vec<Found>, Vec<f64>) =
        part.iter().map(|row| (lists.places[place(*row)][m - 1], wanted(row, visitors[0]))).unzip();
    // Where nobody of the part looks for anybody, those who do not either need not meet it.
    let asked = reaches.iter().any(|&reach| reach >= 0.0);
    let visitors: Vec<u64> =
        visitors.iter().copied().filter(|row| asked || wanted(row, part[0]) >= 0.0).collect();
    let limits = packed.limits(reaches.into_iter());
    let mut mine: Vec<Found> = Vec::with_capacity(visitors.len() * m);
    for &row in &visitors {
        mine.extend_from_slice(&lists.places[place(row)]);
    }
    let absorb = |chunk: Chunk<'_, T>,
                  mine: Wide<'_, Found>,
                  told: &mut Vec<(u64, Found)>,
                  (reaches, buffers): &mut (Vec<f64>, Near<T>)| {
        reaches.clear();
        reaches.extend(mine.values.chunks_exact(m).map(|list| reach(list, part[0] as u32)));
        near(chunk.rows, packed, reaches, &limits, buffers, |i, j, sq_dist| {
            let (row, other) = (visitors[chunk.first_row as usize + i], part[j]);
            let list = &mut mine.values[i * m..(i + 1) * m];
            if row != other {
                if is_before((sq_dist, row as u32), furthest[j]) {
                    told.push((other, (sq_dist, row as u32)));
                }
                offer(list, sq_dist, other as u32);
            }
            reach(list, other as u32 + 1)
        });
        Ok(())
    };
    let mut told = Vec::new();
    let merge = |total: &mut Vec<_>, part: &mut Vec<_>| total.append(part);
    let state = Wide { values: &mut mine[..], width: m };
    let empty = (Vec::new, Default::default);
    sweep(&Subset::new(data, &visitors), cx, GRAPH_TILE_ROWS, state, &mut told, empty, absorb, merge)?;
    for (&row, list) in visitors.iter().zip(mine.chunks_exact(m)) {
        lists.places[place(row)].copy_from_slice(list);
    }
    for (row, (sq_dist, id)) in told {
        offer(&mut lists.places[place(row)], sq_dist, id);
    }
    Ok(())
}

/// Rows that have not found enough others yet, because the cells that they looked into held too few, look at all rows.
fn fill<T: Compute>(
    data: &dyn DataSource<T>,
    frame: &Frame<T>,
    lists: &mut Lists,
    cx: &Executor,
) -> Result<()> {
    let m = lists.width;
    let short = |list: &[Found]| list[m - 1].1 == u32::MAX;
    let of = lists.places.chunks_exact(m).enumerate();
    let rows: Vec<u64> = of.filter(|(_, list)| short(list)).map(|(i, _)| i as u64).collect();
    for part in rows.chunks(PART_ROWS) {
        let found = nearest_of(data, part, m, frame, cx)?;
        for (&row, list) in part.iter().zip(found.chunks_exact(m)) {
            lists.places[row as usize * m..][..m].copy_from_slice(list);
        }
    }
    Ok(())
}
