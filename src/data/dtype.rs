//! The types that numbers are stored in.

use std::fmt;

use crate::error::{Error, Result};
use crate::float::Float;

/// The type of a stored number, always little-endian.
///
/// Rows of small types are computed in `f32`, all others in `f64` (see [`Dtype::computed_as_f64`]).
///
/// ```
/// use shoal::data::Dtype;
/// assert_eq!(Dtype::from_name("uint8").unwrap(), Dtype::U8);
/// assert_eq!((Dtype::U8.size(), Dtype::U8.to_string().as_str()), (1, "uint8"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// One byte; any value except 0 counts as 1.
    Bool,
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 16 bits.
    U16,
    /// IEEE half precision.
    F16,
    /// The upper half of an `f32`.
    Bf16,
    /// IEEE single precision.
    F32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
    /// IEEE double precision.
    F64,
}

impl Dtype {
    /// All stored types.
    ///
    /// ```
    /// assert_eq!(shoal::data::Dtype::ALL.len(), 13);
    /// ```
    pub const ALL: [Self; 13] = [
        Self::Bool,
        Self::U8,
        Self::I8,
        Self::I16,
        Self::U16,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F64,
    ];

    /// Bytes of one value.
    ///
    /// ```
    /// assert_eq!(shoal::data::Dtype::Bf16.size(), 2);
    /// ```
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// NumPy's name of the type.
    ///
    /// ```
    /// assert_eq!(shoal::data::Dtype::F32.name(), "float32");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F64 => "float64",
        }
    }

    /// The type with the given NumPy name.
    ///
    /// # Errors
    /// [`Error::InvalidParam`], which lists the names, for any other name.
    ///
    /// ```
    /// use shoal::data::Dtype;
    /// assert_eq!(Dtype::from_name("int64").unwrap(), Dtype::I64);
    /// assert!(Dtype::from_name("complex64").unwrap_err().to_string().contains("float32"));
    /// ```
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::param("dtype", format!("one of {known}"), format!("{name:?}"))
        })
    }

    /// Whether rows of this type are computed in `f64`: all types with values that `f32` cannot hold, and
    /// `bool`, whose counts of ones need `f64`.
    ///
    /// ```
    /// use shoal::data::Dtype;
    /// assert!(!Dtype::U16.computed_as_f64() && Dtype::I32.computed_as_f64());
    /// ```
    pub const fn computed_as_f64(self) -> bool {
        matches!(self, Self::Bool | Self::I32 | Self::U32 | Self::I64 | Self::U64 | Self::F64)
    }

    /// Whether values of the type may be NaN or infinite.
    ///
    /// ```
    /// use shoal::data::Dtype;
    /// assert!(Dtype::F16.is_float() && !Dtype::U64.is_float());
    /// ```
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// The stored type of the compute type `T`.
    ///
    /// ```
    /// assert_eq!(shoal::data::Dtype::of::<f64>(), shoal::data::Dtype::F64);
    /// ```
    pub fn of<T: Float>() -> Self {
        if T::WIDE { Self::F64 } else { Self::F32 }
    }

    /// The type string of an `.npy` header; `None` for `bfloat16`, which NumPy does not have.
    pub(super) fn npy_descr(self) -> Option<&'static str> {
        Some(match self {
            Self::Bool => "|b1",
            Self::U8 => "|u1",
            Self::I8 => "|i1",
            Self::I16 => "<i2",
            Self::U16 => "<u2",
            Self::F16 => "<f2",
            Self::F32 => "<f4",
            Self::I32 => "<i4",
            Self::U32 => "<u4",
            Self::I64 => "<i8",
            Self::U64 => "<u8",
            Self::F64 => "<f8",
            Self::Bf16 => return None,
        })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_name(dtype.name()).unwrap(), dtype);
        }
    }

    #[test]
    fn the_refusal_lists_what_is_allowed() {
        let text = Dtype::from_name("object").unwrap_err().to_string();
        assert_eq!(
            text,
            "dtype must be one of bool, uint8, int8, int16, uint16, float16, bfloat16, float32, int32, uint32, \
             int64, uint64, float64, got \"object\""
        );
    }

    #[test]
    fn f32_holds_what_is_computed_in_it() {
        let wide: Vec<_> = Dtype::ALL.into_iter().filter(|d| d.computed_as_f64()).map(Dtype::name).collect();
        assert_eq!(wide, ["bool", "int32", "uint32", "int64", "uint64", "float64"]);
    }
}
