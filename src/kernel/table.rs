//! This module knows the kernels of each instruction set: one table of functions for each, chosen when centers are packed.

use std::fmt;
use std::ops::Range;

use super::bounded::{Gathered, Margins, Meeting, Nearest, Radii};
use super::generic::differences::ROWS;
use super::generic::listed::Padded;
use super::isa::Isa;
use super::pack::{PackedCenters, Scratch};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::SparseRef;

/// The kernels of one instruction set for one type. A table is only handed out on a processor that can run it.
pub struct KernelTable<T: Compute> {
    /// The instruction set.
    pub(super) isa: Isa,
    /// Values in a vector.
    pub(super) lanes: usize,
    /// Vector registers.
    pub(super) registers: usize,
    /// Rows of a micro tile.
    pub(super) height: usize,
    /// Centers in a whole panel.
    pub(super) width: usize,
    /// Copies the rows of a strip as `x' = g (x - s)` into `scratch.x`, in the layout that the packed form reads.
    pub(super) load: fn(&PackedCenters<T>, MatRef<'_, T>, &mut Scratch<T>),
    /// The smallest tile value of each row of the loaded strip (into `scratch.best`) and its center.
    pub(super) argmin: fn(&PackedCenters<T>, &mut Scratch<T>, &mut [u32]),
    /// The same with the second smallest value too (into `scratch.second`).
    pub(super) two: fn(&PackedCenters<T>, &mut Scratch<T>, &mut [u32]),
    /// The tile values of the loaded strip's first rows against one panel, into `scratch.tile`, a row of `width` values each. Only for
    /// centers in lanes.
    pub(super) values: fn(&PackedCenters<T>, &mut Scratch<T>, rows: usize, panel: usize),
    /// As the three before, for sparse rows, which need not be loaded.
    pub(super) sparse_argmin: SparseLabelsFn<T>,
    pub(super) sparse_two: SparseLabelsFn<T>,
    pub(super) sparse_values: fn(&PackedCenters<T>, SparseRef<'_, T>, &mut Scratch<T>, panel: usize),
    /// As `lowest`, for sparse rows.
    pub(super) sparse_lowest: SparseLowestFn<T>,
    /// See [`generic::picked`](super::generic::picked), as the next three.
    pub(super) gather: GatherFn<T>,
    pub(super) measure: MeasureFn<T>,
    pub(super) between: BetweenFn<T>,
    pub(super) lowest: fn(&PackedCenters<T>, &mut Gathered<T>, &mut Meeting<'_, T>),
    /// See [`generic::lanes`](super::generic::lanes). Only for rows in lanes.
    pub(super) listed: ListedFn<T>,
    /// See [`generic::bounds`](super::generic::bounds), as those that follow.
    pub(super) least: LeastFn<T>,
    pub(super) near: NearFn<T>,
    pub(super) within: fn(&[T], T, &[T], &mut [u32]) -> usize,
    pub(super) below: BelowFn<T>,
    pub(super) radii: fn(Margins<T>, &mut Radii<T>),
    pub(super) reach: fn(Margins<f32>, &[f32], &mut [f32]),
    pub(super) renew: RenewFn<T>,
    /// `sums[label] += weight * row` and the weighted sums of squared differences, in `f64`.
    pub(super) accumulate: AccumulateFn<T>,
    /// Moves rows of weight 1 whose label changed from one sum to the other; the sums of squared differences follow.
    pub(super) reassign: ReassignFn<T>,
    /// Sum of squared differences, differences and sums in `f64`.
    pub(super) sq_dist: fn(&[T], &[T]) -> f64,
    /// See [`generic::differences`](super::generic::differences).
    pub(super) differences: DifferencesFn<T>,
    /// See [`generic::listed`](super::generic::listed), as those that follow.
    pub(super) few: FewFn<T>,
    pub(super) few_scaled: FewScaledFn<T>,
    pub(super) prefetch: fn(&[T]),
    pub(super) add_parts: AddPartsFn<T>,
    pub(super) add_squares: AddSquaresFn<T>,
}

/// Columns of a few rows, a center; what they are apart comes out.
pub(super) type DifferencesFn<T> = fn(&[f64], &[T], &mut [f64; ROWS]);

/// A row, centers, the list of centers; squared distances come out.
pub(super) type FewFn<T> = fn(&[T], Padded<'_, T>, &[u32], &mut [T]);

/// A row, the list of centers, parts; sums to add to.
pub(super) type AddPartsFn<T> = fn(&[T], &[u32], &[f64], &mut [f64]);

/// A row, centers, factors, the list of centers; squared distances come out.
pub(super) type FewScaledFn<T> = fn(&[T], Padded<'_, T>, Padded<'_, T>, &[u32], &mut [T]);

/// A row, centers, the list of centers, parts; sums of squares to add to.
pub(super) type AddSquaresFn<T> = fn(&[T], Padded<'_, T>, &[u32], &[f64], &mut [f64]);

/// The nearest centers of sparse rows.
pub(super) type SparseLabelsFn<T> = fn(&PackedCenters<T>, SparseRef<'_, T>, &mut Scratch<T>, &mut [u32]);

/// Sparse rows that meet a panel.
pub(super) type SparseLowestFn<T> =
    fn(&PackedCenters<T>, SparseRef<'_, T>, &mut Gathered<T>, &mut Meeting<'_, T>);

/// Centers, the rows of a chunk, which of them, the slots of their centers; their places and squared distances come out.
pub(super) type GatherFn<T> =
    fn(&PackedCenters<T>, MatRef<'_, T>, &[u32], &[u32], &mut Gathered<T>, &mut [T]);

/// Centers, columns of rows, which of these, the list of centers; what is nearest comes out.
pub(super) type ListedFn<T> = fn(&PackedCenters<T>, &[T], Range<usize>, &[u32], &mut Nearest<T>);

/// Centers, the rows of a chunk, which of them, their labels; `|x'|^2` (by row) and squared distances come out.
pub(super) type MeasureFn<T> = fn(&PackedCenters<T>, MatRef<'_, T>, &[u32], &[u32], &mut [T], &mut [T]);

/// `|x'|^2` by row, rows, their tile values, what may be wrong (by row), unit, drift; lower bounds come out, into a column of so many.
pub(super) type RenewFn<T> = fn(&[T], &[u32], &[T], &[T], T, f32, (&mut [f32], usize, usize));

/// Columns of centers, margins, a buffer; distances come out.
pub(super) type BetweenFn<T> = fn(&[T], Margins<T>, &mut [T], &mut [f32]);

/// Lower bounds, drift, rows; the least bound of each comes out.
pub(super) type LeastFn<T> = fn(&[T], &[T], &[u32], &mut [T]);

/// Lower bounds, drift and how many bounds make a group, rows, their reach (by row); lists, their room and lengths come out.
pub(super) type NearFn<T> = fn(&[T], (&[T], usize), &[u32], &[T], (&mut [u32], usize, &mut [u32]));

/// Tile values, what is added to those of each row, limits by row, limits by column; where values below the larger limit stand comes out.
pub(super) type BelowFn<T> = fn(&[T], &[T], &[T], &[T], &mut [u32]) -> usize;

/// Rows, their labels, their weights, the centers, sums, weights and sums of squared differences to add to.
pub(super) type AccumulateFn<T> =
    fn(MatRef<'_, T>, &[u32], Option<&[f64]>, MatRef<'_, T>, &mut [f64], &mut [f64], &mut [f64]);

/// Rows, their old and new labels, the centers, sums, weights and sums of squared differences to change.
pub(super) type ReassignFn<T> =
    fn(MatRef<'_, T>, (&[u32], &[u32]), MatRef<'_, T>, (&mut [f64], &mut [f64]), &mut [f64], &mut [f64]);

impl<T: Compute> fmt::Debug for KernelTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelTable<{}>({})", T::NAME, self.isa)
    }
}

/// A [`Float`] that has kernels.
///
/// ```
/// fn takes_both<T: shoal::kernel::Compute>(_: T) {}
/// takes_both(1.0f32);
/// takes_both(1.0f64);
/// ```
pub trait Compute: Float {
    /// The kernels of `isa`. Only for sets that are known to be available: [`Isa::active`], or one that was checked.
    #[doc(hidden)]
    fn table(isa: Isa) -> &'static KernelTable<Self>;
}

macro_rules! compute {
    ($t:ident) => {
        impl Compute for $t {
            fn table(isa: Isa) -> &'static KernelTable<Self> {
                match isa {
                    Isa::Scalar => &super::arch::scalar::$t::TABLE,
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => &super::arch::avx2::$t::TABLE,
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => &super::arch::avx512::$t::TABLE,
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon => &super::arch::neon::$t::TABLE,
                    #[allow(unreachable_patterns, reason = "which arms exist depends on the target")]
                    _ => unreachable!("{isa} is not part of this build"),
                }
            }
        }
    };
}
compute!(f32);
compute!(f64);
