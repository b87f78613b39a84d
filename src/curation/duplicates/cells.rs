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
use crate::data::{DataSource, copy, count_rows, row_bytes, row_values};
use crate::error::Result;
use crate::fit::{Element, Metric};
use crate::hierarchical::HierarchicalKMeans;
use crate::kernel::near::{Near, near};
use crate::kernel::{self, Frame, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, Groups, TILE_ROWS, for_all_rows, sweep};
use crate::rng::{Purpose, Rng};
use crate::rows::Rows;
use crate::seeding::{draw, partition};
use crate::tuning::{CELL_SAMPLE_ROWS, CELL_SWEEPS, GRAPH_TILE_ROWS};

/// Centers from which a tree seeds the cells of a search for duplicates. With 4,000 centers of SIFT descriptors, greedy
/// k-means++ takes five times as long as the sweeps that follow it, a tree a seventh, and k-means ends within 0.05%
/// (`hierarchical.py`, init).
const TREE_CENTERS: usize = 4000;

/// The first number of cells for finding duplicates among `n` rows, which doubles as long as that saves work. A few
/// thousand rows are compared in one cell. If only `n_probes` cells are searched, more cells save nothing. Rows in
/// thousands of tight groups need more than the first number.
fn duplicate_cells(n: u64, n_probes: Option<usize>) -> usize {
    match n_probes {
        _ if n <= 4096 => 1,
        None => ((n as f64).sqrt() / 2.0) as usize,
        Some(probes) => ((n as f64 * probes as f64).sqrt() as usize).min(n as usize / 2),
    }
}

/// Rows from which the work of a search for duplicates, and the recall of an approximate one, are estimated.
const DUPLICATE_SAMPLE: usize = 1024;

/// Rows in the cells of their nearest centers.
#[derive(Debug)]
pub(super) struct Cells<T: Element> {
    packed: PackedCenters<T>,
    pub(super) labels: Vec<u32>,
    /// Squared distances of rows to the centers of their cells.
    pub(super) sq_dists: Vec<f64>,
    pub(super) groups: Groups,
    /// Pairs of rows up to this squared distance are duplicates.
    pub(super) reach: f64,
    /// The nearest cells of every row, its own first, if only these are searched.
    probes: Option<(usize, Vec<u32>)>,
    /// Relative error of squared distances.
    rounding: f64,
}

/// Cells whose packed centers rows are compared with.
struct Targets<T: Element> {
    first: u32,
    packed: PackedCenters<T>,
}

