//! Saves one start of a mixture fit to a checkpoint, and restores it.

use serde_json::{Map, Value, json};

use super::estep::NO_COMPONENT;
use super::mixture::{Covariance, Mixture};
use super::neighborhoods::Neighborhoods;
use super::params::MixtureParams;
use super::space::Space;
use super::truncated::Truncated;
use crate::fit::{stored_timings, timings_of};
use crate::kernel::Compute;
use crate::persist::kept::{bits, count, flag, keep, list, rows, stored_rows, text};
use crate::persist::schema::MIXTURE_CHECKPOINT;
use crate::persist::{Array, Contents};

impl<T: Compute> Truncated<T> {
    /// Everything that the next iteration depends on, except the rows.
    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new(MIXTURE_CHECKPOINT);
        let mut put = |name: &str, values: &[f64]| {
            keep(&mut contents, name, Array::new(&[values.len()], values));
        };
        put("counts", &self.counts);
        put("bounds", &self.bounds);
        if let Some(mixture) = &self.mixture {
            put("variances", &mixture.variances);
            put("weights", &mixture.weights);
            put("floors", &mixture.floors);
            if mixture.shape == Covariance::Factor {
                put("loadings", &mixture.loadings);
            }
            keep(&mut contents, "centers", stored_rows(&mixture.means, mixture.dim));
        }
        let ids = self.neighbors.ids();
        keep(&mut contents, "neighbors", Array::new(&[ids.len()], ids));
        keep(&mut contents, "near", Array::new(&[self.near.len()], &self.near));
        // Numbers that must be restored exactly are stored as bits.
        let numbers = json!({
            "dim": self.dim(),
            "shape": self.mixture.as_ref().map_or("", |mixture| mixture.shape.name()),
            "seed": self.params.rng_seed,
            "start": self.start,
            "converged": self.converged,
            "searches": self.searches,
            "seeding_distances": self.seeding_distances,
            "rows_seen": self.rows_seen,
            "seeded_by": self.seeded_by,
            "timings": stored_timings(self.timings),
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
    }

    /// Restores the state that [`Truncated::to_file`] saved, with parameters `params`. The error describes
    /// the problem.
    pub(super) fn of_file(params: &MixtureParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(MIXTURE_CHECKPOINT)?;
        let numbers = contents.object("state")?;
        let mut state = Self::plan(params.clone());
        state.params.rng_seed = bits(&numbers, "seed")?;
        state.start = count(&numbers, "start")?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "\"dim\" is too large")?;
        let (k, (active, size)) = (params.n_components, state.sizes());
        let means: Vec<T> = rows(contents, "centers", dim)?;
        if dim == 0 || means.len() != k * dim || !means.iter().all(|x| x.finite()) {
            return Err(format!("\"centers\" must hold {k} means"));
        }
        let bounds: Vec<f64> = list(contents, "bounds")?;
        if bounds.is_empty() {
            return state.before_first_iteration(means, dim, contents, &numbers);
        }
        let shape = text(&numbers, "shape")?.parse::<Covariance>();
        let shape = shape.map_err(|_| "\"shape\" is unknown")?;
        let list_of = |name: &str| -> Result<Vec<f64>, String> {
            let values: Vec<f64> = list(contents, name)?;
            let sound = values.iter().all(|x| x.is_finite() && *x >= 0.0);
            if sound { Ok(values) } else { Err(format!("{name:?} must be finite and at least 0")) }
        };
        let n_factors = state.params.factors(dim);
        let loadings: Vec<f64> =
            if shape == Covariance::Factor { list(contents, "loadings")? } else { Vec::new() };
        if shape == Covariance::Factor
            && !(n_factors > 0
                && loadings.len() == n_factors * k * dim
                && loadings.iter().all(|x| x.is_finite()))
        {
            return Err(format!("\"loadings\" must hold {n_factors} finite rows per component"));
        }
        let mixture = Mixture {
            dim,
            means,
            variances: list_of("variances")?,
            weights: list_of("weights")?,
            shape,
            floors: list_of("floors")?,
            n_factors,
            loadings,
        };
        let floors = if shape.is_by_column() { dim } else { 1 };
        if mixture.variances.len() != shape.variances(k, dim)
            || mixture.weights.len() != k
            || mixture.floors.len() != floors
            || mixture.variances.contains(&0.0)
        {
            return Err(format!("the parameters do not match {k} components"));
        }
        state.mixture = Some(mixture);
        state.counts = list_of("counts")?;
        state.neighbors = Neighborhoods::of(list(contents, "neighbors")?, k, size)
            .ok_or("\"neighbors\" must hold valid neighborhoods")?;
        state.near = list(contents, "near")?;
        let mut space = Space::default();
        let whole = state.near.chunks(active).all(|near| {
            near.len() == active && (near.iter().all(|&j| j == NO_COMPONENT) || space.holds_distinct(k, near))
        });
        if !whole || state.counts.len() != k {
            return Err("per-row arrays do not match each other".into());
        }
        if !bounds.iter().all(|bound| bound.is_finite()) {
            return Err("\"bounds\" must be finite".into());
        }
        state.bounds = bounds;
        state.converged = flag(&numbers, "converged")?;
        state.searches = count(&numbers, "searches")?;
        state.rows_seen = count(&numbers, "rows_seen")?;
        state.seeded_by = text(&numbers, "seeded_by")?;
        state.timings = timings_of(&numbers)?;
        Ok(state)
    }

    /// The state with means that no iteration has moved.
    fn before_first_iteration(
        mut self,
        means: Vec<T>,
        dim: usize,
        contents: &Contents,
        numbers: &Map<String, Value>,
    ) -> Result<Self, String> {
        let near: Vec<u32> = list(contents, "near")?;
        if !near.iter().all(|&j| j == NO_COMPONENT) {
            return Err("\"near\" must be unset before the first iteration".into());
        }
        self.begin_from(means, dim, near);
        self.seeded_by = text(numbers, "seeded_by")?;
        self.seeding_distances = count(numbers, "seeding_distances")?;
        self.timings = timings_of(numbers)?;
        Ok(self)
    }
}
