//! Tiers: the instruction sets that this processor has, and how an operation runs on one of them.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;

use super::arch::Vectors;
use super::isa::Isa;
use super::simd::Widen;
use crate::float::Float;

/// A [`Float`](crate::Float) type with kernels: `f32` and `f64`.
///
/// ```
/// fn takes_both<T: shoal::kernel::Compute>(_: T) {}
/// takes_both(1.0f32);
/// takes_both(1.0f64);
/// ```
#[allow(private_bounds, reason = "vectors are an inner matter of the kernels; no other type can have them")]
pub trait Compute: Vectors {}

impl Compute for f32 {}
impl Compute for f64 {}

/// Work that is compiled once for each instruction set.
pub(super) trait Operation<T> {
    type Output;

    /// Does the work with the vectors `S`, in micro tiles of `MR` rows and `NV` vectors. The two smaller
    /// heights `M2` and `M3` process the remainder of picked rows.
    ///
    /// # Safety
    /// The processor has the instruction set of `S`.
    unsafe fn run<S: Widen<T = T>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) -> Self::Output;
}

/// An instruction set that this processor has, and the sizes of its kernels for one type. A value is proof:
/// there is no other way to make one than [`Tier::of`].
pub(super) struct Tier<T> {
    isa: Isa,
    /// Number of values in a vector.
    pub(super) lanes: usize,
    /// Number of vector registers.
    pub(super) registers: usize,
    /// Number of rows in a micro tile.
    pub(super) height: usize,
    /// Number of centers in a full panel.
    pub(super) width: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Tier<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Tier<T> {}

impl<T: Compute> Tier<T> {
    /// The tier of an instruction set; `None` if this processor or this build does not support it.
    pub(super) fn of(isa: Isa) -> Option<Self> {
        let tier = |(lanes, registers, height, width)| Self {
            isa,
            lanes,
            registers,
            height,
            width,
            of: PhantomData,
        };
        // The sizes are known only to `run`.
        isa.is_available().then(|| tier(tier((0, 0, 0, 0)).run(Sizes)))
    }

    /// Runs an operation, compiled for the instruction set.
    pub(super) fn run<O: Operation<T>>(self, operation: O) -> O::Output {
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a tier exists only if the processor has its instruction set.
            Isa::Avx2 | Isa::AvxVnni => unsafe { in_avx2(operation) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a tier exists only if the processor has its instruction set. The wider sets include
            // this one.
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Amx => unsafe { in_avx512(operation) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: a tier exists only if the processor has its instruction set.
            Isa::Neon | Isa::NeonDot => unsafe { in_neon(operation) },
            // SAFETY: every processor has portable code.
            _ => unsafe { operation.run::<T::Scalar, 4, 2, 1, 2>() },
        }
    }
}

/// # Safety
/// The processor has AVX2, FMA and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,popcnt")]
fn in_avx2<T: Compute, O: Operation<T>>(operation: O) -> O::Output {
    // SAFETY: this function requires the instruction set, too, and its attribute enables it.
    unsafe { operation.run::<T::Avx2, 6, 4, 2, 2>() }
}

/// # Safety
/// The processor has AVX-512F, AVX2, FMA and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma,popcnt")]
fn in_avx512<T: Compute, O: Operation<T>>(operation: O) -> O::Output {
    // SAFETY: this function requires the instruction set, too, and its attribute enables it.
    unsafe { operation.run::<T::Avx512, 12, 8, 4, 2>() }
}

/// # Safety
/// The processor has Neon.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn in_neon<T: Compute, O: Operation<T>>(operation: O) -> O::Output {
    // SAFETY: this function requires the instruction set, too, and its attribute enables it.
    unsafe { operation.run::<T::Neon, 8, 4, 2, 2>() }
}

/// Lanes, registers, height and width.
struct Sizes;

impl<T> Operation<T> for Sizes {
    type Output = (usize, usize, usize, usize);

    /// # Safety
    /// None is needed, because no vector is used.
    #[inline(always)]
    unsafe fn run<S: Widen<T = T>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) -> Self::Output {
        (S::LANES, S::REGISTERS, MR, NV * S::LANES)
    }
}

impl<T: Float> fmt::Debug for Tier<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tier<{}>({})", T::NAME, self.isa)
    }
}

/// The tier of `isa`.
///
/// # Panics
/// If this processor does not support `isa`.
pub(super) fn tier_of<T: Compute>(isa: Isa) -> Tier<T> {
    Tier::of(isa).unwrap_or_else(|| panic!("this processor does not support {isa}"))
}

/// The tier in use.
pub(super) fn active<T: Compute>() -> Tier<T> {
    tier_of(Isa::active())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_supported_sets_have_tiers() {
        for isa in Isa::all() {
            assert_eq!(Tier::<f32>::of(isa).is_some(), isa.is_available(), "{isa}");
            assert_eq!(Tier::<f64>::of(isa).is_some(), isa.is_available(), "{isa}");
        }
        assert!(Isa::all().iter().any(|isa| !isa.is_available()), "Neon and AVX2 exclude each other");
    }
}
