//! A sweep by sketches: rows that their sketches and bounds decide are not read.

use super::{Labels, Moved, Part, Pass};
use crate::centers::{Editing, LabelsMut, NO_LABEL};
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::Compute;
use crate::kmeans::sketches::{Reading, RowSketches, Work};
use crate::parallel::Executor;
use crate::pass::{Unread, gather_with};

impl Labels {
    /// Labels all rows by their sketches and adds them to `total`. Does nothing without sketches.
    pub(super) fn label_by_sketches<T: Compute>(
        &mut self,
        pass: &Pass<'_, T>,
        total: &mut Part,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        // After an error there are no sketches.
        let Some(mut sketches) = self.sketches.take() else { return Ok(()) };
        let packed = pass.packed;
        let mut rows = sketches.take_rows();
        let widths = sketches.widths();
        let rules = sketches.rules(packed.centers());
        // Recomputed sums need all rows.
        let reads_all = pass.afresh || rules.needs_all() || pass.moments.is_some();
        let absorb = |mut chunk: Unread<'_, T>,
                      (of_rows, mut rows): (LabelsMut<'_>, RowSketches<'_>),
                      part: &mut Part,
                      (work, moved, editing): &mut (Work, Moved<T>, Editing<'_>)| {
            let labels = of_rows.open(editing);
            let reading = if reads_all || labels.contains(&NO_LABEL) {
                Reading::All(chunk.read()?)
            } else {
                Reading::None(&mut chunk)
            };
            let rows = rules.label(reading, labels, &mut rows, packed, work)?;
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
        let state = (self.of_rows.view_mut(), rows.view_mut(widths));
        let make = (|| pass.empty(), || (Work::default(), Moved::default(), pass.editing()));
        gather_with(data, cx, (chunk_rows, &pass.parts), state, total, make, absorb, Part::merge)?;
        drop(rules);
        sketches.put_rows(rows);
        self.sketches = Some(sketches);
        Ok(())
    }
}
