//! The two types that rows are computed in.

use std::fmt::{Debug, Display};
use std::ops::{Add, Mul, Sub};

use crate::exponent::{exp_all_f32, exp_all_f64};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A type for each compute type: see [`Typed`].
#[doc(hidden)]
pub trait PerFloat {
    /// The type that belongs to `T`.
    type Of<T: Float>;
}

/// A value whose type depends on the compute type, which is only known at run time.
///
/// ```
/// use shoal::data::{Source, Typed};
/// assert!(matches!([[1.0f32, 2.0]].any(), Typed::F32(_)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Typed<A, B> {
    /// Computed in `f32`.
    F32(A),
    /// Computed in `f64`.
    F64(B),
}

impl<A, B> Typed<A, B> {
    /// The variant of the compute type `T`.
    pub(crate) fn of_type<T: Float, F: PerFloat<Of<f32> = A, Of<f64> = B>>(value: F::Of<T>) -> Self {
        T::choose::<F, _>(value, Self::F32, Self::F64)
    }

    /// Whether the compute type is `f64`.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self, Self::F64(_))
    }

    /// The name of the compute type.
    #[cfg(feature = "python")]
    pub(crate) fn name(&self) -> &'static str {
        if self.is_wide() { f64::NAME } else { f32::NAME }
    }
}

/// Evaluates an expression for either variant of a [`Typed`], or of two of the same compute type. With `=> Typed`, the
/// result is a [`Typed`] of the values of the expression.
macro_rules! either {
    ($typed:expr, $value:pat => Typed($body:expr)) => {
        match $typed {
            $crate::float::Typed::F32($value) => $crate::float::Typed::F32($body),
            $crate::float::Typed::F64($value) => $crate::float::Typed::F64($body),
        }
    };
    (($one:expr, $two:expr), ($first:pat, $second:pat) => $body:expr, else $other:expr) => {
        match ($one, $two) {
            ($crate::float::Typed::F32($first), $crate::float::Typed::F32($second)) => $body,
            ($crate::float::Typed::F64($first), $crate::float::Typed::F64($second)) => $body,
            _ => $other,
        }
    };
    ($typed:expr, $value:pat => $body:expr) => {
        match $typed {
            $crate::float::Typed::F32($value) => $body,
            $crate::float::Typed::F64($value) => $body,
        }
    };
}
pub(crate) use either;

/// The compute type of rows and centers: `f32` or `f64`. Sums, counts and energies are always `f64`.
///
/// ```
/// use shoal::Float;
/// fn half<T: Float>(x: T) -> T {
///     T::from_f64(x.to_f64() / 2.0)
/// }
/// assert_eq!(half(3.0f32), 1.5);
/// ```
pub trait Float:
    sealed::Sealed
    + Copy
    + Send
    + Sync
    + 'static
    + PartialOrd
    + Default
    + Debug
    + Display
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
{
    /// NumPy's name of the type.
    const NAME: &'static str;
    /// Distance from 1 to the next larger value.
    const EPSILON: f64;
    /// Whether this is `f64`.
    #[doc(hidden)]
    const WIDE: bool;
    /// The largest finite value.
    #[doc(hidden)]
    const MAX: f64;
    /// The smallest positive normal value.
    #[doc(hidden)]
    const MIN_POSITIVE: f64;
    /// The value zero.
    const ZERO: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// Exact widening.
    fn to_f64(self) -> f64;
    /// Rounding to nearest.
    fn from_f64(x: f64) -> Self;
    /// Exact for `f64`, the identity for `f32`.
    fn from_f32(x: f32) -> Self;
    /// Rounding to nearest, the identity for `f32`.
    fn to_f32(self) -> f32;
    /// The square root, rounded to nearest.
    #[must_use]
    fn sqrt(self) -> Self;
    /// Neither NaN nor infinite.
    fn finite(self) -> bool;
    /// Replaces every value, each at most 0, by its exponential, to a rounding or two.
    #[doc(hidden)]
    fn exp_all(values: &mut [Self]);
    /// Calls the function that takes the type of this compute type.
    #[doc(hidden)]
    fn choose<F: PerFloat, R>(
        value: F::Of<Self>,
        narrow: impl FnOnce(F::Of<f32>) -> R,
        wide: impl FnOnce(F::Of<f64>) -> R,
    ) -> R;
}

macro_rules! float {
    ($t:ty, $name:literal, $exp_all:ident, |$narrow:ident, $wide:ident| $chosen:ident) => {
        impl Float for $t {
            const NAME: &'static str = $name;
            const EPSILON: f64 = <$t>::EPSILON as f64;
            const WIDE: bool = size_of::<$t>() == size_of::<f64>();
            const MAX: f64 = <$t>::MAX as f64;
            const MIN_POSITIVE: f64 = <$t>::MIN_POSITIVE as f64;
            const ZERO: Self = 0.0;
            const INFINITY: Self = <$t>::INFINITY;
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn from_f32(x: f32) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn finite(self) -> bool {
                self.is_finite()
            }
            fn exp_all(values: &mut [Self]) {
                $exp_all(values);
            }
            fn choose<F: PerFloat, R>(
                value: F::Of<Self>,
                $narrow: impl FnOnce(F::Of<f32>) -> R,
                $wide: impl FnOnce(F::Of<f64>) -> R,
            ) -> R {
                $chosen(value)
            }
        }
    };
}
float!(f32, "float32", exp_all_f32, |narrow, _wide| narrow);
float!(f64, "float64", exp_all_f64, |_narrow, wide| wide);
