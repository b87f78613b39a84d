//! Runs several starts and keeps the best.

use std::fmt;

use super::{Solver, Step, StopReason, Timings};
use crate::data::{Access, DataSource};
use crate::error::Result;
use crate::float::Float;
use crate::parallel::Executor;
use crate::persist::state::stored_fields;

/// A solver that can be one of several starts.
///
/// See [`Restarts`] for an example.
pub trait Restartable<T: Float>: Solver<T> + Sized {
    /// Begins start number `start`.
    ///
    /// # Errors
    /// Those of the source.
    fn begin(&self, start: u64, data: &dyn DataSource<T>, cx: &Executor) -> Result<Self>;

    /// Updates everything that the model reports, and returns the objective by which starts are compared.
    ///
    /// # Errors
    /// Those of the source.
    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64>;

    /// Seconds that the start has taken.
    fn timings(&self) -> Timings {
        Timings::default()
    }

    /// Rows that the start has read.
    fn rows_seen(&self) -> u64 {
        0
    }

    /// The model of the best start; all starts together have taken `timings`.
    fn model_of_all(&self, _timings: Timings) -> Self::Model {
        self.model()
    }
}

/// A solver that runs several starts one after the other. The start with the lowest objective wins, the
/// earlier one among equals. A step is a step of the current start, and the last step of the last start ends
/// the run.
///
/// ```
/// use shoal::data::{Access, DataSource};
/// use shoal::fit::{Driver, Restartable, Restarts, Solver, Step, StopReason};
/// use shoal::{Executor, Result};
/// /// A start of one step, whose objective is the distance of its number from 2.
/// struct Guess(u64);
/// impl Solver<f32> for Guess {
///     type Model = u64;
///     fn needs(&self) -> Access {
///         Access::Once
///     }
///     fn step(&mut self, _rows: &dyn DataSource<f32>, _cx: &Executor) -> Result<Step> {
///         let mut step = Step::default();
///         step.stop_reason = Some(StopReason::Tolerance);
///         Ok(step)
///     }
///     fn model(&self) -> u64 {
///         self.0
///     }
/// }
/// impl Restartable<f32> for Guess {
///     fn begin(&self, start: u64, _rows: &dyn DataSource<f32>, _cx: &Executor) -> Result<Self> {
///         Ok(Self(start))
///     }
///     fn finish(&mut self, _rows: &dyn DataSource<f32>, _cx: &Executor) -> Result<f64> {
///         Ok(self.0.abs_diff(2) as f64)
///     }
/// }
/// let (rows, cx) = ([[1.0f32]], Executor::new(Some(1))?);
/// let mut driver = Driver::new(Restarts::new(Guess(0), 5, 10));
/// while driver.advance(&rows, &cx)?.is_some() {}
/// assert_eq!((driver.history().len(), driver.solver().model()), (5, 2));
/// # Ok::<(), shoal::Error>(())
/// ```
pub struct Restarts<S> {
    plan: S,
    starts: u64,
    max_steps: u64,
    pub(crate) state: RestartsState<S>,
}

/// What [`Restarts`] keep between two steps, in addition to the plan.
pub(crate) struct RestartsState<S> {
    pub(crate) started: u64,
    pub(crate) current: Option<S>,
    pub(crate) best: Option<(f64, S)>,
    /// Seconds spent in all starts that lost, and the rows that they read.
    pub(crate) lost_timings: Timings,
    pub(crate) lost_rows: u64,
    /// Steps of the present start.
    pub(crate) steps: u64,
    /// The last step of the present start, until the model of the start is up to date.
    pub(crate) ended: Option<Step>,
    pub(crate) iteration: u64,
    pub(crate) rows_seen: u64,
}

impl<S> Default for RestartsState<S> {
    fn default() -> Self {
        Self {
            started: 0,
            current: None,
            best: None,
            lost_timings: Timings::default(),
            lost_rows: 0,
            steps: 0,
            ended: None,
            iteration: 0,
            rows_seen: 0,
        }
    }
}

impl<S> RestartsState<S> {
    stored_fields! { started, steps, ended, iteration, rows_seen, timings = lost_timings }
}

impl<S> fmt::Debug for Restarts<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (started, step) = (self.state.started, self.state.iteration);
        let mut shown = f.debug_struct("Restarts");
        shown
            .field("starts", &self.starts)
            .field("started", &started)
            .field("step", &step)
            .finish_non_exhaustive()
    }
}

impl<S> Restarts<S> {
    /// `starts` starts of `plan`, of at most `max_steps` steps each.
    pub fn new(plan: S, starts: u64, max_steps: u64) -> Self {
        Self { plan, starts, max_steps, state: RestartsState::default() }
    }

    /// The best finished start, else the running start, else the plan.
    pub fn best(&self) -> &S {
        match (&self.state.best, &self.state.current) {
            (Some((_, best)), _) => best,
            (None, Some(current)) => current,
            (None, None) => &self.plan,
        }
    }

    /// The running start, if an earlier start has finished.
    pub fn challenger(&self) -> Option<&S> {
        self.state.best.as_ref().and(self.state.current.as_ref())
    }

