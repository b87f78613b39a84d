//! Exact sweeps over rows whose centers move elsewhere: what a worker of a distributed fit does.

use super::blocks::{Blocks, Shared};
use super::choice::Choice;
use super::labels::{Carried, Labels, Sweep};
use super::lloyd::Algorithm;
use crate::centers::{LabelList, LabelsRef};
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::stats::ClusterSums;

/// Sweeps over the same dense rows, with the labels, bounds and sums that a local fit keeps between its sweeps.
///
/// The state knows the centers of its last sweep, and the next sweep takes their moves from them. So the centers of the
/// next sweep may be any: sweeps between them may have been made elsewhere.
#[derive(Debug)]
pub(crate) struct Sweeps<T> {
    choice: Choice,
    labels: Labels,
    blocks: Option<Blocks<T>>,
    shared: Shared<T>,
    /// The centers of the last sweep. Empty before the first one.
    labeled_by: Vec<T>,
    /// Sums of all rows by their labels, if the next sweep can update them.
    carried: Option<SumsAbout<T>>,
    k: usize,
    dim: usize,
    /// Sweeps so far.
    done: u64,
    distances: u64,
}

/// Sums, and the points about which squared errors were summed.
#[derive(Debug)]
struct SumsAbout<T> {
    points: Vec<T>,
    clusters: ClusterSums,
}

impl<T: Compute> Sweeps<T> {
    /// At most `most` sweeps over `n` rows, with `k` centers of `dim` columns.
    pub(crate) fn new((n, k, dim): (usize, usize, usize), most: u64) -> Self {
        Self {
            choice: Choice::new(Algorithm::Auto, 0, most),
            labels: Labels::new(n, k),
            blocks: None,
            shared: Shared::default(),
            labeled_by: Vec::new(),
            carried: None,
            k,
            dim,
            done: 0,
            distances: 0,
        }
    }

    /// The number of rows, of centers and of columns.
    pub(crate) fn shape(&self) -> (usize, usize, usize) {
        (self.labels.len(), self.k, self.dim)
    }

    /// The fewest bytes that the state of `n` rows and `k` centers takes: labels, and centers.
    pub(crate) fn least_bytes(n: usize, k: usize, dim: usize) -> usize {
        LabelList::new(0, k).bytes_of(n) + k * dim * size_of::<T>()
    }

    /// The labels of the last sweep.
    pub(crate) fn labels(&self) -> LabelsRef<'_> {
        self.labels.of_rows.view()
    }

    /// The labels of the last sweep, if it had these centers.
    pub(crate) fn labels_by(&self, centers: &[T]) -> Option<LabelsRef<'_>> {
        (self.labeled_by == centers).then(|| self.labels())
    }

    /// Distances that the last sweep measured.
    pub(crate) fn distances(&self) -> u64 {
        self.distances
    }

    /// The bytes of the state, about.
    pub(crate) fn bytes(&self) -> usize {
        let carried = self.carried.as_ref();
        let of_sums = carried.map_or(0, |sums| sums.clusters.bytes() + size_of_val(&sums.points[..]));
        let of_blocks = self.blocks.as_ref().map_or(0, |blocks| blocks.bytes((self.k, self.dim)));
        self.labels.bytes() + of_blocks + of_sums + size_of_val(&self.labeled_by[..])
    }

    /// Labels all rows by the nearest of `centers`, and sums them, with their squared errors about `points`, one per
    /// cluster. The sums do not depend on the state. What begins now may make the state take `budget` bytes. After an
    /// error, drop the state.
    ///
    /// # Errors
    /// Those of the source; [`crate::Error::NotFinite`].
    pub(crate) fn sweep(
        &mut self,
        centers: MatRef<'_, T>,
        points: &[T],
        budget: u64,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<ClusterSums> {
        if self.done > 0 {
            self.labels.follow(MatRef::new(&self.labeled_by, centers.cols()), centers, cx);
        }
        // Bounds save more than sums: only sums that leave most of the memory to them are kept.
        let values = self.k * self.dim;
        let sums = 16 * (values + self.dim) + 64 * self.k + values * size_of::<T>();
        let sums = Some(sums).filter(|&bytes| 4 * bytes as u64 <= budget);
        let beside = sums.unwrap_or(0) + values * size_of::<T>() + 64 * self.k + self.labels.of_rows.bytes();
        self.choice.limit(budget.saturating_sub(beside as u64));
        let blocks = (&mut self.blocks, &self.shared);
        let packed = self.choice.prepare(&mut self.labels, blocks, centers, self.done, data, cx)?;
        let elsewhere = points != centers.data();
        let elsewhere =
            elsewhere.then(|| PackedCenters::for_rows(MatRef::new(points, centers.cols()), false));
        let carried = self.carried.take().filter(|sums| sums.points == points);
        let carried = carried.map(|sums| Carried::of(sums.clusters, 0.0));
        let (blocks, points_of) = (self.blocks.as_mut(), elsewhere.as_ref());
        let sweep = Sweep { points: points_of, blocks, carried, ..Sweep::about(&packed) };
        let swept = self.labels.sweep(sweep, data, cx)?;
        self.labels.forget_before();
        centers.data().clone_into(&mut self.labeled_by);
        self.done += 1;
        self.distances = swept.distances;
        self.choice.watch(&mut self.labels, &packed, &swept, self.done);
        self.choice.watch_sketches(&mut self.labels, &swept);
        let (n, of_rows, watched) = (self.labels.len(), self.labels.of_rows.view(), (&swept, self.done));
        self.choice.watch_blocks(&mut self.blocks, &self.shared, &packed, of_rows, watched);
        let pays = swept.pays_to_carry(n as u64);
        let clusters = swept.clusters;
        if pays && sums.is_some_and(|bytes| (self.bytes() + bytes) as u64 <= budget) {
            self.carried = Some(SumsAbout { points: points.to_vec(), clusters: clusters.clone() });
        }
        Ok(clusters)
    }
}
