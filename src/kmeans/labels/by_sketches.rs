//! A sweep by sketches: rows that their sketches and bounds decide are not read.

use super::Labels;
use super::pass::{Moved, Part, Pass};
use crate::centers::{Editing, LabelsMut, NO_LABEL};
use crate::error::Result;
use crate::kernel::Compute;
use crate::kmeans::sketches::{Reading, RowSketches, SketchBuffers, Sketches};
use crate::pass::Unread;

impl Labels {
    /// Labels all rows by their sketches and adds them to `total`.
    pub(super) fn label_by_sketches<T: Compute>(
        &mut self,
        pass: &Pass<'_, T>,
        sketches: &mut Sketches,
        total: &mut Part,
    ) -> Result<()> {
        let mut rows = sketches.take_rows();
        let widths = sketches.widths();
        let rules = sketches.rules(pass.packed.centers(), pass.cx);
        // Recomputed sums need all rows.
        let reads_all = pass.afresh || rules.needs_all() || pass.moments.is_some();
        let absorb =
            |mut chunk: Unread<'_, T>,
             (of_rows, mut rows): (LabelsMut<'_>, RowSketches<'_>),
             part: &mut Part,
             ((work, moved), editing): &mut ((SketchBuffers, Moved<T>), Editing<'_>)| {
                let labels = of_rows.open(editing);
                let reading = if reads_all || labels.contains(&NO_LABEL) {
                    Reading::All(chunk.read()?)
                } else {
                    Reading::Unread(&mut chunk)
                };
                let rows = rules.label(reading, labels, &mut rows, pass.packed, work)?;
                part.distances += work.distances;
                let absorbed = part.absorb_changes(&rows, labels, &work.changes, pass, moved);
                part.absorb_moments(&rows, pass, &mut moved.new);
                if absorbed.is_err() {
                    return Err(chunk.read()?.not_finite());
                }
                of_rows.store(editing);
                Ok(())
            };
        let chunk_rows = Some(rules.chunk_rows(reads_all));
        let per_row = (self.of_rows.view_mut(), rows.view_mut(widths));
        pass.run(chunk_rows, per_row, total, absorb)?;
        drop(rules);
        sketches.put_rows(rows);
        Ok(())
    }
}