    /// The starts that may still win: the best one so far, and the running one.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &S> {
        [Some(self.best()), self.challenger()].into_iter().flatten()
    }

    /// Seconds spent in all starts so far.
    pub fn timings<T: Float>(&self) -> Timings
    where
        S: Restartable<T>,
    {
        self.kept().map(S::timings).fold(self.state.lost_timings, |all, more| all + more)
    }

    /// A step of the present start, counted over all starts.
    fn count(&mut self, mut step: Step) -> Step {
        let state = &mut self.state;
        state.steps += 1;
        state.iteration += 1;
        state.rows_seen += step.batch_size;
        (step.iteration, step.rows_seen) = (state.iteration, state.rows_seen);
        step.stop_reason = step.stop_reason.or(StopReason::after(state.steps, self.max_steps));
        step
    }

    /// As [`Restarts::best`], to bring it up to date.
    pub fn best_mut(&mut self) -> &mut S {
        match (&mut self.state.best, &mut self.state.current) {
            (Some((_, best)), _) => best,
            (None, Some(current)) => current,
            (None, None) => &mut self.plan,
        }
    }
}

impl<T: Float, S: Restartable<T>> Solver<T> for Restarts<S> {
    type Model = S::Model;

    fn needs(&self) -> Access {
        self.plan.needs()
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let mut current = if let Some(current) = self.state.current.take() {
            current
        } else {
            let new = self.plan.begin(self.state.started, data, cx)?;
            self.state.started += 1;
            self.state.steps = 0;
            new
        };
        let mut step = match self.state.ended.take() {
            Some(step) => step,
            None => match current.step(data, cx) {
                Ok(step) => self.count(step),
                Err(e) => {
                    self.state.current = Some(current);
                    return Err(e);
                }
            },
        };
        if step.stop_reason.is_none() {
            self.state.current = Some(current);
            return Ok(step);
        }
        let objective = match current.finish(data, cx) {
            Ok(objective) => objective,
            Err(e) => {
                // After an error, the next call finishes this start.
                (self.state.current, self.state.ended) = (Some(current), Some(step));
                return Err(e);
            }
        };
        let state = &mut self.state;
        let lost = if state.best.as_ref().is_none_or(|(best, _)| objective < *best) {
            state.best.replace((objective, current)).map(|(_, beaten)| beaten)
        } else {
            Some(current)
        };
        if let Some(lost) = lost {
            state.lost_timings = state.lost_timings + lost.timings();
            state.lost_rows += lost.rows_seen();
        }
        if state.started < self.starts {
            step.stop_reason = None;
        }
        Ok(step)
    }

    fn model(&self) -> S::Model {
        self.best().model_of_all(self.timings())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start that ends with a given objective. The model is its number. It ends after one step if the flag is set,
    /// else never.
    struct Fixed(Vec<f64>, u64, bool);

    impl Solver<f64> for Fixed {
        type Model = u64;

        fn needs(&self) -> Access {
            Access::Once
        }

        fn step(&mut self, _data: &dyn DataSource<f64>, _cx: &Executor) -> Result<Step> {
            let over = self.2.then_some(StopReason::Tolerance);
            Ok(Step { stop_reason: over, ..Step::default() })
        }

        fn model(&self) -> u64 {
            self.1
        }
    }

    impl Restartable<f64> for Fixed {
        fn begin(&self, start: u64, _data: &dyn DataSource<f64>, _cx: &Executor) -> Result<Self> {
            Ok(Self(self.0.clone(), start, self.2))
        }

        fn finish(&mut self, _data: &dyn DataSource<f64>, _cx: &Executor) -> Result<f64> {
            Ok(self.0[self.1 as usize])
        }
    }

    #[test]
    fn the_first_of_the_best_starts_is_kept() {
        let (rows, cx) = ([[0.0f64]], Executor::new(Some(1)).unwrap());
        for (objectives, best) in
            [(vec![1.0, 1.0], 0), (vec![3.0, 2.0, 5.0, 2.0, 4.0], 1), (vec![3.0, 1.0], 1)]
        {
            let n = objectives.len() as u64;
            let mut starts = Restarts::new(Fixed(objectives, 0, true), n, 10);
            for start in 1..=n {
                let step = starts.step(&rows, &cx).unwrap();
                assert_eq!((step.iteration, step.stop_reason.is_some()), (start, start == n));
            }
            assert_eq!(starts.model(), best);
        }
    }

    #[test]
    fn a_start_takes_at_most_so_many_steps() {
        let (rows, cx) = ([[0.0f64]], Executor::new(Some(1)).unwrap());
        let mut starts = Restarts::new(Fixed(vec![2.0, 1.0], 0, false), 2, 3);
        let reasons: Vec<_> = (0..6).map(|_| starts.step(&rows, &cx).unwrap().stop_reason).collect();
        assert_eq!(reasons, [None, None, None, None, None, Some(StopReason::MaxIterations)]);
        assert_eq!((starts.model(), starts.state.started), (1, 2));
    }
}
