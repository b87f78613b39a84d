//! The kernels, written once over a private vector trait and stamped per instruction set in `arch`.
//!
//! Everything here is `#[inline(always)]` into an entry point that carries the instruction set's `#[target_feature]`. It is private on
//! purpose: only the tables are used.
#![allow(unsafe_code)]

pub(super) mod accumulate;
pub(super) mod bounds;
pub(super) mod differences;
pub(super) mod lanes;
pub(super) mod listed;
pub(super) mod pair;
pub(super) mod picked;
pub(super) mod simd;
pub(super) mod sparse;
pub(super) mod strip;
pub(super) mod tile;
pub(super) mod zeros;
