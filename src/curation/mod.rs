//! What people do with the clusters of embeddings.

mod sampling;

pub use sampling::{Pick, balanced_quotas, pick_rows};
