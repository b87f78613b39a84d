//! Exact sweeps by certified sketches: a few bytes per row decide which rows are read.
//!
//! A fit sketches all rows once ([`kernel::sketched`](crate::kernel::sketched)) and keeps the sketches in memory.
//! Every row also keeps bounds from sweep to sweep, as lengths in the units of the sketches:
//!
//! - an upper bound of the distance to its center;
//! - lower bounds of the distances to all other centers, one per set of similar centers (Ding et al., 2015), and their
//!   smallest (Hamerly, 2010).
//!
//! A sweep reads the rows whose upper bound exceeds a lower bound, and measures the distances to their centers. Then it
//! compares their sketches with the sets whose bounds are still within reach. This scan lists the centers that may be
//! nearer than the row's own, and the arbiter measures their distances.
//!
//! Labels are those of a plain sweep: a center is excluded only if a lower bound of its distance exceeds an upper bound
//! of the distance to another center. Both cover all roundings.

mod buffers;
mod chunk;
#[cfg(test)]
mod tests;

use crate::centers::NO_LABEL;
use crate::data::{self, DataSource};
use crate::error::Result;
use crate::kernel::sketched::{
    Basis, Fine, FineSketch, GROUP, PackedSketches, Paths, Sketch, Sketching, are_fast, upper_of,
};
use crate::kernel::{Compute, PackedCenters, sq_dist};
use crate::kmeans::bounds::similar_together;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::Chunk;
use crate::tuning::shared_rows;
pub(super) use buffers::SketchBuffers;
pub(super) use chunk::{Reading, RowSketches, Rules};

/// Most sets of centers with a bound per row, of 4 bytes, in sweeps by sketches.
const SKETCH_SETS: usize = 64;

/// Coordinates of the sketches of centers by which similar ones are found.
const SKETCH_COORDINATES: usize = 32;

/// Whether sketches pay for `n` rows in memory and `k` clusters in `dim` columns. Centers must have enough values for
/// the bookkeeping and exact distances of a row. With few columns, bounds alone skip more. There must be enough rows to
/// learn the columns of sketches from.
///
/// Measured with AVX-512 VNNI (`auto.py`). AVX-VNNI gains as much over AVX2. Arm's dot products do four times the work
/// of its multiply-adds per instruction, as those do; their speed is not measured.
pub(super) fn plain_sketches_pay(n: usize, k: usize, dim: usize) -> bool {
    let few = dim >= 48 && k >= 96 && k * dim >= 12_500;
    are_fast() && dim >= 32 && (few || k * dim >= 36_000) && n >= 4096
}

/// Whether finer sketches pay for `n` rows in a file larger than memory (`files.py`), because most rows are then not
/// read: their bytes must be few beside those of the rows, and making them, which takes as long as comparing the rows
/// with `dim` centers, must take less than a few sweeps. Completing the directions to a basis takes `dim^3` operations.
pub(super) fn fine_sketches_pay(n: usize, k: usize, dim: usize) -> bool {
    n >= 4096 && (64..=1024).contains(&dim) && dim <= 4 * k
}

/// The directions of sketches that have finer ones: the first number for which there is memory, of those that are at
/// most half of the columns. More of them leave fewer rows to read.
const FINE_WIDTHS: [usize; 7] = [128, 112, 96, 80, 64, 48, 32];

/// The most bytes for sketches of rows in a file larger than memory, of which `available` bytes are left.
pub(super) fn most_for_sketches(available: u64) -> u64 {
    (available as f64 * FINE_MEMORY) as u64
}

/// The share of the available memory.
const FINE_MEMORY: f64 = 0.8;

/// Whether sketches leave few enough of the `k` centers: the distances of one center in 32 take as long as the sweep by
/// `f32` tile values.
pub(super) fn sketches_exclude_most(distances: u64, rows: u64, k: u64) -> bool {
    distances * 32 <= rows * (k + 128)
}

/// Rows for which [`sketches_exclude_most`] is tested before all rows are sketched.
const SKETCH_PROBE: usize = 256;

/// Sketches and bounds of all rows, and sketches of the centers.
#[derive(Clone, Debug)]
pub(super) struct Sketches {
    basis: Basis,
    rows: AllRows,
    /// The rows have been sketched.
    are_made: bool,
    /// The bounds hold.
    are_known: bool,
    /// Sketches of the centers, the order in which they are packed, and how far each moved since the last sweep.
    codes: Vec<u8>,
    centers: Vec<Sketch>,
    order: Vec<u32>,
    moves: Vec<f32>,
    /// How far the sets of centers have moved.
    paths: Paths,
    /// Where reading a row costs much.
    fine: Option<Fine>,
}

