//! This module knows what a k-means fit ends in, how it labels new rows, and how it is kept in a file.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::assign::{inertia, nearest, predict, transform};
use super::lloyd::{Lloyd, Timings};
use super::params::Metric;
use crate::data::{AnySource, DataSource, Dtype, Source, count_rows};
use crate::error::{Error, Result};
use crate::kernel::{Compute, MAX_CENTERS};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::persist::{self, Array, Contents, schema::KMEANS_MODEL};

/// A fitted k-means model: immutable, and shared freely between threads.
///
/// See [`KMeans`](crate::KMeans) for an example.
#[derive(Clone, Debug)]
pub struct KMeansModel {
    pub(crate) centers: Values,
    pub(crate) dim: usize,
    pub(crate) metric: Metric,
    pub(crate) weights: Vec<f64>,
    pub(crate) labels: Vec<u32>,
    pub(crate) inertia: f64,
    pub(crate) n_iter: u64,
    pub(crate) seeded_by: String,
    pub(crate) timings: Timings,
}

/// Values in the type that they were computed in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Values {
    fn of<T: Compute>(values: &[T]) -> Self {
        if size_of::<T>() == size_of::<f32>() {
            Self::F32(values.iter().map(|v| v.to_f64() as f32).collect())
        } else {
            Self::F64(values.iter().map(|v| v.to_f64()).collect())
        }
    }

    fn get<T: Compute>(&self) -> Vec<T> {
        match self {
            Self::F32(values) => values.iter().map(|&v| T::from_f32(v)).collect(),
            Self::F64(values) => values.iter().map(|&v| T::from_f64(v)).collect(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }
}

impl KMeansModel {
    pub(super) fn new<T: Compute>(lloyd: &Lloyd<T>) -> Self {
        Self {
            centers: Values::of(lloyd.centers()),
            dim: lloyd.dim(),
            metric: lloyd.metric(),
            weights: lloyd.cluster_weights().to_vec(),
            labels: lloyd.labels().to_vec(),
            inertia: lloyd.inertia(),
            n_iter: lloyd.n_iter(),
            seeded_by: lloyd.seeded_by().to_string(),
            timings: lloyd.timings(),
        }
    }

    /// Number of clusters.
    pub fn n_clusters(&self) -> usize {
        self.centers.len() / self.dim.max(1)
    }

    /// Columns of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// What "near" means to this model.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The centers, `n_clusters` rows of `dim` values, in the type asked for (exact in the type that they were computed in).
    pub fn centers<T: Compute>(&self) -> Vec<T> {
        self.centers.get()
    }

    /// Weight of the rows of each cluster.
    pub fn cluster_weights(&self) -> &[f64] {
        &self.weights
    }

    /// The labels of the rows that the model was fitted to; empty in a model that was loaded.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Weighted sum of squared distances of the rows that the model was fitted to.
    pub fn inertia(&self) -> f64 {
        self.inertia
    }

    /// Sweeps that the winning start made.
    pub fn n_iter(&self) -> u64 {
        self.n_iter
    }

    /// How the first centers were chosen.
    pub fn seeded_by(&self) -> &str {
        &self.seeded_by
    }

    /// Seconds spent by the winning start.
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// The centers, once `data` is known to have as many columns.
    fn centers_for<T: Compute>(&self, data: &dyn DataSource<T>) -> Result<Vec<T>> {
        if data.dim() == self.dim {
            return Ok(self.centers.get());
        }
        Err(Error::Shape(format!("X has {} columns, but the model was fitted to {}", data.dim(), self.dim)))
    }

    /// The label of every row, on all threads.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another length, [`Error::NotFinite`], those of the source.
    pub fn predict<S: Source + ?Sized>(&self, rows: &S) -> Result<Vec<u32>> {
        let cx = Executor::new(None)?;
        match rows.any() {
            AnySource::F32(data) => predict(&self.centers_for(data)?, self.metric, data, &cx),
            AnySource::F64(data) => predict(&self.centers_for(data)?, self.metric, data, &cx),
        }
    }

    /// Euclidean distances of every row to every center, a row of `n_clusters` values for each.
    ///
    /// ```
    /// let rows = [[0.0f64], [4.0]];
    /// let mut distances = shoal::KMeans::params(2).fit(&rows).unwrap().distances(&rows).unwrap();
    /// distances.sort_by(f64::total_cmp);
    /// assert_eq!(distances, [0.0, 0.0, 4.0, 4.0]);
    /// ```
    ///
    /// # Errors
    /// As [`KMeansModel::predict`].
    pub fn distances<S: Source + ?Sized>(&self, rows: &S) -> Result<Vec<f64>> {
        fn all<T: Compute>(model: &KMeansModel, data: &dyn DataSource<T>) -> Result<Vec<f64>> {
            let centers = model.centers_for(data)?;
            let mut out = vec![0.0; count_rows(data)? as usize * model.n_clusters()];
            transform(&centers, model.metric, data, &mut out, &Executor::new(None)?)?;
            Ok(out)
        }
        match rows.any() {
            AnySource::F32(data) => all(self, data),
            AnySource::F64(data) => all(self, data),
        }
    }

    /// The `m` nearest centers of every row, nearest first, and their squared distances: `m` of each a row.
    ///
    /// ```
    /// let rows = [[0.0f64], [4.0]];
    /// let (labels, sq_dists) = shoal::KMeans::params(2).fit(&rows).unwrap().nearest(&rows, 2).unwrap();
    /// assert_eq!((labels[0], labels[3], sq_dists), (labels[3], labels[0], vec![0.0, 16.0, 0.0, 16.0]));
    /// ```
    ///
    /// # Errors
    /// As [`KMeansModel::predict`]; [`Error::InvalidParam`] for an `m` that is not in `1..=n_clusters`.
    pub fn nearest<S: Source + ?Sized>(&self, rows: &S, m: usize) -> Result<(Vec<u32>, Vec<f64>)> {
        let cx = Executor::new(None)?;
        match rows.any() {
            AnySource::F32(data) => nearest(&self.centers_for(data)?, m, self.metric, data, &cx),
            AnySource::F64(data) => nearest(&self.centers_for(data)?, m, self.metric, data, &cx),
        }
    }

    /// Weighted sum of squared distances of `rows` to their nearest centers.
    ///
    /// # Errors
    /// As [`KMeansModel::predict`].
    pub fn inertia_of<S: Source + ?Sized>(&self, rows: &S) -> Result<f64> {
        let cx = Executor::new(None)?;
        match rows.any() {
            AnySource::F32(data) => inertia(&self.centers_for(data)?, None, self.metric, data, &cx),
            AnySource::F64(data) => inertia(&self.centers_for(data)?, None, self.metric, data, &cx),
        }
    }

    /// Writes the model, without the labels of its rows, to a safetensors file; an older file of that name is replaced at the end, at once.
    ///
    /// ```
    /// use shoal::{KMeans, KMeansModel};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("model.safetensors");
    /// let rows = [[0.0f32], [0.5], [8.0], [9.0]];
    /// let model = KMeans::params(2).fit(&rows).unwrap();
    /// model.save(&path).unwrap();
    /// let again = KMeansModel::load(&path).unwrap();
    /// assert_eq!(again.centers::<f32>(), model.centers::<f32>());
    /// assert_eq!(again.predict(&rows).unwrap(), model.labels());
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`]; nothing is left behind then, and an older file is still there.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let shape = [self.n_clusters(), self.dim];
        let centers = match &self.centers {
            Values::F32(values) => Array::new(&shape, values)?,
            Values::F64(values) => Array::new(&shape, values)?,
        };
        let mut contents = Contents::new(KMEANS_MODEL);
        contents.arrays.insert("cluster_centers".into(), centers);
        contents.arrays.insert("counts".into(), Array::new(&shape[..1], &self.weights)?);
        // The Python class looks for these too: its `init` and the steps of its fit.
        contents.arrays.insert("history".into(), Array::new::<f64>(&[0, 8], &[])?);
        let metric = name_of(self.metric);
        let params = json!({ "n_clusters": shape[0], "init": "auto", "metric": metric });
        let Timings { seeding, sweeps, finish } = self.timings;
        let fitted = json!({
            "n_iter": self.n_iter,
            "inertia": self.inertia,
            "init": self.seeded_by,
            "algorithm": "lloyd",
            "timings": { "seeding": seeding, "sweeps": sweeps, "final": finish },
            "stop_reason": null,
            "stop_reasons": [],
            "feature_names": null,
        });
        contents.meta.insert("params".into(), params.to_string());
        contents.meta.insert("fitted".into(), fitted.to_string());
        persist::write(path, &contents)
    }

    /// Reads a model that [`KMeansModel::save`] wrote, here or in Python. It has no labels; where the file lacks the inertia, it is NaN.
    ///
    /// See [`KMeansModel::save`] for an example.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`], naming the file and what is wrong, for anything but a sound k-means model.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::of_file(&persist::read(path)?).map_err(|problem| Error::format(path, problem))
    }

    /// The model in a file; the error says what is wrong.
    fn of_file(contents: &Contents) -> Result<Self, String> {
        if contents.kind != KMEANS_MODEL {
            return Err(format!("holds a {:?}, not a {KMEANS_MODEL:?}", contents.kind));
        }
        let (params, fitted) = (contents.object("params")?, contents.object("fitted")?);
        let &[k, dim] = contents.array("cluster_centers")?.shape() else {
            return Err("its centers are no matrix".into());
        };
        if k == 0 || dim == 0 || k > MAX_CENTERS {
            return Err(format!(
                "has {k} centers of {dim} columns; 1 to {MAX_CENTERS} of at least 1 are possible"
            ));
        }
        let centers = match contents.array("cluster_centers")?.dtype() {
            Dtype::F32 => Values::F32(finite(contents.values("cluster_centers", &[k, dim])?, dim)?),
            _ => Values::F64(finite(contents.values("cluster_centers", &[k, dim])?, dim)?),
        };
        let claimed = params.get("n_clusters");
        if claimed.and_then(Value::as_u64) != Some(k as u64) {
            let claimed = claimed.map_or("nothing".into(), Value::to_string);
            return Err(format!("holds {k} centers, but its \"n_clusters\" says {claimed}"));
        }
        let metric = text(&params, "metric")?;
        let metric = METRICS.into_iter().find(|&known| name_of(known) == metric);
        let weights: Vec<f64> = contents.values("counts", &[k])?;
        if let Some(bad) = weights.iter().find(|w| !(w.is_finite() && **w >= 0.0)) {
            return Err(format!("has a cluster of weight {bad}"));
        }
        let n_iter = fitted.get("n_iter").and_then(Value::as_u64).ok_or("its \"n_iter\" is no count")?;
        let inertia = match fitted.get("inertia") {
            None | Some(Value::Null) => f64::NAN,
            Some(_) => measured(&fitted, "inertia")?,
        };
        let timings =
            fitted.get("timings").and_then(Value::as_object).ok_or("its \"timings\" are missing")?;
        Ok(Self {
            centers,
            dim,
            metric: metric.ok_or("is of a metric that this version does not know")?,
            weights,
            labels: Vec::new(),
            inertia,
            n_iter,
            seeded_by: text(&fitted, "init")?.into(),
            timings: Timings {
                seeding: measured(timings, "seeding")?,
                sweeps: measured(timings, "sweeps")?,
                finish: measured(timings, "final")?,
            },
        })
    }
}

