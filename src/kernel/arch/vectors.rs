//! Implements the vector traits of an instruction set from its intrinsics.

/// Implements unsafe methods of the vector traits, with one expression each.
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $t:ty),*) $(-> $out:ty)? = $value:expr;)*) => {$(
        /// # Safety
        /// See the method of the trait.
        #[inline(always)]
        unsafe fn $name($($arg: $t),*) $(-> $out)? {
            // SAFETY: every method of the traits requires that the processor has the instruction set. Methods
            // with a pointer also require that it points to all values that the expression reads or writes.
            unsafe { $value }
        }
    )*};
}
pub(super) use methods;

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

            $crate::kernel::arch::vectors::methods! {
                fn splat(x: $t) -> $v = $splat(x);
                fn load(p: *const $t) -> $v = $load(p);
                fn store(p: *mut $t, v: $v) = $store(p, v);
                fn fmadd($a: $v, $b: $v, $c: $v) -> $v = $fmadd;
                fn add(a: $v, b: $v) -> $v = $add(a, b);
                fn sub(a: $v, b: $v) -> $v = $sub(a, b);
                fn mul(a: $v, b: $v) -> $v = $mul(a, b);
                fn min(a: $v, b: $v) -> $v = $min(a, b);
                fn max(a: $v, b: $v) -> $v = $max(a, b);
                // The compiler merges the two comparisons.
                fn keep_less(best: $v, id: $v, candidate: $v, candidate_id: $v) -> ($v, $v) = (
                    {
                        let ($x, $y, $yes, $no) = (candidate, best, candidate, best);
                        $less
                    },
                    {
                        let ($x, $y, $yes, $no) = (candidate, best, candidate_id, id);
                        $less
                    },
                );
                fn where_equal($p: $v, $q: $v, $eq_yes: $v, $eq_no: $v) -> $v = $equal;
                fn min_lane($m: $v) -> $t = $min_lane;
                fn iota() -> $v = {
                    const IOTA: [$t; $lanes] = {
                        let mut iota = [0.0; $lanes];
                        let mut i = 0;
                        while i < $lanes {
                            iota[i] = i as $t;
                            i += 1;
                        }
                        iota
                    };
                    $load(IOTA.as_ptr())
                };
                fn store_ids($to: *mut u32, $ids: $v) = $store_ids;
                $($($more)*)?
            }
            #[inline(always)]
            fn prefetch($line: *const $t) {
                // SAFETY: a prefetch reads nothing that the program can see.
                unsafe { $prefetch }
            }
        }

        #[allow(unused_unsafe, reason = "portable operations are safe")]
        impl Widen for $name {
            type Wide = $wide;

            $crate::kernel::arch::vectors::methods! {
                fn widen($from: *const $t) -> <$wide as Simd>::V = $widen;
            }
        }
    };
}
pub(super) use vectors;
