//! Passes over centers as bytes.

use serde_json::json;

use super::extent::Extent;
use super::kmeans::{KMeansPass, State, checked};
use super::numbers::{exact, exact_of, size_of_object};
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::persist::kept::{Values, keep, list, number};
use crate::persist::schema::KMEANS_PASS;
use crate::persist::{Array, Contents, from_bytes, to_bytes};

/// What messages call bytes that are read.
const NAME: &str = "the pass";

impl KMeansPass {
    /// The pass as bytes, in the safetensors format.
    ///
    /// ```
    /// use shoal::{Metric, distributed::KMeansPass};
    /// let task = KMeansPass::new(&[0.0f32, 9.0], 1, Metric::Cosine)?;
    /// let again = KMeansPass::from_bytes(&task.to_bytes()?)?;
    /// assert_eq!(again.centers::<f32>(), task.centers::<f32>());
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// None for passes of this crate.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut contents = Contents::new(KMEANS_PASS);
        self.put(&mut contents);
        to_bytes(&contents)
    }

    /// Reads what [`KMeansPass::to_bytes`] wrote. Runs no code, and checks everything.
    ///
    /// # Errors
    /// [`Error::Format`] for bytes that are damaged, truncated or of another kind.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let read = |contents: &Contents| {
            contents.must_be(KMEANS_PASS)?;
            Self::of_file(contents)
        };
        read_pass(bytes, read)
    }

    pub(super) fn put(&self, contents: &mut Contents) {
        let state = &self.state;
        let mut numbers = json!({
            "dim": self.dim,
            "metric": self.metric.name(),
            "iteration": state.iteration,
            "rows_seen": exact(state.rows_seen),
            "variance": state.variance.to_bits(),
        });
        Extent::put(state.extent.as_ref(), &mut numbers);
        contents.meta.insert("pass".into(), numbers.to_string());
        keep(contents, "centers", self.centers.array(self.dim));
        keep(contents, "weights", Array::new(&[state.weights.len()], &state.weights));
    }

    pub(super) fn of_file(contents: &Contents) -> std::result::Result<Self, String> {
        /// The centers must be as `KMeansPass::new` would make them.
        fn as_made<T: Compute>(
            values: &Values,
            dim: usize,
            metric: Metric,
        ) -> std::result::Result<(), String> {
            let centers = values.get::<T>();
            let made = checked(&centers, dim, metric).map_err(|e| e.to_string())?;
            if made == centers { Ok(()) } else { Err("its centers do not lie on the unit sphere".into()) }
        }
        let numbers = contents.object("pass")?;
        let dim = size_of_object(&numbers, "dim")?;
        let metric = Metric::of_object(&numbers)?;
        let centers = Values::matrix(contents, "centers", dim)?;
        if centers.is_wide() {
            as_made::<f64>(&centers, dim, metric)?;
        } else {
            as_made::<f32>(&centers, dim, metric)?;
        }
        let weights: Vec<f64> = list(contents, "weights")?;
        if weights.len() != centers.len() / dim || !weights.iter().all(|w| w.is_finite() && *w >= 0.0) {
            return Err("its weights are damaged".into());
        }
        let extent = Extent::of_object(&numbers, dim)?;
        let iteration = crate::persist::kept::count(&numbers, "iteration")?;
        let rows_seen = exact_of(&numbers, "rows_seen")?;
        if iteration > 1 << 62 || rows_seen > 1 << 62 {
            return Err("its counts are damaged".into());
        }
        let variance = number(&numbers, "variance")?;
        Ok(Self { dim, metric, centers, state: State { iteration, rows_seen, extent, variance, weights } })
    }
}

/// Reads a pass from bytes.
pub(super) fn read_pass<P>(
    bytes: &[u8],
    read: impl FnOnce(&Contents) -> std::result::Result<P, String>,
) -> Result<P> {
    let contents = from_bytes(NAME, bytes)?;
    read(&contents).map_err(|problem| Error::format(NAME, problem))
}
