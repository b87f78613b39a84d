//! How many cells, and which: the number is doubled as long as that saves work.

use super::Deduplication;
use super::cells::{Cells, DUPLICATE_SAMPLE};
use crate::data::{AnySource, DataSource, copy, count_rows, row_bytes};
use crate::error::Result;
use crate::hierarchical::HierarchicalKMeans;
use crate::kernel::{Compute, Frame};
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::{Start, partition, sample_rows};
use crate::tuning::{CELL_SAMPLE_ROWS, CELL_SWEEPS};

/// Centers from which a tree seeds the cells of a search for duplicates. With 4,000 centers of SIFT descriptors, greedy
/// k-means++ takes five times as long as the sweeps that follow it, a tree a seventh, and k-means ends within 0.05%
/// (`hierarchical.py`, init).
const TREE_CENTERS: usize = 4000;

/// The first number of cells for finding duplicates among `n` rows, which doubles as long as that saves work. A few
/// thousand rows are compared in one cell. If only `n_probes` cells are searched, more cells save nothing. Rows in
/// thousands of tight groups need more than the first number.
fn duplicate_cells(n: u64, n_probes: Option<usize>) -> usize {
    match n_probes {
        _ if n <= 4096 => 1,
        None => ((n as f64).sqrt() / 2.0) as usize,
        Some(probes) => ((n as f64 * probes as f64).sqrt() as usize).min(n as usize / 2),
    }
}

/// The time of a visit, to read a row and pack it, in distances.
const VISIT_DISTANCES: f64 = 100.0;

/// What a search has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchCost {
    rows: f64,
    cells: f64,
    /// Visits of rows to cells.
    pub(super) visits: f64,
    /// Compared pairs of rows.
    pub(super) pairs: f64,
}

impl SearchCost {
    /// The work in distances.
    pub(super) fn distances(self) -> f64 {
        self.searches() + self.pairs + VISIT_DISTANCES * self.visits
    }

    /// The part of the work that finds the cells of rows, and their visits.
    fn searches(self) -> f64 {
        2.0 * self.rows * self.cells
    }
}

/// The centers of the cells, and the expected work. If their number is not given, it doubles as long as that
/// saves work.
pub(super) fn centers<T: Compute>(
    how: &Deduplication,
    data: &dyn DataSource<T>,
    frame: &Frame<T>,
    cx: &Executor,
) -> Result<(Vec<T>, SearchCost)> {
    let _phase = cx.phase("cells", 0);
    let n = count_rows(data)?;
    if let Some(k) = how.n_clusters {
        return fit(how, data, k.min(n as usize), frame, cx);
    }
    let mut best = fit(how, data, duplicate_cells(n, how.n_probes), frame, cx)?;
    loop {
        let k = best.1.cells as usize;
        let more = SearchCost { cells: 2.0 * best.1.cells, visits: 0.0, pairs: 0.0, ..best.1 };
        // The same cells hold fewer rows each, but a row searches all centers.
        if k == 1 || how.n_probes.is_some() || more.searches() > 0.8 * best.1.distances() {
            break;
        }
        let next = fit(how, data, 2 * k, frame, cx)?;
        if next.1.distances() > 0.95 * best.1.distances() {
            break;
        }
        best = next;
    }
    let all = n as f64 * (n as f64 - 1.0) / 2.0;
    if how.n_probes.is_none() && best.1.distances() > all { fit(how, data, 1, frame, cx) } else { Ok(best) }
}

/// The centers of `k` cells, by k-means on a sample of the rows, and the expected work.
fn fit<T: Compute>(
    how: &Deduplication,
    data: &dyn DataSource<T>,
    k: usize,
    frame: &Frame<T>,
    cx: &Executor,
) -> Result<(Vec<T>, SearchCost)> {
    let n = count_rows(data)?;
    let room = (how.memory / 2 / row_bytes(data) as u64) as usize;
    let most = (CELL_SAMPLE_ROWS * k).max(DUPLICATE_SAMPLE).min(room).max(k);
    let rows = copy(data, &sample_rows(n, most, how.rng_seed, 0))?;
    let centers = if k < TREE_CENTERS {
        let rng = &mut Rng::keyed(how.rng_seed, Purpose::Node, 0);
        partition::<T>(&rows, k, Start::Random, CELL_SWEEPS, rng, cx)?.0
    } else {
        let params =
            HierarchicalKMeans::params(k).rng_seed(how.rng_seed).compute_labels(false).max_iter(CELL_SWEEPS);
        let source = AnySource::of::<T>(&rows);
        let mut run = params.start(&source)?;
        while run.advance_on(&source, cx)?.is_some() {}
        run.centers()
    };
    let most = (CELL_SAMPLE_ROWS / 2 * k).min(room).max(DUPLICATE_SAMPLE);
    let others = copy(data, &sample_rows(n, most, how.rng_seed, 1))?;
    let cells = Cells::new(&others, &centers, how.reach(), how.n_probes, cx)?;
    let work = cells.work(n, &others, frame)?;
    Ok((centers, work))
}

impl<T: Compute> Cells<T> {
    /// The work of a search among `n` rows with these centers, as expected from these cells of a sample of the rows to
    /// which the centers were not fitted.
    fn work(&self, n: u64, sample: &dyn DataSource<T>, frame: &Frame<T>) -> Result<SearchCost> {
        let scale = n as f64 / self.labels.len() as f64;
        let size = |cell: usize| scale * self.groups.len(cell) as f64;
        let others = |cell: usize| scale * self.groups.len(cell).saturating_sub(1) as f64;
        let own: f64 = (0..self.len()).map(|cell| size(cell) * others(cell) / 2.0).sum();
        // The rows of a sample are in the order of their numbers: these are spread evenly.
        let count = DUPLICATE_SAMPLE.min(self.labels.len());
        let rows: Vec<u64> = (0..count).map(|i| (i * self.labels.len() / count) as u64).collect();
        let (mut visits, mut pairs) = (0.0, 0.0);
        let mut visit = |cell: u32| {
            visits += 1.0;
            pairs += size(cell as usize);
        };
        let number = |i: usize| rows[i] as u32;
        if let Some(probes) = &self.probes {
            rows.iter().flat_map(|&row| probes.others(row as usize)).copied().for_each(&mut visit);
        } else if self.len() > 1 {
            let values = copy(sample, &rows)?;
            let targets = self.framed(0..self.len(), frame, sample);
            self.for_each_visit(values.rows(), number, &targets, &mut Default::default(), |_, j| visit(j));
        }
        let each = n as f64 / count as f64;
        Ok(SearchCost {
            rows: n as f64,
            cells: self.len() as f64,
            visits: visits * each,
            pairs: own + pairs * each,
        })
    }
}
