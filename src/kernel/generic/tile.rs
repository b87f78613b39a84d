//! This module knows the tile loop for centers in lanes: a few rows, broadcast value by value, against a panel of centers.
//!
//! ```text
//! for each panel of centers                      (stays in the second-level cache for a strip of rows)
//!   for each block of columns                    (panel and block stay in the first-level cache)
//!     for each MR rows of the strip              (micro tile: MR x NV accumulators, all in registers)
//!       for each column: acc[r][v] += x'[r] * panel[v]
//!       last block: fold the accumulators into the rows' running minima; else park them
//! ```
//! What the code adds to this: rows are copied into blocks of a constant stride, so that every address in the micro tile is one pointer
//! plus a constant; the last panel may be narrower; no row by center matrix is ever written.

use super::simd::{Epilogue, Simd};
use crate::float::Float;
use crate::kernel::aligned::LINE;
use crate::kernel::pack::{DEEP, PackedCenters, SHALLOW, Scratch};
use crate::kernel::table::Compute;

/// What a micro tile adds, and where its accumulators start and end.
#[derive(Clone, Copy)]
struct Depth {
    /// Columns to add.
    columns: usize,
    /// Start from the norms, not from parked accumulators.
    first: bool,
    /// Hand over to the epilogue, do not park.
    last: bool,
}

/// `MR` rows against `NV` vectors of centers, over one block of columns, or over the `listed` ones if `SKIP`. `STRIDE` is the bytes
/// between two rows.
///
/// # Safety
/// `x` points to `MR` rows, `panel` to `depth.columns` times `NV` vectors, `norms` to `NV` vectors, `tile` to `MR` rows of `NV` vectors,
/// `state` to `MR` rows of the epilogue's vectors; `listed` are below `depth.columns`; the processor has the instruction set.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "registers, not a data structure")]
unsafe fn micro<
    S: Simd,
    E: Epilogue<S>,
    const MR: usize,
    const NV: usize,
    const STRIDE: usize,
    const SKIP: bool,
>(
    x: *const S::T,
    panel: *const S::T,
    norms: *const S::T,
    tile: *mut S::T,
    state: *mut S::T,
    depth: Depth,
    listed: &[u16],
    id: usize,
) {
    let width = NV * S::LANES;
    let stride = STRIDE / size_of::<S::T>();
    // SAFETY: all offsets stay within what the caller promises.
    unsafe {
        let mut acc = [[S::splat(S::T::ZERO); NV]; MR];
        for (r, row) in acc.iter_mut().enumerate() {
            for (v, a) in row.iter_mut().enumerate() {
                *a = S::load(
                    if depth.first { norms } else { tile.add(r * width).cast_const() }.add(v * S::LANES),
                );
            }
        }
        let columns = if SKIP { listed.len() } else { depth.columns };
        for i in 0..columns {
            let t = if SKIP { usize::from(*listed.get_unchecked(i)) } else { i };
            let (p, q) = (panel.add(t * width), x.add(t));
            let mut c = [S::splat(S::T::ZERO); NV];
            for (v, c) in c.iter_mut().enumerate() {
                *c = S::load(p.add(v * S::LANES));
            }
            for (r, row) in acc.iter_mut().enumerate() {
                let a = S::splat(*q.add(r * stride));
                for (v, acc) in row.iter_mut().enumerate() {
                    *acc = S::fmadd(a, c[v], *acc);
                }
            }
        }
        let mut ids = [S::splat(S::T::ZERO); NV];
        for (v, id_v) in ids.iter_mut().enumerate() {
            *id_v = S::splat(S::T::from_f32((id + v) as f32));
        }
        for (r, row) in acc.iter().enumerate() {
            if depth.last {
                E::absorb(state.add(r * E::VECTORS * S::LANES), row, &ids);
            } else {
                for (v, &a) in row.iter().enumerate() {
                    S::store(tile.add(r * width + v * S::LANES), a);
                }
            }
        }
    }
}

