//! Cells of rows, and which other cells a row must visit.
//!
//! # Which cells a row visits
//! Let `x` be a row of cell `i` and `c` the centers. Its signed distance to the bisector of the centers `i` and `j` is
//!
//! `f(x) = (|x - c_j|^2 - |x - c_i|^2) / (2 |c_i - c_j|)`,
//!
//! an affine function with a gradient of length 1. For a row `y` of cell `j`, the same distance seen from its own cell
//! is `-f(y)`, and the two add up to `f(x) - f(y) <= |x - y|`. Of two rows within `t`, at least one is therefore within
//! `t / 2` of the bisector, measured from its own cell. So all pairs are found if every row visits the cells whose
//! bisector with its own is within `t / 2`. This needs half of the distance that a search from one side needs, and
//! hence far fewer visits. It holds for any labels.
//!
//! `f(x) <= t / 2` implies `|x - c_j| - |x - c_i| <= t`, because `|c_i - c_j| <= |x - c_i| + |x - c_j|`. So a search
//! within `|x - c_i| + t` finds the candidates. All bounds are rounded outward.

use std::ops::Range;

use super::identical::Distinct;
use crate::centers::nearest;
use crate::data::{DataSource, count_rows, row_values};
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::near::{Near, near};
use crate::kernel::{self, Compute, Frame, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, Groups, sweep};
use crate::rows::Rows;
use crate::seeding::sample_rows;
use crate::tuning::GRAPH_TILE_ROWS;

/// Rows from which the work of a search for duplicates, and the recall of an approximate one, are estimated.
pub(super) const DUPLICATE_SAMPLE: usize = 1024;

/// Rows in the cells of their nearest centers.
#[derive(Debug)]
pub(super) struct Cells<T: Compute> {
    packed: PackedCenters<T>,
    pub(super) labels: Vec<u32>,
    /// Squared distances of rows to the centers of their cells.
    pub(super) sq_dists: Vec<f64>,
    pub(super) groups: Groups,
    /// Pairs of rows up to this squared distance are duplicates.
    pub(super) reach: f64,
    /// If rows visit only their nearest cells, these.
    pub(super) probes: Option<Probes>,
    /// Relative error of squared distances.
    rounding: f64,
}

/// The nearest cells of every row, its own first.
#[derive(Debug)]
pub(super) struct Probes {
    per_row: usize,
    cells: Vec<u32>,
}

impl Probes {
    /// The cells that a row visits.
    pub(super) fn others(&self, row: usize) -> &[u32] {
        &self.cells[row * self.per_row..][1..self.per_row]
    }
}

/// Cells whose packed centers rows are compared with.
pub(super) struct Targets<T: Compute> {
    first: u32,
    packed: PackedCenters<T>,
}

impl<T: Compute> Cells<T> {
    /// Divides the rows into the cells of `centers`. If `n_probes` is given, rows visit only their nearest cells.
    pub(super) fn new(
        data: &dyn DataSource<T>,
        centers: &[T],
        reach: f64,
        n_probes: Option<usize>,
        cx: &Executor,
    ) -> Result<Self> {
        let dim = data.dim();
        let k = centers.len() / dim;
        let packed = PackedCenters::for_rows(MatRef::new(centers, dim), data.most_values().is_some());
        let per_row = n_probes.unwrap_or(1).clamp(1, k);
        let (cells, sq_dists) = nearest(centers, per_row, Metric::Euclidean, data, cx)?;
        let labels: Vec<u32> = cells.iter().step_by(per_row).copied().collect();
        Ok(Self {
            groups: Groups::new(&labels, k),
            rounding: (dim as f64 + 64.0) * f64::EPSILON,
            packed,
            labels,
            sq_dists: sq_dists.into_iter().step_by(per_row).collect(),
            reach,
            probes: n_probes.map(|_| Probes { per_row, cells }),
        })
    }

    /// Number of cells.
    pub(super) fn len(&self) -> usize {
        self.groups.count()
    }

