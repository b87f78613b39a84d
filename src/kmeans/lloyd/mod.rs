//! Exact k-means: label every row with its nearest center, move every center to the mean of its rows, repeat.
//!
//! Sources: Lloyd, "Least squares quantization in PCM", 1982. Tolerance and empty clusters follow
//! scikit-learn. With the cosine metric, rows are normalized and centers are projected back to the unit
//! sphere (Dhillon and Modha, 2001).

pub(super) mod params;
pub(super) mod solver;
pub(super) mod starts;
mod state;
