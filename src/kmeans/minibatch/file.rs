//! This module knows the state of mini-batch k-means as arrays and texts.

use serde_json::{Map, Value, json};

use super::progress::Progress;
use super::solver::State;
use crate::data::Dtype;
use crate::kernel::Compute;
use crate::kmeans::model::Values;
use crate::persist::schema::MINIBATCH_STATE;
use crate::persist::{Array, Contents, Number};
use crate::stats::ClusterSums;

/// Whether a state is one of rows that are computed in `f64`.
pub(super) fn is_wide(contents: &Contents) -> Result<bool, String> {
    Ok(contents.array("centers")?.dtype() == Dtype::F64)
}

/// The values of a matrix of `dim` columns, or of none at all.
fn matrix<E: Number>(contents: &Contents, name: &str, dim: usize) -> Result<Vec<E>, String> {
    let &[rows, cols] = contents.array(name)?.shape() else {
        return Err(format!("its {name:?} is no matrix"));
    };
    if rows > 0 && cols != dim {
        return Err(format!("its {name:?} has {cols} columns, and {dim} are needed"));
    }
    contents.values(name, &[rows, cols])
}

/// The same of values in the compute type.
fn rows<T: Compute>(contents: &Contents, name: &str, dim: usize) -> Result<Vec<T>, String> {
    Ok(if size_of::<T>() == size_of::<f32>() {
        Values::F32(matrix(contents, name, dim)?).get()
    } else {
        Values::F64(matrix(contents, name, dim)?).get()
    })
}

impl<T: Compute> State<T> {
    /// All of it.
    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new(MINIBATCH_STATE);
        let k = self.clusters.weights().len();
        let cols = self.dim.max(1);
        let mut keep = |name: &str, array: crate::error::Result<Array>| {
            contents.arrays.insert(name.into(), array.expect("as many values as the shape says"));
        };
        let typed = |values: &[T]| match Values::of(values) {
            Values::F32(values) => Array::new(&[values.len() / cols, cols], &values),
            Values::F64(values) => Array::new(&[values.len() / cols, cols], &values),
        };
        keep("centers", typed(&self.centers));
        keep("sums", Array::new(&[k, cols], self.clusters.sums()));
        keep("weights", Array::new(&[k], self.clusters.weights()));
        keep("waiting", typed(&self.waiting));
        keep("waiting_weights", Array::new(&[self.waiting_weights.len()], &self.waiting_weights));
        // What may be no finite number is kept as bits; so is what must come back exactly.
        let bits = |x: Option<f64>| x.map(f64::to_bits);
        let numbers = json!({
            "dim": self.dim,
            "seeded_by": self.seeded_by,
            "seed": self.seed,
            "n_steps": self.n_steps,
            "rows_seen": self.rows_seen,
            "n_iter": self.n_iter,
            "since_reassigned": self.since_reassigned,
            "stalled": self.progress.stalled,
            "inertia": bits(self.progress.inertia),
            "lowest": bits(self.progress.lowest),
            "shift": bits(self.progress.shift),
            "threshold": bits(self.threshold),
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
    }

    /// What [`State::to_file`] gave; the error says what is wrong.
    pub(super) fn of_file(contents: &Contents) -> Result<Self, String> {
        if contents.kind != MINIBATCH_STATE {
            return Err(format!("holds a {:?}, not a {MINIBATCH_STATE:?}", contents.kind));
        }
        let numbers = contents.object("state")?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "its \"dim\" is too large")?;
        let centers: Vec<T> = rows(contents, "centers", dim)?;
        let sums: Vec<f64> = matrix(contents, "sums", dim)?;
        let k = if centers.is_empty() { 0 } else { centers.len() / dim };
        let weights: Vec<f64> = contents.values("weights", &[k])?;
        if sums.len() != centers.len() {
            return Err("its \"sums\" do not belong to its \"centers\"".into());
        }
        let waiting: Vec<T> = rows(contents, "waiting", dim)?;
        let kept = contents.array("waiting_weights")?.shape().iter().product();
        let waiting_weights: Vec<f64> = contents.values("waiting_weights", &[kept])?;
        if kept != 0 && kept * dim != waiting.len() {
            return Err("its \"waiting_weights\" do not belong to its \"waiting\" rows".into());
        }
        let finite = |values: &[T]| values.iter().all(|x| x.finite());
        let sound = |values: &[f64]| values.iter().all(|x| x.is_finite() && *x >= 0.0);
        if !(finite(&centers) && finite(&waiting) && sums.iter().all(|x| x.is_finite())) {
            return Err("it holds values that are not finite".into());
        }
        if !(sound(&weights) && sound(&waiting_weights)) {
            return Err("it holds a weight that is negative or not finite".into());
        }
        let seeded_by =
            numbers.get("seeded_by").and_then(Value::as_str).ok_or("its \"seeded_by\" is no text")?;
        Ok(Self {
            dim,
            centers,
            clusters: ClusterSums::of(if k == 0 { 0 } else { dim }, sums, weights),
            waiting,
            waiting_weights,
            seeded_by: seeded_by.into(),
            seed: count(&numbers, "seed")?,
            n_steps: count(&numbers, "n_steps")?,
            rows_seen: count(&numbers, "rows_seen")?,
            n_iter: count(&numbers, "n_iter")?,
            since_reassigned: count(&numbers, "since_reassigned")?,
            progress: Progress {
                inertia: figure(&numbers, "inertia")?,
                lowest: figure(&numbers, "lowest")?,
                stalled: count(&numbers, "stalled")?,
                shift: figure(&numbers, "shift")?,
            },
            threshold: figure(&numbers, "threshold")?,
        })
    }
}

fn count(object: &Map<String, Value>, name: &str) -> Result<u64, String> {
    object.get(name).and_then(Value::as_u64).ok_or_else(|| format!("its {name:?} is no count"))
}

/// A number that was kept as bits, or none.
fn figure(object: &Map<String, Value>, name: &str) -> Result<Option<f64>, String> {
    match object.get(name) {
        Some(Value::Null) => Ok(None),
        _ => Ok(Some(f64::from_bits(count(object, name)?))),
    }
}
