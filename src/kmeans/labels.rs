//! The labels of all rows, and the exact sweep that updates them.
//!
//! [`Labels::sweep`] gives every row the label of its nearest center, and sums the rows by their labels. It compares
//! rows with all centers, or skips distances by bounds, sketches or blocks of rows; labels are the same.
//!
//! A failed sweep is undone. Up to [`NOTED_ROWS`] rows, a sweep notes the labels that it changes, and
//! [`Labels::undo`] restores them. Labels of more rows are lost then, and [`Labels::recover`] recomputes them from the
//! centers that they belong to.

mod by_blocks;
mod by_bounds;
mod by_sketches;
mod carried;
mod pass;
mod sweep;
#[cfg(test)]
mod tests;

use super::bounds::PanelBounds;
use super::sketches::Sketches;
use crate::centers::{Journal, LabelList, NO_LABEL};
use crate::data::{DataSource, count_rows};
use crate::error::{Error, Result};
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::Pool;
use crate::persist::state::{StateReader, StateWriter};
pub(super) use carried::Carried;
use pass::Part;
pub(super) use sweep::{Sweep, Swept};

/// Upper limit of the number of rows for which a sweep notes changed labels and a checkpoint stores labels. With more
/// rows, labels that were lost are recomputed in a sweep: a note takes up to 3 bytes per row in memory, and a
/// checkpoint would take 4 bytes per row on the disk, each time it is written. Tests use few rows.
pub(super) const NOTED_ROWS: usize = if cfg!(test) { 500 } else { 1 << 24 };

/// Per-row state: labels, and bounds or sketches.
#[derive(Clone, Debug)]
pub(super) struct Labels {
    pub(super) of_rows: LabelList,
    /// Rows whose labels were dropped, because they can be recomputed; then `of_rows` is empty.
    lost: usize,
    before: Before,
    /// Upper limit of the number of rows for which sweeps note changes.
    most_noted: usize,
    pub(super) bounds: Option<PanelBounds>,
    pub(super) sketches: Option<Sketches>,
    /// Empty partial results of the last sweep.
    parts: Pool<Part>,
}

/// The labels before the last sweep.
#[derive(Clone, Debug)]
enum Before {
    /// No row had a label.
    Nothing,
    Changed(Vec<Journal>),
    /// Too many rows to note changes.
    Unknown,
}

impl Labels {
    /// `n` rows without labels, of `k` clusters.
    pub(super) fn new(n: usize, k: usize) -> Self {
        Self::of(LabelList::new(n, k))
    }

    /// Given labels.
    pub(super) fn of(of_rows: LabelList) -> Self {
        Self {
            of_rows,
            lost: 0,
            before: Before::Nothing,
            most_noted: NOTED_ROWS,
            bounds: None,
            sketches: None,
            parts: Pool::default(),
        }
    }

