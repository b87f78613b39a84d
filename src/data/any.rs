//! Sources whose compute type is only known at run time.

use std::fmt;
use std::marker::PhantomData;

use super::raw::Element;
use super::{Chunks, DataSource, Dense, Dtype, Mapped, RawRows};
use crate::float::{Float, PerFloat, Typed};
use crate::matrix::MatRef;
use crate::rows::RowBuf;

/// A source of either compute type.
///
/// ```
/// use shoal::data::{AnySource, Source};
/// fn columns(rows: &impl Source) -> usize {
///     match rows.any() {
///         AnySource::F32(rows) => rows.dim(),
///         AnySource::F64(rows) => rows.dim(),
///     }
/// }
/// assert_eq!(columns(&[[1.0f32, 2.0], [3.0, 4.0]]), 2);
/// ```
pub type AnySource<'a> = Typed<&'a dyn DataSource<f32>, &'a dyn DataSource<f64>>;

/// A borrowed source, for each compute type.
struct Borrowed<'a>(PhantomData<&'a ()>);

impl<'a> PerFloat for Borrowed<'a> {
    type Of<T: Float> = &'a dyn DataSource<T>;
}

impl<'a> AnySource<'a> {
    /// The variant of the compute type `T`.
    ///
    /// ```
    /// use shoal::data::{AnySource, Dense};
    /// let rows = Dense::new(&[1.0f64, 2.0], 2).unwrap();
    /// assert!(matches!(AnySource::of(&rows), AnySource::F64(_)));
    /// ```
    pub fn of<T: Float>(source: &'a dyn DataSource<T>) -> Self {
        Typed::of_type::<T, Borrowed<'a>>(source)
    }
}

/// Rows that `fit`, `predict` and the other methods of models take: a source that knows its compute type.
///
/// For your own source, implement [`DataSource`] and this trait, which has one method of one line. References to
/// sources are sources.
///
/// ```
/// use shoal::data::{AnySource, Dense, Source};
/// let rows = Dense::new(&[1.0f32, 2.0], 2).unwrap();
/// assert!(matches!(rows.any(), AnySource::F32(_)));
/// ```
pub trait Source {
    /// The source in its compute type.
    fn any(&self) -> AnySource<'_>;
}

impl<S: Source + ?Sized> Source for &S {
    fn any(&self) -> AnySource<'_> {
        (**self).any()
    }
}

/// The compute type of a source made from another source, chosen when the source `V` is made.
pub(super) struct ComputeType<V>(for<'s> fn(&'s V) -> AnySource<'s>);

impl<V> ComputeType<V> {
    /// The compute type `T`.
    pub(super) fn of<T: Float>() -> Self
    where
        V: DataSource<T>,
    {
        Self(|source| AnySource::of::<T>(source))
    }

    /// `source` in this compute type.
    pub(super) fn any(self, source: &V) -> AnySource<'_> {
        (self.0)(source)
    }
}

impl<V> Clone for ComputeType<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for ComputeType<V> {}

impl<V> fmt::Debug for ComputeType<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ComputeType")
    }
}

impl Source for AnySource<'_> {
    fn any(&self) -> AnySource<'_> {
        *self
    }
}

/// Implements [`Source`] for sources of one compute type.
macro_rules! of_one_type {
    ($([$($generics:tt)*] $t:ty),* $(,)?) => {$(
        impl<$($generics)*> Source for $t {
            fn any(&self) -> AnySource<'_> {
                AnySource::of(self)
            }
        }
    )*};
}
of_one_type!(
    ['a, T: Float] Dense<'a, T>,
    ['a, T: Float] Chunks<'a, T>,
    ['a, T: Float] MatRef<'a, T>,
    [T: Float] RowBuf<T>,
    ['a, E: Element, const D: usize] &'a [[E; D]],
    [E: Element, const D: usize, const N: usize] [[E; D]; N],
    [E: Element, const D: usize] Vec<[E; D]>,
    ['a, T: Float] &'a [Vec<T>],
    [T: Float] Vec<Vec<T>>,
);

impl<E: Element, S: ndarray::Data<Elem = E> + Sync> Source for ndarray::ArrayBase<S, ndarray::Ix2> {
    fn any(&self) -> AnySource<'_> {
        AnySource::of(self)
    }
}

/// A source of both compute types in the compute type of its stored type.
pub(crate) fn stored<S: DataSource<f32> + DataSource<f64>>(source: &S, dtype: Dtype) -> AnySource<'_> {
    if dtype.computed_as_f64() { AnySource::F64(source) } else { AnySource::F32(source) }
}

impl Source for Mapped {
    fn any(&self) -> AnySource<'_> {
        stored(self, self.layout().dtype)
    }
}

impl Source for RawRows<'_> {
    fn any(&self) -> AnySource<'_> {
        stored(self, self.layout().dtype)
    }
}
