//! A sweep by blocks of rows: a search finds the new labels, then one pass in row order sums the rows.

use super::Labels;
use super::pass::{Moved, Part, Pass};
use crate::centers::{Editing, LabelsMut};
use crate::error::Result;
use crate::kernel::Compute;
use crate::kmeans::blocks::Blocks;
use crate::pass::Unread;

/// Buffers of a worker.
#[derive(Default)]
struct Buffers<T> {
    changes: Vec<(u32, u32)>,
    picked: Vec<u32>,
    moved: Moved<T>,
}

impl Labels {
    /// Labels all rows and adds them to `total`.
    pub(super) fn label_by_blocks<T: Compute>(
        &mut self,
        pass: &Pass<'_, T>,
        blocks: &mut Blocks<T>,
        total: &mut Part,
    ) -> Result<()> {
        let reads_all = pass.afresh || pass.moments.is_some();
        let work = blocks.find(self.of_rows.view(), !reads_all, pass.packed, pass.cx)?;
        let found = &*blocks;
        let absorb =
            |mut chunk: Unread<'_, T>,
             labels: LabelsMut<'_>,
             part: &mut Part,
             (Buffers { changes, picked, moved }, editing): &mut (Buffers<T>, Editing<'_>)| {
                let rows = chunk.range();
                if reads_all {
                    found.latest(rows, &mut moved.new);
                    let rows = chunk.read()?;
                    part.absorb(&rows, labels.open(editing), &moved.new, pass)?;
                    labels.store(editing);
                    part.absorb_moments(&rows, pass, &mut moved.new);
                    return Ok(());
                }
                found.changes(rows, changes);
                if changes.is_empty() {
                    return Ok(());
                }
                picked.clear();
                picked.extend(changes.iter().map(|&(row, _)| row));
                let rows = chunk.read_of(picked)?;
                let absorbed = part.absorb_moves(&rows, |r| labels.get(r), changes, pass, moved);
                if absorbed.is_err() {
                    // The other rows of the chunk may hold stale values.
                    return Err(chunk.read()?.not_finite());
                }
                labels.replace(changes, editing);
                Ok(())
            };
        pass.run(None, self.of_rows.view_mut(), total, absorb)?;
        total.distances += work.total();
        blocks.confirm();
        Ok(())
    }
}
