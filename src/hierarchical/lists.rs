//! The centers around each center, and how far they have moved since they were found.

use super::groups::Groups;
use crate::centers::nearest;
use crate::data::Dense;
use crate::error::Result;
use crate::fit::{Element, Metric};
use crate::graph::{GraphMethod, knn_graph};
use crate::kernel::{PackedCenters, Scratch, distances};
use crate::kmeans::{Algorithm, KMeans};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rows::RowBuf;
use crate::seeding::Seeding;
use crate::tuning::{CELL_SWEEPS, LIST_POOL, STRIP_ROWS, exact_lists_pay, n_cells, tree_pays};

/// The lists of all centers: the center itself and those nearest to it, in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    /// Centers in a list.
    pub(super) width: usize,
    /// `width` centers per list; empty if every list holds all centers.
    pub(super) ids: Vec<u32>,
    /// Lower bounds on the distances to the centers outside the lists, when the lists were made. Empty if the lists
    /// are approximate.
    pub(super) reach: Vec<f64>,
    /// Per center: the length of its way since then.
    pub(super) drift: Vec<f64>,
    /// The sum over sweeps of the longest move of any center.
    pub(super) far: f64,
    /// Sweeps since the lists were made.
    pub(super) age: u64,
}

/// Relative rounding of lengths in `f64`, with room to spare.
const ROUNDING: f64 = 1e-9;

/// Centers in cells, and the cells around each cell.
pub(super) struct Cells {
    /// The cell per center, and the centers per cell.
    pub(super) of: Vec<u32>,
    members: Groups,
    /// All cells for each cell, nearest first.
    around: Vec<u32>,
    /// Least number of candidates of a cell.
    wanted: usize,
}

impl Cells {
    /// Cells of the centers of `all`, each with at least `wanted` candidates.
    pub(super) fn new<T: Element>(all: &PackedCenters<T>, wanted: usize, cx: &Executor) -> Result<Self> {
        let (k, dim) = (all.n_centers(), all.dim());
        let rows = Dense::new(all.centers().data(), dim)?;
        let rows = T::own(&rows);
        let params = KMeans::params(n_cells(k as u64)).seeding(Seeding::Random).max_iter(CELL_SWEEPS);
        let mut run = params.tolerance(0.0).algorithm(Algorithm::Lloyd).start(rows)?;
        while run.advance_on(rows, cx)?.is_some() {}
        run.finish_on(rows, cx)?;
        let cells = run.centers::<T>();
        let count = cells.len() / dim;
        let (around, _) = nearest(&cells, count, Metric::Euclidean, &Dense::new(&cells, dim)?, cx)?;
        let of = run.labels();
        Ok(Self { members: Groups::new(&of, count), of, around, wanted: wanted.min(k) })
    }

    /// Number of cells.
    pub(super) fn count(&self) -> usize {
        self.members.count()
    }

    /// Upper limit of the number of candidates of a cell.
    pub(super) fn longest(&self) -> usize {
        let largest = (0..self.count()).map(|cell| self.members.len(cell)).max().unwrap_or(0);
        (self.wanted + largest).min(self.of.len())
    }

    /// Writes the centers of the cell and of the cells around it, until there are enough, in ascending order.
    pub(super) fn write(&self, cell: usize, list: &mut Vec<u32>) {
        for &near in &self.around[cell * self.count()..][..self.count()] {
            if list.len() >= self.wanted {
                break;
            }
            list.extend_from_slice(self.members.of(near as usize));
        }
        list.sort_unstable();
    }
}

