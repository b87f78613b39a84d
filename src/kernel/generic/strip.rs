//! This module knows how rows enter a strip, and how the lanes of running minima become one label a row.

use super::simd::Simd;
use crate::float::Float;
use crate::kernel::pack::{Form, PackedCenters, Scratch};
use crate::kernel::table::Compute;
use crate::matrix::MatRef;

/// Copies `rows` as `x' = g (x - s)`. Rows of an earlier strip may remain behind them: nobody reads their results.
#[inline(always)]
pub(in crate::kernel) fn load<T: Compute>(packed: &PackedCenters<T>, rows: MatRef<'_, T>, scratch: &mut Scratch<T>) {
    scratch.fit(packed);
    let (dim, n) = (packed.dim, rows.rows());
    assert!(n <= packed.strip_rows() && rows.cols() == dim);
    // Unshifted values are copied as they are: integers stay integers.
    let plain = packed.scale.to_f64() == 1.0 && packed.shift.iter().all(|s| s.to_f64() == 0.0);
    if packed.form == Form::RowsInLanes {
        let stride = packed.strip_rows();
        for (r, row) in rows.iter().enumerate() {
            for t in 0..dim {
                scratch.x[t * stride + r] = moved(row[t], packed.shift[t], packed.scale);
            }
        }
        return;
    }
    let stride = packed.strip_stride();
    let block = packed.strip_rows() * stride;
    for (r, row) in rows.iter().enumerate() {
        for b in 0..packed.depth_blocks() {
            let from = b * packed.depth;
            let columns = packed.depth.min(dim - from);
            let to = &mut scratch.x[b * block + r * stride..][..columns];
            let x = &row[from..][..columns];
            if plain {
                to.copy_from_slice(x);
            } else {
                let s = &packed.shift[from..][..columns];
                for ((to, &x), &s) in to.iter_mut().zip(x).zip(s) {
                    *to = moved(x, s, packed.scale);
                }
            }
        }
    }
}

/// `g (x - s)`, rounded like the packed centers.
#[inline(always)]
fn moved<T: Float>(x: T, shift: T, scale: T) -> T {
    T::from_f64((x.to_f64() - shift.to_f64()) * scale.to_f64())
}

/// One label a row from the lanes in `scratch.state`: the smallest value, the lowest center among equals. `vectors` is the epilogue's.
#[inline(always)]
pub(in crate::kernel) fn reduce<S: Simd>(scratch: &mut Scratch<S::T>, labels: &mut [u32], vectors: usize)
where
    S::T: Compute,
{
    for (r, label) in labels.iter_mut().enumerate() {
        let state = &scratch.state[r * vectors * S::LANES..][..vectors * S::LANES];
        let (values, ids) = (&state[..S::LANES], &state[S::LANES..2 * S::LANES]);
        let (mut best, mut at) = (values[0], 0);
        let mut center = ids[0].to_f64() as usize * S::LANES;
        for lane in 1..S::LANES {
            let here = ids[lane].to_f64() as usize * S::LANES + lane;
            if values[lane] < best || (values[lane] == best && here < center) {
                (best, at, center) = (values[lane], lane, here);
            }
        }
        (*label, scratch.best[r]) = (center as u32, best);
        if vectors == 3 {
            let mut second = state[2 * S::LANES + at];
            for lane in 0..S::LANES {
                if lane != at && values[lane] < second {
                    second = values[lane];
                }
            }
            scratch.second[r] = second;
        }
    }
}
