//! This module knows the parameters of nested mini-batch k-means, and how a fit is put together from them.

use crate::centers::{CenterMethod, KMeansModel, Snapshot};
use crate::data::{Access, DataSource, count_rows, weights_of};
use crate::error::{Error, Result};
use crate::fit::{
    Element, Method, Run, Steps, StreamMethod, StreamSolver, either, require, run_methods, stream_methods,
};
use crate::kernel::{Compute, MAX_CENTERS};
use std::collections::HashSet;

use super::Nested;
use crate::persist::Contents;
use crate::seeding::{Seeding, Seeds};
use crate::shuffle::Shuffle;
use crate::tuning::{NESTED_BOUNDS_CHANGES, NESTED_BOUNDS_DIM};

/// Nested mini-batch k-means: as fast as mini-batch in the beginning, exact in the end. [`NestedMiniBatch::params`] is where it starts.
///
/// ```
/// use shoal::NestedMiniBatch;
/// let rows: Vec<[f32; 2]> = (0..1000).map(|i| [(i % 2) as f32 * 9.0, (i % 7) as f32]).collect();
/// for step in NestedMiniBatch::params(2).batch_size(100).solve(&rows).unwrap() {
///     let step = step.unwrap();
///     println!("{} rows: {}", step.batch_size, step.objective);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NestedMiniBatch;

impl NestedMiniBatch {
    /// Parameters for `n_clusters` clusters, all others at their defaults.
    pub fn params(n_clusters: usize) -> NestedParams {
        NestedParams {
            n_clusters,
            seeding: Seeding::Auto,
            seed: 0,
            batch_size: 5000,
            rho: 100.0,
            bounds: Bounds::Auto,
            bounds_memory: 1_000_000_000,
            buffer_memory: 1_000_000_000,
            max_iter: None,
            tolerance: 0.0,
            shuffle: true,
            compute_labels: true,
            threads: None,
        }
    }
}

/// How many bounds are kept of a row. Distances are computed for panels of a few dozen centers at a time, and a bound never stands for less
/// than a panel. The result does not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bounds {
    /// As many as memory allows, once most labels have settled; none where rows are short, and a distance costs less than a bound.
    #[default]
    Auto,
    /// One for every panel.
    Elkan,
    /// One for every four panels.
    Yinyang,
    /// One for all centers.
    Hamerly,
    /// None: all distances in every round, the growing batch of the literature.
    None,
}

impl Bounds {
    const ALL: [Self; 5] = [Self::Auto, Self::Elkan, Self::Yinyang, Self::Hamerly, Self::None];

    /// The name that Python and the command line use.
    ///
    /// ```
    /// assert_eq!(shoal::kmeans::Bounds::Hamerly.name(), "hamerly");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Elkan => "elkan",
            Self::Yinyang => "yinyang",
            Self::Hamerly => "hamerly",
            Self::None => "none",
        }
    }

    /// The bounds of that name.
    ///
    /// ```
    /// use shoal::kmeans::Bounds;
    /// assert_eq!(Bounds::named("none"), Some(Bounds::None));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bounds| bounds.name() == name)
    }

    /// The fewest panels that share a bound, if it is time for bounds: rows of `dim` columns, of `batch` of which `changed` changed
    /// their label.
    pub(super) fn begin(self, dim: usize, changed: u64, batch: u64, sparse: bool) -> Option<usize> {
        match self {
            Self::Auto => {
                let settled = changed as f64 <= NESTED_BOUNDS_CHANGES * batch as f64;
                // Among sparse rows they rule nothing out.
                (settled && dim >= NESTED_BOUNDS_DIM && !sparse).then_some(1)
            }
            Self::Elkan => Some(1),
            Self::Yinyang => Some(4),
            Self::Hamerly => Some(usize::MAX),
            Self::None => None,
        }
    }
}

