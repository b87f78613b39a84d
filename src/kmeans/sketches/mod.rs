//! Exact sweeps by certified sketches: a few bytes per row decide which rows are read.
//!
//! A fit sketches all rows once ([`kernel::sketched`](crate::kernel::sketched)) and keeps the sketches in memory.
//! Every row also keeps bounds from sweep to sweep, as lengths in the units of the sketches:
//!
//! - an upper bound of the distance to its center;
//! - lower bounds of the distances to three near centers;
//! - a lower bound of the distances to the others of each group of similar centers (Ding et al., 2015).
//!
//! A row is compared only with the groups whose bound does not exceed its upper bound. The scan lists the centers that
//! may be as near as the upper bound allows. Only rows with such centers are read, and the arbiter measures their
//! distances.
//!
//! Labels are those of a plain sweep: a center is excluded only if a lower bound of its distance exceeds an upper bound
//! of the distance to another center by more than the rounding of both.

mod chunk;
mod work;

use crate::data::{self, DataSource};
use crate::error::Result;
use crate::kernel::sketched::{Basis, PackedSketches, Sketch, Sketching};
use crate::kernel::{Compute, sq_dist};
use crate::kmeans::bounds::similar_together;
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};
use crate::tuning::{SKETCH_BOUNDS, SKETCH_SAMPLE};
pub(super) use chunk::{Reading, RowSketches, Rules};
pub(super) use work::Work;

/// Centers of a row with lower bounds of their own.
const NEAR: usize = 3;

/// Near centers of a row, with lower bounds of their distances, plus the path of the center at that time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    centers: [u32; NEAR],
    bounds: [f32; NEAR],
}

impl Near {
    /// No centers.
    const NONE: Self = Self { centers: [u32::MAX; NEAR], bounds: [f32::INFINITY; NEAR] };
}

/// Sketches and bounds of all rows, and sketches of the centers.
#[derive(Clone, Debug)]
pub(super) struct Sketches {
    basis: Basis,
    rows: AllRows,
    /// Sweeps that were made.
    sweeps: u32,
    /// The rows have been sketched.
    are_made: bool,
    /// The bounds hold.
    are_known: bool,
    /// Sketches of the centers, how far each moved since the last sweep, and in all sweeps.
    codes: Vec<u8>,
    centers: Vec<Sketch>,
    moves: Vec<f32>,
    paths: Vec<f64>,
    /// The center in each place, so that similar ones share a group.
    order: Vec<u32>,
    /// Groups that share a bound, and how far the farthest-moving center of each bound moved in all sweeps.
    span: usize,
    drifts: Vec<f64>,
}

/// Sketches and bounds of all rows.
#[derive(Clone, Debug, Default)]
pub(super) struct AllRows {
    pub(super) codes: Vec<u8>,
    pub(super) sketches: Vec<Sketch>,
    pub(super) upper: Vec<f32>,
    /// The smallest of `lower`, or less.
    pub(super) least: Vec<f32>,
    pub(super) near: Vec<Near>,
    /// Lower bounds by group, plus the drift of the group.
    pub(super) lower: Vec<f32>,
}

impl Sketches {
    /// For `n` rows and `k` centers, in at most `budget` bytes. `None` if they do not fit, or if no sketch suits the
    /// rows.
    ///
    /// # Errors
    /// Those of the source.
    pub(super) fn new<T: Compute>(
        data: &dyn DataSource<T>,
        (n, k): (usize, usize),
        budget: u64,
    ) -> Result<Option<Self>> {
        let sample = sample_of(n);
        let values = data::take(data, &sample)?;
        let Some(basis) = Basis::learn(MatRef::new(&values, data.dim())) else { return Ok(None) };
        let width = basis.width();
        let bytes = width + size_of::<Sketch>() + size_of::<Near>() + 2 * size_of::<f32>();
        let left = (budget / n.max(1) as u64).saturating_sub(bytes as u64) / size_of::<f32>() as u64;
        let most = left.min(SKETCH_BOUNDS as u64) as usize;
        if most == 0 {
            return Ok(None);
        }
        let groups = PackedSketches::count_groups(k);
        let span = groups.div_ceil(most);
        let bounds = groups.div_ceil(span);
        let rows = AllRows {
            codes: vec![0; n * width],
            sketches: vec![Sketch::default(); n],
            upper: vec![f32::INFINITY; n],
            least: vec![0.0; n],
            near: vec![Near::NONE; n],
            lower: vec![0.0; n * bounds],
        };
        Ok(Some(Self {
            basis,
            rows,
            sweeps: 0,
            are_made: false,
            are_known: false,
            codes: vec![0; k * width],
            centers: vec![Sketch::default(); k],
            moves: vec![f32::INFINITY; k],
            paths: vec![0.0; k],
            order: (0..k as u32).collect(),
            span,
            drifts: vec![0.0; bounds],
        }))
    }

