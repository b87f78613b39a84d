//! Buffers rows until there are enough to choose the first centers, then feeds them to the solver.

use crate::data::{Access, DataSource, Weighted, check_finite, copy, count_rows};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::state::{StateReader, StateWriter};
use crate::rows::RowBuf;

/// Totals of one or more batches.
#[derive(Clone, Copy, Default)]
pub(in crate::kmeans) struct BatchTotals {
    pub(in crate::kmeans) rows: u64,
    pub(in crate::kmeans) weight: f64,
    /// Inertia about the centers before each batch moved them.
    pub(in crate::kmeans) objective: f64,
    /// Squared length of all center moves.
    pub(in crate::kmeans) sq_shift: f64,
}

impl BatchTotals {
    /// The totals of both.
    pub(in crate::kmeans) fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            weight: self.weight + other.weight,
            objective: self.objective + other.objective,
            sq_shift: self.sq_shift + other.sq_shift,
        }
    }
}

/// Buffered rows and their weights, if any row has a weight.
#[derive(Clone, Debug, Default)]
pub(in crate::kmeans) struct WaitingRows<T> {
    rows: RowBuf<T>,
    weights: Vec<f64>,
}

impl<T: Compute> WaitingRows<T> {
    /// Number of buffered rows.
    pub(in crate::kmeans) fn len(&self) -> usize {
        self.rows.len()
    }

    fn add(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        check_finite(batch, cx)?;
        let waiting = self.len();
        let rows = count_rows(batch)?;
        let all: Vec<u64> = (0..rows).collect();
        let more = copy(batch, &all)?;
        if waiting == 0 {
            self.rows.clear(batch.dim());
        }
        self.rows.extend(more.rows());
        if batch.weights().is_some() || !self.weights.is_empty() {
            self.weights.resize(waiting, 1.0);
            match batch.weights() {
                Some(weights) => self.weights.extend_from_slice(weights),
                None => self.weights.resize(waiting + rows as usize, 1.0),
            }
        }
        Ok(())
    }

    /// Calls `f` with the rows `start..end` as a source.
    fn with<R>(&self, start: usize, end: usize, f: impl FnOnce(&dyn DataSource<T>) -> R) -> R {
        let rows = self.rows.rows().slice(start, end);
        match self.weights.get(start..end).filter(|_| !self.weights.is_empty()) {
            Some(weights) => f(&Weighted::vouched(&rows, weights)),
            None => f(&rows),
        }
    }

    pub(in crate::kmeans) fn put(&self, to: &mut StateWriter) {
        to.put("waiting_weights", &self.weights);
        to.put_rows("waiting", &self.rows);
    }

    /// Reads what [`WaitingRows::put`] wrote, with rows of `dim` columns. The error says what is wrong.
    pub(in crate::kmeans) fn get(from: &StateReader<'_>, dim: usize) -> Result<Self, String> {
        let (rows, weights): (RowBuf<T>, _) = (from.rows("waiting", dim)?, from.weights("waiting_weights")?);
        if !weights.is_empty() && weights.len() != rows.len() {
            return Err("its \"waiting_weights\" do not belong to its \"waiting\" rows".into());
        }
        if !rows.values.iter().all(|x| x.finite()) {
            return Err("it holds values that are not finite".into());
        }
        Ok(Self { rows, weights })
    }
}

/// Returns an error if a state that has centers, `held` of them, is to continue with another number of clusters.
pub(in crate::kmeans) fn check_centers<T>(
    centers: &[T],
    held: usize,
    n_clusters: usize,
) -> Result<(), String> {
    if centers.is_empty() || held == n_clusters {
        return Ok(());
    }
    Err(format!("n_clusters must be {held}, the number of centers of the state, got {n_clusters}"))
}

/// Returns an error for a batch with another number of columns than the centers have.
pub(in crate::kmeans) fn check_columns<T: Compute>(batch: &dyn DataSource<T>, dim: usize) -> Result<()> {
    let found = batch.dim();
    if found == dim {
        return Ok(());
    }
    Err(Error::Shape(format!("`rows` have {found} columns, but the centers have {dim}")))
}

