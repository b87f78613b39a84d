//! Tile kernels for sparse rows: one row against a panel of centers, one stored value at a time.
//!
//! Each column of a panel is contiguous, so a stored value is multiplied with whole vectors of centers,
//! without gather instructions. The tile value is the same chain as for a dense row without its zeros, which
//! would not change the value.

use super::picked::weigh;
use crate::float::Float;
use crate::kernel::comparison::{Gathered, PanelComparison};
use crate::kernel::pack::PackedCenters;
use crate::kernel::scratch::Scratch;
use crate::kernel::simd::{Epilogue, Simd, Two};
use crate::kernel::tier::Compute;
use crate::rows::SparseRef;

/// Computes the tile values of one row and `NV` vectors of centers, starting at center `first`.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn micro<S: Simd, const NV: usize>(
    packed: &PackedCenters<S::T>,
    (columns, values): (&[i32], &[S::T]),
    first: usize,
) -> [S::V; NV]
where
    S::T: Compute,
{
    let (width, dim) = (NV * S::LANES, packed.dim);
    let panel = &packed.data[first * dim..(first + width) * dim];
    let norms = &packed.norms[first..first + width];
    // SAFETY: `norms` and each of the `dim` columns of the panel hold `NV` vectors.
    unsafe {
        let mut acc = [S::splat(S::T::ZERO); NV];
        for (v, acc) in acc.iter_mut().enumerate() {
            *acc = S::load(norms.as_ptr().add(v * S::LANES));
        }
        for (&column, &x) in columns.iter().zip(values) {
            // Columns were checked when the rows were created, but other code may have written to the memory
            // since.
            let column = column.cast_unsigned() as usize;
            assert!(column < dim, "column {column} of {dim}");
            let center = panel.as_ptr().add(column * width);
            let x = S::splat(x * packed.scale);
            for (v, acc) in acc.iter_mut().enumerate() {
                *acc = S::fmadd(x, S::load(center.add(v * S::LANES)), *acc);
            }
        }
        acc
    }
}

/// The destination of the tile values of a row.
enum Sink {
    /// Update the running minima.
    State,
    /// Store the values of the panel.
    Tile,
}

/// Compares all `rows` with `NV` vectors of centers, starting at center `first`.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn panel<S: Simd, E: Epilogue<S>, const NV: usize>(
    packed: &PackedCenters<S::T>,
    rows: SparseRef<'_, S::T>,
    scratch: &mut Scratch<S::T>,
    first: usize,
    sink: &Sink,
) where
    S::T: Compute,
{
    let (state, width) = (E::VECTORS * S::LANES, NV * S::LANES);
    assert!(scratch.state.len() >= rows.rows() * state && scratch.tile.len() >= rows.rows() * width);
    // SAFETY: this function requires the instruction set, too. State and tile are as long as asserted.
    unsafe {
        let mut ids = [S::splat(S::T::ZERO); NV];
        for (v, id) in ids.iter_mut().enumerate() {
            *id = S::splat(S::T::from_f32((first / S::LANES + v) as f32));
        }
        for (r, row) in rows.iter().enumerate() {
            let acc = micro::<S, NV>(packed, row, first);
            match sink {
                Sink::State => E::absorb(scratch.state.as_mut_ptr().add(r * state), &acc, &ids),
                Sink::Tile => store::<S, NV>(acc, &mut scratch.tile[r * width..][..width]),
            }
        }
    }
}

/// Writes `NV` vectors.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn store<S: Simd, const NV: usize>(values: [S::V; NV], out: &mut [S::T]) {
    assert!(out.len() >= NV * S::LANES);
    for (v, value) in values.into_iter().enumerate() {
        // SAFETY: `out` is as long as asserted.
        unsafe { S::store(out.as_mut_ptr().add(v * S::LANES), value) };
    }
}

/// Compares rows with one panel, full or narrower.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn any_panel<S: Simd, E: Epilogue<S>>(
    packed: &PackedCenters<S::T>,
    rows: SparseRef<'_, S::T>,
    scratch: &mut Scratch<S::T>,
    first: usize,
    sink: &Sink,
) where
    S::T: Compute,
{
    // SAFETY: all that `panel` requires is the instruction set, which this function requires, too.
    unsafe {
        match (packed.norms.len() - first).min(packed.width) / S::LANES {
            1 => panel::<S, E, 1>(packed, rows, scratch, first, sink),
            2 => panel::<S, E, 2>(packed, rows, scratch, first, sink),
            3 => panel::<S, E, 3>(packed, rows, scratch, first, sink),
            4 => panel::<S, E, 4>(packed, rows, scratch, first, sink),
            5 => panel::<S, E, 5>(packed, rows, scratch, first, sink),
            6 => panel::<S, E, 6>(packed, rows, scratch, first, sink),
            7 => panel::<S, E, 7>(packed, rows, scratch, first, sink),
            _ => panel::<S, E, 8>(packed, rows, scratch, first, sink),
        }
    }
}

