//! The kernels, written once over the vectors of `simd`. `operations` compiles them for each instruction set.
//!
//! Every function is `#[inline(always)]`, so that it compiles into a function with the `#[target_feature]` of
//! the instruction set.
#![allow(unsafe_code)]

/// Evaluates an expression in which `D` is the number of columns as a constant, for 1 to 16 columns, or else
/// the other expression. Bounds that the compiler knows save most of the time of a short row.
macro_rules! with_columns {
    ($dim:expr, $d:ident => $value:expr) => {
        with_columns!($dim, $d => $value, else unreachable!("rows in lanes have 1 to 16 columns"))
    };
    ($dim:expr, $d:ident => $value:expr, else $other:expr) => {
        with_columns!(@ $dim, $d, $value, $other, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
    };
    (@ $dim:expr, $d:ident, $value:expr, $other:expr, $($n:literal)*) => {
        match $dim {
            $($n => {
                const $d: usize = $n;
                $value
            })*
            _ => $other,
        }
    };
}

pub(super) mod accumulate;
pub(super) mod blocks;
pub(super) mod bounds;
pub(super) mod bytes;
pub(super) mod lanes;
pub(in crate::kernel) mod limbs;
pub(super) mod listed;
pub(super) mod pair;
pub(super) mod picked;
pub(super) mod product;
pub(super) mod projected;
pub(super) mod sparse;
pub(super) mod strip;
pub(super) mod tile;
pub(super) mod zeros;
