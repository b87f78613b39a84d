//! Many centers in cells, for searches that compare a row only with the centers in the cells nearest to it.
//!
//! The cells are a rough k-means partition of the centers.

use super::predict;
use crate::data::{DataSource, Dense, row_bytes};
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Cut, Groups};
use crate::rng::{Purpose, Rng};
use crate::rows::{RowBuf, Rows};
use crate::seeding::{Start, partition};
use crate::tuning::{CELL_SWEEPS, n_cells};

/// Rows of `row_bytes` each that search cells together: enough that packing the centers of a cell takes a small part
/// of the time.
fn search_chunk_rows(row_bytes: usize) -> usize {
    ((8 << 20) / row_bytes.max(1)).clamp(1024, 8192)
}

/// Centers in cells.
pub(crate) struct Cells<'a, T: Compute> {
    all: &'a PackedCenters<T>,
    packed: PackedCenters<T>,
    /// The cell per center, and the centers per cell.
    of: Vec<u32>,
    members: Groups,
}

/// Buffers of a worker.
pub(crate) struct Desk<T: Compute> {
    chosen: PackedCenters<T>,
    scratch: Scratch<T>,
    rows: RowBuf<T>,
    probes: Vec<u32>,
    labels: Vec<u32>,
    sq_dists: Vec<f64>,
}

/// How a pass of searches cuts the rows: many of them search a cell together.
pub(crate) fn search_cut<T: Compute>(data: &dyn DataSource<T>) -> Cut {
    let rows = search_chunk_rows(row_bytes(data));
    Cut { tile_rows: rows, chunk_rows: Some(rows) }
}

impl<'a, T: Compute> Cells<'a, T> {
    /// Cells of the centers of `all`, which are [with rows](PackedCenters::with_rows).
    pub(crate) fn new(all: &'a PackedCenters<T>, cx: &Executor) -> Result<Self> {
        let (k, dim) = (all.n_centers(), all.dim());
        let rows = Dense::new(all.centers().data(), dim)?;
        let rng = &mut Rng::keyed(0, Purpose::Node, u64::MAX);
        let (cells, _) = partition::<T>(&rows, n_cells(k as u64), Start::Random, CELL_SWEEPS, rng, cx)?;
        let of = predict::<T>(&cells, Metric::Euclidean, &rows, cx)?;
        let packed = PackedCenters::for_rows(MatRef::new(&cells, dim), all.is_sparse());
        Ok(Self { all, members: Groups::new(&of, packed.n_centers()), packed, of })
    }

    /// Number of cells.
    pub(crate) fn count(&self) -> usize {
        self.packed.n_centers()
    }

    /// The centers of the cells.
    pub(crate) fn centers(&self) -> &[T] {
        self.packed.centers().data()
    }

    /// The cell of a center.
    pub(crate) fn of(&self, j: u32) -> u32 {
        self.of[j as usize]
    }

    /// The number of cells that hold about so many centers.
    pub(crate) fn with_centers(&self, count: usize) -> usize {
        (count * self.count()).div_ceil(self.of.len()).clamp(1, self.count())
    }

    /// The buffers of a worker.
    pub(crate) fn desk(&self) -> Desk<T> {
        Desk {
            chosen: self.all.places((0..self.count()).map(|cell| self.members.len(cell)).max().unwrap_or(0)),
            scratch: Scratch::default(),
            rows: RowBuf::new(self.all.dim()),
            probes: Vec::new(),
            labels: Vec::new(),
            sq_dists: Vec::new(),
        }
    }

