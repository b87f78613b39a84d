//! Centers and prices from growing samples.
//!
//! Where many rows have to leave their nearest center, prices travel far, and rows move along many paths. A few rows
//! per cluster show where to: the search on a sample begins at the prices and the centers of the sample before, which
//! is a fraction of it, and so finds most rows in their place. So does the first sweep over all rows.

use super::assign::{BALANCED_CANDIDATES, assign};
use super::limits::SizeLimits;
use super::lists::CANDIDATE_BYTES;
use super::params::BalancedParams;
use crate::data::{DataSource, RowRange, copy, count_rows};
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::draw;
use crate::stats::to_means;

/// Rows per cluster of the first sample, the factor from a sample to the next, and most rows per cluster of a sample
/// (`balanced.py`, limits). Paths on the first one are few; each further one has prices that keep most rows in place.
const BALANCED_SAMPLE: usize = 4;
const BALANCED_GROWTH: usize = 4;
const BALANCED_SAMPLE_MOST: usize = 256;

/// Most sweeps over a sample, and the share by which each must lower the energy.
const BALANCED_SAMPLE_SWEEPS: usize = 40;
const BALANCED_SAMPLE_TOLERANCE: f64 = 3e-3;

/// How far centers move in a sweep with limits, relative to the way to the means: fewer sweeps (`balanced.py`, limits).
const BALANCED_RELAXATION: f64 = 1.5;

/// Moves `centers` to where they keep the limits on samples, if `moving`, and returns the prices there.
pub(super) fn coarse<T: Compute>(
    centers: &mut [T],
    limits: &SizeLimits,
    params: &BalancedParams,
    moving: bool,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Vec<f64>> {
    let (k, n, dim) = (params.n_clusters, count_rows(data)?, data.dim());
    let mut prices = vec![0.0; k];
    let odds = limits.weights.odds();
    let with_weight =
        odds.as_ref().map_or(n as usize, |odds| odds.iter().filter(|&&odds| odds > 0.0).count());
    let bytes = dim * size_of::<T>() + BALANCED_CANDIDATES * CANDIDATE_BYTES;
    let fit = usize::try_from(params.bounds_memory / bytes as u64).unwrap_or(usize::MAX);
    let most = fit.min(BALANCED_SAMPLE_MOST * k).min(with_weight / 2);
    let mut sizes = vec![BALANCED_SAMPLE * k];
    while let Some(size) = sizes.last().map(|size| size * BALANCED_GROWTH).filter(|&size| size <= most) {
        sizes.push(size);
    }
    let largest = sizes[sizes.len() - 1];
    if largest > most {
        return Ok(prices);
    }
    // Rows that are drawn by their weight have none in the sample.
    // The same for every seed: a resumed fit has to draw them again.
    let rng = &mut Rng::keyed(0, Purpose::Balancing, n);
    let rows = copy(data, &draw(n, odds.as_deref(), largest, rng))?;
    for size in sizes {
        let limits = limits.of_sample(size);
        let sample = RowRange::new::<T>(&rows, 0..size as u64)?;
        let mut last = f64::INFINITY;
        for _ in 0..BALANCED_SAMPLE_SWEEPS {
            let bounds = (params.bounds_memory, 1);
            let found = assign(MatRef::new(centers, dim), &prices, &limits, bounds, &sample, cx)?;
            prices = found.settled;
            if !moving {
                break;
            }
            found.sums.check_means::<T>(cx)?;
            let before = centers.to_vec();
            to_means(centers, dim, params.metric, &found.sums, cx);
            let energy = found.sums.energy();
            if energy >= (1.0 - BALANCED_SAMPLE_TOLERANCE) * last {
                break;
            }
            lengthen(&before, centers, params.metric);
            last = energy;
        }
    }
    Ok(prices)
}

/// Makes the moves of the centers longer, beyond the means, which takes fewer sweeps. With a factor of at most 2, the
/// centers are no farther from their rows than before they moved.
pub(super) fn lengthen<T: Compute>(before: &[T], centers: &mut [T], metric: Metric) {
    if metric != Metric::Euclidean {
        return;
    }
    for (center, before) in centers.iter_mut().zip(before) {
        let before = before.to_f64();
        let farther = T::from_f64(before + BALANCED_RELAXATION * (center.to_f64() - before));
        if farther.finite() {
            *center = farther;
        }
    }
}
