//! The vector types and kernel tables of each instruction set, one file per set.
//!
//! `stamp!` instantiates every generic kernel for one vector type.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod scalar;

/// Instantiates every kernel for one vector type, under the given attributes. A micro tile has `MR` rows and
/// `NV` vectors. The two smaller heights process the remainder of picked rows.
///
/// The functions in the table are safe to call, because `Compute::table` hands a table out only on a
/// processor that has the instruction set. This is the reason behind each `SAFETY` comment below.
macro_rules! stamp {
    ($t:ident, $simd:ty, $isa:expr, $mr:literal $m2:literal $m3:literal x $nv:literal, [$($attr:meta),*]) => {
        pub(in crate::kernel) mod $t {
            use crate::kernel::generic::simd::{Argmin, Simd, Two};
            use std::ops::Range;

            use crate::kernel::bounded::{Gathered, Margins, Meeting, Nearest, Radii};
            use crate::kernel::generic::listed::{self, Padded};
            use crate::kernel::generic::differences::{self, ROWS};
            use crate::kernel::generic::{accumulate, bounds, lanes, pair, picked, sparse, strip, tile};
            use crate::kernel::isa::Isa;
            use crate::kernel::pack::{Form, PackedCenters, Scratch};
            use crate::kernel::table::KernelTable;
            use crate::matrix::MatRef;
            use crate::rows::SparseRef;
            use super::*;

            type Packed = PackedCenters<$t>;
            const LANES: usize = <$simd as Simd>::LANES;

            pub(in crate::kernel) static TABLE: KernelTable<$t> = KernelTable {
                isa: $isa,
                lanes: LANES,
                registers: <$simd as Simd>::REGISTERS,
                height: $mr,
                width: $nv * LANES,
                // SAFETY: this table is used only on a processor that has the instruction set (also for all
                // entries below).
                load: |p, x, s| unsafe { load(p, x, s) },
                // SAFETY: as above.
                argmin: |p, s, l| unsafe { argmin(p, s, l) },
                // SAFETY: as above.
                two: |p, s, l| unsafe { two(p, s, l) },
                // SAFETY: as above.
                values: |p, s, rows, panel| unsafe { values(p, s, rows, panel) },
                // SAFETY: as above.
                sparse_argmin: |p, x, s, l| unsafe { sparse_argmin(p, x, s, l) },
                // SAFETY: as above.
                sparse_two: |p, x, s, l| unsafe { sparse_two(p, x, s, l) },
                // SAFETY: as above.
                sparse_values: |p, x, s, panel| unsafe { sparse_values(p, x, s, panel) },
                // SAFETY: as above.
                sparse_lowest: |p, x, g, meeting| unsafe { sparse_lowest(p, x, g, meeting) },
                // SAFETY: as above.
                gather: |p, x, rows, slot, to, own| unsafe { gather(p, x, rows, slot, to, own) },
                // SAFETY: as above.
                measure: |p, x, rows, labels, norms, own| unsafe { measure(p, x, rows, labels, norms, own) },
                // SAFETY: as above.
                between: |c, m, sums, out| unsafe { between(c, m, sums, out) },
                // SAFETY: as above.
                listed: |p, x, rows, list, to| unsafe { listed(p, x, rows, list, to) },
                // SAFETY: as above.
                lowest: |p, g, meeting| unsafe { lowest(p, g, meeting) },
                // SAFETY: as above.
                least: |l, d, rows, out| unsafe { least(l, d, rows, out) },
                // SAFETY: as above.
                near: |l, d, rows, reach, lists| unsafe { near(l, d, rows, reach, lists) },
                // SAFETY: as above.
                within: |l, d, reach, rows| unsafe { within(l, d, reach, rows) },
                // SAFETY: as above.
                below: |tile, base, rows, columns, found| unsafe { below(tile, base, rows, columns, found) },
                // SAFETY: as above.
                radii: |m, r| unsafe { radii(m, r) },
                // SAFETY: as above.
                reach: |m, u, out| unsafe { reach(m, u, out) },
                // SAFETY: as above.
                renew: |s, rows, low, e, unit, d, out| unsafe { renew(s, rows, low, e, unit, d, out) },
                // SAFETY: as above.
                accumulate: |x, l, w, c, s, t, e| unsafe { accumulate(x, l, w, c, s, t, e) },
                // SAFETY: as above.
                reassign: |x, l, c, s, t, e| unsafe { reassign(x, l, c, s, t, e) },
                // SAFETY: as above.
                sq_dist: |a, b| unsafe { sq_dist(a, b) },
                // SAFETY: as above.
                differences: |x, c, out| unsafe { differences(x, c, out) },
                // SAFETY: as above.
                few: |x, c, list, out| unsafe { few(x, c, list, out) },
                // SAFETY: as above.
                few_scaled: |x, c, f, list, out| unsafe { few_scaled(x, c, f, list, out) },
                prefetch: listed::prefetch::<$simd>,
                // SAFETY: as above.
                add_parts: |x, list, parts, sums| unsafe { add_parts(x, list, parts, sums) },
                // SAFETY: as above.
                add_squares: |x, c, list, parts, squares| unsafe { add_squares(x, c, list, parts, squares) },
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
                    strip::reduce::<$simd, false>(scratch, labels, packed.k);
                }
            }

            $(#[$attr])*
            unsafe fn two(packed: &Packed, scratch: &mut Scratch<$t>, labels: &mut [u32]) {
                // SAFETY: the caller's processor has the instruction set; `load` made the scratch fit.
                unsafe {
                    if packed.form == Form::RowsInLanes {
                        return lanes::sweep::<$simd, true>(packed, scratch, labels);
                    }
                    tile::sweep::<$simd, Two, $mr, $nv>(packed, scratch, labels.len());
                    strip::reduce::<$simd, true>(scratch, labels, packed.k);
                }
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
            unsafe fn sparse_argmin(
                packed: &Packed,
                rows: SparseRef<'_, $t>,
                scratch: &mut Scratch<$t>,
                labels: &mut [u32],
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe {
                    sparse::sweep::<$simd, Argmin>(packed, rows, scratch);
                    strip::reduce::<$simd, false>(scratch, labels, packed.k);
                }
            }

            $(#[$attr])*
            unsafe fn sparse_two(
                packed: &Packed,
                rows: SparseRef<'_, $t>,
                scratch: &mut Scratch<$t>,
                labels: &mut [u32],
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe {
                    sparse::sweep::<$simd, Two>(packed, rows, scratch);
                    strip::reduce::<$simd, true>(scratch, labels, packed.k);
                }
            }

            $(#[$attr])*
            unsafe fn sparse_values(
                packed: &Packed,
                rows: SparseRef<'_, $t>,
                scratch: &mut Scratch<$t>,
                panel: usize,
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { sparse::values::<$simd>(packed, rows, scratch, panel) }
            }

            $(#[$attr])*
            unsafe fn sparse_lowest(
                packed: &Packed,
                rows: SparseRef<'_, $t>,
                gathered: &mut Gathered<$t>,
                meeting: &mut Meeting<'_, $t>,
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { sparse::lowest::<$simd, $nv>(packed, rows, gathered, meeting) }
            }

            $(#[$attr])*
            unsafe fn gather(
                packed: &Packed,
                rows: MatRef<'_, $t>,
                rows_picked: &[u32],
                slot: &[u32],
                to: &mut Gathered<$t>,
                own: &mut [$t],
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { picked::gather::<$simd>(packed, rows, rows_picked, slot, to, own) }
            }

            $(#[$attr])*
            unsafe fn measure(
                packed: &Packed,
                rows: MatRef<'_, $t>,
                rows_picked: &[u32],
                labels: &[u32],
                sq_norm: &mut [$t],
                own: &mut [$t],
            ) {
                picked::measure(packed, rows, rows_picked, labels, sq_norm, own);
            }

            $(#[$attr])*
            unsafe fn between(columns: &[$t], margins: Margins<$t>, sums: &mut [$t], out: &mut [f32]) {
                picked::between(columns, margins, sums, out);
            }

            $(#[$attr])*
            unsafe fn listed(
                packed: &Packed,
                columns: &[$t],
                rows: Range<usize>,
                list: &[u32],
                nearest: &mut Nearest<$t>,
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { lanes::listed::<$simd>(packed, columns, rows, list, nearest) }
            }

            $(#[$attr])*
            unsafe fn lowest(packed: &Packed, gathered: &mut Gathered<$t>, meeting: &mut Meeting<'_, $t>) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { picked::lowest::<$simd, $mr, $m2, $m3, $nv>(packed, gathered, meeting) }
            }

            $(#[$attr])*
            unsafe fn least(lower: &[$t], drift: &[$t], rows: &[u32], out: &mut [$t]) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { bounds::least::<$simd>(lower, drift, rows, out) }
            }

            $(#[$attr])*
            unsafe fn near(
                lower: &[$t],
                drift: (&[$t], usize),
                rows: &[u32],
                reach: &[$t],
                lists: (&mut [u32], usize, &mut [u32]),
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { bounds::near::<$simd>(lower, drift, rows, reach, lists) }
            }

            $(#[$attr])*
            unsafe fn within(lower: &[$t], drift: $t, reach: &[$t], rows: &mut [u32]) -> usize {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { bounds::within::<$simd>(lower, drift, reach, rows) }
            }

            $(#[$attr])*
            unsafe fn below(
                tile: &[$t],
                base: &[$t],
                rows: &[$t],
                columns: &[$t],
                found: &mut [u32],
            ) -> usize {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { bounds::below::<$simd>(tile, base, rows, columns, found) }
            }
            $(#[$attr])*
            unsafe fn radii(margins: Margins<$t>, radii: &mut Radii<$t>) {
                bounds::radii(margins, radii);
            }

            $(#[$attr])*
            unsafe fn reach(margins: Margins<f32>, upper: &[f32], out: &mut [f32]) {
                bounds::reach(margins, upper, out);
            }

            $(#[$attr])*
            unsafe fn renew(
                sq_norm: &[$t],
                rows: &[u32],
                low: &[$t],
                error: &[$t],
                unit: $t,
                drift: f32,
                lower: (&mut [f32], usize, usize),
            ) {
                bounds::renew(sq_norm, rows, low, error, unit, drift, lower);
            }

            $(#[$attr])*
            unsafe fn accumulate(
                rows: MatRef<'_, $t>,
                labels: &[u32],
                weights: Option<&[f64]>,
                centers: MatRef<'_, $t>,
                sums: &mut [f64],
                totals: &mut [f64],
                energies: &mut [f64],
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { accumulate::accumulate::<$simd>(rows, labels, weights, centers, sums, totals, energies) }
            }

            $(#[$attr])*
            unsafe fn reassign(
                rows: MatRef<'_, $t>,
                labels: (&[u32], &[u32]),
                centers: MatRef<'_, $t>,
                sums: (&mut [f64], &mut [f64]),
                totals: &mut [f64],
                energies: &mut [f64],
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { accumulate::reassign::<$simd>(rows, labels, centers, sums, totals, energies) }
            }

            $(#[$attr])*
            unsafe fn sq_dist(a: &[$t], b: &[$t]) -> f64 {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { pair::sq_dist::<$simd>(a, b) }
            }

            $(#[$attr])*
            unsafe fn differences(columns: &[f64], center: &[$t], out: &mut [f64; ROWS]) {
                differences::differences(columns, center, out);
            }

            $(#[$attr])*
            unsafe fn few(row: &[$t], centers: Padded<'_, $t>, list: &[u32], out: &mut [$t]) {
                let none = Padded { values: &[], stride: 0 };
                // SAFETY: the caller's processor has the instruction set.
                unsafe { listed::sq_dists::<$simd, false>(row, centers, none, list, out) }
            }

            $(#[$attr])*
            unsafe fn few_scaled(
                row: &[$t],
                centers: Padded<'_, $t>,
                factors: Padded<'_, $t>,
                list: &[u32],
                out: &mut [$t],
            ) {
                // SAFETY: the caller's processor has the instruction set.
                unsafe { listed::sq_dists::<$simd, true>(row, centers, factors, list, out) }
            }

            $(#[$attr])*
            unsafe fn add_parts(row: &[$t], list: &[u32], parts: &[f64], sums: &mut [f64]) {
                listed::add_parts(row, list, parts, sums);
            }

            $(#[$attr])*
            unsafe fn add_squares(
                row: &[$t],
                centers: Padded<'_, $t>,
                list: &[u32],
                parts: &[f64],
                squares: &mut [f64],
            ) {
                listed::add_squares(row, centers, list, parts, squares);
            }
        }
    };
}
pub(super) use stamp;

/// Implements the common operations of a vector type from its intrinsics. `more` adds what differs between
/// instruction sets.
macro_rules! vectors {
    ($name:ident, $t:ty, $v:ty, $lanes:literal x $registers:literal, [$splat:ident $load:ident $store:ident $add:ident $sub:ident $mul:ident $min:ident $max:ident],
     fmadd($a:ident, $b:ident, $c:ident) $fmadd:expr,
     less($x:ident, $y:ident, $yes:ident, $no:ident) $less:expr,
     equal($p:ident, $q:ident, $eq_yes:ident, $eq_no:ident) $equal:expr,
     min_lane($m:ident) $min_lane:expr,
     store_ids($to:ident, $ids:ident) $store_ids:expr,
     prefetch($line:ident) $prefetch:expr,
     widen($from:ident) $wide:ty = $widen:expr
     $(, and { $($more:tt)* })?) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        #[allow(unused_unsafe, reason = "portable operations are safe")]
        impl Simd for $name {
            type T = $t;
            type V = $v;
            const LANES: usize = $lanes;
            const REGISTERS: usize = $registers;

            // SAFETY of every block: the caller's processor has the instruction set, and pointers satisfy the
            // trait's contract.
            #[inline(always)]
            unsafe fn splat(x: $t) -> $v {
                // SAFETY: see above.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> $v {
                // SAFETY: see above.
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn store(p: *mut $t, v: $v) {
                // SAFETY: see above.
                unsafe { $store(p, v) }
            }
            #[inline(always)]
            unsafe fn fmadd($a: $v, $b: $v, $c: $v) -> $v {
                // SAFETY: see above.
                unsafe { $fmadd }
            }
            #[inline(always)]
            unsafe fn add(a: $v, b: $v) -> $v {
                // SAFETY: see above.
                unsafe { $add(a, b) }
            }
            #[inline(always)]
            unsafe fn sub(a: $v, b: $v) -> $v {
                // SAFETY: see above.
                unsafe { $sub(a, b) }
            }
            #[inline(always)]
            unsafe fn mul(a: $v, b: $v) -> $v {
                // SAFETY: see above.
                unsafe { $mul(a, b) }
            }
            #[inline(always)]
            unsafe fn min(a: $v, b: $v) -> $v {
                // SAFETY: see above.
                unsafe { $min(a, b) }
            }
            #[inline(always)]
            unsafe fn max(a: $v, b: $v) -> $v {
                // SAFETY: see above.
                unsafe { $max(a, b) }
            }
            #[inline(always)]
            unsafe fn keep_less(best: $v, id: $v, candidate: $v, candidate_id: $v) -> ($v, $v) {
                /// `yes` where `x < y`, else `no`.
                #[inline(always)]
                unsafe fn less($x: $v, $y: $v, $yes: $v, $no: $v) -> $v {
                    // SAFETY: see above.
                    unsafe { $less }
                }
                // SAFETY: see above. The compiler merges the two comparisons.
                unsafe { (less(candidate, best, candidate, best), less(candidate, best, candidate_id, id)) }
            }
            #[inline(always)]
            unsafe fn where_equal($p: $v, $q: $v, $eq_yes: $v, $eq_no: $v) -> $v {
                // SAFETY: see above.
                unsafe { $equal }
            }
            #[inline(always)]
            unsafe fn min_lane($m: $v) -> $t {
                // SAFETY: see above.
                unsafe { $min_lane }
            }
            #[inline(always)]
            unsafe fn iota() -> $v {
                const IOTA: [$t; $lanes] = {
                    let mut iota = [0.0; $lanes];
                    let mut i = 0;
                    while i < $lanes {
                        iota[i] = i as $t;
                        i += 1;
                    }
                    iota
                };
                // SAFETY: see above.
                unsafe { $load(IOTA.as_ptr()) }
            }
            #[inline(always)]
            fn prefetch($line: *const $t) {
                // SAFETY: a prefetch reads nothing that the program can see.
                unsafe { $prefetch }
            }
            #[inline(always)]
            unsafe fn store_ids($to: *mut u32, $ids: $v) {
                // SAFETY: see above.
                unsafe { $store_ids }
            }
            $($($more)*)?
        }

        #[allow(unused_unsafe, reason = "portable operations are safe")]
        impl Widen for $name {
            type Wide = $wide;

            // SAFETY: the trait's contract.
            #[inline(always)]
            unsafe fn widen($from: *const $t) -> <$wide as Simd>::V {
                // SAFETY: see above.
                unsafe { $widen }
            }
        }
    };
}
pub(super) use vectors;
