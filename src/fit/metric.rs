//! The distance that a center-based method minimizes.

use serde_json::{Map, Value};

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
    /// Use it for directions (text, embeddings). Rows are scaled to length 1 when they are read, and the centers
    /// of k-means methods stay on the unit sphere, so that a row belongs to the center of the largest cosine
    /// similarity. Squared distances are twice the cosine distance.
    ///
    /// A row of zeros has no direction. It is not scaled and has the squared distance 1 to every center of length 1.
    /// Its label is that of the center whose length, after rounding, is smallest; it is the same in fits and
    /// predictions. [`Run::zero_rows`](super::Run::zero_rows) counts such rows.
    Cosine,
}

impl Metric {
    /// The metric in a file. Files of methods that had a single metric do not name it.
    pub(crate) fn of_object(object: &Map<String, Value>) -> Result<Self, String> {
        let Some(name) = object.get("metric") else { return Ok(Self::Euclidean) };
        let metric = name.as_str().and_then(|name| name.parse().ok());
        metric.ok_or_else(|| "has a metric that this version does not support".into())
    }

    /// Returns an error if a state of metric `self` is to continue with another metric.
    pub(crate) fn must_be(self, metric: Self) -> Result<(), String> {
        if self == metric {
            return Ok(());
        }
        Err(format!("metric must be {:?}, that of the state, got {:?}", self.name(), metric.name()))
    }
}

names! {
    Metric("metric") {
        Euclidean = "euclidean",
        Cosine = "cosine",
    }
}
