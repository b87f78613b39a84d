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
use crate::pass::{Chunk, Unread, Wide, gather_unread};
use crate::persist::state::{StateReader, StateWriter};
use crate::rows::RowBuf;
use crate::stats::ClusterSums;
use crate::tuning::{CARRIED_CHANGES, CARRIED_ENERGY, NOTED_ROWS, tile_rows};
pub(super) use carried::Carried;

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

/// Blocks of rows, if there are any, and where changes of labels are noted.
type Searched<'a, T> = (Option<&'a mut Blocks<T>>, Option<&'a Mutex<Vec<Journal>>>);

/// What a sweep sums its rows about, besides the centers.
#[derive(Clone, Copy)]
pub(super) struct About<'a, T: Compute> {
    /// In place of the centers, a point per cluster for its squared error. It may stay from sweep to sweep, so that
    /// carried squared errors stay exact.
    errors: Option<&'a PackedCenters<T>>,
    /// One point for the moments of all rows.
    moments: Option<&'a PackedCenters<T>>,
}

impl<'a, T: Compute> About<'a, T> {
    /// Squared errors about the centers, and moments about this point, if there is one.
    pub(super) fn moments(moments: Option<&'a PackedCenters<T>>) -> Self {
        Self { errors: None, moments }
    }

    /// Squared errors about these points; without them, about the centers.
    pub(super) fn errors(errors: Option<&'a PackedCenters<T>>) -> Self {
        Self { errors, moments: None }
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
    fn new(k: usize, dim: usize, moments: bool) -> Self {
        Self {
            clusters: ClusterSums::part(k, dim),
            changed: 0,
            distances: 0,
            weighted: false,
            moments: moments.then(|| ClusterSums::part(1, dim)),
        }
    }

    fn merge(&mut self, part: &mut Self) {
        self.clusters.merge(&mut part.clusters);
        self.changed += std::mem::take(&mut part.changed);
        self.distances += std::mem::take(&mut part.distances);
        self.weighted |= part.weighted;
        if let (Some(total), Some(part)) = (&mut self.moments, &mut part.moments) {
            total.merge(part);
        }
    }

    /// Takes the new labels of a chunk. Sums all its rows if `afresh`, otherwise only those whose label
    /// changed.
    fn absorb<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        labels: Relabeled<'_>,
        packed: &PackedCenters<T>,
        afresh: bool,
    ) -> Result<()> {
        let Relabeled { old, new } = labels;
        self.changed += new.iter().zip(&*old).filter(|(new, old)| new != old).count() as u64;
        if afresh {
            self.clusters.absorb(chunk.rows, new, chunk.weights, packed);
        } else {
            self.clusters.reassign(chunk.rows, old, new, packed);
        }
        old.copy_from_slice(new);
        self.weighted |= chunk.weights.is_some();
        if self.clusters.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
    }
}

/// Buffers for the rows whose label changed.
#[derive(Default)]
struct Moved<T> {
    rows: RowBuf<T>,
    old: Vec<u32>,
    new: Vec<u32>,
}