/// The loaded strip's first `rows` rows against one panel of `NV` vectors. With `parked` the values are left in `scratch.tile`.
///
/// # Safety
/// The processor has the instruction set, `scratch` fits `packed`, the panel starts at center `first` and has `NV` vectors.
#[inline(always)]
unsafe fn panel<S: Simd, E: Epilogue<S>, const MR: usize, const NV: usize, const STRIDE: usize>(
    packed: &PackedCenters<S::T>,
    scratch: &mut Scratch<S::T>,
    rows: usize,
    first: usize,
    parked: bool,
) where
    S::T: Compute,
{
    let stride = STRIDE / size_of::<S::T>();
    let block = packed.strip_rows() * stride;
    let width = NV * S::LANES;
    let groups = rows.div_ceil(MR);
    assert!(groups * MR <= packed.strip_rows() && first + width <= packed.norms.len());
    assert!(packed.data.len() >= (first + width) * packed.dim);
    assert!(scratch.x.len() >= block * packed.depth_blocks());
    assert!(scratch.tile.len() >= groups * MR * width);
    assert!(scratch.state.len() >= groups * MR * E::VECTORS * S::LANES);
    assert!(!scratch.skipping || scratch.lengths.len() >= groups * packed.depth_blocks());
    for b in 0..packed.depth_blocks() {
        let column = b * packed.depth;
        let columns = packed.depth.min(packed.dim - column);
        let last = column + columns == packed.dim;
        let depth = Depth { columns, first: b == 0, last: last && !parked };
        // SAFETY: the buffers are as long as asserted above, and a block's columns lie within one row's stride. Listed columns are below
        // `columns`: `zeros::find` made the lists when this strip was loaded for this `packed`.
        unsafe {
            let p = packed.data.as_ptr().add(first * packed.dim + column * width);
            let norms = packed.norms.as_ptr().add(first);
            // The next block of the panel, or of the next panel, lies right behind this one. Every group of rows asks for its share.
            let next = p.wrapping_add(columns * width);
            let line = LINE / size_of::<S::T>();
            let share = (columns * width).div_ceil(groups * line);
            for g in 0..groups {
                for l in g * share..(g + 1) * share {
                    S::prefetch(next.wrapping_add(l * line));
                }
                let x = scratch.x.as_ptr().add(b * block + g * MR * stride);
                let tile = scratch.tile.as_mut_ptr().add(g * MR * width);
                let state = scratch.state.as_mut_ptr().add(g * MR * E::VECTORS * S::LANES);
                let id = first / S::LANES;
                if STRIDE == DEEP && NV > 1 && scratch.skipping {
                    let at = g * packed.depth_blocks() + b;
                    let listed = &scratch.columns[at * packed.depth..][..usize::from(scratch.lengths[at])];
                    micro::<S, E, MR, NV, STRIDE, true>(x, p, norms, tile, state, depth, listed, id);
                } else {
                    micro::<S, E, MR, NV, STRIDE, false>(x, p, norms, tile, state, depth, &[], id);
                }
            }
        }
    }
}

/// One panel, whole (`NV` vectors) or narrower, in the strip's layout.
///
/// # Safety
/// As [`panel()`].
#[inline(always)]
unsafe fn any_panel<S: Simd, E: Epilogue<S>, const MR: usize, const NV: usize>(
    packed: &PackedCenters<S::T>,
    scratch: &mut Scratch<S::T>,
    rows: usize,
    first: usize,
    parked: bool,
) where
    S::T: Compute,
{
    let vectors = ((packed.norms.len() - first) / S::LANES).min(NV);
    // SAFETY: the caller's promise; `vectors` is what is left of the packed centers.
    unsafe {
        match (vectors, packed.is_shallow()) {
            (1, true) => panel::<S, E, MR, 1, SHALLOW>(packed, scratch, rows, first, parked),
            (1, false) => panel::<S, E, MR, 1, DEEP>(packed, scratch, rows, first, parked),
            (2, true) => panel::<S, E, MR, 2, SHALLOW>(packed, scratch, rows, first, parked),
            (2, false) => panel::<S, E, MR, 2, DEEP>(packed, scratch, rows, first, parked),
            (_, true) => panel::<S, E, MR, NV, SHALLOW>(packed, scratch, rows, first, parked),
            (_, false) => panel::<S, E, MR, NV, DEEP>(packed, scratch, rows, first, parked),
        }
    }
}

/// All panels against the loaded strip's first `rows` rows; the running minima end in `scratch.state`.
///
/// # Safety
/// The processor has the instruction set; `packed` has centers in lanes and `MR`, `NV` are its table's; `scratch` fits it.
#[inline(always)]
pub(in crate::kernel) unsafe fn sweep<S: Simd, E: Epilogue<S>, const MR: usize, const NV: usize>(
    packed: &PackedCenters<S::T>,
    scratch: &mut Scratch<S::T>,
    rows: usize,
) where
    S::T: Compute,
{
    let rows = rows.next_multiple_of(MR);
    for state in scratch.state[..rows * E::VECTORS * S::LANES].chunks_exact_mut(S::LANES) {
        // The ids need no start: whoever keeps a value keeps its id.
        state.fill(S::T::INFINITY);
    }
    let mut first = 0;
    while first < packed.norms.len() {
        // SAFETY: the caller's promise.
        unsafe { any_panel::<S, E, MR, NV>(packed, scratch, rows, first, false) };
        first += NV * S::LANES;
    }
}

/// The tile values of the loaded strip's first `rows` rows against panel number `at`, into `scratch.tile`.
///
/// # Safety
/// As [`sweep`].
#[inline(always)]
pub(in crate::kernel) unsafe fn values<S: Simd, const MR: usize, const NV: usize>(
    packed: &PackedCenters<S::T>,
    scratch: &mut Scratch<S::T>,
    rows: usize,
    at: usize,
) where
    S::T: Compute,
{
    let rows = rows.next_multiple_of(MR);
    // SAFETY: the caller's promise.
    unsafe { any_panel::<S, super::simd::Argmin, MR, NV>(packed, scratch, rows, at * NV * S::LANES, true) };
}
