//! Repairs limits that the candidates of the rows could not keep: rows of clusters above their upper limit
//! move to the nearest of all clusters with room, those of least regret first.

use super::limits::SizeLimits;
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::parallel::Executor;
use crate::pass::{Chunk, Cut, Unread, sweep};
use crate::rows::RowBuf;
use crate::tuning::{STRIP_ROWS, tile_rows};

/// Rows of a tile whose distances to all `k` centers are kept until it is their turn.
fn repair_tile_rows(k: usize) -> usize {
    // At most 2 MB.
    ((1 << 18) / k.max(1)).clamp(1, 256)
}

/// An excess below this share of the mean size counts as rounding of weights.
const NEGLIGIBLE: f64 = 1e-9;

/// Maximum number of exchanges for a lower limit. Rows without weights need one.
const ROUNDS: usize = 8;

/// Rows of a chunk that are compared with all centers.
struct ComparedRows<T> {
    numbers: Vec<u32>,
    rows: RowBuf<T>,
    sq_dists: Vec<f64>,
    scratch: Scratch<T>,
}

impl<T: Compute> ComparedRows<T> {
    fn new() -> Self {
        let (numbers, sq_dists) = (Vec::new(), Vec::new());
        Self { numbers, rows: RowBuf::default(), sq_dists, scratch: Scratch::default() }
    }

    /// Reads the rows of the chunk that `wanted` accepts, and calls `f(row, squared distances)` for each.
    fn measure(
        &mut self,
        mut chunk: Unread<'_, T>,
        packed: &PackedCenters<T>,
        wanted: impl Fn(usize) -> bool,
        mut f: impl FnMut(usize, &[f64]),
    ) -> Result<()> {
        let first = chunk.first_row() as usize;
        self.numbers.clear();
        self.numbers.extend(chunk.range().filter(|&row| wanted(row)).map(|row| (row - first) as u32));
        if self.numbers.is_empty() {
            return Ok(());
        }
        let chunk: Chunk<'_, T> = chunk.read_of(&self.numbers)?;
        let k = packed.n_centers();
        for some in self.numbers.chunks(STRIP_ROWS) {
            self.rows.clear(chunk.rows.cols());
            for &row in some {
                self.rows.push(chunk.rows, row as usize);
            }
            self.sq_dists.resize(some.len() * k, 0.0);
            kernel::distances(self.rows.rows(), packed, &mut self.sq_dists, &mut self.scratch);
            for (&row, sq_dists) in some.iter().zip(self.sq_dists.chunks_exact(k)) {
                f(first + row as usize, sq_dists);
            }
        }
        Ok(())
    }
}

/// Moves rows between clusters: from those that give weight to those that take some.
struct Exchange<'a> {
    limits: &'a SizeLimits,
    /// The weight that each cluster may give, and the weight that it may take.
    gives: Vec<f64>,
    takes: Vec<f64>,
    /// The weight that has to move.
    due: f64,
    /// `gives` are upper limits: a cluster keeps a row that weighs more than the rest of its limit.
    at_most: bool,
}