/// The parameters of nested mini-batch k-means; checked all together before any work.
///
/// See [`NestedMiniBatch`] for an example.
#[derive(Clone, Debug)]
pub struct NestedParams {
    pub(super) n_clusters: usize,
    pub(super) seeding: Seeding,
    pub(super) seed: u64,
    pub(super) batch_size: u64,
    pub(super) rho: f64,
    pub(super) bounds: Bounds,
    pub(super) bounds_memory: u64,
    pub(super) buffer_memory: u64,
    pub(super) max_iter: Option<u64>,
    pub(super) tolerance: f64,
    pub(super) shuffle: bool,
    pub(super) compute_labels: bool,
    pub(super) threads: Option<usize>,
}

impl NestedParams {
    /// How the first centers are chosen among the rows of the first batch, with distinct values where there are enough (default
    /// [`Seeding::Auto`]: greedy k-means++). [`Seeding::Random`] begins sooner, and is as good where clusters are of similar size.
    #[must_use]
    pub fn seeding(mut self, seeding: Seeding) -> Self {
        self.seeding = seeding;
        self
    }

    /// Seed of all random draws (default 0).
    #[must_use]
    pub fn rng_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Rows of the first batch (default 5000). More than there are become all; fewer than clusters become ten times as many as clusters.
    #[must_use]
    pub fn batch_size(mut self, rows: u64) -> Self {
        self.batch_size = rows;
        self
    }

    /// The batch doubles once the statistical error of every center exceeds this times its last move (default 100). 0 doubles at every
    /// round, infinity only when no label changes any more, or the energy has had no new lowest for 30 rounds.
    #[must_use]
    pub fn rho(mut self, rho: f64) -> Self {
        self.rho = rho;
        self
    }

    /// Bounds that save distances (default [`Bounds::Auto`]). The result does not depend on them.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// The most bytes that bounds may take (default 1 GB): as the batch grows more centers share one, down to none.
    #[must_use]
    pub fn bounds_memory(mut self, bytes: u64) -> Self {
        self.bounds_memory = bytes;
        self
    }

    /// The most bytes of rows, with 8 for the weight of each, that are kept of those that come in pieces (default 1 GB); older ones retire.
    #[must_use]
    pub fn buffer_memory(mut self, bytes: u64) -> Self {
        self.buffer_memory = bytes;
        self
    }

    /// Most rounds (default: as many as it takes, but no more than 30 without a lower energy).
    #[must_use]
    pub fn max_iter(mut self, rounds: Option<u64>) -> Self {
        self.max_iter = rounds;
        self
    }

    /// The run ends, at full size, when the squared length of all centers' moves is at most this times the mean variance of the columns in
    /// the first batch (default 0: when no label changes).
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Batches are drawn from all rows (default); else they are the first rows of the source, which are then taken to be in random order.
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// A fit ends with the labels of all rows (default), which may take a pass over them.
    #[must_use]
    pub fn compute_labels(mut self, compute: bool) -> Self {
        self.compute_labels = compute;
        self
    }

    /// Number of threads (default: as [`Executor::new`] with `None`). The result does not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: Option<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// Checks the parameters against data of `n` rows and `d` columns.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] that lists everything that is wrong.
    pub fn check(&self, n: u64, d: usize) -> Result<()> {
        let mut wrong = Vec::new();
        if self.n_clusters == 0 || self.n_clusters > MAX_CENTERS {
            wrong.push(format!("n_clusters must be in 1..={MAX_CENTERS}, got {}", self.n_clusters));
        } else if self.n_clusters as u64 > n {
            wrong.push(format!("n_clusters={} must be at most the number of rows, {n}", self.n_clusters));
        }
        if self.batch_size == 0 {
            wrong.push("batch_size must be at least 1, got 0".into());
        }
        if self.rho.is_nan() || self.rho < 0.0 {
            wrong.push(format!("rho must be a number of at least 0, or infinity, got {}", self.rho));
        }
        if self.max_iter == Some(0) {
            wrong.push("max_iter must be at least 1, got 0".into());
        }
        if !self.tolerance.is_finite() || self.tolerance < 0.0 {
            wrong.push(format!("tol must be a finite number of at least 0, got {}", self.tolerance));
        }
        if d == 0 {
            wrong.push("X must have at least 1 column, got 0".into());
        }
        if wrong.is_empty() { Ok(()) } else { Err(Error::InvalidParam(wrong)) }
    }

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

/// A nested mini-batch fit on its way. It does not hold the data.
///
/// See [`NestedParams::start`] for an example.
pub type NestedRun = Run<NestedMiniBatch>;

/// The steps of a nested mini-batch fit. See [`NestedParams::solve`].
pub type NestedSteps<'a, S> = Steps<'a, NestedMiniBatch, S>;

impl NestedRun {
    /// Rows of the present batch, whose labels are revised in every round.
    ///
    /// ```
    /// use shoal::{Executor, NestedMiniBatch};
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let mut run = NestedMiniBatch::params(2).start(&rows).unwrap();
    /// run.advance(&rows).unwrap();
    /// assert_eq!((run.rows_used(), run.rows_retired(), run.rows_kept()), (4, 0, 0));
    /// ```
    pub fn rows_used(&self) -> u64 {
        either!(self.solver(), solver => solver.batch() as u64)
    }

