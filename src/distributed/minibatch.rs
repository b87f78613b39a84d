//! One epoch of mini-batch k-means over partitions, whose states are merged at its end.

use std::ops::ControlFlow;

use serde_json::json;

use super::clusters::ClusterTotals;
use super::errors::of_others;
use super::extent::Before;
use super::kmeans::{KMeansPass, check_rows, checked};
use super::partial::Partial;
use super::pass::{Pass, PassFacts, Summed, digest, public_pass};
use super::place::Place;
use super::sums::AnySums;
use crate::data::{self, Block, Converted, DataSource, Source};
use crate::error::{Error, Result};
use crate::fit::{Element, Metric, Step, StopReason};
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::kmeans::{keep_sums, sums_of};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::Chunk;
use crate::persist::Contents;
use crate::persist::kept::{Values, count};
use crate::persist::schema::MINIBATCH_PASS;
use crate::rng::mix;
use crate::stats::{ClusterSums, mean_variance, to_means};
use crate::tuning::chunk_rows;

/// One epoch of mini-batch k-means (Sculley, 2010): every partition learns from its rows, batch after batch, and the
/// commit merges what they learned.
///
/// Every partition starts from the common state. A center is the mean of all rows that were ever assigned to it: here,
/// and in earlier epochs anywhere. Each of the first centers counts as one row.
///
/// ```
/// use shoal::{Executor, Metric, distributed::{MiniBatchPass, Place}};
/// let (task, cx) = (MiniBatchPass::new(&[0.0f32, 10.0], 1, 2, Metric::Euclidean)?, Executor::new(Some(1))?);
/// let here = task.absorb(&[[1.0f32], [2.0]], Place::Partition(0), &cx)?;
/// let there = task.absorb(&[[9.0f32], [8.0]], Place::Partition(1), &cx)?;
/// let (task, _) = task.commit(&here.merge(&there)?)?;
/// assert_eq!((task.pass().centers::<f32>(), task.pass().weights()), (vec![1.0, 9.0], &[3.0, 3.0][..]));
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MiniBatchPass {
    /// The centers. The weights are those of all rows ever assigned.
    pub(super) pass: KMeansPass,
    batch_rows: usize,
    /// Sums and weights of all rows ever assigned.
    clusters: ClusterSums,
}

/// Learns from the batches of a partition.
struct Learner<'a, T: Compute> {
    metric: Metric,
    dim: usize,
    batch_rows: usize,
    centers: Vec<T>,
    /// Everything ever assigned, here and before.
    here: ClusterSums,
    /// What this partition has added.
    added: ClusterSums,
    batch: ClusterSums,
    /// All rows about `origin`.
    all: Option<ClusterSums>,
    origin: &'a PackedCenters<T>,
    rows: u64,
    labels: Vec<u32>,
    scratch: Scratch<T>,
    converted: Converted<T>,
}

impl<T: Compute> Learner<'_, T> {
    fn learn(&mut self, block: Block<'_, T>, sparse: bool, cx: &Executor) -> Result<()> {
        for start in (0..block.len).step_by(self.batch_rows) {
            let end = block.len.min(start + self.batch_rows);
            let packed = PackedCenters::for_rows(MatRef::new(&self.centers, self.dim), sparse);
            for first in (start..end).step_by(chunk_rows(self.dim)) {
                cx.check()?;
                let range = first..end.min(first + chunk_rows(self.dim));
                let weights = block.weights.map(|w| &w[range.clone()]);
                let rows = self.converted.read(block.rows, range.clone(), None)?;
                let chunk = Chunk { first_row: block.first_row + first as u64, rows, weights };
                self.labels.resize(range.len(), 0);
                kernel::nearest(chunk.rows, &packed, &mut self.labels, &mut self.scratch);
                self.batch.absorb(chunk.rows, &self.labels, weights, &packed);
                if !self.batch.is_finite(&self.labels) {
                    return Err(chunk.not_finite());
                }
                if let Some(all) = &mut self.all {
                    self.labels.fill(0);
                    all.absorb(chunk.rows, &self.labels, weights, self.origin);
                }
                self.rows += range.len() as u64;
            }
            self.here.check_means_with::<T>(1.0, &self.batch)?;
            self.here.merge(&mut self.batch.clone());
            self.added.merge(&mut self.batch);
            to_means(&mut self.centers, self.dim, self.metric, &self.here);
            cx.count((end - start) as u64);
        }
        Ok(())
    }
}

impl MiniBatchPass {
    /// A first epoch from these centers, `dim` values each, in batches of `batch_rows` rows.
    ///
    /// # Errors
    /// Same as [`KMeansPass::new`]. [`Error::InvalidParam`] if `batch_rows` is 0.
    pub fn new<T: Compute>(centers: &[T], dim: usize, batch_rows: usize, metric: Metric) -> Result<Self> {
        if batch_rows == 0 {
            return Err(Error::param("batch_size", "at least 1", 0));
        }
        let centers = checked(centers, dim, metric)?;
        let mut clusters = ClusterSums::new(centers.len() / dim, dim);
        for (j, center) in centers.chunks_exact(dim).enumerate() {
            clusters.replace(j, center, 1.0);
        }
        let (centers, weights) = (Values::of(&centers), clusters.weights().to_vec());
        let pass =
            KMeansPass { dim, metric, centers, before: Before::default(), variance: f64::NAN, weights };
        Ok(Self { pass, batch_rows, clusters })
    }

