//! Mergeable statistics: sums per cluster, where centers move, moments of rows and of columns, and coresets. Labels
//! of rows.

mod clusters;
mod columns;
mod coreset;
mod drawing;
mod exact;
mod journal;
pub(crate) mod labels;
mod lightweight;
mod means;
mod merge_reduce;
mod moments;
mod projections;
mod shares;
mod sphere;
#[cfg(test)]
mod tests;
mod waiting;

pub use clusters::ClusterSums;
pub(crate) use clusters::{check_mean, sum_of};
pub use columns::ColumnMoments;
pub use coreset::Coreset;
pub(crate) use coreset::{LIGHTEST, SamplingLaw};
pub(crate) use drawing::{Drawn, Streams, draw_events, other_rows, take_all};
pub(crate) use exact::{ErrorSums, Terms, check_energy};
pub(crate) use journal::{Editing, Journal};
pub use lightweight::{Lightweight, lightweight_coreset};
pub(crate) use means::{divisor, mean_variance, to_mean, to_means};
pub use merge_reduce::MergeReduce;
pub use moments::Moments;
pub(crate) use projections::ProjectionSums;
pub(crate) use shares::ShareSums;
pub(crate) use sphere::project;
