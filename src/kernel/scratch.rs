//! The memory layout of a strip of rows, and the buffers of the kernels.
//!
//! A strip is some rows that are compared with all centers, panel by panel. They are copied as `x'` of the
//! [frame](super::frame), in blocks of some columns each, and multiplied with a panel block by block.

use super::aligned::Aligned;
use super::doubt::Doubts;
use super::pack::{Form, PackedCenters};
use super::tier::Compute;
use crate::rows::RowBuf;
use crate::tuning::{STRIP_BYTES, STRIP_ROWS};

/// Upper limit of the bytes of a strip of 96 rows, if the packed centers fit into the second-level cache and if they
/// do not. With half the rows, panels from the third-level cache are read twice as often: with 3072 columns, a sweep
/// takes 5 to 10% longer for 1024 centers, but 4 to 8% less for 16 (bench `kernels`).
const WIDE_STRIP_BYTES: [usize; 2] = [768 * 1024, 1536 * 1024];

/// Bytes of packed centers that fit into the second-level cache beside a strip.
const NEAR_CENTERS: usize = 1 << 20;

/// Rows of a strip whose copied rows take `row_bytes` each, for packed centers of `packed_bytes`.
const fn strip_rows(row_bytes: usize, packed_bytes: usize) -> usize {
    let wide = WIDE_STRIP_BYTES[(packed_bytes > NEAR_CENTERS) as usize];
    let fit = STRIP_BYTES / row_bytes / 48 * 48;
    if fit > STRIP_ROWS {
        STRIP_ROWS
    } else if fit >= 96 {
        fit
    } else if 96 * row_bytes <= wide {
        96
    } else {
        48
    }
}

/// Bytes between two rows in a depth block of a strip: nine cache lines, so that rows fall into different
/// cache sets.
pub(super) const DEEP: usize = 576;
/// Bytes between two rows of at most [`SHALLOW_DEPTH`] bytes.
pub(super) const SHALLOW: usize = 192;
/// Bytes of one depth block of a row.
const DEEP_DEPTH: usize = 512;
/// Largest row in bytes for the shallow layout.
const SHALLOW_DEPTH: usize = 128;

/// Columns of a depth block for rows of `dim` columns. All blocks have the same depth: a short last block would cost as
/// much accumulator traffic as a full block.
pub(super) fn block_depth<T>(dim: usize) -> usize {
    let most = if dim * size_of::<T>() <= SHALLOW_DEPTH { dim } else { DEEP_DEPTH / size_of::<T>() };
    dim.div_ceil(dim.div_ceil(most))
}

/// The buffers of one worker, grown once and reused for every strip.
///
/// See the [module](super) for an example.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    /// A strip of rows as `x'`: by depth block, then by row; or by column for [`Form::RowsInLanes`].
    pub(super) x: Aligned<T>,
    /// Running minima of the strip's rows, per lane.
    pub(super) state: Aligned<T>,
    /// Accumulators stored between two depth blocks; at the end, the values of one panel.
    pub(super) tile: Aligned<T>,
    /// The columns that are nonzero in any row of a micro tile, per micro tile and depth block. `lengths`
    /// holds the length of each list.
    pub(super) columns: Vec<u16>,
    pub(super) lengths: Vec<u16>,
    /// Whether the kernels read the loaded strip through these lists.
    pub(super) skipping: bool,
    /// Number of strips for which the search for zeros is skipped, because the last search found too few.
    pub(super) pause: u32,
    /// Which columns are nonzero in the rows of a micro tile.
    pub(super) used: Vec<T>,
    /// Smallest tile value per row of the strip.
    pub(super) best: Vec<T>,
    /// Second smallest tile value per row of the strip.
    pub(super) second: Vec<T>,
    /// Nearest center per row of the strip.
    pub(super) ids: Vec<u32>,
    /// `|x'|^2` per row of a dense strip.
    pub(super) sq_norms: Vec<T>,
    /// Rows in doubt, and copies of them.
    pub(super) doubts: Doubts<T>,
    pub(super) copies: RowBuf<T>,
}

/// The largest number of state vectors that an epilogue keeps per row.
pub(super) const STATE_VECTORS: usize = 3;

impl<T: Compute> Scratch<T> {
    /// Makes room for a strip of rows against `packed`.
    pub(super) fn fit(&mut self, packed: &PackedCenters<T>) {
        let rows = packed.strip_rows();
        if packed.form != Form::Sparse {
            self.x.grow(rows * packed.strip_stride() * packed.depth_blocks(), T::ZERO);
        }
        self.state.grow(rows * STATE_VECTORS * packed.tier.lanes, T::ZERO);
        self.tile.grow(rows * packed.width, T::ZERO);
        if self.best.len() < rows {
            self.best.resize(rows, T::ZERO);
            self.second.resize(rows, T::ZERO);
            self.sq_norms.resize(rows, T::ZERO);
            self.ids.resize(rows, 0);
        }
    }
}

impl<T: Compute> PackedCenters<T> {
    /// Number of rows in one strip.
    pub(crate) fn strip_rows(&self) -> usize {
        if self.form == Form::Sparse {
            // Sparse rows are not copied.
            return STRIP_ROWS;
        }
        strip_rows(self.depth_blocks() * DEEP, self.data.len() * size_of::<T>())
    }

    pub(super) fn depth_blocks(&self) -> usize {
        self.dim.div_ceil(self.depth)
    }

    /// Whether rows of a strip are [`SHALLOW`] bytes apart.
    pub(super) fn is_shallow(&self) -> bool {
        self.dim * size_of::<T>() <= SHALLOW_DEPTH
    }

    /// Values between two rows of a strip.
    pub(super) fn strip_stride(&self) -> usize {
        if self.is_shallow() { SHALLOW / size_of::<T>() } else { DEEP / size_of::<T>() }
    }
}
