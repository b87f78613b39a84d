//! Certified low precision: labels that bounds prove, and the arbiter's where they do not.
//!
//! Where a processor multiplies bytes fast, rows and centers are sketched ([`sketched`](super::sketched)). Where it has
//! a matrix unit, tiles of rows and centers are compared:
//!
//! 1. Centers are rounded to low precision once ([`pack`]), rows strip by strip ([`rows`]). An
//!    [`Engine`](super::arch::engine::Engine) multiplies tiles of both ([`tiles`], [`strip`]).
//! 2. Every value has a rigorous error bound ([`bound`]), so it is an interval that holds the true value.
//!    Minima of both ends are kept per panel of 16 centers and per place in a panel ([`fold`]).
//! 3. Centers whose interval begins above the smallest upper end of their row are not the nearest. If one panel
//!    and one place are left, the label is proven ([`decide`]).
//! 4. The other rows are measured by `f32` tile values, against the panels that are left ([`remeasure`]). The
//!    arbiter decides what these leave in doubt.
//!
//! Labels are therefore the same as without low precision, whatever the engine. The products only decide how many
//! rows are measured again.
//!
//! Tiles of bytes suit rows of whole numbers from 0 to 255, however they are stored. Tiles of bf16 suit all finite
//! rows. Strips of other rows go to the `f32` kernel.

mod bound;
mod decide;
mod fold;
mod pack;
mod remeasure;
mod rows;
mod strip;
#[cfg(test)]
mod tests;
mod tiles;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use self::decide::CERTIFIED_DOUBT;
use self::pack::LowCenters;
use self::tiles::Buffers;
use super::arch::engine::Product;
use super::by_tiles::nearest_by_tiles;
use super::isa::Isa;
use super::pack::{PackedCenters, Shortcut};
use super::scratch::Scratch;
use super::sketched::{Labeling, SketchedCenters, sketch_candidates};
use super::tier::Compute;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, Rows};

/// Whether tiles of low precision are faster than the `f32` kernel for `k` centers of `dim` columns (bench `kernels`,
/// table `certified`). With fewer centers or columns, converting the rows takes as long as the products save.
pub(crate) const fn certified_pays(k: usize, dim: usize) -> bool {
    k >= 64 && dim >= 64
}

/// Rows for which rounding the centers to low precision pays off: it takes as long as products save on about 2,000 rows
/// (256 and 1024 centers of 128 columns).
const CERTIFIED_ROWS: usize = 2048;

/// Rows after which the share of panels in doubt decides whether low precision goes on.
const CERTIFIED_TRIAL: usize = 512;

/// Whether sketches of rows that are read once are faster than the `f32` kernel (`certified.py`): with fewer centers or
/// columns, sketching a row takes as long as products of bytes save.
const fn few_sketches_pay(k: usize, dim: usize) -> bool {
    k >= 64 && dim >= 32 && k * dim >= 40_000
}

/// Labels rows by low precision. The centers in low precision are made when enough rows have come.
#[derive(Debug)]
pub(super) struct Certified<T> {
    /// Tiles of the matrix unit pay off for the centers, or sketches do, on this instruction set.
    tiles_pay: bool,
    sketches_pay: Option<Isa>,
    /// Rows that have come so far.
    met: AtomicUsize,
    bytes: OnceLock<Option<LowCenters>>,
    halves: OnceLock<Option<LowCenters>>,
    sketches: OnceLock<Option<SketchedCenters>>,
    /// Rows labeled so far, and candidates among them. Too many candidates end it.
    rows: AtomicUsize,
    candidates: AtomicUsize,
    stopped: AtomicBool,
    /// Buffers that no worker uses.
    idle: Mutex<Vec<LabelBuffers<T>>>,
}

/// Buffers of a worker.
#[derive(Debug, Default)]
struct LabelBuffers<T> {
    tiles: Buffers,
    labeling: Labeling,
    /// Copies of the rows that sketches leave open.
    open: RowBuf<T>,
}

impl<T: Compute> Certified<T> {
    /// For `k` dense centers of `dim` columns and the chosen instruction set; `None` if low precision does not pay.
    pub(super) fn new(isa: Isa, k: usize, dim: usize) -> Option<Self> {
        let tiles_pay = !T::WIDE && isa == Isa::Amx && certified_pays(k, dim);
        let sketches_pay = (isa.multiplies_bytes() && few_sketches_pay(k, dim)).then_some(isa);
        (tiles_pay || sketches_pay.is_some()).then(|| Self {
            tiles_pay,
            sketches_pay,
            met: AtomicUsize::new(0),
            bytes: OnceLock::new(),
            halves: OnceLock::new(),
            sketches: OnceLock::new(),
            rows: AtomicUsize::new(0),
            candidates: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            idle: Mutex::default(),
        })
    }

