//! The Python class `Source`: an array, sparse matrix, file, stream or transformed rows, with its storage type.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use numpy::{
    PyArray1, PyArrayDescrMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PySlice;

use super::array::{Array, SparseArray, array1, array2, vector};
use super::enter::enter;
use super::rows::{AnyRows, Input, Transform};
use super::stream::Stream;
use crate::data::{
    Access, Dtype, Gathered, Mapped, Projection, Source as _, Standard, bin, copy, fingerprint_of_batch, npy,
    open_shard, raw, take, vecs,
};
use crate::error::{Error, Result};
use crate::float::either;
use crate::matrix::MatRef;
use crate::stats::ColumnMoments;

/// Any supported source. The storage type is kept.
#[pyclass(frozen, module = "shoal._core")]
#[derive(Clone)]
pub(super) struct Source(pub(super) AnyRows);

#[pymethods]
impl Source {
    #[staticmethod]
    fn from_array(array: &Bound<'_, PyUntypedArray>) -> PyResult<Self> {
        Ok(Self(AnyRows::Array(Arc::new(Array::new(array)?))))
    }

    /// Rows of a compressed sparse matrix, given by its arrays.
    #[staticmethod]
    fn from_csr(
        indptr: &Bound<'_, PyUntypedArray>,
        indices: &Bound<'_, PyUntypedArray>,
        data: &Bound<'_, PyUntypedArray>,
        shape: (usize, usize),
    ) -> PyResult<Self> {
        let matrix = Arc::new(SparseArray::new(shape, [indptr, indices, data])?);
        Ok(Self(AnyRows::Sparse { matrix, rows: 0..shape.0 }))
    }

