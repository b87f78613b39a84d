//! Draws the rows of an epoch's steps and copies their values.

use crate::data::{self, DataSource};
use crate::error::Result;
use crate::float::Float;
use crate::rng::Rng;
use crate::rows::{RowBuf, Rows};
use crate::seeding::Odds;

/// Draws with replacement from the rows `first..first + n`, in proportion to their weights if there are any.
pub(super) struct StepDraws<'a> {
    first: u64,
    n: u64,
    odds: Option<(&'a Odds, &'a [f64])>,
    rng: &'a mut Rng,
    /// Remaining draws.
    pub(super) left: u64,
}

impl<'a> StepDraws<'a> {
    pub(super) fn new(
        (first, n): (u64, u64),
        odds: Option<(&'a Odds, &'a [f64])>,
        rng: &'a mut Rng,
        left: u64,
    ) -> Self {
        Self { first, n, odds, rng, left }
    }

    /// The next row, or `None` when no draws remain.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        Some(
            self.first
                + match self.odds {
                    Some((odds, weights)) => odds.draw(weights, self.rng),
                    None => self.rng.below(self.n),
                },
        )
    }
}

/// Where the values of drawn rows are read from.
#[derive(Clone, Copy)]
pub(super) enum Origin<'a, T: Float> {
    /// A source with random access.
    Source(&'a dyn DataSource<T>),
    /// Consecutive rows in memory, starting at this row number.
    Stretch(u64, Rows<'a, T>),
}

impl<T: Float> Origin<'_, T> {
    /// Replaces the contents of `out` by copies of the rows.
    pub(super) fn copy(self, rows: &[u64], dim: usize, out: &mut RowBuf<T>) -> Result<()> {
        match self {
            Self::Source(data) if data.most_values().is_some() => {
                out.begin_sparse(dim);
                data::copy_to(data, rows, out)
            }
            Self::Source(data) => {
                out.clear(dim);
                data::gather(data, rows, &mut out.values)
            }
            Self::Stretch(first, all) => {
                out.clear(dim);
                for &row in rows {
                    out.push(all, (row - first) as usize);
                }
                Ok(())
            }
        }
    }
}
