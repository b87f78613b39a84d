//! Statistics that can be merged: what a sweep leaves behind.

mod clusters;

pub use clusters::ClusterSums;
