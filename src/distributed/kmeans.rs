//! One sweep of exact k-means over partitions.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use super::clusters::ClusterTotals;
use super::errors::of_others;
use super::extent::Before;
use super::nearest::Nearest;
use super::numbers::size_of_object;
use super::partial::Partial;
use super::pass::{Pass, PassFacts, Summed, digest, public_pass};
use super::picked::{Entry, Picked};
use super::place::Place;
use super::sums::AnySums;
use crate::centers::project;
use crate::data::{DataSource, Source, no_weight};
use crate::error::{Error, Result};
use crate::fit::{Element, Metric, Step, StopReason};
use crate::kernel::{self, Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, gather};
use crate::persist::kept::{Values, keep, list, number};
use crate::persist::schema::KMEANS_PASS;
use crate::persist::state::are_weights;
use crate::persist::{Array, Contents};
use crate::stats::{ClusterSums, to_means};

/// One sweep of exact k-means: labels every row with its nearest center and sums the rows of every cluster.
///
/// See the [module](super) for an example of a fit. Passes travel between machines as bytes:
///
/// ```
/// use shoal::{Metric, distributed::KMeansPass};
/// let task = KMeansPass::new(&[0.0f32, 9.0], 1, Metric::Cosine)?;
/// let again = KMeansPass::from_bytes(&task.to_bytes()?)?;
/// assert_eq!(again.centers::<f32>(), task.centers::<f32>());
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct KMeansPass {
    pub(super) dim: usize,
    pub(super) metric: Metric,
    pub(super) centers: Values,
    pub(super) before: Before,
    pub(super) variance: f64,
    /// The weight per cluster in the last pass.
    pub(super) weights: Vec<f64>,
}

impl KMeansPass {
    /// A first sweep from these centers, `dim` values each. With the cosine metric they are scaled to length 1.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NotFinite`] for centers that are not finite rows of at least one column.
    pub fn new<T: Compute>(centers: &[T], dim: usize, metric: Metric) -> Result<Self> {
        let centers = checked(centers, dim, metric)?;
        let weights = vec![0.0; centers.len() / dim];
        let centers = Values::of(&centers);
        Ok(Self { dim, metric, centers, before: Before::default(), variance: f64::NAN, weights })
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
        self.before.passes
    }

    /// The weighted variance of the rows, averaged over the columns, as the last sweep measured it; NaN before.
    pub fn variance(&self) -> f64 {
        self.variance
    }

    /// Weight per cluster in the last sweep; zeros before.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Whether rows must be computed as `f64`, the type of the centers.
    pub(super) fn is_wide(&self) -> bool {
        self.centers.is_wide()
    }

    fn next_typed<T: Element>(&self, now: Before, total: ClusterTotals) -> Result<(Self, Step)> {
        let ClusterTotals { k, dim, mut clusters, far, .. } = total;
        if (k, dim) != (self.n_clusters(), self.dim) {
            return Err(of_others());
        }
        check_rows(now.rows(), k, &clusters)?;
        clusters.check_means::<T>()?;
        let mut centers = self.centers.get::<T>();
        let (objective, variance) = (clusters.energy(), variance(&clusters, &centers, dim));
        let relocated = relocate::<T>(&mut clusters, &far);
        let moved = to_means(&mut centers, dim, self.metric, &clusters);
        let stop_reason = (moved == 0.0 && relocated == 0).then_some(StopReason::LabelsStable);
        let step = Step { center_shift: moved.sqrt(), stop_reason, ..now.step(k, objective) };
        let (centers, weights) = (Values::of(&centers), clusters.weights().to_vec());
        Ok((Self { centers, before: now, variance, weights, ..*self }, step))
    }
}

public_pass! {
    KMeansPass:
    /// Moves every center to the mean of its rows. An empty cluster moves to one of the rows farthest from their
    /// centers, up to 16 in a sweep.
    ///
    /// `Step::n_changed` is 0, because no labels are kept. The stop reason is set if no center moved.
    ///
    /// # Errors
    /// [`Error::Source`] if partitions are missing, if `total` belongs to another sweep, if the number of rows or
    /// partitions differs from that of the sweep before, or if a mean overflows. [`Error::InvalidParam`] if there are
    /// fewer rows than centers, or no row has weight.
    commit
}

impl Pass for KMeansPass {
    const KIND: &'static str = KMEANS_PASS;

