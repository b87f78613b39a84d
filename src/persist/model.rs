//! What the files of all fitted models share: the texts `params` and `fitted`, and the checks on reading.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::kept::{Values, count};
use super::{Array, Contents, read};
use crate::data::Dtype;
use crate::error::{Error, Result};
use crate::kernel::{Compute, MAX_CENTERS};
use crate::matrix::MatRef;

/// The ids of the cells of a partition, in the file of a model.
pub(crate) const CELL_IDS: &str = "cell_ids";

/// The contents of a file with a fitted model: its parameters and results as JSON objects. The caller adds arrays.
pub(crate) fn model_contents(kind: &str, params: &Value, mut fitted: Value) -> Result<Contents> {
    let mut contents = Contents::new(kind);
    // The Python class also reads the step history and the names of the columns.
    contents.arrays.insert("history".into(), Array::new::<f64>(&[0, 8], &[])?);
    fitted["stop_reason"] = Value::Null;
    fitted["stop_reasons"] = json!([]);
    fitted["feature_names"] = Value::Null;
    contents.meta.insert("params".into(), params.to_string());
    contents.meta.insert("fitted".into(), fitted.to_string());
    Ok(contents)
}

/// The parsed contents of a file with a fitted model. Its methods return a text that describes the problem.
pub(crate) struct ModelFile {
    pub(crate) contents: Contents,
    pub(crate) params: Map<String, Value>,
    pub(crate) fitted: Map<String, Value>,
}

impl ModelFile {
    /// Reads a file of one of `kinds`, and makes a model from it. A problem becomes an error with the name of the file.
    pub(crate) fn load<M>(
        path: &Path,
        kinds: &[&str],
        make: impl FnOnce(&Self) -> Result<M, String>,
    ) -> Result<M> {
        let contents = read(path)?;
        Self::of(contents, kinds).and_then(|file| make(&file)).map_err(|problem| Error::format(path, problem))
    }

    fn of(contents: Contents, kinds: &[&str]) -> Result<Self, String> {
        if !kinds.contains(&contents.kind.as_str()) {
            return Err(format!("holds a {:?}, not a {:?}", contents.kind, kinds[0]));
        }
        let (params, fitted) = (contents.object("params")?, contents.object("fitted")?);
        Ok(Self { contents, params, fitted })
    }

    /// The finite centers in the array `name`, and their number of rows and columns. The parameter `claim` must agree
    /// with the number of rows, unless the cells of a partition have changed since the fit.
    pub(crate) fn centers(&self, name: &str, claim: &str) -> Result<(Values, usize, usize), String> {
        let array = self.contents.array(name)?;
        let &[k, dim] = array.shape() else {
            return Err(format!("array {name:?} must be a matrix"));
        };
        if k == 0 || dim == 0 || k > MAX_CENTERS {
            return Err(format!(
                "has {k} centers of {dim} columns: it must have 1 to {MAX_CENTERS} centers of at least 1 column"
            ));
        }
        let centers = match array.dtype() {
            Dtype::F32 => Values::F32(finite(self.contents.values(name, &[k, dim])?, dim)?),
            _ => Values::F64(finite(self.contents.values(name, &[k, dim])?, dim)?),
        };
        let claimed = self.params.get(claim);
        let lives = self.contents.arrays.contains_key(CELL_IDS);
        if !lives && claimed.and_then(Value::as_u64) != Some(k as u64) {
            let claimed = claimed.map_or("nothing".into(), Value::to_string);
            return Err(format!("holds {k} centers, but its {claim:?} says {claimed}"));
        }
        Ok((centers, k, dim))
    }

    /// The weight of each of `k` clusters.
    pub(crate) fn counts(&self, k: usize) -> Result<Vec<f64>, String> {
        let weights: Vec<f64> = self.contents.values("counts", &[k])?;
        match weights.iter().find(|w| !(w.is_finite() && **w >= 0.0)) {
            Some(bad) => Err(format!("has a cluster of weight {bad}")),
            None => Ok(weights),
        }
    }

    /// The number of iterations.
    pub(crate) fn n_iter(&self) -> Result<u64, String> {
        count(&self.fitted, "n_iter")
    }

    /// The inertia; NaN if the file has none.
    pub(crate) fn inertia(&self) -> Result<f64, String> {
        match self.fitted.get("inertia") {
            None | Some(Value::Null) => Ok(f64::NAN),
            Some(_) => measured(&self.fitted, "inertia"),
        }
    }

    /// The seconds spent in each phase.
    pub(crate) fn seconds(&self, phases: [&str; 3]) -> Result<[f64; 3], String> {
        let timings = self.fitted.get("timings").and_then(Value::as_object);
        let timings = timings.ok_or("\"timings\" are missing")?;
        let mut seconds = [0.0; 3];
        for (seconds, phase) in seconds.iter_mut().zip(phases) {
            *seconds = measured(timings, phase)?;
        }
        Ok(seconds)
    }

    /// A list of finite numbers.
    pub(crate) fn figures(&self, name: &str) -> Result<Vec<f64>, String> {
        let &[length] = self.contents.array(name)?.shape() else {
            return Err(format!("array {name:?} must be a list"));
        };
        let values: Vec<f64> = self.contents.values(name, &[length])?;
        match values.iter().find(|x| !x.is_finite()) {
            Some(bad) => Err(format!("array {name:?} holds {bad}")),
            None => Ok(values),
        }
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

/// The number `name` of a JSON object, finite and at least 0.
pub(crate) fn measured(object: &Map<String, Value>, name: &str) -> Result<f64, String> {
    let value = object.get(name).and_then(Value::as_f64).filter(|v| v.is_finite() && *v >= 0.0);
    value.ok_or_else(|| format!("{name:?} must be a finite number of at least 0"))
}
