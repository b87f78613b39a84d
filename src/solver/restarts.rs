//! This module knows how the best of several starts is found.

use super::{Solver, Step, StopReason};
use crate::data::{Access, DataSource};
use crate::error::Result;
use crate::float::Float;
use crate::parallel::Executor;

/// A solver that can be one of several starts.
pub trait Start<T: Float>: Solver<T> + Sized {
    /// Begins start number `start`.
    ///
    /// # Errors
    /// Those of the source.
    fn begin(&self, start: u64, data: &dyn DataSource<T>, cx: &Executor) -> Result<Self>;

    /// Brings everything that the model reports up to date, and gives the objective that starts are compared by.
    ///
    /// # Errors
    /// Those of the source.
    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64>;
}

/// Several starts, one after the other; the one with the lowest objective wins, the earlier among equals. A solver itself: a step is a
/// step of the present start, and only the last step of the last start ends the run.
pub struct Restarts<S> {
    plan: S,
    starts: u64,
    max_steps: u64,
    started: u64,
    current: Option<S>,
    best: Option<(f64, S)>,
    steps: u64,
    rows_seen: u64,
}

impl<S> Restarts<S> {
    /// `starts` starts of `plan`, of at most `max_steps` steps each.
    pub fn new(plan: S, starts: u64, max_steps: u64) -> Self {
        Self { plan, starts, max_steps, started: 0, current: None, best: None, steps: 0, rows_seen: 0 }
    }

    /// The winner so far, or the start that is on its way, or the plan.
    pub fn best(&self) -> &S {
        match (&self.best, &self.current) {
            (Some((_, best)), _) => best,
            (None, Some(current)) => current,
            (None, None) => &self.plan,
        }
    }

    /// As [`Restarts::best`], to bring it up to date.
    pub fn best_mut(&mut self) -> &mut S {
        match (&mut self.best, &mut self.current) {
            (Some((_, best)), _) => best,
            (None, Some(current)) => current,
            (None, None) => &mut self.plan,
        }
    }
}

impl<T: Float, S: Start<T>> Solver<T> for Restarts<S> {
    type Model = S::Model;

    fn needs(&self) -> Access {
        self.plan.needs()
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => {
                let new = self.plan.begin(self.started, data, cx)?;
                self.started += 1;
                self.steps = 0;
                new
            }
        };
        let mut step = match current.step(data, cx) {
            Ok(step) => step,
            Err(e) => {
                self.current = Some(current);
                return Err(e);
            }
        };
        self.steps += 1;
        self.rows_seen += step.batch_size;
        step.rows_seen = self.rows_seen;
        if self.steps >= self.max_steps {
            step.stop_reason.get_or_insert(StopReason::MaxIterations);
        }
        if step.stop_reason.is_none() {
            self.current = Some(current);
            return Ok(step);
        }
        let objective = current.finish(data, cx)?;
        if self.best.as_ref().is_none_or(|(best, _)| objective < *best) {
            self.best = Some((objective, current));
        }
        if self.started < self.starts {
            step.stop_reason = None;
        }
        Ok(step)
    }

    fn model(&self) -> S::Model {
        self.best().model()
    }
}
