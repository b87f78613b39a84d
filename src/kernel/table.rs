//! The kernel tables: one table of functions per instruction set, chosen when centers are packed.

use std::fmt;
use std::ops::Range;

use super::blocks::{Candidates, Narrowing, Skin};
use super::bounded::{Gathered, Margins, Meeting, Nearest, Radii};
use super::generic::differences::ROWS;
use super::generic::listed::Padded;
use super::isa::Isa;
use super::pack::{PackedCenters, Scratch};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::SparseRef;

/// The kernels of one instruction set for one type. A table is only handed out on a processor that supports
/// it.
pub struct KernelTable<T: Compute> {
    /// The instruction set.
    pub(super) isa: Isa,
    /// Number of values in a vector.
    pub(super) lanes: usize,
    /// Number of vector registers.
    pub(super) registers: usize,
    /// Number of rows in a micro tile.
    pub(super) height: usize,
    /// Number of centers in a full panel.
    pub(super) width: usize,
    /// Copies the rows of a strip as `x' = g (x - s)` into `scratch.x`, in the layout of the packed form.
    pub(super) load: fn(&PackedCenters<T>, MatRef<'_, T>, &mut Scratch<T>),
    /// The smallest tile value per row of the loaded strip (into `scratch.best`) and its center.
    pub(super) argmin: fn(&PackedCenters<T>, &mut Scratch<T>, &mut [u32]),
    /// Like `argmin`, with the second smallest value too (into `scratch.second`).
    pub(super) two: fn(&PackedCenters<T>, &mut Scratch<T>, &mut [u32]),
    /// The tile values of the first `rows` rows of the loaded strip against one panel, into `scratch.tile`,
    /// `width` values per row. Only for centers in lanes.
    pub(super) values: fn(&PackedCenters<T>, &mut Scratch<T>, rows: usize, panel: usize),
    /// `argmin`, `two` and `values` for sparse rows, which are not loaded.
    pub(super) sparse_argmin: SparseLabelsFn<T>,
    pub(super) sparse_two: SparseLabelsFn<T>,
    pub(super) sparse_values: fn(&PackedCenters<T>, SparseRef<'_, T>, &mut Scratch<T>, panel: usize),
    /// `lowest` for sparse rows.
    pub(super) sparse_lowest: SparseLowestFn<T>,
    /// See [`generic::picked`](super::generic::picked), also for the next three.
    pub(super) gather: GatherFn<T>,
    pub(super) measure: MeasureFn<T>,
    pub(super) between: BetweenFn<T>,
    pub(super) lowest: fn(&PackedCenters<T>, &mut Gathered<T>, &mut Meeting<'_, T>),
    /// See [`generic::lanes`](super::generic::lanes). Only for rows in lanes.
    pub(super) listed: ListedFn<T>,
    /// See [`generic::blocks`](super::generic::blocks).
    pub(super) narrow: NarrowFn<T>,
    /// See [`generic::bounds`](super::generic::bounds), also for the next six.
    pub(super) least: LeastFn<T>,
    pub(super) near: NearFn<T>,
    pub(super) within: fn(&[T], T, &[T], &mut [u32]) -> usize,
    pub(super) below: BelowFn<T>,
    pub(super) radii: fn(Margins<T>, &mut Radii<T>),
    pub(super) reach: fn(Margins<f32>, &[f32], &mut [f32]),
    pub(super) renew: RenewFn<T>,
    /// `sums[label] += weight * row` and the weighted sums of squared differences, in `f64`.
    pub(super) accumulate: AccumulateFn<T>,
    /// Moves rows of weight 1 whose label changed from one sum to the other, and updates the sums of squared
    /// differences.
    pub(super) reassign: ReassignFn<T>,
    /// Sum of squared differences, with differences and sums in `f64`.
    pub(super) sq_dist: fn(&[T], &[T]) -> f64,
    /// See [`generic::bytes`](super::generic::bytes), also for the next one.
    pub(super) add_bytes: fn(MatRef<'_, u8>, &mut [u64]) -> u64,
    pub(super) byte_sq_dists: fn(MatRef<'_, u8>, &[f64], &mut [f64]),
    /// See [`generic::differences`](super::generic::differences).
    pub(super) differences: DifferencesFn<T>,
    /// See [`generic::listed`](super::generic::listed), also for the next four.
    pub(super) few: FewFn<T>,
    pub(super) few_scaled: FewScaledFn<T>,
    pub(super) prefetch: fn(&[T]),
    pub(super) add_parts: AddPartsFn<T>,
    pub(super) add_squares: AddSquaresFn<T>,
    /// See [`generic::projected`](super::generic::projected), also for the next one.
    pub(super) few_projected: FewProjectedFn<T>,
    pub(super) add_products: AddProductsFn<T>,
}

/// In: columns of a few rows, a center. Out: their distances.
pub(super) type DifferencesFn<T> = fn(&[f64], &[T], &mut [f64; ROWS]);

/// In: a row, centers, the list of centers. Out: squared distances.
pub(super) type FewFn<T> = fn(&[T], Padded<'_, T>, &[u32], &mut [T]);

/// In: a row, the list of centers, parts. In and out: sums.
pub(super) type AddPartsFn<T> = fn(&[T], &[u32], &[f64], &mut [f64]);

/// In: a row, centers, factors, the list of centers. Out: squared distances.
pub(super) type FewScaledFn<T> = fn(&[T], Padded<'_, T>, Padded<'_, T>, &[u32], &mut [T]);

/// In: a row, centers, factors, axes and their number per center, the list of centers. Out: distances and
/// projections.
pub(super) type FewProjectedFn<T> =
    fn(&[T], Padded<'_, T>, Padded<'_, T>, (Padded<'_, T>, usize), &[u32], (&mut [T], &mut [T]));

/// In: a row, centers, the list of centers, parts per axis. In and out: sums of products.
pub(super) type AddProductsFn<T> = fn(&[T], Padded<'_, T>, &[u32], &[f64], &mut [f64]);

/// In: a row, centers, the list of centers, parts. In and out: sums of squares.
pub(super) type AddSquaresFn<T> = fn(&[T], Padded<'_, T>, &[u32], &[f64], &mut [f64]);

/// In: centers, sparse rows. Out: the nearest centers.
pub(super) type SparseLabelsFn<T> = fn(&PackedCenters<T>, SparseRef<'_, T>, &mut Scratch<T>, &mut [u32]);

/// Compares sparse rows with a panel.
pub(super) type SparseLowestFn<T> =
    fn(&PackedCenters<T>, SparseRef<'_, T>, &mut Gathered<T>, &mut Meeting<'_, T>);

/// In: centers, the rows of a chunk, the picked rows, the slots of their centers. Out: the gathered rows and
/// squared distances.
pub(super) type GatherFn<T> =
    fn(&PackedCenters<T>, MatRef<'_, T>, &[u32], &[u32], &mut Gathered<T>, &mut [T]);

/// In: centers, columns of rows, the range of rows, the list of centers. Out: the nearest centers.
pub(super) type ListedFn<T> = fn(&PackedCenters<T>, &[T], Range<usize>, &[u32], &mut Nearest<T>);

/// In: shift and scale, the faces of a box, how far centers may move, candidates. Out: fewer candidates, if any can be dropped.
pub(super) type NarrowFn<T> =
    fn((&[T], T), &[T], Skin<T>, &Candidates<T>, &mut Candidates<T>, &mut Narrowing<T>) -> bool;

/// In: centers, the rows of a chunk, the picked rows, their labels. Out: `|x'|^2` (per row) and squared
/// distances.
pub(super) type MeasureFn<T> = fn(&PackedCenters<T>, MatRef<'_, T>, &[u32], &[u32], &mut [T], &mut [T]);

/// In: `|x'|^2` per row, rows, their tile values, errors (per row), unit, drift. Out: lower bounds, as
/// (bounds, width, column).
pub(super) type RenewFn<T> = fn(&[T], &[u32], &[T], &[T], T, f32, (&mut [f32], usize, usize));

/// In: columns of centers, margins, a buffer. Out: distances.
pub(super) type BetweenFn<T> = fn(&[T], Margins<T>, &mut [T], &mut [f32]);

/// In: lower bounds, drift, rows. Out: the smallest bound per row.
pub(super) type LeastFn<T> = fn(&[T], &[T], &[u32], &mut [T]);

/// In: lower bounds, drift and bounds per group, rows, their reach (per row). Out: lists, their room and
/// their lengths.
pub(super) type NearFn<T> = fn(&[T], (&[T], usize), &[u32], &[T], (&mut [u32], usize, &mut [u32]));

/// In: tile values, the offset per row, limits per row, limits per column. Out: the positions of values
/// below the larger limit.
pub(super) type BelowFn<T> = fn(&[T], &[T], &[T], &[T], &mut [u32]) -> usize;

/// In: rows, labels, weights, centers. In and out: sums, total weights, sums of squared differences.
pub(super) type AccumulateFn<T> =
    fn(MatRef<'_, T>, &[u32], Option<&[f64]>, MatRef<'_, T>, &mut [f64], &mut [f64], &mut [f64]);

/// In: rows, old and new labels, centers. In and out: sums, total weights, sums of squared differences.
pub(super) type ReassignFn<T> =
    fn(MatRef<'_, T>, (&[u32], &[u32]), MatRef<'_, T>, (&mut [f64], &mut [f64]), &mut [f64], &mut [f64]);

impl<T: Compute> fmt::Debug for KernelTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelTable<{}>({})", T::NAME, self.isa)
    }
}

/// A [`Float`] type with kernels: `f32` and `f64`.
///
/// ```
/// fn takes_both<T: shoal::kernel::Compute>(_: T) {}
/// takes_both(1.0f32);
/// takes_both(1.0f64);
/// ```
pub trait Compute: Float {
    /// The kernels of `isa`; `None` if this processor or this build does not support it.
    #[doc(hidden)]
    fn table(isa: Isa) -> Option<&'static KernelTable<Self>>;

    /// Labels rows with certified low precision, if the type has it and it pays off.
    #[doc(hidden)]
    fn certified(
        _rows: MatRef<'_, Self>,
        _packed: &PackedCenters<Self>,
        _labels: &mut [u32],
        _scratch: &mut Scratch<Self>,
    ) -> bool {
        false
    }
}

/// The kernels of `isa`.
///
/// # Panics
/// If this processor does not support `isa`.
pub(super) fn kernels<T: Compute>(isa: Isa) -> &'static KernelTable<T> {
    T::table(isa).unwrap_or_else(|| panic!("this processor does not support {isa}"))
}

/// The kernels in use.
pub(super) fn active<T: Compute>() -> &'static KernelTable<T> {
    kernels(Isa::active())
}

macro_rules! compute {
    ($t:ident $(, $certified:path)?) => {
        impl Compute for $t {
            fn table(isa: Isa) -> Option<&'static KernelTable<Self>> {
                let table = match isa {
                    Isa::Scalar => &super::arch::scalar::$t::TABLE,
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => &super::arch::avx2::$t::TABLE,
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 | Isa::Avx512Vnni | Isa::Amx => &super::arch::avx512::$t::TABLE,
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon => &super::arch::neon::$t::TABLE,
                    #[allow(unreachable_patterns, reason = "which arms exist depends on the target")]
                    _ => return None,
                };
                isa.is_available().then_some(table)
            }

            $(fn certified(
                rows: MatRef<'_, Self>,
                packed: &PackedCenters<Self>,
                labels: &mut [u32],
                scratch: &mut Scratch<Self>,
            ) -> bool {
                $certified(rows, packed, labels, scratch)
            })?
        }
    };
}
compute!(f32, super::certified::nearest);
compute!(f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_supported_sets_have_kernels() {
        for isa in Isa::all() {
            assert_eq!(f32::table(isa).is_some(), isa.is_available(), "{isa}");
            assert_eq!(f64::table(isa).is_some(), isa.is_available(), "{isa}");
        }
        assert!(Isa::all().iter().any(|isa| !isa.is_available()), "Neon and AVX2 exclude each other");
    }
}
