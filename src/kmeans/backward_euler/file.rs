//! Writes the state of stochastic backward Euler to a file and reads it back.

use serde_json::json;

use super::progress::State;
use super::trajectory::{Scale, Trajectory};
use crate::kernel::Compute;
use crate::kmeans::batches::Waiting;
use crate::persist::kept::{bits, count, keep, list, matrix, number, rows, stored_rows, text};
use crate::persist::schema::BACKWARD_EULER_STATE;
use crate::persist::{Array, Contents};

impl<T: Compute> State<T> {
    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new(BACKWARD_EULER_STATE);
        let Trajectory { dim, anchor, iterate, mean, inner, scale } = &self.trajectory;
        let cols = (*dim).max(1);
        keep(&mut contents, "centers", stored_rows(&self.centers, cols));
        for (name, values) in [("anchor", anchor), ("iterate", iterate), ("mean", mean)] {
            keep(&mut contents, name, Array::new(&[values.len() / cols, cols], values));
        }
        keep(&mut contents, "middle", Array::new(&[scale.middle.len()], &scale.middle));
        keep(&mut contents, "given", Array::new(&[self.given.len()], &self.given));
        keep(&mut contents, "recent", Array::new(&[self.recent.len()], &self.recent));
        self.waiting.to_file(&mut contents);
        let numbers = json!({
            "dim": dim,
            "inner": inner,
            "seeded_by": self.seeded_by,
            "seed": self.seed,
            // Floats are stored as bits, so that a resumed fit is bit-identical.
            "fade": self.fade.to_bits(),
            "sq_scale": scale.sq_dist.to_bits(),
            "steps": self.steps,
            "n_iter": self.n_iter,
            "n_steps": self.n_steps,
            "rows_seen": self.rows_seen,
            "position": self.position,
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
    }

    /// Reads what [`State::to_file`] wrote. The error says what is wrong.
    pub(super) fn of_file(contents: &Contents) -> Result<Self, String> {
        let numbers = contents.object("state")?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "its \"dim\" is too large")?;
        let centers: Vec<T> = rows(contents, "centers", dim)?;
        let part = |name: &str| {
            let values: Vec<f64> = matrix(contents, name, dim)?;
            if values.len() == centers.len() && values.iter().all(|&x| T::from_f64(x).finite()) {
                Ok(values)
            } else {
                Err(format!("its {name:?} does not belong to its \"centers\", or is not finite"))
            }
        };
        let (anchor, iterate, mean) = (part("anchor")?, part("iterate")?, part("mean")?);
        if mean.iter().zip(&centers).any(|(&x, c)| T::from_f64(x) != *c) {
            return Err("its \"mean\" does not match its \"centers\"".into());
        }
        let k = if centers.is_empty() { 0 } else { centers.len() / dim };
        let given: Vec<f64> = contents.values("given", &[k])?;
        let recent: Vec<f64> = contents.values("recent", &[k])?;
        if !given.iter().chain(&recent).all(|x| x.is_finite() && *x >= 0.0) {
            return Err("it holds a weight that is negative or not finite".into());
        }
        let middle: Vec<f64> = list(contents, "middle")?;
        let sq_dist = number(&numbers, "sq_scale")?;
        if !(middle.is_empty() || middle.len() == dim) || !middle.iter().all(|x| x.is_finite()) {
            return Err("its \"middle\" is not a finite row".into());
        }
        if sq_dist.is_nan() || sq_dist < 0.0 {
            return Err(format!("its \"sq_scale\" is {sq_dist}"));
        }
        let scale = Scale { middle, sq_dist };
        let fade = number(&numbers, "fade")?;
        if !(0.0..=1.0).contains(&fade) {
            return Err(format!("its \"fade\" is {fade}"));
        }
        Ok(Self {
            centers,
            trajectory: Trajectory { dim, anchor, iterate, mean, inner: count(&numbers, "inner")?, scale },
            given,
            recent,
            waiting: Waiting::of_file(contents, dim)?,
            seeded_by: text(&numbers, "seeded_by")?,
            seed: bits(&numbers, "seed")?,
            fade,
            steps: count(&numbers, "steps")?,
            n_iter: count(&numbers, "n_iter")?,
            n_steps: count(&numbers, "n_steps")?,
            rows_seen: count(&numbers, "rows_seen")?,
            position: count(&numbers, "position")?,
        })
    }
}
