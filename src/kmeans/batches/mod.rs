//! Batches of rows for the methods that take them one by one: drawing, reading, waiting, labeling and
//! summing.

mod draws;
mod sums;
mod waiting;

pub(super) use draws::{BatchDraws, as_of_source};
pub(super) use sums::Spare;
pub(super) use waiting::{
    BatchSolver, BatchTotals, WaitingRows, check_centers, check_columns, check_readable, ended_early,
};
