//! Passes over the rows of a source: in tiles on all threads, one value per row, or in resumable batches.

mod batches;
mod per_row;
mod sweep;

pub(crate) use batches::{Left, go_on};
pub(crate) use per_row::for_all_rows;
pub(crate) use sweep::{Chunk, Cut, PerRow, Unread, Wide, sweep, sweep_unread};
