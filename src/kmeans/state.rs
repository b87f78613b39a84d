//! This module knows how what a method keeps between two batches becomes arrays and texts, and comes back.

use serde_json::{Map, Value};

use super::model::Values;
use crate::data::Dtype;
use crate::error::Result as Checked;
use crate::kernel::Compute;
use crate::persist::{Array, Contents, Number};

/// Whether a state is one of rows that are computed in `f64`.
pub(super) fn is_wide(contents: &Contents) -> Result<bool, String> {
    Ok(contents.array("centers")?.dtype() == Dtype::F64)
}

/// The values of a matrix of `dim` columns, or of none at all.
pub(super) fn matrix<E: Number>(contents: &Contents, name: &str, dim: usize) -> Result<Vec<E>, String> {
    let &[rows, cols] = contents.array(name)?.shape() else {
        return Err(format!("its {name:?} is no matrix"));
    };
    if rows > 0 && cols != dim {
        return Err(format!("its {name:?} has {cols} columns, and {dim} are needed"));
    }
    contents.values(name, &[rows, cols])
}

/// The same of values in the compute type.
pub(super) fn rows<T: Compute>(contents: &Contents, name: &str, dim: usize) -> Result<Vec<T>, String> {
    Ok(if size_of::<T>() == size_of::<f32>() {
        Values::F32(matrix(contents, name, dim)?).get()
    } else {
        Values::F64(matrix(contents, name, dim)?).get()
    })
}

/// Rows of `cols` values as an array.
pub(super) fn stored_rows<T: Compute>(values: &[T], cols: usize) -> Checked<Array> {
    match Values::of(values) {
        Values::F32(values) => Array::new(&[values.len() / cols, cols], &values),
        Values::F64(values) => Array::new(&[values.len() / cols, cols], &values),
    }
}

pub(super) fn count(object: &Map<String, Value>, name: &str) -> Result<u64, String> {
    object.get(name).and_then(Value::as_u64).ok_or_else(|| format!("its {name:?} is no count"))
}

/// A number that was kept as bits, or none.
pub(super) fn figure(object: &Map<String, Value>, name: &str) -> Result<Option<f64>, String> {
    match object.get(name) {
        Some(Value::Null) => Ok(None),
        _ => Ok(Some(f64::from_bits(count(object, name)?))),
    }
}
