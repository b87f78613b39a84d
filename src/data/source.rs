//! The contract between rows and everything that reads them.

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;

use super::reblock::Reblock;
use super::{TileReader, Visit, gather, gather_in_pass, weights_of_rows};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::RowBuf;

/// How a source can be read; each level includes the ones before it.
///
/// ```
/// use shoal::data::Access;
/// assert!(Access::Once < Access::Replay && Access::Replay < Access::Random);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// One pass, in order.
    Once,
    /// Any number of passes, in order.
    Replay,
    /// Any row at any time.
    Random,
}

/// Consecutive rows of a source.
///
/// ```
/// use std::ops::ControlFlow;
/// use shoal::data::{DataSource, Dense};
/// let source = Dense::new(&[1.0f32, 2.0, 3.0, 4.0], 2)?;
/// let mut sum = 0.0;
/// source.for_each_block(1, &mut |block| {
///     let mut scratch = Vec::new();
///     let tile: shoal::MatRef<'_, f32> = block.rows.tile(0..block.len, &mut scratch)?;
///     sum += tile.iter().flatten().sum::<f32>();
///     Ok(ControlFlow::Continue(()))
/// })?;
/// assert_eq!(sum, 10.0);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Block<'a, T: Float> {
    /// Row number of the first row.
    pub first_row: u64,
    /// Number of rows.
    pub len: usize,
    /// Reads the rows.
    pub rows: &'a dyn TileReader<T>,
    /// One weight per row, if the source has weights.
    pub weights: Option<&'a [f64]>,
}

impl<T: Float> fmt::Debug for Block<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Block");
        shown.field("first_row", &self.first_row).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Where a value of a source comes from.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The file that holds its row and the number of the row there, if the source has several files.
    pub file: Option<(PathBuf, u64)>,
    /// The value as it is stored, if the rows are stored in a type with a larger range.
    pub stored: Option<f64>,
}

/// Rows from a file, an array or a stream.
///
/// Required are the number of columns and rows, the access, and one pass over all rows; see
/// `examples/custom_source.rs`. To pass a source to `fit`, implement [`Source`](super::Source) too, which
/// takes one line.
///
/// ```
/// use shoal::data::{DataSource, Dense};
/// let source = Dense::new(&[1.0f32, 2.0, 3.0, 4.0], 2).unwrap();
/// assert_eq!((DataSource::<f32>::dim(&source), DataSource::<f32>::rows(&source)), (2, Some(2)));
/// ```
pub trait DataSource<T: Float>: Sync {
    /// Columns of a row; at least 1.
    fn dim(&self) -> usize;

    /// Number of rows; `None` if it is only known after a pass. A pass over another number of rows is an
    /// error for every consumer.
    fn rows(&self) -> Option<u64>;

    /// How the source can be read.
    fn access(&self) -> Access;

    /// The weights of all rows, if the source has weights and knows them without a pass.
    fn weights(&self) -> Option<&[f64]> {
        None
    }

    /// Whether the source is known to have weights, even if all of them are 1, and therefore ignored.
    #[doc(hidden)]
    fn has_weights(&self) -> bool {
        self.weights().is_some()
    }

    /// Whether all values are known to be finite, for example because integers are stored. Then
    /// [`check_finite`](super::check_finite) reads nothing.
    fn always_finite(&self) -> bool {
        false
    }

    /// The largest number of stored values in a row, if rows are sparse; `None` if they are dense.
    fn most_values(&self) -> Option<usize> {
        None
    }

    /// The bytes of memory that are available, if the rows are in files that are larger. Then reading few rows costs
    /// less than reading all.
    #[doc(hidden)]
    fn scarce_memory(&self) -> Option<u64> {
        None
    }

    /// The number of the first row: 0, except for a part of a source whose rows keep their numbers.
    #[doc(hidden)]
    fn first_row(&self) -> u64 {
        0
    }

    /// What is known of a value beside its place, for errors.
    #[doc(hidden)]
    fn origin(&self, _row: u64, _column: usize) -> Origin {
        Origin::default()
    }

    /// One pass over all rows in order. Every block but the last has a multiple of `tile_rows` rows; `f` may
    /// end the pass early.
    ///
    /// # Errors
    /// Those of reading, and those of `f`.
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()>;

