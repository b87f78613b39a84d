//! Lightweight coresets: a small weighted sample on which any set of centers has about the same cost as on
//! all rows (Bachem, Lucic and Krause, 2018).
//!
//! Rows are drawn independently, half by weight and half by weight times squared distance to the mean: `q = w
//! / 2W + w d2 / 2S`. A drawn row gets the weight `w / (m q)`, so that the expected cost of any centers
//! equals their cost on all rows.
//!
//! The draws need no third pass and no per-row state. Events of a Poisson process fall on the rows at a rate
//! proportional to `q`, more than `m` of them. The final `m` events are drawn at the end. Given their number,
//! the events are independent draws. Each chunk of rows has its own random stream, so the result depends
//! neither on threads nor on block sizes.

use super::coreset::{CORESET_TILE_ROWS, Coreset, SamplingLaw, add_moments};
use super::drawing::{Drawn, Streams, draw_events, other_rows, take_all};
use crate::data::{Access, DataSource, Stretch, row_bytes};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::stats::Moments;

/// Bytes of rows in one step of the pass of a coreset: about a tenth of a second between two signs of progress.
const CORESET_STEP_BYTES: usize = 256 << 20;

/// Number of repeated passes after which the rows must have changed.
const MOST_AGAIN: u64 = 8;

/// The purpose of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Measuring,
    Drawing,
    /// The source has no more rows than requested, so all are kept.
    KeepingAll,
    Done,
}

/// Builds a lightweight coreset step by step; [`lightweight_coreset`] makes all steps.
///
/// ```
/// use shoal::{Executor, data::Dense, stats::Lightweight};
/// let values: Vec<f64> = (0..100_000).map(f64::from).collect();
/// let (rows, cx) = (Dense::new(&values, 1)?, Executor::new(None)?);
/// let mut run = Lightweight::new(&rows, 100, 0)?;
/// while let Some(n) = run.step(&rows, &cx)? {
///     println!("{n} rows more");
/// }
/// assert_eq!(run.finish()?.weights.len(), 100);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Debug)]
pub struct Lightweight<T> {
    m: usize,
    seed: u64,
    phase: Phase,
    /// The next row of the pass.
    row: u64,
    /// Rows per step.
    step: usize,
    moments: Moments,
    law: Option<SamplingLaw<T>>,
    /// Number of passes that drew too few rows.
    again: u64,
    drawn: Drawn<T>,
}

impl<T: Compute> Lightweight<T> {
    /// Starts a coreset of `m` rows of `data`, or of all rows if there are no more than `m`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if `m` is 0. [`Error::Source`] if the source can be read only once.
    pub fn new(data: &dyn DataSource<T>, m: usize, seed: u64) -> Result<Self> {
        if m == 0 {
            return Err(Error::param("n_samples", "at least 1", 0));
        }
        if data.access() < Access::Replay {
            return Err(Error::Source(
                "a lightweight coreset needs a source that can be read twice: use merge and reduce for a stream"
                    .into(),
            ));
        }
        let few = data.rows().is_some_and(|n| n <= m as u64);
        let tiles = (CORESET_STEP_BYTES / row_bytes(data) / CORESET_TILE_ROWS).max(1);
        Ok(Self {
            m,
            seed,
            phase: if few { Phase::KeepingAll } else { Phase::Measuring },
            row: 0,
            step: tiles * CORESET_TILE_ROWS,
            moments: Moments::new(data.dim()),
            law: None,
            again: 0,
            drawn: Drawn { rows: Coreset::new(data.dim()), all: 0.0, seen: 0 },
        })
    }

    /// Processes some rows of the current pass and returns their number, or `None` when the coreset is
    /// complete. The step size does not change the result.
    ///
    /// # Errors
    /// Errors of the source. [`Error::NotFinite`] for NaN or infinite values. [`Error::Empty`] if there are
    /// no rows. [`Error::InvalidParam`] if all weights are 0 or their sum overflows. After an error, start
    /// again.
    pub fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Option<u64>> {
        if self.phase == Phase::Done {
            return Ok(None);
        }
        let stretch = Stretch::new(data, self.row, self.step);
        let seen = if self.phase == Phase::Measuring {
            let before = self.moments.rows();
            add_moments(&stretch, &mut self.moments, cx)?;
            self.moments.rows() - before
        } else {
            let before = self.drawn.seen;
            if self.phase == Phase::KeepingAll { self.take(&stretch, cx) } else { self.draw(&stretch, cx) }?;
            self.drawn.seen - before
        };
        self.row += seen;
        if seen < self.step as u64 {
            self.end_of_pass()?;
        }
        Ok(Some(seen))
    }

