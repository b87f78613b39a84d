//! The rows behind a Python object: array, sparse matrix, file, part of a file, many files, stream, or transformed
//! rows, with or without weights.

use std::ops::Range;
use std::sync::Arc;

use numpy::PyReadonlyArray1;

use super::array::{Array, SparseArray, vector};
use super::stream::Stream;
use crate::data::{
    Access, AnySource, DataSource, Dtype, Mapped, Normalized, Origin, Projected, Projection, RowRange,
    Shards, Source, Standard, Standardized, Visit, Weighted, ZeroRows, stored, take,
};
use crate::error::Result;
use crate::fit::Metric;
use crate::float::{Float, either};
use crate::rows::RowBuf;

/// Rows in an array, a file or a stream. Cheap to clone, and a source for both compute types.
#[derive(Clone)]
pub(super) enum AnyRows {
    Array(Arc<Array>),
    Sparse {
        matrix: Arc<SparseArray>,
        rows: Range<usize>,
    },
    File(Mapped),
    Part {
        file: Mapped,
        rows: Range<usize>,
    },
    Shards(Shards),
    Stream(Arc<Stream>),
    /// Other rows, transformed as they are read.
    View {
        rows: Arc<AnyRows>,
        by: Transform,
    },
}

/// A transform of rows. Their stored type is then their compute type.
#[derive(Clone)]
pub(super) enum Transform {
    /// With a record of rows of zeros.
    Normalize(Arc<ZeroRows>),
    Standardize(Arc<Standard>),
    Project(Arc<Projection>),
}

impl AnyRows {
    /// The rows, transformed as they are read.
    pub(super) fn transformed(&self, by: Transform) -> Self {
        Self::View { rows: Arc::new(self.clone()), by }
    }

    /// The rows as the metric sees them: scaled to length 1 as they are read for the cosine metric.
    pub(super) fn seen_by(&self, metric: Metric) -> Self {
        match (metric, self) {
            (Metric::Euclidean, _) | (_, Self::View { by: Transform::Normalize(_), .. }) => self.clone(),
            (Metric::Cosine, _) => self.transformed(Transform::Normalize(Arc::default())),
        }
    }

    /// The rows that a run takes, which scales them by itself for the cosine metric.
    pub(super) fn before(&self, metric: Metric) -> &Self {
        match self {
            Self::View { rows, by: Transform::Normalize(_) } if metric == Metric::Cosine => rows,
            _ => self,
        }
    }

    /// As [`AnyRows::seen_by`], with an empty record of rows of zeros.
    pub(super) fn seen_afresh(&self, metric: Metric) -> Self {
        match self {
            Self::View { rows, by: Transform::Normalize(_) } => {
                Self::View { rows: rows.clone(), by: Transform::Normalize(Arc::default()) }
            }
            _ => self.seen_by(metric),
        }
    }

    /// Number of different rows of zeros among those that were read as rows of length 1.
    pub(super) fn zero_rows(&self) -> u64 {
        if let Self::View { by: Transform::Normalize(zeros), .. } = self { zeros.count() } else { 0 }
    }

    /// Whether only nonzero values are stored.
    pub(super) fn is_sparse(&self) -> bool {
        match self {
            Self::Sparse { .. } => true,
            Self::View { rows, by } => rows.is_sparse() && !matches!(by, Transform::Project(_)),
            _ => false,
        }
    }

    /// The storage type.
    pub(super) fn dtype(&self) -> Dtype {
        match self {
            Self::Array(array) => array.rows().layout().dtype,
            // Of the stored values.
            Self::Sparse { matrix, .. } => matrix.values().dtype,
            Self::File(file) | Self::Part { file, .. } => file.layout().dtype,
            Self::Shards(shards) => shards.dtype(),
            Self::Stream(stream) => stream.dtype(),
            Self::View { rows, .. } if rows.any().is_wide() => Dtype::F64,
            Self::View { .. } => Dtype::F32,
        }
    }

    pub(super) fn cols(&self) -> usize {
        match self {
            Self::Array(array) => array.rows().layout().cols,
            Self::Sparse { matrix, .. } => matrix.rows().shape().1,
            Self::File(file) | Self::Part { file, .. } => file.layout().cols,
            Self::Shards(shards) => DataSource::<f32>::dim(shards),
            Self::Stream(stream) => stream.cols(),
            Self::View { by: Transform::Project(projection), .. } => projection.cols(),
            Self::View { rows, .. } => rows.cols(),
        }
    }

