//! Views of mapped rows: each row of a view is made from the row of its source with the same number.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::data::any::ComputeType;
use crate::data::source::forward;
use crate::data::tile::append_filled;
use crate::data::tile::{Wanted, read_to};
use crate::data::{
    Access, AnySource, Block, DataSource, Origin, Source, Tile, TileReader, Visit, copy_to, gather,
};
use crate::error::Result;
use crate::float::Float;
use crate::matrix::make_room;
use crate::rows::RowBuf;

/// The rows of a source, each mapped by `M` when it is read: see [`Normalized`](super::Normalized),
/// [`Standardized`](super::Standardized) and [`Projected`](super::Projected).
#[derive(Debug)]
pub struct Transformed<S, M> {
    source: S,
    pub(super) by: Arc<M>,
    compute: ComputeType<Self>,
}

impl<S, M: RowMap> Transformed<S, M> {
    /// The rows of `source`, mapped by `by`, which fits its columns.
    pub(crate) fn by<T: Float>(source: S, by: Arc<M>) -> Self
    where
        S: DataSource<T>,
    {
        Self { source, by, compute: ComputeType::of::<T>() }
    }
}

/// What a view does with each row of its source.
pub trait RowMap: Send + Sync {
    /// Whether sparse rows stay sparse.
    const KEEPS_SPARSE: bool;

    /// Whether rows of finite values are certain to stay finite.
    const KEEPS_FINITE: bool;

    /// Columns of the mapped rows, from those of the source.
    fn cols(&self, dim: usize) -> usize;

    /// Reads rows of a block to `buffer`, mapped.
    ///
    /// # Errors
    /// Those of reading.
    fn read<T: Float>(
        &self,
        unmapped: &Unmapped<'_, T>,
        wanted: Wanted<'_>,
        buffer: &mut RowBuf<T>,
    ) -> Result<()>;

    /// Appends single rows of `source` to `out`, mapped. `out` is sparse if the mapped rows are, else dense.
    ///
    /// # Errors
    /// Those of the source.
    fn copy<T: Float>(&self, source: &dyn DataSource<T>, rows: &[u64], out: &mut RowBuf<T>) -> Result<()>;
}

/// A change of the values of a row in place.
pub trait RowChange: Send + Sync {
    /// Whether rows of finite values are certain to stay finite.
    const KEEPS_FINITE: bool;

    /// Changes all values of a row, or the stored ones, in `columns`. Returns whether to [note](RowChange::note) the
    /// row.
    fn change<T: Float>(&self, values: &mut [T], columns: Option<&[i32]>) -> bool;

    /// Takes note of rows by their numbers.
    fn note(&self, rows: Vec<u64>) {
        let _ = rows;
    }
}

/// Changes the rows of `buffer` from `first` on, only those `picked` if they are given. `number` tells the number of a
/// row by its place after `first`.
fn change_rows<T: Float>(
    by: &impl RowChange,
    (buffer, first): (&mut RowBuf<T>, usize),
    picked: Option<&[u32]>,
    number: impl Fn(usize) -> u64,
) {
    let n = buffer.len() - first;
    let mut noted = Vec::new();
    let mut change = |place: usize| {
        let (values, columns) = buffer.row_mut(first + place);
        if by.change(values, columns) {
            noted.push(number(place));
        }
    };
    match picked {
        None => (0..n).for_each(&mut change),
        Some(picked) => picked.iter().for_each(|&place| change(place as usize)),
    }
    by.note(noted);
}

impl<C: RowChange> RowMap for C {
    const KEEPS_SPARSE: bool = true;
    const KEEPS_FINITE: bool = <C as RowChange>::KEEPS_FINITE;

