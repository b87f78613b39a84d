//! Finds all pairs of rows within a distance of each other, and keeps one row of every group of duplicates.
//!
//! 1. Of byte-identical rows, one goes on ([`identical`]).
//! 2. Rows are divided into cells by k-means ([`cells`]). A row also visits the other cells that may hold rows within
//!    the distance; a lemma about the bisectors of centers says which, so that no pair is missed.
//! 3. The rows of a cell are compared with each other and with its visitors ([`pairs`]).
//! 4. Pairs become groups, and every group keeps the row that comes first in the order of [`Keep`] ([`linkage`]).
//!
//! Sources: Abbas et al., "`SemDeDup`: Data-efficient learning at web-scale through semantic deduplication", 2023,
//! which compares rows within cells only; the bisector bound follows from the triangle inequality (see [`cells`]).

mod cells;
mod choice;
mod identical;
mod linkage;
mod pairs;
mod state;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use crate::data::{Access, DataSource, Normalized, Source, count_rows, fingerprint};
use crate::error::{Error, Result};
use crate::fit::{Metric, Problems, parameters, require};
use crate::float::either;
use crate::graph::frame;
use crate::kernel::{Compute, Frame};
use crate::parallel::Executor;
use crate::tuning::DEFAULT_MEMORY;
use cells::Cells;
use identical::Distinct;
pub use linkage::{Keep, Linkage};
use linkage::{Links, Ranks};
use pairs::Pairing;

/// Multiplications of a step of a search for duplicates: some tens of seconds on two cores.
const DUPLICATE_STEP: f64 = 2e12;

/// Finds duplicates: rows within a distance of each other. Begin with [`Deduplication::within`].
///
/// All pairs are found: rows are divided into cells, and the rows near the border of a cell are also compared with the
/// rows of the cells beyond. Costs `2 n k d` operations for `k` cells, and `2 d` for every pair that the cells do not
/// exclude. Memory: some 60 bytes per row, the centers, and [`memory`](Self::memory) for pairs and visits. More pairs
/// are moved to a temporary file.
///
/// ```
/// use shoal::{Metric, curation::Deduplication};
/// let rows = [[1.0f32, 0.0], [0.0, 2.0], [7.0, 0.01], [0.0, 3.0]];
/// let found = Deduplication::within(0.001).metric(Metric::Cosine).find(&rows)?;
/// assert_eq!(found.representatives(), [0, 1, 0, 1]);
/// assert_eq!((found.kept(), found.n_pairs()), (vec![0, 1], 2));
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Deduplication {
    threshold: f64,
    metric: Metric,
    keep: Keep,
    linkage: Linkage,
    n_clusters: Option<usize>,
    n_probes: Option<usize>,
    rng_seed: u64,
    memory: u64,
    threads: Option<usize>,
}

impl Deduplication {
    /// Finds rows within `threshold` of each other: a Euclidean distance, or a cosine distance (1 minus the cosine
    /// similarity) with [`Metric::Cosine`].
    pub fn within(threshold: f64) -> Self {
        Self {
            threshold,
            metric: Metric::Euclidean,
            keep: Keep::First,
            linkage: Linkage::Leader,
            n_clusters: None,
            n_probes: None,
            rng_seed: 0,
            memory: DEFAULT_MEMORY,
            threads: None,
        }
    }

    parameters!(@setter [
        /// The distance (default [`Metric::Euclidean`]). With [`Metric::Cosine`], rows of zeros have no duplicates.
    ] metric: Metric);
    parameters!(@setter [
        /// Which row of a group is kept (default [`Keep::First`]).
    ] keep: Keep);
    parameters!(@setter [
        /// How pairs become groups (default [`Linkage::Leader`]).
    ] linkage: Linkage);
    parameters!(@setter [
        /// Number of cells (default `None`: by the number of rows). With [`Keep::First`], the result does not depend
        /// on it unless `n_probes` is set.
    ] n_clusters: Option<usize>);
    parameters!(@setter [
        /// Number of cells whose rows a row is compared with, its own included: the nearest ones. The default `None`
        /// searches all cells that may hold duplicates, and finds every pair; 1 searches within cells only.
    ] n_probes: Option<usize>);
    parameters!(@setter [
        /// Seed of all random draws (default 0).
    ] rng_seed: u64);
    parameters!(@setter [
        /// Bytes for pairs, for visits, and for the rows that the cells are fitted to (default 1 GB).
    ] memory: u64);
    parameters!(@setter [
        /// Number of threads (default `None`: see [`Executor::new`]). The result does not depend on it.
    ] threads: Option<usize>);

