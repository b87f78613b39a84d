//! Approximate search among many centers: a row is compared only with the centers in the cells nearest to it.
//!
//! The cells are a rough k-means partition of the centers. The number of cells that a row searches is chosen on a
//! sample of the rows, whose nearest centers are known.

use super::assign::{check_centers, check_count};
use super::cells::{Cells, Desk, search_cut};
use super::nearest;
use crate::data::{Access, DataSource, Normalized, copy, count_rows};
use crate::error::Result;
use crate::fit::{Metric, Problems, require};
use crate::kernel::{Compute, certified_pays};
use crate::parallel::Executor;
use crate::pass::{Chunk, for_all_rows};
use crate::rng::{Purpose, Rng};
use crate::seeding::{draw, packed};
use crate::stats::project;

/// Fewest centers for which an approximate search uses cells: among fewer, an exact search takes milliseconds per
/// thousand rows.
const SEARCH_CENTERS: usize = 1024;

/// Rows on which the number of searched cells is chosen and the recall is measured: a recall of 0.99 has an error of
/// 0.3%.
const SEARCH_SAMPLE_ROWS: usize = 1024;

/// Largest share of the cells of `k` centers of `dim` columns that a row may search: with more, an exact search takes
/// less time. Certified products are several times as fast.
fn search_share(k: usize, dim: usize) -> f64 {
    // 100,000 SIFT descriptors, 20,000 centers: an exact search takes 1.5 s, 2.5% of the cells 0.9 s, 12% 2.3 s.
    if certified_pays(k, dim) { 0.05 } else { 0.2 }
}

/// How the nearest centers were found.
///
/// ```
/// let rows = [[0.0f32], [1.0], [8.0], [9.0]];
/// let model = shoal::KMeans::params(2).fit(&rows).unwrap();
/// let (labels, _, search) = model.nearest_approximately(&rows, 1, 0.99).unwrap();
/// // So few centers are compared with all rows.
/// assert_eq!((&labels[..], search.exact, search.recall), (model.labels(), true, 1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Search {
    /// All rows were compared with all centers.
    pub exact: bool,
    /// The share of the nearest centers that was found, measured on a sample of the rows. 1 for an exact search.
    pub recall: f64,
    /// Number of cells of the centers; 0 for an exact search.
    pub n_cells: usize,
    /// Number of cells that each row searched; 0 for an exact search.
    pub n_probes: usize,
}

impl Search {
    const EXACT: Self = Self { exact: true, recall: 1.0, n_cells: 0, n_probes: 0 };
}

/// As [`nearest`], but only the share `recall` of the centers is sure to be found, as measured on a sample of the
/// rows. The search is exact if there are few centers, or if a row would search many of them.
///
/// # Errors
/// Same as [`nearest`], [`Error::InvalidParam`](crate::Error::InvalidParam) if `recall` is outside `(0, 1]`, and
/// [`Error::Source`](crate::Error::Source) for a source without [`Access::Random`].
pub(crate) fn nearest_approximately<T: Compute>(
    centers: &[T],
    m: usize,
    recall: f64,
    metric: Metric,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<(Vec<u32>, Vec<f64>, Search)> {
    let (dim, n) = (data.dim(), count_rows(data)?);
    check_centers(centers, dim)?;
    let k = centers.len() / dim;
    check_count(m, k)?;
    let mut problems = Problems::new();
    problems.require(recall > 0.0 && recall <= 1.0, "recall", "above 0 and at most 1", recall);
    problems.into_result()?;
    require(Access::Random, data.access())?;
    if metric == Metric::Cosine {
        let mut unit = centers.to_vec();
        project(&mut unit, dim, metric);
        return nearest_approximately(&unit, m, recall, Metric::Euclidean, &Normalized::new(data), cx);
    }
    let exactly = |search| {
        let (labels, sq_dists) = nearest(centers, m, Metric::Euclidean, data, cx)?;
        Ok((labels, sq_dists, search))
    };
    if k < SEARCH_CENTERS || n == 0 {
        return exactly(Search::EXACT);
    }
    let all = packed(data, centers);
    let cells = Cells::new(&all, cx)?;
    let search = calibrated(centers, m, recall, &cells, data, cx)?;
    if search.n_probes as f64 > search_share(k, dim) * cells.count() as f64 {
        return exactly(Search::EXACT);
    }
    let fill = |chunk: &Chunk<'_, T>, labels: &mut [u32], sq_dists: &mut [f64], desk: &mut Desk<T>| {
        chunk.check_finite()?;
        cells.search(chunk.rows, search.n_probes, labels, sq_dists, desk, cx)?;
        Ok(())
    };
    let cut = search_cut(data);
    let (labels, sq_dists) = for_all_rows("nearest centers", data, cx, (cut, m), || cells.desk(), fill)?;
    Ok((labels, sq_dists, search))
}

/// The number of cells to search for the share `recall` of the `m` nearest centers, and the share that is then found,
/// both on a sample of the rows.
fn calibrated<T: Compute>(
    centers: &[T],
    m: usize,
    recall: f64,
    cells: &Cells<'_, T>,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<Search> {
    let n = count_rows(data)?;
    let rng = &mut Rng::keyed(0, Purpose::Validation, 0);
    let mut rows = draw(n, None, SEARCH_SAMPLE_ROWS.min(n as usize), rng);
    rows.sort_unstable();
    let sample = copy(data, &rows)?;
    let count = cells.count();
    let (found, _) = nearest::<T>(centers, m, Metric::Euclidean, &sample, cx)?;
    let (order, _) = nearest::<T>(cells.centers(), count, Metric::Euclidean, &sample, cx)?;
    let mut needed = Vec::with_capacity(found.len());
    let mut ranks = vec![0; count];
    for (found, order) in found.chunks_exact(m).zip(order.chunks_exact(count)) {
        order.iter().enumerate().for_each(|(rank, &cell)| ranks[cell as usize] = rank + 1);
        needed.extend(found.iter().map(|&j| ranks[cells.of(j) as usize]));
    }
    let (n_probes, recall) = probes_for(recall, needed, rows.len());
    Ok(Search { exact: false, recall, n_cells: count, n_probes })
}

/// The number of cells to search for the share `recall` of the neighbors, and the share that is then found. `needed`
/// are the cells to search for each neighbor of `n` sampled rows.
pub(crate) fn probes_for(recall: f64, mut needed: Vec<usize>, n: usize) -> (usize, f64) {
    needed.sort_unstable();
    // Allow for the sampling error of the measured recall.
    let spread = (recall * (1.0 - recall) / n as f64).sqrt();
    let wanted = ((recall + spread).min(1.0) * needed.len() as f64).ceil() as usize;
    let n_probes = needed[wanted.clamp(1, needed.len()) - 1];
    let within = needed.partition_point(|&needed| needed <= n_probes);
    (n_probes, within as f64 / needed.len() as f64)
}
