//! One file for each instruction set: its vectors and its table.
//!
//! The tree is a matrix of kernels and instruction sets; `stamp!` fills one column of it.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod scalar;

/// Stamps every kernel for one vector type: `MR` rows by `NV` vectors a micro tile, under the given attributes.
///
/// The functions in the table are safe to call because a table is only handed out (`Compute::table`) on a processor that has the
/// instruction set; that is the reason behind each `SAFETY` below.
macro_rules! stamp {
    ($t:ident, $simd:ty, $isa:expr, $mr:literal x $nv:literal, [$($attr:meta),*]) => {
        pub(in crate::kernel) mod $t {
            use crate::kernel::generic::simd::{Argmin, Simd, Two};
            use crate::kernel::generic::{accumulate, lanes, pair, strip, tile};
            use crate::kernel::isa::Isa;
            use crate::kernel::pack::{Form, PackedCenters, Scratch};
            use crate::kernel::table::KernelTable;
            use crate::matrix::MatRef;
            use super::*;

            type Packed = PackedCenters<$t>;
            const LANES: usize = <$simd as Simd>::LANES;

            pub(in crate::kernel) static TABLE: KernelTable<$t> = KernelTable {
                isa: $isa,
                lanes: LANES,
                width: $nv * LANES,
                // SAFETY: this table is only used on a processor that has the instruction set (all that follow).
                load: |p, x, s| unsafe { load(p, x, s) },
                // SAFETY: as above.
                argmin: |p, s, l| unsafe { argmin(p, s, l) },
                // SAFETY: as above.
                two: |p, s, l| unsafe { two(p, s, l) },
                // SAFETY: as above.
                values: |p, s, rows, panel| unsafe { values(p, s, rows, panel) },
                // SAFETY: as above.
                accumulate: |x, l, w, c, s, t| unsafe { accumulate(x, l, w, c, s, t) },
                // SAFETY: as above.
                sq_dist: |a, b| unsafe { sq_dist(a, b) },
            };

            $(#[$attr])*
            unsafe fn load(packed: &Packed, rows: MatRef<'_, $t>, scratch: &mut Scratch<$t>) {
                strip::load(packed, rows, scratch);
            }

            $(#[$attr])*
            unsafe fn argmin(packed: &Packed, scratch: &mut Scratch<$t>, labels: &mut [u32]) {
                // SAFETY: the caller's processor has the instruction set; `load` made the scratch fit.
                unsafe {
                    if packed.form == Form::RowsInLanes {
                        return lanes::sweep::<$simd, false>(packed, scratch, labels);
                    }
                    tile::sweep::<$simd, Argmin, $mr, $nv>(packed, scratch, labels.len());
                }
                strip::reduce::<$simd>(scratch, labels, 2);
            }

            $(#[$attr])*
            unsafe fn two(packed: &Packed, scratch: &mut Scratch<$t>, labels: &mut [u32]) {
                // SAFETY: the caller's processor has the instruction set; `load` made the scratch fit.
                unsafe {
                    if packed.form == Form::RowsInLanes {
                        return lanes::sweep::<$simd, true>(packed, scratch, labels);
                    }
                    tile::sweep::<$simd, Two, $mr, $nv>(packed, scratch, labels.len());
                }
                strip::reduce::<$simd>(scratch, labels, 3);
            }

            $(#[$attr])*
            unsafe fn values(packed: &Packed, scratch: &mut Scratch<$t>, rows: usize, panel: usize) {
                // SAFETY: the caller's processor has the instruction set; `load` made the scratch fit.
                unsafe {
                    if packed.form == Form::RowsInLanes {
                        return lanes::values::<$simd>(packed, scratch, rows, panel);
                    }
                    tile::values::<$simd, $mr, $nv>(packed, scratch, rows, panel);
                }
            }

            $(#[$attr])*
            unsafe fn accumulate(
                rows: MatRef<'_, $t>,
                labels: &[u32],
                weights: Option<&[f64]>,
                centers: MatRef<'_, $t>,
                sums: &mut [f64],
                totals: &mut [f64],
            ) -> f64 {
                accumulate::accumulate(rows, labels, weights, centers, sums, totals)
            }

            $(#[$attr])*
            unsafe fn sq_dist(a: &[$t], b: &[$t]) -> f64 {
                pair::sq_dist(a, b)
            }
        }
    };
}
pub(super) use stamp;
