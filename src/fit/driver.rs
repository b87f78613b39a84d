//! Drives a solver step by step: times the steps, keeps their history, and ends the run.

use std::fmt;
use std::time::Instant;

use super::{Solver, Step, StopReason};
use crate::data::{Access, DataSource};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::parallel::Executor;

/// Returns an error if a source has less access than a method needs.
pub(crate) fn require(needs: Access, has: Access) -> Result<()> {
    if has >= needs {
        return Ok(());
    }
    Err(Error::Source(match needs {
        Access::Random => "this method reads rows in any order, but `rows` can only be read from the first to the \
                           last: pass an array, or write the rows to a .npy file and open it"
            .into(),
        _ => "this method reads its rows more than once, but `rows` can be read only once: pass a callable that \
              returns a fresh iterator, or write the rows to a .npy file and open it"
            .into(),
    }))
}

/// A running solver with its history and clock. It does not hold the data, so it can be stored anywhere.
///
/// [`Run`](super::Run) has one for either compute type. Use a driver by itself for a solver of your own:
///
/// ```
/// use shoal::fit::{Driver, Method, Solver};
/// use shoal::{Executor, KMeans};
/// let (rows, cx) = ([[0.0f64], [1.0], [8.0], [9.0]], Executor::new(Some(1))?);
/// let mut driver = Driver::new(KMeans::solver::<f64>(&KMeans::params(2)));
/// while driver.advance(&rows, &cx)?.is_some() {}
/// assert_eq!(driver.into_solver().into_model().n_clusters(), 2);
/// # Ok::<(), shoal::Error>(())
/// ```
pub struct Driver<S> {
    solver: S,
    history: Vec<Step>,
    /// Seconds spent in earlier steps: time between two steps is the caller's.
    elapsed: f64,
    /// Number of rows of the run, once it is known.
    pub(super) rows: Option<u64>,
    /// Columns of the rows, once they are known.
    pub(super) columns: Option<usize>,
}

impl<S> fmt::Debug for Driver<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("last_step", &self.history.last()).finish_non_exhaustive()
    }
}

impl<S> Driver<S> {
    /// A run of `solver`, from its present state on.
    pub fn new(solver: S) -> Self {
        Self { solver, history: Vec::new(), elapsed: 0.0, rows: None, columns: None }
    }

    /// A run of `solver` that continues after the steps of `history`, also if the caller ended it.
    pub(crate) fn resumed(solver: S, mut history: Vec<Step>) -> Self {
        if let Some(last) = history.last_mut() {
            last.stop_reason = last.stop_reason.filter(|reason| !reason.is_resumable());
        }
        let elapsed = history.last().map_or(0.0, |last| last.elapsed);
        Self { history, elapsed, ..Self::new(solver) }
    }

    /// The solver in its present state.
    pub fn solver(&self) -> &S {
        &self.solver
    }

    /// The solver, to change its state between two steps.
    pub fn solver_mut(&mut self) -> &mut S {
        &mut self.solver
    }

    /// The solver, once the run is over.
    pub fn into_solver(self) -> S {
        self.solver
    }

    /// All steps so far.
    pub fn history(&self) -> &[Step] {
        &self.history
    }

    /// Why the run ended; `None` while it continues.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.history.last().and_then(|step| step.stop_reason)
    }

    /// Ends the run after the last step.
    pub fn end(&mut self, reason: StopReason) {
        if let Some(step) = self.history.last_mut() {
            step.stop_reason.get_or_insert(reason);
        }
    }

    /// Notes the number of columns, and that of rows if it is known. The state of a solver belongs to rows of this
    /// shape.
    ///
    /// # Errors
    /// [`Error::Shape`] for other numbers than before.
    pub(crate) fn note_shape<T: Float>(&mut self, data: &dyn DataSource<T>) -> Result<()> {
        let (rows, columns) = (data.rows(), data.dim());
        let differ = |now: u64, what: &str, before: u64| {
            let problem = format!("`rows` have {now} {what}, but the run began with {before}");
            Err(Error::Shape(format!("{problem}: pass the rows of the run")))
        };
        match (self.rows, rows, self.columns) {
            (Some(before), Some(now), _) if before != now => differ(now, "rows", before),
            (.., Some(before)) if before != columns => differ(columns as u64, "columns", before as u64),
            _ => {
                self.rows = self.rows.or(rows);
                self.columns = Some(columns);
                Ok(())
            }
        }
    }

    /// One more step; `None` once the run is over.
    ///
    /// # Errors
    /// [`Error::Source`] when the solver needs more access than the source gives, [`Error::Shape`] for another number
    /// of rows or columns than before, and those of [`Solver::step`].
    pub fn advance<T: Float>(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>>
    where
        S: Solver<T>,
    {
        if self.stop_reason().is_some() {
            return Ok(None);
        }
        require(self.solver.needs(), data.access())?;
        self.note_shape(data)?;
        let begun = Instant::now();
        let mut step = self.solver.step(data, cx)?;
        self.elapsed += begun.elapsed().as_secs_f64();
        step.elapsed = self.elapsed;
        self.history.push(step);
        Ok(Some(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every step has the objective 1 and ends nothing.
    struct Endless;

    impl Solver<f64> for Endless {
        type Model = ();

        fn needs(&self) -> Access {
            Access::Once
        }

        fn step(&mut self, _data: &dyn DataSource<f64>, _cx: &Executor) -> Result<Step> {
            Ok(Step { iteration: 1, objective: 1.0, ..Step::default() })
        }

        fn model(&self) {}
    }

    #[test]
    fn the_caller_does_not_replace_the_reason() {
        let (rows, cx) = ([[0.0f64]], Executor::new(Some(1)).unwrap());
        let mut run = Driver::new(Endless);
        run.end(StopReason::Deadline);
        assert!(run.advance(&rows, &cx).unwrap().is_some(), "there was no step to end with");
        run.end(StopReason::Observer);
        run.end(StopReason::Patience);
        assert_eq!(run.stop_reason(), Some(StopReason::Observer));
        assert!(run.advance(&rows, &cx).unwrap().is_none());
    }

    #[test]
    fn a_resumed_run_keeps_its_time_and_the_end_of_its_method() {
        let (rows, cx) = ([[0.0f64]], Executor::new(Some(1)).unwrap());
        let after = |reason| {
            let last = Step { iteration: 1, elapsed: 7.0, stop_reason: Some(reason), ..Step::default() };
            Driver::resumed(Endless, vec![last])
        };
        for reason in [StopReason::Deadline, StopReason::Target, StopReason::Observer] {
            let step = after(reason).advance(&rows, &cx).unwrap().expect("the caller ended it");
            assert!(step.elapsed >= 7.0);
        }
        for reason in [StopReason::LabelsStable, StopReason::MaxIterations, StopReason::Diverged] {
            assert!(after(reason).advance(&rows, &cx).unwrap().is_none());
        }
    }
}
