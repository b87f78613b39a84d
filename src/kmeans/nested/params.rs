//! The parameters of nested mini-batch k-means.

use std::collections::HashSet;

use crate::data::{DataSource, count_rows, weights_of};
use crate::error::Result;
use crate::fit::{Metric, parameters, run_methods, stream_methods};
use crate::kernel::Compute;
use crate::names::names;
use crate::seeding::{Seeding, Seeds};
use crate::shuffle::Shuffle;
use crate::tuning::DEFAULT_MEMORY;

/// Upper limit of the share of changed labels in an iteration of nested batches for which bounds begin:
/// before, most bounds fail and take more time than they save.
const NESTED_BOUNDS_CHANGES: f64 = 0.15;

/// Number of columns from which bounds of nested batches are faster, for any number of centers: with 50 and
/// 256 centers, iterations without bounds take 0.7 to 1.1 times as long at 3 and 8 columns, 1.1 to 1.7 at 12, 1.2
/// to 2.8 at 16, 2.8 to 3.1 at 24.
const NESTED_BOUNDS_DIM: usize = 16;

/// Nested mini-batch k-means: starts as fast as mini-batch k-means and converges to exact k-means. Begin with
/// [`NestedMiniBatch::params`].
///
/// ```
/// use shoal::NestedMiniBatch;
/// let rows: Vec<[f32; 2]> = (0..1000).map(|i| [(i % 2) as f32 * 9.0, (i % 7) as f32]).collect();
/// for step in NestedMiniBatch::params(2).batch_size(100).solve(&rows).unwrap() {
///     let step = step.unwrap();
///     println!("{} rows: {}", step.batch_size, step.objective);
/// }
/// ```
#[doc(alias = "NestedMiniBatchKMeans")]
#[derive(Clone, Copy, Debug)]
pub struct NestedMiniBatch;

/// How many bounds are kept per row. Distances are computed for panels of a few dozen centers at a time, and
/// a bound covers at least one panel. The result does not depend on it.
///
/// ```
/// use shoal::kmeans::Bounds;
/// assert_eq!(Bounds::Hamerly.to_string(), "hamerly");
/// assert_eq!("none".parse::<Bounds>().unwrap(), Bounds::None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bounds {
    /// As many as memory allows, once most labels have settled. None if rows are so short that a distance
    /// costs less than a bound.
    #[default]
    Auto,
    /// One per panel.
    Elkan,
    /// One per four panels.
    Yinyang,
    /// One for all centers.
    Hamerly,
    /// None: all distances in every sweep, the growing batch of the literature.
    None,
}

names! {
    Bounds("bounds") {
        Auto = "auto",
        Elkan = "elkan",
        Yinyang = "yinyang",
        Hamerly = "hamerly",
        None = "none",
    }
}

impl Bounds {
    /// Returns the smallest number of panels that share a bound, or `None` if bounds do not pay off yet. The
    /// batch has `batch` rows of `dim` columns, of which `changed` changed their label.
    pub(super) fn begin(self, dim: usize, changed: u64, batch: u64, sparse: bool) -> Option<usize> {
        match self {
            Self::Auto => {
                let settled = changed as f64 <= NESTED_BOUNDS_CHANGES * batch as f64;
                // With sparse rows bounds skip nothing.
                (settled && dim >= NESTED_BOUNDS_DIM && !sparse).then_some(1)
            }
            Self::Elkan => Some(1),
            Self::Yinyang => Some(4),
            Self::Hamerly => Some(usize::MAX),
            Self::None => None,
        }
    }
}

parameters! {
    /// The parameters of nested mini-batch k-means. A fit checks all of them before it starts.
    ///
    /// See [`NestedMiniBatch`] for an example.
    NestedParams,
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    NestedMiniBatch::params(n_clusters) {
        /// How the first centers are chosen. The default [`Seeding::Auto`] looks at all rows: greedy k-means++ on few
        /// rows, else k-means|| with few candidates, in about the time of labeling all rows three
        /// times. For a stream it is greedy k-means++ on the first
        /// batch. All others look at the first batch only; they start sooner, and [`Seeding::Random`] is as good for
        /// clusters of similar size. Centers are distinct if enough rows differ.
        #[doc(alias = "init")]
        seeding: Seeding = Seeding::Auto,
        /// Seed of all random draws (default 0).
        #[doc(alias = "random_state")]
        rng_seed: u64 = 0,
        /// Rows of the first batch (default 5000). A value above the number of rows takes all rows; a value
        /// below `n_clusters` takes `10 n_clusters` rows.
        batch_size: u64 = 5000 => at_least_1(),
        /// The batch doubles once the statistical error of every center exceeds this times its last movement
        /// (default 100). With 0 it doubles in every sweep; with infinity only when no label changes, or when
        /// 30 sweeps have brought no lower energy.
        rho: f64 = 100.0 => Range(|rho| rho >= 0.0, "a number of at least 0, or infinity"),
        /// The distance (default [`Metric::Euclidean`]). With [`Metric::Cosine`] rows are scaled to length 1 as they
        /// are read, and centers lie on the unit sphere.
        ///
        /// ```
        /// use shoal::{Metric, NestedMiniBatch};
        /// let rows: Vec<[f64; 2]> = (1..99).map(|i| if i % 2 == 0 { [f64::from(i), 0.0] } else { [0.0, 1.0] }).collect();
        /// let model = NestedMiniBatch::params(2).metric(Metric::Cosine).fit(&rows)?;
        /// assert_eq!(model.inertia(), 0.0);
        /// # Ok::<(), shoal::Error>(())
        /// ```
        metric: Metric = Metric::Euclidean,
        /// Bounds that skip distances (default [`Bounds::Auto`]). The result does not depend on them.
        bounds: Bounds = Bounds::Auto,
        /// Upper limit for the bytes of the bounds (default 1 GB). As the batch grows, more centers share a
        /// bound, down to none.
        bounds_memory: u64 = DEFAULT_MEMORY,
        /// Upper limit for the bytes of streamed rows kept in memory, with 8 bytes per row for its weight
        /// (default 1 GB). The oldest rows retire first.
        buffer_memory: u64 = DEFAULT_MEMORY,
        /// Maximum number of sweeps (default `None`: until convergence; 30 sweeps without a lower energy
        /// count as convergence).
        max_iter: Option<u64> = None => at_least_1(),
        /// Once the batch holds all rows, the run ends when the sum of the squared center movements is at
        /// most this times the mean variance of the columns in the first batch (default 0: the run ends when
        /// no label changes).
        #[doc(alias = "tol")]
        tolerance: f64 = 0.0 => finite_at_least_0(),
        /// Whether batches are drawn from all rows (default true). With `false` they are the first rows of
        /// the source, which must come in random order.
        shuffle: bool = true,
        /// Whether a fit ends with the labels of all rows, which may take a pass over them (default true).
        compute_labels: bool = true,
    }
    check;
}