    /// The nearest centers of `rows` in the `n_probes` cells nearest to each, as many per row as `labels` has room for.
    /// The rows that search a cell are compared with its centers together. Returns the number of computed distances.
    pub(crate) fn search(
        &self,
        rows: Rows<'_, T>,
        n_probes: usize,
        labels: &mut [u32],
        sq_dists: &mut [f64],
        desk: &mut Desk<T>,
        cx: &Executor,
    ) -> Result<u64> {
        let m = labels.len() / rows.rows().max(1);
        desk.probes.resize(rows.rows() * n_probes, 0);
        desk.sq_dists.resize(rows.rows() * n_probes, 0.0);
        kernel::nearest_m(
            rows,
            &self.packed,
            n_probes,
            &mut desk.probes,
            &mut desk.sq_dists,
            &mut desk.scratch,
        );
        let visits = Groups::new(&desk.probes, self.count());
        let mut distances = rows.rows() * self.count();
        labels.fill(u32::MAX);
        sq_dists.fill(f64::INFINITY);
        for cell in 0..visits.count() {
            let (visits, members) = (visits.of(cell), self.members.of(cell));
            if visits.is_empty() || members.is_empty() {
                continue;
            }
            cx.check()?;
            distances += visits.len() * members.len();
            let row = |visit: u32| visit as usize / n_probes;
            desk.copy(rows, visits.iter().map(|&visit| row(visit)));
            let most = m.min(members.len());
            desk.compare(members, self.all, most);
            let found = desk.labels.chunks_exact(most).zip(desk.sq_dists.chunks_exact(most));
            for (&visit, (found, at)) in visits.iter().zip(found) {
                let place = row(visit) * m..(row(visit) + 1) * m;
                let (labels, sq_dists) = (&mut labels[place.clone()], &mut sq_dists[place]);
                found.iter().zip(at).for_each(|(&j, &sq_dist)| offer(labels, sq_dists, j, sq_dist));
            }
        }
        // Cells with too few centers, and distances that overflow.
        let short: Vec<usize> = (0..rows.rows()).filter(|i| labels[i * m + m - 1] == u32::MAX).collect();
        if !short.is_empty() {
            distances += short.len() * self.of.len();
            desk.copy(rows, short.iter().copied());
            desk.labels.resize(short.len() * m, 0);
            desk.sq_dists.resize(short.len() * m, 0.0);
            let Desk { rows, labels: found, sq_dists: at, scratch, .. } = desk;
            kernel::nearest_m(rows.rows(), self.all, m, found, at, scratch);
            for (slot, i) in short.into_iter().enumerate() {
                labels[i * m..(i + 1) * m].copy_from_slice(&found[slot * m..(slot + 1) * m]);
                sq_dists[i * m..(i + 1) * m].copy_from_slice(&at[slot * m..(slot + 1) * m]);
            }
        }
        Ok(distances as u64)
    }
}

impl<T: Compute> Desk<T> {
    /// Copies some of `rows`.
    fn copy(&mut self, rows: Rows<'_, T>, some: impl Iterator<Item = usize>) {
        match rows {
            Rows::Dense(_) => self.rows.clear(rows.cols()),
            Rows::Sparse(_) => self.rows.begin_sparse(rows.cols()),
        }
        some.for_each(|i| self.rows.push(rows, i));
    }

    /// Finds the `m` nearest of `members` for the copied rows.
    fn compare(&mut self, members: &[u32], all: &PackedCenters<T>, m: usize) {
        let Self { chosen, scratch, rows, labels, sq_dists, .. } = self;
        let rows = rows.rows();
        labels.clear();
        labels.resize(rows.rows() * m, 0);
        sq_dists.clear();
        sq_dists.resize(rows.rows() * m, 0.0);
        chosen.choose(members, all);
        if m == 1 {
            kernel::nearest(rows, chosen, labels, scratch);
        } else {
            kernel::nearest_m(rows, chosen, m, labels, sq_dists, scratch);
        }
        for label in &mut *labels {
            *label = members[(*label as usize).min(members.len() - 1)];
        }
        if m == 1 {
            kernel::sq_dists(rows, labels, all, sq_dists);
        }
    }
}

/// Adds a center to the nearest ones of a row, nearest first; of equal distances, the lower index comes first.
fn offer(labels: &mut [u32], sq_dists: &mut [f64], j: u32, sq_dist: f64) {
    let before = |slot: usize| (sq_dists[slot], labels[slot]) <= (sq_dist, j);
    let Some(slot) = (0..labels.len()).find(|&slot| !before(slot)) else { return };
    labels[slot..].rotate_right(1);
    sq_dists[slot..].rotate_right(1);
    (labels[slot], sq_dists[slot]) = (j, sq_dist);
}
