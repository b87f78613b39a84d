//! Labels of rows by tiles of low precision, strip by strip.

use std::ops::Range;

use super::decide::Doubts;
use super::remeasure::{Problem, Remeasured};
use super::rows::GROUP;
use super::strip::{Strip, strip_rows};
use crate::kernel::arch::engine::{Engine, WithEngine};
use crate::kernel::by_tiles::with_doubts;
use crate::kernel::doubt::Doubts as ArbiterDoubts;
use crate::kernel::scratch::Scratch;
use crate::kernel::strips::for_each_strip;
use crate::rows::Rows;

/// Values of rows among which rows in doubt are collected before they are measured: more rows in doubt share
/// panels, but rows should still be in the second-level cache.
const CERTIFIED_VALUES: usize = 1 << 18;

/// Upper limit of the candidates that are collected, of 8 bytes each.
const CERTIFIED_CANDIDATES: usize = 1 << 16;

/// Buffers of one worker.
#[derive(Debug, Default)]
pub(in crate::kernel) struct Buffers {
    strip: Strip,
    doubts: Doubts,
    remeasured: Remeasured,
}

/// Labels rows by tiles with the engine that `run` chooses. Returns the number of candidates that were measured again.
pub(super) fn nearest_with(
    problem: Problem<'_>,
    labels: &mut [u32],
    scratch: &mut Scratch<f32>,
    buffers: &mut Buffers,
    run: impl FnOnce(ByTiles<'_>) -> usize,
) -> usize {
    with_doubts(problem.packed, scratch, |open, scratch| {
        let candidates = run(ByTiles { problem, labels, open, buffers, scratch });
        open.settle(Rows::Dense(problem.rows), problem.packed, labels, scratch);
        candidates
    })
}

/// Rows to be labeled by tiles. The output is the number of candidates that were measured again.
pub(super) struct ByTiles<'a> {
    problem: Problem<'a>,
    labels: &'a mut [u32],
    /// Rows in doubt after this.
    open: &'a mut ArbiterDoubts<f32>,
    buffers: &'a mut Buffers,
    scratch: &'a mut Scratch<f32>,
}

impl WithEngine for ByTiles<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<E: Engine>(self, engine: &E) -> usize {
        label(engine, self.problem, self.labels, self.open, self.buffers, self.scratch)
    }
}

/// Labels rows, and notes those in doubt.
#[inline(always)]
fn label<E: Engine>(
    engine: &E,
    problem: Problem<'_>,
    labels: &mut [u32],
    open: &mut ArbiterDoubts<f32>,
    buffers: &mut Buffers,
    scratch: &mut Scratch<f32>,
) -> usize {
    let Problem { rows, packed, low } = problem;
    let Buffers { strip, doubts, remeasured } = buffers;
    doubts.clear();
    let (mut start, mut kept, mut candidates) = (0, 0, 0);
    while start < rows.rows() {
        let end = rows.rows().min(start + strip_rows(engine, low));
        let here = rows.slice(start, end);
        if strip.load(engine, low, packed, here) {
            strip.sweep(engine, low);
            doubts.decide(engine, low, &strip.minima, start, &mut labels[start..end]);
        } else {
            plain(problem, start..end, labels, open, scratch);
        }
        start = end;
        // Rows in doubt are measured while they are in the cache.
        let full =
            (start - kept) * low.dim >= CERTIFIED_VALUES || doubts.candidates.len() >= CERTIFIED_CANDIDATES;
        if full || start == rows.rows() {
            candidates += doubts.candidates.len() + doubts.open.len() * GROUP * low.panels;
            remeasured.label(engine, problem, doubts, labels, open);
            for &first in &doubts.open {
                let range = first as usize..rows.rows().min(first as usize + GROUP);
                plain(problem, range, labels, open, scratch);
            }
            doubts.clear();
            kept = start;
        }
    }
    candidates
}

/// Labels a range of the rows by `f32` tile values.
fn plain(
    Problem { rows, packed, .. }: Problem<'_>,
    range: Range<usize>,
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
