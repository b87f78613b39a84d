//! Prepares the steps of an epoch and supplies their rows.

use std::ops::ControlFlow;

use super::draws::{Origin, StepDraws};
use super::inner::{EpochEnd, EpochStart, Inner};
use super::params::Variant;
use super::solver::{SweptMeans, VarianceReducedSolver};
use crate::centers::sum_labeled;
use crate::data::{self, Access, Converted, DataSource, row_bytes};
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::Odds;
use crate::stats::{ClusterSums, divisor, to_means};

/// Rows of `row_bytes` each from which variance-reduced k-means draws steps when rows are read in passes: few enough
/// that memory does not grow with the number of rows, and enough to give nearly the result of draws from all rows.
fn stretch_rows(row_bytes: usize) -> usize {
    ((32 << 20) / row_bytes.max(1)).clamp(256, 16_384)
}

impl<T: Compute> VarianceReducedSolver<T> {
    /// Runs the steps of an epoch, starting from a sweep by `centers` and the means of its clusters.
    pub(super) fn steps(
        &self,
        SweptMeans { swept, means, .. }: &SweptMeans<T>,
        centers: &[T],
        (rate, steps): (f64, u64),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<EpochEnd<T>> {
        let dim = self.dim;
        let sums = &swept.clusters;
        let precise = precise_means(sums, MatRef::new(means, dim), self.params.metric);
        let weight: f64 = sums.weights().iter().sum();
        let start = EpochStart {
            labels: self.labels.of_rows.view(),
            bounds: self.labels.bounds.as_ref(),
            swept: MatRef::new(centers, dim),
            rounded: MatRef::new(means, dim),
            rate,
            gradient: match self.params.variant {
                Variant::PlusPlus => None,
                Variant::Plain => Some(self.gradient(&precise, means, data, cx)?),
            },
            means: precise,
            spread: (sums.energy().max(0.0) / weight).sqrt(),
            values: data.most_values(),
            row_bytes: row_bytes(data),
            search_always: self.params.search_always,
        };
        let mut inner = Inner::new(start, cx);
        let rng = &mut Rng::keyed(self.params.rng_seed, Purpose::Epoch, self.iteration);
        if data.access() == Access::Random {
            let n = self.labels.of_rows.len() as u64;
            let odds = data.weights().map(Odds::new);
            let odds = odds.as_ref().zip(data.weights());
            inner.run(&mut StepDraws::new((0, n), odds, rng, steps), Origin::Source(data))?;
        } else {
            stretch_by_stretch(&mut inner, (steps, weight), rng, data, cx)?;
        }
        Ok(inner.done())
    }

    /// The gradient at the means, per cluster, from a separate pass. Zero except for rounding.
    fn gradient(
        &self,
        precise: &[f64],
        means: &[T],
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Vec<f64>> {
        let packed = PackedCenters::on(MatRef::new(means, self.dim), data.most_values().is_some(), cx);
        let sums = sum_labeled(self.labels.of_rows.view(), &packed, data, cx)?;
        let mut gradient = precise.to_vec();
        for (j, gradient) in gradient.chunks_exact_mut(self.dim).enumerate() {
            // With the cosine metric, the part along the sphere: its projection removes the other part.
            let divisor = divisor(self.params.metric, sums.sum(j), sums.weights()[j]);
            if divisor > 0.0 {
                gradient.iter_mut().zip(sums.sum(j)).for_each(|(g, s)| *g -= s / divisor);
            } else {
                gradient.fill(0.0);
            }
        }
        Ok(gradient)
    }
}

/// The means in `f64`, not rounded; the center of an empty cluster is that of `rounded`.
fn precise_means<T: Compute>(sums: &ClusterSums, rounded: MatRef<'_, T>, metric: Metric) -> Vec<f64> {
    let mut means: Vec<f64> = rounded.data().iter().map(|c| c.to_f64()).collect();
    to_means(&mut means, rounded.cols(), metric, sums, Executor::caller());
    means
}

/// Steps for sources without random access: draws from consecutive stretches of fixed length, as many from
/// each as its share of the total weight.
fn stretch_by_stretch<T: Compute>(
    inner: &mut Inner<'_, T>,
    (steps, weight): (u64, f64),
    rng: &mut Rng,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<()> {
    let length = stretch_rows(row_bytes(data));
    let (mut passed, mut made, mut buffer) = (0.0, 0, Converted::default());
    data::read(data, length, &mut |block| {
        for start in (0..block.len).step_by(length) {
            cx.check()?;
            let range = start..block.len.min(start + length);
            let weights = block.weights.map(|weights| &weights[range.clone()]);
            let share = weights.map_or(range.len() as f64, |weights| weights.iter().sum());
            passed += share;
            let due = ((steps as f64 * (passed / weight)).round() as u64).clamp(made, steps);
            if due == made || share <= 0.0 {
                continue;
            }
            let odds = weights.map(Odds::new);
            let odds = odds.as_ref().zip(weights);
            let rows = buffer.read(block.rows, range.clone(), None)?;
            let first = block.first_row + start as u64;
            let mut draws = StepDraws::new((first, range.len() as u64), odds, rng, due - made);
            inner.run(&mut draws, Origin::Stretch(first, rows))?;
            made = due;
        }
        Ok(ControlFlow::Continue(()))
    })
}
