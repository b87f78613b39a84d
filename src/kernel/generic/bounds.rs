//! Loops over lower bounds of many rows, without computing distances.

use crate::float::Float;
use crate::kernel::comparison::{BoundColumn, GroupLists, Margins, ROUNDING, Radii};
use crate::kernel::simd::Simd;

/// The smallest value of `lower - drift` for each of the `picked` rows, which have `drift.len()` bounds each.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn least<S: Simd>(
    lower: &[S::T],
    drift: &[S::T],
    picked: &[u32],
    out: &mut [S::T],
) {
    let groups = drift.len();
    let whole = groups / S::LANES * S::LANES;
    for (out, &r) in out.iter_mut().zip(picked) {
        let row = &lower[r as usize * groups..][..groups];
        let mut least = S::T::INFINITY;
        if whole > 0 {
            // SAFETY: all vectors are within the first `whole` bounds. This function requires the instruction
            // set.
            unsafe {
                let mut lanes = S::splat(S::T::INFINITY);
                for at in (0..whole).step_by(S::LANES) {
                    let now = S::sub(S::load(row.as_ptr().add(at)), S::load(drift.as_ptr().add(at)));
                    lanes = S::min(lanes, now);
                }
                least = S::min_lane(lanes);
            }
        }
        for (&lower, &drift) in row[whole..].iter().zip(&drift[whole..]) {
            let now = lower - drift;
            least = if now < least { now } else { least };
        }
        *out = least;
    }
}

/// Adds each of the `picked` rows to the list of every group of `span` bounds in which one bound satisfies
/// `lower - drift < reach` (reach per row).
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn near<S: Simd>(
    lower: &[S::T],
    (drift, span): (&[S::T], usize),
    picked: &[u32],
    reach: &[S::T],
    GroupLists { rows: lists, room, counts }: GroupLists<'_>,
) {
    let columns = drift.len();
    assert!(counts.len() * span == columns && lists.len() >= counts.len() * room);
    let whole = columns / S::LANES * S::LANES;
    let mut found = [0u32; 16];
    for &r in picked {
        let row = &lower[r as usize * columns..][..columns];
        let reach = reach[r as usize];
        let mut last = usize::MAX;
        let mut push = |column: usize| {
            let group = if span == 1 { column } else { column / span };
            if group != last {
                last = group;
                let count = &mut counts[group];
                lists[group * room + *count as usize] = r;
                *count += 1;
            }
        };
        for at in (0..whole).step_by(S::LANES) {
            // SAFETY: all vectors are within the first `whole` bounds, and no vector has more than 16 lanes.
            // This function requires the instruction set.
            let n = unsafe {
                let now = S::sub(S::load(row.as_ptr().add(at)), S::load(drift.as_ptr().add(at)));
                S::push_less(now, S::splat(reach), at as u32, found.as_mut_ptr())
            };
            for &column in &found[..n] {
                push(column as usize);
            }
        }
        for (column, (&lower, &drift)) in row.iter().zip(drift).enumerate().skip(whole) {
            if lower - drift < reach {
                push(column);
            }
        }
    }
}

/// Writes to `found`, in order, the positions in a tile where `value + base[row] < max(rows[row],
/// columns[column])`, and returns their number. The tile has `columns.len()` values per row. `found` needs
/// room for the whole tile plus one vector.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn below<S: Simd>(
    tile: &[S::T],
    base: &[S::T],
    rows: &[S::T],
    columns: &[S::T],
    found: &mut [u32],
) -> usize {
    let (n, stride) = (base.len(), columns.len());
    assert!(rows.len() == n && stride.is_multiple_of(S::LANES) && tile.len() >= n * stride);
    assert!(found.len() >= n * stride + S::LANES);
    let mut count = 0;
    for r in 0..n {
        // SAFETY: whole vectors are within a row of the tile, and no more positions are written than values
        // were read, plus one vector. This function requires the instruction set.
        unsafe {
            let (add, limit) = (S::splat(base[r]), S::splat(rows[r]));
            for at in (0..stride).step_by(S::LANES) {
                let value = S::add(S::load(tile.as_ptr().add(r * stride + at)), add);
                let most = S::max(S::load(columns.as_ptr().add(at)), limit);
                let place = (r * stride + at) as u32;
                count += S::push_less(value, most, place, found.as_mut_ptr().add(count));
            }
        }
    }
    count
}

