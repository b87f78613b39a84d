//! A sweep by blocks of rows: a search finds the new labels, then one pass in row order sums the rows.

use std::sync::Mutex;

use super::{About, Labels, Moved, Part, Relabeled};
use crate::centers::{Editing, Journal, LabelsMut};
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::blocks::Blocks;
use crate::parallel::Executor;
use crate::pass::{Unread, gather_unread};
use crate::tuning::tile_rows;

/// Buffers of a worker.
#[derive(Default)]
struct Buffers<T> {
    changes: Vec<(u32, u32)>,
    picked: Vec<u32>,
    moved: Moved<T>,
}

impl Labels {
    /// Labels all rows and adds them to `total`: all of them if `afresh`, otherwise those whose label changes.
    pub(super) fn label_by_blocks<T: Compute>(
        &mut self,
        (blocks, journals): (&mut Blocks<T>, Option<&Mutex<Vec<Journal>>>),
        packed: &PackedCenters<T>,
        about: About<'_, T>,
        (total, afresh): (&mut Part, bool),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        let (k, dim) = (packed.n_centers(), packed.dim());
        let (points, moments) = (about.errors.unwrap_or(packed), about.moments);
        let all = afresh || moments.is_some();
        let work = blocks.find(self.of_rows.view(), !all, packed, cx)?;
        let found = &*blocks;
        let absorb =
            |mut chunk: Unread<'_, T>,
             labels: LabelsMut<'_>,
             part: &mut Part,
             (Buffers { changes, picked, moved }, editing): &mut (Buffers<T>, Editing<'_>)| {
                let rows = chunk.range();
                if all {
                    found.latest(rows, &mut moved.new);
                    let rows = chunk.read()?;
                    let relabeled = Relabeled { old: labels.open(editing), new: &moved.new };
                    part.absorb(&rows, relabeled, points, afresh)?;
                    labels.store(editing);
                    part.absorb_moments(&rows, moments, &mut moved.new);
                    return Ok(());
                }
                found.changes(rows, changes);
                if changes.is_empty() {
                    return Ok(());
                }
                picked.clear();
                picked.extend(changes.iter().map(|&(row, _)| row));
                let rows = chunk.read_of(picked)?;
                let absorbed = part.absorb_moves(&rows, |r| labels.get(r), changes, points, moved);
                if absorbed.is_err() {
                    // The other rows of the chunk may hold stale values.
                    return Err(chunk.read()?.not_finite());
                }
                labels.replace(changes, editing);
                Ok(())
            };
        let make = (|| Part::new(k, dim, moments.is_some()), || (Buffers::default(), Editing::new(journals)));
        gather_unread(data, cx, tile_rows(k), self.of_rows.view_mut(), total, make, absorb, Part::merge)?;
        total.distances += work.total();
        blocks.confirm();
        Ok(())
    }
}
