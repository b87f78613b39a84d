//! Labels of all rows, and the exact sweep that updates them, with bounds if there are any.

mod by_blocks;
mod by_bounds;
mod by_sketches;
mod carried;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};

use super::blocks::Blocks;
use super::bounds::PanelBounds;
use super::sketches::Sketches;
use crate::centers::{Editing, Journal, LabelList, LabelsMut, NO_LABEL, sum_labeled};
use crate::data::{DataSource, count_rows};
use crate::error::{Error, Result};
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, Pool, Unread, Wide, gather_with};
use crate::persist::state::{StateReader, StateWriter};
use crate::rows::RowBuf;
use crate::stats::ClusterSums;
pub(super) use carried::Carried;

/// Upper limit of the number of rows for which a sweep notes changed labels and a checkpoint stores labels. With more
/// rows, labels that were lost are recomputed in a sweep: a note takes up to 3 bytes per row in memory, and a
/// checkpoint would take 4 bytes per row on the disk, each time it is written. Tests use few rows.
pub(super) const NOTED_ROWS: usize = if cfg!(test) { 500 } else { 1 << 24 };

/// Upper limit of the share of changed labels for which the next sweep updates sums: updating for one changed
/// row takes the time of recomputing three rows (`peers.py`: at the second sweep about three tenths change).
const CARRIED_CHANGES: f64 = 1.0 / 3.0;

/// Sums are recomputed when the energy falls below this share of its value at the last recomputation, so that an
/// updated energy has 12 digits: following the centers, it is rounded in every sweep.
const CARRIED_ENERGY: f64 = 1e-3;

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

/// Labels and bounds of a chunk: upper bounds, bounds to all other centers, and bounds by group.
type PerChunk<'a> = (LabelsMut<'a>, ((&'a mut [f32], &'a mut [f32]), Wide<'a, f32>));

/// A sweep over all rows: labels them, and sums them by their labels.
pub(super) struct Sweep<'a, T: Compute> {
    pub(super) packed: &'a PackedCenters<T>,
    /// In place of the centers, a point per cluster about which squared errors are summed. If the points stay the same
    /// from sweep to sweep, carried squared errors stay exact.
    pub(super) points: Option<&'a PackedCenters<T>>,
    /// Finds the labels, if there are blocks.
    pub(super) blocks: Option<&'a mut Blocks<T>>,
    /// A point about which all rows are summed too.
    pub(super) moments: Option<&'a PackedCenters<T>>,
    /// Sums of the current labels: only rows whose label changes are summed.
    pub(super) carried: Option<Carried>,
    /// Sums of retired rows, which still count.
    pub(super) gone: Option<&'a ClusterSums>,
}

impl<'a, T: Compute> Sweep<'a, T> {
    /// A sweep that only needs the centers.
    pub(super) fn about(packed: &'a PackedCenters<T>) -> Self {
        Self { packed, points: None, blocks: None, moments: None, carried: None, gone: None }
    }
}

/// What all workers of a sweep know.
struct Pass<'a, T: Compute> {
    packed: &'a PackedCenters<T>,
    /// The points about which squared errors are summed.
    points: &'a PackedCenters<T>,
    moments: Option<&'a PackedCenters<T>>,
    /// Whether all rows are summed, not only those whose label changes.
    afresh: bool,
    /// Where changes of labels are noted.
    journals: Option<&'a Mutex<Vec<Journal>>>,
    /// The contributions of the workers.
    parts: Pool<Part>,
}

impl<'a, T: Compute> Pass<'a, T> {
    /// The contribution of a worker that has no rows.
    fn empty(&self) -> Part {
        let (k, dim) = (self.packed.n_centers(), self.packed.dim());
        Part {
            clusters: ClusterSums::part(k, dim),
            changed: 0,
            distances: 0,
            weighted: false,
            moments: self.moments.map(|_| ClusterSums::part(1, dim)),
        }
    }

    /// Where a worker edits labels.
    fn editing(&self) -> Editing<'a> {
        Editing::new(self.journals)
    }
}

/// Old and new labels of a chunk.
struct Relabeled<'a> {
    old: &'a mut [u32],
    new: &'a [u32],
}

/// The result of a sweep.
pub(super) struct Swept {
    /// Sums of the rows by their new labels, with squared errors about the centers of the sweep.
    pub(super) clusters: ClusterSums,
    /// Labels that changed.
    pub(super) changed: u64,
    pub(super) distances: u64,
    /// Sums of all rows about one point, for the variance of the data.
    pub(super) moments: Option<ClusterSums>,
    /// Whether the squared errors were summed row by row, not carried from an earlier sweep.
    pub(super) exact: bool,
    energy_afresh: f64,
    pub(super) weighted: bool,
}