/// Sketches and bounds of all rows.
#[derive(Clone, Debug, Default)]
pub(super) struct AllRows {
    codes: Vec<u8>,
    sketches: Vec<Sketch>,
    bits: Vec<u8>,
    fine: Vec<FineSketch>,
    upper: Vec<f32>,
    least: Vec<f32>,
    bounds: Vec<f32>,
}

/// Values per row of sketches and of bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widths {
    codes: usize,
    /// 0 without finer sketches.
    bits: usize,
    bounds: usize,
}

impl AllRows {
    /// Room for `n` rows.
    fn of(n: usize, widths: Widths) -> Self {
        Self {
            codes: vec![0; n * widths.codes],
            sketches: vec![Sketch::default(); n],
            bits: vec![0; n * widths.bits],
            fine: vec![FineSketch::default(); if widths.bits > 0 { n } else { 0 }],
            upper: vec![f32::INFINITY; n],
            least: vec![0.0; n],
            bounds: vec![f32::INFINITY; n * widths.bounds],
        }
    }

    /// All rows.
    pub(super) fn view_mut(&mut self, widths: Widths) -> RowSketches<'_> {
        let Self { codes, sketches, bits, fine, upper, least, bounds } = self;
        RowSketches { codes, sketches, bits, fine, upper, least, bounds, widths }
    }
}

impl Sketches {
    /// For the rows of `data`, in at most `budget` bytes. With finer sketches if the rows are in a file larger than
    /// memory. `None` if the sketches do not fit, if no sketch suits the rows, or, unless they are `asked` for or
    /// finer, if they exclude too few of the centers.
    ///
    /// # Errors
    /// Those of the source.
    pub(super) fn new<T: Compute>(
        data: &dyn DataSource<T>,
        n: usize,
        packed: &PackedCenters<T>,
        (budget, asked): (u64, bool),
        cx: &Executor,
    ) -> Result<Option<Self>> {
        let (k, dim) = (packed.n_centers(), data.dim());
        let groups = k.div_ceil(GROUP);
        // Sets of centers, at most as many as there is memory for their bounds.
        let paths = |width: usize, budget: u64| {
            let a_row = width + size_of::<Sketch>() + 2 * size_of::<f32>();
            let left = (budget / n.max(1) as u64).checked_sub(a_row as u64)? / size_of::<f32>() as u64;
            let paths = Paths::new(groups, left.min(SKETCH_SETS as u64) as usize);
            (paths.stride() as u64 <= left).then_some(paths)
        };
        let scarce = data.scarce_memory().filter(|_| fine_sketches_pay(n, k, dim));
        let finer = scarce.and_then(|bytes| {
            let budget = budget.min(most_for_sketches(bytes));
            let beside = dim.next_multiple_of(16) / 2 + size_of::<FineSketch>();
            let fits = |&width: &usize| Some((width, paths(width + beside, budget)?));
            FINE_WIDTHS.iter().filter(|&&width| 2 * width <= dim).find_map(fits)
        });
        if finer.is_none() && paths(dim.min(Basis::LEAST_WIDTH), budget).is_none() {
            return Ok(None);
        }
        let values = data::take(data, &Basis::sample_of(n))?;
        let sample = MatRef::new(&values, dim);
        let finer = finer.and_then(|(width, paths)| {
            let basis = Basis::learn_few(sample, width, cx)?;
            let fine = Fine::new(&basis, k)?;
            Some((basis, paths, Some(fine)))
        });
        // Without room for finer sketches, the rules for rows in memory hold.
        let pays = asked || plain_sketches_pay(n, k, dim);
        let plain = || {
            let basis = Basis::learn(sample, cx)?;
            let paths = paths(basis.width(), budget)?;
            Some((basis, paths, None))
        };
        let Some((basis, paths, fine)) = finer.or_else(|| plain().filter(|_| pays)) else { return Ok(None) };
        let mut new = Self {
            rows: AllRows::default(),
            are_made: false,
            are_known: false,
            codes: vec![0; k * basis.width()],
            centers: vec![Sketch::default(); k],
            order: Vec::new(),
            moves: vec![f32::INFINITY; k],
            basis,
            paths,
            fine: None,
        };
        if fine.is_none()
            && !asked
            && !new.excludes_most(sample.slice(0, sample.rows().min(SKETCH_PROBE)), packed, cx)?
        {
            return Ok(None);
        }
        new.fine = fine;
        new.rows = AllRows::of(n, new.widths());
        Ok(Some(new))
    }

    /// The bytes of the sketches and bounds of all rows, and of the sketches of the centers.
    pub(super) fn bytes(&self) -> usize {
        let AllRows { codes, sketches, bits, fine, upper, least, bounds } = &self.rows;
        let of_rows = size_of_val(&codes[..]) + size_of_val(&sketches[..]) + size_of_val(&bits[..]);
        // Half a byte per coordinate of a row, and an `f32` of a center.
        let of_fine = |fine: &Fine| 8 * fine.bytes() * self.centers.len();
        let finer = size_of_val(&fine[..]) + self.fine.as_ref().map_or(0, of_fine);
        let of_bounds = size_of_val(&upper[..]) + size_of_val(&least[..]) + size_of_val(&bounds[..]);
        let of_centers = self.codes.len() + self.centers.len() * (size_of::<Sketch>() + 8);
        of_rows + finer + of_bounds + of_centers
    }

