//! This module knows how the rows of a batch are drawn.

use crate::data::{DataSource, Permuted};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::matrix::make_room;
use crate::rng::Rng;
use crate::seeding::Odds;

/// Draws with replacement: by weight where rows have weights, and a drawn row counts 1; else all alike.
#[derive(Default)]
pub(in crate::kmeans) struct Draws(Option<Odds>);

impl Draws {
    /// A batch of `size` of the `n` rows of `data`, which are the same ones at every draw.
    pub(in crate::kmeans) fn batch<'a, T: Compute>(
        &mut self,
        data: &'a dyn DataSource<T>,
        n: u64,
        size: u64,
        rng: &mut Rng,
    ) -> Result<Permuted<&'a dyn DataSource<T>>> {
        let mut rows: Vec<u64> = Vec::new();
        make_room(&mut rows, "a batch", size, 1)?;
        if let Some(weights) = data.weights() {
            let odds = self.0.get_or_insert_with(|| Odds::new(weights));
            rows.extend((0..size).map(|_| odds.draw(weights, rng)));
        } else {
            rows.extend((0..size).map(|_| rng.below(n)));
        }
        // Their order does not matter to an algorithm, but to a disk and to caches.
        rows.sort_unstable();
        Permuted::unweighted(data, rows)
    }
}

/// An error about a row of a batch as one about the row that was drawn.
pub(in crate::kmeans) fn as_of_source<T: Compute>(
    error: Error,
    batch: &Permuted<&dyn DataSource<T>>,
) -> Error {
    match error {
        Error::NotFinite { what, value, row, column } => {
            Error::NotFinite { what, value, row: batch.order()[row as usize], column }
        }
        other => other,
    }
}
