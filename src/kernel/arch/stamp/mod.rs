//! Instantiates every kernel for one vector type. The functions are grouped as in the calling modules.

mod bounded;
mod labels;
mod sums;
mod table;

pub(super) use bounded::bounded;
pub(super) use labels::labels;
pub(super) use sums::sums;
pub(super) use table::table;

/// Instantiates every kernel for one vector type, under the given attributes. A micro tile has `mr` rows and
/// `nv` vectors. The two smaller heights process the remainder of picked rows.
macro_rules! stamp {
    ($t:ident, $simd:ty, $isa:expr, $mr:literal $m2:literal $m3:literal x $nv:literal, [$($attr:meta),*]) => {
        pub(in crate::kernel) mod $t {
            use crate::kernel::generic::simd::{Argmin, Simd, Two};
            use std::ops::Range;

            use crate::kernel::blocks::{Candidates, Narrowing, Skin};
            use crate::kernel::bounded::{Gathered, Margins, Meeting, Nearest, Radii};
            use crate::kernel::generic::listed::{self, Padded};
            use crate::kernel::generic::differences::{self, ROWS};
            use crate::kernel::generic::{accumulate, blocks, bounds, bytes, lanes, pair, picked, projected, sparse, strip, tile};
            use crate::kernel::isa::Isa;
            use crate::kernel::pack::{Form, PackedCenters, Scratch};
            use crate::kernel::table::KernelTable;
            use crate::matrix::MatRef;
            use crate::rows::SparseRef;
            use super::*;

            type Packed = PackedCenters<$t>;
            const LANES: usize = <$simd as Simd>::LANES;

            $crate::kernel::arch::stamp::table!($t, $simd, $isa, $mr x $nv);
            $crate::kernel::arch::stamp::labels!($t, $simd, $mr x $nv, [$($attr),*]);
            $crate::kernel::arch::stamp::bounded!($t, $simd, $mr $m2 $m3 x $nv, [$($attr),*]);
            $crate::kernel::arch::stamp::sums!($t, $simd, [$($attr),*]);
        }
    };
}
pub(super) use stamp;
