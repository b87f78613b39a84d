//! The centers that a row may belong to: those with the smallest squared distance plus price.

use super::limits::SizeLimits;
use crate::data::{DataSource, count_rows, row_values};
use crate::error::Result;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::kmeans::bounds::rounding_of;
use crate::matrix::{MatRef, make_room};
use crate::parallel::Executor;
use crate::pass::{Chunk, TILE_ROWS, Wide, sweep};

/// Bytes per candidate of a row, with those of the search for paths.
pub(super) const CANDIDATE_BYTES: usize = 52;

/// The candidates of every row, with squared distances.
#[derive(Debug)]
pub(super) struct CandidateLists {
    /// Candidates per row.
    width: usize,
    ids: Vec<u32>,
    sq_dists: Vec<f64>,
    /// Per row: a lower bound of squared distance plus price of all other centers, for the prices that chose the lists.
    beyond: Vec<f64>,
    prices: Vec<f64>,
}

/// The destination of the candidates of a chunk.
type CandidatesOut<'a> = ((Wide<'a, u32>, Wide<'a, f64>), &'a mut [f64]);

impl CandidateLists {
    /// One pass: `width` candidates of all rows.
    pub(super) fn new<T: Compute>(
        centers: MatRef<'_, T>,
        prices: &[f64],
        width: usize,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Self> {
        let (k, n) = (centers.rows(), count_rows(data)?);
        let (mut ids, mut sq_dists, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
        make_room(&mut ids, "candidates", n, width)?;
        make_room(&mut sq_dists, "candidates", n, width)?;
        make_room(&mut beyond, "candidates", n, 1)?;
        ids.resize(n as usize * width, 0);
        sq_dists.resize(n as usize * width, 0.0);
        beyond.resize(n as usize, f64::INFINITY);
        // With few columns, tile values in panels are written faster than those of rows in lanes.
        let packed = PackedCenters::in_panels(centers, data.most_values().is_some()).priced(prices);
        let norm = packed.largest_norm() / packed.scale();
        // Tile values choose the candidates, and are rounded.
        let rounding = 4.0 * rounding_of(&packed, row_values(data));
        let absorb = |chunk: Chunk<'_, T>,
                      ((ids, sq_dists), beyond): CandidatesOut<'_>,
                      (): &mut (),
                      scratch: &mut Scratch<T>| {
            let (ids, sq_dists) = (ids.values, sq_dists.values);
            kernel::nearest_m(chunk.rows, &packed, width, ids, sq_dists, scratch);
            for ((ids, sq_dists), beyond) in
                ids.chunks_exact(width).zip(sq_dists.chunks_exact(width)).zip(beyond)
            {
                let (mut nearest, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
                for (&j, &sq_dist) in ids.iter().zip(sq_dists) {
                    nearest = nearest.min(sq_dist);
                    last = last.max(sq_dist + prices[j as usize]);
                    if !sq_dist.is_finite() {
                        return Err(chunk.not_finite());
                    }
                }
                if width < k {
                    *beyond = last - rounding * (2.0 * norm + nearest.sqrt()).powi(2);
                }
            }
            Ok(())
        };
        let wide = (Wide { values: &mut ids[..], width }, Wide { values: &mut sq_dists[..], width });
        let make = (|| (), Scratch::default);
        sweep(data, cx, TILE_ROWS, (wide, &mut beyond[..]), &mut (), make, absorb, |(), ()| ())?;
        Ok(Self { width, ids, sq_dists, beyond, prices: prices.to_vec() })
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.beyond.len()
    }

    /// The candidates of a row, and their squared distances.
    pub(super) fn of(&self, row: usize) -> impl Iterator<Item = (usize, f64)> {
        let range = row * self.width..(row + 1) * self.width;
        self.ids[range.clone()].iter().map(|&j| j as usize).zip(self.sq_dists[range].iter().copied())
    }

    /// The squared distance of a row to one of its candidates; infinite for other centers.
    pub(super) fn sq_dist(&self, row: usize, label: u32) -> f64 {
        self.of(row).find(|&(j, _)| j == label as usize).map_or(f64::INFINITY, |own| own.1)
    }

    /// The candidate of a row with the smallest squared distance plus price, the lower index among equals, and this
    /// sum; then the next candidate, or the same if there is no other, and its sum.
    pub(super) fn best(&self, row: usize, prices: &[f64]) -> (usize, f64, usize, f64) {
        let (mut first, mut second) = ((usize::MAX, f64::INFINITY), (usize::MAX, f64::INFINITY));
        for (j, sq_dist) in self.of(row) {
            let value = sq_dist + prices[j];
            if value < first.1 || value == first.1 && j < first.0 {
                (first, second) = ((j, value), first);
            } else if value < second.1 {
                second = (j, value);
            }
        }
        (first.0, first.1, if second.0 == usize::MAX { first.0 } else { second.0 }, second.1)
    }

    /// The energy of labels that are all candidates.
    pub(super) fn energy(&self, labels: &[u32], limits: &SizeLimits) -> f64 {
        let energy = |(row, &label): (usize, &u32)| match limits.weights.of(row) {
            0.0 => 0.0,
            weight => weight * self.sq_dist(row, label),
        };
        labels.iter().enumerate().map(energy).sum()
    }

    /// A lower bound of squared distance plus price of all centers that are not candidates of a row, at the prices that
    /// chose the lists. At other prices it rises by [`CandidateLists::rise`].
    pub(super) fn beyond(&self, row: usize) -> f64 {
        self.beyond[row]
    }

    /// The least change of a price since the lists were chosen.
    pub(super) fn rise(&self, prices: &[f64]) -> f64 {
        prices.iter().zip(&self.prices).map(|(new, old)| new - old).fold(f64::INFINITY, f64::min)
    }
}
