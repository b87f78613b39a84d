//! Files written from Python: rows in order, rows in random order, and any file under a temporary name.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use numpy::PyUntypedArray;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::array::Array;
use super::enter::{enter, locked};
use crate::data::npy::Writer;
use crate::data::{Dtype, Shuffler};
use crate::error::{Error, Result};
use crate::whole_file::{Temporary, TemporaryFolder as Folder, all_leftovers, refuse_special, temporary_for};

/// A writer, until it is finished, with the layout of its rows.
struct Open<W> {
    dtype: Dtype,
    /// None for a one-dimensional array, whose blocks have one column.
    cols: Option<usize>,
    writer: Mutex<Option<W>>,
}

impl<W: Send> Open<W> {
    fn new(dtype: Dtype, cols: Option<usize>, writer: W) -> Self {
        Self { dtype, cols, writer: Mutex::new(Some(writer)) }
    }

    fn locked(&self) -> PyResult<MutexGuard<'_, Option<W>>> {
        locked(&self.writer, "file")
    }

    /// Calls `work` with the writer and the bytes of a two-dimensional array.
    fn take(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyUntypedArray>,
        work: impl FnOnce(&mut W, &[u8]) -> Result<()> + Send,
    ) -> PyResult<()> {
        let (array, mut writer) = (Array::new(rows)?, self.locked()?);
        let (dtype, cols) = (self.dtype, self.cols.unwrap_or(1));
        let writer = writer.as_mut().ok_or_else(finished)?;
        enter(py, Some(1), 0.0, |_| {
            let found = array.rows().layout();
            if found.dtype != dtype || found.cols != cols {
                return Err(Error::Shape(format!(
                    "rows must have {cols} columns of type {dtype}, got {} of type {}",
                    found.cols, found.dtype
                )));
            }
            work(writer, &array.rows().bytes()?)
        })
    }
}

fn finished() -> PyErr {
    PyRuntimeError::new_err("the file is finished")
}

/// An `.npy` file that takes its name when finished. `cols` is None for a one-dimensional array.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct NpyWriter(Open<Writer>);

#[pymethods]
impl NpyWriter {
    #[new]
    fn new(path: PathBuf, dtype: &str, cols: Option<usize>) -> PyResult<Self> {
        let dtype = Dtype::from_name(dtype)?;
        let writer = match cols {
            Some(cols) => Writer::create(path, dtype, cols)?,
            None => Writer::create_1d(path, dtype)?,
        };
        Ok(Self(Open::new(dtype, cols, writer)))
    }

    /// Appends the rows of a 2-D array.
    fn append(&self, py: Python<'_>, rows: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
        self.0.take(py, rows, Writer::append)
    }

    /// Gives the file its name and returns its number of rows.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let writer = self.0.locked()?.take().ok_or_else(finished)?;
        enter(py, Some(1), 0.0, |_| writer.finish())
    }

    /// Discards an unfinished file.
    fn close(&self) -> PyResult<()> {
        *self.0.locked()? = None;
        Ok(())
    }
}

/// An `.npy` file of rows in random order that takes its name when finished.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct ShuffledWriter(Open<Shuffler>);

#[pymethods]
impl ShuffledWriter {
    #[new]
    fn new(
        path: PathBuf,
        dtype: &str,
        cols: usize,
        rows: Option<u64>,
        seed: u64,
        memory: u64,
    ) -> PyResult<Self> {
        let dtype = Dtype::from_name(dtype)?;
        let rows = Shuffler::create(path, dtype, cols, rows, seed, memory)?;
        Ok(Self(Open::new(dtype, Some(cols), rows)))
    }

    /// Adds the rows of a 2-D array.
    fn append(&self, py: Python<'_>, rows: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
        self.0.take(py, rows, Shuffler::push)
    }

    /// Writes the next rows and returns how many; None when all are written.
    fn write_some(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let mut writer = self.0.locked()?;
        let writer = writer.as_mut().ok_or_else(finished)?;
        enter(py, Some(1), f64::INFINITY, |cx| writer.write_some(cx))
    }

    /// Gives the file its name and returns its number of rows.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let writer = self.0.locked()?.take().ok_or_else(finished)?;
        enter(py, Some(1), f64::INFINITY, |cx| writer.finish(cx))
    }

    /// Discards an unfinished file.
    fn close(&self) -> PyResult<()> {
        *self.0.locked()? = None;
        Ok(())
    }
}

/// A new temporary file next to `path` that takes the name `path` when finished.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct TemporaryFile {
    path: PathBuf,
    file: Mutex<Option<Temporary>>,
}

#[pymethods]
impl TemporaryFile {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let made = refuse_special(&path).and_then(|()| temporary_for(&path));
        let file = made.map_err(|e| Error::io(&path, e))?;
        Ok(Self { path, file: Mutex::new(Some(file)) })
    }

    /// The temporary name to write to.
    #[getter]
    fn name(&self) -> PyResult<PathBuf> {
        let file = self.file.lock().map_err(|_| finished())?;
        Ok(file.as_ref().ok_or_else(finished)?.path().to_owned())
    }

    /// Syncs and renames the file, which must be written.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file.lock().map_err(|_| finished())?.take().ok_or_else(finished)?;
        py.detach(|| file.finish(&self.path)).map_err(|e| Error::io(&self.path, e).into())
    }

    /// Discards an unfinished file.
    fn close(&self) -> PyResult<()> {
        *self.file.lock().map_err(|_| finished())? = None;
        Ok(())
    }
}

/// A new temporary folder next to `path`; `close` removes it.
#[pyclass(frozen, module = "shoal._core")]
pub(super) struct TemporaryFolder(Mutex<Option<Folder>>);

#[pymethods]
impl TemporaryFolder {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let folder = Folder::beside(&path).map_err(|e| Error::io(path, e))?;
        Ok(Self(Mutex::new(Some(folder))))
    }

    /// The name of the folder.
    #[getter]
    fn name(&self) -> PyResult<PathBuf> {
        let folder = self.0.lock().map_err(|_| finished())?;
        Ok(folder.as_ref().ok_or_else(finished)?.path().to_owned())
    }

    /// Removes the folder and its contents.
    fn close(&self) -> PyResult<()> {
        *self.0.lock().map_err(|_| finished())? = None;
        Ok(())
    }
}

/// Lists the temporary files and folders in `folder` that no process holds, and removes them if `remove`.
#[pyfunction]
pub(super) fn leftovers(folder: PathBuf, remove: bool) -> PyResult<Vec<PathBuf>> {
    Ok(all_leftovers(&folder, remove).map_err(|e| Error::io(folder, e))?)
}
