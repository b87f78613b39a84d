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

/// Rows of `row_bytes` each that mini-batch k-means seeds from, for `k` centers and batches of `batch` rows,
/// for any number of rows. Seeding takes the time of some dozens of batches (MNIST, k = 50: a fit makes
/// 110 to 160). At least 16 rows per center; beyond them a limit of bytes.
pub(super) fn batch_seeding_sample(batch: u64, k: usize, row_bytes: usize) -> u64 {
    let fitting = ((32 << 20) / row_bytes.max(1) as u64).max(16 * k as u64);
    (3 * batch).max(16 * k as u64).min(fitting)
}
