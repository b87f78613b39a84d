//! The update: takes in rows, and keeps cells within their limits.

use std::ops::ControlFlow;

use super::change::{Moved, PartitionChange};
use super::draft::{Draft, NEW};
use super::fetch::{Fetch, Fetched};
use super::{Cells, Partition};
use crate::data::{DataSource, Source, normalize_rows, read};
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::float::{Float, Typed, either};
use crate::kernel::Compute;
use crate::matrix::{MatRef, make_room};
use crate::parallel::Executor;

/// Cells around a split cell whose rows may move to its parts: nine in ten of the moves of all cells (`partitions.py`).
const PARTITION_NEIGHBORS: usize = 16;

/// Cells that an update fetches because their centers drifted, as a share of those that it fetches anyway
/// (`partitions.py`, drift).
const PARTITION_REFRESHED: f64 = 0.3;

/// Largest share of the cells that an update fetches, other than to split or join them.
const PARTITION_MOST_FETCHED: f64 = 0.75;

/// Sweeps over the fetched cells, and centers that a row is compared with (`partitions.py`).
const PARTITION_SWEEPS: usize = 12;
const PARTITION_CANDIDATES: usize = 48;

/// How much an update does beyond splits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Cells around a split cell whose rows may move to its parts.
    pub(super) neighbors: usize,
    /// Cells that are fetched because their centers drifted, as a share of those that are fetched anyway.
    pub(super) refreshed: f64,
    /// Largest share of the cells that are fetched, other than to split or join them.
    pub(super) most_fetched: f64,
    /// Whether cells with too few rows join others.
    pub(super) joins: bool,
    /// Sweeps over the fetched cells, and centers that a row is compared with.
    pub(super) sweeps: usize,
    pub(super) candidates: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            neighbors: PARTITION_NEIGHBORS,
            refreshed: PARTITION_REFRESHED,
            most_fetched: PARTITION_MOST_FETCHED,
            joins: true,
            sweeps: PARTITION_SWEEPS,
            candidates: PARTITION_CANDIDATES,
        }
    }
}

impl Partition {
    /// Takes in rows, and splits, joins and moves cells as described at the [module](super).
    ///
    /// `fetch` is called with the ascending ids of cells, and returns the rows that are stored in them, without the
    /// new rows: they would be counted twice. It is called a few times, never twice with the same id, and not with all
    /// ids unless most cells must split or join. A cell may have lost rows since the last update: its number of rows is
    /// then corrected.
    ///
    /// See [`Partition`] for an example, and `examples/partition.rs` for a program. An update without new rows still
    /// splits, joins and recenters cells; apply its whole change.
    ///
    /// The new rows and the fetched rows are held in memory. Results depend on the order of the new rows and of the
    /// fetched rows, and not on the number of threads.
    ///
    /// # Errors
    /// [`Error::Shape`] if rows have a different number of columns. [`Error::NotFinite`] for NaN or infinite values.
    /// [`Error::Source`] if the new rows have weights other than 1, or `fetch` returns rows of other cells. Errors of the
    /// source and of `fetch`. The partition is then unchanged.
    pub fn update<S: Source, E: Float>(
        &mut self,
        rows: S,
        mut fetch: impl FnMut(&[u64]) -> Result<Fetched<E>>,
    ) -> Result<PartitionChange> {
        let cx = Executor::of_call(self.threads)?;
        let rules = Rules::default();
        either!(&mut self.cells, cells => {
            cells.update(&rules, rows, Some(&mut |ids| fetch(ids).map(Fetched::cast)), &cx)
        })
    }

    /// Takes in rows, and changes no cell. [`PartitionChange::oversized_ids`] names the cells that have to be split by
    /// [`Partition::update`]: no further row is needed for that.
    ///
    /// See [`Partition::drift`] for an example.
    ///
    /// # Errors
    /// As [`Partition::update`].
    pub fn insert<S: Source>(&mut self, rows: S) -> Result<PartitionChange> {
        let cx = Executor::of_call(self.threads)?;
        either!(&mut self.cells, cells => cells.update(&Rules::default(), rows, None, &cx))
    }
}

