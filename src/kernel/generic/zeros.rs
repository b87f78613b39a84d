//! Finds the columns in which all rows of a micro tile are zero, so that kernels can skip them.
//!
//! Images with borders, counts and one-hot columns have many such columns. A column of zeros adds nothing to
//! a tile value, so skipping it gives the same value. Only the sign of a zero may change, which no comparison
//! sees.

use crate::kernel::pack::PackedCenters;
use crate::kernel::scratch::Scratch;
use crate::kernel::tier::Compute;
use crate::matrix::MatRef;

/// Number of centers from which kernels search for columns that are zero in all rows of a micro tile. The
/// search takes about the time of three centers (`peers.py` on MNIST, where half the columns of a micro tile
/// are zero: a sweep takes half the time).
const SKIPPING_CENTERS: usize = 64;

/// Upper limit of the share of listed columns for which kernels use the list: a listed column takes a little
/// longer than one of a run.
const SKIPPING_SHARE: f64 = 7.0 / 8.0;

/// Strips that are not searched for zero columns after a strip with too few of them.
const SKIPPING_PAUSE: u32 = 31;

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