/// Moves rows until all clusters keep the limits, or with weights exceed them by less than the weight of a row.
pub(super) fn repair<T: Compute>(
    labels: &mut [u32],
    limits: &SizeLimits,
    packed: &PackedCenters<T>,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<()> {
    let sizes = |labels: &[u32]| {
        let mut sizes = vec![0.0; packed.n_centers()];
        labels.iter().enumerate().for_each(|(row, &j)| sizes[j as usize] += limits.weights.of(row));
        sizes
    };
    let clip = |value: f64| if value > NEGLIGIBLE * limits.mean { value } else { 0.0 };
    let with =
        |part: &[f64], f: &dyn Fn(f64) -> f64| part.iter().map(|&size| clip(f(size))).collect::<Vec<f64>>();
    let now = sizes(labels);
    let gives = with(&now, &|size| size - limits.most);
    let due = gives.iter().sum();
    // A cluster gives at most its excess, because other clusters would have to take the rest.
    Exchange { limits, gives, takes: with(&now, &|size| limits.most - size), due, at_most: true }
        .run(labels, packed, data, cx)?;
    let heaviest = limits.weights.heaviest();
    for round in 0..ROUNDS {
        let now = sizes(labels);
        // Weights may miss the limit by one row. In the last rounds only clusters that lack more get rows:
        // otherwise near clusters could get rows in every round, and far clusters none.
        let enough = if round < ROUNDS / 2 { 0.0 } else { heaviest };
        let take = |size: f64| if limits.least - size <= enough { 0.0 } else { limits.least - size };
        let takes = with(&now, &take);
        let due = takes.iter().sum();
        if due <= 0.0 {
            break;
        }
        Exchange { limits, gives: with(&now, &|size| size - limits.least), takes, due, at_most: false }
            .run(labels, packed, data, cx)?;
    }
    Ok(())
}

impl Exchange<'_> {
    fn run<T: Compute>(
        mut self,
        labels: &mut [u32],
        packed: &PackedCenters<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        if self.due > 0.0 {
            let moving = self.chosen(labels, packed, data, cx)?;
            self.place(&moving, labels, packed, data, cx)?;
        }
        Ok(())
    }

    /// The rows of least regret: how much farther than its own the nearest center of a cluster with room is. In
    /// ascending order.
    fn chosen<T: Compute>(
        &mut self,
        labels: &[u32],
        packed: &PackedCenters<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Vec<u64>> {
        let takers: Vec<usize> = (0..self.takes.len()).filter(|&j| self.takes[j] > 0.0).collect();
        let wanted = |row: usize| self.gives[labels[row] as usize] > 0.0 && self.limits.weights.of(row) > 0.0;
        let mut all: Vec<(f64, u64)> = Vec::new();
        let absorb =
            |chunk: Unread<'_, T>, (): (), part: &mut Vec<(f64, u64)>, picked: &mut ComparedRows<T>| {
                picked.measure(chunk, packed, wanted, |row, sq_dists| {
                    let nearest = takers.iter().map(|&j| sq_dists[j]).fold(f64::INFINITY, f64::min);
                    part.push((nearest - sq_dists[labels[row] as usize], row as u64));
                })
            };
        let make = (Vec::new, ComparedRows::new);
        let cut = Cut::from(tile_rows(packed.n_centers()));
        sweep(data, cx, cut, (), &mut all, make, absorb, Vec::append)?;
        all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut chosen, rounding) = (Vec::new(), NEGLIGIBLE * self.limits.mean);
        for (_, row) in all {
            if self.due <= 0.0 {
                break;
            }
            let weight = self.limits.weights.of(row as usize);
            let gives = &mut self.gives[labels[row as usize] as usize];
            let fits = if self.at_most { weight <= *gives + rounding } else { *gives > 0.0 };
            if fits {
                *gives -= weight;
                self.due -= weight;
                chosen.push(row);
            }
        }
        chosen.sort_unstable();
        Ok(chosen)
    }

    /// Moves rows, in ascending order, each to the nearest center of a cluster that still has room, if there is one.
    fn place<T: Compute>(
        &self,
        moving: &[u64],
        labels: &mut [u32],
        packed: &PackedCenters<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        let k = packed.n_centers();
        let wanted = |row: usize| moving.binary_search(&(row as u64)).is_ok();
        let absorb = |chunk: Unread<'_, T>, (): (), part: &mut Placing, picked: &mut ComparedRows<T>| {
            picked.measure(chunk, packed, wanted, |row, sq_dists| {
                part.rows.push(row);
                part.sq_dists.extend_from_slice(sq_dists);
            })
        };
        let merge = |total: &mut Placing, part: &mut Placing| {
            for (&row, sq_dists) in part.rows.iter().zip(part.sq_dists.chunks_exact(k)) {
                // The last row may weigh more than what is missing. It stays where it is.
                if let Some(nearest) = total.nearest(sq_dists) {
                    total.room[nearest] -= self.limits.weights.of(row);
                    total.moved.push((row, nearest as u32));
                }
            }
            part.rows.clear();
            part.sq_dists.clear();
        };
        let mut total = Placing { room: self.takes.clone(), ..Placing::default() };
        let make = (Placing::default, ComparedRows::new);
        sweep(data, cx, repair_tile_rows(k), (), &mut total, make, absorb, merge)?;
        total.moved.iter().for_each(|&(row, j)| labels[row] = j);
        Ok(())
    }
}

/// Rows that wait for their turn, with their squared distances to all centers, and the clusters to which
/// earlier rows moved.
#[derive(Default)]
struct Placing {
    rows: Vec<usize>,
    sq_dists: Vec<f64>,
    room: Vec<f64>,
    moved: Vec<(usize, u32)>,
}

impl Placing {
    /// The nearest center of a cluster with room, the lower index among equals.
    fn nearest(&self, sq_dists: &[f64]) -> Option<usize> {
        let open = (0..self.room.len()).filter(|&j| self.room[j] > 0.0);
        open.min_by(|&a, &b| sq_dists[a].total_cmp(&sq_dists[b]))
    }
}
