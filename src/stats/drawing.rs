//! Draws the rows of a lightweight coreset: the rows on which the events of a Poisson process fall.

use super::coreset::{Coreset, SamplingLaw};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::pass::Chunk;
use crate::rng::{Purpose, Rng};

/// Rows on which events fell.
pub(super) struct Drawn<T> {
    /// The rows, with their odds instead of weights.
    pub(super) rows: Coreset<T>,
    /// The shares of all rows seen so far.
    pub(super) all: f64,
    pub(super) seen: u64,
}

impl<T: Compute> Drawn<T> {
    /// Adds rows of a chunk, with their odds.
    pub(super) fn push(&mut self, chunk: &Chunk<'_, T>, hits: &[(u32, f64)]) {
        for &(i, odds) in hits {
            self.rows.push(chunk.rows, i as usize, odds, chunk.first_row + u64::from(i));
        }
    }
}

/// How the second pass draws rows.
pub(super) struct Draw<'a, T> {
    pub(super) law: &'a SamplingLaw<T>,
    /// The key of the random streams.
    pub(super) key: u64,
    /// The expected number of events.
    pub(super) events: f64,
    /// Upper limit of the events on the rows of a tile.
    pub(super) most: usize,
    /// Whether the shares of all rows are summed.
    pub(super) sum_shares: bool,
}

/// Buffers of a worker: squared distances of the rows of a chunk, and the rows on which events fell, with their odds.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) sq_dists: Vec<f64>,
    pub(super) hits: Vec<(u32, f64)>,
}

impl<T: Compute> Draw<'_, T> {
    /// Finds the rows of a chunk on which events fall.
    pub(super) fn hits(
        &self,
        sq_dists: &[f64],
        first_row: u64,
        weights: Option<&[f64]>,
        part: &mut Drawn<T>,
        hits: &mut Vec<(u32, f64)>,
    ) -> Result<()> {
        let mut rng = Rng::keyed(self.key, Purpose::Coreset, first_row);
        let mut wait = || -(1.0 - rng.unit()).ln();
        let (mut due, mut passed) = (wait(), 0.0);
        hits.clear();
        for (i, &sq_dist) in sq_dists.iter().enumerate() {
            let (odds, weight) = (self.law.odds(sq_dist), weights.map_or(1.0, |w| w[i]));
            let share = self.law.share(weight, sq_dist);
            if self.sum_shares {
                part.all += share;
            }
            passed += share * self.events;
            while due < passed {
                if part.rows.rows.len() + hits.len() > self.most {
                    return Err(other_rows());
                }
                hits.push((i as u32, odds));
                due += wait();
            }
        }
        part.seen += sq_dists.len() as u64;
        Ok(())
    }
}

/// The error for a pass that returned other rows than the previous pass.
pub(super) fn other_rows() -> Error {
    Error::Source("rows or weights changed between two passes: every pass must give the same rows".into())
}