    /// The duplicates among `rows`, which must be in memory or in a mapped file.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) for a threshold that is negative or not finite, or a number
    /// out of range. [`Error::Source`](crate::Error::Source) for rows without [`Access::Random`].
    /// [`Error::NotFinite`](crate::Error::NotFinite) for NaN or infinite values. Errors of the source.
    pub fn find<S: Source>(&self, rows: S) -> Result<Duplicates> {
        let cx = Executor::of_call(self.threads)?;
        either!(rows.any(), data => match self.metric {
            Metric::Euclidean => self.find_in(data, &cx),
            Metric::Cosine => self.find_in(&Normalized::new(data), &cx),
        })
    }

    /// As [`find`](Self::find), for rows as the metric sees them.
    fn find_in<T: Compute>(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Duplicates> {
        let mut search = Search::start(self.clone(), data, cx)?;
        while search.advance(data, cx)? {}
        search.finish(data, cx)
    }

    /// Checks the parameters for `n` rows of `dim` columns.
    fn check(&self, n: u64, dim: usize) -> Result<()> {
        let mut problems = Problems::new();
        problems.columns(dim);
        problems.finite_at_least_0("threshold", self.threshold);
        if let Some(k) = self.n_clusters {
            problems.clusters("n_clusters", k, Some(n));
        }
        if let Some(probes) = self.n_probes {
            problems.at_least_1("n_probes", probes as u64);
        }
        problems.at_least_1("memory", self.memory);
        let most = format!("at most {} to find duplicates", u32::MAX - 1);
        problems.require(n < u64::from(u32::MAX), "number of rows", most, n);
        problems.into_result()
    }

    fn is_cosine(&self) -> bool {
        self.metric == Metric::Cosine
    }

    /// The squared Euclidean distance that the threshold stands for.
    fn reach(&self) -> f64 {
        match self.metric {
            Metric::Euclidean => self.threshold * self.threshold,
            Metric::Cosine => 2.0 * self.threshold,
        }
    }
}

/// Groups of duplicate rows, from [`Deduplication::find`].
///
/// See [`Deduplication`] for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Duplicates {
    pub(crate) representatives: Vec<u32>,
    pub(crate) n_pairs: u64,
    pub(crate) n_clusters: usize,
    pub(crate) compared: f64,
    pub(crate) recall: f64,
}

impl Duplicates {
    /// For every row the kept row of its group: its own number for rows that are kept. With [`Linkage::Leader`], the
    /// first kept row within the threshold.
    pub fn representatives(&self) -> &[u32] {
        &self.representatives
    }

    /// The numbers of the rows that are kept, in ascending order.
    pub fn kept(&self) -> Vec<u32> {
        let kept = (0..).zip(&self.representatives).filter(|&(row, &representative)| row == representative);
        kept.map(|(row, _)| row).collect()
    }

    /// Number of pairs of rows within the threshold.
    pub fn n_pairs(&self) -> u64 {
        self.n_pairs
    }

    /// Number of cells.
    pub fn n_clusters(&self) -> usize {
        self.n_clusters
    }

    /// Computed distances, as a share of the number of pairs of different rows. Above 1 if there are too many cells:
    /// rows that visit each other's cells are compared twice.
    pub fn compared(&self) -> f64 {
        self.compared
    }

    /// The share of the pairs of different rows that was found: 1, or with [`n_probes`](Deduplication::n_probes) as
    /// measured on a sample of rows.
    pub fn recall(&self) -> f64 {
        self.recall
    }
}

