//! Steps of a fit: outer steps over drawn or consecutive batches, then the final sweeps over all rows.

use super::solver::BackwardEulerSolver;
use crate::data::{Access, DataSource, no_weight};
use crate::error::Result;
use crate::fit::{FitSolver, Solver, SolverState, Step, StopReason};
use crate::kernel::Compute;
use crate::kmeans::batches::{BatchSolver, BatchTotals, as_of_source, ended_early};
use crate::kmeans::lloyd::starts::LloydStarts;
use crate::parallel::Executor;
use crate::pass::{Left, go_on};
use crate::rng::{Purpose, Rng};
use crate::seeding::enough_rows;

impl<T: Compute> BackwardEulerSolver<T> {
    /// One outer step over drawn batches, or over all rows if `batch_size` is at least `n`.
    fn draw_step(&mut self, data: &dyn DataSource<T>, n: u64, cx: &Executor) -> Result<BatchTotals> {
        let (n_iter, mut all) = (self.state.n_iter, BatchTotals::default());
        while self.state.n_iter == n_iter && !self.rejected {
            let moved = if self.params.batch_size >= n {
                self.absorb(data, cx)?
            } else {
                let rng = &mut Rng::keyed(self.state.seed, Purpose::Inner, self.state.n_steps);
                let batch = self.draws.batch(data, n, self.params.batch_size, rng)?;
                self.absorb(&batch, cx).map_err(|error| as_of_source(error, &batch))?
            };
            if moved.weight <= 0.0 {
                return Err(no_weight());
            }
            all = all.and(moved);
        }
        Ok(all)
    }

    /// One outer step over consecutive batches, which may continue in the next pass. Also returns whether the
    /// rows are exhausted. Before there are centers, the step reads as many batches as the seeding needs.
    fn next_step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<(BatchTotals, bool)> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let size = usize::try_from(self.params.batch_size).unwrap_or(usize::MAX).min(1 << 40);
        let once = data.access() == Access::Once;
        let wanted = self.enough(self.sample_rows(data));
        let (n_iter, mut all) = (self.state.n_iter, BatchTotals::default());
        loop {
            let from = self.state.position;
            let Left { enough, over, failed } = go_on(data, from, size, cx, &mut |batch, end| {
                if let Some(moved) = self.take_in(batch, wanted, Some(size), cx)? {
                    all = all.and(moved);
                }
                self.state.position = end;
                Ok(self.state.n_iter > n_iter || self.rejected)
            })?;
            self.failed = failed;
            if !over {
                return Ok((all, false));
            }
            let at = std::mem::take(&mut self.state.position);
            if self.state.centers.is_empty() {
                // The source has fewer rows than the seeding requested.
                enough_rows(self.state.waiting.len() as u64, self.params.n_clusters)?;
                all = all.and(self.seed_from_waiting(None, Some(size), cx)?);
            } else if at == from {
                return Err(ended_early(from));
            } else if self.state.given.iter().all(|&weight| weight <= 0.0) {
                return Err(no_weight());
            }
            if once {
                if self.state.trajectory.inner > 0 {
                    self.state.close(self.params.decay());
                }
                return Ok((all, true));
            }
            if enough {
                return Ok((all, false));
            }
        }
    }

    /// One sweep of Lloyd's algorithm over all rows, after the last outer step.
    pub(super) fn polish_step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let begun = self.polish.take();
        let was_begun = begun.is_some();
        let mut polish = begun.unwrap_or_else(|| LloydStarts::plan(&self.polish_params()));
        let step = polish.step(data, cx);
        // If the first sweep fails, the polish has not begun. A later step may fail after it has moved the
        // centers, so its centers are kept.
        if was_begun || step.is_ok() {
            self.finished = None;
            self.state.place(polish.snapshot().centers);
            self.polish = Some(polish);
        }
        let step = step?;
        self.state.steps += 1;
        self.state.rows_seen += step.batch_size;
        Ok(Step { iteration: self.state.steps, rows_seen: self.state.rows_seen, ..step })
    }

    pub(super) fn step_of(
        &self,
        iteration: u64,
        moved: &BatchTotals,
        stop_reason: Option<StopReason>,
    ) -> Step {
        let pairs = self.before.iter().zip(&self.state.centers);
        let sq_shift: f64 = pairs.map(|(old, new)| (new.to_f64() - old.to_f64()).powi(2)).sum();
        Step {
            iteration,
            rows_seen: self.state.rows_seen,
            batch_size: moved.rows,
            objective: moved.objective,
            center_shift: sq_shift.sqrt(),
            n_changed: 0,
            n_distances: moved.rows * self.params.n_clusters as u64,
            elapsed: 0.0,
            stop_reason,
        }
    }

    /// One outer step. After an error the state is unchanged.
    pub(super) fn outer_step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if self.state.centers.is_empty() && data.access() > Access::Once {
            self.begin(data, cx)?;
        }
        let (mut fade, n_iter) = (self.state.fade, self.state.n_iter);
        self.before.clone_from(&self.state.centers);
        self.rejected = false;
        let (moved, last) =
            self.or_undo(|this| match data.rows().filter(|_| data.access() == Access::Random) {
                Some(n) => this.draw_step(data, n, cx).map(|moved| (moved, false)),
                None => this.next_step(data, cx),
            })?;
        for _ in n_iter..self.state.n_iter {
            self.step_sizes.push(self.params.first_step_size() * fade);
            fade *= self.params.decay();
        }
        self.state.steps += 1;
        let most = if last { 0 } else { self.params.max_iter };
        let stop = if self.rejected {
            Some(StopReason::Diverged)
        } else {
            StopReason::after(self.state.n_iter, most).filter(|_| !self.params.polishes(data.access()))
        };
        Ok(self.step_of(self.state.steps, &moved, stop))
    }
}