impl Swept {
    /// Whether carrying the sums to the next sweep pays: a carried sweep sums each changed row twice.
    /// Only rows of weight 1 are carried.
    pub(super) fn pays_to_carry(&self, rows: u64) -> bool {
        !self.weighted && self.changed as f64 <= CARRIED_CHANGES * rows as f64
    }

    pub(super) fn into_carried(self) -> Carried {
        let Self { clusters, energy_afresh, .. } = self;
        Carried { clusters, energy_afresh }
    }
}

/// Buffers for the rows whose label changed.
#[derive(Default)]
struct Moved<T> {
    rows: RowBuf<T>,
    old: Vec<u32>,
    new: Vec<u32>,
}

/// The contribution of a worker to a sweep.
struct Part {
    clusters: ClusterSums,
    changed: u64,
    distances: u64,
    /// Whether rows have weights.
    weighted: bool,
    moments: Option<ClusterSums>,
}

impl Part {
    fn merge(&mut self, part: &mut Self) {
        self.clusters.merge(&mut part.clusters);
        self.changed += std::mem::take(&mut part.changed);
        self.distances += std::mem::take(&mut part.distances);
        self.weighted |= std::mem::take(&mut part.weighted);
        if let (Some(total), Some(part)) = (&mut self.moments, &mut part.moments) {
            total.merge(part);
        }
    }

