//! What people do with clusters of embeddings: remove near-duplicate rows.

mod duplicates;

#[cfg(feature = "python")]
pub(crate) use duplicates::Search;
pub use duplicates::{Deduplication, Duplicates, Keep, Linkage};