    fn end_of_pass(&mut self) -> Result<()> {
        if self.row == 0 {
            return Err(Error::no_rows());
        }
        match self.phase {
            Phase::Measuring if self.row <= self.m as u64 => self.phase = Phase::KeepingAll,
            Phase::Measuring => {
                self.law = Some(SamplingLaw::new(&self.moments)?);
                self.phase = Phase::Drawing;
            }
            // The probability is about one in a hundred million.
            Phase::Drawing if self.drawn.rows.rows.len() < self.m => {
                self.again += 1;
                if self.again > MOST_AGAIN {
                    return Err(other_rows());
                }
            }
            _ => self.phase = Phase::Done,
        }
        self.row = 0;
        Ok(())
    }

    /// Keeps all rows with their own weights.
    fn take(&mut self, rows: &Stretch<'_, T>, cx: &Executor) -> Result<()> {
        take_all(rows, &mut self.drawn.rows, cx)?;
        self.drawn.seen = self.drawn.rows.rows.len() as u64;
        Ok(())
    }

    /// Draws the rows on which events fall.
    fn draw(&mut self, rows: &Stretch<'_, T>, cx: &Executor) -> Result<()> {
        let key = self.key();
        let law = self.law.as_ref().expect("made at the end of the first pass");
        draw_events(rows, law, (key, Streams::Chunks, self.m), self.again == 0, &mut self.drawn, cx)
    }

    /// The key of the random streams of this pass.
    fn key(&self) -> u64 {
        Rng::keyed(self.seed, Purpose::Coreset, self.again).bits()
    }

    /// Returns the coreset after the last step. Rows keep their order; a row drawn several times appears
    /// several times.
    ///
    /// # Errors
    /// [`Error::Source`] if steps are left.
    pub fn finish(self) -> Result<Coreset<T>> {
        if self.phase != Phase::Done {
            return Err(Error::Source("the coreset must be complete: make all steps first".into()));
        }
        let Some(law) = &self.law else { return Ok(self.drawn.rows) };
        Ok(self.drawn.chosen(law, self.key(), self.m))
    }
}

/// Draws a coreset of `m` rows of `data` with replacement, in one or two passes.
///
/// Any set of centers has about the same cost on the coreset as on all rows. The error falls with the square
/// root of `m`. If the source has at most `m` rows, the coreset holds all rows with their own weights.
///
/// See [`Coreset`] for an example.
///
/// # Errors
/// Same as [`Lightweight::new`] and [`Lightweight::step`].
pub fn lightweight_coreset<T: Compute>(
    data: &dyn DataSource<T>,
    m: usize,
    seed: u64,
    cx: &Executor,
) -> Result<Coreset<T>> {
    let mut run = Lightweight::new(data, m, seed)?;
    let passes = if run.phase == Phase::KeepingAll { 1 } else { 2 };
    let _phase = cx.phase("coreset", data.rows().unwrap_or(0).saturating_mul(passes));
    while run.step(data, cx)?.is_some() {}
    run.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;

    #[test]
    fn steps_of_any_length_give_one_coreset() {
        let values: Vec<f32> = (0..90_000).map(|i| (i % 1013) as f32).collect();
        let (rows, cx) = (Dense::new(&values, 3).unwrap(), Executor::new(Some(2)).unwrap());
        let whole = lightweight_coreset(&rows, 200, 3, &cx).unwrap();
        let mut run = Lightweight::new(&rows, 200, 3).unwrap();
        run.step = CORESET_TILE_ROWS;
        let mut steps = 0;
        while run.step(&rows, &cx).unwrap().is_some() {
            steps += 1;
        }
        assert_eq!(steps, 8);
        let found = run.finish().unwrap();
        assert_eq!((found.rows, found.weights), (whole.rows, whole.weights));
    }
}
