//! Dispatches once on the compute type of the rows.

use std::any::Any;

/// A value for `f32` rows or its counterpart for `f64` rows.
#[derive(Clone, Debug)]
pub(crate) enum Typed<A, B> {
    F32(A),
    F64(B),
}

impl<A: 'static, B: 'static> Typed<A, B> {
    /// The variant of `value`, which is an `A` or a `B`.
    pub(crate) fn of(value: impl Any) -> Self {
        let value: Box<dyn Any> = Box::new(value);
        match value.downcast::<A>() {
            Ok(narrow) => Self::F32(*narrow),
            Err(value) => Self::F64(*value.downcast::<B>().expect("a value for f32 or for f64 rows")),
        }
    }
}

/// Evaluates one expression for either variant.
macro_rules! either {
    ($typed:expr, $value:ident => $body:expr) => {
        match $typed {
            $crate::fit::Typed::F32($value) => $body,
            $crate::fit::Typed::F64($value) => $body,
        }
    };
}
pub(crate) use either;
