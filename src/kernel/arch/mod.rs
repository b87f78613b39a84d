//! What each instruction set can do, one file per set. `vectors!` implements vectors from intrinsics; `products` and
//! `engine` are the traits of sets that also multiply bytes or tiles.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx_vnni;
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64")),
    allow(dead_code, reason = "other targets have no engine, and only test this")
)]
pub(super) mod engine;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon_dot;
pub(super) mod products;
pub(super) mod scalar;
mod vectors;
#[cfg(target_arch = "x86_64")]
pub(super) mod vnni;

use super::simd::Widen;
use crate::float::Float;

/// A type with vectors on every instruction set.
pub(in crate::kernel) trait Vectors: Float {
    type Scalar: Widen<T = Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2: Widen<T = Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx512: Widen<T = Self>;
    #[cfg(target_arch = "aarch64")]
    type Neon: Widen<T = Self>;
}

macro_rules! type_with_vectors {
    ($t:ty: $scalar:ident $avx2:ident $avx512:ident $neon:ident) => {
        impl Vectors for $t {
            type Scalar = scalar::$scalar;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = avx2::$avx2;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = avx512::$avx512;
            #[cfg(target_arch = "aarch64")]
            type Neon = neon::$neon;
        }
    };
}
type_with_vectors!(f32: ScalarF32 Avx2F32 Avx512F32 NeonF32);
type_with_vectors!(f64: ScalarF64 Avx2F64 Avx512F64 NeonF64);
