//! This module knows the rows behind a Python object: an array, a sparse matrix, a file or a part of one, with or without weights.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use numpy::PyReadonlyArray1;

use super::array::{Array, SparseArray, vector};
use crate::data::raw::Layout;
use crate::data::{self, Access, AnySource, Block, DataSource, Mapped, RowRange, Weighted};
use crate::error::Result;
use crate::float::Float;
use crate::rows::RowBuf;

/// Rows in an array or a file; cheap to clone, a source for both compute types.
#[derive(Clone)]
pub(super) enum Rows {
    Array(Arc<Array>),
    Sparse { matrix: Arc<SparseArray>, rows: Range<usize> },
    File(Mapped),
    Part { file: Mapped, rows: Range<usize> },
}

impl Rows {
    pub(super) fn layout(&self) -> Layout {
        match self {
            Self::Array(array) => array.rows().layout(),
            // Of the values if zeros were stored too.
            Self::Sparse { matrix, rows } => {
                Layout::row_major(matrix.values().dtype, rows.len(), matrix.rows().shape().1)
            }
            Self::File(file) => file.layout(),
            Self::Part { file, rows } => Layout { rows: rows.len(), ..file.layout() },
        }
    }

    /// Runs `f` on the source that this is.
    fn with<T: Float, R>(&self, f: impl FnOnce(&dyn DataSource<T>) -> Result<R>) -> Result<R> {
        match self {
            Self::Array(array) => f(array.rows()),
            Self::Sparse { matrix, rows } if rows.len() == matrix.rows().shape().0 => f(matrix.rows()),
            Self::Sparse { matrix, rows } => {
                f(&RowRange::new::<T>(matrix.rows(), rows.start as u64..rows.end as u64)?)
            }
            Self::File(file) => f(file),
            Self::Part { file, rows } => f(&RowRange::new::<T>(file, rows.start as u64..rows.end as u64)?),
        }
    }

    /// Single rows as `T`.
    pub(super) fn take<T: Float>(&self, rows: &[u64]) -> Result<Vec<T>> {
        let mut out = Vec::new();
        self.gather(rows, &mut out)?;
        Ok(out)
    }
}

impl<T: Float> DataSource<T> for Rows {
    fn dim(&self) -> usize {
        self.layout().cols
    }
    fn rows(&self) -> Option<u64> {
        Some(self.layout().rows as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn always_finite(&self) -> bool {
        !self.layout().dtype.is_float()
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.with(|source| source.for_each_block(tile_rows, f))
    }
    fn for_each_block_from(
        &self,
        row: u64,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.with(|source| source.for_each_block_from(row, tile_rows, f))
    }
    fn most_values(&self) -> Option<usize> {
        match self {
            Self::Sparse { matrix, .. } => DataSource::<T>::most_values(matrix.rows()),
            Self::Array(_) | Self::File(_) | Self::Part { .. } => None,
        }
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.with(|source| source.gather(rows, out))
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        self.with(|source| source.copy(rows, out))
    }
}

/// Rows with or without weights, in the compute type that belongs to their storage.
pub(super) enum Input {
    Plain(Rows),
    Weighted(Weighted<'static, Rows>, Layout),
}

impl Input {
    pub(super) fn new(rows: &Rows, weights: Option<&PyReadonlyArray1<'_, f64>>) -> Result<Self> {
        Ok(match weights {
            None => Self::Plain(rows.clone()),
            Some(w) => Self::Weighted(Weighted::new::<f64>(rows.clone(), vector(w))?, rows.layout()),
        })
    }

    pub(super) fn layout(&self) -> Layout {
        match self {
            Self::Plain(rows) => rows.layout(),
            Self::Weighted(_, layout) => *layout,
        }
    }

    /// As a source of `T`, whatever the storage.
    pub(super) fn of<T: Float>(&self) -> &dyn DataSource<T> {
        match self {
            Self::Plain(rows) => rows,
            Self::Weighted(rows, _) => rows,
        }
    }
}

impl data::Source for Input {
    fn any(&self) -> AnySource<'_> {
        if self.layout().dtype.computed_as_f64() {
            AnySource::F64(self.of())
        } else {
            AnySource::F32(self.of())
        }
    }
}
