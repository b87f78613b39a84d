//! Brute-force search: compares all pairs of rows, one packed block at a time, and each pair once for both
//! rows.

use std::ops::Range;

use super::lists::{Neighbor, NeighborLists, is_before, offer, reach};
use crate::data::{DataSource, RowRange, count_rows, row_values, take};
use crate::error::Result;
use crate::kernel::near::{Limits, Near, near};
use crate::kernel::{Compute, Frame, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, Wide, sweep};
use crate::tuning::{GRAPH_TILE_ROWS, SHIFT_SAMPLE, packed_rows};

/// Rows of `dim` columns that are packed at a time to find the neighbors of `n` rows. A distance to an
/// earlier row serves both rows, so more parts compute fewer distances twice. But every part reads each row
/// again, which takes the time of a few dozen distances.
fn graph_block_rows<T>(n: usize, dim: usize) -> usize {
    (n / 16).max(512).min(packed_rows::<T>(dim)).next_multiple_of(32)
}

/// The frame for comparing the rows of `data`, and rows of `more` that search among them. Checks that values
/// and squared distances are finite.
pub(crate) fn frame<T: Compute>(
    data: &dyn DataSource<T>,
    more: Option<&dyn DataSource<T>>,
    cx: &Executor,
) -> Result<Frame<T>> {
    let n = count_rows(data)?;
    let mut largest = 0.0f64;
    let absorb = |chunk: Chunk<'_, T>, (): (), most: &mut f64, (): &mut ()| {
        chunk.check_finite()?;
        for i in 0..chunk.rows.rows() {
            *most = chunk.rows.stored(i).iter().fold(*most, |most, x| most.max(x.to_f64().abs()));
        }
        // Any method must be able to compute all squared distances, in any order.
        if !(4.0 * *most * *most * data.dim() as f64).is_finite() {
            return Err(chunk.not_finite());
        }
        Ok(())
    };
    let merge = |most: &mut f64, part: &mut f64| *most = most.max(std::mem::take(part));
    for rows in more.into_iter().chain([data]) {
        sweep(rows, cx, GRAPH_TILE_ROWS, (), &mut largest, (|| 0.0, || ()), absorb, merge)?;
    }
    let count = (SHIFT_SAMPLE as u64).min(n);
    let picked: Vec<u64> = (0..count).map(|i| i * n / count).collect();
    let sample = take(data, &picked)?;
    let swept = more.unwrap_or(data);
    Ok(Frame::of(MatRef::new(&sample, data.dim()), largest, swept.most_values().is_some()))
}

/// Packs some rows of a source, to be compared with the rows of `swept`.
pub(crate) fn packed<T: Compute>(
    data: &dyn DataSource<T>,
    rows: &[u64],
    frame: &Frame<T>,
    swept: &dyn DataSource<T>,
) -> Result<PackedCenters<T>> {
    let values = take(data, rows)?;
    let most = row_values(data).max(row_values(swept));
    let sparse = swept.most_values().is_some();
    Ok(PackedCenters::framed(MatRef::new(&values, data.dim()), frame, most, sparse))
}

/// A candidate neighbor for a packed row: the slot of the row, and the neighbor.
type Offer = (u32, Neighbor);

/// The neighbors that a pass finds for packed rows. Candidates of a tile wait until they are merged in tile
/// order.
struct Offers<'a> {
    lists: &'a mut [Neighbor],
    waiting: Vec<Offer>,
}

impl Offers<'_> {
    /// Adds the candidates of another part to lists of `m` places.
    fn take(&mut self, part: &mut Self, m: usize) {
        for (j, (sq_dist, row)) in part.waiting.drain(..) {
            offer(&mut self.lists[j as usize * m..][..m], sq_dist, row);
        }
    }
}