    /// Bytes of a sketch of a row.
    pub(super) fn width(&self) -> usize {
        self.basis.width()
    }

    /// Lower bounds of a row by group.
    pub(super) fn n_bounds(&self) -> usize {
        self.drifts.len()
    }

    /// The share of the squared lengths of rows that sketches hold.
    #[cfg(test)]
    pub(super) fn energy(&self) -> f64 {
        self.basis.energy
    }

    /// Takes the sketches and bounds of all rows out for a sweep.
    pub(super) fn take_rows(&mut self) -> AllRows {
        std::mem::take(&mut self.rows)
    }

    /// Prepares a sweep with these centers.
    pub(super) fn rules<'a, T: Compute>(&'a mut self, centers: MatRef<'a, T>) -> Rules<'a, T> {
        let width = self.width();
        let mut sketching = Sketching::default();
        for (j, center) in centers.iter().enumerate() {
            if self.moves[j] > 0.0 {
                let codes = &mut self.codes[j * width..][..width];
                let row = MatRef::new(center, center.len());
                sketching.write(&self.basis, row, codes, &mut self.centers[j..=j]);
            }
        }
        let packed = PackedSketches::new(&self.codes, &self.centers, width, &self.order);
        Rules {
            basis: &self.basis,
            centers,
            packed,
            span: self.span,
            drifts: self.drifts.iter().map(|&drift| (drift as f32).next_up()).collect(),
            moves: &self.moves,
            farthest: self.moves.iter().copied().fold(0.0, f32::max),
            paths: &self.paths,
            codes: &self.codes,
            sketches: &self.centers,
            are_made: self.are_made,
            are_known: self.are_known,
        }
    }

    /// Puts the sketches and bounds of all rows back after a sweep.
    pub(super) fn put_rows(&mut self, rows: AllRows) {
        self.rows = rows;
        (self.are_made, self.are_known) = (true, true);
        self.moves.fill(0.0);
        self.sweeps += 1;
    }

    /// Records that the centers moved from `old` to `new` after a sweep.
    pub(super) fn follow<T: Compute>(&mut self, old: MatRef<'_, T>, new: MatRef<'_, T>) {
        let factor = self.basis.factor();
        for (j, (old, new)) in old.iter().zip(new.iter()).enumerate() {
            let moved = if old == new { 0.0 } else { upper_of(sq_dist(old, new), factor) };
            // NaN counts as infinite.
            let moved = if moved.is_nan() { f32::INFINITY } else { moved };
            self.moves[j] += moved;
            self.paths[j] += f64::from(moved);
        }
        // The centers of the first sweep are often rows, which tell little of where the centers go.
        if self.sweeps == 1 {
            self.order = similar_together(new, PackedSketches::group_centers());
            self.rows.lower.fill(0.0);
            self.rows.least.fill(0.0);
        }
        for (bound, centers) in self.order.chunks(self.span * PackedSketches::group_centers()).enumerate() {
            let moves = centers.iter().map(|&j| self.moves[j as usize]);
            self.drifts[bound] += f64::from(moves.fold(0.0, f32::max));
        }
        if self.paths.iter().any(|path| path.is_infinite()) {
            self.are_known = false;
            self.paths.fill(0.0);
            self.drifts.fill(0.0);
        }
    }
}

/// The rows from which a basis is learned: drawn at random, in ascending order.
fn sample_of(n: usize) -> Vec<u64> {
    if n <= SKETCH_SAMPLE {
        return (0..n as u64).collect();
    }
    let mut rng = Rng::keyed(0, Purpose::Sketching, n as u64);
    let mut rows: Vec<u64> = (0..SKETCH_SAMPLE).map(|_| rng.below(n as u64)).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Relative error of a squared distance of the arbiter, of its square root, and of a rounding to `f32`.
const RELATIVE: f64 = 1e-9;

/// A length for which squares in `f64` have not lost digits to underflow.
const TINY: f64 = 1e-30;

/// An upper bound of a distance in the units of sketches, rounded to `f32`, from its square.
fn upper_of(sq_dist: f64, factor: f64) -> f32 {
    ((sq_dist.sqrt() * factor * (1.0 + RELATIVE) + TINY) as f32).next_up()
}

/// A lower bound, likewise.
fn lower_of(sq_dist: f64, factor: f64) -> f32 {
    ((sq_dist.sqrt() * factor * (1.0 - RELATIVE)) as f32).next_down()
}