impl<T: Element> Cells<T> {
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
        let (labels, sq_dists, probes) = if let Some(m) = n_probes.filter(|&m| m > 1) {
            let m = m.min(k);
            let (found, sq_dists) = nearest(centers, m, Metric::Euclidean, data, cx)?;
            let own = found.iter().step_by(m).copied().collect();
            (own, sq_dists.into_iter().step_by(m).collect(), Some((m, found)))
        } else {
            let fill =
                |chunk: &Chunk<'_, T>, labels: &mut [u32], sq_dists: &mut [f64], scratch: &mut Scratch<T>| {
                    kernel::nearest(chunk.rows, &packed, labels, scratch);
                    kernel::sq_dists(chunk.rows, labels, &packed, sq_dists);
                    Ok(())
                };
            let (labels, sq_dists) =
                for_all_rows("cells of rows", data, cx, (TILE_ROWS, 1), Scratch::default, fill)?;
            let probes = n_probes.map(|_| (1, labels.clone()));
            (labels, sq_dists, probes)
        };
        Ok(Self {
            groups: Groups::new(&labels, k),
            rounding: (dim as f64 + 64.0) * f64::EPSILON,
            packed,
            labels,
            sq_dists,
            reach,
            probes,
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
    pub(super) fn are_visited(&self, rows: Rows<'_, T>, i: usize, row: u32, j: u32) -> bool {
        let own = self.labels[row as usize];
        if own == j {
            return false;
        }
        if let Some((m, probes)) = &self.probes {
            return probes[row as usize * m..][..*m].contains(&j);
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
    fn for_each_visit(
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
            if self.are_visited(rows, i, number(i), cell) {
                f(i, cell);
            }
            within[i]
        });
        *reaches = within;
    }

    /// Packs the centers of some cells, to be searched by the rows of `data`.
    fn framed(&self, cells: Range<usize>, frame: &Frame<T>, data: &dyn DataSource<T>) -> Targets<T> {
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
        if let Some((m, probes)) = &self.probes {
            for (row, of_row) in (0..).zip(probes.chunks_exact(*m)) {
                let here = of_row[1..].iter().filter(|&&j| targets.contains(&(j as usize)));
                visits.extend(here.map(|&j| (j, row)));
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

    /// The work of a search among `n` rows with these centers, as expected from these cells of a sample of the rows to
    /// which the centers were not fitted.
    fn work(&self, n: u64, sample: &dyn DataSource<T>, frame: &Frame<T>) -> Result<Work> {
        let scale = n as f64 / self.labels.len() as f64;
        let size = |cell: usize| scale * self.groups.len(cell) as f64;
        let others = |cell: usize| scale * self.groups.len(cell).saturating_sub(1) as f64;
        let own: f64 = (0..self.len()).map(|cell| size(cell) * others(cell) / 2.0).sum();
        // The rows of a sample are in the order of their numbers: these are spread evenly.
        let count = DUPLICATE_SAMPLE.min(self.labels.len());
        let rows: Vec<u64> = (0..count).map(|i| (i * self.labels.len() / count) as u64).collect();
        let (mut visits, mut pairs) = (0.0, 0.0);
        let mut visit = |cell: u32| {
            visits += 1.0;
            pairs += size(cell as usize);
        };
        let number = |i: usize| rows[i] as u32;
        if let Some((m, probes)) = &self.probes {
            for &row in &rows {
                probes[row as usize * m + 1..][..m - 1].iter().copied().for_each(&mut visit);
            }
        } else if self.len() > 1 {
            let values = copy(sample, &rows)?;
            let targets = self.framed(0..self.len(), frame, sample);
            self.for_each_visit(values.rows(), number, &targets, &mut Default::default(), |_, j| visit(j));
        }
        let each = n as f64 / count as f64;
        Ok(Work {
            rows: n as f64,
            cells: self.len() as f64,
            visits: visits * each,
            pairs: own + pairs * each,
        })
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
        let picked = sample(count_rows(data)?, DUPLICATE_SAMPLE, seed, 2);
        let packed = crate::graph::packed(data, &picked, frame, data)?;
        let limits = packed.limits(picked.iter().map(|_| self.reach));
        let visits = |row: u32, cell: u32| {
            self.probes.as_ref().is_none_or(|(m, probes)| probes[row as usize * m..][..*m].contains(&cell))
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

/// Some rows in ascending order; the same rows for the same seed.
fn sample(n: u64, most: usize, seed: u64, step: u64) -> Vec<u64> {
    let rng = &mut Rng::keyed(seed, Purpose::Seeding, step);
    let mut rows = if (most as u64) < n { draw(n, None, most, rng) } else { (0..n).collect() };
    rows.sort_unstable();
    rows
}

/// What a search has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    rows: f64,
    cells: f64,
    /// Visits of rows to cells.
    pub(super) visits: f64,
    /// Compared pairs of rows.
    pub(super) pairs: f64,
}

impl Work {
    /// The work in distances.
    pub(super) fn distances(self) -> f64 {
        self.searches() + self.pairs + VISIT_DISTANCES * self.visits
    }

    /// The part of the work that finds the cells of rows, and their visits.
    fn searches(self) -> f64 {
        2.0 * self.rows * self.cells
    }
}

/// The time of a visit, to read a row and pack it, in distances.
const VISIT_DISTANCES: f64 = 100.0;

/// How cells are chosen.
pub(super) struct Choice {
    /// Number of cells, if it is given.
    pub(super) n_clusters: Option<usize>,
    pub(super) n_probes: Option<usize>,
    pub(super) reach: f64,
    pub(super) seed: u64,
    /// Upper limit of the bytes of the rows that cells are fitted to.
    pub(super) memory: u64,
}

impl Choice {
    /// The centers of the cells, and the expected work. If their number is not given, it doubles as long as that
    /// saves work.
    pub(super) fn centers<T: Element>(
        &self,
        data: &dyn DataSource<T>,
        frame: &Frame<T>,
        cx: &Executor,
    ) -> Result<(Vec<T>, Work)> {
        let _phase = cx.phase("cells", 0);
        let n = count_rows(data)?;
        if let Some(k) = self.n_clusters {
            return self.fit(data, k.min(n as usize), frame, cx);
        }
        let mut best = self.fit(data, duplicate_cells(n, self.n_probes), frame, cx)?;
        loop {
            let k = best.1.cells as usize;
            let more = Work { cells: 2.0 * best.1.cells, visits: 0.0, pairs: 0.0, ..best.1 };
            // The same cells hold fewer rows each, but a row searches all centers.
            if k == 1 || self.n_probes.is_some() || more.searches() > 0.8 * best.1.distances() {
                break;
            }
            let next = self.fit(data, 2 * k, frame, cx)?;
            if next.1.distances() > 0.95 * best.1.distances() {
                break;
            }
            best = next;
        }
        let all = n as f64 * (n as f64 - 1.0) / 2.0;
        if self.n_probes.is_none() && best.1.distances() > all {
            self.fit(data, 1, frame, cx)
        } else {
            Ok(best)
        }
    }

    /// The centers of `k` cells, by k-means on a sample of the rows, and the expected work.
    fn fit<T: Element>(
        &self,
        data: &dyn DataSource<T>,
        k: usize,
        frame: &Frame<T>,
        cx: &Executor,
    ) -> Result<(Vec<T>, Work)> {
        let n = count_rows(data)?;
        let room = (self.memory / 2 / row_bytes(data) as u64) as usize;
        let most = (CELL_SAMPLE_ROWS * k).max(DUPLICATE_SAMPLE).min(room).max(k);
        let rows = copy(data, &sample(n, most, self.seed, 0))?;
        let centers = if k < TREE_CENTERS {
            let rng = &mut Rng::keyed(self.seed, Purpose::Node, 0);
            partition::<T>(&rows, k, false, CELL_SWEEPS, rng, cx)?.0
        } else {
            let params =
                HierarchicalKMeans::params(k).rng_seed(self.seed).compute_labels(false).max_iter(CELL_SWEEPS);
            let source = T::own(&rows);
            let mut run = params.start(&source)?;
            while run.advance_on(&source, cx)?.is_some() {}
            run.centers()
        };
        let others =
            copy(data, &sample(n, (CELL_SAMPLE_ROWS / 2 * k).min(room).max(DUPLICATE_SAMPLE), self.seed, 1))?;
        let cells = Cells::new(&others, &centers, self.reach, self.n_probes, cx)?;
        let work = cells.work(n, &others, frame)?;
        Ok((centers, work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::graph::frame;

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
