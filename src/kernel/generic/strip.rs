//! Copies rows into a strip, and reduces lanes of running minima to one label per row.

use super::zeros;
use crate::float::Float;
use crate::kernel::doubt::Doubt;
use crate::kernel::frame::moved;
use crate::kernel::pack::{Form, PackedCenters};
use crate::kernel::scratch::Scratch;
use crate::kernel::simd::{Epilogue, MOST_LANES, Simd, Two, sum_of_lanes};
use crate::kernel::tier::Compute;
use crate::matrix::MatRef;
use crate::tuning::STRIP_ROWS;

/// Copies `rows` as `x' = g (x - s)`, and computes `|x'|^2` of each. Rows of an earlier strip may remain after them;
/// their results are not read.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
pub(in crate::kernel) unsafe fn load<S: Simd>(
    packed: &PackedCenters<S::T>,
    rows: MatRef<'_, S::T>,
    scratch: &mut Scratch<S::T>,
) where
    S::T: Compute,
{
    scratch.fit(packed);
    let (dim, n) = (packed.dim, rows.rows());
    assert!(n <= packed.strip_rows() && rows.cols() == dim);
    // Unshifted values are copied unchanged, so that integers stay integers.
    let plain = packed.scale.to_f64() == 1.0 && packed.shift.iter().all(|s| s.to_f64() == 0.0);
    if packed.form == Form::RowsInLanes {
        let stride = packed.strip_rows();
        transpose(rows, &mut scratch.x[..dim * stride]);
        let sq_norms = &mut scratch.sq_norms[..n];
        sq_norms.fill(S::T::ZERO);
        for (column, &s) in scratch.x.chunks_exact_mut(stride).zip(&packed.shift) {
            if !plain {
                column[..n].iter_mut().for_each(|x| *x = moved(*x, s, packed.scale));
            }
            sq_norms.iter_mut().zip(column).for_each(|(sum, x)| *sum = *sum + *x * *x);
        }
        return;
    }
    if plain {
        zeros::find(packed, rows, scratch);
    } else {
        scratch.skipping = false;
    }
    let stride = packed.strip_stride();
    let (block, blocks) = (packed.strip_rows() * stride, packed.depth_blocks());
    for r in 0..n {
        let (row, mut squares) = (rows.row(r), [S::T::ZERO; MOST_LANES]);
        for b in 0..blocks {
            let from = b * packed.depth;
            let columns = packed.depth.min(dim - from);
            let to = &mut scratch.x[b * block + r * stride..][..columns];
            let (x, shift) = (&row[from..][..columns], &packed.shift[from..][..columns]);
            // SAFETY: this function requires the instruction set, as `copy` does.
            unsafe {
                if plain {
                    copy::<S, true>(x, shift, packed.scale, to, &mut squares);
                } else {
                    copy::<S, false>(x, shift, packed.scale, to, &mut squares);
                }
            }
        }
        scratch.sq_norms[r] = sum_of_lanes(squares);
    }
}

/// Writes `g (x - s)`, or `x` if `PLAIN`, to `to`, and adds the squares to `squares`.
///
/// # Safety
/// The processor must support the instruction set.
#[inline(always)]
unsafe fn copy<S: Simd, const PLAIN: bool>(
    x: &[S::T],
    shift: &[S::T],
    scale: S::T,
    to: &mut [S::T],
    squares: &mut [S::T; MOST_LANES],
) {
    let whole = x.len() / S::LANES * S::LANES;
    assert!(to.len() == x.len() && shift.len() == x.len());
    // SAFETY: vectors end before `whole`, and `squares` has room for one. This function requires the
    // instruction set.
    unsafe {
        let (mut sum, factor) = (S::load(squares.as_ptr()), S::splat(scale));
        for at in (0..whole).step_by(S::LANES) {
            let mut x = S::load(x.as_ptr().add(at));
            if !PLAIN {
                x = S::mul(S::sub(x, S::load(shift.as_ptr().add(at))), factor);
            }
            S::store(to.as_mut_ptr().add(at), x);
            sum = S::fmadd(x, x, sum);
        }
        S::store(squares.as_mut_ptr(), sum);
    }
    for t in whole..x.len() {
        let x = if PLAIN { x[t] } else { moved(x[t], shift[t], scale) };
        to[t] = x;
        let square = &mut squares[t - whole];
        *square = *square + x * x;
    }
}

/// Transposes rows into columns of [`STRIP_ROWS`] values.
#[inline(always)]
fn transpose<T: Float>(rows: MatRef<'_, T>, columns: &mut [T]) {
    /// With constant strides, the compiler generates shuffles.
    #[inline(always)]
    fn of<T: Float, const D: usize>(rows: MatRef<'_, T>, columns: &mut [T]) {
        assert!(columns.len() == D * STRIP_ROWS && rows.rows() <= STRIP_ROWS);
        if rows.stride() != D {
            for r in 0..rows.rows() {
                rows.row(r).iter().enumerate().for_each(|(t, &x)| columns[t * STRIP_ROWS + r] = x);
            }
            return;
        }
        let (packed, _) = rows.data()[..rows.rows() * D].as_chunks::<D>();
        for (r, row) in packed.iter().enumerate() {
            for t in 0..D {
                columns[t * STRIP_ROWS + r] = row[t];
            }
        }
    }
    with_columns!(rows.cols(), D => of::<T, D>(rows, columns));
}

/// Reduces the lanes in `scratch.state` to one label per row: the center with the smallest value, the lowest
/// index among equals. With `TWO`, also the second smallest value. Otherwise `scratch.second` tells whether the label
/// is in `doubt`: it is the smallest value if so, and infinite if not.
///
/// # Safety
/// The processor must support the instruction set, and `scratch.state` must hold `labels.len()` rows of the
/// vectors of [`Two`].
#[inline(always)]
pub(in crate::kernel) unsafe fn reduce<S: Simd, const TWO: bool>(
    scratch: &mut Scratch<S::T>,
    labels: &mut [u32],
    k: usize,
    doubt: Doubt<S::T>,
) where
    S::T: Compute,
{
    let vectors = <Two as Epilogue<S>>::VECTORS;
    assert!(scratch.state.len() >= labels.len() * vectors * S::LANES);
    assert!(scratch.best.len() >= labels.len() && scratch.second.len() >= labels.len());
    assert!(scratch.sq_norms.len() >= labels.len());
    for (r, label) in labels.iter_mut().enumerate() {
        // SAFETY: the state is as long as asserted.
        unsafe {
            let state = scratch.state.as_ptr().add(r * vectors * S::LANES);
            let (values, ids) = (S::load(state), S::load(state.add(S::LANES)));
            let best = S::min_lane(values);
            let centers = S::fmadd(ids, S::splat(S::T::from_f32(S::LANES as f32)), S::iota());
            let never = S::splat(S::T::INFINITY);
            let center = S::min_lane(S::where_equal(values, S::splat(best), centers, never));
            scratch.best[r] = best;
            // A row with NaN has no valid id.
            *label = (center.to_f64() as u32).min(k as u32 - 1);
            let next = S::load(state.add(2 * S::LANES));
            scratch.second[r] = if TWO {
                S::min_lane(S::min(S::where_equal(centers, S::splat(center), never, values), next))
            } else {
                // The smallest value itself counts. With NaN, no value counts.
                let limit = best + doubt.of(scratch.sq_norms[r], best);
                let near = S::count_at_most(values, limit) + S::count_at_most(next, limit);
                if near == 1 { S::T::INFINITY } else { best }
            };
        }
    }
}
