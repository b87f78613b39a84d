//! The distance that a center-based method minimizes.

use crate::names::names;

/// The distance between rows and centers.
///
/// ```
/// use shoal::{KMeans, Metric};
/// let rows = [[1.0f64, 0.0], [9.0, 0.1], [0.0, 1.0], [0.1, 7.0]];
/// let model = KMeans::params(2).metric(Metric::Cosine).fit(&rows).unwrap();
/// assert_eq!(model.labels()[0], model.labels()[1]);
/// assert_eq!((Metric::Cosine.to_string(), "euclidean".parse().ok()), ("cosine".to_owned(), Some(Metric::Euclidean)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Metric {
    /// Choose for positions: squared Euclidean distance; centers are means.
    #[default]
    Euclidean,
    /// Use it for directions (text, embeddings). Rows are scaled to length 1 when they are read, and centers
    /// stay on the unit sphere. A row of zeros is not scaled.
    Cosine,
}

names! {
    Metric("metric") {
        Euclidean = "euclidean",
        Cosine = "cosine",
    }
}
