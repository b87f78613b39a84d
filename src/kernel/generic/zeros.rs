//! Finds the columns in which all rows of a micro tile are zero, so that kernels can skip them.
//!
//! Images with borders, counts and one-hot columns have many such columns. A column of zeros adds nothing to
//! a tile value, so skipping it gives the same value. Only the sign of a zero may change, which no comparison
//! sees.

use crate::kernel::pack::{PackedCenters, Scratch};
use crate::kernel::tier::Compute;
use crate::matrix::MatRef;
use crate::tuning::{SKIPPING_CENTERS, SKIPPING_PAUSE, SKIPPING_SHARE};

/// Lists the nonzero columns per micro tile and depth block. `scratch.skipping` tells whether using the lists
/// pays off.
#[inline(always)]
pub(in crate::kernel) fn find<T: Compute>(
    packed: &PackedCenters<T>,
    rows: MatRef<'_, T>,
    scratch: &mut Scratch<T>,
) {
    scratch.skipping = false;
    if packed.k < SKIPPING_CENTERS || packed.is_shallow() {
        return;
    }
    if scratch.pause > 0 {
        scratch.pause -= 1;
        return;
    }
    let (dim, depth, blocks, height) = (packed.dim, packed.depth, packed.depth_blocks(), packed.tier.height);
    let groups = rows.rows().div_ceil(height);
    scratch.columns.resize(groups * blocks * depth, 0);
    scratch.lengths.resize(groups * blocks, 0);
    let mut listed = 0;
    for g in 0..groups {
        scratch.used.clear();
        scratch.used.resize(dim, T::ZERO);
        for r in g * height..rows.rows().min((g + 1) * height) {
            for (used, &x) in scratch.used.iter_mut().zip(rows.row(r)) {
                // NaN counts as nonzero.
                *used = if x == T::ZERO { *used } else { T::INFINITY };
            }
        }
        for (b, used) in scratch.used.chunks(depth).enumerate() {
            let list = &mut scratch.columns[(g * blocks + b) * depth..][..depth];
            let mut length = 0;
            for (t, &used) in used.iter().enumerate() {
                list[length] = t as u16;
                length += usize::from(used > T::ZERO);
            }
            scratch.lengths[g * blocks + b] = length as u16;
            listed += length;
        }
    }
    scratch.skipping = listed as f64 <= SKIPPING_SHARE * (groups * dim) as f64;
    if !scratch.skipping {
        scratch.pause = SKIPPING_PAUSE;
    }
}
