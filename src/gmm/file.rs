//! Saves one start of a mixture fit to a checkpoint, and restores it.

use super::estep::NO_COMPONENT;
use super::mixture::{Covariance, Mixture};
use super::neighborhoods::Neighborhoods;
use super::params::MixtureParams;
use super::space::Space;
use super::truncated::Truncated;
use crate::kernel::Compute;
use crate::persist::Contents;
use crate::persist::state::{StateReader, StateWriter, are_weights, stored_fields};

impl<T: Compute> Truncated<T> {
    stored_fields! {
        counts, bounds, near, start, converged, searches, seeding_distances, rows_seen, seeded_by, timings,
    }

    /// Everything that the next iteration depends on, except the rows.
    pub(super) fn to_file(&self) -> Contents {
        let mut to = StateWriter::new("");
        self.put_fields(&mut to);
        to.put_value("seed", self.params.rng_seed);
        to.put("dim", &self.dim());
        to.put_list("neighbors", self.neighbors.ids());
        if let Some(mixture) = &self.mixture {
            mixture.put_fields(&mut to);
            to.put_matrix("centers", &mixture.means, mixture.dim);
        }
        to.finish()
    }

    /// Restores the state that [`Truncated::to_file`] saved, with parameters `params`. The error describes
    /// the problem.
    pub(super) fn of_file(params: &MixtureParams, contents: &Contents) -> Result<Self, String> {
        let from = StateReader::new(contents)?;
        let mut state = Self::plan(params.clone());
        state.get_fields(&from)?;
        state.params.rng_seed = from.seed()?;
        let (k, dim) = (params.n_components, from.get("dim")?);
        let means: Vec<T> = from.finite_matrix("centers", dim)?;
        if dim == 0 || means.len() != k * dim {
            return Err(format!("\"centers\" must hold {k} means"));
        }
        if state.bounds.is_empty() {
            // No iteration has moved the means.
            if !state.near.iter().all(|&j| j == NO_COMPONENT) {
                return Err("\"near\" must be unset before the first iteration".into());
            }
            let Self { start, near, seeding_distances, seeded_by, timings, .. } = state;
            let plan = Self::plan(state.params);
            let mut begun = Self { start, seeding_distances, seeded_by, timings, ..plan };
            begun.begin_from(means, dim, near);
            return Ok(begun);
        }
        let mut mixture = Mixture::new(means, dim, state.params.factors(dim));
        mixture.get_fields(&from)?;
        mixture.validate()?;
        state.mixture = Some(mixture);
        state.neighbors = Neighborhoods::of(from.get("neighbors")?, k, state.sizes().1)
            .ok_or("\"neighbors\" must hold valid neighborhoods")?;
        state.validate()?;
        Ok(state)
    }

    /// Returns an error for lists that do not match each other.
    fn validate(&self) -> Result<(), String> {
        let (k, active) = (self.params.n_components, self.sizes().0);
        let mut space = Space::default();
        let whole = self.near.chunks(active).all(|near| {
            near.len() == active && (near.iter().all(|&j| j == NO_COMPONENT) || space.holds_distinct(k, near))
        });
        if !whole || self.counts.len() != k || !are_weights(&self.counts) {
            return Err("per-row arrays do not match each other".into());
        }
        if !self.bounds.iter().all(|bound| bound.is_finite()) {
            return Err("\"bounds\" must be finite".into());
        }
        Ok(())
    }
}

impl<T: Compute> Mixture<T> {
    stored_fields! { shape, variances, weights, floors, loadings }

    /// Returns an error for parameters that do not match the means.
    fn validate(&self) -> Result<(), String> {
        let (k, dim) = (self.means.len() / self.dim, self.dim);
        for (name, values) in
            [("variances", &self.variances), ("weights", &self.weights), ("floors", &self.floors)]
        {
            if !are_weights(values) {
                return Err(format!("{name:?} must be finite and at least 0"));
            }
        }
        let by_factors = self.shape == Covariance::Factor;
        let n_factors = if by_factors { self.n_factors } else { 0 };
        if by_factors && n_factors == 0
            || self.loadings.len() != n_factors * k * dim
            || !self.loadings.iter().all(|x| x.is_finite())
        {
            return Err(format!("\"loadings\" must hold {n_factors} finite rows per component"));
        }
        if self.variances.len() != self.shape.variances(k, dim)
            || self.weights.len() != k
            || self.floors.len() != if self.shape.is_by_column() { dim } else { 1 }
            || self.variances.contains(&0.0)
        {
            return Err(format!("the parameters do not match {k} components"));
        }
        Ok(())
    }
}
