//! This module knows the kernels of bounded sweeps: rows picked one by one, against one panel of centers or against their own center.
//!
//! Picked rows lie where [`gather`] put them, each at its place in the chunk, so that a row is copied once for all the panels that it
//! meets. A panel and a few rows stay in the first-level cache, so that the columns need no blocks.

use super::simd::Simd;
use crate::float::Float;
use crate::kernel::bounded::{Better, Fine, Gathered, Margins, Meeting, ROUNDING};
use crate::kernel::pack::{PackedCenters, moved};
use crate::kernel::table::Compute;
use crate::matrix::MatRef;

/// As many lanes as the longest vector has.
const MOST_LANES: usize = 16;

/// Copies the `picked` rows of a chunk as `x' = g (x - s)` to their places in `to`, with `|x'|^2` (by row) and the squared distance to the
/// center in `slot` (by row), which comes in the order of `picked`.
///
/// # Safety
/// The processor has the instruction set.
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
        // From here on to the end of all rows: a row's own slice would end too early for what is read `behind` it.
        let from = rows.data()[r * rows.stride()..].as_ptr();
        let center = &packed.plain[slot[r] as usize * stride..][..stride];
        let place = &mut to.x[r * stride..][..stride];
        let (mut sums, mut norms) = ([S::T::ZERO; MOST_LANES], [S::T::ZERO; MOST_LANES]);
        // What lies behind a row is read along with it, but for the last rows.
        let behind = r * rows.stride() + whole + S::LANES <= rows.data().len();
        let mut last = [S::T::ZERO; MOST_LANES];
        if !behind {
            last[..tail].copy_from_slice(&row[whole..]);
        }
        // SAFETY: vectors lie within the first `whole` columns of `row`, in `last`, or, if there is something `behind`, within the rows; a
        // place has room for whole vectors behind the last column, and so has a center.
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
        (*own, to.sq_norm[r]) = (fold(sums), fold(norms));
    }
}

/// The squared distances of the `picked` rows to the centers in `labels` (by row), and `|x'|^2` (by row), a column at a time.
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

/// The distances between all centers, as lower bounds in units of bounds: a row of them for each.
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

/// Sum of the lanes, in halves.
#[inline(always)]
fn fold<T: Float>(mut lanes: [T; MOST_LANES]) -> T {
    for width in [8, 4, 2, 1] {
        for l in 0..width {
            lanes[l] = lanes[l] + lanes[l + width];
        }
    }
    lanes[0]
}

/// The tile values of `MR` rows and `NV` vectors of centers.
///
/// # Safety
/// `x` are `MR` rows of `columns` values, `panel` is `columns` times `NV` vectors, `norms` are `NV` vectors, `tile` has room for `MR` rows
/// of `NV` vectors; the processor has the instruction set.
#[inline(always)]
unsafe fn micro<S: Simd, const MR: usize, const NV: usize>(
    x: [*const S::T; MR],
    panel: *const S::T,
    norms: *const S::T,
    columns: usize,
    tile: *mut S::T,
) {
    let width = NV * S::LANES;
    // SAFETY: all offsets stay within what the caller promises.
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

/// `MR` of the picked rows from number `at` on against a panel of `NV` vectors: the last row again and again where there are fewer.
///
/// # Safety
/// The processor has the instruction set; `gathered` fits `packed`, whose panel has `NV` vectors; there is a row number `at`.
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
        // SAFETY: the place of row `r` lies within the buffer.
        *x = unsafe { x.add(r * stride) };
    }
    // SAFETY: rows have a place each, and panel, norms and tile are as long as asserted.
    unsafe {
        let panel = packed.data.as_ptr().add(first * packed.dim);
        let norms = packed.norms.as_ptr().add(first);
        micro::<S, MR, NV>(x, panel, norms, packed.dim, gathered.tile.as_mut_ptr());
    }
}

/// See [`lowest`](crate::kernel::bounded::lowest), for a panel of `NV` vectors. Rows are taken `MR` at a time, the last ones `M2` or `M3`.
///
/// # Safety
/// The processor has the instruction set; `gathered` fits `packed`.
#[inline(always)]
unsafe fn panel<S: Simd, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
    packed: &PackedCenters<S::T>,
    gathered: &mut Gathered<S::T>,
    meeting: &mut Meeting<'_, S::T>,
) where
    S::T: Compute,
{
    let width = NV * S::LANES;
    let first = meeting.panel * packed.width;
    let picked = meeting.picked;
    let mut at = 0;
    while at < picked.len() {
        let left = picked.len() - at;
        // SAFETY: the caller's promise.
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
            // SAFETY: a row holds whole vectors.
            unsafe { weigh::<S, NV>(row, i, first, sq_norm, meeting) };
        }
        at += rows;
    }
}

/// What the tile values `row` of picked row number `i` and the panel that starts at center `first` say.
///
/// # Safety
/// The processor has the instruction set; `row` holds `NV` vectors.
#[inline(always)]
pub(super) unsafe fn weigh<S: Simd, const NV: usize>(
    row: &mut [S::T],
    i: usize,
    first: usize,
    sq_norm: &[S::T],
    meeting: &mut Meeting<'_, S::T>,
) {
    let Meeting { picked, slot, best, begin, low, better, fine, .. } = meeting;
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
    // SAFETY: the caller's promise.
    low[i] = unsafe { smallest::<S, NV>(row) };
    if low[i] <= best[r] {
        // SAFETY: as above.
        better.push(unsafe { second::<S, NV>(row, low[i], i as u32) });
    }
}

/// The smallest of `NV` vectors of values.
///
/// # Safety
/// The processor has the instruction set; `row` holds as many.
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
/// As [`smallest`].
#[inline(always)]
unsafe fn second<S: Simd, const NV: usize>(row: &mut [S::T], low: S::T, at: u32) -> Better<S::T> {
    // A row that holds NaN has no equal.
    let lane = row.iter().position(|&value| value == low).unwrap_or(row.len() - 1);
    row[lane] = S::T::INFINITY;
    // SAFETY: the caller's promise.
    Better { at, lane: lane as u32, next: unsafe { smallest::<S, NV>(row) } }
}

/// See [`lowest`](crate::kernel::bounded::lowest).
///
/// # Safety
/// The processor has the instruction set, and `NV` is its table's.
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
    meeting: &mut Meeting<'_, S::T>,
) where
    S::T: Compute,
{
    let first = meeting.panel * packed.width;
    // SAFETY: the caller's promise; what is left of the packed centers is the width of the panel.
    unsafe {
        match ((packed.norms.len() - first) / S::LANES).min(NV) {
            1 => panel::<S, MR, M2, M3, 1>(packed, gathered, meeting),
            2 => panel::<S, MR, M2, M3, 2>(packed, gathered, meeting),
            _ => panel::<S, MR, M2, M3, NV>(packed, gathered, meeting),
        }
    }
}
