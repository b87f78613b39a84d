//! A sweep by sketches: rows that their sketches and bounds decide are not read.

use std::sync::Mutex;

use super::{About, Labels, Moved, Part};
use crate::centers::{Editing, Journal, LabelsMut, NO_LABEL};
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::sketches::{Reading, RowSketches, Work};
use crate::parallel::Executor;
use crate::pass::{Cut, Unread, gather_unread};
use crate::tuning::tile_rows;

impl Labels {
    /// Labels all rows by their sketches and adds them to `total`: all of them if `afresh`, otherwise those whose label
    /// changes. Does nothing without sketches.
    pub(super) fn label_by_sketches<T: Compute>(
        &mut self,
        journals: Option<&Mutex<Vec<Journal>>>,
        packed: &PackedCenters<T>,
        about: About<'_, T>,
        (total, afresh): (&mut Part, bool),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        // After an error there are no sketches.
        let Some(mut sketches) = self.sketches.take() else { return Ok(()) };
        let (k, dim) = (packed.n_centers(), packed.dim());
        let (points, moments) = (about.errors.unwrap_or(packed), about.moments);
        let mut rows = sketches.take_rows();
        let widths = sketches.widths();
        let rules = sketches.rules(packed.centers());
        // Recomputed sums need all rows.
        let reads_all = afresh || rules.needs_all() || moments.is_some();
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
            let chunk_rows = rules.label(reading, labels, &mut rows, packed, work)?;
            part.distances += work.distances;
            let absorbed = part.absorb_changes(&chunk_rows, labels, &work.changes, points, afresh, moved);
            part.absorb_moments(&chunk_rows, moments, &mut moved.new);
            if absorbed.is_err() {
                return Err(chunk.read()?.not_finite());
            }
            of_rows.store(editing);
            Ok(())
        };
        let cut =
            Cut { tile_rows: tile_rows(k), chunk_rows: Some(rules.chunk_rows(tile_rows(k), reads_all)) };
        let state = (self.of_rows.view_mut(), rows.view_mut(widths));
        let make = (
            || Part::new(k, dim, moments.is_some()),
            || (Work::default(), Moved::default(), Editing::new(journals)),
        );
        gather_unread(data, cx, cut, state, total, make, absorb, Part::merge)?;
        drop(rules);
        sketches.put_rows(rows);
        self.sketches = Some(sketches);
        Ok(())
    }
}
