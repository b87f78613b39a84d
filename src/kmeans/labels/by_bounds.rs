//! A sweep with bounds: rows whose bounds settle their label are not read.

use super::{Labels, Moved, Part, Pass, PerChunk, Relabeled};
use crate::centers::{Editing, NO_LABEL};
use crate::data::{DataSource, row_values};
use crate::error::Result;
use crate::kernel::Compute;
use crate::kmeans::bounds::{RowBoundsMut, Work};
use crate::parallel::Executor;
use crate::pass::{Unread, Wide, gather_with};

impl Labels {
    /// Labels all rows by the bounds and adds them to `total`. Does nothing without bounds.
    pub(super) fn label_by_bounds<T: Compute>(
        &mut self,
        pass: &Pass<'_, T>,
        total: &mut Part,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        let Some(bounds) = &mut self.bounds else { return Ok(()) };
        let width = bounds.n_groups();
        let mut rows = bounds.take_rows();
        let rules = bounds.rules(pass.packed, row_values(data));
        let absorb = |mut chunk: Unread<'_, T>,
                      (of_rows, ((upper, least), lower)): PerChunk<'_>,
                      part: &mut Part,
                      (work, moved, editing): &mut (Work<T>, Moved<T>, Editing<'_>)| {
            let labels = of_rows.open(editing);
            let mut bounds = RowBoundsMut { upper, least, lower: lower.values };
            let unknown = labels.contains(&NO_LABEL);
            // Rows without bounds are compared with all centers, so any old label will do.
            let known: Vec<u32> = if unknown {
                labels.iter().map(|&j| if j == NO_LABEL { 0 } else { j }).collect()
            } else {
                Vec::new()
            };
            let old = if unknown { &known[..] } else { &*labels };
            let near = rules.near(old, &mut bounds, work);
            // Recomputed sums need all rows of the chunk.
            let all = pass.afresh || unknown || pass.moments.is_some();
            let rows = if all { chunk.read()? } else { chunk.read_of(near)? };
            part.distances += rules.label(rows.rows, old, bounds, work);
            let absorbed = if unknown {
                moved.new.clear();
                moved.new.extend_from_slice(&known);
                work.changes.iter().for_each(|&(r, label)| moved.new[r as usize] = label);
                part.absorb(&rows, Relabeled { old: labels, new: &moved.new }, pass)
            } else {
                part.absorb_changes(&rows, labels, &work.changes, pass, moved)
            };
            part.absorb_moments(&rows, pass, &mut moved.new);
            if absorbed.is_err() {
                return Err(chunk.read()?.not_finite());
            }
            of_rows.store(editing);
            Ok(())
        };
        let chunk_rows = Some(bounds.chunk_rows(row_values(data).min(data.dim())));
        let lower = Wide { values: &mut rows.lower, width };
        let state = (self.of_rows.view_mut(), ((&mut rows.upper[..], &mut rows.least[..]), lower));
        let make = (|| pass.empty(), || (Work::default(), Moved::default(), pass.editing()));
        gather_with(data, cx, (chunk_rows, &pass.parts), state, total, make, absorb, Part::merge)?;
        bounds.put_rows(rows);
        Ok(())
    }
}
