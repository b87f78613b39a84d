//! Saves and loads a fitted k-means model.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::model::{KMeansModel, Values};
use crate::data::Dtype;
use crate::error::{Error, Result};
use crate::fit::{Metric, Timings};
use crate::kernel::{Compute, MAX_CENTERS};
use crate::matrix::MatRef;
use crate::persist::{
    self, Array, Contents,
    schema::{KMEANS_MODEL, MINIBATCH_MODEL},
};

impl KMeansModel {
    /// Writes the model without its labels to a safetensors file. An existing file is replaced atomically.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let shape = [self.n_clusters(), self.dim];
        let centers = match &self.centers {
            Values::F32(values) => Array::new(&shape, values)?,
            Values::F64(values) => Array::new(&shape, values)?,
        };
        let mut contents = Contents::new(KMEANS_MODEL);
        contents.arrays.insert("cluster_centers".into(), centers);
        contents.arrays.insert("counts".into(), Array::new(&shape[..1], &self.weights)?);
        // The Python class also reads the step history and `init`.
        contents.arrays.insert("history".into(), Array::new::<f64>(&[0, 8], &[])?);
        let metric = self.metric.name();
        let params = json!({ "n_clusters": shape[0], "init": "auto", "metric": metric });
        let Timings { seeding, sweeps, finish } = self.timings;
        let fitted = json!({
            "n_iter": self.n_iter,
            "inertia": self.inertia,
            "init": self.seeded_by,
            "algorithm": self.algorithm,
            "timings": { "seeding": seeding, "sweeps": sweeps, "final": finish },
            "stop_reason": null,
            "stop_reasons": [],
            "feature_names": null,
        });
        contents.meta.insert("params".into(), params.to_string());
        contents.meta.insert("fitted".into(), fitted.to_string());
        persist::write(path, &contents)
    }

    /// Reads a model that [`KMeansModel::save`] or the Python package wrote. Labels are not stored, so they
    /// are empty. If the file has no inertia, the inertia is NaN.
    ///
    /// See [`KMeansModel::save`] for an example.
    ///
    /// # Errors
    /// [`Error::Io`] if reading fails. [`Error::Format`], with the file and the problem, if the file is not a
    /// valid k-means model.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::of_file(&persist::read(path)?).map_err(|problem| Error::format(path, problem))
    }

    /// Reads the model from parsed contents; the error describes the problem.
    fn of_file(contents: &Contents) -> Result<Self, String> {
        if ![KMEANS_MODEL, MINIBATCH_MODEL].contains(&contents.kind.as_str()) {
            return Err(format!("holds a {:?}, not a {KMEANS_MODEL:?}", contents.kind));
        }
        let (params, fitted) = (contents.object("params")?, contents.object("fitted")?);
        let &[k, dim] = contents.array("cluster_centers")?.shape() else {
            return Err("array \"cluster_centers\" must be a matrix".into());
        };
        if k == 0 || dim == 0 || k > MAX_CENTERS {
            return Err(format!(
                "has {k} centers of {dim} columns: it must have 1 to {MAX_CENTERS} centers of at least 1 column"
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
        // Methods with a single metric do not store its name.
        let metric = params.get("metric").map_or(Ok("euclidean"), |_| text(&params, "metric"))?;
        let metric: Option<Metric> = metric.parse().ok();
        let weights: Vec<f64> = contents.values("counts", &[k])?;
        if let Some(bad) = weights.iter().find(|w| !(w.is_finite() && **w >= 0.0)) {
            return Err(format!("has a cluster of weight {bad}"));
        }
        let n_iter = fitted
            .get("n_iter")
            .and_then(Value::as_u64)
            .ok_or("\"n_iter\" must be a whole number of at least 0")?;
        let inertia = match fitted.get("inertia") {
            None | Some(Value::Null) => f64::NAN,
            Some(_) => measured(&fitted, "inertia")?,
        };
        let timings = fitted.get("timings").and_then(Value::as_object).ok_or("\"timings\" are missing")?;
        Ok(Self {
            centers,
            dim,
            metric: metric.ok_or("has a metric that this version does not support")?,
            weights,
            labels: Vec::new(),
            inertia,
            n_iter,
            seeded_by: text(&fitted, "init")?.into(),
            algorithm: fitted.get("algorithm").map_or(Ok(""), |_| text(&fitted, "algorithm"))?.into(),
            timings: Timings {
                seeding: measured(timings, "seeding")?,
                sweeps: measured(timings, "sweeps")?,
                finish: measured(timings, "final")?,
            },
        })
    }
}

/// Returns `values`, or an error if one is NaN or infinite.
fn finite<T: Compute>(values: Vec<T>, dim: usize) -> Result<Vec<T>, String> {
    match MatRef::new(&values, dim).first_not_finite() {
        None => Ok(values),
        Some((row, column)) => {
            Err(format!("center {row} holds {} at column {column}", values[row * dim + column]))
        }
    }
}

/// The string `name` of a JSON object.
fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    object.get(name).and_then(Value::as_str).ok_or_else(|| format!("{name:?} must be a string"))
}

/// The number `name` of a JSON object, finite and at least 0.
fn measured(object: &Map<String, Value>, name: &str) -> Result<f64, String> {
    let value = object.get(name).and_then(Value::as_f64).filter(|v| v.is_finite() && *v >= 0.0);
    value.ok_or_else(|| format!("{name:?} must be a finite number of at least 0"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::KMeans;

    /// Saves a small model in a temporary folder.
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
            (&again.weights, again.n_iter, &again.seeded_by, &again.algorithm),
            (&model.weights, model.n_iter, &model.seeded_by, &model.algorithm)
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
        assert_eq!(refusal(&centers(&[1.0; 4], &[4])), "array \"cluster_centers\" must be a matrix");
        assert!(refusal(&centers(&[], &[2, 0])).starts_with("has 2 centers of 0 columns"));
        assert!(refusal(&centers(&[], &[0, 2])).starts_with("has 0 centers of 2 columns"));
        assert_eq!(refusal(&centers(&[1.0; 6], &[3, 2])), "holds 3 centers, but its \"n_clusters\" says 2");
        assert_eq!(
            refusal(&array("cluster_centers", Array::new(&[2, 2], &[1i64, 2, 3, 4]).unwrap())),
            "array \"cluster_centers\" must be of type float64, got int64"
        );
        assert_eq!(
            refusal(&array("counts", Array::new(&[3], &[1.0f64; 3]).unwrap())),
            "array \"counts\" must have shape [2], got [3]"
        );
        assert_eq!(
            refusal(&array("counts", Array::new(&[2], &[1.0f32; 2]).unwrap())),
            "array \"counts\" must be of type float64, got float32"
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
            "has a metric that this version does not support"
        );
        assert!(refusal(&meta("params", "{", "[")).starts_with("has a damaged text \"shoal.params\""));
        assert_eq!(
            refusal(&meta("fitted", "\"n_iter\":", "\"n_iter\":-")),
            "\"n_iter\" must be a whole number of at least 0"
        );
        assert_eq!(
            refusal(&meta("fitted", "\"inertia\":", "\"inertia\":-")),
            "\"inertia\" must be a finite number of at least 0"
        );
        assert_eq!(refusal(&meta("fitted", "timings", "times")), "\"timings\" are missing");
    }
}