    /// Takes the new labels of a chunk.
    fn absorb<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        Relabeled { old, new }: Relabeled<'_>,
        pass: &Pass<'_, T>,
    ) -> Result<()> {
        self.changed += new.iter().zip(&*old).filter(|(new, old)| new != old).count() as u64;
        if pass.afresh {
            self.clusters.absorb(chunk.rows, new, chunk.weights, pass.points);
        } else {
            self.clusters.reassign(chunk.rows, old, new, pass.points);
        }
        old.copy_from_slice(new);
        self.weighted |= chunk.weights.is_some();
        if self.clusters.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
    }

    /// Like [`Part::absorb`], from a list of the labels that changed.
    fn absorb_changes<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        labels: &mut [u32],
        changes: &[(u32, u32)],
        pass: &Pass<'_, T>,
        moved: &mut Moved<T>,
    ) -> Result<()> {
        if !pass.afresh {
            self.absorb_moves(chunk, |r| labels[r], changes, pass, moved)?;
        }
        for &(r, new) in changes {
            labels[r as usize] = new;
        }
        if !pass.afresh {
            return Ok(());
        }
        self.changed += changes.len() as u64;
        self.weighted |= chunk.weights.is_some();
        self.clusters.absorb(chunk.rows, labels, chunk.weights, pass.points);
        if self.clusters.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
    }

    /// Moves the rows of a chunk whose labels changed from their `old` labels to those in `changes`.
    fn absorb_moves<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        old: impl Fn(usize) -> u32,
        changes: &[(u32, u32)],
        pass: &Pass<'_, T>,
        moved: &mut Moved<T>,
    ) -> Result<()> {
        self.changed += changes.len() as u64;
        self.weighted |= chunk.weights.is_some();
        if changes.is_empty() {
            return Ok(());
        }
        moved.rows.clear(chunk.rows.cols());
        moved.old.clear();
        moved.new.clear();
        for &(r, new) in changes {
            moved.old.push(old(r as usize));
            moved.new.push(new);
            moved.rows.push(chunk.rows, r as usize);
        }
        self.clusters.reassign(moved.rows.rows(), &moved.old, &moved.new, pass.points);
        if self.clusters.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
    }

    /// Adds all rows of a chunk to a single cluster, if moments are wanted. Overwrites `labels`.
    fn absorb_moments<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        pass: &Pass<'_, T>,
        labels: &mut Vec<u32>,
    ) {
        if let (Some(all), Some(origin)) = (&mut self.moments, pass.moments) {
            labels.clear();
            labels.resize(chunk.rows.rows(), 0);
            all.absorb(chunk.rows, labels, None, origin);
        }
    }
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
    pub(super) fn follow<T: Compute>(&mut self, before: MatRef<'_, T>, now: MatRef<'_, T>) {
        if let Some(bounds) = &mut self.bounds {
            bounds.follow(before, now);
        }
        if let Some(sketches) = &mut self.sketches {
            sketches.follow(before, now);
        }
    }

    /// The bytes of labels, bounds and sketches.
    pub(super) fn bytes(&self) -> usize {
        self.of_rows.bytes()
            + self.bounds.as_ref().map_or(0, PanelBounds::bytes)
            + self.sketches.as_ref().map_or(0, Sketches::bytes)
    }

    /// Packs the centers for a sweep over sparse or dense rows.
    pub(super) fn pack<T: Compute>(&mut self, centers: MatRef<'_, T>, sparse: bool) -> PackedCenters<T> {
        match &mut self.bounds {
            Some(bounds) => bounds.pack(centers, sparse),
            None => PackedCenters::for_rows(centers, sparse),
        }
    }

    /// Labels all rows and sums them. After an error the labels are those before the sweep.
    pub(super) fn sweep<T: Compute>(
        &mut self,
        Sweep { packed, points, mut blocks, moments, carried, gone }: Sweep<'_, T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Swept> {
        let floor = carried.as_ref().map_or(0.0, |c| c.energy_afresh * CARRIED_ENERGY);
        let nothing = || gone.cloned().unwrap_or_else(|| ClusterSums::new(packed.n_centers(), packed.dim()));
        let (points, afresh) = (points.unwrap_or(packed), carried.is_none());
        let mut exact = afresh;
        let clusters = carried.map_or_else(nothing, |carried| carried.clusters);
        let (_, none) = self.of_rows.view().are_missing();
        let noted = !none && self.of_rows.len() <= self.most_noted;
        self.before = if none { Before::Nothing } else { Before::Unknown };
        let journals = noted.then(Mutex::default);
        let pass = Pass {
            packed,
            points,
            moments,
            afresh,
            journals: journals.as_ref(),
            parts: self.parts(packed, moments),
        };
        let mut swept = self.label(&pass, blocks.as_deref_mut(), clusters, data, cx);
        if swept.is_ok() {
            self.parts = pass.parts;
        }
        if let Some(all) = journals {
            self.before = Before::Changed(all.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        if let Ok(part) = &mut swept
            && part.clusters.energy() < floor
        {
            // Most of the energy is gone: the rounding of the removed part may outweigh the rest.
            part.clusters = nothing();
            exact = true;
            // Another pass makes its own.
            self.parts = Pool::default();
            match sum_labeled(self.of_rows.view(), points, data, cx) {
                Ok(mut sums) => part.clusters.merge(&mut sums),
                Err(e) => swept = Err(e),
            }
        }
        let part = swept.inspect_err(|_| {
            self.undo();
            blocks.into_iter().for_each(Blocks::forget);
        })?;
        let energy_afresh = if exact { part.clusters.energy() } else { floor / CARRIED_ENERGY };
        let Part { clusters, changed, distances, weighted, moments } = part;
        Ok(Swept { clusters, changed, distances, moments, exact, energy_afresh, weighted })
    }

    /// The partial results of the last sweep, if they suit the next one.
    fn parts<T: Compute>(
        &mut self,
        packed: &PackedCenters<T>,
        moments: Option<&PackedCenters<T>>,
    ) -> Pool<Part> {
        let parts = std::mem::take(&mut self.parts);
        parts.kept().retain_mut(|part| {
            part.moments = moments.map(|_| ClusterSums::part(1, packed.dim()));
            part.clusters.shape() == (packed.n_centers(), packed.dim())
        });
        parts
    }

    /// Labels all rows with the means that suit them, and sums them. Notes the changes of labels.
    fn label<T: Compute>(
        &mut self,
        pass: &Pass<'_, T>,
        blocks: Option<&mut Blocks<T>>,
        clusters: ClusterSums,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Part> {
        let (k, dim) = (pass.packed.n_centers(), pass.packed.dim());
        if data.dim() != dim {
            return Err(Error::Shape(format!(
                "`rows` have {} columns, but the run began with {dim}",
                data.dim()
            )));
        }
        let mut total = Part { clusters, ..pass.empty() };
        if let Some(blocks) = blocks {
            self.label_by_blocks(pass, blocks, &mut total, data, cx)?;
        } else if self.sketches.is_some() {
            self.label_by_sketches(pass, &mut total, data, cx)?;
        } else if self.bounds.is_some() {
            self.label_by_bounds(pass, &mut total, data, cx)?;
        } else {
            let absorb =
                |mut chunk: Unread<'_, T>,
                 labels: LabelsMut<'_>,
                 part: &mut Part,
                 (scratch, new, editing): &mut (Scratch<T>, Vec<u32>, Editing<'_>)| {
                    let (chunk, old) = (chunk.read()?, labels.open(editing));
                    new.resize(old.len(), 0);
                    kernel::nearest(chunk.rows, pass.packed, new, scratch);
                    part.distances += old.len() as u64 * k as u64;
                    part.absorb(&chunk, Relabeled { old, new }, pass)?;
                    labels.store(editing);
                    part.absorb_moments(&chunk, pass, new);
                    Ok(())
                };
            let make = (|| pass.empty(), || (Scratch::default(), Vec::new(), pass.editing()));
            let labels = self.of_rows.view_mut();
            gather_with(data, cx, (None, &pass.parts), labels, &mut total, make, absorb, Part::merge)?;
        }
        Ok(total)
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
    let packed = PackedCenters::for_rows(centers, data.most_values().is_some());
    let swept = labels.sweep(Sweep::about(&packed), data, cx)?;
    Ok((labels.of_rows, swept.clusters.weights().to_vec(), swept.clusters.energy()))
}