    /// Whether low precision pays off for the rows so far and `rows` more.
    fn pays(&self, rows: usize) -> bool {
        rows > 0 && !self.stopped.load(Relaxed) && self.met.fetch_add(rows, Relaxed) + rows >= CERTIFIED_ROWS
    }

    /// Counts the candidates that were measured again. Low precision ends if there are more than `most` per row.
    fn count(&self, rows: usize, candidates: usize, most: f64) {
        let rows = self.rows.fetch_add(rows, Relaxed) + rows;
        let candidates = self.candidates.fetch_add(candidates, Relaxed) + candidates;
        if rows >= CERTIFIED_TRIAL && candidates as f64 > most * rows as f64 {
            self.stopped.store(true, Relaxed);
        }
    }

    /// Labels rows by sketches. Returns false if the centers have none.
    fn by_sketches(
        &self,
        isa: Isa,
        rows: MatRef<'_, T>,
        packed: &PackedCenters<T>,
        (labels, scratch): (&mut [u32], &mut Scratch<T>),
        LabelBuffers { labeling, open, .. }: &mut LabelBuffers<T>,
    ) -> bool {
        let centers = self.sketches.get_or_init(|| SketchedCenters::new(packed.centers(), isa));
        let Some(centers) = centers else { return false };
        let candidates = centers.label(rows, packed, labels, labeling);
        self.count(rows.rows(), candidates, sketch_candidates(packed.k) as f64);
        if !labeling.open.is_empty() {
            open.clear(rows.cols());
            labeling.open.iter().for_each(|&row| open.push(Rows::Dense(rows), row as usize));
            let mut found = vec![0; labeling.open.len()];
            nearest_by_tiles(open.rows(), packed, &mut found, scratch);
            labeling.open.iter().zip(found).for_each(|(&row, label)| labels[row as usize] = label);
        }
        true
    }
}

impl Certified<f32> {
    /// The centers for a product, if they suit it.
    fn centers(&self, packed: &PackedCenters<f32>, product: Product) -> Option<&LowCenters> {
        let centers = match product {
            Product::Bytes => &self.bytes,
            Product::Bf16 => &self.halves,
        };
        centers.get_or_init(|| LowCenters::new(packed, product)).as_ref()
    }

    /// Labels rows by tiles of the matrix unit. Returns false if they do not suit the rows.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn by_matrix_unit(
        &self,
        rows: MatRef<'_, f32>,
        packed: &PackedCenters<f32>,
        labels: &mut [u32],
        scratch: &mut Scratch<f32>,
        LabelBuffers { tiles: buffers, .. }: &mut LabelBuffers<f32>,
    ) -> bool {
        // The first row shows what to try; strips of other rows go to the `f32` kernel.
        let product = if self::rows::are_bytes(rows.row(0)) { Product::Bytes } else { Product::Bf16 };
        let Some(low) = self.centers(packed, product) else { return false };
        let problem = remeasure::Problem { rows, packed, low };
        let run = |work: tiles::ByTiles<'_>| super::arch::amx::run(work);
        let candidates = tiles::nearest_with(problem, labels, scratch, buffers, run);
        self.count(rows.rows(), candidates, CERTIFIED_DOUBT * low.panels as f64);
        true
    }
}

/// What [`Certified::by_matrix_unit`] takes.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
struct Given<'a>(std::marker::PhantomData<&'a ()>);

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
impl<'a> crate::float::PerFloat for Given<'a> {
    type Of<T: crate::float::Float> = (
        &'a Certified<T>,
        MatRef<'a, T>,
        &'a PackedCenters<T>,
        &'a mut [u32],
        &'a mut Scratch<T>,
        &'a mut LabelBuffers<T>,
    );
}

impl<T: Compute> Shortcut<T> for Certified<T> {
    fn label(
        &self,
        rows: MatRef<'_, T>,
        packed: &PackedCenters<T>,
        labels: &mut [u32],
        scratch: &mut Scratch<T>,
    ) -> bool {
        if !self.pays(rows.rows()) {
            return false;
        }
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut work = idle().pop().unwrap_or_default();
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        let by_matrix_unit = self.tiles_pay
            && T::choose::<Given<'_>, _>(
                (self, rows, packed, &mut *labels, &mut *scratch, &mut work),
                |(this, rows, packed, labels, scratch, work)| {
                    this.by_matrix_unit(rows, packed, labels, scratch, work)
                },
                |_| false,
            );
        #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
        let by_matrix_unit = false;
        let by_sketches = |isa| self.by_sketches(isa, rows, packed, (labels, scratch), &mut work);
        let labeled = by_matrix_unit || self.sketches_pay.is_some_and(by_sketches);
        idle().push(work);
        labeled
    }

    #[cfg(test)]
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
