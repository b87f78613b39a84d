//! From the sums of a block to the minima that decide labels.

use super::bound::Lengths;
use super::pack::{LowCenters, PANEL};
use super::rows::GROUP;
use crate::kernel::arch::engine::{Engine, Line, Product, Sums, Tile};

/// A block whose sums are complete: panels `2 * pair` and `2 * pair + 1`, rows of groups `group` and `group + 1`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) pair: usize,
    pub(super) group: usize,
}

/// Parts in which a block is folded: half of the rows, half of the centers of both panels.
pub(super) const PARTS: usize = 4;

/// Running minima of a strip of `groups` times 16 rows. All of them are lower bounds of the true values.
#[derive(Debug, Default)]
pub(super) struct Minima {
    pub(super) groups: usize,
    /// The smallest lower bound of every panel, `groups` lines per panel.
    pub(super) panels: Vec<Line>,
    /// The smallest lower bound of every place in a panel, over all panels: 16 lines per group.
    pub(super) places: Vec<Line>,
    /// The smallest upper bound, a line per group.
    pub(super) tops: Vec<Line>,
}

impl Minima {
    /// Prepares for a strip.
    pub(super) fn clear(&mut self, panels: usize, groups: usize) {
        self.groups = groups;
        self.panels.resize(self.panels.len().max(panels * groups), Line::INFINITY);
        self.places.resize(self.places.len().max(groups * PANEL), Line::INFINITY);
        self.tops.resize(self.tops.len().max(groups), Line::INFINITY);
        self.places[..groups * PANEL].fill(Line::INFINITY);
        self.tops[..groups].fill(Line::INFINITY);
    }

    /// Folds one part of a block into the minima, and sets its sums to zero.
    #[inline(always)]
    pub(super) fn fold<E: Engine>(
        &mut self,
        engine: &E,
        low: &LowCenters,
        lengths: &[Lengths],
        Done { pair, group }: Done,
        part: usize,
        sums: &mut Sums,
    ) {
        let half = part / 2;
        let g = group + half;
        let [a0, a1, b0, b1] = &mut sums.0;
        let (first, second) = if half == 0 { (a0, b0) } else { (a1, b1) };
        let bounds = [low.bounds[2 * pair].of(&lengths[g]), low.bounds[2 * pair + 1].of(&lengths[g])];
        let larger = bounds[0].largest(&bounds[1]);
        let mut found = [Line::INFINITY; 2];
        let begin = part % 2 * (PANEL / 2);
        let places = &mut self.places[g * PANEL..][..PANEL];
        for (m, place) in places.iter_mut().enumerate().skip(begin).take(PANEL / 2) {
            let mut values = [scaled(low, 2 * pair, m, first), scaled(low, 2 * pair + 1, m, second)];
            (first.0[m], second.0[m]) = ([0; 16], [0; 16]);
            for q in 0..2 {
                engine.disturb((2 * pair + q) * PANEL + m, g * GROUP, &mut values[q], &bounds[q]);
                found[q] = found[q].least(&values[q]);
            }
            *place = place.least(&values[0].least(&values[1]).less(&larger, 1.0));
        }
        for q in 0..2 {
            let lower = found[q].less(&bounds[q], 1.0);
            let known = &mut self.panels[(2 * pair + q) * self.groups + g];
            *known = if begin == 0 { lower } else { known.least(&lower) };
            if begin > 0 {
                self.tops[g] = self.tops[g].least(&known.less(&bounds[q], -2.0));
            }
        }
    }
}

/// The values of center `m` of a panel for 16 rows, from the sums.
#[inline(always)]
fn scaled(low: &LowCenters, panel: usize, m: usize, tile: &Tile) -> Line {
    let scaling = &low.scalings[panel];
    let (unit, constant) = (scaling.units.0[m], scaling.constants.0[m]);
    let mut out = Line::ZERO;
    for r in 0..GROUP {
        let sum = match low.product {
            Product::Bytes => tile.0[m][r] as i32 as f32,
            Product::Bf16 => f32::from_bits(tile.0[m][r]),
        };
        out.0[r] = sum * unit + constant;
    }
    out
}