/// Writes the rows with `lower[r] - drift < reach[r]` to the front of `rows`, in order, and returns their
/// number.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn within<S: Simd>(
    lower: &[S::T],
    drift: S::T,
    reach: &[S::T],
    rows: &mut [u32],
) -> usize {
    let m = lower.len();
    // Each step stores a whole vector, so `rows` needs room for one more.
    assert!(reach.len() == m && rows.len() >= m + S::LANES);
    let mut n = 0;
    let whole = m / S::LANES * S::LANES;
    for r in (0..whole).step_by(S::LANES) {
        // SAFETY: `r` plus a vector is within the slices, and `n <= r`, so `rows` has room. This function
        // requires the instruction set.
        unsafe {
            let now = S::sub(S::load(lower.as_ptr().add(r)), S::splat(drift));
            n += S::push_less(now, S::load(reach.as_ptr().add(r)), r as u32, rows.as_mut_ptr().add(n));
        }
    }
    for r in whole..m {
        rows[n] = r as u32;
        n += usize::from(lower[r] - drift < reach[r]);
    }
    n
}

/// Computes all fields of [`Radii`] from `own`.
#[inline(always)]
pub(in crate::kernel) fn radii<T: Float>(margins: Margins<T>, radii: &mut Radii<T>) {
    let Margins { norm, gamma, unit, off } = margins;
    let n = radii.own.len();
    let Radii { own, error, upper } = radii;
    let (one, rounding) = (T::from_f32(1.0), T::from_f64(4.0 * T::EPSILON));
    for ((&own, error), upper) in own.iter().zip(error).zip(&mut upper[..n]) {
        let distance = (own + off).sqrt();
        let row = norm + distance;
        let twice = gamma + gamma;
        *error = twice * (row * row + norm * norm);
        // The sum of squares has a relative error of up to `gamma`; row and center were rounded when they
        // were moved.
        let most = distance * (one + gamma) + rounding * (row + norm);
        // Above 0, because another center may be at the same place as the row.
        let most = (most * unit).to_f32() * (1.0 + ROUNDING) + f32::MIN_POSITIVE;
        // NaN gives no bound.
        *upper = if most.is_nan() { f32::INFINITY } else { most };
    }
}

/// Implements [`renew`](crate::kernel::bounded::renew).
#[inline(always)]
pub(in crate::kernel) fn renew<T: Float>(
    sq_norm: &[T],
    picked: &[u32],
    low: &[T],
    error: &[T],
    unit: T,
    drift: f32,
    BoundColumn { lower, width, column }: BoundColumn<'_>,
) {
    /// Number of roots computed together.
    const STEP: usize = 32;
    let mut bounds = [0.0f32; STEP];
    for (picked, low) in picked.chunks(STEP).zip(low.chunks(STEP)) {
        let mut sq_dists = [T::ZERO; STEP];
        for ((sq_dist, &low), &r) in sq_dists.iter_mut().zip(low).zip(picked) {
            *sq_dist = low + sq_norm[r as usize] - error[r as usize];
        }
        for (bound, &sq_dist) in bounds.iter_mut().zip(&sq_dists) {
            let length = (if sq_dist > T::ZERO { sq_dist } else { T::ZERO }).sqrt() * unit;
            *bound = (length.to_f32() * (1.0 - ROUNDING) + drift) * (1.0 - ROUNDING);
        }
        for (&bound, &r) in bounds.iter().zip(picked) {
            lower[r as usize * width + column] = bound;
        }
    }
}
