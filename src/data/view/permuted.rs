//! The rows of a source in another order.

use std::ops::Range;

use super::forward;
use crate::data::any::ComputeType;
use crate::data::raw::one_block;
use crate::data::weights::check_announced;
use crate::data::{
    Access, AnySource, Block, DataSource, Source, TileReader, Visit, copy_to, gather, no_such_row,
};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, SparseRef};

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

/// A type of row numbers: `u32`, which takes half the memory, or `u64`.
///
/// ```
/// use shoal::data::RowIndex;
/// assert_eq!(7u32.row(), 7u64);
/// ```
pub trait RowIndex: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The row number as `u64`.
    fn row(self) -> u64;
}

impl RowIndex for u32 {
    fn row(self) -> u64 {
        u64::from(self)
    }
}

impl RowIndex for u64 {
    fn row(self) -> u64 {
        self
    }
}

/// The rows of a source in a given order. Rows may be left out or come more than once.
///
/// ```
/// use shoal::KMeans;
/// use shoal::data::{DataSource, Permuted};
/// let backwards = Permuted::new([[1.0f32], [2.0], [3.0]], vec![2u32, 1, 0])?;
/// let mut found = Vec::new();
/// backwards.gather(&[0, 1], &mut found)?;
/// assert_eq!(found, [3.0, 2.0]);
/// assert_eq!(KMeans::params(1).fit(&backwards)?.centers::<f32>(), [2.0]);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Permuted<S, I = u64> {
    source: S,
    order: Vec<I>,
    weights: Option<Vec<f64>>,
    compute: ComputeType<Self>,
}

/// Row numbers are converted to `u64` in groups of this size, on the stack.
const GATHERED_ROWS: usize = 256;

impl<S, I: RowIndex> Permuted<S, I> {
    /// The rows `order` of `source`, which needs [`Access::Random`]. For the type parameter see
    /// [`Weighted::new`](super::Weighted::new).
    ///
    /// # Errors
    /// [`Error::Source`] for a source without random access or without one weight per row, [`Error::Shape`]
    /// for a row that does not exist.
    ///
    /// ```
    /// use shoal::data::Permuted;
    /// let refused = Permuted::new([[1.0f32], [2.0], [3.0]], vec![0u64, 3]).unwrap_err();
    /// assert_eq!(refused.to_string(), "row 3 does not exist");
    /// ```
    pub fn new<T: Float>(source: S, order: Vec<I>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let mut new = Self::unweighted(source, order)?;
        check_announced(new.source.weights(), new.source.rows().unwrap_or_default())?;
        new.weights =
            new.source.weights().map(|weights| new.order.iter().map(|i| weights[i.row() as usize]).collect());
        Ok(new)
    }

    /// As [`Permuted::new`], but without the weights of the source.
    pub(crate) fn unweighted<T: Float>(source: S, order: Vec<I>) -> Result<Self>
    where
        S: DataSource<T>,
    {
        let rows = source.rows().filter(|_| source.access() == Access::Random).ok_or_else(|| {
            Error::Source(
                "another row order needs random access: write the rows to a file and open that".into(),
            )
        })?;
        if let Some(beyond) = order.iter().find(|i| i.row() >= rows) {
            return Err(no_such_row(beyond.row()));
        }
        Ok(Self { source, order, weights: None, compute: ComputeType::of::<T>() })
    }

    /// The row numbers in order.
    pub(crate) fn order(&self) -> &[I] {
        &self.order
    }

    /// The row numbers of the source at some places of the order.
    fn of_source<'a>(&'a self, places: &'a [u64]) -> Result<impl Iterator<Item = I> + use<'a, S, I>> {
        match places.iter().find(|&&place| place >= self.order.len() as u64) {
            Some(&beyond) => Err(no_such_row(beyond)),
            None => Ok(places.iter().map(|&place| self.order[place as usize])),
        }
    }

    /// Calls `f` with the row numbers in `order`, up to [`GATHERED_ROWS`] at a time.
    fn in_groups(order: impl Iterator<Item = I>, mut f: impl FnMut(&[u64]) -> Result<()>) -> Result<()> {
        let mut rows = [0u64; GATHERED_ROWS];
        let mut order = order.peekable();
        while order.peek().is_some() {
            let mut n = 0;
            for (row, i) in rows.iter_mut().zip(order.by_ref()) {
                *row = i.row();
                n += 1;
            }
            f(&rows[..n])?;
        }
        Ok(())
    }
}

impl<T: Float, S: DataSource<T>, I: RowIndex> TileReader<T> for Permuted<S, I> {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        Ok(MatRef::new(self.copy_tile(rows, scratch)?, self.source.dim()))
    }
    fn copy_tile<'s>(&self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<&'s mut [T]> {
        scratch.clear();
        let order = self.order[rows].iter().copied();
        Self::in_groups(order, |rows| gather(&self.source, rows, scratch))?;
        Ok(scratch)
    }
    fn sparse<'s>(
        &'s self,
        rows: Range<usize>,
        _picked: Option<&[u32]>,
        scratch: &'s mut RowBuf<T>,
    ) -> Result<Option<SparseRef<'s, T>>> {
        if self.source.most_values().is_none() {
            return Ok(None);
        }
        scratch.begin_sparse(self.source.dim());
        let order = self.order[rows].iter().copied();
        Self::in_groups(order, |rows| copy_to(&self.source, rows, scratch))?;
        Ok(scratch.as_sparse())
    }
}

impl<T: Float, S: DataSource<T>, I: RowIndex> DataSource<T> for Permuted<S, I> {
    forward!(source: dim always_finite most_values);

    fn rows(&self) -> Option<u64> {
        Some(self.order.len() as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }
    fn for_each_block(&self, _tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        let weights = self.weights.as_deref();
        one_block(self, self.order.len(), &mut |block| f(Block { weights, ..block }))
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        Self::in_groups(self.of_source(rows)?, |rows| self.source.gather(rows, out))
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        Self::in_groups(self.of_source(rows)?, |rows| self.source.copy(rows, out))
    }
}

impl<S, I> Source for Permuted<S, I> {
    fn any(&self) -> AnySource<'_> {
        self.compute.any(self)
    }
}
