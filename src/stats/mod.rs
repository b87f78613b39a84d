//! Statistics that can be merged: what a sweep leaves behind.

mod clusters;
mod waiting;

pub use clusters::ClusterSums;
