//! One sweep of exact k-means over partitions.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::clusters::ClusterTotals;
use super::errors::of_others;
use super::extent::Extent;
use super::partial::{About, Partial, Seen};
use super::picked::{Entry, Picked};
use super::place::Place;
use super::sums::Sums;
use crate::centers::project;
use crate::data::{DataSource, Normalized, Source, Watched, no_weight};
use crate::error::{Error, Result};
use crate::fit::{Element, Metric, Step, StopReason};
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::persist::kept::Values;
use crate::rng::mix;
use crate::stats::{ClusterSums, to_means};
use crate::tuning::{FARTHEST_ROWS, tile_rows};

/// One sweep of exact k-means: labels every row with its nearest center and sums the rows of every cluster.
///
/// See the [module](super) for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct KMeansPass {
    pub(super) dim: usize,
    pub(super) metric: Metric,
    pub(super) centers: Values,
    pub(super) state: State,
}

/// A cluster without more than this share of its weight has lost all of its rows.
const RESIDUE: f64 = 1e-12;

/// What a pass over centers knows of the passes before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    pub(super) iteration: u64,
    pub(super) rows_seen: u64,
    /// Of the pass before.
    pub(super) extent: Option<Extent>,
    pub(super) variance: f64,
    /// The weight per cluster in the last pass.
    pub(super) weights: Vec<f64>,
}

impl State {
    pub(super) fn new(k: usize) -> Self {
        Self { iteration: 0, rows_seen: 0, extent: None, variance: f64::NAN, weights: vec![0.0; k] }
    }
}

/// Checks centers, and projects them to the unit sphere for the cosine metric.
pub(super) fn checked<T: Compute>(centers: &[T], dim: usize, metric: Metric) -> Result<Vec<T>> {
    if dim == 0 || centers.is_empty() || !centers.len().is_multiple_of(dim) {
        return Err(Error::Shape(format!(
            "centers must be rows of at least 1 column, got {} values in rows of {dim}",
            centers.len()
        )));
    }
    let k = centers.len() / dim;
    if k > kernel::MAX_CENTERS {
        return Err(Error::param("n_clusters", format!("at most {}", kernel::MAX_CENTERS), k));
    }
    if let Some((row, column)) = MatRef::new(centers, dim).first_not_finite() {
        let value = centers[row * dim + column].to_string();
        return Err(Error::NotFinite { what: "centers", value, row: row as u64, column });
    }
    let mut centers = centers.to_vec();
    project(&mut centers, dim, metric);
    Ok(centers)
}

/// A number that differs, with near certainty, for passes that differ.
pub(super) fn digest(kind: u64, numbers: &[u64], values: &Values) -> u64 {
    let begun = numbers.iter().fold(mix(kind), |hash, &number| mix(hash ^ number));
    match values {
        Values::F32(values) => values.iter().fold(begun, |hash, v| mix(hash ^ u64::from(v.to_bits()))),
        Values::F64(values) => values.iter().fold(mix(begun), |hash, v| mix(hash ^ v.to_bits())),
    }
}

/// Calls `f` with the rows as the metric sees them. Returns also what was seen of them.
pub(super) fn seen_by<T: Compute, R>(
    data: &dyn DataSource<T>,
    metric: Metric,
    f: impl FnOnce(&dyn DataSource<T>) -> Result<R>,
) -> Result<(R, Seen)> {
    let watched = Watched::new(data);
    let (found, zeros) = if metric == Metric::Euclidean {
        (f(&watched)?, 0)
    } else {
        let rows = Normalized::new(&watched);
        (f(&rows)?, rows.zero_rows())
    };
    Ok((found, Seen { zeros, weighted: watched.weighted(), sparse: data.most_values().is_some() }))
}

/// Clusters that have got no weight yet. Once there are none, farthest rows need not be looked for.
pub(super) struct Unseen {
    left: AtomicUsize,
    seen: Vec<AtomicBool>,
}

