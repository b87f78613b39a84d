//! What people do with the clusters of embeddings: remove near-duplicate rows, and draw samples that are balanced over
//! clusters.

#[cfg_attr(
    not(feature = "python"),
    allow(dead_code, reason = "only Python steps through a search and stores it")
)]
mod duplicates;
mod sampling;

#[cfg(feature = "python")]
pub(crate) use duplicates::Search;
pub use duplicates::{Deduplication, Duplicates, Keep, Linkage};
pub use sampling::{Pick, balanced_quotas, pick_rows};