    fn facts(&self) -> PassFacts<'_> {
        PassFacts {
            metric: self.metric,
            shape: Some((self.dim, self.is_wide())),
            before: &self.before,
            centers: Some(&self.centers),
            is_done: true,
            result_bytes: 16 * self.n_clusters() * (self.dim + 2),
        }
    }

    fn before_mut(&mut self) -> &mut Before {
        &mut self.before
    }

    fn digest(&self) -> u64 {
        digest(1, &[self.dim as u64, self.before.passes, self.metric as u64], &self.centers)
    }

    fn sum<T: Element>(&self, data: &dyn DataSource<T>, place: Place, cx: &Executor) -> Result<Summed> {
        let (k, dim) = (self.n_clusters(), self.dim);
        let centers = self.centers.get::<T>();
        let packed = PackedCenters::for_rows(MatRef::new(&centers, dim), data.most_values().is_some());
        let totals = |clusters| ClusterTotals::new(clusters, (k, dim), self.is_wide());
        let unseen = Unseen::new(k);
        let absorb = |chunk: Chunk<'_, T>,
                      (): (),
                      (rows, part): &mut (u64, ClusterTotals),
                      nearest: &mut Nearest<T>| {
            *rows += chunk.rows.rows() as u64;
            nearest.label(chunk.rows, &packed);
            part.clusters.absorb(chunk.rows, &nearest.labels, chunk.weights, &packed);
            if !part.clusters.is_finite() {
                return Err(chunk.not_finite());
            }
            if unseen.note(&nearest.labels, chunk.weights) {
                nearest.measure(chunk.rows, &packed);
                add_far(&chunk, place, nearest, &mut part.far);
            }
            Ok(())
        };
        let merge = |(rows, total): &mut (u64, ClusterTotals), (more, part): &mut (u64, ClusterTotals)| {
            *rows += *more;
            total.clusters.merge(&mut part.clusters);
            total.far.append(&mut part.far);
        };
        let make = (|| (0, totals(ClusterSums::part(k, dim))), Nearest::default);
        let mut all = (0, totals(ClusterSums::new(k, dim)));
        gather(data, cx, (), &mut all, make, absorb, merge)?;
        let (rows, mut total) = all;
        total.settle();
        Ok((rows, AnySums::new(total)))
    }

    fn no_sums(&self) -> AnySums {
        let (k, dim) = (self.n_clusters(), self.dim);
        AnySums::new(ClusterTotals::new(ClusterSums::new(k, dim), (k, dim), self.is_wide()))
    }

    fn next(&self, now: Before, total: AnySums) -> Result<(Self, Step)> {
        let total = total.into_kind()?;
        if self.is_wide() { self.next_typed::<f64>(now, total) } else { self.next_typed::<f32>(now, total) }
    }

    fn put(&self, contents: &mut Contents) {
        let mut numbers = json!({
            "dim": self.dim,
            "metric": self.metric.name(),
            "variance": self.variance.to_bits(),
        });
        self.before.put("iteration", &mut numbers);
        contents.meta.insert("pass".into(), numbers.to_string());
        keep(contents, "centers", self.centers.array(self.dim));
        keep(contents, "weights", Array::new(&[self.weights.len()], &self.weights));
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let numbers = contents.object("pass")?;
        let dim = size_of_object(&numbers, "dim")?;
        let metric = Metric::of_object(&numbers)?;
        let centers = Values::matrix(contents, "centers", dim)?;
        match &centers {
            Values::F32(values) => check_made(values, dim, metric)?,
            Values::F64(values) => check_made(values, dim, metric)?,
        }
        let weights: Vec<f64> = list(contents, "weights")?;
        if weights.len() != centers.len() / dim || !are_weights(&weights) {
            return Err("its weights are damaged".into());
        }
        let before = Before::of_object("iteration", &numbers, dim)?;
        Ok(Self { dim, metric, centers, before, variance: number(&numbers, "variance")?, weights })
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

/// Returns an error unless the centers of a file are as [`KMeansPass::new`] makes them.
fn check_made<T: Compute>(centers: &[T], dim: usize, metric: Metric) -> Result<(), String> {
    let made = checked(centers, dim, metric).map_err(|e| e.to_string())?;
    if made == centers { Ok(()) } else { Err("its centers do not lie on the unit sphere".into()) }
}

/// Returns an error if there are fewer rows than clusters, or no row has weight.
pub(super) fn check_rows(rows: u64, k: usize, clusters: &ClusterSums) -> Result<()> {
    crate::seeding::enough_rows(rows, k)?;
    if clusters.weights().iter().sum::<f64>() > 0.0 { Ok(()) } else { Err(no_weight()) }
}

/// Clusters that have got no weight yet. Once there are none, farthest rows need not be looked for.
struct Unseen {
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

/// Adds the rows of a chunk that are farthest from their centers.
fn add_far<T: Compute>(chunk: &Chunk<'_, T>, place: Place, nearest: &Nearest<T>, far: &mut Picked) {
    for (i, (&label, &sq_dist)) in nearest.labels.iter().zip(&nearest.sq_dists).enumerate() {
        let weight = chunk.weights.map_or(1.0, |w| w[i]);
        if sq_dist > 0.0 && weight > 0.0 && -sq_dist <= far.limit() {
            let row = place.first_row() + chunk.first_row + i as u64;
            let entry = Entry { key: -sq_dist, partition: place.partition(), row, weight, label };
            far.push(entry, chunk.rows, i);
        }
    }
}

/// Moves the farthest rows to the empty clusters. Returns the number of moved rows.
fn relocate<T: Compute>(clusters: &mut ClusterSums, far: &Picked) -> usize {
    let before = clusters.weights().to_vec();
    let empty = (0..before.len()).filter(|&j| before[j] <= 0.0);
    let mut relocated = 0;
    for (to, (i, entry)) in empty.zip(far.entries.iter().enumerate()) {
        let from = entry.label as usize;
        clusters.move_row(&far.row::<T>(i), entry.weight, from, to);
        relocated += 1;
    }
    relocated
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
