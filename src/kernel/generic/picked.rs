//! Kernels of bounded sweeps: picked rows against one panel of centers, or against their own centers.
//!
//! [`gather`] copies each picked row to its index in the chunk, so that a row is copied once for all panels.
//! A panel and a few rows fit the first-level cache, so the columns need no blocks.

use crate::float::Float;
use crate::kernel::comparison::{Better, Fine, Gathered, Margins, PanelComparison, ROUNDING};
use crate::kernel::frame::moved;
use crate::kernel::pack::PackedCenters;
use crate::kernel::simd::{MOST_LANES, Simd, sum_of_lanes};
use crate::kernel::tier::Compute;
use crate::matrix::MatRef;

/// Copies the `picked` rows of a chunk as `x' = g (x - s)` to their indices in `to`, with `|x'|^2` (per row).
/// Writes the squared distances to the centers in `slot` (per row) to `own`, in the order of `picked`.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn gather<S: Simd>(
    packed: &PackedCenters<S::T>,
    rows: MatRef<'_, S::T>,
    picked: &[u32],
    slot: &[u32],
    to: &mut Gathered<S::T>,
    own: &mut [S::T],
) where
    S::T: Compute,
{
    let (dim, stride) = (packed.dim, packed.gathered_stride());
    let whole = dim / S::LANES * S::LANES;
    assert!(rows.cols() == dim && packed.plain.len() >= packed.k * stride && packed.shift.len() == dim);
    assert!(
        to.x.len() >= rows.rows() * stride && to.sq_norm.len() >= rows.rows() && own.len() == picked.len()
    );
    let tail = dim - whole;
    let mut last_shift = [S::T::ZERO; MOST_LANES];
    last_shift[..tail].copy_from_slice(&packed.shift[whole..]);
    let mut used = [S::T::ZERO; MOST_LANES];
    used[..tail].fill(S::T::INFINITY);
    for (own, &r) in own.iter_mut().zip(picked) {
        let r = r as usize;
        let row = rows.row(r);
        // This slice extends to the end of all rows: a single row's slice would end before the values that
        // are read past it.
        let from = rows.data()[r * rows.stride()..].as_ptr();
        let center = &packed.plain[slot[r] as usize * stride..][..stride];
        let place = &mut to.x[r * stride..][..stride];
        let (mut sums, mut norms) = ([S::T::ZERO; MOST_LANES], [S::T::ZERO; MOST_LANES]);
        // Values after a row are read along with it, except at the end of the data.
        let behind = r * rows.stride() + whole + S::LANES <= rows.data().len();
        let mut last = [S::T::ZERO; MOST_LANES];
        if !behind {
            last[..tail].copy_from_slice(&row[whole..]);
        }
        // SAFETY: vectors are within the first `whole` columns of `row`, within `last`, or, if `behind`,
        // within the rows. Places and centers have room for whole vectors after the last column.
        unsafe {
            let scale = S::splat(packed.scale);
            let (mut sum, mut norm) = (S::splat(S::T::ZERO), S::splat(S::T::ZERO));
            let mut add = |at: usize, x: S::V, shift: *const S::T| {
                let x = S::mul(S::sub(x, S::load(shift)), scale);
                S::store(place.as_mut_ptr().add(at), x);
                let apart = S::sub(x, S::load(center.as_ptr().add(at)));
                sum = S::fmadd(apart, apart, sum);
                norm = S::fmadd(x, x, norm);
            };
            for at in (0..whole).step_by(S::LANES) {
                add(at, S::load(from.add(at)), packed.shift.as_ptr().add(at));
            }
            if tail > 0 {
                let x = S::load(if behind { from.add(whole) } else { last.as_ptr() });
                let never = S::splat(S::T::INFINITY);
                let x = S::where_equal(S::load(used.as_ptr()), never, x, S::splat(S::T::ZERO));
                add(whole, x, last_shift.as_ptr());
            }
            S::store(sums.as_mut_ptr(), sum);
            S::store(norms.as_mut_ptr(), norm);
        }
        (*own, to.sq_norm[r]) = (sum_of_lanes(sums), sum_of_lanes(norms));
    }
}

/// The squared distances of the `picked` rows to the centers in `labels` (per row), and `|x'|^2` (per row),
/// column by column.
#[inline(always)]
pub(in crate::kernel) fn measure<T: Compute>(
    packed: &PackedCenters<T>,
    rows: MatRef<'_, T>,
    picked: &[u32],
    labels: &[u32],
    sq_norm: &mut [T],
    own: &mut [T],
) {
    for (own, &r) in own.iter_mut().zip(picked) {
        let r = r as usize;
        let (mut sum, mut norm) = (T::ZERO, T::ZERO);
        let center = packed.centers().row(labels[r] as usize);
        for ((&x, &c), &s) in rows.row(r).iter().zip(center).zip(&packed.shift) {
            let x = moved(x, s, packed.scale);
            let apart = x - moved(c, s, packed.scale);
            sum = sum + apart * apart;
            norm = norm + x * x;
        }
        (*own, sq_norm[r]) = (sum, norm);
    }
}

