//! Nested mini-batch k-means on a stream: which rows are kept, and when they retire.

use super::members::Members;
use super::params::NestedParams;
use super::reading::with_batch;
use super::solver::Nested;
use crate::centers::sum_labeled;
use crate::data::{DataSource, count_rows, weights_of};
use crate::error::{Error, Result};
use crate::fit::{Solver, SolverState, Step, StreamSolver};
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::labels::{Carried, Labels};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, PerRow, sweep};
use crate::persist::Contents;
use crate::persist::schema::NESTED_STATE;
use crate::rows::RowBuf;
use crate::tuning::tile_rows;

/// The largest weighted squared length of a kept row: the squared distances of 2^50 such rows have a finite
/// sum.
const MAX_SQ_LENGTH: f64 = f64::MAX * f64::EPSILON;

/// Checks that rows are finite and that their squared distances cannot overflow: once kept, a bad row would
/// fail every sweep. Returns the number of stored values.
fn check_rows<T: Compute>(rows: &dyn DataSource<T>, k: usize, cx: &Executor) -> Result<u64> {
    let absorb = |chunk: Chunk<'_, T>, (): (), stored: &mut u64, (): &mut ()| {
        for i in 0..chunk.rows.rows() {
            let weight = chunk.weights.map_or(1.0, |weights| weights[i].max(1.0));
            *stored += chunk.rows.stored(i).len() as u64;
            let length: f64 = chunk.rows.stored(i).iter().map(|x| x.to_f64() * x.to_f64()).sum();
            let small = weight * length <= MAX_SQ_LENGTH && weight <= MAX_SQ_LENGTH;
            if !small {
                let (first_row, rows) = (chunk.first_row + i as u64, chunk.rows.slice(i, i + 1));
                return Err(Chunk { first_row, rows, weights: None }.not_finite());
            }
        }
        Ok(())
    };
    let mut stored = 0;
    sweep(rows, cx, tile_rows(k), (), &mut stored, (|| 0, || ()), absorb, |total, part| {
        *total += std::mem::take(part);
    })?;
    Ok(stored)
}

impl<T: Compute> StreamSolver<T> for Nested<T> {
    fn restore_state(params: &NestedParams, state: &Contents) -> Result<Self, String> {
        let state = Self::restore_from(params, NESTED_STATE, state)?;
        if state.fed { Ok(state) } else { Err("its rows are missing".into()) }
    }

    /// Everything that the next rows depend on. The rows of a fit count as retired, because the state does
    /// not hold them.
    fn state(&self) -> Contents {
        if !self.fed && !self.centers.is_empty() {
            let mut votes = Self::plan(&self.params);
            (votes.dim, votes.centers, votes.fed) = (self.dim, self.centers.clone(), true);
            votes.gone = self.sums.clone().map(Carried::into_clusters);
            votes.retired = self.retired + self.voted;
            votes.weights.clone_from(&self.weights);
            (votes.threshold, votes.iteration, votes.rows_seen) =
                (self.threshold, self.iteration, self.rows_seen);
            votes.seeded_by.clone_from(&self.seeded_by);
            return votes.write(NESTED_STATE);
        }
        self.write(NESTED_STATE)
    }

    /// Adds rows from a stream. They wait until the growth rule admits them, or until there is no more room.
    /// Each call makes one sweep over the batch, one more each time the batch grows, and continues while at
    /// least as many rows wait as the batch has. Returns the last step, or `None` while there are fewer rows
    /// than clusters. The sweeps together cost as much as those of a fit, plus one per call.
    ///
    /// Rows are kept until they take [`buffer_memory`](super::NestedParams::buffer_memory) bytes. Then the
    /// older half *retires*: the rows are dropped, and their last votes stay in the sums. The rows of an
    /// earlier fit retire as well. As long as no row has retired, the fit converges to a fixed point of
    /// Lloyd's algorithm.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows with another number of columns, [`Error::NotFinite`], [`Error::Empty`],
    /// [`Error::InvalidParam`], [`Error::Interrupted`], and errors of the source. The state is then
    /// unchanged, except that bounds are rebuilt. If older rows had to retire, the new rows that were taken
    /// stay, and the next call continues with them.
    fn partial_fit(&mut self, more: &dyn DataSource<T>, cx: &Executor) -> Result<Option<Step>> {
        self.check_shape(more)?;
        let stored = check_rows(more, self.params.n_clusters, cx)?;
        let capacity = self.capacity(more, stored)?;
        let weights = weights_of(more)?;
        let before = self.without_rows();
        let kept = (self.kept.rows.len(), self.kept.weights.len());
        if !self.fed {
            self.retire_all();
            self.fed = true;
        }
        self.dim = more.dim();
        let retired = self.retired;
        let outcome = self.take_in(more, weights.as_deref(), capacity, cx);
        if outcome.is_err() && self.retired == retired {
            self.kept.rows.truncate(kept.0);
            if kept.0 == 0 {
                // An empty buffer must not fix the row length or the kind of rows.
                self.kept.rows = RowBuf::default();
            }
            self.kept.weights.truncate(kept.1);
            *self = Self { kept: std::mem::take(&mut self.kept), ..before };
        }
        outcome
    }

    fn rows_kept(&self) -> u64 {
        self.kept.rows.len() as u64
    }
}

