//! A pass over all rows that finds their nearest centers.

use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::parallel::Executor;
use crate::pass::{Chunk, sweep};
use crate::rows::Rows;

/// The nearest centers of the rows of a chunk. A worker uses the same memory for every chunk.
pub(super) struct Nearest<T> {
    pub(super) labels: Vec<u32>,
    pub(super) sq_dists: Vec<f64>,
    kernel: Scratch<T>,
}

impl<T: Compute> Default for Nearest<T> {
    fn default() -> Self {
        Self { labels: Vec::new(), sq_dists: Vec::new(), kernel: Scratch::default() }
    }
}

impl<T: Compute> Nearest<T> {
    /// Finds the labels.
    pub(super) fn label(&mut self, rows: Rows<'_, T>, packed: &PackedCenters<T>) {
        self.labels.resize(rows.rows(), 0);
        kernel::nearest(rows, packed, &mut self.labels, &mut self.kernel);
    }

    /// Measures the squared distances to the centers of the labels.
    pub(super) fn measure(&mut self, rows: Rows<'_, T>, packed: &PackedCenters<T>) {
        self.sq_dists.resize(rows.rows(), 0.0);
        kernel::sq_dists(rows, &self.labels, packed, &mut self.sq_dists);
    }
}

/// Makes one pass, as [`sweep`] does: `absorb` adds every chunk to a part that begins as `empty()`, and `merge` adds
/// the parts to `total` in row order. Returns the number of rows and the total.
pub(super) fn counted_sweep<T: Compute, P: Send>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    tile_rows: usize,
    (total, empty): (P, impl Fn() -> P + Sync),
    absorb: impl Fn(&Chunk<'_, T>, &mut P, &mut Nearest<T>) -> Result<()> + Sync,
    merge: impl Fn(&mut P, &mut P) + Sync,
) -> Result<(u64, P)> {
    let mut all = (0, total);
    let absorb = |chunk: Chunk<'_, T>, (): (), (rows, part): &mut (u64, P), nearest: &mut Nearest<T>| {
        *rows += chunk.rows.rows() as u64;
        absorb(&chunk, part, nearest)
    };
    let merge = |(rows, total): &mut (u64, P), (more, part): &mut (u64, P)| {
        *rows += std::mem::take(more);
        merge(total, part);
    };
    sweep(data, cx, tile_rows, (), &mut all, (|| (0, empty()), Nearest::default), absorb, merge)?;
    Ok(all)
}
