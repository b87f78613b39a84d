//! The steps of an epoch. Finds the same labels as a full search at every step, with few distance
//! computations.
//!
//! A row's label is the nearest of the current centers, rounded to the compute type of the rows.
//! Most rows keep the label of the sweep, and their bounds prove it. Steps are drawn one block ahead. The
//! rows whose label the bounds of the sweep do not settle are labeled together, on all threads, with the
//! centers at the start of the block. Then the steps are made one by one. A label holds while the centers
//! have moved less, since the start of the block, than the gap between the row's own center and all others.
//! Otherwise the row is compared with the few centers that have moved far, and only if that does not settle
//! the label, with all centers. A block ends when too many centers have moved far.

mod look;
mod moves;

use std::collections::VecDeque;

use super::draws::{Origin, StepDraws};
use super::moving::Moving;
use super::packing::Packing;
use crate::centers::LabelsRef;
use crate::error::Result;
use crate::kernel::bounded::{Gathered, Nearest, nearest_single};
use crate::kernel::{self, Compute, PackedCenters, Point, Scratch, is_exact};
use crate::kmeans::bounds::{PanelBounds, lost_share, rounding_of};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rows::{RowBuf, Rows};
use moves::Moves;

/// Rows that a worker labels together for steps of variance-reduced k-means: enough to fill micro tiles.
const STEPS_TOGETHER: usize = 64;

/// Lower limit of the steps that are drawn together: slightly more than one micro tile.
const STEPS_LEAST: usize = 16;

/// Upper limit of the steps that are drawn together: distances of their rows become outdated with every
/// center that moves.
const STEPS_AHEAD: usize = 1024;

/// Values of centers and rows that steps read or change between two checks for an interrupt: a few milliseconds.
pub(super) const STEPS_CHECKED: u64 = 1 << 22;

/// Upper limit of the bytes of copied rows of steps that are drawn together.
const STEPS_AHEAD_BYTES: usize = 16 << 20;

/// Number of centers, of `k` in panels of `panel`, that may move far before distances are computed again. A
/// row in doubt is compared with all of them.
fn few_centers(k: usize, panel: usize) -> usize {
    if k < 2 * panel { 0 } else { panel * (k / (4 * panel)).clamp(1, 4) }
}

/// The starting point of an epoch's steps.
pub(super) struct EpochStart<'a, T: Compute> {
    /// The labels of the sweep, its bounds, and its centers.
    pub(super) labels: LabelsRef<'a>,
    pub(super) bounds: Option<&'a PanelBounds>,
    pub(super) swept: MatRef<'a, T>,
    /// The means of the rows by these labels, and the means rounded to the compute type.
    pub(super) means: Vec<f64>,
    pub(super) rounded: MatRef<'a, T>,
    pub(super) rate: f64,
    /// The batch gradient, if the variant uses one.
    pub(super) gradient: Option<Vec<f64>>,
    /// Root mean squared distance of a row to its center.
    pub(super) spread: f64,
    /// Upper limit on the values that a sparse row stores (`None` for dense rows), and the bytes of a row.
    pub(super) values: Option<usize>,
    pub(super) row_bytes: usize,
    /// Compute all distances at every step.
    pub(super) search_always: bool,
}

/// The result of the steps.
pub(super) struct EpochEnd<T> {
    pub(super) centers: Vec<T>,
    pub(super) distances: u64,
}

/// A drawn row, and its bounds as of the start of the block.
#[derive(Clone, Copy)]
struct DrawnRow {
    row: u64,
    label: u32,
    /// Upper bound on the distance to the center of `label`, and lower bound on the distances to all others.
    upper: f64,
    others: f64,
    /// Chunk and index of the copied row.
    at: Option<(u32, u32)>,
}

impl DrawnRow {
    /// Whether the row is expected to keep its label while centers move by less than `enough` in all.
    fn is_settled(&self, enough: f64) -> bool {
        self.others - self.upper > enough
    }
}

/// Covers the rounding of a few operations on bounds.
const MORE: f64 = 1.0 + 1e-9;

/// The largest norm of a center may grow by this share within a block; beyond that, the limit on the rounding of its
/// position is not trusted.
const GROWTH: f64 = 0.5;

/// A center has moved far if it has moved by `NEAR` times the typical distance of a row to its center. Beyond
/// `FAR` times that distance, searching rows again is cheaper.
const NEAR: f64 = 0.002;
const FAR: f64 = 0.03;