/// The nearest rows of all rows.
///
/// # Errors
/// Errors of the source, [`Error::NotFinite`](crate::Error::NotFinite),
/// [`Error::Memory`](crate::Error::Memory).
pub(super) fn neighbors<T: Compute>(
    data: &dyn DataSource<T>,
    m: usize,
    cx: &Executor,
) -> Result<NeighborLists> {
    let n = count_rows(data)?;
    let part = graph_block_rows::<T>(n as usize, data.dim()) as u64;
    let visits =
        (0..n).step_by(part as usize).fold(n, |visits, start| visits.saturating_add(n.min(start + part)));
    let _phase = cx.phase("neighbors", visits);
    let frame = frame(data, None, cx)?;
    let mut lists = NeighborLists::new(n, m)?;
    for start in (0..n).step_by(part as usize) {
        let end = n.min(start + part);
        let rows: Vec<u64> = (start..end).collect();
        let packed = packed(data, &rows, &frame, data)?;
        let block = |limits| Block { packed: &packed, first: start, limits };
        let (before, rest) = lists.places.split_at_mut(start as usize * m);
        let own = &mut rest[..rows.len() * m];
        // Rows of the block among themselves, each row for itself.
        let unreachable = packed.limits(rows.iter().map(|_| -1.0));
        compare(data, start..end, &block(unreachable), m, own, &mut [], cx)?;
        // Compare with earlier rows, in parts that grow, so that the reaches shrink early: whenever the
        // number of rows doubles, about `m` of them come into reach.
        let mut first = 0;
        while first < start {
            let last = start.min(first + part.max(first));
            let limits = packed.limits(own.chunks_exact(m).map(|list| reach(list, first as u32)));
            let lists = &mut before[first as usize * m..last as usize * m];
            compare(data, first..last, &block(limits), m, lists, own, cx)?;
            first = last;
        }
    }
    Ok(lists)
}

/// Packed rows, to be compared with other rows.
struct Block<'a, T: Compute> {
    packed: &'a PackedCenters<T>,
    /// The number of the first packed row.
    first: u64,
    /// The reach of each packed row.
    limits: Limits<T>,
}

/// Compares rows with packed rows. `lists` are the lists of the rows, `others` those of the packed rows.
fn compare<T: Compute>(
    data: &dyn DataSource<T>,
    rows: Range<u64>,
    block: &Block<'_, T>,
    m: usize,
    lists: &mut [Neighbor],
    others: &mut [Neighbor],
    cx: &Executor,
) -> Result<()> {
    let (first, start) = (rows.start, block.first as u32);
    // The reach of the packed rows at the start of the pass.
    let furthest: Vec<Neighbor> = others.chunks_exact(m).map(|list| list[m - 1]).collect();
    let absorb = |chunk: Chunk<'_, T>,
                  mine: Wide<'_, Neighbor>,
                  part: &mut Offers<'_>,
                  (reaches, buffers): &mut (Vec<f64>, Near<T>)| {
        reaches.clear();
        reaches.extend(mine.values.chunks_exact(m).map(|list| reach(list, start)));
        let from = (first + chunk.first_row) as u32;
        near(chunk.rows, block.packed, reaches, &block.limits, buffers, |i, j, sq_dist| {
            let (row, other) = (from + i as u32, start + j as u32);
            let list = &mut mine.values[i * m..(i + 1) * m];
            if row != other {
                if furthest.get(j).is_some_and(|&furthest| is_before((sq_dist, row), furthest)) {
                    part.waiting.push((j as u32, (sq_dist, row)));
                }
                offer(list, sq_dist, other);
            }
            // Later rows have higher numbers.
            reach(list, other + 1)
        });
        Ok(())
    };
    let rows = RowRange::new::<T>(data, rows)?;
    let state = Wide { values: lists, width: m };
    let mut total = Offers { lists: others, waiting: Vec::new() };
    let empty = (|| Offers { lists: &mut [], waiting: Vec::new() }, Default::default);
    sweep(&rows, cx, GRAPH_TILE_ROWS, state, &mut total, empty, absorb, |total, part| total.take(part, m))
}

