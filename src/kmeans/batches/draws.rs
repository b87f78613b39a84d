//! Draws the rows of a batch.

use crate::data::{DataSource, Permuted};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::matrix::make_room;
use crate::rng::Rng;
use crate::seeding::Odds;

/// Draws with replacement. Weighted rows are drawn in proportion to their weight, and each drawn row counts
/// 1.
#[derive(Debug, Default)]
pub(in crate::kmeans) struct BatchDraws(Option<Odds>);

impl BatchDraws {
    /// Draws `size` of the `n` rows of `data`. Every call must pass the same rows.
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
        // Sorted for sequential reads: the algorithms do not depend on the order.
        rows.sort_unstable();
        Permuted::unweighted(data, rows)
    }
}

/// Translates a row number in an error from the batch to the source.
pub(in crate::kmeans) fn as_of_source<T: Compute>(
    error: Error,
    batch: &Permuted<&dyn DataSource<T>>,
) -> Error {
    error.renumbered(|row| batch.order()[row as usize])
}
