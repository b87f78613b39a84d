//! Tile kernels with centers in the vector lanes: a few rows, broadcast value by value, against a panel of
//! centers.

use crate::float::Float;
use crate::kernel::aligned::LINE;
use crate::kernel::pack::PackedCenters;
use crate::kernel::scratch::{DEEP, SHALLOW, Scratch};
use crate::kernel::simd::{Epilogue, Simd, Two};
use crate::kernel::tier::Compute;

/// The columns that a micro tile adds, and where its accumulators come from and go.
#[derive(Clone, Copy)]
struct Depth<'a> {
    /// Number of columns to add.
    columns: usize,
    /// The columns to add if zeros are skipped.
    listed: &'a [u16],
    /// Start from the norms instead of stored accumulators.
    first: bool,
    /// Pass the accumulators to the epilogue instead of storing them.
    last: bool,
}

/// Compares `MR` rows with `NV` vectors of centers, over one block of columns, or over its listed columns if
/// `SKIP`. `STRIDE` is the number of bytes between two rows.
///
/// # Safety
/// `x` points to `MR` rows, `panel` to `depth.columns` times `NV` vectors, `norms` to `NV` vectors, `tile` to
/// `MR` rows of `NV` vectors, and `state` to `MR` rows of the epilogue's vectors. Listed columns
/// are below `depth.columns`. The processor must support the instruction set.
#[inline(always)]
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
    depth: Depth<'_>,
    id: usize,
) {
    let width = NV * S::LANES;
    let stride = STRIDE / size_of::<S::T>();
    // SAFETY: rows, panel, norms, tile and state are as large as this function requires. `t` is below
    // `depth.columns`, `r` below `MR` and `v` below `NV`.
    unsafe {
        let mut acc = [[S::splat(S::T::ZERO); NV]; MR];
        for (r, row) in acc.iter_mut().enumerate() {
            for (v, a) in row.iter_mut().enumerate() {
                *a = S::load(
                    if depth.first { norms } else { tile.add(r * width).cast_const() }.add(v * S::LANES),
                );
            }
        }
        let columns = if SKIP { depth.listed.len() } else { depth.columns };
        for i in 0..columns {
            let t = if SKIP { usize::from(*depth.listed.get_unchecked(i)) } else { i };
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

/// Compares the first `rows` rows of the loaded strip with one panel of `NV` vectors. With `parked`, the
/// values are left in `scratch.tile`.
///
/// # Safety
/// The strip in `scratch` was loaded for `packed`, with rows `STRIDE` bytes apart, and the panel from center
/// `first` on has `NV` vectors. The processor has the instruction set.
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
        let depth = Depth { columns, listed: &[], first: b == 0, last: last && !parked };
        // SAFETY: the buffers are as long as asserted above, and the columns of a block are within one row's
        // stride. Listed columns are below `columns`: `zeros::find` created the lists when this strip was
        // loaded for this `packed`.
        unsafe {
            let p = packed.data.as_ptr().add(first * packed.dim + column * width);
            let norms = packed.norms.as_ptr().add(first);
            // The next block of this or the next panel follows in memory. Every group of rows prefetches its
            // share.
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
                    let depth = Depth { listed, ..depth };
                    micro::<S, E, MR, NV, STRIDE, true>(x, p, norms, tile, state, depth, id);
                } else {
                    micro::<S, E, MR, NV, STRIDE, false>(x, p, norms, tile, state, depth, id);
                }
            }
        }
    }
}

/// Compares rows with one panel, full (`NV` vectors) or narrower, in the layout of the strip.
///
/// # Safety
/// The strip in `scratch` was loaded for `packed`. The processor has the instruction set.
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
    // SAFETY: this function requires a loaded strip and the instruction set, too, and the panel has `vectors`
    // vectors. The strides are those of shallow and deep strips.
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

/// Compares the first `rows` rows of the loaded strip with all panels. The running minima are left in
/// `scratch.state`.
///
/// # Safety
/// The strip in `scratch` was loaded for `packed`, and `MR` and `NV` are those of its tier. The processor
/// must support the instruction set.
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
        // Ids need no initial value: they are set together with the values. As vectors, because the compiler turns
        // `fill` into scatters, which take a tenth of the time for 64 centers.
        // SAFETY: a chunk has room for one vector, and this function requires the instruction set.
        unsafe { S::store(state.as_mut_ptr(), S::splat(S::T::INFINITY)) };
    }
    let mut first = 0;
    while first < packed.norms.len() {
        // SAFETY: this function requires a loaded strip and the instruction set, as `any_panel` does.
        unsafe { any_panel::<S, E, MR, NV>(packed, scratch, rows, first, false) };
        first += NV * S::LANES;
    }
}

/// Writes the tile values of the first `rows` rows of the loaded strip against panel `at` to `scratch.tile`.
///
/// # Safety
/// The strip in `scratch` was loaded for `packed`, and `MR` and `NV` are those of its tier. The processor
/// must support the instruction set.
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
    // SAFETY: this function requires a loaded strip and the instruction set, as `any_panel` does.
    unsafe { any_panel::<S, Two, MR, NV>(packed, scratch, rows, at * NV * S::LANES, true) };
}
