//! This module knows how a source whose type is only known at run time is taken.

use super::{Chunks, DataSource, Dense, Dtype, Mapped, RawRows, Weighted};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::RowBuf;

/// A source of either compute type.
#[derive(Clone, Copy)]
pub enum AnySource<'a> {
    /// Rows computed in `f32`.
    F32(&'a dyn DataSource<f32>),
    /// Rows computed in `f64`.
    F64(&'a dyn DataSource<f64>),
}

/// What estimators take: a source that says itself which type its rows are computed in.
///
/// Implement it next to [`DataSource`] for a source of your own: it is one line.
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

/// A [`Float`] that says which variant of [`AnySource`] is its own.
pub trait Own: Float {
    /// The variant.
    fn own(source: &dyn DataSource<Self>) -> AnySource<'_>;
}

impl Own for f32 {
    fn own(source: &dyn DataSource<f32>) -> AnySource<'_> {
        AnySource::F32(source)
    }
}

impl Own for f64 {
    fn own(source: &dyn DataSource<f64>) -> AnySource<'_> {
        AnySource::F64(source)
    }
}

impl Source for AnySource<'_> {
    fn any(&self) -> AnySource<'_> {
        *self
    }
}

macro_rules! own {
    ($([$($generics:tt)*] $t:ty),* $(,)?) => {$(
        impl<$($generics)*> Source for $t {
            fn any(&self) -> AnySource<'_> {
                T::own(self)
            }
        }
    )*};
}
own!(
    ['a, T: Own] Dense<'a, T>,
    ['a, T: Own] Chunks<'a, T>,
    ['a, T: Own] MatRef<'a, T>,
    ['a, T: Own, const D: usize] &'a [[T; D]],
    [T: Own, const D: usize, const N: usize] [[T; D]; N],
    [T: Own, const D: usize] Vec<[T; D]>,
    ['a, T: Own] Weighted<'a, &RowBuf<T>>,
);

#[cfg(feature = "ndarray")]
impl<T: Own, S: ndarray::Data<Elem = T> + Sync> Source for ndarray::ArrayBase<S, ndarray::Ix2> {
    fn any(&self) -> AnySource<'_> {
        T::own(self)
    }
}

/// The variant that a stored type is computed in.
fn stored<S: DataSource<f32> + DataSource<f64>>(source: &S, dtype: Dtype) -> AnySource<'_> {
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
