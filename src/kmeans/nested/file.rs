//! This module knows the state of nested mini-batch k-means between two calls as arrays and texts.

use serde_json::{Map, Value, json};

use super::stream::Kept;
use super::{Nested, NestedParams};
use crate::kernel::Compute;
use crate::kmeans::labels::{Carried, NO_LABEL};
use crate::kmeans::state::{count, figure, rows, stored_rows};
use crate::persist::schema::NESTED_STATE;
use crate::persist::{Array, Contents};
use crate::seeding::Seeding;
use crate::stats::ClusterSums;

fn keep(contents: &mut Contents, name: &str, array: crate::error::Result<Array>) {
    contents.arrays.insert(name.into(), array.expect("as many values as the shape says"));
}

fn keep_sums(contents: &mut Contents, prefix: &str, sums: &ClusterSums) {
    for (name, values) in sums.parts() {
        keep(contents, &format!("{prefix}_{name}"), Array::new(&[values.len()], values));
    }
}

/// Values of any number.
fn list<E: crate::persist::Number>(contents: &Contents, name: &str) -> Result<Vec<E>, String> {
    let length = contents.array(name)?.shape().iter().product();
    contents.values(name, &[length])
}

fn sums_of(contents: &Contents, prefix: &str, k: usize, dim: usize) -> Result<ClusterSums, String> {
    let part = |name: &str| {
        let values: Vec<f64> = list(contents, &format!("{prefix}_{name}"))?;
        if values.iter().all(|x| x.is_finite()) {
            Ok(values)
        } else {
            Err(format!("its {prefix:?} are not finite"))
        }
    };
    let parts = [part("sums")?, part("lows")?, part("weights")?, part("squares")?, part("energies")?];
    if parts[2].len() != k || parts[2].iter().any(|&w| w < 0.0) {
        return Err(format!("its {prefix:?} are not those of {k} clusters"));
    }
    ClusterSums::of_parts(dim, parts).ok_or_else(|| format!("its {prefix:?} do not fit together"))
}

fn flag(numbers: &Map<String, Value>, name: &str) -> Result<bool, String> {
    numbers
        .get(name)
        .and_then(Value::as_bool)
        .ok_or_else(|| format!("its {name:?} is neither true nor false"))
}

