//! The state of a mixture fit in a checkpoint: its starts and its coreset.

use super::covariance::Covariance;
use super::estep::NO_COMPONENT;
use super::matrices::is_positive_definite;
use super::mixture::Mixture;
use super::neighborhoods::Neighborhoods;
use super::params::MixtureParams;
use super::solver::MixtureStarts;
use super::space::Space;
use super::truncated::Truncated;
use crate::fit::{Restarts, SolverState, Timings};
use crate::kernel::Compute;
use crate::persist::Contents;
use crate::persist::schema::MIXTURE_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter, are_weights, stored_fields};
use crate::rows::RowBuf;
use crate::stats::Coreset;

impl<T: Compute> SolverState for MixtureStarts<T> {
    type Params = MixtureParams;

    fn plan(params: &MixtureParams) -> Self {
        let n_starts = params.seeding.n_starts(params.n_init);
        let starts = Restarts::new(Truncated::plan(params.clone()), n_starts, params.max_iter);
        Self { params: params.clone(), starts, coreset: None, rows_seen: 0, timings: Timings::default() }
    }

    fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new(MIXTURE_CHECKPOINT);
        let state = &self.starts.state;
        // A start interrupted in its first iteration starts again: it has means but no variance.
        let current = state.current.as_ref().filter(|start| state.best.is_none() || start.n_iter() > 0);
        let unmoved = state.current.is_some() && current.is_none();
        to.put_value("seed", self.params.rng_seed);
        to.put("started", &(state.started - u64::from(unmoved)));
        to.put("steps", &state.steps);
        to.put("iteration", &state.iteration);
        to.put("rows_seen", &(self.rows_seen + state.lost_rows));
        to.put("timings", &(self.timings + state.lost_timings));
        let best = state.best.as_ref().map(|(_, best)| best);
        for (name, start) in [("current", current), ("best", best)] {
            if let Some(start) = start {
                to.contents.put(name, start.checkpoint());
            }
        }
        if let Some(coreset) = &self.coreset {
            to.put_rows("coreset", &coreset.points);
            to.put("coreset_weights", &coreset.weights);
            to.put("coreset_rows", &coreset.rows);
        }
        to.finish()
    }

    fn restore(params: &MixtureParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(MIXTURE_CHECKPOINT)?;
        let from = StateReader::new(contents)?;
        let params = params.clone().rng_seed(from.seed()?);
        let mut fit = Self::plan(&params);
        let start =
            |name: &str| contents.part(name).map(|part| Truncated::<T>::restore(&params, &part)).transpose();
        let best = start("best")?.map(|best| (-best.bound(), best));
        if best.as_ref().is_some_and(|(_, best)| best.bounds.is_empty()) {
            return Err("a start that is over must have made an iteration".into());
        }
        let state = &mut fit.starts.state;
        (state.current, state.best) = (start("current")?, best);
        (state.started, state.steps, state.iteration) =
            (from.get("started")?, from.get("steps")?, from.get("iteration")?);
        if state.current.is_none() && state.best.is_none() {
            return Err("it holds no components".into());
        }
        fit.coreset = coreset_of(&from, fit.starts.best().dim())?;
        if fit.coreset.is_some() != params.coreset_size.is_some() {
            return Err("a coreset must be present if and only if \"coreset_size\" is set".into());
        }
        // They include the rows and seconds of starts that lost.
        (fit.rows_seen, fit.timings) = (from.get("rows_seen")?, from.get("timings")?);
        Ok(fit)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        let n = self.coreset.as_ref().map(|coreset| coreset.rows.len() as u64).or(n);
        n.is_none_or(|n| {
            self.starts.kept().all(|start| start.near.len() as u64 == n * start.sizes().0 as u64)
        })
    }
}

/// The coreset in a checkpoint, with rows of `dim` columns, if there is one.
fn coreset_of<T: Compute>(from: &StateReader<'_>, dim: usize) -> Result<Option<Coreset<T>>, String> {
    if !from.contents.arrays.contains_key("coreset_weights") {
        return Ok(None);
    }
    let points: RowBuf<T> = from.rows("coreset", dim)?;
    let (weights, rows): (_, Vec<u64>) = (from.weights("coreset_weights")?, from.get("coreset_rows")?);
    let finite = points.values.iter().all(|x| x.finite());
    if points.len() == weights.len() && rows.len() == weights.len() && finite {
        Ok(Some(Coreset { points, weights, rows }))
    } else {
        Err("the arrays of the coreset do not match each other".into())
    }
}

impl<T: Compute> Truncated<T> {
    stored_fields! {
        counts, bounds, near, start, converged, searches, seeding_distances, rows_seen, seeded_by, timings,
    }

    /// Everything that the next iteration depends on, except the rows.
    pub(super) fn checkpoint(&self) -> Contents {
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

    /// Restores the state that [`Truncated::checkpoint`] saved, with parameters `params`. The error describes
    /// the problem.
    pub(super) fn restore(params: &MixtureParams, contents: &Contents) -> Result<Self, String> {
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
        let mut mixture = state.new_mixture(means, dim);
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
        let whole = self.shape.is_whole();
        for (name, values) in
            [("variances", &self.variances), ("weights", &self.weights), ("floors", &self.floors)]
        {
            if !(are_weights(values) || whole && name == "variances") {
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
            || !whole && self.variances.contains(&0.0)
        {
            return Err(format!("the parameters do not match {k} components"));
        }
        if whole && !self.variances.chunks(dim * dim).all(|matrix| is_positive_definite(matrix, dim)) {
            return Err("\"variances\" must hold positive definite matrices".into());
        }
        Ok(())
    }
}