    /// Number of rows; `None` if only a pass can tell.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Self::Array(array) => Some(array.rows().layout().rows),
            Self::File(file) => Some(file.layout().rows),
            Self::Sparse { rows, .. } | Self::Part { rows, .. } => Some(rows.len()),
            Self::Shards(shards) => DataSource::<f32>::rows(shards).map(|rows| rows as usize),
            Self::Stream(stream) => stream.rows(),
            Self::View { rows, .. } => rows.len(),
        }
    }

    pub(super) fn access(&self) -> Access {
        match self {
            Self::Stream(stream) => stream.access(),
            Self::View { rows, .. } => rows.access(),
            _ => Access::Random,
        }
    }

    /// Approximate cost of working on `rows` rows. Infinite for a stream, because user code may take any
    /// time.
    pub(super) fn effort(&self, rows: f64) -> f64 {
        match self {
            Self::Stream(_) => f64::INFINITY,
            Self::View { rows: source, by: Transform::Project(_) } => {
                source.effort(rows) * (1 + source.cols()) as f64
            }
            Self::View { rows: source, .. } => source.effort(rows),
            _ => rows,
        }
    }

    /// [`AnyRows::effort`] of all rows.
    pub(super) fn whole_effort(&self) -> f64 {
        self.effort(self.len().unwrap_or(0) as f64)
    }

    /// Calls `f` with the underlying source.
    fn with<T: Float, R>(&self, f: impl FnOnce(&dyn DataSource<T>) -> Result<R>) -> Result<R> {
        match self {
            Self::Array(array) => f(array.rows()),
            Self::Sparse { matrix, rows } if rows.len() == matrix.rows().shape().0 => f(matrix.rows()),
            Self::Sparse { matrix, rows } => {
                f(&RowRange::new::<T>(matrix.rows(), rows.start as u64..rows.end as u64)?)
            }
            Self::File(file) => f(file),
            Self::Part { file, rows } => f(&RowRange::new::<T>(file, rows.start as u64..rows.end as u64)?),
            Self::Shards(shards) => f(shards),
            Self::Stream(stream) => f(&**stream),
            Self::View { rows, by } => match by {
                Transform::Normalize(zeros) => f(&Normalized::by::<T>(&**rows, zeros.clone())),
                Transform::Standardize(by) => f(&Standardized::by::<T>(&**rows, by.clone())),
                Transform::Project(by) => f(&Projected::by::<T>(&**rows, by.clone())),
            },
        }
    }
}

impl<T: Float> DataSource<T> for AnyRows {
    fn dim(&self) -> usize {
        self.cols()
    }
    fn rows(&self) -> Option<u64> {
        self.len().map(|rows| rows as u64)
    }
    fn access(&self) -> Access {
        self.access()
    }
    fn always_finite(&self) -> bool {
        !self.dtype().is_float()
    }
    fn scarce_memory(&self) -> Option<u64> {
        self.with(|source: &dyn DataSource<T>| Ok(source.scarce_memory())).ok().flatten()
    }
    fn origin(&self, row: u64, column: usize) -> Origin {
        let known = self.with(|source: &dyn DataSource<T>| Ok(source.origin(row, column)));
        let mut origin = known.unwrap_or_default();
        if self.any().is_wide() && self.access() == Access::Random {
            origin.stored = take::<f64>(self, &[row]).ok().and_then(|values| values.get(column).copied());
        }
        origin
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.with(|source| source.for_each_block(tile_rows, f))
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.with(|source| source.for_each_block_from(row, tile_rows, f))
    }
    fn most_values(&self) -> Option<usize> {
        match self {
            Self::Sparse { matrix, .. } => DataSource::<T>::most_values(matrix.rows()),
            Self::View { rows, .. } if self.is_sparse() => DataSource::<T>::most_values(&**rows),
            _ => None,
        }
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.with(|source| source.gather(rows, out))
    }
    fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
        self.with(|source| source.copy(rows, out))
    }
}

/// Rows with or without weights, in the compute type of their storage type.
pub(super) enum Input {
    Plain(AnyRows),
    Weighted(Weighted<'static, AnyRows>, AnyRows),
}

impl Input {
    pub(super) fn new(rows: &AnyRows, weights: Option<&PyReadonlyArray1<'_, f64>>) -> Result<Self> {
        Ok(match weights {
            None => Self::Plain(rows.clone()),
            Some(w) => Self::Weighted(Weighted::new::<f64>(rows.clone(), vector(w))?, rows.clone()),
        })
    }

    /// The rows without their weights.
    pub(super) fn rows(&self) -> &AnyRows {
        match self {
            Self::Plain(rows) | Self::Weighted(_, rows) => rows,
        }
    }

    /// The rows as a source of `T`, for any storage type.
    pub(super) fn of<T: Float>(&self) -> &dyn DataSource<T> {
        match self {
            Self::Plain(rows) => rows,
            Self::Weighted(rows, _) => rows,
        }
    }
}

impl Source for AnyRows {
    fn any(&self) -> AnySource<'_> {
        stored(self, self.dtype())
    }
}

impl Source for Input {
    fn any(&self) -> AnySource<'_> {
        either!(self.rows().any(), _ => Typed(self.of()))
    }
}
