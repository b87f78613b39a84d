//! How the rows of a partial result are numbered.

use std::fmt::{self, Display};

use crate::rng::mix;

/// Where rows lie among all rows: all partial results of a pass are numbered in the same way.
///
/// ```
/// use shoal::distributed::Place;
/// assert_eq!(Place::Partition(3).to_string(), "partition 3");
/// assert_eq!(Place::FirstRow(1000).to_string(), "the block at row 1000");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A whole partition, by its number. Nobody needs to know the sizes of the partitions before it.
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
