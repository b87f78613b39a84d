//! What an update changed.

/// A stored row that changed its cell.
///
/// See [`Partition`](super::Partition) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The key with which the row was fetched.
    pub key: u64,
    /// The cell in which it was stored.
    pub from: u64,
    /// The cell to which it belongs now.
    pub to: u64,
}

/// What an update changed: write it to the database as one transaction.
///
/// See [`Partition`](super::Partition) for an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionChange {
    /// The cell of each new row, in their order.
    pub labels: Vec<u64>,
    /// Cells that did not exist before, ascending.
    pub new_ids: Vec<u64>,
    /// Cells that were split and exist no more, ascending. All of their rows are in `moved`.
    pub split_ids: Vec<u64>,
    /// Cells that had too few rows and exist no more, ascending. All of their rows are in `moved`.
    pub joined_ids: Vec<u64>,
    /// Cells that still exist, whose centers moved, ascending. All other centers are bit-equal.
    pub recentered_ids: Vec<u64>,
    /// Cells above the limit that are left as they are, ascending: their rows are identical, or there was no `fetch`.
    pub oversized_ids: Vec<u64>,
    /// Stored rows that belong to another cell now, in the order in which they were fetched.
    pub moved: Vec<Moved>,
    /// The number of stored rows that were fetched.
    pub n_fetched: u64,
}