    pub(super) fn centers(&self) -> MatRef<'_, T> {
        self.packed.centers()
    }

    fn center(&self, j: u32) -> &[T] {
        self.packed.centers().row(j as usize)
    }

    /// Whether a row visits cell `j`: row `i` of `rows`, whose number is `row`.
    pub(super) fn is_visited(&self, rows: Rows<'_, T>, i: usize, row: u32, j: u32) -> bool {
        let own = self.labels[row as usize];
        if own == j {
            return false;
        }
        if let Some(probes) = &self.probes {
            return probes.others(row as usize).contains(&j);
        }
        let to_own = self.sq_dists[row as usize];
        let to_other = self.packed.sq_dist(rows, i, j as usize);
        let apart = kernel::sq_dist(self.center(own), self.center(j));
        // At the border, the width is at most `to_other`, so that its rounding is included.
        to_other - to_own <= self.reach.sqrt() * apart.sqrt() + self.rounding * (to_other + to_own)
    }

    /// The squared distance within which a row finds the centers of the cells that it visits.
    fn search_reach(&self, row: u32) -> f64 {
        let length = self.sq_dists[row as usize].sqrt() + self.reach.sqrt();
        length * length * (1.0 + 8.0 * self.rounding)
    }

    /// Calls `f(row of the chunk, cell)` for every visit of some rows to the cells `targets`.
    pub(super) fn for_each_visit(
        &self,
        rows: Rows<'_, T>,
        number: impl Fn(usize) -> u32,
        Targets { first, packed }: &Targets<T>,
        (reaches, buffers): &mut (Vec<f64>, Near<T>),
        mut f: impl FnMut(usize, u32),
    ) {
        reaches.clear();
        reaches.extend((0..rows.rows()).map(|i| self.search_reach(number(i))));
        let nothing = packed.limits((0..packed.n_centers()).map(|_| -1.0));
        let within = std::mem::take(reaches);
        near(rows, packed, &within, &nothing, buffers, |i, j, _| {
            let cell = first + j as u32;
            if self.is_visited(rows, i, number(i), cell) {
                f(i, cell);
            }
            within[i]
        });
        *reaches = within;
    }

    /// Packs the centers of some cells, to be searched by the rows of `data`.
    pub(super) fn framed(
        &self,
        cells: Range<usize>,
        frame: &Frame<T>,
        data: &dyn DataSource<T>,
    ) -> Targets<T> {
        let dim = data.dim();
        let centers = MatRef::new(&self.centers().data()[cells.start * dim..cells.end * dim], dim);
        let (most, sparse) = (row_values(data).max(dim), data.most_values().is_some());
        Targets { first: cells.start as u32, packed: PackedCenters::framed(centers, frame, most, sparse) }
    }

    /// The visits to the cells `targets`, sorted: `(cell, row)`.
    pub(super) fn visits(
        &self,
        data: &dyn DataSource<T>,
        targets: Range<usize>,
        frame: &Frame<T>,
        cx: &Executor,
    ) -> Result<Vec<(u32, u32)>> {
        let mut visits = Vec::new();
        if let Some(probes) = &self.probes {
            for row in 0..self.labels.len() {
                let here = probes.others(row).iter().filter(|&&j| targets.contains(&(j as usize)));
                visits.extend(here.map(|&j| (j, row as u32)));
            }
        } else if self.len() > 1 {
            let _phase = cx.phase("visits", 0);
            let targets = self.framed(targets, frame, data);
            let absorb = |chunk: Chunk<'_, T>, (): (), part: &mut Vec<_>, buffers: &mut _| {
                let number = |i: usize| chunk.first_row as u32 + i as u32;
                self.for_each_visit(chunk.rows, number, &targets, buffers, |i, cell| {
                    part.push((cell, number(i)));
                });
                Ok(())
            };
            let merge = |all: &mut Vec<_>, part: &mut Vec<_>| all.append(part);
            sweep(data, cx, GRAPH_TILE_ROWS, (), &mut visits, (Vec::new, Default::default), absorb, merge)?;
        }
        visits.sort_unstable();
        Ok(visits)
    }

    /// The share of the pairs of a sample of rows whose cells are compared. 1 if the sample has no pairs.
    pub(super) fn recall(
        &self,
        data: &dyn DataSource<T>,
        frame: &Frame<T>,
        distinct: &Distinct,
        seed: u64,
        cx: &Executor,
    ) -> Result<f64> {
        let picked = sample_rows(count_rows(data)?, DUPLICATE_SAMPLE, seed, 2);
        let packed = crate::graph::packed(data, &picked, frame, data)?;
        let limits = packed.limits(picked.iter().map(|_| self.reach));
        let visits = |row: u32, cell: u32| {
            let others = |probes: &Probes| probes.others(row as usize).contains(&cell);
            self.labels[row as usize] == cell || self.probes.as_ref().is_none_or(others)
        };
        let absorb = |chunk: Chunk<'_, T>,
                      (): (),
                      (all, found): &mut (u64, u64),
                      (nothing, buffers): &mut (Vec<f64>, Near<T>)| {
            nothing.clear();
            nothing.resize(chunk.rows.rows(), -1.0);
            near(chunk.rows, &packed, nothing, &limits, buffers, |i, j, sq_dist| {
                let (row, other) = (chunk.first_row as u32 + i as u32, picked[j] as u32);
                if row != other && sq_dist <= self.reach {
                    let (mine, theirs) = (self.labels[row as usize], self.labels[other as usize]);
                    let pairs = distinct.count(row as usize) * distinct.count(other as usize);
                    *all += pairs;
                    *found += if visits(row, theirs) || visits(other, mine) { pairs } else { 0 };
                }
                -1.0
            });
            Ok(())
        };
        let mut total = (0, 0);
        let make = (|| (0, 0), Default::default);
        sweep(data, cx, GRAPH_TILE_ROWS, (), &mut total, make, absorb, |total, part| {
            let (all, found) = std::mem::take(part);
            *total = (total.0 + all, total.1 + found);
        })?;
        Ok(if total.0 == 0 { 1.0 } else { total.1 as f64 / total.0 as f64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::graph::frame;
    use crate::rng::{Purpose, Rng};

    /// Two cells, and a row of each.
    fn cells(centers: [f64; 2], rows: [f64; 2], reach: f64) -> Cells<f64> {
        Cells {
            packed: PackedCenters::new(MatRef::new(&centers, 1)),
            labels: vec![0, 1],
            sq_dists: (0..2).map(|i| (rows[i] - centers[i]).powi(2)).collect(),
            groups: Groups::new(&[0, 1], 2),
            reach,
            probes: None,
            rounding: (1.0 + 64.0) * f64::EPSILON,
        }
    }

    #[test]
    fn of_two_rows_at_the_same_distance_from_the_border_one_visits_the_other() {
        let rng = &mut Rng::keyed(0, Purpose::Seeding, 0);
        let cx = Executor::new(Some(1)).unwrap();
        for _ in 0..2000 {
            let mut draw = || rng.below(1 << 40) as f64 / 1e9;
            let (middle, half, away) = (draw() - 500.0, draw() / 1e3, draw());
            let rows = [middle - half, middle + half];
            let cells =
                cells([middle - half - away, middle + half + away], rows, (rows[0] - rows[1]).powi(2));
            let data = Dense::new(&rows, 1).unwrap();
            let frame = frame::<f64>(&data, None, &cx).unwrap();
            assert!(!cells.visits(&data, 0..2, &frame, &cx).unwrap().is_empty(), "{rows:?}");
        }
    }

    #[test]
    fn the_search_reaches_every_cell_that_is_visited() {
        let rng = &mut Rng::keyed(1, Purpose::Seeding, 0);
        for _ in 0..1000 {
            let (own, t) = (rng.below(1 << 40), rng.below(1 << 40));
            let square = |x: u64| u128::from(x) * u128::from(x);
            let cells = cells([0.0, 0.0], [own as f64, 0.0], square(t) as f64);
            assert!(cells.search_reach(0) as u128 >= square(own + t), "{own} {t}");
        }
    }
}
