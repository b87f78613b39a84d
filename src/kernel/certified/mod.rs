//! Certified low precision: labels that bounds prove, and the arbiter's where they do not.
//!
//! Where a processor multiplies bytes fast, rows and centers are sketched ([`sketched`](super::sketched)). Where it has a
//! matrix unit, tiles of rows and centers are compared:
//!
//! 1. Centers are rounded to low precision once ([`pack`]), rows strip by strip ([`rows`]). An [`Engine`]
//!    multiplies tiles of both ([`tiles`], [`strip`]).
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
//! Tiles of bytes suit rows of whole numbers from 0 to 255, however they are stored. Tiles of bf16 suit all finite rows.
//! Strips of other rows go to the `f32` kernel.

mod bound;
mod decide;
pub(super) mod engine;
mod fold;
mod pack;
mod remeasure;
mod rows;
mod strip;
#[cfg(test)]
mod tests;
mod tiles;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use self::engine::Product;
pub(super) use self::pack::LowCenters;
pub(super) use self::tiles::{Buffers, label};
use super::isa::Isa;
use super::nearest_by_tiles;
use super::pack::{PackedCenters, Scratch};
use super::sketched::SketchedCenters;
use super::tier::Compute;
use crate::matrix::MatRef;
use crate::rows::Rows;
use crate::tuning::{CERTIFIED_ROWS, CERTIFIED_TRIAL, certified_pays, few_sketches_pay, sketch_candidates};

/// Which engine labels rows, and the centers in its low precision, made when enough rows have come.
#[derive(Debug, Default)]
pub(super) struct Certified {
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
}

impl Certified {
    /// For `k` dense centers of `dim` columns and the chosen tier.
    pub(super) fn new(isa: Isa, k: usize, dim: usize) -> Self {
        Self {
            tiles_pay: isa == Isa::Amx && certified_pays(k, dim),
            sketches_pay: (isa.multiplies_bytes() && few_sketches_pay(k, dim)).then_some(isa),
            ..Self::default()
        }
    }

    /// Whether low precision pays off for the rows so far and `rows` more.
    pub(super) fn pays(&self, rows: usize) -> bool {
        rows > 0
            && (self.tiles_pay || self.sketches_pay.is_some())
            && !self.stopped.load(Relaxed)
            && self.met.fetch_add(rows, Relaxed) + rows >= CERTIFIED_ROWS
    }

    /// The centers for a product, if they suit it.
    fn centers(&self, packed: &PackedCenters<f32>, product: Product) -> Option<&LowCenters> {
        let centers = match product {
            Product::Bytes => &self.bytes,
            Product::Bf16 => &self.halves,
        };
        centers.get_or_init(|| LowCenters::new(packed, product)).as_ref()
    }

    /// Counts what was measured again, and stops if it is more than `most` per row.
    fn count(&self, rows: usize, candidates: usize, most: f64) {
        let rows = self.rows.fetch_add(rows, Relaxed) + rows;
        let candidates = self.candidates.fetch_add(candidates, Relaxed) + candidates;
        if rows >= CERTIFIED_TRIAL && candidates as f64 > most * rows as f64 {
            self.stopped.store(true, Relaxed);
        }
    }
}

/// Labels rows by tiles of low precision, as [`nearest`](super::nearest) does. Returns false if the processor has no tiles,
/// or they do not suit the rows.
#[allow(unused_variables, reason = "only one target has tiles")]
pub(super) fn by_matrix_unit(
    rows: MatRef<'_, f32>,
    packed: &PackedCenters<f32>,
    labels: &mut [u32],
    scratch: &mut Scratch<f32>,
) -> bool {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    if packed.certified.tiles_pay {
        // The first row shows what to try; strips of other rows go to the `f32` kernel.
        let product = if self::rows::are_bytes(rows.row(0)) { Product::Bytes } else { Product::Bf16 };
        if let Some(low) = packed.certified.centers(packed, product) {
            super::arch::amx::nearest(low, rows, packed, labels, scratch);
            return true;
        }
    }
    false
}

/// Labels rows by sketches, as [`nearest`](super::nearest) does. Returns false if the centers have none.
pub(super) fn by_sketches<T: Compute>(
    rows: MatRef<'_, T>,
    packed: &PackedCenters<T>,
    labels: &mut [u32],
    scratch: &mut Scratch<T>,
) -> bool {
    let Some(isa) = packed.certified.sketches_pay else { return false };
    let centers = packed.certified.sketches.get_or_init(|| SketchedCenters::new(packed.centers(), isa));
    let Some(centers) = centers else { return false };
    let mut buffers = std::mem::take(&mut scratch.labeling);
    let candidates = centers.label(rows, packed, labels, &mut buffers);
    packed.certified.count(rows.rows(), candidates, sketch_candidates(packed.k) as f64);
    if !buffers.open.is_empty() {
        let mut copies = std::mem::take(&mut scratch.open);
        copies.clear(rows.cols());
        buffers.open.iter().for_each(|&row| copies.push(Rows::Dense(rows), row as usize));
        let mut found = vec![0; buffers.open.len()];
        nearest_by_tiles(copies.rows(), packed, &mut found, scratch);
        buffers.open.iter().zip(found).for_each(|(&row, label)| labels[row as usize] = label);
        scratch.open = copies;
    }
    scratch.labeling = buffers;
    true
}