impl Part {
    /// Like [`Part::absorb`], from a list of the labels that changed.
    fn absorb_changes<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        labels: &mut [u32],
        changes: &[(u32, u32)],
        packed: &PackedCenters<T>,
        afresh: bool,
        moved: &mut Moved<T>,
    ) -> Result<()> {
        if !afresh {
            self.absorb_moves(chunk, |r| labels[r], changes, packed, moved)?;
        }
        for &(r, new) in changes {
            labels[r as usize] = new;
        }
        if !afresh {
            return Ok(());
        }
        self.changed += changes.len() as u64;
        self.weighted |= chunk.weights.is_some();
        self.clusters.absorb(chunk.rows, labels, chunk.weights, packed);
        if self.clusters.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
    }

    /// Moves the rows of a chunk whose labels changed from their `old` labels to those in `changes`.
    fn absorb_moves<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        old: impl Fn(usize) -> u32,
        changes: &[(u32, u32)],
        packed: &PackedCenters<T>,
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
        self.clusters.reassign(moved.rows.rows(), &moved.old, &moved.new, packed);
        if self.clusters.is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
    }

    /// Adds all rows of a chunk to a single cluster, if moments are wanted. Overwrites `labels`.
    fn absorb_moments<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        origin: Option<&PackedCenters<T>>,
        labels: &mut Vec<u32>,
    ) {
        if let (Some(all), Some(origin)) = (&mut self.moments, origin) {
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

    /// Frees the changes of the last sweep, which cannot be undone any more.
    pub(super) fn forget_before(&mut self) {
        self.before = Before::Changed(Vec::new());
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

    /// Labels all rows and sums them, by blocks of rows if there are any. With `carried` sums of the current
    /// labels, only rows whose label changes are summed. `gone` are sums of retired rows, which still count. After an
    /// error the labels are those before the sweep.
    pub(super) fn sweep<T: Compute>(
        &mut self,
        mut blocks: Option<&mut Blocks<T>>,
        packed: &PackedCenters<T>,
        about: About<'_, T>,
        (carried, gone): (Option<Carried>, Option<&ClusterSums>),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Swept> {
        let floor = carried.as_ref().map_or(0.0, |c| c.energy_afresh * CARRIED_ENERGY);
        let nothing = || gone.cloned().unwrap_or_else(|| ClusterSums::new(packed.n_centers(), packed.dim()));
        let afresh = carried.is_none();
        let mut exact = afresh;
        let clusters = carried.map_or_else(nothing, |carried| carried.clusters);
        let (_, none) = self.of_rows.view().are_missing();
        let noted = !none && self.of_rows.len() <= self.most_noted;
        self.before = if none { Before::Nothing } else { Before::Unknown };
        let journals = noted.then(Mutex::default);
        let searched = (blocks.as_deref_mut(), journals.as_ref());
        let mut swept = self.label(searched, packed, about, (clusters, afresh), data, cx);
        if let Some(all) = journals {
            self.before = Before::Changed(all.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        if let Ok(part) = &mut swept
            && part.clusters.energy() < floor
        {
            // Most of the energy is gone: the rounding of the removed part may outweigh the rest.
            part.clusters = nothing();
            exact = true;
            match sum_labeled(self.of_rows.view(), about.errors.unwrap_or(packed), data, cx) {
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

    /// Labels all rows with the means that suit them, and sums them. Notes the changes of labels.
    fn label<T: Compute>(
        &mut self,
        (blocks, journals): Searched<'_, T>,
        packed: &PackedCenters<T>,
        about: About<'_, T>,
        (clusters, afresh): (ClusterSums, bool),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Part> {
        let (k, dim) = (packed.n_centers(), packed.dim());
        if data.dim() != dim {
            return Err(Error::Shape(format!(
                "`rows` have {} columns, but the run began with {dim}",
                data.dim()
            )));
        }
        let (points, moments) = (about.errors.unwrap_or(packed), about.moments);
        let mut total = Part { clusters, ..Part::new(k, dim, moments.is_some()) };
        let empty = || Part::new(k, dim, moments.is_some());
        if let Some(blocks) = blocks {
            let search = (blocks, journals);
            self.label_by_blocks(search, packed, about, (&mut total, afresh), data, cx)?;
            return Ok(total);
        }
        if self.sketches.is_some() {
            self.label_by_sketches(journals, packed, about, (&mut total, afresh), data, cx)?;
            return Ok(total);
        }
        if self.bounds.is_some() {
            self.label_by_bounds(journals, packed, about, (&mut total, afresh), data, cx)?;
            return Ok(total);
        }
        let absorb =
            |mut chunk: Unread<'_, T>,
             labels: LabelsMut<'_>,
             part: &mut Part,
             (scratch, new, editing): &mut (Scratch<T>, Vec<u32>, Editing<'_>)| {
                let (chunk, old) = (chunk.read()?, labels.open(editing));
                new.resize(old.len(), 0);
                kernel::nearest(chunk.rows, packed, new, scratch);
                part.distances += old.len() as u64 * k as u64;
                part.absorb(&chunk, Relabeled { old, new }, points, afresh)?;
                labels.store(editing);
                part.absorb_moments(&chunk, moments, new);
                Ok(())
            };
        let make = (empty, || (Scratch::default(), Vec::new(), Editing::new(journals)));
        let labels = self.of_rows.view_mut();
        gather_unread(data, cx, tile_rows(k), labels, &mut total, make, absorb, Part::merge)?;
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
    let swept = labels.sweep(None, &packed, About::moments(None), (None, None), data, cx)?;
    Ok((labels.of_rows, swept.clusters.weights().to_vec(), swept.clusters.energy()))
}
