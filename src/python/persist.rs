//! This module knows how arrays and texts of Python become a file of shoal, and back. Reading one runs no code.

use std::collections::BTreeMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::enter::enter;
use crate::data::Dtype;
use crate::persist::{self, Array, Contents};

#[pyfunction]
pub(super) fn save_model(
    py: Python<'_>,
    path: &str,
    kind: &str,
    arrays: BTreeMap<String, Bound<'_, PyAny>>,
    meta: BTreeMap<String, String>,
) -> PyResult<()> {
    let mut contents = Contents { meta, ..Contents::new(kind) };
    for (name, array) in arrays {
        let dtype = array.getattr("dtype")?.getattr("name")?.extract::<String>()?;
        let dtype = Dtype::from_name(&dtype)
            .map_err(|_| PyTypeError::new_err(format!("{name} of type {dtype} cannot be kept")))?;
        let shape: Vec<usize> = array.getattr("shape")?.extract()?;
        let bytes = array.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec();
        contents.arrays.insert(name, Array::from_bytes(dtype, &shape, bytes)?);
    }
    enter(py, Some(1), 0.0, |_| persist::write(path, &contents))
}

type Loaded<'py> = (String, Bound<'py, PyDict>, BTreeMap<String, String>);

#[pyfunction]
pub(super) fn load_model<'py>(py: Python<'py>, path: &str) -> PyResult<Loaded<'py>> {
    let contents = enter(py, Some(1), 0.0, |_| persist::read(path))?;
    let (numpy, arrays) = (py.import("numpy")?, PyDict::new(py));
    for (name, array) in contents.arrays {
        let bytes = PyBytes::new(py, array.bytes());
        let values = numpy.call_method1("frombuffer", (bytes, array.dtype().name()))?;
        // Memory of its own, which may be written to.
        let values = values.call_method1("reshape", (array.shape().to_vec(),))?.call_method0("copy")?;
        arrays.set_item(name, values)?;
    }
    Ok((contents.kind, arrays, contents.meta))
}