/// A search for duplicates that advances step by step: a step finds the pairs of some cells. It does not hold the data.
#[derive(Debug)]
pub(crate) struct Search<T: Compute> {
    how: Deduplication,
    n: u64,
    /// Recognizes the rows.
    fingerprint: u64,
    distinct: Distinct,
    frame: Frame<T>,
    cells: Cells<T>,
    ranks: Ranks,
    links: Links,
    n_pairs: u64,
    compared: u64,
    /// The first cell that is not done, and the number of cells per step.
    next: usize,
    per_step: usize,
    /// The share of all pairs that is expected to be compared.
    expected: f64,
}

impl<T: Compute> Search<T> {
    /// Collapses identical rows, divides the rows into cells, and estimates the work. `data` are the rows as the metric
    /// sees them.
    pub(crate) fn start(how: Deduplication, data: &dyn DataSource<T>, cx: &Executor) -> Result<Self> {
        require(Access::Random, data.access())?;
        let n = count_rows(data)?;
        how.check(n, data.dim())?;
        if n == 0 {
            return Err(Error::Empty("`rows` must hold at least 1 row to find duplicates, got 0".into()));
        }
        let distinct = Distinct::of(data, how.is_cosine(), cx)?;
        let view = distinct.view(data);
        let m = count_rows(&view)?;
        let frame = frame(&view, None, cx)?;
        let (centers, work) = choice::centers(&how, &view, &frame, cx)?;
        let cells = Cells::new(&view, &centers, how.reach(), how.n_probes, cx)?;
        let (k, ranks) = (cells.len(), Ranks::new(&distinct, &cells, how.keep, data.weights()));
        let bytes = work.visits * size_of::<(u32, u32)>() as f64;
        let steps =
            (work.distances() * data.dim() as f64 / DUPLICATE_STEP).max(4.0 * bytes / how.memory as f64);
        let steps = steps.ceil().clamp(1.0, k as f64);
        let all = m as f64 * (m as f64 - 1.0) / 2.0;
        Ok(Self {
            links: Links::new(how.linkage, m as usize, how.memory)?,
            n_pairs: distinct.n_pairs(),
            expected: if all > 0.0 { work.pairs / all } else { 0.0 },
            per_step: k.div_ceil(steps as usize),
            compared: 0,
            next: 0,
            fingerprint: fingerprint(data)?,
            how,
            n,
            distinct,
            frame,
            cells,
            ranks,
        })
    }

    /// The share of all pairs that is expected to be compared, as estimated on a sample of rows.
    #[cfg(feature = "python")]
    pub(crate) fn expected(&self) -> f64 {
        self.expected
    }

    /// The share of the cells that are done.
    #[cfg(feature = "python")]
    pub(crate) fn done(&self) -> f64 {
        self.next as f64 / self.cells.len() as f64
    }

    /// Finds the pairs of the next cells. Returns whether cells are left. After an error the step can be repeated:
    /// groups do not depend on pairs that are found twice.
    pub(crate) fn advance(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<bool> {
        let view = self.distinct.view(data);
        let targets = self.next..self.cells.len().min(self.next + self.per_step);
        let visits = self.cells.visits(&view, targets.clone(), &self.frame, cx)?;
        let pairing = Pairing {
            data: &view,
            frame: &self.frame,
            cells: &self.cells,
            ranks: &self.ranks,
            distinct: &self.distinct,
        };
        let links = &mut self.links;
        let (found, compared) = pairing.run(targets.clone(), &visits, |pairs| links.take(pairs), cx)?;
        self.n_pairs += found;
        self.compared += compared;
        self.next = targets.end;
        Ok(self.next < self.cells.len())
    }

    /// Groups the rows by the pairs that were found.
    pub(crate) fn finish(self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Duplicates> {
        let view = self.distinct.view(data);
        let m = count_rows(&view)?;
        let recall = if self.how.n_probes.is_some() {
            self.cells.recall(&view, &self.frame, &self.distinct, self.how.rng_seed, cx)?
        } else {
            1.0
        };
        let leaders = self.links.into_leaders(cx)?;
        let all = m as f64 * (m as f64 - 1.0) / 2.0;
        Ok(Duplicates {
            representatives: self.ranks.representatives(self.n, &self.distinct, &leaders),
            n_pairs: self.n_pairs,
            n_clusters: self.cells.len(),
            compared: if all > 0.0 { self.compared as f64 / all } else { 0.0 },
            recall,
        })
    }
}
