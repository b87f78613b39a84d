//! The vector types and kernel tables of each instruction set, one file per set.
//!
//! `vectors!` implements a vector type from intrinsics, and `stamp!` instantiates every generic kernel for it.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod scalar;
mod stamp;
mod vectors;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) mod vnni;

use stamp::stamp;
use vectors::vectors;