pub(super) struct Inner<'a, T: Compute> {
    cx: &'a Executor,
    start: EpochStart<'a, T>,
    moving: Moving,
    /// Factors to the lengths compared here: from lengths in the data, and from packed lengths.
    unit: f64,
    of_packed: f64,
    /// Distance from each mean to its center in the sweep.
    to_means: Vec<f64>,
    /// The largest norm of a mean, about the shift of packed centers and about the origin.
    norm: f64,
    longest: f64,
    /// Upper limits on rounding: of tile values and of squared distances, relative to squared norms. Then, in the
    /// current block, of a center's position and of a squared distance.
    gamma: f64,
    lost_share: f64,
    rounding: f64,
    lost: f64,
    /// Lengths of the gradients, and the largest of them.
    slopes: Vec<f64>,
    steepest: f64,
    all: Packing<'a, T>,
    /// The centers packed in the order of the bounds.
    panels: Option<Packing<'a, T>>,
    /// The moves of the centers since the start of the block.
    moves: Moves<T>,
    /// Expected length of the centers' moves within a block.
    ahead: f64,
    /// Drawn rows that have not been processed.
    pending: VecDeque<u64>,
    block: usize,
    drawn: Vec<DrawnRow>,
    copied: Vec<RowBuf<T>>,
    /// The row of the current step, if it was fetched.
    row: RowBuf<T>,
    x: Vec<f64>,
    center: Vec<T>,
    found: Nearest<T>,
    gathered: Gathered<T>,
    scratch: Scratch<T>,
    distances: u64,
    /// Values processed since the last check for an interrupt.
    work: u64,
}

impl<'a, T: Compute> Inner<'a, T> {
    pub(super) fn new(mut start: EpochStart<'a, T>, cx: &'a Executor) -> Self {
        let (k, dim) = (start.rounded.rows(), start.rounded.cols());
        let all = PackedCenters::in_panels(start.rounded, start.values.is_some());
        let panels = start.bounds.and_then(|bounds| bounds.pack_apart(start.rounded, all.is_sparse()));
        if panels.is_none() || start.search_always {
            start.bounds = None;
        }
        let unit = start.bounds.map_or(all.scale(), PanelBounds::unit);
        let of_packed = unit / all.scale();
        let length = |values: &mut dyn Iterator<Item = f64>| {
            values.map(|v| (v * unit).powi(2)).sum::<f64>().sqrt() * MORE
        };
        let rows = || start.means.chunks_exact(dim);
        let to_means = rows()
            .zip(start.swept.iter())
            .map(|(mean, center)| length(&mut mean.iter().zip(center).map(|(mean, c)| mean - c.to_f64())));
        let to_means = to_means.collect();
        let longest = rows().map(|mean| length(&mut mean.iter().copied())).fold(0.0, f64::max);
        let slopes: Vec<f64> = start.gradient.as_ref().map_or_else(Vec::new, |gradient| {
            gradient.chunks_exact(dim).map(|g| length(&mut g.iter().copied())).collect()
        });
        let room = few_centers(k, PackedCenters::<T>::panel_centers());
        let norm = all.largest_norm() * of_packed;
        let gamma = rounding_of(&all, start.values.unwrap_or(dim));
        Self {
            cx,
            moving: Moving::new(std::mem::take(&mut start.means), dim, unit),
            unit,
            of_packed,
            to_means,
            norm,
            gamma,
            longest,
            lost_share: lost_share(&all),
            rounding: 0.0,
            lost: 0.0,
            steepest: slopes.iter().copied().fold(0.0, f64::max),
            slopes,
            moves: Moves::new(&all, room, NEAR * start.spread * unit),
            ahead: 2.0 * NEAR * start.spread * unit,
            all: Packing::new(all, &[]),
            panels: start
                .bounds
                .and(panels)
                .map(|packed| Packing::new(packed, start.bounds.map_or(&[][..], PanelBounds::slots))),
            pending: VecDeque::new(),
            block: STEPS_TOGETHER,
            drawn: Vec::new(),
            copied: Vec::new(),
            row: RowBuf::new(dim),
            x: vec![0.0; dim],
            center: vec![T::ZERO; dim],
            found: Nearest::default(),
            gathered: Gathered::default(),
            scratch: Scratch::default(),
            distances: 0,
            work: 0,
            start,
        }
    }