const METRICS: [Metric; 2] = [Metric::Euclidean, Metric::Cosine];

/// What files call a metric.
fn name_of(metric: Metric) -> &'static str {
    match metric {
        Metric::Euclidean => "euclidean",
        Metric::Cosine => "cosine",
    }
}

/// Values of centers, unless one is NaN or infinite.
fn finite<T: Compute>(values: Vec<T>, dim: usize) -> Result<Vec<T>, String> {
    match MatRef::new(&values, dim).first_not_finite() {
        None => Ok(values),
        Some((row, column)) => {
            Err(format!("center {row} holds {} at column {column}", values[row * dim + column]))
        }
    }
}

/// A text of a JSON object.
fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    object.get(name).and_then(Value::as_str).ok_or_else(|| format!("its {name:?} is missing or no text"))
}

/// A figure of a JSON object: finite, and not negative.
fn measured(object: &Map<String, Value>, name: &str) -> Result<f64, String> {
    let value = object.get(name).and_then(Value::as_f64).filter(|v| v.is_finite() && *v >= 0.0);
    value.ok_or_else(|| format!("its {name:?} is missing or no figure of at least 0"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::KMeans;

    /// A file of a small model, and the folder it lies in.
    fn saved() -> (tempfile::TempDir, std::path::PathBuf, KMeansModel) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let model = KMeans::params(2).fit(&[[0.0f32, 0.1], [0.3, 0.0], [7.0, 7.7], [7.3, 7.1]]).unwrap();
        model.save(&path).unwrap();
        (folder, path, model)
    }

    fn problem(path: &Path) -> String {
        let refused = KMeansModel::load(path).unwrap_err();
        assert!(matches!(refused, Error::Format { .. }), "{refused:?}");
        refused.to_string().split_once("safetensors: ").expect("the file is named").1.to_owned()
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let (_folder, path, model) = saved();
        let again = KMeansModel::load(&path).unwrap();
        assert_eq!((&again.centers, again.dim, again.metric), (&model.centers, 2, Metric::Euclidean));
        assert_eq!(
            (&again.weights, again.n_iter, &again.seeded_by),
            (&model.weights, model.n_iter, &model.seeded_by)
        );
        assert!((again.inertia - model.inertia).abs() <= 4e-16 * model.inertia);
        assert!(again.labels.is_empty());
        let wide =
            KMeans::params(2).metric(Metric::Cosine).fit(&[[1.0f64, 0.1], [0.3, 1.0], [7.0, 0.7]]).unwrap();
        wide.save(&path).unwrap();
        let again = KMeansModel::load(&path).unwrap();
        assert_eq!((&again.centers, again.metric), (&wide.centers, Metric::Cosine));
    }

    #[test]
    fn every_truncation_is_refused() {
        let (_folder, path, _) = saved();
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            problem(&path);
        }
    }

    #[test]
    fn a_file_that_lies_is_refused() {
        let (_folder, path, _) = saved();
        let sound = persist::read(&path).unwrap();
        let refusal = |change: &dyn Fn(&mut Contents)| {
            let mut contents = sound.clone();
            change(&mut contents);
            persist::write(&path, &contents).unwrap();
            problem(&path)
        };
        let array = |name: &'static str, array: Array| {
            move |c: &mut Contents| drop(c.arrays.insert(name.into(), array.clone()))
        };
        let meta = |name: &'static str, from: &'static str, to: &'static str| {
            move |c: &mut Contents| {
                let text = c.meta[name].replace(from, to);
                assert_ne!(text, c.meta[name]);
                c.meta.insert(name.into(), text);
            }
        };
        assert_eq!(refusal(&|c| c.kind = "coreset".into()), "holds a \"coreset\", not a \"kmeans-model\"");
        assert_eq!(
            refusal(&|c| drop(c.arrays.remove("cluster_centers"))),
            "lacks the array \"cluster_centers\""
        );
        assert_eq!(refusal(&|c| drop(c.arrays.remove("counts"))), "lacks the array \"counts\"");
        assert_eq!(refusal(&|c| drop(c.meta.remove("params"))), "lacks the text \"shoal.params\"");
        let centers =
            |values: &[f32], shape: &[usize]| array("cluster_centers", Array::new(shape, values).unwrap());
        assert_eq!(refusal(&centers(&[1.0, f32::NAN, 2.0, 3.0], &[2, 2])), "center 0 holds NaN at column 1");
        assert_eq!(
            refusal(&centers(&[1.0, 2.0, 2.0, f32::INFINITY], &[2, 2])),
            "center 1 holds inf at column 1"
        );
        assert_eq!(refusal(&centers(&[1.0; 4], &[4])), "its centers are no matrix");
        assert!(refusal(&centers(&[], &[2, 0])).starts_with("has 2 centers of 0 columns"));
        assert!(refusal(&centers(&[], &[0, 2])).starts_with("has 0 centers of 2 columns"));
        assert_eq!(refusal(&centers(&[1.0; 6], &[3, 2])), "holds 3 centers, but its \"n_clusters\" says 2");
        assert_eq!(
            refusal(&array("cluster_centers", Array::new(&[2, 2], &[1i64, 2, 3, 4]).unwrap())),
            "array \"cluster_centers\" is of type int64, and float64 is needed"
        );
        assert_eq!(
            refusal(&array("counts", Array::new(&[3], &[1.0f64; 3]).unwrap())),
            "array \"counts\" has shape [3], and [2] is needed"
        );
        assert_eq!(
            refusal(&array("counts", Array::new(&[2], &[1.0f32; 2]).unwrap())),
            "array \"counts\" is of type float32, and float64 is needed"
        );
        assert_eq!(
            refusal(&array("counts", Array::new(&[2], &[1.0f64, -1.0]).unwrap())),
            "has a cluster of weight -1"
        );
        assert_eq!(
            refusal(&meta("params", ":2", ":1000000000000")),
            "holds 2 centers, but its \"n_clusters\" says 1000000000000"
        );
        assert_eq!(refusal(&meta("params", ":2", ":-1")), "holds 2 centers, but its \"n_clusters\" says -1");
        assert_eq!(
            refusal(&meta("params", "euclidean", "manhattan")),
            "is of a metric that this version does not know"
        );
        assert!(refusal(&meta("params", "{", "[")).starts_with("has a damaged text \"shoal.params\""));
        assert_eq!(refusal(&meta("fitted", "\"n_iter\":", "\"n_iter\":-")), "its \"n_iter\" is no count");
        assert_eq!(
            refusal(&meta("fitted", "\"inertia\":", "\"inertia\":-")),
            "its \"inertia\" is missing or no figure of at least 0"
        );
        assert_eq!(refusal(&meta("fitted", "timings", "times")), "its \"timings\" are missing");
    }
}
