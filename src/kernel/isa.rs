//! The instruction sets with kernels, and which of them this processor supports.

use std::sync::OnceLock;

use crate::error::Error;
use crate::names::{Named, names};

/// An instruction set with kernels, in order of vector width.
///
/// ```
/// use shoal::kernel::Isa;
/// assert!(Isa::available().contains(&Isa::Scalar));
/// assert!(Isa::available().contains(&Isa::active()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Portable code, the reference for the other sets.
    Scalar,
    /// 128-bit vectors on Arm.
    Neon,
    /// [`Isa::Neon`] with certified low precision: products of bytes prove most labels, and the others are computed as
    /// before. Labels are bit-identical.
    NeonDot,
    /// 256-bit vectors with fused multiply-add on x86-64.
    Avx2,
    /// [`Isa::Avx2`] with certified low precision, as [`Isa::NeonDot`].
    AvxVnni,
    /// 512-bit vectors on x86-64.
    Avx512,
    /// [`Isa::Avx512`] with certified low precision, as [`Isa::NeonDot`].
    Avx512Vnni,
    /// As [`Isa::Avx512Vnni`], with the matrix unit of the processor. Linux only.
    Amx,
}

const ALL: [Isa; 8] =
    [Isa::Scalar, Isa::Neon, Isa::NeonDot, Isa::Avx2, Isa::AvxVnni, Isa::Avx512, Isa::Avx512Vnni, Isa::Amx];

impl Isa {
    /// Whether this processor and this build support the instruction set.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Self::Avx2.is_available() && is_x86_feature_detected!("avx512f"),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => Self::Avx2.is_available() && is_x86_feature_detected!("avxvnni"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => {
                Self::Avx512.is_available()
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
            Self::Amx => Self::Avx512Vnni.is_available() && super::arch::amx::detection::is_available(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => Self::Neon.is_available() && std::arch::is_aarch64_feature_detected!("dotprod"),
            #[allow(unreachable_patterns, reason = "which arms exist depends on the target")]
            _ => false,
        }
    }

    /// The next narrower set with bit-identical results, if there is one.
    pub(super) fn narrower(self) -> Option<Self> {
        (self >= Self::Avx512 && Self::Avx2.is_available()).then_some(Self::Avx2)
    }

    /// Whether products of bytes take a fraction of the time of `f32` products.
    pub(super) fn multiplies_bytes(self) -> bool {
        matches!(self, Self::NeonDot | Self::AvxVnni | Self::Avx512Vnni | Self::Amx)
    }

    /// All sets, of any processor.
    #[cfg(test)]
    pub(super) fn all() -> [Self; 8] {
        ALL
    }

    /// All sets that this processor supports, the widest last.
    pub fn available() -> Vec<Self> {
        ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// The set to use: the one named by the environment variable `SHOAL_ISA`, or else the widest available.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if `SHOAL_ISA` is unknown or not supported by this processor. There is no
    /// fallback, because it would make measurements wrong.
    pub fn requested() -> Result<Self, Error> {
        let Ok(name) = std::env::var("SHOAL_ISA") else {
            return Ok(ALL.into_iter().rfind(|isa| isa.is_available()).unwrap_or(Self::Scalar));
        };
        let isa = Self::of_name("SHOAL_ISA", &name)?;
        if isa.is_available() {
            return Ok(isa);
        }
        let has: Vec<String> = Self::available().iter().map(ToString::to_string).collect();
        Err(Error::param("SHOAL_ISA", format!("one of {} on this processor", has.join(", ")), isa))
    }

    /// The set in use: the first result of [`Isa::requested`] in this process.
    ///
    /// # Panics
    /// If [`Isa::requested`] fails.
    pub fn active() -> Self {
        static ACTIVE: OnceLock<Isa> = OnceLock::new();
        *ACTIVE.get_or_init(|| Self::requested().unwrap_or_else(|e| panic!("{e}")))
    }
}

names! {
    Isa("instruction set") {
        Scalar = "scalar",
        Neon = "neon",
        NeonDot = "neondot",
        Avx2 = "avx2",
        AvxVnni = "avxvnni",
        Avx512 = "avx512",
        Avx512Vnni = "avx512vnni",
        Amx = "amx",
    }
}