    fn cols(&self, dim: usize) -> usize {
        dim
    }
    fn read<T: Float>(
        &self,
        unmapped: &Unmapped<'_, T>,
        wanted: Wanted<'_>,
        buffer: &mut RowBuf<T>,
    ) -> Result<()> {
        let (first, picked) = (unmapped.block.first_row + wanted.rows.start as u64, wanted.picked);
        read_to(unmapped.block.rows, wanted, unmapped.dim, buffer)?;
        change_rows(self, (buffer, 0), picked, |place| first + place as u64);
        Ok(())
    }
    fn copy<T: Float>(&self, source: &dyn DataSource<T>, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        let before = out.len();
        if out.is_sparse() {
            copy_to(source, rows, out)?;
        } else {
            gather(source, rows, &mut out.values)?;
        }
        change_rows(self, (out, before), None, |place| rows[place]);
        Ok(())
    }
}

/// A block of rows that are not mapped yet.
#[derive(Debug)]
pub struct Unmapped<'a, T: Float> {
    pub(super) block: Block<'a, T>,
    pub(super) dim: usize,
}

/// The rows of a block, mapped.
struct MappedRows<'a, T: Float, M> {
    unmapped: Unmapped<'a, T>,
    by: &'a M,
}

impl<T: Float, M: RowMap> TileReader<T> for MappedRows<'_, T, M> {
    fn read(&self, wanted: Wanted<'_>, buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        self.by.read(&self.unmapped, wanted, buffer)?;
        Ok(Some(Tile::Copied))
    }
}

impl<S, M: RowMap> Transformed<S, M> {
    /// Calls `f` with the mapped rows of a block.
    fn pass_on<T: Float>(&self, block: Block<'_, T>, f: &mut Visit<'_, T>) -> Result<ControlFlow<()>>
    where
        S: DataSource<T>,
    {
        let rows = MappedRows { unmapped: Unmapped { block, dim: self.source.dim() }, by: &*self.by };
        f(Block { rows: &rows, ..block })
    }
}

impl<T: Float, S: DataSource<T>, M: RowMap> DataSource<T> for Transformed<S, M> {
    forward!(|this| this.source => rows access weights origin scarce_memory);

    fn dim(&self) -> usize {
        self.by.cols(self.source.dim())
    }
    fn always_finite(&self) -> bool {
        M::KEEPS_FINITE && self.source.always_finite()
    }
    fn most_values(&self) -> Option<usize> {
        self.source.most_values().filter(|_| M::KEEPS_SPARSE)
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.source.for_each_block(tile_rows, &mut |block| self.pass_on(block, f))
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.source.for_each_block_from(row, tile_rows, &mut |block| self.pass_on(block, f))
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        if self.most_values().is_some() {
            // Mapped before the zeros are filled in, as in a pass.
            let mut found = RowBuf::sparse(self.dim());
            self.by.copy(&self.source, rows, &mut found)?;
            make_room(out, "copied rows", rows.len() as u64, self.dim())?;
            found.as_sparse().into_iter().for_each(|rows| append_filled(rows, out));
            return Ok(());
        }
        let mut found = RowBuf::of_values(std::mem::take(out), self.dim());
        let copied = self.by.copy(&self.source, rows, &mut found);
        *out = found.values;
        copied
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        let sparse = self.most_values().is_some();
        match (out.is_empty(), sparse) {
            (true, true) => out.begin_sparse(self.dim()),
            (true, false) => out.clear(self.dim()),
            _ => {}
        }
        if out.is_sparse() == sparse {
            return self.by.copy(&self.source, rows, out);
        }
        let mut found = if sparse { RowBuf::sparse(self.dim()) } else { RowBuf::new(self.dim()) };
        self.by.copy(&self.source, rows, &mut found)?;
        out.extend(found.rows());
        Ok(())
    }
}

impl<S, M> Source for Transformed<S, M> {
    fn any(&self) -> AnySource<'_> {
        self.compute.any(self)
    }
}

impl<S: Clone, M> Clone for Transformed<S, M> {
    fn clone(&self) -> Self {
        Self { source: self.source.clone(), by: self.by.clone(), compute: self.compute }
    }
}
