//! Mergeable statistics: sums per cluster, moments of rows and of columns, and coresets.

mod clusters;
mod columns;
mod coreset;
mod drawing;
mod merge_reduce;
mod moments;
mod shares;
#[cfg(test)]
mod tests;
mod waiting;

pub use clusters::ClusterSums;
pub use columns::ColumnMoments;
pub use coreset::{Coreset, Lightweight, lightweight_coreset};
pub(crate) use coreset::{SamplingLaw, add_moments};
pub(crate) use drawing::{Drawn, draw_events, other_rows, take_all};
pub use merge_reduce::MergeReduce;
pub use moments::Moments;
pub(crate) use shares::ShareSums;