    #[staticmethod]
    fn open_npy(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self(AnyRows::File(py.detach(|| npy::open(path))?)))
    }

    /// Opens an `.fvecs`, `.bvecs` or `.ivecs` file.
    #[staticmethod]
    fn open_vecs(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self(AnyRows::File(py.detach(|| vecs::open(path))?)))
    }

    /// Opens an `.fbin`, `.u8bin`, `.i8bin` or `.ibin` file.
    #[staticmethod]
    fn open_bin(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self(AnyRows::File(py.detach(|| bin::open(path))?)))
    }

    #[staticmethod]
    #[pyo3(signature = (path, dtype, rows, cols, offset = 0))]
    fn open_raw(
        py: Python<'_>,
        path: PathBuf,
        dtype: &str,
        rows: usize,
        cols: usize,
        offset: u64,
    ) -> PyResult<Self> {
        let dtype = Dtype::from_name(dtype)?;
        Ok(Self(AnyRows::File(py.detach(|| raw::open(path, dtype, rows, cols, offset))?)))
    }

    /// Opens an `.npy`, `.fvecs`, `.fbin`, ... file as [`Source::of_files`] takes it: it may have no rows.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a Python object")]
    fn open_shard(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self(AnyRows::File(py.detach(|| open_shard(&path))?)))
    }

    /// The rows of many mapped files as one source. Each file is closed before the next one is taken from `files`,
    /// an iterator of sources.
    #[staticmethod]
    fn of_files(files: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut gathered = Gathered::default();
        for file in files.try_iter()? {
            match &file?.cast::<Self>()?.get().0 {
                AnyRows::File(file) => gathered.push(file)?,
                _ => return Err(PyTypeError::new_err("files must yield sources of whole mapped files")),
            }
        }
        Ok(Self(AnyRows::Shards(gathered.finish()?)))
    }

    /// Rows of `cols` values from Python. `make` returns the blocks of one pass, as a
    /// `shoal._rows.prefetch.Prefetch` of arrays of `dtype`. With `once` there is only one pass. `file_of` returns the
    /// file of a row and the number of the row there, if the rows come from several files.
    #[staticmethod]
    #[pyo3(signature = (make, once, cols, dtype, rows, file_of = None))]
    fn from_stream(
        make: Py<PyAny>,
        once: bool,
        cols: usize,
        dtype: &str,
        rows: Option<usize>,
        file_of: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let dtype = Dtype::from_name(dtype)?;
        Ok(Self(AnyRows::Stream(Arc::new(Stream::new(make, once, cols, dtype, rows, file_of)?))))
    }

    #[getter]
    fn shape(&self) -> (Option<usize>, usize) {
        (self.0.len(), self.0.cols())
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype().name()
    }

    /// The rows as the metric sees them, without a copy: scaled to length 1 as they are read for `"cosine"`.
    fn seen_by(&self, metric: &str) -> PyResult<Self> {
        Ok(Self(self.0.seen_afresh(metric.parse()?)))
    }

    /// Number of different rows of zeros among the rows that were read as rows of length 1.
    #[getter]
    fn zero_rows(&self) -> u64 {
        self.0.zero_rows()
    }

    #[getter]
    fn compute(&self) -> &'static str {
        self.0.any().name()
    }

    #[getter]
    fn access(&self) -> &'static str {
        match self.0.access() {
            Access::Once => "once",
            Access::Replay => "replay",
            Access::Random => "random",
        }
    }

    /// Whether the rows are sparse.
    #[getter]
    fn sparse(&self) -> bool {
        self.0.is_sparse()
    }

    #[getter]
    fn nbytes(&self, py: Python<'_>) -> Option<usize> {
        if let Some((matrix, rows)) = self.stored() {
            let [indptr, indices, _] = matrix.owners(py).map(|array| array.dtype().itemsize());
            let stored = matrix.rows().stored(rows.clone()).len();
            return Some((rows.len() + 1) * indptr + stored * (indices + self.0.dtype().size()));
        }
        Some(self.0.len()? * self.0.cols() * self.0.dtype().size())
    }

    /// Copies the three arrays of consecutive rows of a sparse matrix: `indptr`, `indices` and `data`.
    fn read_csr<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<[Bound<'py, PyAny>; 3]> {
        self.within(start, stop)?;
        let Some((matrix, rows)) = self.stored() else {
            return Err(PyTypeError::new_err("the rows are not sparse"));
        };
        let (first, last) = (rows.start + start, rows.start + stop);
        let stored = matrix.rows().stored(first..last);
        let [indptr, indices, values] = matrix.owners(py);
        let copied = |array: &Bound<'py, PyUntypedArray>, from: usize, to: usize| {
            array.get_item(PySlice::new(py, from as isize, to as isize, 1))?.call_method0("copy")
        };
        let indptr = copied(indptr, first, last + 1)?;
        indptr.call_method1("__isub__", (stored.start,))?;
        let values = if let AnyRows::View { .. } = &self.0 {
            let rows: Vec<u64> = (start as u64..stop as u64).collect();
            either!(self.0.any(), source => array1(py, py.detach(|| copy(source, &rows))?.values))
        } else {
            copied(values, stored.start, stored.end)?
        };
        Ok([indptr, copied(indices, stored.start, stored.end)?, values])
    }

    /// Copies consecutive rows in the storage type, as a dense array.
    fn read<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Bound<'py, PyAny>> {
        self.within(start, stop)?;
        let dtype = self.0.dtype();
        if dtype == Dtype::Bf16 || matches!(self.0, AnyRows::Sparse { .. } | AnyRows::View { .. }) {
            // NumPy has no bfloat16, sparse rows must be made dense, and transformed rows are not stored.
            return self.converted(py, &(start as u64..stop as u64).collect::<Vec<_>>());
        }
        if let AnyRows::Array(array) = &self.0 {
            let rows = PySlice::new(py, start as isize, stop as isize, 1);
            return array.owner(py).get_item(rows)?.call_method1("copy", ("C",));
        }
        let bytes = py.detach(|| match &self.0 {
            AnyRows::Array(array) => array.rows().copy_bytes(start..stop),
            AnyRows::Sparse { .. } | AnyRows::View { .. } => Ok(Vec::new()),
            AnyRows::File(file) => copied(file, start..stop),
            AnyRows::Part { file, rows } => copied(file, rows.start + start..rows.start + stop),
            AnyRows::Shards(shards) => shards.copy_bytes(start..stop),
            AnyRows::Stream(_) => Err(no_stream_slices()),
        })?;
        let flat = PyArray1::from_vec(py, bytes).call_method1("view", (dtype.name(),))?;
        flat.call_method1("reshape", (stop - start, self.0.cols()))
    }

    /// Copies single rows in the compute type.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn take<'py>(&self, py: Python<'py>, indices: PyReadonlyArray1<'_, i64>) -> PyResult<Bound<'py, PyAny>> {
        let rows: Vec<u64> = vector(&indices).into_iter().map(i64::cast_unsigned).collect();
        self.converted(py, &rows)
    }

    /// The rows, each divided by its norm when it is read.
    fn normalized(&self) -> Self {
        Self(self.0.transformed(Transform::Normalize(Arc::default())))
    }

    /// The rows as `(x - mean) / scale`.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn standardized(
        &self,
        mean: PyReadonlyArray1<'_, f64>,
        scale: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<Self> {
        let by = Standard::new(self.0.cols(), self.0.is_sparse(), &vector(&mean), &vector(&scale))?;
        Ok(Self(self.0.transformed(Transform::Standardize(Arc::new(by)))))
    }

    /// The rows as `(x - mean) components'`.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn projected(
        &self,
        components: PyReadonlyArray2<'_, f64>,
        mean: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Self> {
        let values: Vec<f64> = components.as_array().iter().copied().collect();
        let components = MatRef::new(&values, components.shape()[1]);
        let mean = mean.as_ref().map(vector);
        let by = Projection::new(self.0.cols(), components, mean.as_deref())?;
        Ok(Self(self.0.transformed(Transform::Project(Arc::new(by)))))
    }

    /// Weight of the rows, and mean and variance of the columns, from one pass.
    #[pyo3(signature = (weights = None))]
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
    fn column_moments<'py>(
        &self,
        py: Python<'py>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<(f64, Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let input = Input::new(&self.0, weights.as_ref())?;
        let cost = self.0.whole_effort() * self.0.cols() as f64;
        let found = enter(py, None, cost, |cx| ColumnMoments::of(&input, cx))?;
        Ok((found.weight(), array1(py, found.mean().to_vec()), array1(py, found.variance())))
    }

    /// A hash of the values of a few rows, to tell a refilled buffer from its previous contents.
    fn glance(&self, py: Python<'_>) -> PyResult<u64> {
        let rows = &self.0;
        enter(py, Some(1), rows.effort(0.0), |_| either!(rows.any(), source => fingerprint_of_batch(source)))
    }

    /// Consecutive rows as a source, without a copy.
    fn slice(&self, py: Python<'_>, start: usize, stop: usize) -> PyResult<Self> {
        self.within(start, stop)?;
        Ok(Self(match &self.0 {
            AnyRows::View { rows, by } => {
                Self(AnyRows::clone(rows)).slice(py, start, stop)?.0.transformed(by.clone())
            }
            AnyRows::Array(array) => {
                let part = array.owner(py).get_item(PySlice::new(py, start as isize, stop as isize, 1))?;
                AnyRows::Array(Arc::new(Array::new(part.cast()?)?))
            }
            AnyRows::Sparse { matrix, rows } => {
                AnyRows::Sparse { matrix: matrix.clone(), rows: rows.start + start..rows.start + stop }
            }
            AnyRows::File(file) => AnyRows::Part { file: file.clone(), rows: start..stop },
            AnyRows::Part { file, rows } => {
                AnyRows::Part { file: file.clone(), rows: rows.start + start..rows.start + stop }
            }
            AnyRows::Shards(shards) => AnyRows::Shards(shards.slice(start as u64..stop as u64)?),
            AnyRows::Stream(_) => return Err(no_stream_slices().into()),
        }))
    }
}

