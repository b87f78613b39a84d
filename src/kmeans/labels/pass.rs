//! The pass of a sweep: what all workers know, and what each contributes.

use std::sync::Mutex;

use crate::centers::{Editing, Journal};
use crate::data::{DataSource, row_values};
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::parallel::Executor;
use crate::pass::{Chunk, Cut, Loan, PerRow, Pool, TILE_ROWS, Unread, sweep};
use crate::rows::RowBuf;
use crate::stats::ClusterSums;

/// What all workers of a sweep know.
pub(super) struct Pass<'a, T: Compute> {
    pub(super) packed: &'a PackedCenters<T>,
    /// The points about which squared errors are summed.
    pub(super) points: &'a PackedCenters<T>,
    pub(super) moments: Option<&'a PackedCenters<T>>,
    /// Whether all rows are summed, not only those whose label changes.
    pub(super) afresh: bool,
    pub(super) data: &'a dyn DataSource<T>,
    pub(super) cx: &'a Executor,
    /// Where changes of labels are noted.
    pub(super) journals: Option<&'a Mutex<Vec<Journal>>>,
    /// The contributions of the workers.
    pub(super) parts: Pool<Part>,
}

impl<'a, T: Compute> Pass<'a, T> {
    /// The contribution of a worker that has no rows.
    pub(super) fn empty(&self) -> Part {
        let (k, dim) = (self.packed.n_centers(), self.packed.dim());
        Part {
            clusters: ClusterSums::part(k, dim),
            changed: 0,
            distances: 0,
            weighted: false,
            moments: self.moments.map(|_| ClusterSums::part(1, dim)),
        }
    }

    /// Calls `absorb` for every chunk of the rows, with its part of `per_row`, and adds the contributions of the
    /// workers to `total`. A worker has buffers of its own, and a place to edit labels. Its contribution is empty
    /// afterwards and serves the next sweep, because large ones take a while to allocate. After an error it is not.
    pub(super) fn run<R: PerRow, B: Default>(
        &self,
        chunk_rows: Option<usize>,
        per_row: R,
        total: &mut Part,
        absorb: impl Fn(Unread<'_, T>, R, &mut Part, &mut (B, Editing<'a>)) -> Result<()> + Sync,
    ) -> Result<()> {
        let absorb = |chunk: Unread<'_, T>,
                      per_row: R,
                      (): &mut (),
                      (part, buffers): &mut (Loan<'_, Part>, (B, Editing<'a>))| {
            absorb(chunk, per_row, part, buffers)
        };
        let scratch = || (self.parts.lend(|| self.empty()), (B::default(), Editing::new(self.journals)));
        // Chunks that are whole tiles are the same for any number of threads.
        let tile_rows = if chunk_rows == Some(usize::MAX) {
            TILE_ROWS
        } else {
            let work = self.packed.n_centers() * row_values(self.data);
            Cut::for_threads(self.data.rows(), work, self.cx).tile_rows
        };
        let cut = Cut { tile_rows, chunk_rows };
        sweep(self.data, self.cx, cut, per_row, &mut (), (|| (), scratch), absorb, |(), ()| ())?;
        self.parts.merge(total, |total, parts| total.merge(parts, self.cx), self.cx)
    }
}

/// The contribution of a worker to a sweep.
pub(super) struct Part {
    pub(super) clusters: ClusterSums,
    /// Labels that changed.
    pub(super) changed: u64,
    pub(super) distances: u64,
    /// Whether rows have weights.
    pub(super) weighted: bool,
    pub(super) moments: Option<ClusterSums>,
}

/// Buffers for the rows whose label changed.
#[derive(Default)]
pub(super) struct Moved<T> {
    rows: RowBuf<T>,
    old: Vec<u32>,
    pub(super) new: Vec<u32>,
}

impl Part {
    /// Adds other parts and empties them.
    pub(super) fn merge(&mut self, parts: &mut [Self], cx: &Executor) {
        for part in &mut *parts {
            self.changed += std::mem::take(&mut part.changed);
            self.distances += std::mem::take(&mut part.distances);
            self.weighted |= std::mem::take(&mut part.weighted);
            if let (Some(total), Some(part)) = (&mut self.moments, &mut part.moments) {
                total.merge(part);
            }
        }
        self.clusters.merge_parts(parts.iter_mut().map(|part| &mut part.clusters), cx);
    }

    /// Sums a chunk by its `new` labels, and writes them over the `old` ones.
    pub(super) fn absorb<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        old: &mut [u32],
        new: &[u32],
        pass: &Pass<'_, T>,
    ) -> Result<()> {
        if pass.afresh {
            self.clusters.absorb(chunk.rows, new, chunk.weights, pass.points);
        } else {
            self.clusters.reassign(chunk.rows, old, new, pass.points);
        }
        let changed = new.iter().zip(&*old).filter(|(new, old)| new != old).count();
        old.copy_from_slice(new);
        self.count(chunk, changed)
    }

    /// Like [`Part::absorb`], from a list of the labels that changed.
    pub(super) fn absorb_changes<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        labels: &mut [u32],
        changes: &[(u32, u32)],
        pass: &Pass<'_, T>,
        moved: &mut Moved<T>,
    ) -> Result<()> {
        if !pass.afresh {
            self.absorb_moves(chunk, |r| labels[r], changes, pass, moved)?;
        }
        for &(r, new) in changes {
            labels[r as usize] = new;
        }
        if pass.afresh {
            self.clusters.absorb(chunk.rows, labels, chunk.weights, pass.points);
            self.count(chunk, changes.len())?;
        }
        Ok(())
    }

    /// Moves the rows of a chunk whose labels changed from their `old` labels to those in `changes`. Looks at no other
    /// rows.
    pub(super) fn absorb_moves<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        old: impl Fn(usize) -> u32,
        changes: &[(u32, u32)],
        pass: &Pass<'_, T>,
        moved: &mut Moved<T>,
    ) -> Result<()> {
        if changes.is_empty() {
            self.weighted |= chunk.weights.is_some();
            return Ok(());
        }
        moved.rows.clear(chunk.rows.cols());
        moved.old.clear();
        moved.new.clear();
        for &(r, new) in changes {
            moved.old.push(old(r as usize));
            moved.new.push(new);
            moved.rows.push(chunk.rows, r as usize);
        }
        self.clusters.reassign(moved.rows.rows(), &moved.old, &moved.new, pass.points);
        self.count(chunk, changes.len())
    }

    /// Counts the changed labels of a chunk that was summed. Returns an error if the sums are not finite.
    fn count<T: Compute>(&mut self, chunk: &Chunk<'_, T>, changed: usize) -> Result<()> {
        self.changed += changed as u64;
        self.weighted |= chunk.weights.is_some();
        if self.clusters.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
    }

    /// Adds all rows of a chunk to a single cluster, if moments are wanted. Overwrites `labels`.
    pub(super) fn absorb_moments<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        pass: &Pass<'_, T>,
        labels: &mut Vec<u32>,
    ) {
        if let (Some(all), Some(origin)) = (&mut self.moments, pass.moments) {
            labels.clear();
            labels.resize(chunk.rows.rows(), 0);
            all.absorb(chunk.rows, labels, None, origin);
        }
    }
}
