//! One sweep: what it is given, what it returns, and how it labels the rows.

use std::sync::{Mutex, PoisonError};

use super::pass::{Part, Pass};
use super::{Before, Carried, Labels};
use crate::centers::{Editing, LabelsMut, sum_labeled};
use crate::data::DataSource;
use crate::error::{Error, Result};
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::kmeans::blocks::Blocks;
use crate::parallel::Executor;
use crate::pass::{Pool, Unread};
use crate::stats::ClusterSums;

/// Upper limit of the share of changed labels for which the next sweep updates sums: updating for one changed
/// row takes the time of recomputing three rows (`peers.py`: at the second sweep about three tenths change).
const CARRIED_CHANGES: f64 = 1.0 / 3.0;

/// Sums are recomputed when the energy falls below this share of its value at the last recomputation, so that an
/// updated energy has 12 digits: following the centers, it is rounded in every sweep.
const CARRIED_ENERGY: f64 = 1e-3;

/// A sweep over all rows: labels them, and sums them by their labels.
pub(in crate::kmeans) struct Sweep<'a, T: Compute> {
    pub(in crate::kmeans) packed: &'a PackedCenters<T>,
    /// In place of the centers, a point per cluster about which squared errors are summed. If the points stay the same
    /// from sweep to sweep, carried squared errors stay exact.
    pub(in crate::kmeans) points: Option<&'a PackedCenters<T>>,
    /// Finds the labels, if there are blocks.
    pub(in crate::kmeans) blocks: Option<&'a mut Blocks<T>>,
    /// A point about which all rows are summed too.
    pub(in crate::kmeans) moments: Option<&'a PackedCenters<T>>,
    /// Sums of the current labels: only rows whose label changes are summed.
    pub(in crate::kmeans) carried: Option<Carried>,
    /// Sums of retired rows, which still count.
    pub(in crate::kmeans) gone: Option<&'a ClusterSums>,
}

impl<'a, T: Compute> Sweep<'a, T> {
    /// A sweep that only needs the centers.
    pub(in crate::kmeans) fn about(packed: &'a PackedCenters<T>) -> Self {
        Self { packed, points: None, blocks: None, moments: None, carried: None, gone: None }
    }
}

/// The result of a sweep.
pub(in crate::kmeans) struct Swept {
    /// Sums of the rows by their new labels, with squared errors about the centers of the sweep.
    pub(in crate::kmeans) clusters: ClusterSums,
    /// Labels that changed.
    pub(in crate::kmeans) changed: u64,
    pub(in crate::kmeans) distances: u64,
    /// Sums of all rows about one point, for the variance of the data.
    pub(in crate::kmeans) moments: Option<ClusterSums>,
    /// Whether the squared errors were summed row by row, not carried from an earlier sweep.
    pub(in crate::kmeans) exact: bool,
    /// The squared error when it was last summed row by row.
    energy_afresh: f64,
    pub(in crate::kmeans) weighted: bool,
}

impl Swept {
    /// Whether carrying the sums to the next sweep pays: a carried sweep sums each changed row twice.
    /// Only rows of weight 1 are carried.
    pub(in crate::kmeans) fn pays_to_carry(&self, rows: u64) -> bool {
        !self.weighted && self.changed as f64 <= CARRIED_CHANGES * rows as f64
    }

    pub(in crate::kmeans) fn into_carried(self) -> Carried {
        let Self { clusters, energy_afresh, .. } = self;
        Carried { clusters, energy_afresh }
    }
}

impl Labels {
    /// Labels all rows and sums them. After an error the labels are those before the sweep.
    pub(in crate::kmeans) fn sweep<T: Compute>(
        &mut self,
        Sweep { packed, points, mut blocks, moments, carried, gone }: Sweep<'_, T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Swept> {
        let nothing = || gone.cloned().unwrap_or_else(|| ClusterSums::new(packed.n_centers(), packed.dim()));
        let points = points.unwrap_or(packed);
        let (clusters, energy_afresh) = match carried {
            Some(Carried { clusters, energy_afresh }) => (clusters, Some(energy_afresh)),
            None => (nothing(), None),
        };
        let (_, none) = self.of_rows.view().are_missing();
        self.before = if none { Before::Nothing } else { Before::Unknown };
        let journals = (!none && self.of_rows.len() <= self.most_noted).then(Mutex::default);
        let pass = Pass {
            packed,
            points,
            moments,
            afresh: energy_afresh.is_none(),
            data,
            cx,
            journals: journals.as_ref(),
            parts: self.parts(packed, moments),
        };
        let labeled = self.label(&pass, blocks.as_deref_mut(), clusters);
        let parts = pass.parts;
        if let Some(all) = journals {
            self.before = Before::Changed(all.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        let summed = labeled.and_then(|mut part| {
            let spent = |before: f64| part.clusters.energy() < before * CARRIED_ENERGY;
            if !energy_afresh.is_some_and(spent) {
                self.parts = parts;
                return Ok((part, energy_afresh));
            }
            // Most of the energy is gone: the rounding of the removed part may outweigh the rest.
            drop(parts);
            part.clusters = nothing();
            part.clusters.merge(&mut sum_labeled(self.of_rows.view(), points, data, cx)?);
            Ok((part, None))
        });
        let (part, energy_afresh) = summed.inspect_err(|_| {
            self.undo();
            blocks.into_iter().for_each(Blocks::forget);
        })?;
        let Part { clusters, changed, distances, weighted, moments } = part;
        let (exact, energy_afresh) = (energy_afresh.is_none(), energy_afresh.unwrap_or(clusters.energy()));
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

    /// Labels all rows with the means that suit them, adds them to `clusters`, and notes the changes of labels.
    fn label<T: Compute>(
        &mut self,
        pass: &Pass<'_, T>,
        blocks: Option<&mut Blocks<T>>,
        clusters: ClusterSums,
    ) -> Result<Part> {
        let dim = pass.packed.dim();
        if pass.data.dim() != dim {
            return Err(Error::Shape(format!(
                "`rows` have {} columns, but the run began with {dim}",
                pass.data.dim()
            )));
        }
        let mut total = Part { clusters, ..pass.empty() };
        // Bounds and sketches of a failed pass are gone: they may be those of other labels.
        if let Some(blocks) = blocks {
            self.label_by_blocks(pass, blocks, &mut total)?;
        } else if let Some(mut sketches) = self.sketches.take() {
            self.label_by_sketches(pass, &mut sketches, &mut total)?;
            self.sketches = Some(sketches);
        } else if let Some(mut bounds) = self.bounds.take() {
            self.label_by_bounds(pass, &mut bounds, &mut total)?;
            self.bounds = Some(bounds);
        } else {
            // All distances are computed.
            let absorb =
                |mut chunk: Unread<'_, T>,
                 labels: LabelsMut<'_>,
                 part: &mut Part,
                 ((new, scratch), editing): &mut ((Vec<u32>, Scratch<T>), Editing<'_>)| {
                    let (chunk, old) = (chunk.read()?, labels.open(editing));
                    new.resize(old.len(), 0);
                    kernel::nearest(chunk.rows, pass.packed, new, scratch);
                    part.distances += old.len() as u64 * pass.packed.n_centers() as u64;
                    part.absorb(&chunk, old, new, pass)?;
                    labels.store(editing);
                    part.absorb_moments(&chunk, pass, new);
                    Ok(())
                };
            pass.run(None, self.of_rows.view_mut(), &mut total, absorb)?;
        }
        Ok(total)
    }
}