impl Source {
    /// The matrix behind sparse rows, transformed or not, and the rows of it.
    fn stored(&self) -> Option<(&SparseArray, &Range<usize>)> {
        fn of(rows: &AnyRows) -> Option<(&SparseArray, &Range<usize>)> {
            match rows {
                AnyRows::Sparse { matrix, rows } => Some((matrix, rows)),
                AnyRows::View { rows, .. } => of(rows),
                _ => None,
            }
        }
        of(&self.0).filter(|_| self.0.is_sparse())
    }
    fn within(&self, start: usize, stop: usize) -> PyResult<()> {
        let n = self.0.len().ok_or_else(no_stream_slices)?;
        if start <= stop && stop <= n {
            return Ok(());
        }
        Err(PyIndexError::new_err(format!("rows {start}..{stop} do not lie within 0..{n}")))
    }
    /// Copies single rows in the compute type.
    fn converted<'py>(&self, py: Python<'py>, rows: &[u64]) -> PyResult<Bound<'py, PyAny>> {
        let (cols, cost) = (self.0.cols(), self.0.effort(0.0));
        either!(self.0.any(), source => {
            let found = enter(py, Some(1), cost, |_| Ok(take(source, rows)))?;
            array2(py, found.map_err(missing_row)?, cols)
        })
    }
}

/// Copies the stored bytes of consecutive rows.
fn copied(file: &Mapped, rows: Range<usize>) -> Result<Vec<u8>> {
    file.check_length()?;
    file.check_leads(rows.clone())?;
    // The next block is mostly the next one to be read.
    file.request_rows(rows.end..rows.end + rows.len());
    file.view().copy_bytes(rows)
}

/// Turns the error for a row that does not exist into an `IndexError`.
fn missing_row(error: Error) -> PyErr {
    match error {
        Error::Shape(text) => PyIndexError::new_err(text),
        other => other.into(),
    }
}

fn no_stream_slices() -> Error {
    Error::Source(
        "parts of a stream cannot be read: write the stream to a .npy file and open the file".into(),
    )
}
