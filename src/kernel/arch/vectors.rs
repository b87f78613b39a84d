//! Implements the vector traits of an instruction set from its intrinsics.

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
        pub(in crate::kernel) struct $name;

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
