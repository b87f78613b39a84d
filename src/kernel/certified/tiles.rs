//! Labels of rows by tiles of low precision, strip by strip.

use std::ops::Range;

use super::decide::Doubts;
use super::engine::Engine;
use super::pack::LowCenters;
use super::remeasure::Remeasured;
use super::rows::GROUP;
use super::strip::{Strip, strip_rows};
use crate::kernel::arbiter::Doubts as ArbiterDoubts;
use crate::kernel::for_each_strip;
use crate::kernel::pack::{PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::rows::Rows;
use crate::tuning::{CERTIFIED_CANDIDATES, CERTIFIED_DOUBT, CERTIFIED_VALUES};

/// Buffers of one worker.
#[derive(Debug, Default)]
pub(in crate::kernel) struct Buffers {
    strip: Strip,
    doubts: Doubts,
    remeasured: Remeasured,
}

/// Labels rows with one engine. Inlined into a function with the instruction set of the engine.
#[inline(always)]
pub(in crate::kernel) fn label<E: Engine>(
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
    open: &mut ArbiterDoubts<f32>,
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
