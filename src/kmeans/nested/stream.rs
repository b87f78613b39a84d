//! This module knows nested mini-batch k-means over rows that come in pieces: what is kept of them, and when rows retire.

use std::ops::ControlFlow;

use super::{Nested, NestedParams};
use crate::data::{DataSource, Dense, Weighted, check_finite, weights_of};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::kmeans::run::CenterSolver;
use crate::parallel::Executor;
use crate::solver::{Solver, Step};

/// Nested mini-batch k-means that is fed. Rows are kept, in the order in which they come and in the type that they are computed in, until
/// they take [`buffer_memory`](NestedParams::buffer_memory); then the older half of them *retires*: their last votes stay in the
/// sums for ever, but they are not looked at again. As long as no row has retired, enough rounds end in a fixed point of Lloyd's algorithm.
///
/// ```
/// use shoal::{Executor, NestedMiniBatch, data::Dense};
/// use shoal::kmeans::NestedStream;
/// let cx = Executor::new(None).unwrap();
/// let mut stream = NestedStream::<f32>::new(NestedMiniBatch::params(2));
/// for piece in [[0.0f32, 9.0, 1.0], [8.0, 0.5, 8.5]] {
///     stream.push(&Dense::new(&piece, 1).unwrap(), &cx).unwrap();
/// }
/// assert_eq!(stream.solver().rows_used(), 6);
/// ```
#[derive(Clone, Debug)]
pub struct NestedStream<T> {
    pub(super) solver: Nested<T>,
    /// The rows that are kept.
    pub(super) rows: Vec<T>,
    /// Their weights; none as long as all are 1.
    pub(super) weights: Vec<f64>,
    pub(super) dim: usize,
}

impl<T: Compute> Nested<T> {
    /// Rows of the batch.
    pub fn rows_used(&self) -> u64 {
        self.batch() as u64
    }

    /// Rows that are no longer there, but whose votes count.
    pub fn rows_retired(&self) -> u64 {
        self.retired
    }
}

impl<T: Compute> NestedStream<T> {
    /// Before the first rows.
    pub fn new(params: NestedParams) -> Self {
        // Rows come in the order in which they come.
        let solver = Nested::plan(NestedParams { shuffle: false, max_iter: None, ..params });
        Self { solver, rows: Vec::new(), weights: Vec::new(), dim: 0 }
    }

    /// Goes on from where a fit has ended: all rows that it used retire.
    pub fn after(mut solver: Nested<T>) -> Self {
        solver.retire_all();
        (solver.params.shuffle, solver.params.max_iter) = (false, None);
        let dim = solver.dim;
        Self { solver, rows: Vec::new(), weights: Vec::new(), dim }
    }

    /// The state.
    pub fn solver(&self) -> &Nested<T> {
        &self.solver
    }

    /// Rows that are kept.
    pub fn kept(&self) -> usize {
        self.rows.len() / self.dim.max(1)
    }

    /// Takes more rows. They wait until the rule for growth admits them, or there is no room for them to wait; then there is one round over
    /// the batch, and one more each time it grows. Too few rows to begin with, fewer than clusters, only wait.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another length, [`Error::NotFinite`], [`Error::InvalidParam`] for parameters, those of the source: the state
    /// is then as before. [`Error::Interrupted`]: the rows may have been taken, and the next call goes on.
    pub fn push(&mut self, more: &dyn DataSource<T>, cx: &Executor) -> Result<Vec<Step>> {
        let capacity = self.check(more, cx)?;
        let weights = weights_of(more)?;
        self.dim = more.dim();
        let n = crate::data::count_rows(more)?;
        let mut steps = Vec::new();
        let mut taken = 0;
        while taken < n {
            if self.kept() as u64 == capacity {
                self.make_room(&mut steps, cx)?;
            }
            let end = n.min(taken + (capacity - self.kept() as u64));
            self.keep(more, taken, end)?;
            if weights.is_some() || !self.weights.is_empty() {
                let before = self.kept() - (end - taken) as usize;
                self.weights.resize(before, 1.0);
                match &weights {
                    Some(weights) => self.weights.extend_from_slice(&weights[taken as usize..end as usize]),
                    None => self.weights.resize(self.kept(), 1.0),
                }
            }
            taken = end;
        }
        if self.solver.centers.is_empty() && self.kept() < self.solver.params.n_clusters {
            return Ok(steps);
        }
        loop {
            steps.push(self.round(cx)?);
            if self.solver.due == self.solver.rows_used() {
                return Ok(steps);
            }
        }
    }

    /// Refuses rows and parameters that cannot be worked with; gives the number of rows that are kept at most.
    fn check(&self, more: &dyn DataSource<T>, cx: &Executor) -> Result<u64> {
        let params = &self.solver.params;
        if self.dim > 0 && more.dim() != self.dim {
            return Err(Error::Shape(format!(
                "X has {} columns, but the first rows had {}",
                more.dim(),
                self.dim
            )));
        }
        params.check(u64::MAX, more.dim())?;
        let capacity = params.buffer_memory / (more.dim() * size_of::<T>()) as u64;
        let least = params.n_clusters as u64 + 1;
        if capacity < least {
            let bytes = least * (more.dim() * size_of::<T>()) as u64;
            return Err(Error::param(format!(
                "buffer_memory must have room for more rows than clusters, {bytes} bytes, got {}",
                params.buffer_memory
            )));
        }
        check_finite(more, cx)?;
        Ok(capacity)
    }

    /// Appends the rows `start..end` of `more`.
    fn keep(&mut self, more: &dyn DataSource<T>, start: u64, end: u64) -> Result<()> {
        crate::matrix::make_room(&mut self.rows, "rows that are kept", end - start, self.dim)?;
        let (rows, mut scratch) = (&mut self.rows, Vec::new());
        more.for_each_block(1, &mut |block| {
            let (first, last) = (block.first_row, block.first_row + block.len as u64);
            let range = start.max(first)..end.min(last);
            if range.start < range.end {
                let within = (range.start - first) as usize..(range.end - first) as usize;
                block.rows.tile(within, &mut scratch).iter().for_each(|row| rows.extend_from_slice(row));
            }
            Ok(if last >= end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }

    /// A round over the batch, with what is due.
    fn round(&mut self, cx: &Executor) -> Result<Step> {
        let Self { solver, rows, weights, dim } = self;
        let rows = Dense::new(rows, *dim)?;
        if weights.is_empty() {
            return solver.step(&rows, cx);
        }
        solver.step(&Weighted::vouched(rows, weights), cx)
    }

    /// The older half of the rows that are kept retires, after rows that wait were admitted.
    fn make_room(&mut self, steps: &mut Vec<Step>, cx: &Executor) -> Result<()> {
        if self.solver.rows_used() < self.kept() as u64 || self.solver.labels.torn {
            self.solver.due = self.kept() as u64;
            steps.push(self.round(cx)?);
        }
        let half = self.kept().div_ceil(2);
        let rows = Dense::new(&self.rows, self.dim)?;
        if self.weights.is_empty() {
            self.solver.retire(&rows, half, cx)?;
        } else {
            self.solver.retire(&Weighted::vouched(rows, &self.weights), half, cx)?;
            self.weights.drain(..half);
        }
        self.rows.drain(..half * self.dim);
        Ok(())
    }

    /// Labels, inertia and the like are those of no rows: there is nothing to finish.
    pub fn centers(&self) -> &[T] {
        self.solver.snapshot().centers
    }
}
