//! How the rows of a partial result are numbered.

use std::fmt::{self, Display};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::persist::kept::{keep, list};
use crate::persist::{Array, Contents};

/// Numbers of partitions and rows, and their sums, are at most this: so no sum of two overflows.
pub(super) const MOST: u64 = 1 << 62;

/// Where rows lie among all rows: all partial results of a pass are numbered in the same way.
///
/// ```
/// use shoal::distributed::Place;
/// assert_eq!(Place::Partition(3).to_string(), "partition 3");
/// assert_eq!(Place::FirstRow(1000).to_string(), "the block at row 1000");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A whole partition, by its number. The sizes of the partitions before it need not be known.
    Partition(u64),
    /// A block of rows, by the number of its first row among all rows.
    FirstRow(u64),
}

impl Place {
    /// The number of the partition; 0 for numbered rows, which are one partition.
    pub(super) fn partition(self) -> u64 {
        match self {
            Self::Partition(number) => number,
            Self::FirstRow(_) => 0,
        }
    }

    /// The number of the first row within the partition.
    pub(super) fn first_row(self) -> u64 {
        match self {
            Self::Partition(_) => 0,
            Self::FirstRow(row) => row,
        }
    }

    /// The number by which places are ordered.
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Partition(number) | Self::FirstRow(number) => number,
        }
    }

    /// Returns an error for a number that is too large.
    pub(crate) fn check(self) -> Result<()> {
        let name = match self {
            Self::Partition(_) => "partition",
            Self::FirstRow(_) => "first_row",
        };
        let number = self.number();
        if number < MOST { Ok(()) } else { Err(Error::param(name, "below 2^62", number)) }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition(number) => write!(f, "partition {number}"),
            Self::FirstRow(row) => write!(f, "the block at row {row}"),
        }
    }
}

/// The number of the first row of every partition among all rows: those of partition 0 come first, then those of
/// partition 1, and so on. Draws are keyed by these numbers, so that they do not depend on the partitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Starts(Arc<[u64]>);

impl Starts {
    /// The first rows of partitions of these lengths.
    pub(super) fn of(lengths: impl Iterator<Item = u64>) -> Self {
        let mut end = 0;
        let start = |length| {
            end += length;
            end - length
        };
        Self(lengths.map(start).collect())
    }

    /// The number of the first row of a place.
    ///
    /// # Errors
    /// For a partition that the pass before did not have.
    pub(super) fn first_row(&self, place: Place) -> Result<u64> {
        let number = match place {
            Place::FirstRow(row) => return Ok(row),
            Place::Partition(number) => number,
        };
        let known = usize::try_from(number).ok().and_then(|i| self.0.get(i)).copied();
        let expected = || format!("below {}, the number of partitions of the pass before", self.0.len());
        known.ok_or_else(|| Error::param("partition", expected(), number))
    }

    pub(super) fn put(&self, contents: &mut Contents) {
        keep(contents, "starts", Array::new(&[self.0.len()], &self.0));
    }

    /// Reads what [`Starts::put`] wrote.
    pub(super) fn of_contents(contents: &Contents) -> Result<Self, String> {
        if !contents.arrays.contains_key("starts") {
            return Err(
                "it is of an earlier version, whose draws depended on the partitions: begin again".into()
            );
        }
        let starts: Vec<u64> = list(contents, "starts")?;
        if starts.is_sorted() && starts.last().is_none_or(|&last| last <= MOST) {
            Ok(Self(starts.into()))
        } else {
            Err("the first rows of its partitions are damaged".into())
        }
    }
}
