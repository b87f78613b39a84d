//! Whole numbers in the files of passes and partial results.

use serde_json::{Map, Value};

use crate::persist::kept::{count, text};

/// A number of 64 bits as text, because JSON readers round such numbers.
pub(super) fn exact(number: u64) -> Value {
    Value::from(number.to_string())
}

/// Reads what [`exact`] wrote.
pub(super) fn exact_of(object: &Map<String, Value>, name: &str) -> Result<u64, String> {
    text(object, name)?.parse().map_err(|_| format!("{name:?} must be a whole number"))
}

/// A size in a file. The sizes of the arrays limit what is allocated for it.
pub(super) fn as_size(size: u64) -> Result<usize, String> {
    usize::try_from(size)
        .ok()
        .filter(|&size| size > 0 && size <= 1 << 40)
        .ok_or("its shape is damaged".into())
}

/// The number `name` of a JSON object, as a size.
pub(super) fn size_of_object(object: &Map<String, Value>, name: &str) -> Result<usize, String> {
    as_size(count(object, name)?)
}