    /// Whether they serve to read few rows of a large file.
    pub(super) fn spare_reads(&self) -> bool {
        self.fine.is_some()
    }

    /// Whether few centers are left for most of these rows.
    fn excludes_most<T: Compute>(
        &mut self,
        rows: MatRef<'_, T>,
        packed: &PackedCenters<T>,
        cx: &Executor,
    ) -> Result<bool> {
        let (n, widths) = (rows.rows(), self.widths());
        let mut of_rows = AllRows::of(n, widths);
        let mut work = SketchBuffers::default();
        let all = Reading::All(Chunk { first_row: 0, rows: rows.into(), weights: None });
        let rules = self.rules(packed.centers(), cx);
        rules.label(all, &vec![NO_LABEL; n], &mut of_rows.view_mut(widths), packed, &mut work)?;
        Ok(sketches_exclude_most(work.distances, n as u64, packed.n_centers() as u64))
    }

    /// Values per row.
    pub(super) fn widths(&self) -> Widths {
        Widths {
            codes: self.basis.width(),
            bits: self.fine.as_ref().map_or(0, Fine::bytes),
            bounds: self.paths.stride(),
        }
    }

    /// Takes the sketches and bounds of all rows out for a sweep.
    pub(super) fn take_rows(&mut self) -> AllRows {
        std::mem::take(&mut self.rows)
    }

    /// An order of the centers in which those of a group are similar in a few of the coordinates of their sketches.
    fn similar(&self) -> Vec<u32> {
        let width = self.basis.width();
        let step = width.div_ceil(SKETCH_COORDINATES);
        let coordinates = |code: &[u8], sketch: &Sketch| {
            code.iter().step_by(step).map(|&c| sketch.coordinate(c)).collect::<Vec<f32>>()
        };
        let codes = self.codes.chunks_exact(width).zip(&self.centers);
        let values: Vec<f32> = codes.flat_map(|(code, sketch)| coordinates(code, sketch)).collect();
        similar_together(MatRef::new(&values, width.div_ceil(step)), GROUP)
    }

    /// Prepares a sweep with these centers.
    pub(super) fn rules<'a, T: Compute>(&'a mut self, centers: MatRef<'a, T>, cx: &Executor) -> Rules<'a, T> {
        let (width, part) = (self.basis.width(), shared_rows(centers.cols()));
        let sketches = self.codes.chunks_mut(part * width).zip(self.centers.chunks_mut(part));
        cx.share(sketches.zip(self.moves.chunks(part)).enumerate(), |(i, ((codes, sketches), moves))| {
            let (mut sketching, mut start) = (Sketching::default(), 0);
            for run in moves.chunk_by(|a, b| (*a > 0.0) == (*b > 0.0)) {
                let end = start + run.len();
                if run[0] > 0.0 {
                    let rows = centers.slice(i * part + start, i * part + end);
                    let codes = &mut codes[start * width..end * width];
                    sketching.write(&self.basis, rows, codes, &mut sketches[start..end]);
                }
                start = end;
            }
        });
        if let Some(fine) = &mut self.fine {
            for (j, center) in centers.iter().enumerate().filter(|&(j, _)| self.moves[j] > 0.0) {
                fine.set(j, center);
            }
        }
        if self.order.is_empty() {
            self.order = self.similar();
        }
        Rules {
            basis: &self.basis,
            centers,
            packed: PackedSketches::new(&self.codes, &self.centers, width, &self.order),
            moves: &self.moves,
            largest_move: self.moves.iter().copied().fold(0.0, f32::max),
            paths: &self.paths,
            fine: self.fine.as_ref(),
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
    pub(super) fn follow<T: Compute>(&mut self, old: MatRef<'_, T>, new: MatRef<'_, T>, cx: &Executor) {
        let factor = self.basis.factor();
        // Every sweep clears the moves.
        debug_assert!(self.moves.iter().all(|&moved| moved == 0.0));
        cx.fill(&mut self.moves, old.cols(), |j| {
            let (old, new) = (old.row(j), new.row(j));
            let upper = if old == new { 0.0 } else { upper_of(sq_dist(old, new), factor) };
            // NaN counts as infinite.
            if upper.is_nan() { f32::INFINITY } else { upper }
        });
        if !self.paths.extend(self.order.iter().map(|&j| self.moves[j as usize])) {
            self.are_known = false;
            self.paths.clear();
        }
    }
}