/// The `width` centers nearest to each center, itself among them, as far as they are candidates of its cell.
fn approximate<T: Element>(all: &PackedCenters<T>, width: usize, cx: &Executor) -> Result<Vec<u32>> {
    let (k, cells) = (all.n_centers(), Cells::new(all, LIST_POOL * width, cx)?);
    let mut found = vec![0; k * width];
    let mut rest = &mut found[..];
    let mut parts = Vec::with_capacity(cells.count());
    for cell in 0..cells.count() {
        let (mine, others) = rest.split_at_mut(cells.members.len(cell) * width);
        rest = others;
        parts.push((cell, mine));
    }
    let desk = || (all.places(cells.longest()), Scratch::default(), Vec::new(), Vec::new());
    cx.for_each(parts.into_iter(), desk, |(cell, out), (chosen, scratch, sq_dists, pairs)| {
        if out.is_empty() {
            return Ok(());
        }
        let mut list = Vec::new();
        cells.write(cell, &mut list);
        chosen.choose(&list, all, true);
        let members = cells.members.of(cell).chunks(STRIP_ROWS).zip(out.chunks_mut(STRIP_ROWS * width));
        for (members, out) in members {
            cx.check()?;
            let values: Vec<T> =
                members.iter().flat_map(|&j| all.centers().row(j as usize)).copied().collect();
            sq_dists.resize(members.len() * list.len(), 0.0);
            distances(dense_or_sparse(&values, all).rows(), chosen, sq_dists, scratch);
            let each = sq_dists.chunks_exact(list.len()).zip(out.chunks_exact_mut(width));
            for (&j, (sq_dists, out)) in members.iter().zip(each) {
                pairs.clear();
                let own = |(&l, &d): (&u32, &f64)| (if l == j { -1.0 } else { d }, l);
                pairs.extend(list.iter().zip(sq_dists).map(own));
                let order = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
                pairs.select_nth_unstable_by(width - 1, order);
                out.iter_mut().zip(&*pairs).for_each(|(out, &(_, l))| *out = l);
                out.sort_unstable();
            }
        }
        Ok(())
    })?;
    // From the order of the cells to that of the centers.
    let mut ids = vec![0; k * width];
    for (&j, list) in cells.members.rows().iter().zip(found.chunks_exact(width)) {
        ids[j as usize * width..][..width].copy_from_slice(list);
    }
    Ok(ids)
}

/// Centers as rows of the kind that `all` is packed for.
fn dense_or_sparse<T: Element>(values: &[T], all: &PackedCenters<T>) -> RowBuf<T> {
    let mut rows = if all.is_sparse() { RowBuf::sparse(all.dim()) } else { RowBuf::new(all.dim()) };
    if all.is_sparse() {
        MatRef::new(values, all.dim())
            .iter()
            .for_each(|row| rows.push(MatRef::new(row, all.dim()).into(), 0));
    } else {
        rows.values.extend_from_slice(values);
    }
    rows
}

impl Lists {
    /// The lists of `m` centers around each center. `n` rows will be compared with them.
    pub(super) fn new<T: Element>(
        centers: MatRef<'_, T>,
        all: &PackedCenters<T>,
        m: usize,
        n: usize,
        cx: &Executor,
    ) -> Result<Self> {
        let (k, dim) = (centers.rows(), centers.cols());
        let drift = vec![0.0; k];
        if m + 1 >= k {
            return Ok(Self { width: k, reach: vec![f64::INFINITY; k], drift, ..Self::default() });
        }
        let rows = Dense::new(centers.data(), dim)?;
        if !exact_lists_pay(k, dim, n) {
            return Ok(Self { width: m + 1, ids: approximate(all, m + 1, cx)?, drift, ..Self::default() });
        }
        // One more than the list holds gives the reach.
        let found = m + 1;
        let method = if tree_pays(k as u64, dim) { GraphMethod::Tree } else { GraphMethod::Exact };
        let graph = knn_graph::<T>(&rows, found, method, 1.0, cx)?;
        let mut ids = Vec::with_capacity(k * (m + 1));
        for (j, near) in graph.neighbors().chunks_exact(found).enumerate() {
            let first = ids.len();
            ids.push(j as u32);
            ids.extend_from_slice(&near[..m]);
            ids[first..].sort_unstable();
        }
        let furthest = graph.sq_dists().chunks_exact(found).map(|near| near[m].sqrt() * (1.0 - ROUNDING));
        Ok(Self { width: m + 1, ids, reach: furthest.collect(), drift, ..Self::default() })
    }

    /// Writes the list of center `j`, or only itself and the members for which `wanted` holds.
    pub(super) fn write(&self, j: usize, wanted: impl Fn(usize) -> bool, list: &mut Vec<u32>) {
        let wanted = |&l: &u32| l as usize == j || wanted(l as usize);
        if self.ids.is_empty() {
            list.extend((0..self.width as u32).filter(wanted));
        } else {
            list.extend(self.ids[j * self.width..][..self.width].iter().copied().filter(wanted));
        }
    }

    /// Whether rows can be certified.
    pub(super) fn certify(&self) -> bool {
        !self.reach.is_empty()
    }

    /// A lower bound on the distances from center `j` to the centers outside its list, plus [`Lists::far`].
    pub(super) fn reach(&self, j: usize) -> f64 {
        self.reach[j] - self.drift[j]
    }

    /// Counts the moves of a sweep.
    pub(super) fn follow(&mut self, moves: impl Iterator<Item = f64>) {
        let mut most = 0.0f64;
        for (drift, length) in self.drift.iter_mut().zip(moves) {
            let length = length * (1.0 + ROUNDING);
            *drift += length;
            most = most.max(length);
        }
        self.far += most;
        self.age += 1;
    }
}
