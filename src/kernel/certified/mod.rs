//! Certified low precision: labels by products of low precision, proven to be those of the arbiter.
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
//! Bytes suit rows of whole numbers from 0 to 255, however they are stored. bf16 suits all finite rows. Strips of
//! other rows go to the `f32` kernel.

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
use super::for_each_strip;
use super::isa::Isa;
use super::pack::{PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::rows::Rows;
use crate::tuning::{
    CERTIFIED_CANDIDATES, CERTIFIED_DOUBT, CERTIFIED_ROWS, CERTIFIED_TRIAL, CERTIFIED_VALUES, certified_pays,
};

/// Which engine labels rows, and the centers in its low precision, made when enough rows have come.
#[derive(Debug, Default)]
pub(super) struct Certified {
    tier: Option<Isa>,
    /// Rows that have come so far.
    met: AtomicUsize,
    bytes: OnceLock<Option<LowCenters>>,
    halves: OnceLock<Option<LowCenters>>,
    /// Rows labeled so far, and candidates among them. Too many candidates end it.
    rows: AtomicUsize,
    candidates: AtomicUsize,
    stopped: AtomicBool,
}

impl Certified {
    /// For `k` dense centers of `dim` columns and the chosen tier.
    pub(super) fn new(isa: Isa, k: usize, dim: usize) -> Self {
        let tier = (isa.is_certified() && certified_pays(k, dim)).then_some(isa);
        Self { tier, ..Self::default() }
    }

    /// The centers for a product, if they pay off for the rows so far and `rows` more.
    fn centers(&self, packed: &PackedCenters<f32>, product: Product, rows: usize) -> Option<&LowCenters> {
        if self.stopped.load(Relaxed) || self.met.fetch_add(rows, Relaxed) + rows < CERTIFIED_ROWS {
            return None;
        }
        let centers = match product {
            Product::Bytes => &self.bytes,
            Product::Bf16 => &self.halves,
        };
        centers.get_or_init(|| LowCenters::new(packed, product)).as_ref()
    }

    /// Counts what was measured again, and stops if it is too much.
    fn count(&self, low: &LowCenters, rows: usize, candidates: usize) {
        let rows = self.rows.fetch_add(rows, Relaxed) + rows;
        let candidates = self.candidates.fetch_add(candidates, Relaxed) + candidates;
        if rows >= CERTIFIED_TRIAL && candidates as f64 > CERTIFIED_DOUBT * rows as f64 * low.panels as f64 {
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

/// Labels rows with low precision if that pays off, as [`nearest`](super::nearest) does. Returns false if it does
/// not.
#[allow(unused_variables, reason = "which arms exist depends on the target")]
pub(super) fn nearest(
    rows: MatRef<'_, f32>,
    packed: &PackedCenters<f32>,
    labels: &mut [u32],
    scratch: &mut Scratch<f32>,
) -> bool {
    let Some(tier) = packed.certified.tier else { return false };
    // The first row shows what to try; strips of other rows go to the `f32` kernel.
    let product = match tier {
        _ if rows.rows() == 0 => return false,
        _ if self::rows::are_bytes(rows.row(0)) => Product::Bytes,
        Isa::Amx => Product::Bf16,
        _ => return false,
    };
    let Some(low) = packed.certified.centers(packed, product, rows.rows()) else { return false };
    match tier {
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Isa::Avx512Vnni => {
            super::arch::vnni::nearest(low, rows, packed, labels, scratch);
            true
        }
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Isa::Amx => {
            super::arch::amx::nearest(low, rows, packed, labels, scratch);
            true
        }
        _ => false,
    }
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
    packed.certified.count(low, rows.rows(), candidates);
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
