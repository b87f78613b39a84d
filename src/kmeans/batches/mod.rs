//! Batches of rows for the methods that take them one by one: drawing, reading, waiting, labeling and
//! summing.

mod draws;
mod sums;
mod waiting;

pub(super) use draws::{Draws, as_of_source};
pub(super) use sums::Spare;
pub(super) use waiting::{BatchSolver, Moved, Waiting};
