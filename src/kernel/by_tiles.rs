//! Labels by tile values, and by the arbiter where these do not determine them.

use super::doubt::Doubts;
use super::pack::PackedCenters;
use super::scratch::Scratch;
use super::strips::for_each_strip;
use super::tier::Compute;
use crate::rows::Rows;

/// Labels every row with its nearest center.
pub(super) fn nearest_by_tiles<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    labels: &mut [u32],
    scratch: &mut Scratch<T>,
) {
    with_doubts(packed, scratch, |doubts, scratch| {
        for_each_strip(rows, packed, scratch, |range, strip, scratch| {
            strip.argmin(packed, doubts, scratch, &mut labels[range.clone()]);
            doubts.note_strip(rows, range, packed, scratch);
        });
        doubts.settle(rows, packed, labels, scratch);
    });
}

/// Calls `f` with an empty list of doubts, whose memory stays in the scratch, and returns what it returns.
pub(super) fn with_doubts<T: Compute, R>(
    packed: &PackedCenters<T>,
    scratch: &mut Scratch<T>,
    f: impl FnOnce(&mut Doubts<T>, &mut Scratch<T>) -> R,
) -> R {
    let mut doubts = std::mem::take(&mut scratch.doubts);
    doubts.begin(packed);
    let out = f(&mut doubts, scratch);
    scratch.doubts = doubts;
    out
}
