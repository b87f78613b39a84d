//! A sweep with bounds: rows whose bounds settle their label are not read.

use std::sync::Mutex;

use super::{About, Labels, Moved, Part, PerChunk, Relabeled};
use crate::centers::{Editing, Journal, NO_LABEL};
use crate::data::{DataSource, row_values};
use crate::error::Result;
use crate::kernel::{Compute, PackedCenters};
use crate::kmeans::bounds::{RowBoundsMut, Work};
use crate::parallel::Executor;
use crate::pass::{Cut, Unread, Wide, gather_unread};
use crate::tuning::tile_rows;

impl Labels {
    /// Labels all rows by the bounds and adds them to `total`: all of them if `afresh`, otherwise those whose label
    /// changes. Does nothing without bounds.
    pub(super) fn label_by_bounds<T: Compute>(
        &mut self,
        journals: Option<&Mutex<Vec<Journal>>>,
        packed: &PackedCenters<T>,
        about: About<'_, T>,
        (total, afresh): (&mut Part, bool),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        let Some(bounds) = &mut self.bounds else { return Ok(()) };
        let (k, dim) = (packed.n_centers(), packed.dim());
        let (points, moments) = (about.errors.unwrap_or(packed), about.moments);
        let width = bounds.n_groups();
        let mut rows = bounds.take_rows();
        let rules = bounds.rules(packed, row_values(data));
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
            let all = afresh || unknown || moments.is_some();
            let rows = if all { chunk.read()? } else { chunk.read_of(near)? };
            part.distances += rules.label(rows.rows, old, bounds, work);
            let absorbed = if unknown {
                moved.new.clear();
                moved.new.extend_from_slice(&known);
                work.changes.iter().for_each(|&(r, label)| moved.new[r as usize] = label);
                part.absorb(&rows, Relabeled { old: labels, new: &moved.new }, points, afresh)
            } else {
                part.absorb_changes(&rows, labels, &work.changes, points, afresh, moved)
            };
            part.absorb_moments(&rows, moments, &mut moved.new);
            if absorbed.is_err() {
                return Err(chunk.read()?.not_finite());
            }
            of_rows.store(editing);
            Ok(())
        };
        let cut =
            Cut { tile_rows: tile_rows(k), chunk_rows: Some(bounds.chunk_rows(row_values(data).min(dim))) };
        let lower = Wide { values: &mut rows.lower, width };
        let state = (self.of_rows.view_mut(), ((&mut rows.upper[..], &mut rows.least[..]), lower));
        let make = (
            || Part::new(k, dim, moments.is_some()),
            || (Work::default(), Moved::default(), Editing::new(journals)),
        );
        gather_unread(data, cx, cut, state, total, make, absorb, Part::merge)?;
        bounds.put_rows(rows);
        Ok(())
    }
}