impl Unseen {
    fn new(k: usize) -> Self {
        Self { left: AtomicUsize::new(k), seen: (0..k).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Notes the labels of a chunk; returns whether there are clusters without weight.
    fn note(&self, labels: &[u32], weights: Option<&[f64]>) -> bool {
        if self.left.load(Ordering::Relaxed) == 0 {
            return false;
        }
        for (i, &label) in labels.iter().enumerate() {
            let seen = &self.seen[label as usize];
            if weights.is_none_or(|w| w[i] > 0.0)
                && !seen.load(Ordering::Relaxed)
                && !seen.swap(true, Ordering::Relaxed)
            {
                self.left.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.left.load(Ordering::Relaxed) > 0
    }
}

/// The contribution of a tile.
struct Part {
    clusters: ClusterSums,
    far: Picked,
    rows: u64,
}

/// Buffers of a worker.
struct Buffers<T> {
    labels: Vec<u32>,
    sq_dists: Vec<f64>,
    kernel: Scratch<T>,
}

impl<T: Compute> Default for Buffers<T> {
    fn default() -> Self {
        Self { labels: Vec::new(), sq_dists: Vec::new(), kernel: Scratch::default() }
    }
}

/// Adds the rows of a chunk that are farthest from their centers.
fn add_far<T: Compute>(
    chunk: &Chunk<'_, T>,
    place: Place,
    labels: &[u32],
    sq_dists: &[f64],
    far: &mut Picked,
) {
    for (i, (&label, &sq_dist)) in labels.iter().zip(sq_dists).enumerate() {
        let weight = chunk.weights.map_or(1.0, |w| w[i]);
        if sq_dist > 0.0 && weight > 0.0 && -sq_dist <= far.limit() {
            let row = place.first_row() + chunk.first_row + i as u64;
            let entry = Entry { key: -sq_dist, partition: place.partition(), row, weight, label };
            far.push(entry, chunk.rows, i);
        }
    }
}

impl KMeansPass {
    /// A first sweep from these centers, `dim` values each. With the cosine metric they are scaled to length 1.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NotFinite`] for centers that are not finite rows of at least one column.
    pub fn new<T: Compute>(centers: &[T], dim: usize, metric: Metric) -> Result<Self> {
        let centers = checked(centers, dim, metric)?;
        let state = State::new(centers.len() / dim);
        Ok(Self { dim, metric, centers: Values::of(&centers), state })
    }

    /// The centers, row by row, converted to `T`.
    ///
    /// ```
    /// use shoal::{Metric, distributed::KMeansPass};
    /// let task = KMeansPass::new(&[1.0f32, 2.0], 1, Metric::Euclidean)?;
    /// assert_eq!((task.centers::<f64>(), task.n_clusters(), task.dim()), (vec![1.0, 2.0], 2, 1));
    /// # Ok::<(), shoal::Error>(())
    /// ```
    pub fn centers<T: Compute>(&self) -> Vec<T> {
        self.centers.get()
    }

    /// Number of centers.
    pub fn n_clusters(&self) -> usize {
        self.centers.len() / self.dim
    }

    /// Number of columns.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Number of sweeps before this one.
    pub fn iteration(&self) -> u64 {
        self.state.iteration
    }

    /// The weighted variance of the rows, averaged over the columns, as the last sweep measured it; NaN before.
    pub fn variance(&self) -> f64 {
        self.state.variance
    }

    /// Weight per cluster in the last sweep; zeros before.
    pub fn weights(&self) -> &[f64] {
        &self.state.weights
    }

    /// The rows of the pass before, and the names of their columns.
    #[cfg(feature = "python")]
    pub(crate) fn extent(&self) -> Option<&Extent> {
        self.state.extent.as_ref()
    }

    /// The same pass, which expects the rows, the partitions and the names of columns of another pass.
    #[cfg(feature = "python")]
    pub(crate) fn after(&self, extent: Option<&Extent>) -> Self {
        let mut next = self.clone();
        next.state.extent = extent.cloned();
        next
    }

    /// Whether rows must be computed as `f64`, the type of the centers.
    pub(crate) fn is_wide(&self) -> bool {
        self.centers.is_wide()
    }

    /// Identifies the pass in its partial results.
    pub(super) fn digest(&self) -> u64 {
        let numbers = [self.dim as u64, self.state.iteration, self.metric as u64];
        digest(1, &numbers, &self.centers)
    }

    /// Sums the rows of a partition, in one pass.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another width or compute type than the centers. Those of the source,
    /// [`Error::NotFinite`], [`Error::Interrupted`].
    pub fn absorb<S: Source + ?Sized>(&self, rows: &S, place: Place, cx: &Executor) -> Result<Partial> {
        match rows.any() {
            crate::data::AnySource::F32(data) => self.absorb_typed(data, place, cx),
            crate::data::AnySource::F64(data) => self.absorb_typed(data, place, cx),
        }
    }

    /// As [`KMeansPass::absorb`], for rows that are computed as `T`, which must be the type of the centers.
    pub(crate) fn absorb_typed<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        place: Place,
        cx: &Executor,
    ) -> Result<Partial> {
        place.check()?;
        fits::<T>(data, self.dim, self.is_wide())?;
        let (k, dim) = (self.n_clusters(), self.dim);
        let centers = self.centers.get::<T>();
        let empty = || Part { clusters: ClusterSums::part(k, dim), far: far_rows::<T>(dim), rows: 0 };
        let mut total = Part { clusters: ClusterSums::new(k, dim), ..empty() };
        let unseen = Unseen::new(k);
        let ((), seen) = seen_by(data, self.metric, |data| {
            let packed = PackedCenters::for_rows(MatRef::new(&centers, dim), data.most_values().is_some());
            let absorb = |chunk: Chunk<'_, T>, (): (), part: &mut Part, buffers: &mut Buffers<T>| {
                let Buffers { labels, sq_dists, kernel: scratch } = buffers;
                labels.resize(chunk.rows.rows(), 0);
                kernel::nearest(chunk.rows, &packed, labels, scratch);
                part.clusters.absorb(chunk.rows, labels, chunk.weights, &packed);
                part.rows += labels.len() as u64;
                if !part.clusters.is_finite(labels) {
                    return Err(chunk.not_finite());
                }
                if unseen.note(labels, chunk.weights) {
                    sq_dists.resize(labels.len(), 0.0);
                    kernel::sq_dists(chunk.rows, labels, &packed, sq_dists);
                    add_far(&chunk, place, labels, sq_dists, &mut part.far);
                }
                Ok(())
            };
            let merge = |total: &mut Part, part: &mut Part| {
                total.clusters.merge(&mut part.clusters);
                total.far.append(&mut part.far);
                part.far.clear();
                total.rows += std::mem::take(&mut part.rows);
            };
            sweep(data, cx, tile_rows(k), (), &mut total, (empty, Buffers::default), absorb, merge)
        })?;
        let Part { clusters, far, rows } = total;
        let mut sums = ClusterTotals { k, dim, clusters, far, all: None };
        sums.settle();
        let about = About::new::<T>(dim, place, seen);
        Partial::new(self.digest(), place, rows, about, Sums::Clusters(sums))
    }

    /// The partial result of a partition without rows, which no source can be.
    pub fn absorb_nothing(&self, place: Place) -> Partial {
        let (k, dim) = (self.n_clusters(), self.dim);
        let far = if self.is_wide() { far_rows::<f64>(dim) } else { far_rows::<f32>(dim) };
        let sums = ClusterTotals { k, dim, clusters: ClusterSums::new(k, dim), far, all: None };
        Partial::empty(self.digest(), place, Sums::Clusters(sums))
    }

    /// Moves every center to the mean of its rows. An empty cluster moves to one of the rows farthest from their
    /// centers, up to 16 in a sweep.
    ///
    /// `Step::n_changed` is 0, because no labels are kept. The stop reason is set if no center moved.
    ///
    /// # Errors
    /// [`Error::Source`] if partitions are missing, if `total` belongs to another sweep, if the number of rows or
    /// partitions differs from that of the sweep before, or if a mean overflows. [`Error::InvalidParam`] if there are
    /// fewer rows than centers, or no row has weight.
    pub fn commit(&self, total: &Partial) -> Result<(Self, Step)> {
        if self.is_wide() { self.committed::<f64>(total) } else { self.committed::<f32>(total) }
    }

    fn committed<T: Element>(&self, total: &Partial) -> Result<(Self, Step)> {
        let (extent, sums) = total.whole(self.digest(), self.state.extent.as_ref())?;
        let rows = extent.rows;
        let Sums::Clusters(ClusterTotals { k, dim, mut clusters, far, .. }) = sums else {
            return Err(of_others());
        };
        if (k, dim) != (self.n_clusters(), self.dim) {
            return Err(of_others());
        }
        check_rows(rows, k, &clusters)?;
        clusters.check_means::<T>()?;
        let mut centers = self.centers.get::<T>();
        let (objective, variance) = (clusters.energy(), variance(&clusters, &centers, dim));
        let empty: Vec<usize> = (0..k).filter(|&j| clusters.weights()[j] <= 0.0).collect();
        let (before, mut relocated) = (clusters.weights().to_vec(), 0);
        for (&to, (i, entry)) in empty.iter().zip(far.entries.iter().enumerate()) {
            let from = entry.label as usize;
            clusters.move_row(&far.row::<T>(i), entry.weight, from, to);
            // What is left may be the rounding of the sum alone, and even negative.
            if clusters.weights()[from] <= RESIDUE * before[from] {
                clusters.clear(from);
            }
            relocated += 1;
        }
        let moved = to_means(&mut centers, dim, self.metric, &clusters);
        let state = State {
            iteration: self.state.iteration + 1,
            rows_seen: self.state.rows_seen.saturating_add(rows),
            extent: Some(extent),
            variance,
            weights: clusters.weights().to_vec(),
        };
        let step = step_of(&state, rows, k, objective, moved);
        let stop_reason = (moved == 0.0 && relocated == 0).then_some(StopReason::LabelsStable);
        let next = Self { centers: Values::of(&centers), state, ..*self };
        Ok((next, Step { stop_reason, ..step }))
    }
}

/// Room for the farthest rows.
pub(super) fn far_rows<T: Compute>(dim: usize) -> Picked {
    Picked::new::<T>(dim, FARTHEST_ROWS)
}

/// Returns an error for rows of another width or compute type than the centers.
pub(super) fn fits<T: Compute>(data: &dyn DataSource<T>, dim: usize, wide: bool) -> Result<()> {
    if data.dim() != dim {
        return Err(Error::Shape(format!("`rows` have {} columns, but the centers have {dim}", data.dim())));
    }
    if wide != T::WIDE {
        let name = if wide { "f64" } else { "f32" };
        return Err(Error::Shape(format!("`rows` are computed as {}, but the centers are {name}", T::NAME)));
    }
    Ok(())
}

/// Returns an error if there are fewer rows than clusters, or no row has weight.
pub(super) fn check_rows(rows: u64, k: usize, clusters: &ClusterSums) -> Result<()> {
    crate::seeding::enough_rows(rows, k)?;
    if clusters.weights().iter().sum::<f64>() > 0.0 { Ok(()) } else { Err(no_weight()) }
}

/// The figures of a step after which the state is `state`.
pub(super) fn step_of(state: &State, rows: u64, k: usize, objective: f64, moved: f64) -> Step {
    Step {
        iteration: state.iteration,
        rows_seen: state.rows_seen,
        batch_size: rows,
        objective,
        center_shift: moved.sqrt(),
        n_changed: 0,
        n_distances: rows.saturating_mul(k as u64),
        elapsed: 0.0,
        stop_reason: None,
    }
}

/// The weighted variance of all rows, averaged over the columns, from the sums of their clusters: the squared error
/// about the center, moved to the mean of all rows.
fn variance<T: Compute>(clusters: &ClusterSums, centers: &[T], dim: usize) -> f64 {
    let weight: f64 = clusters.weights().iter().sum();
    let mut mean = vec![0.0; dim];
    for j in 0..clusters.weights().len() {
        mean.iter_mut().zip(clusters.sum(j)).for_each(|(mean, sum)| *mean += sum / weight);
    }
    let mut total = clusters.energy();
    for (j, center) in centers.chunks_exact(dim).enumerate() {
        let own = clusters.weights()[j];
        for ((c, sum), mean) in center.iter().zip(clusters.sum(j)).zip(&mean) {
            let off = c.to_f64() - mean;
            total += off * (2.0 * (sum - own * c.to_f64()) + own * off);
        }
    }
    (total / weight / dim as f64).max(0.0)
}
