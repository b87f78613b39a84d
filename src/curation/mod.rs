//! What people do with the clusters of embeddings: remove near-duplicate rows, and draw samples that are balanced over
//! clusters.

mod duplicates;
mod sampling;

#[cfg(feature = "python")]
pub(crate) use duplicates::Search;
pub use duplicates::{Deduplication, Duplicates, Keep, Linkage};
pub use sampling::{Pick, balanced_quotas, pick_rows};
