//! The instruction sets, and which of them this processor has.

use std::sync::OnceLock;

use crate::error::Error;
use crate::names::{Named, names};

/// An instruction set that kernels are stamped for, from the plainest to the widest.
///
/// ```
/// use shoal::kernel::Isa;
/// assert!(Isa::available().contains(&Isa::Scalar));
/// assert!(Isa::available().contains(&Isa::active()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Portable code; the oracle that the others are compared with.
    Scalar,
    /// 128-bit vectors of Arm processors.
    Neon,
    /// 256-bit vectors with fused multiply-add of x86-64 processors.
    Avx2,
    /// 512-bit vectors of x86-64 processors.
    Avx512,
}

const ALL: [Isa; 4] = [Isa::Scalar, Isa::Neon, Isa::Avx2, Isa::Avx512];

impl Isa {
    /// Whether this processor, and this build, can run it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(unreachable_patterns, reason = "which arms exist depends on the target")]
            _ => false,
        }
    }

    /// The next narrower one whose kernels give the same bits, if there is one.
    pub(super) fn narrower(self) -> Option<Self> {
        (self == Self::Avx512 && Self::Avx2.is_available()).then_some(Self::Avx2)
    }

    /// All that this processor can run, the widest last.
    pub fn available() -> Vec<Self> {
        ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// The one to use: the widest available, or what the environment variable `SHOAL_ISA` names.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] when `SHOAL_ISA` names nothing, or something that this processor has not: running another set than the one
    /// asked for would make a measurement lie.
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

    /// The one in use: [`Isa::requested`], as it was when it was first asked for.
    ///
    /// # Panics
    /// When [`Isa::requested`] fails.
    pub fn active() -> Self {
        static ACTIVE: OnceLock<Isa> = OnceLock::new();
        *ACTIVE.get_or_init(|| Self::requested().unwrap_or_else(|e| panic!("{e}")))
    }
}

names! {
    Isa("instruction set") {
        Scalar = "scalar",
        Neon = "neon",
        Avx2 = "avx2",
        Avx512 = "avx512",
    }
}
