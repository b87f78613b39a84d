//! All centers against one strip of rows.

use super::bound::Lengths;
use super::fold::{Done, Minima, PARTS};
use super::pack::{LowCenters, PANEL};
use super::rows::{GROUP, load};
use crate::kernel::arch::engine::{Engine, Sums, Tile};
use crate::kernel::pack::PackedCenters;
use crate::matrix::MatRef;

/// Tiles of a row that are multiplied before the next rows follow: those of two panels stay in the first-level
/// cache.
const CERTIFIED_DEPTH: usize = 8;

/// A strip of rows in low precision, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct Strip {
    /// Number of groups of 16 rows, even.
    groups: usize,
    /// Group by group.
    tiles: Vec<Tile>,
    lengths: Vec<Lengths>,
    /// Sums of blocks, zero where no block is under way.
    sums: Vec<Sums>,
    pub(super) minima: Minima,
}

/// Rows in a strip.
pub(super) fn strip_rows<E: Engine>(engine: &E, low: &LowCenters) -> usize {
    engine.groups(low.steps) * GROUP
}

impl Strip {
    /// Loads up to [`strip_rows`] rows. Returns false if their values do not suit the product.
    #[inline(always)]
    pub(super) fn load<E: Engine>(
        &mut self,
        engine: &E,
        low: &LowCenters,
        packed: &PackedCenters<f32>,
        rows: MatRef<'_, f32>,
    ) -> bool {
        self.groups = rows.rows().div_ceil(2 * GROUP) * 2;
        self.tiles.resize(self.tiles.len().max(self.groups * low.steps), Tile::ZERO);
        self.lengths.resize(self.lengths.len().max(self.groups), Lengths::ZERO);
        let groups = self.tiles.chunks_exact_mut(low.steps).zip(&mut self.lengths).take(self.groups);
        for (g, (tiles, lengths)) in groups.enumerate() {
            let [from, to] = [g, g + 1].map(|g| rows.rows().min(g * GROUP));
            if !load(engine, low, packed, rows.slice(from, to), tiles, lengths) {
                return false;
            }
        }
        true
    }

    /// Multiplies all centers and rows, and folds the values into `minima`.
    #[inline(always)]
    pub(super) fn sweep<E: Engine>(&mut self, engine: &E, low: &LowCenters) {
        let Self { groups, tiles, lengths, sums, minima } = self;
        let (groups, steps) = (*groups, low.steps);
        minima.clear(low.panels, groups);
        // A block whose steps are done at once needs its sums only until the next block is done.
        let at_once = steps <= CERTIFIED_DEPTH;
        sums.resize(sums.len().max(if at_once { 2 } else { groups }), Sums::ZERO);
        let mut done: Option<(Done, usize)> = None;
        for pair in 0..low.panels / 2 {
            let a = [2 * pair, 2 * pair + 1].map(|p| &low.tiles[p * steps..][..steps]);
            for from in (0..steps).step_by(CERTIFIED_DEPTH) {
                let here = from..steps.min(from + CERTIFIED_DEPTH);
                let count = here.len();
                for group in (0..groups).step_by(2) {
                    let b = [group, group + 1].map(|g| &tiles[g * steps..][..steps][here.clone()]);
                    // Two sets of sums in turn: one is multiplied while the other is folded.
                    let at = if at_once {
                        (pair * (groups / 2) + group / 2) % 2
                    } else {
                        pair % 2 * groups / 2 + group / 2
                    };
                    let other = done.map_or(usize::from(at == 0), |(_, other)| other);
                    let [now, before] = sums.get_disjoint_mut([at, other]).expect("two sets of sums");
                    let parts = |step: usize| step * PARTS / count..(step + 1) * PARTS / count;
                    engine.block(low.product, a.map(|a| &a[here.clone()]), b, now, |step| {
                        if let Some((done, _)) = done {
                            for part in parts(step) {
                                minima.fold(engine, low, lengths, done, part, before);
                            }
                        }
                    });
                    done = (here.end == steps).then_some((Done { pair, group }, at));
                }
            }
        }
        if let Some((done, at)) = done {
            for part in 0..PARTS {
                minima.fold(engine, low, lengths, done, part, &mut sums[at]);
            }
        }
    }
}

/// Rows of a group among the rows of a strip.
pub(super) fn group_rows(group: usize, rows: usize) -> usize {
    rows.saturating_sub(group * GROUP).min(GROUP)
}

const _: () = assert!(PANEL == 16 && GROUP == 16, "a tile is square");