impl<T: Compute> Nested<T> {
    /// A copy without the kept rows and the bounds.
    fn without_rows(&mut self) -> Self {
        let (kept, bounds) = (std::mem::take(&mut self.kept), self.labels.bounds.take());
        let copy = self.clone();
        (self.kept, self.labels.bounds) = (kept, bounds);
        copy
    }

    /// Keeps the checked rows and makes the sweeps that are due.
    fn take_in(
        &mut self,
        more: &dyn DataSource<T>,
        weights: Option<&[f64]>,
        capacity: u64,
        cx: &Executor,
    ) -> Result<Option<Step>> {
        let (n, mut taken) = (count_rows(more)?, 0);
        while taken < n {
            // More than once if the capacity has shrunk.
            while self.rows_kept() >= capacity {
                self.retire_half(cx)?;
            }
            let end = n.min(taken + (capacity - self.rows_kept()));
            self.kept.take(more, weights, (taken, end), capacity)?;
            taken = end;
        }
        if self.centers.is_empty() && self.rows_kept() < self.params.n_clusters as u64 {
            return Ok(None);
        }
        loop {
            let step = self.round_of_kept(cx)?;
            let (batch, kept) = (self.batch() as u64, self.rows_kept());
            if self.due == batch && kept - batch < batch {
                return Ok(Some(step));
            }
        }
    }

    /// Checks the parameters and that the rows match the earlier ones.
    fn check_shape(&self, more: &dyn DataSource<T>) -> Result<()> {
        let dim = more.dim();
        if self.dim > 0 && dim != self.dim {
            return Err(Error::Shape(format!(
                "`rows` have {dim} columns, but the first rows had {}",
                self.dim
            )));
        }
        if count_rows(more)? == 0 {
            return Err(Error::no_rows());
        }
        self.params.check(None, dim)
    }

    /// Maximum number of kept rows, given new rows that store `stored` values.
    fn capacity(&self, more: &dyn DataSource<T>, stored: u64) -> Result<u64> {
        let params = &self.params;
        let (dense, empty) = (!self.kept.rows.is_sparse(), self.kept.rows.is_empty());
        let values = if more.most_values().is_none() || (dense && !empty) {
            (more.dim() * size_of::<T>()) as u64
        } else {
            // The average size of the kept or the new rows, whichever is larger, with column indices and row
            // starts.
            let kept = (self.kept.rows.bytes() as u64).div_ceil(self.rows_kept().max(1));
            let value = (size_of::<T>() + size_of::<i32>()) as u64;
            kept.max(stored.div_ceil(count_rows(more)?.max(1)) * value + size_of::<usize>() as u64)
        };
        // Includes a weight, which later rows may bring.
        let row = values + size_of::<f64>() as u64;
        let least = (params.n_clusters as u64 + 1) * row;
        if params.buffer_memory < least {
            return Err(Error::param(
                "buffer_memory",
                format!("at least {least} bytes, to have room for more rows than clusters"),
                params.buffer_memory,
            ));
        }
        Ok(params.buffer_memory / row)
    }

    /// One sweep over the kept rows of the batch.
    pub(super) fn round_of_kept(&mut self, cx: &Executor) -> Result<Step> {
        let kept = std::mem::take(&mut self.kept);
        let step = kept.with(|rows| self.step(rows, cx));
        self.kept = kept;
        // A stream never ends by itself.
        step.map(|step| Step { stop_reason: None, ..step })
    }

    /// Retires the older half of the kept rows, after admitting the waiting ones.
    pub(super) fn retire_half(&mut self, cx: &Executor) -> Result<()> {
        if (self.batch() as u64) < self.rows_kept() || self.labels.are_missing() {
            self.due = self.rows_kept();
            self.round_of_kept(cx)?;
        }
        let half = self.rows_kept().div_ceil(2) as usize;
        let kept = std::mem::take(&mut self.kept);
        let retired = kept.with(|rows| self.retire(rows, half, cx));
        self.kept = kept;
        retired?;
        self.kept.drop_first(half);
        Ok(())
    }

    /// Retires the first `m` rows of the batch, `data`: their votes stay in the sums.
    fn retire(&mut self, data: &dyn DataSource<T>, m: usize, cx: &Executor) -> Result<()> {
        let sparse = data.most_values().is_some();
        let packed = PackedCenters::for_rows(MatRef::new(&self.centers, self.dim), sparse);
        let (labels, _) = self.labels.of_rows.view().split(m);
        let mut votes = with_batch(data, &Members::First, m, |rows| sum_labeled(labels, &packed, rows, cx))?;
        match &mut self.gone {
            Some(gone) => gone.merge(&mut votes),
            None => self.gone = Some(votes),
        }
        self.labels.of_rows.drop_first(m);
        self.labels.bounds = None;
        self.due -= m as u64;
        self.retired += m as u64;
        (self.lowest, self.stalled) = (f64::INFINITY, 0);
        Ok(())
    }

    /// Retires all rows: their votes stay in the sums.
    fn retire_all(&mut self) {
        if let Some(sums) = self.sums.take() {
            self.gone = Some(sums.into_clusters());
            self.retired += self.voted;
        }
        self.labels = Labels::new(0, self.params.n_clusters);
        (self.rows, self.due, self.carry, self.finished) = (Members::First, 0, false, None);
        self.current = false;
    }
}