    /// Makes one step for every row that `draws` yields.
    pub(super) fn run(&mut self, draws: &mut StepDraws<'_>, origin: Origin<'_, T>) -> Result<()> {
        while draws.left > 0 || !self.pending.is_empty() {
            self.cx.check()?;
            self.begin(draws);
            if !self.start.search_always {
                self.look(origin)?;
            }
            let mut done = 0;
            while done < self.drawn.len() && !self.moves.over {
                let (drawn, before) = (self.drawn[done], self.distances);
                self.row.clear(self.x.len());
                let label = self.label(&drawn, origin)?;
                self.step(&drawn, label, origin)?;
                done += 1;
                // A search of all centers, or a step of the full gradient, costs as much as thousands of
                // other steps.
                let all = if self.start.gradient.is_some() { self.moving.len() as u64 } else { 0 };
                self.work += (self.distances - before + all + 1) * self.x.len() as u64;
                if self.work >= STEPS_CHECKED {
                    self.cx.check()?;
                    self.work = 0;
                }
            }
            self.drawn[done..].iter().rev().for_each(|drawn| self.pending.push_front(drawn.row));
            let most = (STEPS_AHEAD_BYTES / self.start.row_bytes.max(1)).clamp(STEPS_LEAST, STEPS_AHEAD);
            self.block = if done < self.drawn.len() { done + done / 8 } else { 2 * self.block };
            self.block = self.block.clamp(STEPS_LEAST, most);
            self.ahead = self.moves.farthest.clamp(2.0 * self.moves.near, FAR / NEAR * self.moves.near);
        }
        Ok(())
    }

    /// The centers after the steps.
    pub(super) fn done(&mut self) -> EpochEnd<T> {
        let mut centers = Vec::with_capacity(self.moving.len() * self.x.len());
        for j in 0..self.moving.len() {
            self.moving.write(j, &mut self.center);
            centers.extend_from_slice(&self.center);
        }
        EpochEnd { centers, distances: self.distances }
    }

    /// Draws the rows of a block and resets the record of moves.
    fn begin(&mut self, draws: &mut StepDraws<'_>) {
        self.drawn.clear();
        while self.drawn.len() < self.block {
            let Some(row) = self.pending.pop_front().or_else(|| draws.next()) else { break };
            let label = self.start.labels.get(row as usize);
            let (upper, others) = (f64::INFINITY, f64::NEG_INFINITY);
            self.drawn.push(DrawnRow { row, label, upper, others, at: None });
        }
        self.moves.clear();
        let apart = (0..self.moving.len()).map(|j| self.moving.apart(j)).fold(0.0, f64::max);
        let most = |length: f64| (length + apart) * (1.0 + GROWTH);
        self.rounding = 2.0 * T::EPSILON * most(self.longest);
        self.lost = self.lost_share * most(self.norm).powi(2);
    }

    /// The label of a drawn row.
    fn label(&mut self, drawn: &DrawnRow, origin: Origin<'_, T>) -> Result<u32> {
        if !self.start.search_always {
            let Moves { farthest, common, .. } = self.moves;
            if farthest == 0.0 && common == 0.0 {
                return Ok(drawn.label);
            }
            let known = farthest + common <= GROWTH / 2.0 * self.norm;
            #[cfg(test)]
            if known {
                self.fetch(drawn, origin)?;
                self.assert_bounds(drawn);
            }
            if known && self.others(drawn, farthest) > self.upper(drawn) {
                return Ok(drawn.label);
            }
            self.fetch(drawn, origin)?;
            if known && let Some(label) = self.by_few(drawn) {
                return Ok(label);
            }
        }
        self.fetch(drawn, origin)?;
        let packed = self.all.sync(&self.moving, &mut self.center);
        let buffers = (&mut self.gathered, &mut self.scratch);
        nearest_single(self.row.rows(), packed, &mut self.found, buffers);
        self.distances += packed.n_centers() as u64;
        Ok(self.found.ids[0])
    }

    /// An upper bound on the distance of a drawn row to its center as it is now.
    fn upper(&self, drawn: &DrawnRow) -> f64 {
        (drawn.upper + self.moves.path[drawn.label as usize] + self.moves.common + self.rounding) * MORE
    }

    /// A lower bound on the distances of a drawn row to all other centers whose path is at most `path`.
    fn others(&self, drawn: &DrawnRow, path: f64) -> f64 {
        drawn.others - (path + self.moves.common + self.rounding) * MORE
    }

    /// The label of the current row, if its distances to its own center and to those that moved far settle
    /// it. The paths of the other centers are at most `creep`.
    fn by_few(&mut self, drawn: &DrawnRow) -> Option<u32> {
        let (a, row) = (drawn.label as usize, self.row.rows());
        let others = self.others(drawn, self.moves.creep);
        // The nearest of the few, if it is unique, with bounds on its distance.
        let mut nearest = (None, f64::INFINITY, f64::INFINITY);
        if !self.moves.few.centers.is_empty() {
            let packed = self.moves.few.sync(&self.moving, &mut self.center);
            nearest_single(row, packed, &mut self.found, (&mut self.gathered, &mut self.scratch));
            let place = self.found.ids[0] as usize;
            let sq_dist = distance(row, packed.centers().row(place));
            if !is_exact::<T>(sq_dist) {
                return None;
            }
            let sq_dist = sq_dist * self.unit * self.unit;
            let alone = self.found.best[0] < self.found.next[0];
            self.distances += self.moves.few.centers.len() as u64 + 1;
            nearest = (alone.then(|| self.moves.few.centers[place]), self.least(sq_dist), self.most(sq_dist));
        }
        let (best, least, most) = nearest;
        let mut own_least = f64::INFINITY;
        if !self.moves.few.contains(a) {
            self.moving.write(a, &mut self.center);
            let sq_dist = distance(row, &self.center);
            if !is_exact::<T>(sq_dist) {
                return None;
            }
            let sq_dist = sq_dist * self.unit * self.unit;
            self.distances += 1;
            own_least = self.least(sq_dist);
            if others.min(least) > self.most(sq_dist) {
                return Some(drawn.label);
            }
        }
        best.filter(|_| others.min(own_least) > most)
    }

