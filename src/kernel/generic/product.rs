//! Products of small matrices.

use crate::float::Float;
use crate::kernel::simd::Simd;

/// Terms of one chain of multiply-adds. Longer sums are sums of chains, which keeps their rounding error small.
pub(in crate::kernel) const DEPTH: usize = 128;

/// The number of columns of the right matrix must be a multiple of this.
pub(in crate::kernel) const COLUMNS: usize = 16;

/// `out = left * right` for `left` with rows of `depth` values and `right` with rows of `cols` values.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn product<S: Simd>(
    left: &[S::T],
    right: &[S::T],
    (depth, cols): (usize, usize),
    out: &mut [S::T],
) {
    let rows = left.len() / depth;
    assert!(left.len() == rows * depth && right.len() == depth * cols && out.len() == rows * cols);
    assert!(cols.is_multiple_of(COLUMNS));
    // Sums of six rows fill most registers.
    let wide = if S::REGISTERS >= 32 { 4 } else { 2 };
    out.fill(S::T::ZERO);
    for first in (0..depth).step_by(DEPTH) {
        let terms = first..depth.min(first + DEPTH);
        let mut column = 0;
        while column < cols {
            let vectors = ((cols - column) / S::LANES).min(wide);
            let at = Place { first: terms.start, end: terms.end, column, depth, cols };
            let mut row = 0;
            while row < rows {
                let high = rows - row >= 6;
                // SAFETY: the processor has the instruction set. The rows and columns of the tile exist.
                unsafe {
                    match (high, vectors) {
                        (true, 4) => tile::<S, 6, 4>(left, right, row, &at, out),
                        (true, 2 | 3) => tile::<S, 6, 2>(left, right, row, &at, out),
                        (true, _) => tile::<S, 6, 1>(left, right, row, &at, out),
                        (false, 4) => tile::<S, 1, 4>(left, right, row, &at, out),
                        (false, 2 | 3) => tile::<S, 1, 2>(left, right, row, &at, out),
                        (false, _) => tile::<S, 1, 1>(left, right, row, &at, out),
                    }
                }
                row += if high { 6 } else { 1 };
            }
            column += S::LANES * if vectors == 3 { 2 } else { vectors };
        }
    }
}

/// The terms and the first column of a tile, and the row lengths of both matrices.
struct Place {
    first: usize,
    end: usize,
    column: usize,
    depth: usize,
    cols: usize,
}

/// Adds the terms of `HEIGHT` rows and `VECTORS` vectors of columns to `out`.
///
/// # Safety
/// The processor has the instruction set, and the rows and columns exist.
#[inline(always)]
unsafe fn tile<S: Simd, const HEIGHT: usize, const VECTORS: usize>(
    left: &[S::T],
    right: &[S::T],
    row: usize,
    at: &Place,
    out: &mut [S::T],
) {
    // SAFETY: the processor has the instruction set, and all rows and columns exist.
    unsafe {
        let mut sums = [[S::splat(S::T::ZERO); VECTORS]; HEIGHT];
        for t in at.first..at.end {
            let from = right.as_ptr().add(t * at.cols + at.column);
            let columns: [S::V; VECTORS] = std::array::from_fn(|v| S::load(from.add(v * S::LANES)));
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = S::splat(*left.get_unchecked((row + r) * at.depth + t));
                for (sum, &column) in sums.iter_mut().zip(&columns) {
                    *sum = S::fmadd(x, column, *sum);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let to = out.as_mut_ptr().add((row + r) * at.cols + at.column);
            for (v, &sum) in sums.iter().enumerate() {
                let to = to.add(v * S::LANES);
                S::store(to, S::add(S::load(to), sum));
            }
        }
    }
}