    /// The same labels, for a solver that undoes sweeps and so needs the changes of any number of rows.
    pub(super) fn always_noted(self) -> Self {
        Self { most_noted: usize::MAX, ..self }
    }

    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        if self.lost > 0 { self.lost } else { self.of_rows.len() }
    }

    /// Whether [`Labels::recover`] must be called before the labels can be used.
    pub(super) fn are_lost(&self) -> bool {
        self.lost > 0
    }

    /// Recomputes lost labels, which are those about the centers `about`. Without centers, no row has a label.
    pub(super) fn recover<T: Compute>(
        &mut self,
        about: MatRef<'_, T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        if self.lost == 0 {
            return Ok(());
        }
        if about.rows() == 0 {
            self.of_rows.make_room(self.lost)?;
            self.of_rows.grow(|i| i, self.lost);
        } else {
            let labels = all_labels(about, data, cx)?.0;
            if labels.len() != self.lost {
                return Err(Error::Source(format!(
                    "the source gave {} rows, but {} in an earlier pass",
                    labels.len(),
                    self.lost
                )));
            }
            self.of_rows = labels;
        }
        self.lost = 0;
        self.forget_before();
        Ok(())
    }

    /// Drops labels that take much memory.
    pub(super) fn make_way(&mut self) {
        if self.of_rows.len() > NOTED_ROWS {
            drop(self.take());
        }
    }

    /// The labels: a copy of a few, and many themselves, which are then lost here.
    pub(super) fn lend(&mut self) -> LabelList {
        if self.of_rows.len() > NOTED_ROWS { self.take() } else { self.of_rows.clone() }
    }

    fn take(&mut self) -> LabelList {
        self.lost = self.of_rows.len();
        let none = self.of_rows.none();
        std::mem::replace(&mut self.of_rows, none)
    }

    /// Makes the labels those of `n` rows, which must be recovered.
    pub(super) fn lose(&mut self, n: usize) {
        self.of_rows = self.of_rows.none();
        self.lost = n;
    }

    /// Writes the labels of at most `most` rows, or else the number of rows. Returns whether it wrote labels.
    pub(super) fn put(&self, to: &mut StateWriter, most: usize) -> bool {
        let stored = !self.are_lost() && self.len() <= most;
        if stored {
            to.put("labels", &self.of_rows.view().to_vec());
        } else {
            to.put("unlabeled", &self.len());
        }
        stored
    }

    /// Reads what [`Labels::put`] wrote: labels below `labeled` of `k` clusters.
    pub(super) fn get(from: &StateReader<'_>, labeled: usize, k: usize) -> Result<Self, String> {
        if from.value("unlabeled").is_some() {
            return Ok(Self { lost: from.get("unlabeled")?, ..Self::new(0, k) });
        }
        let labels: Vec<u32> = from.get("labels")?;
        if !labels.iter().all(|&j| (j as usize) < labeled || j == NO_LABEL) {
            return Err("its \"labels\" do not match its \"centers\"".into());
        }
        Ok(Self::of(LabelList::of(labels, k)))
    }

    /// Extends to `n` rows: old row `i` becomes row `at(i)`, in the same order, and the others have no label.
    /// Bounds are kept as far as `budget` bytes allow.
    pub(super) fn grow(&mut self, at: impl Fn(usize) -> usize, n: usize, budget: u64) {
        self.of_rows.grow(&at, n);
        if !self.bounds.as_mut().is_some_and(|bounds| bounds.grow(at, n, budget)) {
            self.bounds = None;
        }
        self.sketches = None;
    }

    /// Reserves memory for the labels of `n` rows.
    pub(super) fn make_room(&mut self, n: usize) -> Result<()> {
        self.of_rows.make_room(n)
    }

    /// Frees the changes of the last sweep, which cannot be undone any more, and the sums of the workers.
    pub(super) fn forget_before(&mut self) {
        (self.before, self.parts) = (Before::Changed(Vec::new()), Pool::default());
    }

    /// Frees what only further sweeps need.
    pub(super) fn forget_sweeps(&mut self) {
        self.forget_before();
        (self.bounds, self.sketches) = (None, None);
    }

    pub(super) fn are_missing(&self) -> bool {
        self.are_lost() || self.of_rows.view().are_missing().0
    }

    /// Restores the labels before the last sweep, or drops them. Bounds are dropped, and with them their packing order.
    pub(super) fn undo(&mut self) {
        match std::mem::replace(&mut self.before, Before::Changed(Vec::new())) {
            Before::Nothing => self.of_rows.clear(),
            Before::Changed(changes) => self.of_rows.restore(&changes),
            Before::Unknown => drop(self.take()),
        }
        (self.bounds, self.sketches) = (None, None);
    }

    /// Records that the centers moved from `before` to `now` after a sweep.
    pub(super) fn follow<T: Compute>(&mut self, before: MatRef<'_, T>, now: MatRef<'_, T>, cx: &Executor) {
        if let Some(bounds) = &mut self.bounds {
            bounds.follow(before, now, cx);
        }
        if let Some(sketches) = &mut self.sketches {
            sketches.follow(before, now, cx);
        }
    }

    /// The bytes of labels, bounds and sketches.
    pub(super) fn bytes(&self) -> usize {
        self.of_rows.bytes()
            + self.bounds.as_ref().map_or(0, PanelBounds::bytes)
            + self.sketches.as_ref().map_or(0, Sketches::bytes)
    }

    /// Packs the centers for a sweep over sparse or dense rows.
    pub(super) fn pack<T: Compute>(
        &mut self,
        centers: MatRef<'_, T>,
        sparse: bool,
        cx: &Executor,
    ) -> PackedCenters<T> {
        match &mut self.bounds {
            Some(bounds) => bounds.pack(centers, sparse, cx),
            None => PackedCenters::on(centers, sparse, cx),
        }
    }
}

/// One pass: the labels of all rows, the weight per cluster, and the inertia.
pub(super) fn all_labels<T: Compute>(
    centers: MatRef<'_, T>,
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<(LabelList, Vec<f64>, f64)> {
    let n = count_rows(data)? as usize;
    let mut labels = Labels::new(0, centers.rows());
    labels.make_room(n)?;
    labels.grow(|i| i, n, 0);
    let packed = PackedCenters::on(centers, data.most_values().is_some(), cx);
    let swept = labels.sweep(Sweep::about(&packed), data, cx)?;
    Ok((labels.of_rows, swept.clusters.weights().to_vec(), swept.clusters.energy()))
}