/// Returns an error for rows whose labels cannot be found in a further pass.
pub(in crate::kmeans) fn check_readable<T: Compute>(data: &dyn DataSource<T>) -> Result<()> {
    if data.access() > Access::Once {
        return Ok(());
    }
    Err(Error::Source("labels need rows that can be read again: call predict with other rows instead".into()))
}

/// The error for a stream that ends before the row at which the fit stopped.
pub(in crate::kmeans) fn ended_early(row: u64) -> Error {
    Error::Source(format!(
        "the stream ended before row {row}, where the fit stopped: resume it with a stream that yields the same rows"
    ))
}

/// A method that takes batches and buffers rows until it has its first centers.
pub(in crate::kmeans) trait BatchSolver<T: Compute> {
    /// Everything that a batch changes.
    type State: Clone;

    /// Access to the state.
    fn state_mut(&mut self) -> &mut Self::State;

    /// Columns of a row; 0 before the first.
    fn dim_mut(&mut self) -> &mut usize;

    /// The buffered rows.
    fn waiting_mut(&mut self) -> &mut WaitingRows<T>;

    /// Whether the first centers have been chosen.
    fn has_centers(&self) -> bool;

    /// Number of rows that the seeding prefers to choose from.
    fn sample_rows(&self, data: &dyn DataSource<T>) -> u64;

    /// Chooses the first centers from `data`.
    fn begin(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()>;

    /// Takes one batch; the first centers must exist. After an error the state is unchanged.
    fn absorb(&mut self, batch: &dyn DataSource<T>, cx: &Executor) -> Result<BatchTotals>;

    /// Takes one batch. Without centers it buffers rows until there are `enough`, seeds from them, and then
    /// absorbs all buffered rows as one batch, or in batches of `size`. After an error the state is
    /// unchanged.
    fn take_in(
        &mut self,
        batch: &dyn DataSource<T>,
        enough: u64,
        size: Option<usize>,
        cx: &Executor,
    ) -> Result<Option<BatchTotals>> {
        if self.has_centers() {
            return self.absorb(batch, cx).map(Some);
        }
        let rows = count_rows(batch)?;
        if rows == 0 {
            return Err(Error::no_rows());
        }
        let (dim, known) = (batch.dim(), *self.dim_mut());
        let waiting = self.waiting_mut().len() as u64;
        if waiting > 0 && dim != known {
            return Err(Error::Shape(format!("`rows` have {dim} columns, but the rows before had {known}")));
        }
        if waiting + rows < enough {
            self.waiting_mut().add(batch, cx)?;
            *self.dim_mut() = dim;
            return Ok(None);
        }
        let done = self.or_undo(|this| {
            if waiting == 0 {
                this.begin(batch, cx)?;
                this.absorb(batch, cx)
            } else {
                this.seed_from_waiting(Some(batch), size, cx)
            }
        });
        done.map(Some)
    }

    /// Calls `f`. After an error the state is as before.
    fn or_undo<R>(&mut self, f: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let before = self.state_mut().clone();
        let done = f(self);
        if done.is_err() {
            *self.state_mut() = before;
        }
        done
    }

    /// Seeds from the buffered rows and the first rows of `batch`, then absorbs all of them.
    fn seed_from_waiting(
        &mut self,
        batch: Option<&dyn DataSource<T>>,
        size: Option<usize>,
        cx: &Executor,
    ) -> Result<BatchTotals> {
        let waited = self.waiting_mut().clone();
        let mut pool = std::mem::take(self.waiting_mut());
        if let Some(batch) = batch {
            let n = count_rows(batch)?.min(self.sample_rows(batch));
            let first: Vec<u64> = (0..n).collect();
            let first = copy(batch, &first)?;
            match batch.weights().map(|weights| &weights[..n as usize]) {
                Some(weights) => pool.add(&Weighted::vouched(&first, weights), cx)?,
                None => pool.add(&first, cx)?,
            }
        }
        pool.with(0, pool.len(), |rows| self.begin(rows, cx))?;
        let mut moved = BatchTotals::default();
        let n = waited.len();
        let size = size.unwrap_or(n).min(n);
        for start in (0..n).step_by(size) {
            let some = waited.with(start, n.min(start + size), |rows| self.absorb(rows, cx))?;
            moved = moved.and(some);
        }
        match batch {
            Some(batch) => Ok(moved.and(self.absorb(batch, cx)?)),
            None => Ok(moved),
        }
    }
}
