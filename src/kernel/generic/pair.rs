//! Distances between single rows, and of rows to a few points.
//!
//! Sums use a fixed number of lanes and no fused operations, so every instruction set gives bit-identical
//! results.

use crate::float::Float;
use crate::kernel::simd::{Simd, Widen};
use crate::matrix::MatRef;

/// Number of parallel sums: whole vectors of `f64` in every instruction set.
pub(in crate::kernel) const LANES: usize = 16;

/// Sum of squared differences, with differences and sums in `f64`.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn sq_dist<S: Widen>(a: &[S::T], b: &[S::T]) -> f64 {
    let (a, a_tail) = a.as_chunks::<LANES>();
    let (b, b_tail) = b.as_chunks::<LANES>();
    let mut lanes = [0.0f64; LANES];
    // SAFETY: the processor has the instruction set. A chunk and `lanes` hold `LANES` values, a multiple of
    // every vector width.
    unsafe {
        // Sums that an instruction set does not need are never used, and the compiler removes them.
        let mut sums = [S::Wide::splat(0.0); LANES / 2];
        let vectors = LANES / S::Wide::LANES;
        for (a, b) in a.iter().zip(b) {
            for (v, sum) in sums.iter_mut().enumerate().take(vectors) {
                let at = v * S::Wide::LANES;
                let e = S::Wide::sub(S::widen(a.as_ptr().add(at)), S::widen(b.as_ptr().add(at)));
                *sum = S::Wide::add(*sum, S::Wide::mul(e, e));
            }
        }
        for (v, &sum) in sums.iter().enumerate().take(vectors) {
            S::Wide::store(lanes.as_mut_ptr().add(v * S::Wide::LANES), sum);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_tail.iter().zip(b_tail)) {
        let e = a.to_f64() - b.to_f64();
        *lane += e * e;
    }
    let used = if a.is_empty() { a_tail.len() } else { LANES };
    fold(lanes, used)
}

/// Squared distances of the `picked` rows to those points whose bit is set in `needed` (per picked row), with the bits
/// of [`sq_dist`]. `out` has a value per row and point; others may be written too. A point has the columns of a row as
/// `f64`, and zeros up to a multiple of [`LANES`].
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn sq_dists_to<S: Widen>(
    rows: MatRef<'_, S::T>,
    picked: (&[u32], &[u32]),
    points: &[f64],
    out: &mut [f64],
) {
    let stride = rows.cols().next_multiple_of(LANES);
    let m = points.len() / stride;
    assert!(
        picked.0.len() == picked.1.len() && picked.0.len() * m == out.len(),
        "a distance per row and point"
    );
    with_columns!(rows.cols(), D => {
        // SAFETY: as this function requires.
        return unsafe { few_columns_to::<S, D>(rows, picked, points, out) };
    }, else {});
    // As many points together as registers can hold the sums of.
    let most = if S::Wide::LANES == 8 { 4 } else { 2 };
    for ((&r, &needed), out) in picked.0.iter().zip(picked.1).zip(out.chunks_exact_mut(m.max(1))) {
        let (row, mut left) = (rows.row(r as usize), needed);
        while left != 0 {
            let mut some = [0; 4];
            let mut together = 0;
            while left != 0 && together < most {
                some[together] = left.trailing_zeros() as usize;
                left &= left - 1;
                together += 1;
            }
            let points = some.map(|p| &points[p * stride..][..stride]);
            // SAFETY: the processor has the instruction set, and points have `stride` values.
            unsafe {
                match together {
                    4 => sums_to::<S, 4>(row, points, some, out),
                    3 => sums_to::<S, 3>(row, points, some, out),
                    2 => sums_to::<S, 2>(row, points, some, out),
                    _ => sums_to::<S, 1>(row, points, some, out),
                }
            }
        }
    }
}

