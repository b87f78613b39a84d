//! Passes over the rows of a source: in tiles on all threads, one value per row, in groups, or in resumable batches.

mod any_order;
mod batches;
mod groups;
mod per_row;
mod relabel;
mod sweep;
mod windows;

pub(crate) use any_order::{Loan, Pool, gather};
pub(crate) use batches::{Left, go_on};
pub(crate) use groups::{Copies, Groups};
pub(crate) use per_row::for_all_rows;
pub(crate) use relabel::Compared;
pub(crate) use sweep::{Chunk, Cut, PerRow, TILE_ROWS, Unread, Wide, sweep};
pub(crate) use windows::for_each_window;
#[cfg(test)]
pub(crate) use windows::tests::Large;
