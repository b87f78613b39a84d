//! The steps of a fit as an iterator.

use std::fmt;

use super::{Method, Params, Run, Step};
use crate::data::Source;
use crate::error::Result;
use crate::parallel::Executor;

/// The steps of a fit as an iterator. See [`KMeansParams::solve`](crate::kmeans::KMeansParams::solve) for an
/// example.
pub struct Steps<M: Method, S> {
    run: Run<M>,
    rows: S,
    cx: Executor,
    failed: bool,
}

impl<M: Method, S> fmt::Debug for Steps<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").field("run", &self.run).finish_non_exhaustive()
    }
}

impl<M: Method, S: Source> Steps<M, S> {
    pub(crate) fn new(params: &M::Params, rows: S) -> Result<Self> {
        let run = Run::start(params, &rows)?;
        Ok(Self { run, rows, cx: Executor::of_call(params.threads())?, failed: false })
    }

    /// The model in its current state, with updated labels and inertia.
    ///
    /// # Errors
    /// Those of the source.
    pub fn model(&mut self) -> Result<M::Model> {
        self.run.finish_on(&self.rows, &self.cx)?;
        Ok(self.run.model())
    }
}

impl<M: Method, S: Source> Iterator for Steps<M, S> {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        if self.failed {
            return None;
        }
        let step = self.run.advance_on(&self.rows, &self.cx).transpose();
        self.failed = matches!(step, Some(Err(_)));
        step
    }
}
