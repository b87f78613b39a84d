//! One sweep of exact k-means over partitions.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use super::clusters::ClusterTotals;
use super::errors::of_others;
use super::extent::Before;
use super::kept::Kept;
use super::nearest::Nearest;
use super::numbers::size_of_object;
use super::partial::Partial;
use super::pass::{Pass, PassFacts, Summed, absorbed, digest, public_pass};
use super::picked::{Entry, Picked};
use super::place::Place;
use super::sums::AnySums;
use crate::centers::{LabelsRef, project};
use crate::data::{Access, AnySource, DataSource, Source, no_weight};
use crate::error::{Error, Result};
use crate::fit::{Element, Metric, Step, StopReason};
use crate::kernel::{self, Compute, PackedCenters};
use crate::kmeans::Sweeps;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, gather, sweep};
use crate::persist::kept::{Values, flag, keep, list, number};
use crate::persist::schema::KMEANS_PASS;
use crate::persist::state::are_weights;
use crate::persist::{Array, Contents};
use crate::stats::{ClusterSums, to_means};
use crate::tuning::{FARTHEST_ROWS, tile_rows};

/// A distributed sweep sums squared errors about the centers of an earlier sweep while the moves since then, squared and
/// weighted, add up to at most this share of the squared errors. Converting the sums to the centers then rounds away about
/// one bit.
const CARRIED_MOVES: f64 = 1.0;

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
    /// Squared errors may be summed about centers of an earlier sweep.
    pub(super) carries: bool,
    /// These centers, if they are not those of this sweep.
    pub(super) points: Option<Values>,
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
        Ok(Self {
            dim,
            metric,
            centers,
            before: Before::default(),
            variance: f64::NAN,
            weights,
            carries: false,
            points: None,
        })
    }

    /// The same sweep, for workers that keep state: it and the next ones sum squared errors about the centers of an
    /// earlier sweep as long as these are near enough. Workers then update the sums of the last sweep by the rows whose
    /// label changes.
    ///
    /// The objective of a step is converted to its centers, so that it agrees with a sum over the rows to about 1e-12.
    /// [`Partial::inertia`] is about the centers of the earlier sweep. Centers, weights and variance are the same.
    ///
    /// See [`Kept`] for an example.
    #[must_use]
    pub fn carrying(self) -> Self {
        Self { carries: true, ..self }
    }

    /// Sums the rows of a partition, as `absorb`, with the state of an earlier sweep of the same fit. `kept` then holds the
    /// state for the next sweep, in at most `budget` bytes, or nothing.
    ///
    /// The result does not depend on `kept`, which must be that of the same rows. The state belongs to a process, and is
    /// not stored. Nothing is kept of sparse rows, or of rows that can be read only once.
    ///
    /// # Errors
    /// Those of `absorb`. Nothing is kept then.
    ///
    /// See [`Kept`] for an example.
    pub fn absorb_keeping<S: Source + ?Sized>(
        &self,
        rows: &S,
        place: Place,
        (kept, budget): (&mut Kept, u64),
        cx: &Executor,
    ) -> Result<Partial> {
        self.absorb_any(rows.any(), place, (kept, budget), cx)
    }

    pub(crate) fn absorb_any(
        &self,
        rows: AnySource<'_>,
        place: Place,
        (kept, budget): (&mut Kept, u64),
        cx: &Executor,
    ) -> Result<Partial> {
        match rows {
            AnySource::F32(rows) => self.absorbed_keeping(rows, place, (kept, budget), cx),
            AnySource::F64(rows) => self.absorbed_keeping(rows, place, (kept, budget), cx),
        }
    }

    fn absorbed_keeping<T: Element>(
        &self,
        rows: &dyn DataSource<T>,
        place: Place,
        (kept, budget): (&mut Kept, u64),
        cx: &Executor,
    ) -> Result<Partial> {
        // After an error, the labels may be those of no sweep.
        let before = kept.take::<T>();
        let mut after = None;
        let part = absorbed(self, rows, place, kept.zeros(), |rows| {
            let (k, dim) = (self.n_clusters(), self.dim);
            // The first sweep counts the rows of a stream.
            let n = rows.rows().or(kept.rows()).filter(|_| can_keep(rows)).unwrap_or(0) as usize;
            if n == 0 || Sweeps::<T>::least_bytes(n, k, dim) as u64 > budget {
                return self.sum(rows, place, cx);
            }
            let same = before.filter(|sweeps| sweeps.shape() == (n, k, dim));
            let mut sweeps = same.unwrap_or_else(|| Box::new(Sweeps::new((n, k, dim), kept.most_sweeps())));
            let summed = self.sum_by(&mut sweeps, budget, rows, place, cx)?;
            after = Some(sweeps);
            Ok(summed)
        })?;
        let after = after.filter(|sweeps| sweeps.bytes() as u64 <= budget);
        kept.keep(after, part.rows(), self.n_clusters());
        Ok(part)
    }

    /// The sums of [`Pass::sum`], by the state of earlier sweeps over these rows.
    fn sum_by<T: Element>(
        &self,
        sweeps: &mut Sweeps<T>,
        budget: u64,
        rows: &dyn DataSource<T>,
        place: Place,
        cx: &Executor,
    ) -> Result<Summed> {
        let (k, dim) = (self.n_clusters(), self.dim);
        let (centers, points) = (self.centers.get::<T>(), self.points().get::<T>());
        let centers = MatRef::new(&centers, dim);
        let clusters = sweeps.sweep(centers, &points, budget, rows, cx)?;
        let mut total = ClusterTotals::new(clusters, (k, dim), self.is_wide());
        if !total.is_full() {
            let packed = PackedCenters::for_rows(centers, false);
            let empty = || Picked::new(dim, FARTHEST_ROWS, self.is_wide());
            let absorb =
                |chunk: Chunk<'_, T>, labels: LabelsRef<'_>, far: &mut Picked, nearest: &mut Nearest<T>| {
                    nearest.labels.clear();
                    nearest.labels.extend(labels.iter());
                    nearest.measure(chunk.rows, &packed);
                    add_far(&chunk, place, nearest, far);
                    Ok(())
                };
            let make = (empty, Nearest::default);
            let merge = |far: &mut Picked, part: &mut Picked| far.append(part);
            sweep(rows, cx, tile_rows(k), sweeps.labels(), &mut total.far, make, absorb, merge)?;
        }
        total.settle();
        Ok((sweeps.shape().0 as u64, AnySums::new(total)))
    }

    /// The points about which squared errors are summed.
    fn points(&self) -> &Values {
        self.points.as_ref().unwrap_or(&self.centers)
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

    /// Whether squared errors are summed about the centers of an earlier sweep.
    #[cfg(feature = "python")]
    pub(crate) fn has_points(&self) -> bool {
        self.points.is_some()
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
        let points = self.points().get::<T>();
        let variance = variance(&clusters, &points, dim);
        if self.points.is_some() {
            clusters.follow(MatRef::new(&points, dim), MatRef::new(&centers, dim));
        }
        // Rounding can make the converted squared errors slightly negative.
        let objective = clusters.energy().max(0.0);
        let relocated = relocate::<T>(&mut clusters, &far);
        let moved = to_means(&mut centers, dim, self.metric, &clusters);
        let are_near = || moves(&points, &centers, &clusters) <= CARRIED_MOVES * objective;
        let points = (self.carries && points != centers && are_near()).then(|| Values::of(&points));
        let stop_reason = (moved == 0.0 && relocated == 0).then_some(StopReason::LabelsStable);
        let step = Step { center_shift: moved.sqrt(), stop_reason, ..now.step(k, objective) };
        let (centers, weights) = (Values::of(&centers), clusters.weights().to_vec());
        Ok((Self { centers, before: now, variance, weights, points, ..*self }, step))
    }
}

