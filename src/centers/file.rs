//! Saves and loads a fitted k-means model.

use std::path::Path;

use serde_json::json;

use super::model::{KMeansModel, Values};
use crate::error::{Error, Result};
use crate::fit::{Metric, Timings};
use crate::persist::kept::text;
use crate::persist::model::{ModelFile, model_contents};
use crate::persist::schema::{
    BACKWARD_EULER_MODEL, BALANCED_MODEL, BREATHING_MODEL, HIERARCHICAL_MODEL, KMEANS_MODEL, MINIBATCH_MODEL,
    NESTED_MODEL, VARIANCE_REDUCED_MODEL,
};
use crate::persist::{self, Array};

/// The kinds of files with a center-based model.
const KINDS: [&str; 8] = [
    KMEANS_MODEL,
    MINIBATCH_MODEL,
    NESTED_MODEL,
    HIERARCHICAL_MODEL,
    BACKWARD_EULER_MODEL,
    VARIANCE_REDUCED_MODEL,
    BREATHING_MODEL,
    BALANCED_MODEL,
];

impl KMeansModel {
    /// Writes the model without its labels to a safetensors file. An existing file is replaced atomically.
    ///
    /// ```
    /// use shoal::{KMeans, KMeansModel};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("model.safetensors");
    /// let rows = [[0.0f32, 0.1], [0.3, 0.0], [7.0, 7.7], [7.3, 7.1]];
    /// let model = KMeans::params(2).fit(&rows)?;
    /// model.save(&path)?;
    /// assert_eq!(KMeansModel::load(&path)?.predict(&rows)?, model.labels());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if writing fails, and [`Error::Source`] for the model of a run before its first
    /// step. An existing file is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        if self.n_clusters() == 0 {
            return Err(Error::no_step());
        }
        let shape = [self.n_clusters(), self.dim];
        let params = json!({ "n_clusters": shape[0], "init": "auto", "metric": self.metric.name() });
        let fitted = json!({
            "n_iter": self.n_iter,
            "inertia": self.inertia,
            "init": self.seeded_by,
            "algorithm": self.algorithm,
            "timings": self.timings.by_name(),
        });
        let mut contents = model_contents(KMEANS_MODEL, &params, fitted)?;
        let centers = match &self.centers {
            Values::F32(values) => Array::new(&shape, values)?,
            Values::F64(values) => Array::new(&shape, values)?,
        };
        contents.arrays.insert("cluster_centers".into(), centers);
        contents.arrays.insert("counts".into(), Array::new(&shape[..1], &self.weights)?);
        persist::write(path, &contents)
    }

    /// Reads a model that [`KMeansModel::save`] wrote, or a center-based estimator of the Python package: `KMeans`,
    /// `BreathingKMeans`, `BalancedKMeans`, `MiniBatchKMeans`, `NestedMiniBatchKMeans`, `HierarchicalKMeans`,
    /// `BackwardEulerKMeans` or `VarianceReducedKMeans`. Labels are not stored, so they are empty. If the file has no
    /// inertia, the inertia is NaN.
    ///
    /// See [`KMeansModel::save`] for an example.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if reading fails. [`Error::Format`](crate::Error::Format), with the file and the
    /// problem, if the file is not a valid model.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        ModelFile::load(path.as_ref(), &KINDS, Self::of_file)
    }

    fn of_file(file: &ModelFile) -> Result<Self, String> {
        let (centers, k, dim) = file.centers("cluster_centers", "n_clusters")?;
        // Only exact k-means stores an algorithm.
        let algorithm =
            file.fitted.get("algorithm").map_or(Ok(String::new()), |_| text(&file.fitted, "algorithm"))?;
        Ok(Self {
            centers,
            dim,
            metric: Metric::of_object(&file.params)?,
            weights: file.counts(k)?,
            labels: Vec::new(),
            inertia: file.inertia()?,
            n_iter: file.n_iter()?,
            seeded_by: text(&file.fitted, "init")?,
            algorithm,
            timings: Timings::of(file.seconds(Timings::PHASES)?),
            threads: None,
        })
    }
}
