//! The buffers that kernels share.

use super::aligned::Aligned;
use super::doubt::Doubts;
use super::pack::{Form, PackedCenters};
use super::tier::Compute;
use crate::rows::RowBuf;

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