public_pass! {
    KMeansPass:
    /// Moves every center to the mean of its rows. An empty cluster moves to one of the rows farthest from their
    /// centers, up to 16 in a sweep.
    ///
    /// `Step::n_changed` is 0, and `Step::n_distances` that of a full sweep: they would depend on what workers keep. The
    /// stop reason is set if no center moved.
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
        let own = digest(1, &[self.dim as u64, self.before.passes, self.metric as u64], &self.centers);
        self.points.as_ref().map_or(own, |points| digest(own, &[], points))
    }

    fn sum<T: Element>(&self, data: &dyn DataSource<T>, place: Place, cx: &Executor) -> Result<Summed> {
        let (k, dim) = (self.n_clusters(), self.dim);
        let centers = self.centers.get::<T>();
        let sparse = data.most_values().is_some();
        let packed = PackedCenters::for_rows(MatRef::new(&centers, dim), sparse);
        let elsewhere = self.points.as_ref().map(Values::get::<T>);
        let elsewhere = elsewhere.as_ref().map(|p| PackedCenters::for_rows(MatRef::new(p, dim), sparse));
        let about = elsewhere.as_ref().unwrap_or(&packed);
        let totals = |clusters| ClusterTotals::new(clusters, (k, dim), self.is_wide());
        let unseen = Unseen::new(k);
        let absorb = |chunk: Chunk<'_, T>,
                      (): (),
                      (rows, part): &mut (u64, ClusterTotals),
                      nearest: &mut Nearest<T>| {
            *rows += chunk.rows.rows() as u64;
            nearest.label(chunk.rows, &packed);
            part.clusters.absorb(chunk.rows, &nearest.labels, chunk.weights, about);
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
            "carries": self.carries,
        });
        self.before.put("iteration", &mut numbers);
        contents.meta.insert("pass".into(), numbers.to_string());
        keep(contents, "centers", self.centers.array(self.dim));
        if let Some(points) = &self.points {
            keep(contents, "points", points.array(self.dim));
        }
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
        let variance = number(&numbers, "variance")?;
        // Passes of earlier versions carry nothing.
        let carries = numbers.contains_key("carries") && flag(&numbers, "carries")?;
        let stored = contents.arrays.contains_key("points");
        let points = stored.then(|| Values::matrix(contents, "points", dim)).transpose()?;
        let fit = |points: &Values| {
            (points.len(), points.is_wide()) == (centers.len(), centers.is_wide())
                && points.first_not_finite(dim).is_none()
        };
        if !points.as_ref().is_none_or(fit) {
            return Err("its points do not belong to its centers".into());
        }
        Ok(Self { dim, metric, centers, before, variance, weights, carries, points })
    }
}

/// Whether sweeps over these rows can keep anything that saves time.
fn can_keep<T: Compute>(rows: &dyn DataSource<T>) -> bool {
    rows.access() > Access::Once && rows.most_values().is_none()
}

/// How far the centers lie from the points: squared distances, weighted.
fn moves<T: Compute>(points: &[T], centers: &[T], clusters: &ClusterSums) -> f64 {
    let dim = centers.len() / clusters.weights().len();
    let pairs = points.chunks_exact(dim).zip(centers.chunks_exact(dim));
    pairs
        .zip(clusters.weights())
        .map(|((point, center), weight)| weight * kernel::sq_dist(point, center))
        .sum()
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
        return Err(Error::not_finite("centers", centers[row * dim + column], row as u64, column));
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
