//! The kernels, written once over a private vector trait and instantiated per instruction set in `arch`.
//!
//! Every function is `#[inline(always)]`, so that it compiles into an entry point with the instruction set's
//! `#[target_feature]`. Only the tables call these functions.
#![allow(unsafe_code)]

pub(super) mod accumulate;
pub(super) mod blocks;
pub(super) mod bounds;
pub(super) mod bytes;
pub(super) mod differences;
pub(super) mod lanes;
pub(super) mod listed;
pub(super) mod pair;
pub(super) mod picked;
pub(super) mod projected;
pub(super) mod simd;
pub(super) mod sparse;
pub(super) mod strip;
pub(super) mod tile;
pub(super) mod zeros;