/// As [`sq_dists_to`] for rows of `D` columns, at most [`LANES`]: a vector holds a column of several rows.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
unsafe fn few_columns_to<S: Widen, const D: usize>(
    rows: MatRef<'_, S::T>,
    (picked, needed): (&[u32], &[u32]),
    points: &[f64],
    out: &mut [f64],
) {
    /// At least the lanes of a vector of `f64`.
    const ROWS: usize = 8;
    const { assert!(S::Wide::LANES <= ROWS) }
    let (m, together) = (points.len() / LANES, S::Wide::LANES);
    let (mut columns, mut found) = ([[0.0f64; ROWS]; D], [0.0f64; ROWS]);
    let blocks = picked.chunks(together).zip(needed.chunks(together));
    for ((picked, needed), out) in blocks.zip(out.chunks_mut((together * m).max(1))) {
        let needed = needed.iter().fold(0, |all, needed| all | needed);
        for (l, &r) in picked.iter().enumerate() {
            columns.iter_mut().zip(rows.row(r as usize)).for_each(|(column, x)| column[l] = x.to_f64());
        }
        for (p, point) in points.chunks_exact(LANES).enumerate().filter(|&(p, _)| needed >> p & 1 == 1) {
            // SAFETY: the processor has the instruction set, whose vectors have at most `ROWS` lanes.
            unsafe {
                let mut lanes = [S::Wide::splat(0.0); LANES];
                for ((lane, column), &c) in lanes.iter_mut().zip(&columns).zip(point) {
                    let e = S::Wide::sub(S::Wide::load(column.as_ptr()), S::Wide::splat(c));
                    *lane = S::Wide::mul(e, e);
                }
                // The sums of `fold`.
                for width in [8, 4, 2, 1] {
                    for l in 0..width.min(D.saturating_sub(width)) {
                        lanes[l] = S::Wide::add(lanes[l], lanes[l + width]);
                    }
                }
                S::Wide::store(found.as_mut_ptr(), lanes[0]);
            }
            out.iter_mut().skip(p).step_by(m).zip(&found).for_each(|(out, &found)| *out = found);
        }
    }
}

/// Squared distances of a row to the first `P` of `points`, written to these places of `out`.
///
/// # Safety
/// The processor must support the instruction set. Points have the columns of the row and zeros up to a multiple of
/// [`LANES`].
#[inline(always)]
unsafe fn sums_to<S: Widen, const P: usize>(
    row: &[S::T],
    points: [&[f64]; 4],
    places: [usize; 4],
    out: &mut [f64],
) {
    const { assert!(S::Wide::LANES >= 2, "room for all sums") }
    let vectors = LANES / S::Wide::LANES;
    let (chunks, tail) = row.as_chunks::<LANES>();
    let mut last = [S::T::ZERO; LANES];
    last[..tail.len()].copy_from_slice(tail);
    let chunks = chunks.iter().chain((!tail.is_empty()).then_some(&last));
    // SAFETY: as this function requires. A chunk and `lanes` hold `LANES` values, a multiple of every vector width.
    unsafe {
        let mut sums = [[S::Wide::splat(0.0); LANES / 2]; P];
        for (c, chunk) in chunks.enumerate() {
            for v in 0..vectors {
                let at = v * S::Wide::LANES;
                let x = S::widen(chunk.as_ptr().add(at));
                for (sums, point) in sums.iter_mut().zip(points) {
                    let e = S::Wide::sub(x, S::Wide::load(point.as_ptr().add(c * LANES + at)));
                    sums[v] = S::Wide::add(sums[v], S::Wide::mul(e, e));
                }
            }
        }
        for (sums, place) in sums.iter().zip(places) {
            let mut lanes = [0.0f64; LANES];
            for (v, &sum) in sums.iter().enumerate().take(vectors) {
                S::Wide::store(lanes.as_mut_ptr().add(v * S::Wide::LANES), sum);
            }
            out[place] = fold(lanes, LANES);
        }
    }
}

/// As [`sq_dist`] for up to [`LANES`] columns, with bit-identical results.
#[inline(always)]
pub(in crate::kernel) fn sq_dist_of_few<T: Float>(a: &[T], b: &[T]) -> f64 {
    with_columns!(a.len(), D => {
        let columns = "rows have equal numbers of columns";
        sq_dist_of::<T, D>(a.first_chunk().expect(columns), b.first_chunk().expect(columns))
    }, else 0.0)
}

/// As [`sq_dist`] for `D` columns, at most [`LANES`], with bit-identical results.
#[inline(always)]
pub(in crate::kernel) fn sq_dist_of<T: Float, const D: usize>(a: &[T; D], b: &[T; D]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
        let e = a.to_f64() - b.to_f64();
        *lane = e * e;
    }
    fold(lanes, D)
}

/// Sum of the lanes, by halving. Lanes from `used` on are zero.
#[inline(always)]
pub(super) fn fold(mut lanes: [f64; LANES], used: usize) -> f64 {
    for width in [8, 4, 2, 1] {
        if width < used {
            for l in 0..width {
                lanes[l] += lanes[l + width];
            }
        }
    }
    lanes[0]
}
