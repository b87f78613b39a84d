//! What a pass knows of the passes before it: the rows, the partitions and the names of the columns.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::numbers::{exact, exact_of};
use super::place::MOST;
use crate::fit::Step;
use crate::persist::kept::count;

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

/// What a pass knows of the passes before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Before {
    /// Number of passes.
    pub(crate) passes: u64,
    pub(super) rows_seen: u64,
    /// The rows of the last pass; `None` before the first.
    pub(crate) extent: Option<Extent>,
}

impl Before {
    /// What the next pass knows, if this pass has these rows.
    pub(super) fn and(&self, extent: Extent) -> Self {
        let rows_seen = self.rows_seen.saturating_add(extent.rows);
        Self { passes: self.passes + 1, rows_seen, extent: Some(extent) }
    }

    /// The names of the columns in the last pass.
    #[cfg(feature = "python")]
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        Some(self.extent.as_ref()?.names.as_deref()?.to_vec())
    }

    /// Number of rows of the last pass.
    pub(super) fn rows(&self) -> u64 {
        self.extent.as_ref().map_or(0, |extent| extent.rows)
    }

    /// The figures of the last pass, over `k` centers.
    pub(super) fn step(&self, k: usize, objective: f64) -> Step {
        Step {
            iteration: self.passes,
            rows_seen: self.rows_seen,
            batch_size: self.rows(),
            objective,
            n_distances: self.rows().saturating_mul(k as u64),
            ..Step::default()
        }
    }

    /// Adds these numbers to those of a pass. `passes` is the name of the number of passes.
    pub(super) fn put(&self, passes: &str, numbers: &mut Value) {
        let extent = self.extent.as_ref();
        numbers[passes] = self.passes.into();
        numbers["rows_seen"] = exact(self.rows_seen);
        numbers["rows"] = extent.map(|extent| exact(extent.rows)).into();
        numbers["partitions"] = extent.map(|extent| exact(extent.blocks)).into();
        numbers["names"] = json!(extent.and_then(|extent| extent.names.as_deref()));
    }

    /// Reads what [`Before::put`] added, for rows of `dim` columns.
    pub(super) fn of_object(passes: &str, numbers: &Map<String, Value>, dim: usize) -> Result<Self, String> {
        let (passes, rows_seen) = (count(numbers, passes)?, exact_of(numbers, "rows_seen")?);
        if rows_seen > MOST {
            return Err("its counts are damaged".into());
        }
        let mut before = Self { passes, rows_seen, extent: None };
        if numbers.get("rows").is_some_and(|rows| !rows.is_null()) {
            let (rows, blocks) = (exact_of(numbers, "rows")?, exact_of(numbers, "partitions")?);
            before.extent = Some(Extent { rows, blocks, names: names_of(numbers, dim)? });
        }
        Ok(before)
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