/// Compares a strip of rows with all panels. The running minima are left in `scratch.state`.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn sweep<S: Simd, E: Epilogue<S>>(
    packed: &PackedCenters<S::T>,
    rows: SparseRef<'_, S::T>,
    scratch: &mut Scratch<S::T>,
) where
    S::T: Compute,
{
    scratch.fit(packed);
    scratch.state[..rows.rows() * E::VECTORS * S::LANES].fill(S::T::INFINITY);
    for first in (0..packed.norms.len()).step_by(packed.width) {
        // SAFETY: this function requires the instruction set, as `any_panel` does.
        unsafe { any_panel::<S, E>(packed, rows, scratch, first, &Sink::State) };
    }
}

/// Writes the tile values of a strip of rows against panel `at` to `scratch.tile`.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn values<S: Simd>(
    packed: &PackedCenters<S::T>,
    rows: SparseRef<'_, S::T>,
    scratch: &mut Scratch<S::T>,
    at: usize,
) where
    S::T: Compute,
{
    scratch.fit(packed);
    // SAFETY: this function requires the instruction set, as `any_panel` does.
    unsafe { any_panel::<S, Two>(packed, rows, scratch, at * packed.width, &Sink::Tile) };
}

/// Implements [`lowest`](crate::kernel::bounded::lowest).
///
/// # Safety
/// The processor must support the instruction set, and `NV` must be that of its tier.
#[inline(always)]
pub(in crate::kernel) unsafe fn lowest<S: Simd, const NV: usize>(
    packed: &PackedCenters<S::T>,
    rows: SparseRef<'_, S::T>,
    gathered: &mut Gathered<S::T>,
    comparison: &mut PanelComparison<'_, S::T>,
) where
    S::T: Compute,
{
    let first = comparison.panel * packed.width;
    // SAFETY: this function requires the instruction set, as `compare` does.
    unsafe {
        match ((packed.norms.len() - first) / S::LANES).min(NV) {
            1 => compare::<S, 1>(packed, rows, gathered, comparison, first),
            2 => compare::<S, 2>(packed, rows, gathered, comparison, first),
            _ => compare::<S, NV>(packed, rows, gathered, comparison, first),
        }
    }
}

/// Compares the picked rows with `NV` vectors of centers, starting at center `first`.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn compare<S: Simd, const NV: usize>(
    packed: &PackedCenters<S::T>,
    rows: SparseRef<'_, S::T>,
    gathered: &mut Gathered<S::T>,
    comparison: &mut PanelComparison<'_, S::T>,
    first: usize,
) where
    S::T: Compute,
{
    let Gathered { tile, sq_norm, .. } = gathered;
    let tile = &mut tile[..NV * S::LANES];
    for i in 0..comparison.picked.len() {
        // SAFETY: `micro`, `store` and `weigh` require only the instruction set, as this function does, and
        // `tile` holds `NV` vectors.
        unsafe {
            store::<S, NV>(micro::<S, NV>(packed, rows.row(comparison.picked[i] as usize), first), tile);
            weigh::<S, NV>(tile, i, first, sq_norm, comparison);
        }
    }
}

/// The squared distance of a row to a center with squared length `sq_norm`, both multiplied by `scale`.
///
/// It is the sum of squared differences where values are stored, plus the rest of the center's squared
/// length. Differences and sums are `f64`. Both subtracted sums run over ascending columns, so a row that
/// equals a center has distance 0. The result is never negative, and its error is at most one rounding of
/// `sq_norm` per column. If the error could be relatively large, [`sq_dist_in_full`] is used.
#[inline(always)]
pub(in crate::kernel) fn sq_dist<T: Float>(
    (columns, values): (&[i32], &[T]),
    center: &[T],
    sq_norm: f64,
    scale: T,
) -> f64 {
    let (mut apart, mut met) = (0.0, 0.0);
    for (&column, &x) in columns.iter().zip(values) {
        let (x, c) = ((x * scale).to_f64(), (center[column as usize] * scale).to_f64());
        apart += (x - c) * (x - c);
        met += c * c;
    }
    let rest = sq_norm - met;
    // Keeps NaN: it means that a length overflowed f64.
    let sq_dist = apart + if rest < 0.0 { 0.0 } else { rest };
    if sq_dist < sq_norm * NEAR { sq_dist_in_full((columns, values), center, scale) } else { sq_dist }
}

/// The share of a center's squared length below which a squared distance is recomputed in full.
const NEAR: f64 = 1.0 / (1u64 << 20) as f64;

/// Like [`sq_dist`], over all columns: for rows near a center far from the origin, and for lengths that
/// overflow `f64` while distances may not.
#[cold]
pub(in crate::kernel) fn sq_dist_in_full<T: Float>(
    (columns, values): (&[i32], &[T]),
    center: &[T],
    scale: T,
) -> f64 {
    let mut stored = columns.iter().zip(values).peekable();
    center.iter().enumerate().fold(0.0, |sum, (column, c)| {
        let x = stored.next_if(|(at, _)| **at as usize == column).map_or(0.0, |(_, &x)| (x * scale).to_f64());
        sum + (x - (*c * scale).to_f64()).powi(2)
    })
}
