//! How the rows of a partial result are numbered.

use std::fmt::{self, Display};

use crate::error::{Error, Result};
use crate::rng::mix;

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

    /// A key of random draws for these rows.
    pub(super) fn key(self, seed: u64) -> u64 {
        mix(seed ^ mix(self.partition()))
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