    /// As [`for_each_block`](DataSource::for_each_block), from row `row` on, where the first tile begins. A
    /// pass that `f` left by [`ControlFlow::Break`] can be resumed at any row of its last block, or at the
    /// row after it, without reading earlier rows again. A pass can therefore be made in steps, even if the
    /// source can be read only once.
    ///
    /// # Errors
    /// As [`for_each_block`](DataSource::for_each_block); [`Error::Source`] for a row that has passed and
    /// cannot be read again.
    fn for_each_block_from(
        &self,
        row: u64,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut blocks = Reblock::new(self.dim(), tile_rows, 1, f).starting_at(row);
        let mut ended = false;
        self.for_each_block(tile_rows, &mut |block| {
            let skipped = usize::try_from(row.saturating_sub(block.first_row)).unwrap_or(usize::MAX);
            if skipped < block.len {
                let weights = weights_of_rows(&block, skipped..block.len)?;
                ended = blocks.push(block.rows, skipped..block.len, weights, false)?.is_break();
            }
            Ok(if ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if ended { Ok(()) } else { blocks.finish() }
    }

    /// Appends single rows to `out`, in the order given.
    ///
    /// The default makes one pass over the source. A source with [`Access::Random`] should implement it:
    /// methods that need random access call it often.
    ///
    /// ```
    /// use shoal::data::{Chunks, DataSource};
    /// let stream = Chunks::replay(1, || (0..3).map(|i| Ok(vec![i as f32; 10].into())));
    /// let mut out = Vec::new();
    /// stream.gather(&[25, 3, 3], &mut out)?;
    /// assert_eq!(out, [2.0, 0.0, 0.0]);
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading; [`Error::Source`] from a source with [`Access::Once`], [`Error::Shape`] for a row
    /// that does not exist.
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        if self.access() == Access::Once {
            return Err(Error::Source(
                "single rows of a stream cannot be read; write it to a file and open that".into(),
            ));
        }
        gather_in_pass(self, rows, out)
    }

    /// As [`DataSource::gather`], but keeps sparse rows sparse.
    ///
    /// # Errors
    /// As [`DataSource::gather`].
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        let mut values = Vec::new();
        gather(self, rows, &mut values)?;
        out.extend(MatRef::new(&values, self.dim()).into());
        Ok(())
    }
}

/// Implements methods of [`DataSource`] that call the same method of another source.
macro_rules! forward {
    (|$this:ident| $other:expr => $($method:ident)*) => { $(forward!(@ $method $this $other);)* };
    (@ dim $($to:tt)*) => { forward!(fn dim() -> usize, $($to)*); };
    (@ rows $($to:tt)*) => { forward!(fn rows() -> Option<u64>, $($to)*); };
    (@ access $($to:tt)*) => { forward!(fn access() -> Access, $($to)*); };
    (@ weights $($to:tt)*) => {
        forward!(fn weights() -> Option<&[f64]>, $($to)*);
        forward!(fn has_weights() -> bool, $($to)*);
    };
    (@ always_finite $($to:tt)*) => { forward!(fn always_finite() -> bool, $($to)*); };
    (@ scarce_memory $($to:tt)*) => { forward!(fn scarce_memory() -> Option<u64>, $($to)*); };
    (@ origin $($to:tt)*) => { forward!(fn origin(row: u64, column: usize) -> Origin, $($to)*); };
    (@ first_row $($to:tt)*) => { forward!(fn first_row() -> u64, $($to)*); };
    (@ most_values $($to:tt)*) => { forward!(fn most_values() -> Option<usize>, $($to)*); };
    (@ for_each_block $($to:tt)*) => {
        forward!(fn for_each_block(tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()>, $($to)*);
    };
    (@ for_each_block_from $($to:tt)*) => {
        forward!(fn for_each_block_from(row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()>, $($to)*);
    };
    (@ gather $($to:tt)*) => { forward!(fn gather(rows: &[u64], out: &mut Vec<T>) -> Result<()>, $($to)*); };
    (@ copy $($to:tt)*) => { forward!(fn copy(rows: &[u64], out: &mut RowBuf<T>) -> Result<()>, $($to)*); };
    (fn $method:ident($($arg:ident: $type:ty),*) -> $result:ty, $this:ident $other:expr) => {
        fn $method(&self, $($arg: $type),*) -> $result {
            let $this = self;
            DataSource::<T>::$method(&$other, $($arg),*)
        }
    };
}
pub(crate) use forward;

impl<T: Float, S: DataSource<T> + ?Sized> DataSource<T> for &S {
    forward!(|this| **this =>
        dim rows access weights always_finite scarce_memory origin first_row most_values for_each_block
        for_each_block_from gather copy);
}
