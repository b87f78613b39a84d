//! Exact sweeps by certified sketches: a few bytes per row decide which rows are read.
//!
//! A fit sketches all rows once ([`kernel::sketched`](crate::kernel::sketched)) and keeps the sketches in memory.
//! Every row also keeps bounds from sweep to sweep, as lengths in the units of the sketches:
//!
//! - an upper bound of the distance to its center;
//! - lower bounds of the distances to three near centers;
//! - one lower bound of the distances to all others (Hamerly, 2010).
//!
//! A sweep packs the sketches of the centers by falling move. The last bound, less the move of a group of centers, then
//! tells how many leading groups a row must be compared with. The scan lists the centers that may be as near as the
//! upper bound allows. Only rows with such centers are read, and the arbiter measures their distances.
//!
//! Labels are those of a plain sweep: a center is excluded only if a lower bound of its distance exceeds an upper bound
//! of the distance to another center by more than the rounding of both.

mod chunk;
#[cfg(test)]
mod tests;
mod work;

use crate::centers::NO_LABEL;
use crate::data::{self, DataSource};
use crate::error::Result;
use crate::kernel::sketched::{Basis, PackedSketches, Sketch, Sketching, upper_of};
use crate::kernel::{Compute, PackedCenters, sq_dist};
use crate::matrix::MatRef;
use crate::pass::Chunk;
use crate::tuning::{SKETCH_PROBE, sketches_exclude_most};
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
    /// The rows have been sketched.
    are_made: bool,
    /// The bounds hold.
    are_known: bool,
    /// Sketches of the centers, how far each moved since the last sweep, and in all sweeps.
    codes: Vec<u8>,
    centers: Vec<Sketch>,
    moves: Vec<f32>,
    paths: Vec<f64>,
}

/// Sketches and bounds of all rows.
#[derive(Clone, Debug, Default)]
pub(super) struct AllRows {
    codes: Vec<u8>,
    sketches: Vec<Sketch>,
    upper: Vec<f32>,
    least: Vec<f32>,
    near: Vec<Near>,
}

impl AllRows {
    /// Room for `n` rows with sketches of `width` bytes.
    fn of(n: usize, width: usize) -> Self {
        Self {
            codes: vec![0; n * width],
            sketches: vec![Sketch::default(); n],
            upper: vec![f32::INFINITY; n],
            least: vec![0.0; n],
            near: vec![Near::NONE; n],
        }
    }

    /// All rows, with sketches of `width` bytes.
    pub(super) fn view_mut(&mut self, width: usize) -> RowSketches<'_> {
        let Self { codes, sketches, upper, least, near } = self;
        RowSketches { codes, sketches, upper, least, near, width }
    }
}

impl Sketches {
    /// For the rows of `data`, in at most `budget` bytes. `None` if the sketches do not fit, if no sketch suits the rows,
    /// or, unless they are `asked` for, if they exclude too few of the centers.
    ///
    /// # Errors
    /// Those of the source.
    pub(super) fn new<T: Compute>(
        data: &dyn DataSource<T>,
        n: usize,
        packed: &PackedCenters<T>,
        (budget, asked): (u64, bool),
    ) -> Result<Option<Self>> {
        let a_row = size_of::<Sketch>() + size_of::<Near>() + 2 * size_of::<f32>();
        let fits = |width: usize| (n as u64).saturating_mul((width + a_row) as u64) <= budget;
        if !fits(data.dim().min(Basis::LEAST_WIDTH)) {
            return Ok(None);
        }
        let values = data::take(data, &Basis::sample_of(n))?;
        let sample = MatRef::new(&values, data.dim());
        let Some(basis) = Basis::learn(sample).filter(|basis| fits(basis.width())) else { return Ok(None) };
        let width = basis.width();
        let k = packed.n_centers();
        let mut new = Self {
            basis,
            rows: AllRows::default(),
            are_made: false,
            are_known: false,
            codes: vec![0; k * width],
            centers: vec![Sketch::default(); k],
            moves: vec![f32::INFINITY; k],
            paths: vec![0.0; k],
        };
        if !asked && !new.excludes_most(sample.slice(0, sample.rows().min(SKETCH_PROBE)), packed)? {
            return Ok(None);
        }
        new.rows = AllRows::of(n, width);
        Ok(Some(new))
    }

    /// Whether few centers are left for most of these rows.
    fn excludes_most<T: Compute>(&mut self, rows: MatRef<'_, T>, packed: &PackedCenters<T>) -> Result<bool> {
        let (n, width) = (rows.rows(), self.width());
        let mut of_rows = AllRows::of(n, width);
        let mut work = Work::default();
        let mut all = Reading::All(Chunk { first_row: 0, rows: rows.into(), weights: None });
        let rules = self.rules(packed.centers());
        rules.label(&mut all, &vec![NO_LABEL; n], &mut of_rows.view_mut(width), packed, &mut work)?;
        Ok(sketches_exclude_most(work.distances, n as u64, packed.n_centers() as u64))
    }

    /// Bytes of a sketch of a row.
    pub(super) fn width(&self) -> usize {
        self.basis.width()
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
        let mut order: Vec<u32> = (0..centers.rows() as u32).collect();
        order.sort_by(|&a, &b| self.moves[b as usize].total_cmp(&self.moves[a as usize]));
        let packed = PackedSketches::new(&self.codes, &self.centers, width, &order);
        let group_moves = (0..packed.n_groups()).map(|g| self.moves[packed.centers(g)[0] as usize]).collect();
        Rules {
            basis: &self.basis,
            centers,
            packed,
            group_moves,
            moves: &self.moves,
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
    }

    /// Records that the centers moved from `old` to `new` after a sweep.
    pub(super) fn follow<T: Compute>(&mut self, old: MatRef<'_, T>, new: MatRef<'_, T>) {
        let factor = self.basis.factor();
        for (j, (old, new)) in old.iter().zip(new.iter()).enumerate() {
            let moved = if old == new { 0.0 } else { upper_of(sq_dist(old, new), factor) };
            // NaN counts as infinite.
            let moved = if moved.is_nan() { f32::INFINITY } else { moved };
            // Every sweep clears the moves.
            debug_assert!(self.moves[j] == 0.0);
            self.moves[j] = moved;
            self.paths[j] += f64::from(moved);
        }
        if self.paths.iter().any(|path| path.is_infinite()) {
            self.are_known = false;
            self.paths.fill(0.0);
        }
    }
}