    /// Rows of a stream that left memory: their last votes count for ever.
    pub fn rows_retired(&self) -> u64 {
        either!(self.solver(), solver => solver.retired)
    }
}

impl Method for NestedMiniBatch {
    type Params = NestedParams;
    type Model = KMeansModel;
    type Solver<T: Element> = Nested<T>;

    fn needs(_params: &NestedParams) -> Access {
        Access::Replay
    }

    fn admit(params: &NestedParams, has: Access, _sparse: bool) -> Result<()> {
        if params.shuffle && has < Access::Random {
            return Err(Error::Source(format!(
                "batches of rows in random order need Random access, the source has {has:?}: write it to a .npy file and open that, \
                 or say with shuffle=False that the rows come in random order"
            )));
        }
        require(Self::needs(params), has)
    }

    fn labels_at_end(params: &NestedParams) -> bool {
        params.compute_labels
    }

    fn check(params: &NestedParams, n: Option<u64>, dim: usize) -> Result<()> {
        params.check(n.unwrap_or(u64::MAX), dim)
    }

    fn threads(params: &NestedParams) -> Option<usize> {
        params.threads
    }

    fn solver<T: Element>(params: &NestedParams) -> Nested<T> {
        Nested::plan(params.clone())
    }

    fn of_checkpoint<T: Element>(params: &NestedParams, contents: &Contents) -> Result<Nested<T>, String> {
        Nested::of_checkpoint(params.clone(), contents)
    }
}

impl CenterMethod for NestedMiniBatch {
    fn snapshot<T: Element>(solver: &Nested<T>) -> Snapshot<'_, T> {
        solver.snapshot()
    }
}

impl StreamMethod for NestedMiniBatch {
    fn stream<T: Element>(solver: &Nested<T>) -> &dyn StreamSolver<T, Model = KMeansModel> {
        solver
    }

    fn stream_mut<T: Element>(solver: &mut Nested<T>) -> &mut dyn StreamSolver<T, Model = KMeansModel> {
        solver
    }

    fn of_state<T: Element>(params: &NestedParams, state: &Contents) -> Result<Nested<T>, String> {
        Nested::of_file(params.clone(), state)
    }
}

/// Rows that are looked through for other values at a time.
const LOOKED_THROUGH: u64 = 1024;
/// Their values at most.
const LOOKED_THROUGH_VALUES: u64 = 1 << 22;

/// Replaces seeds that equal an earlier one by other rows that weigh something, as long as there are any: nothing ever moves a cluster that
/// begins empty.
pub(super) fn make_distinct<T: Compute>(
    seeds: &mut Seeds<T>,
    data: &dyn DataSource<T>,
    seed: u64,
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
    // Sparse rows get their zeros: not too many of them.
    let some = (LOOKED_THROUGH_VALUES / d as u64).clamp(1, LOOKED_THROUGH);
    for start in (0..n).step_by(some as usize) {
        if twice.is_empty() {
            break;
        }
        let mut rows: Vec<u64> = (start..n.min(start + some)).map(|i| order.at(i)).collect();
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