/// Lower bounds on the distances between all centers, in units of bounds: one row per center.
#[inline(always)]
pub(in crate::kernel) fn between<T: Compute>(
    columns: &[T],
    margins: Margins<T>,
    sums: &mut [T],
    out: &mut [f32],
) {
    let k = sums.len();
    let Margins { norm, gamma, unit, .. } = margins;
    let (less, off) = (T::from_f32(1.0) - gamma, T::from_f64(8.0 * T::EPSILON) * norm);
    for (j, out) in out.chunks_exact_mut(k).enumerate() {
        sums.fill(T::ZERO);
        for column in columns.chunks_exact(k) {
            let c = column[j];
            for (sum, &other) in sums.iter_mut().zip(column) {
                let apart = other - c;
                *sum = *sum + apart * apart;
            }
        }
        for (out, sum) in out.iter_mut().zip(&*sums) {
            let distance = sum.sqrt() * less - off;
            *out = ((if distance > T::ZERO { distance } else { T::ZERO }) * unit).to_f32() * (1.0 - ROUNDING);
        }
    }
}

/// Computes the tile values of `MR` rows and `NV` vectors of centers.
///
/// # Safety
/// `x` points to the columns of `MR` rows, `panel` to `NV` vectors per column, `norms` to `NV` vectors, and
/// `tile` has room for `MR` rows of `NV` vectors. The processor has the instruction set.
#[inline(always)]
unsafe fn micro<S: Simd, const MR: usize, const NV: usize>(
    x: [*const S::T; MR],
    panel: *const S::T,
    norms: *const S::T,
    columns: usize,
    tile: *mut S::T,
) {
    let width = NV * S::LANES;
    // SAFETY: rows, panel, norms and tile are as large as this function requires. `t` is below `columns`, and
    // there are `MR` rows and `NV` vectors.
    unsafe {
        let mut acc = [[S::splat(S::T::ZERO); NV]; MR];
        for row in &mut acc {
            for (v, a) in row.iter_mut().enumerate() {
                *a = S::load(norms.add(v * S::LANES));
            }
        }
        for t in 0..columns {
            let p = panel.add(t * width);
            let mut c = [S::splat(S::T::ZERO); NV];
            for (v, c) in c.iter_mut().enumerate() {
                *c = S::load(p.add(v * S::LANES));
            }
            for (x, row) in x.iter().zip(&mut acc) {
                let a = S::splat(*x.add(t));
                for (v, acc) in row.iter_mut().enumerate() {
                    *acc = S::fmadd(a, c[v], *acc);
                }
            }
        }
        for (r, row) in acc.iter().enumerate() {
            for (v, &a) in row.iter().enumerate() {
                S::store(tile.add(r * width + v * S::LANES), a);
            }
        }
    }
}

/// Compares `MR` of the picked rows, starting at index `at`, with a panel of `NV` vectors. If fewer rows are
/// left, the last one is repeated.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(
    packed: &PackedCenters<S::T>,
    gathered: &mut Gathered<S::T>,
    first: usize,
    picked: &[u32],
    at: usize,
) where
    S::T: Compute,
{
    let stride = packed.gathered_stride();
    let width = NV * S::LANES;
    assert!(packed.data.len() >= (first + width) * packed.dim && packed.norms.len() >= first + width);
    assert!(gathered.tile.len() >= MR * width);
    let places = gathered.x.len() / stride;
    let mut x = [gathered.x.as_ptr(); MR];
    for (q, x) in x.iter_mut().enumerate() {
        let r = picked[(at + q).min(picked.len() - 1)] as usize;
        assert!(r < places);
        // SAFETY: the place of row `r` is within the buffer.
        *x = unsafe { x.add(r * stride) };
    }
    // SAFETY: every row has a place, and panel, norms and tile are as long as asserted.
    unsafe {
        let panel = packed.data.as_ptr().add(first * packed.dim);
        let norms = packed.norms.as_ptr().add(first);
        micro::<S, MR, NV>(x, panel, norms, packed.dim, gathered.tile.as_mut_ptr());
    }
}