/// The `m` nearest rows of `data` for each of `rows`: their indices and squared distances, `m` of each per
/// row.
///
/// # Errors
/// Same as [`neighbors`].
pub(crate) fn nearest_rows<T: Compute>(
    rows: &dyn DataSource<T>,
    data: &dyn DataSource<T>,
    m: usize,
    cx: &Executor,
) -> Result<(Vec<u32>, Vec<f64>)> {
    let n = count_rows(data)?;
    let frame = frame(data, Some(rows), cx)?;
    let mut lists = NeighborLists::new(count_rows(rows)?, m)?;
    let part = graph_block_rows::<T>(n as usize, data.dim()) as u64;
    for start in (0..n).step_by(part as usize) {
        let picked: Vec<u64> = (start..n.min(start + part)).collect();
        let packed = packed(data, &picked, &frame, rows)?;
        let unreachable = packed.limits(picked.iter().map(|_| -1.0));
        let absorb = |chunk: Chunk<'_, T>,
                      mine: Wide<'_, Neighbor>,
                      (): &mut (),
                      (reaches, buffers): &mut (Vec<f64>, Near<T>)| {
            reaches.clear();
            reaches.extend(mine.values.chunks_exact(m).map(|list| reach(list, start as u32)));
            near(chunk.rows, &packed, reaches, &unreachable, buffers, |i, j, sq_dist| {
                let (list, other) = (&mut mine.values[i * m..(i + 1) * m], start as u32 + j as u32);
                offer(list, sq_dist, other);
                reach(list, other + 1)
            });
            Ok(())
        };
        let state = Wide { values: &mut lists.places[..], width: m };
        sweep(rows, cx, GRAPH_TILE_ROWS, state, &mut (), (|| (), Default::default), absorb, |(), ()| ())?;
    }
    let (sq_dists, found) = lists.places.into_iter().unzip();
    Ok((found, sq_dists))
}

/// The nearest rows of a few of the rows.
///
/// # Errors
/// Same as [`neighbors`].
pub(super) fn nearest_of<T: Compute>(
    data: &dyn DataSource<T>,
    picked: &[u64],
    m: usize,
    frame: &Frame<T>,
    cx: &Executor,
) -> Result<Vec<Neighbor>> {
    let n = count_rows(data)?;
    let mut lists = NeighborLists::new(picked.len() as u64, m)?;
    let packed = packed(data, picked, frame, data)?;
    let mut first = 0;
    while first < n {
        let last = n.min(first + GRAPH_TILE_ROWS as u64 + first);
        let limits = packed.limits(lists.places.chunks_exact(m).map(|list| reach(list, first as u32)));
        let furthest: Vec<Neighbor> = lists.places.chunks_exact(m).map(|list| list[m - 1]).collect();
        let absorb = |chunk: Chunk<'_, T>,
                      (): (),
                      part: &mut Offers<'_>,
                      (nothing, buffers): &mut (Vec<f64>, Near<T>)| {
            nothing.clear();
            nothing.resize(chunk.rows.rows(), -1.0);
            let from = first + chunk.first_row;
            near(chunk.rows, &packed, nothing, &limits, buffers, |i, j, sq_dist| {
                let row = from + i as u64;
                if row != picked[j] && is_before((sq_dist, row as u32), furthest[j]) {
                    part.waiting.push((j as u32, (sq_dist, row as u32)));
                }
                -1.0
            });
            Ok(())
        };
        let rows = RowRange::new::<T>(data, first..last)?;
        let mut total = Offers { lists: &mut lists.places, waiting: Vec::new() };
        let empty = (|| Offers { lists: &mut [], waiting: Vec::new() }, Default::default);
        sweep(&rows, cx, GRAPH_TILE_ROWS, (), &mut total, empty, absorb, |total, part| total.take(part, m))?;
        first = last;
    }
    Ok(lists.places)
}
