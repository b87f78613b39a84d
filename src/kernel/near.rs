//! Finds pairs of rows within a given distance: vector comparisons exclude most pairs, the others are
//! measured.
//!
//! Rows packed in a common [`Frame`](super::frame::Frame) have comparable tile values. Their norms are reduced
//! by the largest possible rounding error, so `value + |x'|^2` is a lower bound on the squared distance. A
//! search with one reach per row therefore misses no pair within reach.

use super::frame::moved;
use super::operations;
use super::pack::PackedCenters;
use super::scratch::Scratch;
use super::strips::for_each_strip;
use super::tier::Compute;
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

/// Limits of packed rows, in the form that the kernel compares.
#[derive(Debug)]
pub(crate) struct Limits<T>(Vec<T>);

/// Number of partial sums computed in parallel.
const LANES: usize = 16;

impl<T: Compute> PackedCenters<T> {
    /// Like `sq_norm`, up to rounding: partial sums are computed in parallel.
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

    /// A value above all lower bounds of squared distances up to `reach`. Nothing is below the limit of a
    /// negative reach.
    fn limit(&self, reach: f64) -> T {
        if reach < 0.0 {
            return T::from_f64(f64::NEG_INFINITY);
        }
        let scale = self.scale.to_f64();
        // Values below the smallest normal number of T may have underflowed, in every column.
        let least = if T::WIDE { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
        T::from_f64(reach * scale * scale * (1.0 + 4.0 * T::EPSILON) + (self.dim + 8) as f64 * least)
    }

    /// Limits of the packed rows from their reaches. A negative reach matches nothing.
    pub(crate) fn limits(&self, reach: impl Iterator<Item = f64>) -> Limits<T> {
        let mut limits: Vec<T> = reach.map(|reach| self.limit(reach)).collect();
        assert_eq!(limits.len(), self.k, "one reach per packed row");
        limits.resize(self.norms.len(), T::from_f64(f64::NEG_INFINITY));
        Limits(limits)
    }
}

/// Calls `f(row, packed row, squared distance)` for every pair within the reach of the row or of the packed
/// row, and for few other pairs. `f` returns the new reach of the row. Squared distances are computed by
/// difference in `f64`.
///
/// `reach` holds one squared distance per row; a negative value matches nothing. All values must be finite.
///
/// # Panics
/// If lengths do not match.
pub(crate) fn near<T: Compute>(
    rows: Rows<'_, T>,
    packed: &PackedCenters<T>,
    reach: &[f64],
    others: &Limits<T>,
    near: &mut Near<T>,
    mut f: impl FnMut(usize, usize, f64) -> f64,
) {
    assert!(reach.len() == rows.rows() && others.0.len() == packed.norms.len(), "one reach per row");
    let Near { scratch, base, limits, found } = near;
    for_each_strip(rows, packed, scratch, |range, strip, scratch| {
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
            let room = strip.rows * stride + packed.tier.lanes;
            if found.len() < room {
                found.resize(room, 0);
            }
            let n = operations::below(packed.tier, &scratch.tile, base, limits, others, found);
            for &place in &found[..n] {
                let (i, c) = (place as usize / stride, place as usize % stride);
                let value = scratch.tile[place as usize] + base[i];
                // An earlier pair of this chunk may have reduced the row's reach.
                if value < limits[i] || value < others[c] {
                    let (r, j) = (range.start + i, first + c);
                    limits[i] = packed.limit(f(r, j, packed.sq_dist(rows, r, j)));
                }
            }
        }
    });
}