    /// Checks the bounds of the current row against its distances.
    #[cfg(test)]
    fn assert_bounds(&mut self, drawn: &DrawnRow) {
        let (upper, least) = (self.upper(drawn), self.others(drawn, self.moves.farthest));
        let least_of_many = self.others(drawn, self.moves.creep);
        self.unpack_row();
        for j in 0..self.moving.len() {
            self.moving.write(j, &mut self.center);
            let sq_dist = self.x.iter().zip(&self.center).map(|(x, c)| (x - c.to_f64()).powi(2)).sum::<f64>();
            let truth = sq_dist.sqrt() * self.unit;
            if j == drawn.label as usize {
                assert!(truth <= upper, "upper bound {upper} of row {}, at {truth}", drawn.row);
            } else {
                let least = if self.moves.few.contains(j) { least } else { least_of_many };
                assert!(
                    least <= truth,
                    "lower bound {least} for center {j} of row {}, at {truth}",
                    drawn.row
                );
            }
        }
    }

    /// Bounds on a distance, given its square.
    fn least(&self, sq_dist: f64) -> f64 {
        (sq_dist - self.lost).max(0.0).sqrt() / MORE
    }

    fn most(&self, sq_dist: f64) -> f64 {
        (sq_dist + self.lost).sqrt() * MORE
    }

    /// Copies the row of the current step unless that is done.
    fn fetch(&mut self, drawn: &DrawnRow, origin: Origin<'_, T>) -> Result<()> {
        if !self.row.is_empty() {
            return Ok(());
        }
        if let Some((chunk, i)) = drawn.at {
            self.row.push(self.copied[chunk as usize].rows(), i as usize);
            return Ok(());
        }
        origin.copy(&[drawn.row], self.x.len(), &mut self.row)
    }

    /// Copies the fetched row into `x`.
    fn unpack_row(&mut self) {
        match self.row.rows() {
            Rows::Dense(rows) => {
                self.x.iter_mut().zip(rows.row(0)).for_each(|(out, x)| *out = x.to_f64());
            }
            Rows::Sparse(rows) => {
                self.x.fill(0.0);
                let (columns, values) = rows.row(0);
                columns.iter().zip(values).for_each(|(&column, x)| self.x[column as usize] = x.to_f64());
            }
        }
    }

    /// One step with a row of label `j`.
    fn step(&mut self, drawn: &DrawnRow, j: u32, origin: Origin<'_, T>) -> Result<()> {
        let (j, s) = (j as usize, self.start.labels.get(drawn.row as usize) as usize);
        let rate = self.start.rate;
        if j == s {
            if self.moving.apart(s) > 0.0 {
                let moved = self.moving.pull(s, rate);
                self.note(s, moved, false);
            }
        } else {
            self.fetch(drawn, origin)?;
            self.unpack_row();
            let moved = self.moving.attract(j, &self.x, rate);
            self.note(j, moved, true);
            let moved = self.moving.push(s, &self.x, rate);
            self.note(s, moved, true);
        }
        if let Some(gradient) = &self.start.gradient {
            self.moving.descend(gradient, &self.slopes, rate);
            if self.steepest > 0.0 {
                self.moves.note_all(rate * self.steepest * MORE);
                (0..self.moving.len()).for_each(|j| self.touch(j));
            }
        }
        Ok(())
    }

    /// Records that center `j` moved by at most `moved`; `far` if a row got a new label.
    fn note(&mut self, j: usize, moved: f64, far: bool) {
        self.touch(j);
        self.moves.note(j, moved, far);
    }

    /// Records that the packed copies of center `j` are out of date.
    fn touch(&mut self, j: usize) {
        self.all.touch(j);
        if let Some(panels) = &mut self.panels {
            panels.touch(j);
        }
    }
}

/// Squared distance of a single row to a center.
fn distance<T: Compute>(row: Rows<'_, T>, center: &[T]) -> f64 {
    match row {
        Rows::Dense(rows) => kernel::sq_dist(rows.row(0), center),
        Rows::Sparse(_) => Point::new(center).sq_dist(row, 0),
    }
}
