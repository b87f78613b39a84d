//! A rough partition of rows: a few sweeps of k-means. Nodes of a tree and the cells of a search need no more.

use super::plus_plus::plus_plus;
use super::random::random;
use super::seeds::Seeds;
use crate::data::{DataSource, count_rows};
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, gather};
use crate::rng::Rng;
use crate::stats::{ClusterSums, to_means};

/// How the first centers of a partition are chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// Random rows.
    Random,
    /// k-means++, greedy or plain.
    PlusPlus { greedy: bool },
}

/// Centers of `k` parts, and the number of computed distances. A part that loses all rows keeps its center.
///
/// # Errors
/// If there are fewer rows than `k`. Errors of the source.
pub(crate) fn partition<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    start: Start,
    sweeps: u64,
    rng: &mut Rng,
    cx: &Executor,
) -> Result<(Vec<T>, u64)> {
    let (n, dim) = (count_rows(data)?, data.dim());
    let Seeds { mut centers, n_distances: mut distances, .. } = match start {
        Start::Random => random(data, k, rng)?,
        Start::PlusPlus { greedy } => plus_plus(data, k, greedy, rng, cx)?,
    };
    for _ in 0..sweeps {
        let packed = PackedCenters::on(MatRef::new(&centers, dim), data.most_values().is_some(), cx);
        let absorb = |chunk: Chunk<'_, T>,
                      (): (),
                      part: &mut ClusterSums,
                      (labels, scratch): &mut (Vec<u32>, Scratch<T>)| {
            labels.resize(chunk.rows.rows(), 0);
            kernel::nearest(chunk.rows, &packed, labels, scratch);
            part.absorb(chunk.rows, labels, chunk.weights, &packed);
            if part.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
        };
        let mut sums = ClusterSums::new(k, dim);
        let make = (|| ClusterSums::part(k, dim), <(Vec<u32>, Scratch<T>)>::default);
        gather(data, cx, (), &mut sums, make, absorb, |total, parts| total.merge_parts(parts, cx))?;
        sums.check_means::<T>(cx)?;
        to_means(&mut centers, dim, Metric::Euclidean, &sums, cx);
        distances += n * k as u64;
    }
    Ok((centers, distances))
}
