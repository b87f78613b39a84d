//! This module knows which rows may lie near others: most pairs are ruled out by a comparison of whole vectors, the rest are measured.
//!
//! Rows that are packed in a common [`Frame`](super::pack::Frame) have tile values that are comparable from one packing to the next, and with
//! norms that are made smaller by all that rounding may do, `value + |x'|^2` is a lower bound of the squared distance. Whoever keeps a
//! reach for every row loses nothing that lies within it.

use super::pack::{PackedCenters, Scratch, moved};
use super::table::Compute;
use crate::float::Float;
use crate::rows::Rows;

/// Buffers of a worker.
#[derive(Debug, Default)]
pub(crate) struct Near<T: Float> {
    scratch: Scratch<T>,
    base: Vec<T>,
    limits: Vec<T>,
    found: Vec<u32>,
}

/// Limits of packed rows, as the kernel compares them.
#[derive(Debug)]
pub(crate) struct Limits<T>(Vec<T>);

/// Sums that run side by side.
const LANES: usize = 16;

impl<T: Compute> PackedCenters<T> {
    /// As `sq_norm`, to rounding: sums run side by side.
    fn sq_norm_fast(&self, rows: Rows<'_, T>, r: usize) -> f64 {
        let Rows::Dense(dense) = rows else { return self.sq_norm(rows, r) };
        let mut sums = [0.0; LANES];
        for (x, s) in dense.row(r).chunks(LANES).zip(self.shift.chunks(LANES)) {
            for ((sum, &x), &s) in sums.iter_mut().zip(x).zip(s) {
                let moved = moved(x, s, self.scale).to_f64();
                *sum += moved * moved;
            }
        }
        sums.iter().sum()
    }

    /// A limit below which lie all lower bounds of squared distances up to `reach`; a negative reach has none.
    fn limit(&self, reach: f64) -> T {
        if reach < 0.0 {
            return T::from_f64(f64::NEG_INFINITY);
        }
        let scale = self.scale.to_f64();
        // What is too small for T may have been lost, in every column.
        let least = if size_of::<T>() == 4 { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE };
        T::from_f64(reach * scale * scale * (1.0 + 4.0 * T::EPSILON) + (self.dim + 8) as f64 * least)
    }

    /// Limits for the packed rows, given what each of them reaches; a negative reach asks for nothing.
    pub(crate) fn limits(&self, reach: impl Iterator<Item = f64>) -> Limits<T> {
        let mut limits: Vec<T> = reach.map(|reach| self.limit(reach)).collect();
        assert_eq!(limits.len(), self.k, "one reach for each packed row");
        limits.resize(self.norms.len(), T::from_f64(f64::NEG_INFINITY));
        Limits(limits)
    }
}

/// Calls `f(row, packed row, squared distance)` for every pair that lies within the reach of the row or of the packed row, and for few others;
/// `f` gives the reach of the row from now on. Squared distances are by difference, in `f64`.
///
/// `reach` has one squared distance a row: negative where nothing is asked for. Values must be finite.
///
/// # Panics
/// When lengths do not fit.
pub(crate) fn near<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    reach: &[f64],
    others: &Limits<T>,
    near: &mut Near<T>,
    mut f: impl FnMut(usize, usize, f64) -> f64,
) {
    assert!(reach.len() == rows.rows() && others.0.len() == packed.norms.len(), "one reach for each row");
    let Near { scratch, base, limits, found } = near;
    super::for_each_strip(rows, packed, scratch, |range, strip, scratch| {
        base.clear();
        let share = 1.0 - packed.slack - T::EPSILON;
        base.extend(range.clone().map(|r| T::from_f64(packed.sq_norm_fast(rows, r) * share)));
        limits.clear();
        limits.extend(reach[range.clone()].iter().map(|&reach| packed.limit(reach)));
        for panel in 0..packed.k.div_ceil(packed.width) {
            strip.values(packed, scratch, panel);
            let first = panel * packed.width;
            let stride = packed.panel_width(first);
            let others = &others.0[first..first + stride];
            let room = strip.rows * stride + packed.table.lanes;
            if found.len() < room {
                found.resize(room, 0);
            }
            let n = (packed.table.below)(&scratch.tile, base, limits, others, found);
            for &place in &found[..n] {
                let (i, c) = (place as usize / stride, place as usize % stride);
                let value = scratch.tile[place as usize] + base[i];
                // An earlier one may have made the row content with less.
                if value < limits[i] || value < others[c] {
                    let (r, j) = (range.start + i, first + c);
                    limits[i] = packed.limit(f(r, j, packed.sq_dist(rows, r, j)));
                }
            }
        }
    });
}
