//! A sweep with bounds: rows whose bounds settle their label are not read.

use super::Labels;
use super::pass::{Moved, Part, Pass};
use crate::centers::{Editing, LabelsMut, NO_LABEL};
use crate::data::row_values;
use crate::error::Result;
use crate::kernel::Compute;
use crate::kmeans::bounds::{BoundBuffers, PanelBounds, RowBoundsMut};
use crate::pass::{Unread, Wide};

/// Labels and bounds of a chunk: upper bounds, bounds to all other centers, and bounds by group.
type PerChunk<'a> = (LabelsMut<'a>, ((&'a mut [f32], &'a mut [f32]), Wide<'a, f32>));

impl Labels {
    /// Labels all rows by the bounds and adds them to `total`.
    pub(super) fn label_by_bounds<T: Compute>(
        &mut self,
        pass: &Pass<'_, T>,
        bounds: &mut PanelBounds,
        total: &mut Part,
    ) -> Result<()> {
        let width = bounds.n_groups();
        let mut rows = bounds.take_rows();
        let values = row_values(pass.data);
        let rules = bounds.rules(pass.packed, values);
        let absorb =
            |mut chunk: Unread<'_, T>,
             (of_rows, ((upper, least), lower)): PerChunk<'_>,
             part: &mut Part,
             ((work, moved), editing): &mut ((BoundBuffers<T>, Moved<T>), Editing<'_>)| {
                let labels = of_rows.open(editing);
                let mut bounds = RowBoundsMut { upper, least, lower: lower.values };
                // Rows without bounds are compared with all centers, so any old label will do.
                let known = labels
                    .contains(&NO_LABEL)
                    .then(|| labels.iter().map(|&j| if j == NO_LABEL { 0 } else { j }).collect::<Vec<_>>());
                let old = known.as_deref().unwrap_or(labels);
                let near = rules.near(old, &mut bounds, work);
                // Recomputed sums need all rows of the chunk.
                let reads_all = pass.afresh || known.is_some() || pass.moments.is_some();
                let rows = if reads_all { chunk.read()? } else { chunk.read_of(near)? };
                part.distances += rules.label(rows.rows, old, bounds, work);
                let absorbed = if let Some(mut new) = known {
                    work.changes.iter().for_each(|&(r, label)| new[r as usize] = label);
                    part.absorb(&rows, labels, &new, pass)
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
        let chunk_rows = Some(bounds.chunk_rows(values.min(pass.data.dim())));
        let lower = Wide { values: &mut rows.lower, width };
        let per_row = (self.of_rows.view_mut(), ((&mut rows.upper[..], &mut rows.least[..]), lower));
        pass.run(chunk_rows, per_row, total, absorb)?;
        bounds.put_rows(rows);
        Ok(())
    }
}
