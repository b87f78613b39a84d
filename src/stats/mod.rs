//! Statistics that can be merged: what a sweep leaves behind.

mod clusters;
mod shares;
mod waiting;

pub use clusters::ClusterSums;
pub(crate) use shares::ShareSums;
