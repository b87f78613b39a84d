//! This module knows a fit of a mixture on its way as arrays and texts.

use serde_json::json;

use super::estep::NOBODY;
use super::mixture::{Covariance, Mixture};
use super::neighbourhoods::Neighbourhoods;
use super::params::MixtureParams;
use super::space::Space;
use super::truncated::Truncated;
use crate::kernel::Compute;
use crate::kmeans::state::{stored_timings, timings_of};
use crate::persist::kept::{count, keep, keep_rows, kept_rows, list, number, rows, stored_rows, text};
use crate::persist::schema::MIXTURE_CHECKPOINT;
use crate::persist::{Array, Contents};
use crate::stats::Coreset;

impl<T: Compute> Truncated<T> {
    /// All that the next iteration depends on, but for the rows.
    pub(super) fn to_checkpoint(&self) -> Contents {
        let mut contents = Contents::new(MIXTURE_CHECKPOINT);
        let mut put = |name: &str, values: &[f64]| {
            keep(&mut contents, name, Array::new(&[values.len()], values));
        };
        put("counts", &self.counts);
        if let Some(mixture) = &self.mixture {
            put("variances", &mixture.variances);
            put("weights", &mixture.weights);
            put("floors", &mixture.floors);
            keep(&mut contents, "centers", stored_rows(&mixture.means, mixture.dim));
        }
        if let Some(coreset) = &self.coreset {
            keep_rows(&mut contents, "coreset", &coreset.points);
            keep(&mut contents, "coreset_weights", Array::new(&[coreset.weights.len()], &coreset.weights));
            keep(&mut contents, "coreset_rows", Array::new(&[coreset.rows.len()], &coreset.rows));
        }
        let ids = self.neighbours.ids();
        keep(&mut contents, "neighbours", Array::new(&[ids.len()], ids));
        keep(&mut contents, "near", Array::new(&[self.near.len()], &self.near));
        // What must come back exactly is kept as bits.
        let numbers = json!({
            "dim": self.mixture.as_ref().map_or(0, |mixture| mixture.dim),
            "shape": self.mixture.as_ref().map_or("", |mixture| mixture.shape.name()),
            "seed": self.params.seed,
            "bound": self.bound.to_bits(),
            "searches": self.searches,
            "iteration": self.iteration,
            "rows_seen": self.rows_seen,
            "seeded_by": self.seeded_by,
            "timings": stored_timings(self.timings),
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
    }

    /// What [`Truncated::to_checkpoint`] gave, to go on with under `params`; the error says what is wrong.
    pub(super) fn of_checkpoint(params: &MixtureParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(MIXTURE_CHECKPOINT)?;
        let numbers = contents.object("state")?;
        let mut state = Self::plan(params.clone());
        state.params.seed = count(&numbers, "seed")?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "its \"dim\" is too large")?;
        let (k, (active, size)) = (params.n_components, state.sizes());
        let means: Vec<T> = rows(contents, "centers", dim)?;
        if dim == 0 || means.len() != k * dim || !means.iter().all(|x| x.finite()) {
            return Err(format!("its \"centers\" are no {k} means"));
        }
        let shape = Covariance::named(&text(&numbers, "shape")?).ok_or("its \"shape\" is unknown")?;
        let list_of = |name: &str| -> Result<Vec<f64>, String> {
            let values: Vec<f64> = list(contents, name)?;
            let sound = values.iter().all(|x| x.is_finite() && *x >= 0.0);
            if sound { Ok(values) } else { Err(format!("its {name:?} are not finite, or negative")) }
        };
        let mixture = Mixture {
            dim,
            means,
            variances: list_of("variances")?,
            weights: list_of("weights")?,
            shape,
            floors: list_of("floors")?,
        };
        let floors = if shape == Covariance::Diag { dim } else { 1 };
        if mixture.variances.len() != shape.variances(k, dim)
            || mixture.weights.len() != k
            || mixture.floors.len() != floors
            || mixture.variances.contains(&0.0)
        {
            return Err(format!("it does not hold the parameters of {k} components"));
        }
        state.mixture = Some(mixture);
        state.counts = list_of("counts")?;
        state.neighbours = Neighbourhoods::of(list(contents, "neighbours")?, k, size)
            .ok_or("its \"neighbours\" are no neighbourhoods")?;
        state.near = list(contents, "near")?;
        let mut space = Space::default();
        let whole = state.near.chunks(active).all(|near| {
            near.len() == active && (near.iter().all(|&j| j == NOBODY) || space.holds_distinct(k, near))
        });
        if contents.arrays.contains_key("coreset_weights") {
            let points = kept_rows(contents, "coreset", dim)?;
            let (weights, rows) = (list_of("coreset_weights")?, list(contents, "coreset_rows")?);
            let finite = points.values.iter().all(|x: &T| x.finite());
            if points.len() != weights.len() || rows.len() != weights.len() || !finite {
                return Err("its coreset does not fit together".into());
            }
            state.coreset = Some(Coreset { points, weights, rows });
        }
        if state.coreset.is_some() != params.coreset_size.is_some() {
            return Err("it holds a coreset where none is wanted, or lacks one".into());
        }
        if !whole || state.counts.len() != k {
            return Err("what it holds of its rows does not fit together".into());
        }
        state.bound = number(&numbers, "bound")?;
        state.searches = count(&numbers, "searches")?;
        state.iteration = count(&numbers, "iteration")?;
        state.rows_seen = count(&numbers, "rows_seen")?;
        state.seeded_by = text(&numbers, "seeded_by")?;
        state.timings = timings_of(&numbers)?;
        Ok(state)
    }
}
