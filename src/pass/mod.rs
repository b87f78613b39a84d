//! Passes over the rows of a source: in tiles on all threads, one value per row, in groups, or in resumable batches.

mod any_order;
mod batches;
mod groups;
mod per_row;
mod relabel;
mod sweep;

pub(crate) use any_order::{Loan, Pool, gather};
pub(crate) use batches::{Left, go_on};
pub(crate) use groups::{Copies, Groups};
pub(crate) use per_row::for_all_rows;
pub(crate) use relabel::{Compared, Relabeled};
pub(crate) use sweep::{Chunk, Cut, PerRow, Unread, Wide, sweep};

/// Rows that a worker takes at a time in passes whose result does not depend on how rows are cut: at least some tens of
/// microseconds of work, and enough tiles for many threads.
pub(crate) const TILE_ROWS: usize = 2048;
