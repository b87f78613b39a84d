//! This module knows which rows the steps of an epoch are made by, and where their values come from.

use crate::data::{self, DataSource};
use crate::error::Result;
use crate::float::Float;
use crate::rng::Rng;
use crate::rows::{RowBuf, Rows};
use crate::seeding::Odds;

/// Rows `first..first + n`, drawn with replacement, by weight where there are weights.
pub(super) struct Draws<'a> {
    first: u64,
    n: u64,
    odds: Option<(&'a Odds, &'a [f64])>,
    rng: &'a mut Rng,
    /// Draws that are left.
    pub(super) left: u64,
}

impl<'a> Draws<'a> {
    pub(super) fn new(
        (first, n): (u64, u64),
        odds: Option<(&'a Odds, &'a [f64])>,
        rng: &'a mut Rng,
        left: u64,
    ) -> Self {
        Self { first, n, odds, rng, left }
    }

    /// The next row, while some are left.
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

/// Where the values of drawn rows come from.
#[derive(Clone, Copy)]
pub(super) enum Origin<'a, T: Float> {
    /// Any row, at any time.
    Source(&'a dyn DataSource<T>),
    /// Some consecutive rows, from that one on.
    Stretch(u64, Rows<'a, T>),
}

impl<T: Float> Origin<'_, T> {
    /// Copies rows into `out`, in place of what it held.
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