impl<T: Compute> Nested<T> {
    /// All that the next rows depend on. The rows of a fit are as good as retired: nobody has them any more.
    pub(super) fn to_file(&self) -> Contents {
        if !self.fed && !self.centers.is_empty() {
            let mut votes = Self::plan(self.params.clone());
            (votes.dim, votes.centers, votes.fed) = (self.dim, self.centers.clone(), true);
            votes.gone = self.sums.clone().map(Carried::into_clusters);
            votes.retired = self.retired + self.voted;
            votes.weights.clone_from(&self.weights);
            (votes.threshold, votes.iteration, votes.rows_seen) =
                (self.threshold, self.iteration, self.rows_seen);
            votes.seeded_by.clone_from(&self.seeded_by);
            return votes.to_file();
        }
        let mut contents = Contents::new(NESTED_STATE);
        let cols = self.dim.max(1);
        keep(&mut contents, "centers", stored_rows(&self.centers, cols));
        keep(&mut contents, "rows", stored_rows(&self.kept.rows, cols));
        keep(&mut contents, "row_weights", Array::new(&[self.kept.weights.len()], &self.kept.weights));
        keep(&mut contents, "labels", Array::new(&[self.batch()], &self.labels.of_rows));
        keep(&mut contents, "weights", Array::new(&[self.weights.len()], &self.weights));
        if let (true, Seeding::Given(centers)) = (self.centers.is_empty(), &self.params.seeding) {
            keep(&mut contents, "given", Array::new(&[centers.len()], centers));
        }
        let (age, energy_afresh) = self.sums.as_ref().map_or((0, 0.0), Carried::age);
        if let Some(sums) = &self.sums {
            keep_sums(&mut contents, "votes", sums.clusters());
        }
        if let Some(gone) = &self.gone {
            keep_sums(&mut contents, "gone", gone);
        }
        // What must come back exactly is kept as bits.
        let numbers = json!({
            "dim": self.dim,
            "due": self.due,
            "has_votes": self.sums.is_some(),
            "has_gone": self.gone.is_some(),
            "carry": self.carry,
            "torn": self.labels.torn,
            "age": age,
            "energy_afresh": energy_afresh.to_bits(),
            "retired": self.retired,
            "changed": self.changed,
            "lowest": self.lowest.to_bits(),
            "stalled": self.stalled,
            "threshold": self.threshold.map(f64::to_bits),
            "iteration": self.iteration,
            "rows_seen": self.rows_seen,
            "seed": self.params.seed,
            "seeded_by": self.seeded_by,
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
    }

    /// What [`Nested::to_file`] gave, to go on with under `params`; the error says what is wrong.
    pub(super) fn of_file(params: NestedParams, contents: &Contents) -> Result<Self, String> {
        if contents.kind != NESTED_STATE {
            return Err(format!("holds a {:?}, not a {NESTED_STATE:?}", contents.kind));
        }
        let numbers = contents.object("state")?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "its \"dim\" is too large")?;
        let mut state = Self::plan(params);
        (state.dim, state.fed) = (dim, true);
        state.params.seed = count(&numbers, "seed")?;
        state.centers = rows(contents, "centers", dim)?;
        state.kept = Kept { rows: rows(contents, "rows", dim)?, weights: list(contents, "row_weights")? };
        state.labels.of_rows = list(contents, "labels")?;
        state.labels.torn = flag(&numbers, "torn")?;
        state.weights = list(contents, "weights")?;
        let (k, kept) = (state.centers.len() / dim.max(1), state.kept.rows.len() / dim.max(1));
        let finite = |values: &[T]| values.iter().all(|x| x.finite());
        let sound = |values: &[f64]| values.iter().all(|x| x.is_finite() && *x >= 0.0);
        if !(finite(&state.centers) && finite(&state.kept.rows) && sound(&state.kept.weights)) {
            return Err("it holds values that are not finite, or negative weights".into());
        }
        if !state.kept.weights.is_empty() && state.kept.weights.len() != kept {
            return Err("its \"row_weights\" do not belong to its \"rows\"".into());
        }
        state.due = count(&numbers, "due")?;
        let known = |&j: &u32| (j as usize) < k || j == NO_LABEL;
        if state.batch() > kept || state.due > kept as u64 || !state.labels.of_rows.iter().all(known) {
            return Err("its \"labels\" do not belong to its \"rows\"".into());
        }
        if k == 0 {
            if contents.arrays.contains_key("given") {
                state.params.seeding = Seeding::Given(list(contents, "given")?);
            }
        } else if k != state.params.n_clusters || state.weights.len() > k {
            return Err(format!("holds {k} centers, and n_clusters={}", state.params.n_clusters));
        }
        let age = u32::try_from(count(&numbers, "age")?).map_err(|_| "its \"age\" is too large")?;
        let energy_afresh = f64::from_bits(count(&numbers, "energy_afresh")?);
        if flag(&numbers, "has_votes")? {
            state.sums = Some(Carried::of(sums_of(contents, "votes", k, dim)?, age, energy_afresh));
        }
        if flag(&numbers, "has_gone")? {
            state.gone = Some(sums_of(contents, "gone", k, dim)?);
        }
        let unlabelled = state.labels.of_rows.contains(&NO_LABEL);
        state.carry = flag(&numbers, "carry")? && state.sums.is_some() && !unlabelled;
        state.retired = count(&numbers, "retired")?;
        state.changed = count(&numbers, "changed")?;
        state.lowest = f64::from_bits(count(&numbers, "lowest")?);
        state.stalled = count(&numbers, "stalled")?;
        state.threshold = figure(&numbers, "threshold")?;
        state.iteration = count(&numbers, "iteration")?;
        state.rows_seen = count(&numbers, "rows_seen")?;
        state.seeded_by =
            numbers.get("seeded_by").and_then(Value::as_str).ok_or("its \"seeded_by\" is no text")?.into();
        Ok(state)
    }
}
