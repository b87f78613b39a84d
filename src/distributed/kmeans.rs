//! One sweep of exact k-means over partitions.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::clusters::ClusterTotals;
use super::commit::{Head, Moving};
use super::errors::of_others;
use super::extent::Before;
use super::kept::Kept;
use super::message::Message;
use super::nearest::Nearest;
use super::partial::Partial;
use super::pass::{NAME, Pass, PassFacts, Summed, absorbed, digest, public_pass};
use super::picked::{Entry, Picked};
use super::place::{Place, Starts};
use super::sums::AnySums;
use crate::centers::{LabelsRef, project};
use crate::data::{Access, AnySource, DataSource, Source};
use crate::error::{Error, Result};
use crate::fit::{Metric, Step};
use crate::kernel::{self, Compute, PackedCenters};
use crate::kmeans::Sweeps;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, gather, sweep};
use crate::persist::Contents;
use crate::persist::kept::{Values, keep};
use crate::persist::schema::KMEANS_PASS;
use crate::stats::ClusterSums;
use crate::tuning::{FARTHEST_ROWS, tile_rows};

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
    pub(super) head: Head,
    pub(super) centers: Values,
    /// The centers of an earlier sweep about which squared errors are summed, if not about those of this sweep.
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
        let (before, variance, carries) = (Before::default(), f64::NAN, false);
        let head = Head { dim, metric, before, variance, weights, carries };
        Ok(Self { head, centers: Values::of(&centers), points: None })
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
        Self { head: self.head.carrying(), ..self }
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

    fn absorbed_keeping<T: Compute>(
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
            let (k, dim) = (self.n_clusters(), self.head.dim);
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
    fn sum_by<T: Compute>(
        &self,
        sweeps: &mut Sweeps<T>,
        budget: u64,
        rows: &dyn DataSource<T>,
        place: Place,
        cx: &Executor,
    ) -> Result<Summed> {
        let (k, dim) = (self.n_clusters(), self.head.dim);
        let (centers, points) = (self.centers.get::<T>(), self.points().get::<T>());
        let centers = MatRef::new(&centers, dim);
        let clusters = sweeps.sweep(centers, &points, budget, rows, cx)?;
        let mut total = ClusterTotals::new(clusters, (k, dim), self.is_wide());
        if !total.is_full() {
            let packed = PackedCenters::on(centers, false, cx);
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

    /// The sweep with these centers, and the points about which it sums squared errors, if these are others.
    ///
    /// # Errors
    /// If they do not belong to `head`.
    pub(super) fn of_parts(head: Head, centers: Values, points: Option<Values>) -> Result<Self, String> {
        match &centers {
            Values::F32(values) => check_made(values, head.dim, head.metric)?,
            Values::F64(values) => check_made(values, head.dim, head.metric)?,
        }
        if head.weights.len() != centers.len() / head.dim {
            return Err("its weights are damaged".into());
        }
        let fit = |points: &Values| {
            (points.len(), points.is_wide()) == (centers.len(), centers.is_wide())
                && points.first_not_finite(head.dim).is_none()
        };
        if !points.as_ref().is_none_or(fit) {
            return Err("its points do not belong to its centers".into());
        }
        Ok(Self { head, centers, points })
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
        self.head.n_clusters()
    }

    /// Number of columns.
    pub fn dim(&self) -> usize {
        self.head.dim
    }

    /// The metric.
    pub fn metric(&self) -> Metric {
        self.head.metric
    }

    /// Number of sweeps before this one.
    pub fn iteration(&self) -> u64 {
        self.head.before.passes
    }

    /// The weighted variance of the rows, averaged over the columns, as the last sweep measured it; NaN before.
    pub fn variance(&self) -> f64 {
        self.head.variance
    }

    /// Weight per cluster in the last sweep; zeros before.
    pub fn weights(&self) -> &[f64] {
        &self.head.weights
    }

    /// Whether rows must be computed as `f64`, the type of the centers.
    pub(super) fn is_wide(&self) -> bool {
        self.centers.is_wide()
    }

    fn next_typed<T: Compute>(&self, now: Before, total: ClusterTotals) -> Result<(Self, Step)> {
        if (total.k, total.dim) != (self.n_clusters(), self.head.dim) {
            return Err(of_others());
        }
        let points = self.points().get::<T>();
        let mut moving = Moving::new(total, self.centers.get::<T>(), points)?;
        let plan = self.head.plan(now, &[moving.found()?])?;
        let (centers, moved) = moving.moved(&self.head, &plan.moves);
        let (head, step, keeps_points) = self.head.commit(plan, &[moved])?;
        let points = keeps_points.then(|| self.points().clone());
        Ok((Self { head, centers: Values::of(&centers), points }, step))
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
    fn facts(&self) -> PassFacts<'_> {
        PassFacts {
            metric: self.head.metric,
            shape: Some((self.head.dim, self.is_wide())),
            before: &self.head.before,
            centers: Some(&self.centers),
            is_done: true,
            result_bytes: 16 * self.n_clusters() * (self.head.dim + 2),
        }
    }

    fn before_mut(&mut self) -> &mut Before {
        &mut self.head.before
    }

    fn digest(&self) -> u64 {
        let own = digest(
            1,
            &[self.head.dim as u64, self.head.before.passes, self.head.metric as u64],
            &self.centers,
        );
        self.points.as_ref().map_or(own, |points| digest(own, &[], points))
    }

    fn sum<T: Compute>(&self, data: &dyn DataSource<T>, place: Place, cx: &Executor) -> Result<Summed> {
        let (k, dim) = (self.n_clusters(), self.head.dim);
        let centers = self.centers.get::<T>();
        let sparse = data.most_values().is_some();
        let packed = PackedCenters::on(MatRef::new(&centers, dim), sparse, cx);
        let elsewhere = self.points.as_ref().map(Values::get::<T>);
        let elsewhere = elsewhere.as_ref().map(|p| PackedCenters::on(MatRef::new(p, dim), sparse, cx));
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
        let merge = |(rows, total): &mut (u64, ClusterTotals), parts: &mut [(u64, ClusterTotals)]| {
            for (more, part) in &mut *parts {
                *rows += *more;
                total.far.append(&mut part.far);
            }
            total.clusters.merge_parts(parts.iter_mut().map(|(_, part)| &mut part.clusters), cx);
        };
        let make = (|| (0, totals(ClusterSums::part(k, dim))), Nearest::default);
        let mut all = (0, totals(ClusterSums::new(k, dim)));
        gather(data, cx, (), &mut all, make, absorb, merge)?;
        let (rows, mut total) = all;
        total.settle();
        Ok((rows, AnySums::new(total)))
    }

    fn no_sums(&self) -> AnySums {
        let (k, dim) = (self.n_clusters(), self.head.dim);
        AnySums::new(ClusterTotals::new(ClusterSums::new(k, dim), (k, dim), self.is_wide()))
    }

    fn next(&self, now: Before, _: Starts, total: AnySums) -> Result<(Self, Step)> {
        let total = total.into_kind()?;
        if self.is_wide() { self.next_typed::<f64>(now, total) } else { self.next_typed::<f32>(now, total) }
    }
}

impl Message for KMeansPass {
    const KIND: &'static str = KMEANS_PASS;
    const NAME: &'static str = NAME;

    fn put(&self, contents: &mut Contents) {
        self.head.put(contents);
        keep(contents, "centers", self.centers.array(self.head.dim));
        if let Some(points) = &self.points {
            keep(contents, "points", points.array(self.head.dim));
        }
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let head = Head::of_contents(contents)?;
        let matrix = |name| Values::matrix(contents, name, head.dim);
        let points = contents.arrays.contains_key("points").then(|| matrix("points")).transpose()?;
        Self::of_parts(head.clone(), matrix("centers")?, points)
    }
}

/// Whether sweeps over these rows can keep anything that saves time.
fn can_keep<T: Compute>(rows: &dyn DataSource<T>) -> bool {
    rows.access() > Access::Once && rows.most_values().is_none()
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
