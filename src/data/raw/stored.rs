//! Types of stored numbers, and their conversion to the compute types.
#![allow(unsafe_code)]

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::data::Dtype;
use crate::float::Float;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that numbers can be stored in.
///
/// ```
/// use shoal::data::{Dtype, raw::Element};
/// assert_eq!(<u8 as Element>::DTYPE, Dtype::U8);
/// ```
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The type that rows of such numbers are computed in: see [`Dtype::computed_as_f64`].
    type Compute: Float;
    /// The same type as a value.
    const DTYPE: Dtype;
}

/// Conversion of a stored type to a compute type. Every bit pattern must be a valid value of the type.
pub(super) trait Stored: Copy {
    fn value<T: Float>(self) -> T;

    /// Converts `out.len()` consecutive values.
    ///
    /// # Safety
    /// That many values are readable from `from` on; no alignment is needed.
    #[inline(always)]
    unsafe fn convert_run<T: Float>(from: *const u8, out: &mut [T]) {
        let from = from.cast::<Self>();
        for (j, o) in out.iter_mut().enumerate() {
            // SAFETY: `j` is below `out.len()`, and this function requires as many readable values.
            *o = unsafe { from.add(j).read_unaligned() }.value();
        }
    }
}

/// A stored `bool`: any byte, since files may hold any.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Truth(u8);

impl Stored for Truth {
    #[inline(always)]
    fn value<T: Float>(self) -> T {
        T::from_f32(f32::from(u8::from(self.0 != 0)))
    }
}

impl Stored for f16 {
    #[inline(always)]
    fn value<T: Float>(self) -> T {
        T::from_f32(self.to_f32())
    }

    /// In runs, for which `half` uses the conversion instructions of the processor.
    ///
    /// # Safety
    /// `out.len()` values are readable from `from` on; no alignment is needed.
    #[inline(always)]
    unsafe fn convert_run<T: Float>(from: *const u8, out: &mut [T]) {
        const RUN: usize = 64;
        let (mut narrow, mut wide) = ([f16::ZERO; RUN], [0.0f32; RUN]);
        for (i, out) in out.chunks_mut(RUN).enumerate() {
            let n = out.len();
            // SAFETY: the run lies within the `out.len()` values that this function requires, and `narrow`
            // has room for RUN >= n values.
            unsafe {
                let run = from.add(i * RUN * size_of::<f16>());
                run.copy_to_nonoverlapping(narrow.as_mut_ptr().cast(), n * size_of::<f16>());
            }
            narrow[..n].convert_to_f32_slice(&mut wide[..n]);
            for (o, &w) in out.iter_mut().zip(&wide) {
                *o = T::from_f32(w);
            }
        }
    }
}

impl Stored for bf16 {
    #[inline(always)]
    fn value<T: Float>(self) -> T {
        // `bf16::to_f32` branches on NaN, whose bits do not matter here.
        T::from_f32(f32::from_bits(u32::from(self.to_bits()) << 16))
    }
}

macro_rules! stored {
    ($through:ident: $($t:ty),*) => {
        $(impl Stored for $t {
            #[inline(always)]
            #[allow(clippy::unnecessary_cast)]
            fn value<T: Float>(self) -> T {
                T::$through(self as _)
            }
        })*
    };
}
stored!(from_f32: u8, i8, i16, u16, f32);
stored!(from_f64: i32, u32, i64, u64, f64);

macro_rules! elements {
    ($compute:ty: $($t:ty => $dtype:ident),*) => {
        $(impl sealed::Sealed for $t {}
        impl Element for $t {
            type Compute = $compute;
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}
elements!(f32: u8 => U8, i8 => I8, i16 => I16, u16 => U16, f16 => F16, bf16 => Bf16, f32 => F32);
elements!(f64: bool => Bool, i32 => I32, u32 => U32, i64 => I64, u64 => U64, f64 => F64);

/// Evaluates an expression with `$S` standing for the [`Stored`] type of a [`Dtype`].
macro_rules! with_stored {
    ($dtype:expr, $S:ident => $body:expr) => {
        with_stored!(@ $dtype, $S, $body, Bool Truth, U8 u8, I8 i8, I16 i16, U16 u16, F16 f16, Bf16 bf16,
            F32 f32, I32 i32, U32 u32, I64 i64, U64 u64, F64 f64)
    };
    (@ $dtype:expr, $S:ident, $body:expr, $($variant:ident $t:ty),*) => {
        match $dtype {
            $(Dtype::$variant => {
                type $S = $t;
                $body
            })*
        }
    };
}
pub(super) use with_stored;

/// The bytes of stored numbers.
pub(in crate::data) fn bytes_of<E: Element>(values: &[E]) -> &[u8] {
    // SAFETY: the implementors of `Element` are primitive numbers without padding, so that all their bytes
    // are initialized; the length is that of the slice in bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