impl NestedParams {
    /// Rows of the first batch, of `n`.
    pub(crate) fn first_batch(&self, n: u64) -> u64 {
        let k = self.n_clusters as u64;
        if self.batch_size < k { (10 * k).min(n) } else { self.batch_size.min(n) }
    }
}

run_methods! {
    NestedParams, NestedMiniBatch;
    fit;
    /// ```
    /// use shoal::NestedMiniBatch;
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let mut run = NestedMiniBatch::params(2).start(&rows).unwrap();
    /// while run.advance(&rows).unwrap().is_some() {}
    /// assert_eq!(run.finish(&rows).unwrap(), 1.0);
    /// ```
    start;
    /// See [`KMeansParams::resume_fit`](crate::kmeans::KMeansParams::resume_fit) for an example.
    resume_fit;
    /// See [`NestedMiniBatch`] for an example.
    solve;
}

stream_methods! {
    NestedParams, NestedMiniBatch;
    /// ```
    /// use shoal::NestedMiniBatch;
    /// let pieces = [vec![[0.0f64], [9.0]], vec![[1.0], [8.0], [0.5]]];
    /// let mut run = NestedMiniBatch::params(2).stream(&pieces[0]).unwrap();
    /// for piece in &pieces {
    ///     run.partial_fit(piece).unwrap();
    /// }
    /// assert_eq!(run.centers::<f64>().len(), 2);
    /// ```
    stream;
    /// ```
    /// use shoal::NestedMiniBatch;
    /// let params = NestedMiniBatch::params(2);
    /// let mut run = params.stream(&[[0.0f64], [9.0]]).unwrap();
    /// run.partial_fit(&[[0.0f64], [9.0]]).unwrap();
    /// let mut again = params.resume(&run.state()).unwrap();
    /// for run in [&mut run, &mut again] {
    ///     run.partial_fit(&[[1.0f64], [8.0]]).unwrap();
    /// }
    /// assert_eq!(run.centers::<f64>(), again.centers::<f64>());
    /// ```
    resume;
}

/// Number of rows that are searched for other values at a time.
const LOOKED_THROUGH: u64 = 1024;
/// Upper limit for the number of values of these rows.
const LOOKED_THROUGH_VALUES: u64 = 1 << 22;

/// Replaces duplicate seeds by other rows with a positive weight, if there are any among `most` random rows, because a
/// cluster that starts empty stays empty.
pub(super) fn make_distinct<T: Compute>(
    seeds: &mut Seeds<T>,
    data: &dyn DataSource<T>,
    (seed, most): (u64, u64),
) -> Result<()> {
    // Equal values have equal bits, but for the sign of 0.
    let key = |row: &[T]| row.iter().map(|x| (x.to_f64() + 0.0).to_bits()).collect::<Vec<u64>>();
    let d = data.dim();
    let mut known = HashSet::new();
    let mut twice: Vec<usize> =
        (0..seeds.rows.len()).filter(|&j| !known.insert(key(&seeds.centers[j * d..(j + 1) * d]))).collect();
    twice.reverse();
    if twice.is_empty() {
        return Ok(());
    }
    let weights = weights_of(data)?;
    let n = count_rows(data)?;
    let order = Shuffle::new(n, seed);
    // Sparse rows get their zeros here, so that the number of values is limited.
    let some = (LOOKED_THROUGH_VALUES / d as u64).clamp(1, LOOKED_THROUGH);
    let most = n.min(most);
    for start in (0..most).step_by(some as usize) {
        if twice.is_empty() {
            break;
        }
        let mut rows: Vec<u64> = (start..most.min(start + some)).map(|i| order.at(i)).collect();
        if let Some(weights) = &weights {
            rows.retain(|&row| weights[row as usize] > 0.0);
        }
        let values = crate::data::take(data, &rows)?;
        for (&row, values) in rows.iter().zip(values.chunks_exact(d)) {
            if values.iter().all(|x| x.finite())
                && known.insert(key(values))
                && let Some(j) = twice.pop()
            {
                seeds.centers[j * d..(j + 1) * d].copy_from_slice(values);
                seeds.rows[j] = row;
            }
        }
    }
    Ok(())
}