    /// The centers, with the weights of all rows that were ever assigned to them.
    pub fn pass(&self) -> &KMeansPass {
        &self.pass
    }

    /// Only the first epoch measures the variance.
    fn wants_variance(&self) -> bool {
        self.pass.before.passes == 0
    }

    /// What the partitions learned, from the sums of clusters, and of all rows if the variance is wanted.
    fn totals(&self, added: ClusterSums, all: Option<ClusterSums>) -> AnySums {
        let shape = (self.pass.n_clusters(), self.pass.dim);
        AnySums::new(ClusterTotals { all, ..ClusterTotals::new(added, shape, self.pass.is_wide()) })
    }

    fn next_typed<T: Element>(&self, now: Before, total: ClusterTotals) -> Result<(Self, Step)> {
        let ClusterTotals { k, dim, clusters: mut added, all, .. } = total;
        if (k, dim) != (self.pass.n_clusters(), self.pass.dim) || all.is_some() != self.wants_variance() {
            return Err(of_others());
        }
        check_rows(now.rows(), k, &added)?;
        let mut centers = self.pass.centers.get::<T>();
        let variance = all.map_or(self.pass.variance, |all| mean_variance(&all, &centers[..dim]));
        let objective = added.energy();
        let mut clusters = self.clusters.clone();
        clusters.check_means_with::<T>(1.0, &added)?;
        clusters.merge(&mut added);
        let moved = to_means(&mut centers, dim, self.pass.metric, &clusters);
        let stop_reason = (moved == 0.0).then_some(StopReason::LabelsStable);
        let step = Step { center_shift: moved.sqrt(), stop_reason, ..now.step(k, objective) };
        let (centers, weights) = (Values::of(&centers), clusters.weights().to_vec());
        let pass = KMeansPass { centers, before: now, variance, weights, ..self.pass };
        Ok((Self { pass, clusters, ..*self }, step))
    }
}

public_pass! {
    MiniBatchPass:
    /// Merges what the partitions learned.
    ///
    /// # Errors
    /// Same as [`KMeansPass::commit`].
    commit
}

impl Pass for MiniBatchPass {
    const KIND: &'static str = MINIBATCH_PASS;

    fn facts(&self) -> PassFacts<'_> {
        self.pass.facts()
    }

    fn before_mut(&mut self) -> &mut Before {
        &mut self.pass.before
    }

    fn digest(&self) -> u64 {
        let KMeansPass { dim, metric, centers, before, weights, .. } = &self.pass;
        let weights = weights.iter().fold(0, |hash, w| mix(hash ^ w.to_bits()));
        digest(2, &[*dim as u64, before.passes, *metric as u64, self.batch_rows as u64, weights], centers)
    }

    fn sum<T: Element>(&self, data: &dyn DataSource<T>, _: Place, cx: &Executor) -> Result<Summed> {
        let (k, dim) = (self.pass.n_clusters(), self.pass.dim);
        let centers = self.pass.centers.get::<T>();
        let sparse = data.most_values().is_some();
        let origin = PackedCenters::for_rows(MatRef::new(&centers[..dim], dim), sparse);
        let mut learner = Learner {
            metric: self.pass.metric,
            dim,
            batch_rows: self.batch_rows,
            centers: centers.clone(),
            here: self.clusters.clone(),
            added: ClusterSums::new(k, dim),
            batch: ClusterSums::new(k, dim),
            all: self.wants_variance().then(|| ClusterSums::new(1, dim)),
            origin: &origin,
            rows: 0,
            labels: Vec::new(),
            scratch: Scratch::default(),
            converted: Converted::default(),
        };
        data::read(data, self.batch_rows, &mut |block: Block<'_, T>| {
            learner.learn(block, sparse, cx)?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((learner.rows, self.totals(learner.added, learner.all)))
    }

    fn no_sums(&self) -> AnySums {
        let (k, dim) = (self.pass.n_clusters(), self.pass.dim);
        let all = self.wants_variance().then(|| ClusterSums::new(1, dim));
        self.totals(ClusterSums::new(k, dim), all)
    }

    fn next(&self, now: Before, total: AnySums) -> Result<(Self, Step)> {
        let (total, wide) = (total.into_kind()?, self.pass.is_wide());
        if wide { self.next_typed::<f64>(now, total) } else { self.next_typed::<f32>(now, total) }
    }

    fn put(&self, contents: &mut Contents) {
        self.pass.put(contents);
        keep_sums(contents, "clusters", &self.clusters);
        contents.meta.insert("batches".into(), json!({ "rows": self.batch_rows }).to_string());
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let pass = KMeansPass::of_contents(contents)?;
        let clusters = sums_of(contents, "clusters", pass.n_clusters(), pass.dim)?;
        let clusters = clusters.ok_or("it lacks the sums of clusters")?;
        let rows = usize::try_from(count(&contents.object("batches")?, "rows")?);
        let batch_rows = rows.ok().filter(|&rows| rows > 0).ok_or("its batches are damaged")?;
        if clusters.weights() != pass.weights() {
            return Err("its sums do not match its weights".into());
        }
        Ok(Self { pass, batch_rows, clusters })
    }
}
