//! What the partitions have in common in all passes: their rows, their number, and the names of the columns.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::numbers::{exact, exact_of};

/// The names of the columns; `None` if they have none.
pub(crate) type Names = Option<Arc<[String]>>;

/// The rows of a pass. The next passes expect the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Extent {
    pub(super) rows: u64,
    /// Number of partitions or blocks.
    pub(super) blocks: u64,
    pub(crate) names: Names,
}

impl Extent {
    /// Adds an extent to the numbers of a pass.
    pub(super) fn put(extent: Option<&Self>, numbers: &mut Value) {
        numbers["rows"] = extent.map(|extent| exact(extent.rows)).into();
        numbers["partitions"] = extent.map(|extent| exact(extent.blocks)).into();
        numbers["names"] = json!(extent.and_then(|extent| extent.names.as_deref()));
    }

    /// Reads what [`Extent::put`] added, for rows of `dim` columns.
    pub(super) fn of_object(numbers: &Map<String, Value>, dim: usize) -> Result<Option<Self>, String> {
        if numbers.get("rows").is_none_or(Value::is_null) {
            return Ok(None);
        }
        let (rows, blocks) = (exact_of(numbers, "rows")?, exact_of(numbers, "partitions")?);
        Ok(Some(Self { rows, blocks, names: names_of(numbers, dim)? }))
    }
}

/// Reads the names of `dim` columns, if there are any.
pub(super) fn names_of(object: &Map<String, Value>, dim: usize) -> Result<Names, String> {
    let Some(found) = object.get("names").filter(|names| !names.is_null()) else { return Ok(None) };
    let text = |name: &Value| name.as_str().map(str::to_owned);
    let names: Option<Arc<[String]>> = found.as_array().and_then(|names| names.iter().map(text).collect());
    names
        .filter(|names| names.len() == dim)
        .map(Some)
        .ok_or_else(|| "its names of columns are damaged".into())
}

/// The first feature whose name differs, with both names.
pub(super) fn difference<'a>(one: &'a Names, two: &'a Names) -> Option<(usize, &'a str, &'a str)> {
    let (one, two) = (one.as_deref()?, two.as_deref()?);
    one.iter().zip(two).enumerate().find(|(_, (a, b))| a != b).map(|(i, (a, b))| (i, a.as_str(), b.as_str()))
}
