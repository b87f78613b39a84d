//! The kernels, written once over the vectors of `simd`. `operations` compiles them for each instruction set.
//!
//! Every function is `#[inline(always)]`, so that it compiles into a function with the `#[target_feature]` of
//! the instruction set.
#![allow(unsafe_code)]

pub(super) mod accumulate;
pub(super) mod blocks;
pub(super) mod bounds;
pub(super) mod bytes;
pub(super) mod lanes;
pub(super) mod listed;
pub(super) mod pair;
pub(super) mod picked;
pub(super) mod product;
pub(super) mod projected;
pub(super) mod simd;
pub(super) mod sparse;
pub(super) mod strip;
pub(super) mod tile;
pub(super) mod zeros;
