//! The two types that rows are computed in.

use std::fmt::{Debug, Display};
use std::ops::{Add, Mul, Sub};

use crate::exponent::{exp_all_f32, exp_all_f64};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A type for each compute type: see [`Float::choose`].
#[doc(hidden)]
pub trait PerFloat {
    /// The type that belongs to `T`.
    type Of<T: Float>;
}

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
