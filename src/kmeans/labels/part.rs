//! What one worker contributes to a sweep.

use super::sweep::Pass;
use crate::error::Result;
use crate::kernel::Compute;
use crate::pass::Chunk;
use crate::rows::RowBuf;
use crate::stats::ClusterSums;

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
    /// Adds another part and empties it.
    pub(super) fn merge(&mut self, part: &mut Self) {
        self.clusters.merge(&mut part.clusters);
        self.changed += std::mem::take(&mut part.changed);
        self.distances += std::mem::take(&mut part.distances);
        self.weighted |= std::mem::take(&mut part.weighted);
        if let (Some(total), Some(part)) = (&mut self.moments, &mut part.moments) {
            total.merge(part);
        }
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