impl<T: Compute> Cells<T> {
    pub(crate) fn update<S: Source>(
        &mut self,
        rules: &Rules,
        rows: S,
        fetch: Option<&mut Fetch<'_, T>>,
        cx: &Executor,
    ) -> Result<PartitionChange> {
        let rows = self.new_rows(rows.any())?;
        let mut draft = Draft::new(self, rows, fetch, cx)?;
        let mut split: Vec<u32> = Vec::new();
        let mut joined = Vec::new();
        if draft.can_fetch() {
            // Rows that move may overfill other cells.
            loop {
                let first = draft.live.len() as u32;
                let splits = draft.split_all()?;
                if splits.is_empty() {
                    break;
                }
                draft.move_rows(&splits, first, rules)?;
                split.extend(splits.iter().map(|split| split.slot));
            }
            draft.hold_drifted(rules)?;
            if rules.joins {
                joined = draft.join()?;
            }
            draft.settle(rules)?;
            split.extend(draft.split_all()?.iter().map(|split| split.slot));
        }
        let (change, cells) = finished(&draft, &split, &joined);
        *self = cells;
        Ok(change)
    }

    /// The new rows as the metric sees them.
    fn new_rows(&self, rows: Typed<&dyn DataSource<f32>, &dyn DataSource<f64>>) -> Result<Vec<T>> {
        let mut values = Vec::new();
        either!(rows, data => {
            self.check_columns(data)?;
            let mut scratch = Vec::new();
            read(data, 1, &mut |block| {
                if block.weights.is_some_and(|weights| weights.iter().any(|&weight| weight != 1.0)) {
                    return Err(Error::Source(
                        "a partition counts rows, but the new rows have weights: pass them without weights".into(),
                    ));
                }
                make_room(&mut values, "new rows", block.len as u64, self.dim)?;
                let tile = block.rows.tile(0..block.len, &mut scratch)?;
                tile.iter().for_each(|row| values.extend(row.iter().map(|x| T::from_f64(x.to_f64()))));
                Ok(ControlFlow::Continue(()))
            })?;
        });
        if let Some((row, column)) = MatRef::new(&values, self.dim).first_not_finite() {
            return Err(Error::not_finite("rows", values[row * self.dim + column], row as u64, column));
        }
        if self.metric == Metric::Cosine {
            normalize_rows(&mut values, self.dim);
        }
        Ok(values)
    }
}

/// The change, and the cells after it.
fn finished<T: Compute>(
    draft: &Draft<'_, '_, T>,
    split: &[u32],
    joined: &[u32],
) -> (PartitionChange, Cells<T>) {
    let (old, dim) = (draft.cells, draft.dim());
    let mut next_id = old.next_id;
    let mut ids = old.ids.clone();
    // Only parts that are left get ids: a part may have been split again.
    for slot in draft.slots(|slot| draft.is_part(slot)) {
        ids.push(next_id);
        next_id += u64::from(draft.is_live(slot));
    }
    let ids_of = |slots: &[u32]| slots.iter().map(|&slot| ids[slot as usize]).collect::<Vec<u64>>();
    let live = draft.live_slots();
    let (counts, shifts) = (draft.counts(), draft.shifts(|_| true));
    let limit = old.limit();
    let moved = |slot: u32| !draft.is_part(slot) && draft.center(slot) != old.center(slot as usize);
    let mut gone: Vec<u32> = split.iter().copied().filter(|&slot| !draft.is_part(slot)).collect();
    gone.sort_unstable();
    let mut joined = joined.to_vec();
    joined.sort_unstable();
    let stored = draft.home.iter().zip(&draft.cell).enumerate().skip(draft.n_new);
    let change = PartitionChange {
        labels: ids_of(&draft.cell[..draft.n_new]),
        new_ids: ids_of(&draft.slots(|slot| draft.is_part(slot) && draft.is_live(slot))),
        split_ids: ids_of(&gone),
        joined_ids: ids_of(&joined),
        recentered_ids: ids_of(&draft.slots(|slot| draft.is_live(slot) && moved(slot))),
        oversized_ids: ids_of(&draft.slots(|slot| draft.is_live(slot) && counts[slot as usize] > limit)),
        moved: stored
            .filter(|(_, (home, cell))| **home != NEW && home != cell)
            .map(|(row, (&home, &cell))| Moved {
                key: draft.key(row),
                from: ids[home as usize],
                to: ids[cell as usize],
            })
            .collect(),
        n_fetched: draft.n_fetched(),
    };
    let cells = Cells {
        dim,
        metric: old.metric,
        target: old.target,
        ids: ids_of(&live),
        next_id,
        centers: draft.centers_of(&live),
        sizes: live.iter().map(|&slot| counts[slot as usize]).collect(),
        shifts: live.iter().flat_map(|&slot| &shifts[slot as usize * dim..][..dim]).copied().collect(),
        inertia: draft.inertia(),
        inertia_at_fit: old.inertia_at_fit,
    };
    (change, cells)
}