/// Implements [`lowest`](crate::kernel::bounded::lowest) for a panel of `NV` vectors. Processes `MR` rows at a time,
/// and `M2` or `M3` at the end.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn panel<S: Simd, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
    packed: &PackedCenters<S::T>,
    gathered: &mut Gathered<S::T>,
    comparison: &mut PanelComparison<'_, S::T>,
) where
    S::T: Compute,
{
    let width = NV * S::LANES;
    let first = comparison.panel * packed.width;
    let picked = comparison.picked;
    let mut at = 0;
    while at < picked.len() {
        let left = picked.len() - at;
        // SAFETY: this function requires the instruction set, as `tile` does.
        let rows = unsafe {
            if left > M2 {
                tile::<S, MR, NV>(packed, gathered, first, picked, at);
                MR
            } else if left > M3 {
                tile::<S, M2, NV>(packed, gathered, first, picked, at);
                M2
            } else {
                tile::<S, M3, NV>(packed, gathered, first, picked, at);
                M3
            }
        };
        let Gathered { tile, sq_norm, .. } = &mut *gathered;
        for (i, row) in (at..picked.len().min(at + rows)).zip(tile.chunks_exact_mut(width)) {
            // SAFETY: a row of the tile has `NV` vectors, and this function requires the instruction set.
            unsafe { weigh::<S, NV>(row, i, first, sq_norm, comparison) };
        }
        at += rows;
    }
}

/// Updates the comparison with the tile values `row` of the picked row at index `i` and the panel that starts
/// at center `first`.
///
/// # Safety
/// `row` holds `NV` vectors. The processor has the instruction set.
#[inline(always)]
pub(super) unsafe fn weigh<S: Simd, const NV: usize>(
    row: &mut [S::T],
    i: usize,
    first: usize,
    sq_norm: &[S::T],
    comparison: &mut PanelComparison<'_, S::T>,
) {
    let PanelComparison { picked, slot, best, begin, low, doubt, better, fine, .. } = comparison;
    let (r, width) = (picked[i] as usize, NV * S::LANES);
    if let Some(own) = row.get_mut((slot[r] as usize).wrapping_sub(first)) {
        if *begin {
            best[r] = *own;
        }
        *own = S::T::INFINITY;
    }
    if let Some(Fine { lower, columns, drift, error, unit }) = fine {
        let lower = &mut lower[r * *columns + first..][..width];
        let drift = &drift[first..][..width];
        let (sq_norm, error) = (sq_norm[r], error[r]);
        for ((lower, &value), &drift) in lower.iter_mut().zip(&*row).zip(drift) {
            let sq_dist = value + sq_norm - error;
            let length = (if sq_dist > S::T::ZERO { sq_dist } else { S::T::ZERO }).sqrt() * *unit;
            *lower = (length.to_f32() * (1.0 - ROUNDING) + drift) * (1.0 - ROUNDING);
        }
    }
    // SAFETY: `row` holds `NV` vectors, and this function requires the instruction set.
    low[i] = unsafe { smallest::<S, NV>(row) };
    if low[i] <= best[r] + doubt.of(sq_norm[r], best[r]) {
        // SAFETY: the row and the instruction set are those of `smallest` above.
        better.push(unsafe { second::<S, NV>(row, low[i], i as u32) });
    }
}

/// The smallest of `NV` vectors of values.
///
/// # Safety
/// `row` holds `NV` vectors. The processor has the instruction set.
#[inline(always)]
unsafe fn smallest<S: Simd, const NV: usize>(row: &[S::T]) -> S::T {
    assert!(row.len() >= NV * S::LANES);
    // SAFETY: the row is as long as asserted.
    unsafe {
        let mut low = S::load(row.as_ptr());
        for v in 1..NV {
            low = S::min(low, S::load(row.as_ptr().add(v * S::LANES)));
        }
        S::min_lane(low)
    }
}

/// The lane of the smallest value, and the second smallest value.
///
/// # Safety
/// `row` holds `NV` vectors. The processor has the instruction set.
#[inline(always)]
unsafe fn second<S: Simd, const NV: usize>(row: &mut [S::T], low: S::T, at: u32) -> Better<S::T> {
    // With NaN in the row, no value equals the smallest.
    let lane = row.iter().position(|&value| value == low).unwrap_or(row.len() - 1);
    row[lane] = S::T::INFINITY;
    // SAFETY: `row` still holds `NV` vectors, and this function requires the instruction set.
    Better { at, lane: lane as u32, next: unsafe { smallest::<S, NV>(row) } }
}

/// Implements [`lowest`](crate::kernel::bounded::lowest).
///
/// # Safety
/// The processor must support the instruction set, and `NV` must be that of its tier.
#[inline(always)]
pub(in crate::kernel) unsafe fn lowest<
    S: Simd,
    const MR: usize,
    const M2: usize,
    const M3: usize,
    const NV: usize,
>(
    packed: &PackedCenters<S::T>,
    gathered: &mut Gathered<S::T>,
    comparison: &mut PanelComparison<'_, S::T>,
) where
    S::T: Compute,
{
    let first = comparison.panel * packed.width;
    // SAFETY: this function requires the instruction set, as `panel` does. The remaining packed centers fill
    // the panel.
    unsafe {
        match ((packed.norms.len() - first) / S::LANES).min(NV) {
            1 => panel::<S, MR, M2, M3, 1>(packed, gathered, comparison),
            2 => panel::<S, MR, M2, M3, 2>(packed, gathered, comparison),
            _ => panel::<S, MR, M2, M3, NV>(packed, gathered, comparison),
        }
    }
}
