//! Sums and distances of rows of bytes, which are not converted to a compute type first.

use super::pair::{LANES, fold};
use crate::float::Float;
use crate::kernel::simd::{Simd, Widen};
use crate::matrix::MatRef;

/// Columns that are summed together: their sums stay in registers.
const COLUMNS: usize = 64;

/// Upper limit of the rows between two flushes: so many bytes fit into a sum of 16 bits, and so many pairs of squares
/// into one of 32 bits.
const ROWS: usize = 256;

/// Adds every column to `sums`, and returns the sum of all squares. Exact.
#[inline(always)]
pub(in crate::kernel) fn add(rows: MatRef<'_, u8>, sums: &mut [u64]) -> u64 {
    let (n, stride) = (rows.rows(), rows.stride());
    let mut squares = 0;
    for start in (0..n).step_by(ROWS) {
        let part = rows.slice(start, n.min(start + ROWS));
        let mut blocks = sums.chunks_mut(COLUMNS).zip((0..rows.cols()).step_by(COLUMNS));
        for (sums, first) in &mut blocks {
            let values = &part.data()[first..];
            squares += match <&mut [u64; COLUMNS]>::try_from(&mut *sums) {
                Ok(sums) => add_columns(part.rows(), stride, values, sums),
                Err(_) => add_few(part.rows(), stride, values, sums),
            };
        }
    }
    squares
}

/// Adds [`COLUMNS`] columns of at most [`ROWS`] rows that begin `stride` bytes apart.
#[inline(always)]
fn add_columns(rows: usize, stride: usize, values: &[u8], sums: &mut [u64; COLUMNS]) -> u64 {
    let (mut added, mut squares) = ([0u16; COLUMNS], [0u32; COLUMNS / 2]);
    for row in values.chunks(stride).take(rows) {
        let row = row.first_chunk::<COLUMNS>().expect("whole columns");
        for t in 0..COLUMNS {
            added[t] += u16::from(row[t]);
        }
        for t in 0..COLUMNS / 2 {
            let (x, y) = (u32::from(row[2 * t]), u32::from(row[2 * t + 1]));
            squares[t] += x * x + y * y;
        }
    }
    sums.iter_mut().zip(added).for_each(|(sum, added)| *sum += u64::from(added));
    squares.into_iter().map(u64::from).sum()
}

/// Adds the remaining columns.
#[inline(always)]
fn add_few(rows: usize, stride: usize, values: &[u8], sums: &mut [u64]) -> u64 {
    let mut squares = 0;
    for row in values.chunks(stride).take(rows) {
        for (sum, &x) in sums.iter_mut().zip(row) {
            *sum += u64::from(x);
            squares += u64::from(x) * u64::from(x);
        }
    }
    squares
}

/// Squared distances to a point, bit-identical to [`sq_dist`](super::pair::sq_dist) of the converted rows.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn sq_dists<S: Widen>(rows: MatRef<'_, u8>, point: &[f64], out: &mut [f64]) {
    let (point, point_tail) = point.as_chunks::<LANES>();
    let vectors = LANES / S::Wide::LANES;
    for (row, out) in rows.iter().zip(out) {
        let (row, tail) = row.as_chunks::<LANES>();
        let (mut lanes, mut values) = ([0.0f64; LANES], [S::T::ZERO; LANES]);
        // SAFETY: the processor has the instruction set. `values`, `lanes` and a chunk of the point hold `LANES`
        // values, a multiple of every vector width.
        unsafe {
            // Sums that an instruction set does not need are never used, and the compiler removes them.
            let mut sums = [S::Wide::splat(0.0); LANES / 2];
            // Plain loops: iterators are not always inlined here. The compiler converts bytes to `f32` with
            // vectors, but not directly to `f64`.
            for c in 0..row.len().min(point.len()) {
                let (row, point) = (&row[c], &point[c]);
                for l in 0..LANES {
                    values[l] = S::T::from_f32(f32::from(row[l]));
                }
                for (v, sum) in sums.iter_mut().enumerate().take(vectors) {
                    let at = v * S::Wide::LANES;
                    let center = S::Wide::load(point.as_ptr().add(at));
                    let e = S::Wide::sub(S::widen(values.as_ptr().add(at)), center);
                    *sum = S::Wide::add(*sum, S::Wide::mul(e, e));
                }
            }
            for (v, &sum) in sums.iter().enumerate().take(vectors) {
                S::Wide::store(lanes.as_mut_ptr().add(v * S::Wide::LANES), sum);
            }
        }
        for (lane, (&x, p)) in lanes.iter_mut().zip(tail.iter().zip(point_tail)) {
            let e = f64::from(x) - p;
            *lane += e * e;
        }
        *out = fold(lanes, if row.is_empty() { tail.len() } else { LANES });
    }
}
