//! Certified low precision: labels that bounds prove, and the arbiter's where they do not.
//!
//! Where a processor multiplies bytes fast, rows and centers are sketched ([`sketched`](super::sketched)). Where it has a
//! matrix unit, tiles of rows and centers are compared:
//!
//! 1. Centers are rounded to low precision once ([`pack`]), rows strip by strip ([`rows`]). An [`Engine`]
//!    multiplies tiles of both ([`strip`]).
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

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use self::decide::Doubts;
use self::engine::{Engine, Product};
pub(super) use self::pack::LowCenters;
use self::remeasure::Remeasured;
use self::rows::GROUP;
use self::strip::{Strip, strip_rows};
use super::isa::Isa;
use super::pack::{PackedCenters, Scratch};
use super::sketched::SketchedCenters;
use super::tier::Compute;
use super::{for_each_strip, nearest_by_tiles};
use crate::matrix::MatRef;
use crate::rows::Rows;
use crate::tuning::{
    CERTIFIED_CANDIDATES, CERTIFIED_DOUBT, CERTIFIED_ROWS, CERTIFIED_TRIAL, CERTIFIED_VALUES, certified_pays,
    few_sketches_pay, sketch_candidates,
};

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

/// Buffers of one worker.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    strip: Strip,
    doubts: Doubts,
    remeasured: Remeasured,
}

/// Labels rows by tiles of low precision, as [`nearest`](super::nearest) does. Returns false if the processor has no tiles,
/// or they do not suit the rows.
#[allow(unused_variables, reason = "only one target has tiles")]
pub(super) fn by_tiles(
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

/// Labels rows with one engine. Inlined into a function with the instruction set of the engine.
#[inline(always)]
pub(super) fn label<E: Engine>(
    engine: &E,
    low: &LowCenters,
    rows: MatRef<'_, f32>,
    packed: &PackedCenters<f32>,
    labels: &mut [u32],
    scratch: &mut Scratch<f32>,
) {
    let mut buffers = std::mem::take(&mut scratch.certified);
    let mut open = std::mem::take(&mut scratch.doubts);
    let Buffers { strip, doubts, remeasured } = &mut buffers;
    doubts.clear();
    open.begin(packed);
    let (mut start, mut kept, mut candidates) = (0, 0, 0);
    while start < rows.rows() {
        let end = rows.rows().min(start + strip_rows(engine, low));
        let here = rows.slice(start, end);
        if strip.load(engine, low, packed, here) {
            strip.sweep(engine, low);
            doubts.decide(engine, low, &strip.minima, start, &mut labels[start..end]);
        } else {
            plain(rows, start..end, packed, labels, &mut open, scratch);
        }
        start = end;
        // Rows in doubt are measured while they are in the cache.
        let full =
            (start - kept) * low.dim >= CERTIFIED_VALUES || doubts.candidates.len() >= CERTIFIED_CANDIDATES;
        if full || start == rows.rows() {
            candidates += doubts.candidates.len() + doubts.open.len() * GROUP * low.panels;
            remeasured.label(engine, low, packed, rows, doubts, (labels, &mut open));
            for &first in &doubts.open {
                let range = first as usize..rows.rows().min(first as usize + GROUP);
                plain(rows, range, packed, labels, &mut open, scratch);
            }
            doubts.clear();
            kept = start;
        }
    }
    packed.certified.count(rows.rows(), candidates, CERTIFIED_DOUBT * low.panels as f64);
    open.settle(Rows::Dense(rows), packed, labels, scratch);
    scratch.doubts = open;
    scratch.certified = buffers;
}

/// Labels a range of the rows by `f32` tile values.
fn plain(
    rows: MatRef<'_, f32>,
    range: Range<usize>,
    packed: &PackedCenters<f32>,
    labels: &mut [u32],
    open: &mut super::Doubts<f32>,
    scratch: &mut Scratch<f32>,
) {
    let first = range.start;
    let some = Rows::Dense(rows.slice(range.start, range.end));
    for_each_strip(some, packed, scratch, |range, strip, scratch| {
        let range = first + range.start..first + range.end;
        strip.argmin(packed, open, scratch, &mut labels[range.clone()]);
        open.note_strip(Rows::Dense(rows), range, packed, scratch);
    });
}
