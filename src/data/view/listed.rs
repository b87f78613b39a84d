//! Rows that a list of row numbers selects.

use std::ops::{ControlFlow, Range};

use super::selected::Selection;
use crate::data::raw::one_block;
use crate::data::tile::append_picked;
use crate::data::{Block, Converted, DataSource, Tile, TileReader, Visit, Wanted, copy_to, gather};
use crate::error::Result;
use crate::float::Float;
use crate::rows::RowBuf;

/// Share of the rows of a file from which a subset is read in a pass that reads ahead. With a smaller share,
/// most of the bytes that the pass reads would be unused (pages of 4 KiB hold 4 to 40 rows of usual length).
const SUBSET_SHARE: f64 = 1.0 / 8.0;

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

/// Row numbers by their place in a view.
pub trait RowNumbers: Sync {
    /// How many there are.
    fn len(&self) -> usize;
    /// The row number at a place.
    fn at(&self, place: usize) -> u64;
    /// The row numbers at consecutive places.
    fn range(&self, places: Range<usize>) -> Vec<u64>;
}

impl<I: RowIndex> RowNumbers for &[I] {
    fn len(&self) -> usize {
        <[I]>::len(self)
    }
    fn at(&self, place: usize) -> u64 {
        self[place].row()
    }
    fn range(&self, places: Range<usize>) -> Vec<u64> {
        self[places].iter().map(|i| i.row()).collect()
    }
}

impl<I: RowIndex> RowNumbers for Vec<I> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }
    fn at(&self, place: usize) -> u64 {
        self.as_slice().at(place)
    }
    fn range(&self, places: Range<usize>) -> Vec<u64> {
        self.as_slice().range(places)
    }
}

/// The rows with the numbers in `list`, and their weights.
#[derive(Clone, Debug)]
pub struct Listed<L> {
    list: L,
    weights: Option<Vec<f64>>,
    /// Whether the numbers ascend.
    ascending: bool,
}

impl<L: RowNumbers> Listed<L> {
    /// The rows `list`, without weights.
    pub(super) fn new(list: L) -> Self {
        Self { list, weights: None, ascending: false }
    }

    /// As [`Listed::new`], for numbers that ascend. If they are many, a pass reads the source from its start to its
    /// end.
    pub(super) fn ascending(list: L) -> Self {
        Self { ascending: true, ..Self::new(list) }
    }

    /// Takes the weights of the rows from those of all rows.
    pub(super) fn take_weights(&mut self, all: Option<&[f64]>) {
        self.weights =
            all.map(|all| (0..self.list.len()).map(|place| all[self.list.at(place) as usize]).collect());
    }

    /// Passes all rows to `f` as one block.
    fn one_block<T: Float>(&self, origin: Origin<'_, T>, f: &mut Visit<'_, T>) -> Result<()> {
        let rows = ListedRows { list: &self.list, origin };
        let weights = self.weights.as_deref();
        one_block(&rows, self.list.len(), &mut |block| f(Block { weights, ..block }))
    }
}

impl<I> Listed<Vec<I>> {
    /// The row numbers.
    pub(super) fn list(&self) -> &[I] {
        &self.list
    }
}

impl<L: RowNumbers> Selection for Listed<L> {
    fn len(&self) -> u64 {
        self.list.len() as u64
    }
    fn row(&self, place: u64) -> u64 {
        self.list.at(place as usize)
    }
    fn weights<'a>(&'a self, _all: Option<&'a [f64]>) -> Option<&'a [f64]> {
        self.weights.as_deref()
    }
    fn has_weights(&self, _weighted: bool) -> bool {
        self.weights.is_some()
    }
    fn for_each_block<T: Float>(
        &self,
        source: &dyn DataSource<T>,
        tile_rows: usize,
        f: &mut Visit<'_, T>,
    ) -> Result<()> {
        let (len, all) = (self.list.len(), source.rows().unwrap_or(u64::MAX));
        let mut passed = false;
        if self.ascending && len > 0 && len as f64 >= SUBSET_SHARE * all as f64 {
            source.for_each_block(tile_rows, &mut |block| {
                // Rows of a source of several blocks are read one by one.
                if block.len as u64 == all {
                    passed = true;
                    let (sparse, cols) = (source.most_values().is_some(), source.dim());
                    self.one_block(Origin::Block { rows: block.rows, sparse, cols }, f)?;
                }
                Ok(ControlFlow::Break(()))
            })?;
        }
        if passed { Ok(()) } else { self.one_block(Origin::Source(source), f) }
    }
}

/// Where listed rows are read from.
#[derive(Clone, Copy)]
enum Origin<'a, T: Float> {
    /// A source with random access.
    Source(&'a dyn DataSource<T>),
    /// The only block of a source, which is read forwards.
    Block { rows: &'a dyn TileReader<T>, sparse: bool, cols: usize },
}

impl<T: Float> Origin<'_, T> {
    /// Whether the rows are sparse, and their number of columns.
    fn shape(&self) -> (bool, usize) {
        match *self {
            Self::Source(source) => (source.most_values().is_some(), source.dim()),
            Self::Block { sparse, cols, .. } => (sparse, cols),
        }
    }

    /// Appends rows to `out`, which is sparse if they are.
    fn append(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        match *self {
            Self::Source(source) if out.is_sparse() => copy_to(source, rows, out),
            Self::Source(source) => gather(source, rows, &mut out.values),
            Self::Block { rows: reader, .. } => {
                let mut converted = Converted::default();
                for run in rows.chunk_by(|a, b| a + 1 == *b) {
                    let first = run[0] as usize;
                    out.extend(converted.read(reader, first..first + run.len(), None)?);
                }
                Ok(())
            }
        }
    }
}

/// Listed rows as one block.
struct ListedRows<'a, T: Float, L> {
    list: &'a L,
    origin: Origin<'a, T>,
}

impl<T: Float, L: RowNumbers> TileReader<T> for ListedRows<'_, T, L> {
    fn read(&self, wanted: Wanted<'_>, buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        let (sparse, cols) = self.origin.shape();
        let rows = self.list.range(wanted.rows.clone());
        if sparse {
            buffer.begin_sparse(cols);
            append_picked(&wanted, buffer, |some, buffer| self.origin.append(&rows[some], buffer))?;
            return Ok(Some(Tile::Copied));
        }
        let Some(picked) = wanted.few() else {
            buffer.clear(cols);
            self.origin.append(&rows, buffer)?;
            return Ok(Some(Tile::Copied));
        };
        let chosen: Vec<u64> = picked.iter().map(|&r| rows[r as usize]).collect();
        let mut copied = RowBuf::new(cols);
        self.origin.append(&chosen, &mut copied)?;
        let out = buffer.room(rows.len(), cols);
        for (row, &r) in copied.values.chunks_exact(cols).zip(picked) {
            out[r as usize * cols..][..cols].copy_from_slice(row);
        }
        Ok(Some(Tile::Copied))
    }
}
