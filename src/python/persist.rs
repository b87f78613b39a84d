//! Saves arrays and strings from Python to a shoal file, and loads them. Loading runs no code.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::enter::enter;
use crate::data::Dtype;
use crate::error::Error;
use crate::persist::{self, Array, Contents};

/// Converts Python arrays and strings to file contents.
pub(super) fn of_python(
    kind: &str,
    arrays: BTreeMap<String, Bound<'_, PyAny>>,
    meta: BTreeMap<String, String>,
) -> PyResult<Contents> {
    let mut contents = Contents { meta, ..Contents::new(kind) };
    for (name, array) in arrays {
        let dtype = array.getattr("dtype")?.getattr("name")?.extract::<String>()?;
        let dtype = Dtype::from_name(&dtype).map_err(|_| {
            PyTypeError::new_err(format!("{name} must have a type that a file can store, got {dtype}"))
        })?;
        let shape: Vec<usize> = array.getattr("shape")?.extract()?;
        let bytes = array.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec();
        contents.arrays.insert(name, Array::from_bytes(dtype, &shape, bytes)?);
    }
    Ok(contents)
}

#[pyfunction]
pub(super) fn save_model(
    py: Python<'_>,
    path: PathBuf,
    kind: &str,
    arrays: BTreeMap<String, Bound<'_, PyAny>>,
    meta: BTreeMap<String, String>,
) -> PyResult<()> {
    let contents = of_python(kind, arrays, meta)?;
    enter(py, Some(1), 0.0, |_| persist::write(path, &contents))
}

/// A writable NumPy array with its own memory.
fn as_numpy<'py>(numpy: &Bound<'py, PyModule>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyBytes::new(numpy.py(), array.bytes());
    let values = numpy.call_method1("frombuffer", (bytes, array.dtype().name()))?;
    values.call_method1("reshape", (array.shape().to_vec(),))?.call_method0("copy")
}

/// Kind, arrays and strings.
pub(super) type Loaded<'py> = (String, Bound<'py, PyDict>, BTreeMap<String, String>);

/// Converts file contents to Python objects.
pub(super) fn as_python(py: Python<'_>, contents: Contents) -> PyResult<Loaded<'_>> {
    let (numpy, arrays) = (py.import("numpy")?, PyDict::new(py));
    for (name, array) in contents.arrays {
        // Files can claim types and shapes that NumPy does not support.
        let values = as_numpy(&numpy, &array).map_err(|error| {
            if error.is_instance_of::<PyMemoryError>(py) {
                return error;
            }
            let (dtype, shape, why) = (array.dtype(), array.shape(), error.value(py));
            PyValueError::new_err(format!(
                "array {name:?} of type {dtype} and shape {shape:?} is not supported by NumPy: {why}"
            ))
        })?;
        arrays.set_item(name, values)?;
    }
    Ok((contents.kind, arrays, contents.meta))
}

#[pyfunction]
pub(super) fn load_model(py: Python<'_>, path: PathBuf) -> PyResult<Loaded<'_>> {
    let contents = enter(py, Some(1), 0.0, |_| persist::read(&path))?;
    as_python(py, contents).map_err(|error| {
        if error.is_instance_of::<PyValueError>(py) {
            Error::format(path, format!("is damaged: {}", error.value(py))).into()
        } else {
            error
        }
    })
}

/// The type (None if it is not supported), shape and first byte of each array of a file, by name.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 converts paths")]
pub(super) fn array_layouts(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let found = PyDict::new(py);
    for layout in enter(py, Some(1), 0.0, |_| persist::array_layouts(&path))? {
        let dtype = layout.dtype.map(Dtype::name);
        found.set_item(layout.name, (dtype, layout.shape, layout.first))?;
    }
    Ok(found)
}
