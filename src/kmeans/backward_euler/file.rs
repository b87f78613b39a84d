//! Writes the state of stochastic backward Euler to a file and reads it back.

use super::progress::State;
use crate::kernel::Compute;
use crate::kmeans::batches::Waiting;
use crate::persist::Array;
use crate::persist::kept::{keep, matrix};
use crate::persist::state::{StateReader, StateWriter, are_weights, stored_fields};

impl<T: Compute> State<T> {
    stored_fields! {
        dim = trajectory.dim, inner = trajectory.inner,
        middle = trajectory.scale.middle, sq_scale = trajectory.scale.sq_dist,
        given, recent, seeded_by, fade, steps, n_iter, n_steps, rows_seen, position,
    }

    pub(super) fn to_file(&self, kind: &str) -> StateWriter {
        let mut to = StateWriter::new(kind);
        self.put_fields(&mut to);
        to.put_value("seed", self.seed);
        let way = &self.trajectory;
        to.put_matrix("centers", &self.centers, way.dim);
        let cols = way.dim.max(1);
        for (name, values) in [("anchor", &way.anchor), ("iterate", &way.iterate), ("mean", &way.mean)] {
            keep(&mut to.contents, name, Array::new(&[values.len() / cols, cols], values));
        }
        self.waiting.put(&mut to);
        to
    }

    /// Reads what [`State::to_file`] wrote. The error says what is wrong.
    pub(super) fn of_file(from: &StateReader<'_>) -> Result<Self, String> {
        let mut state = Self::new(from.seed()?);
        state.get_fields(from)?;
        let dim = state.trajectory.dim;
        state.centers = from.finite_matrix("centers", dim)?;
        state.waiting = Waiting::get(from, dim)?;
        let part = |name: &str| {
            let values: Vec<f64> = matrix(from.contents, name, dim)?;
            if values.len() == state.centers.len() && values.iter().all(|&x| T::from_f64(x).finite()) {
                Ok(values)
            } else {
                Err(format!("its {name:?} does not belong to its \"centers\", or is not finite"))
            }
        };
        let (anchor, iterate, mean) = (part("anchor")?, part("iterate")?, part("mean")?);
        (state.trajectory.anchor, state.trajectory.iterate, state.trajectory.mean) = (anchor, iterate, mean);
        state.validate()?;
        Ok(state)
    }

    /// Returns an error for parts that do not match each other.
    fn validate(&self) -> Result<(), String> {
        let (way, centers) = (&self.trajectory, &self.centers);
        if way.mean.iter().zip(centers).any(|(&x, c)| T::from_f64(x) != *c) {
            return Err("its \"mean\" does not match its \"centers\"".into());
        }
        let k = centers.len() / way.dim.max(1);
        for (name, weights) in [("given", &self.given), ("recent", &self.recent)] {
            if weights.len() != k || !are_weights(weights) {
                return Err(format!("its {name:?} are not {k} finite numbers of at least 0"));
            }
        }
        let (middle, sq_dist) = (&way.scale.middle, way.scale.sq_dist);
        if !(middle.is_empty() || middle.len() == way.dim) || !middle.iter().all(|x| x.is_finite()) {
            return Err("its \"middle\" is not a finite row".into());
        }
        if sq_dist.is_nan() || sq_dist < 0.0 {
            return Err(format!("its \"sq_scale\" is {sq_dist}"));
        }
        if !(0.0..=1.0).contains(&self.fade) {
            return Err(format!("its \"fade\" is {}", self.fade));
        }
        Ok(())
    }
}
