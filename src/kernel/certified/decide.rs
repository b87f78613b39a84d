//! Labels that the minima prove, and the rows that they leave in doubt.

use super::fold::Minima;
use super::pack::{LowCenters, PANEL};
use super::rows::GROUP;
use super::strip::group_rows;
use crate::kernel::arch::engine::Engine;

/// Share of all panels above which rows in doubt go to the `f32` kernel.
pub(super) const CERTIFIED_DOUBT: f64 = 0.25;

/// A panel that may hold the nearest center of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) panel: u32,
    /// Lower bound of the panel's values for this row.
    pub(super) lower: f32,
}

/// The rows in doubt.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Which lanes of a group a panel is a candidate for.
    masks: Vec<u16>,
    /// Rows with their smallest upper bound.
    pub(super) rows: Vec<(u32, f32)>,
    /// Row by row, as many for each row as `counts` says.
    pub(super) candidates: Vec<Candidate>,
    pub(super) counts: Vec<u32>,
    /// First rows of groups for which nearly nothing is known.
    pub(super) open: Vec<u32>,
}

impl Doubts {
    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.candidates.clear();
        self.counts.clear();
        self.open.clear();
    }

    /// Writes the labels of the rows that have one candidate, and keeps the other rows. `first` is the first
    /// row of the strip.
    ///
    /// A center whose lower bound exceeds the smallest upper bound of its row is not the nearest, nor as near
    /// as the nearest. If only one panel and only one place within panels are left, they are one center.
    #[inline(always)]
    pub(super) fn decide<E: Engine>(
        &mut self,
        engine: &E,
        low: &LowCenters,
        minima: &Minima,
        first: usize,
        labels: &mut [u32],
    ) {
        self.masks.resize(low.panels, 0);
        for g in 0..minima.groups {
            let here = group_rows(g, labels.len());
            if here == 0 {
                break;
            }
            let all = u16::MAX >> (GROUP - here);
            let top = &minima.tops[g];
            // NaN and infinity are in doubt.
            let sure =
                top.0.iter().enumerate().fold(0, |sure, (r, t)| sure | u16::from(t.abs() < f32::MAX) << r);
            let (mut once, mut twice, mut panels) = (0, 0, [0; GROUP]);
            for (p, kept) in self.masks.iter_mut().enumerate() {
                let mask = engine.at_most(&minima.panels[p * minima.groups + g], top);
                *kept = mask | !sure;
                twice |= once & mask;
                once |= mask;
                lanes(mask & !twice).for_each(|r| panels[r] = p);
            }
            let (mut one, mut more, mut places) = (0, 0, [0; GROUP]);
            for (m, lower) in minima.places[g * PANEL..][..PANEL].iter().enumerate() {
                let mask = engine.at_most(lower, top);
                more |= one & mask;
                one |= mask;
                lanes(mask & !more).for_each(|r| places[r] = m);
            }
            let decided = once & !twice & one & !more & sure & all;
            for r in lanes(decided) {
                labels[g * GROUP + r] = low.order[panels[r] * PANEL + places[r]];
            }
            self.keep(low, minima, first, g, all & !decided, sure);
        }
    }

    /// Keeps the rows of a group whose bits in `doubtful` are set. Nothing is known of rows whose bits in `sure` are
    /// not set.
    #[inline(always)]
    fn keep(&mut self, low: &LowCenters, minima: &Minima, first: usize, g: usize, doubtful: u16, sure: u16) {
        let candidates: u32 = self.masks.iter().map(|mask| (mask & doubtful).count_ones()).sum();
        if f64::from(candidates) > CERTIFIED_DOUBT * (low.panels * GROUP) as f64 {
            self.open.push((first + g * GROUP) as u32);
            return;
        }
        for r in lanes(doubtful) {
            let row = (first + g * GROUP + r) as u32;
            let before = self.candidates.len();
            let known = sure >> r & 1 == 1;
            for (p, mask) in self.masks.iter().enumerate() {
                if mask >> r & 1 == 1 {
                    // A bound that is not known may be NaN.
                    let lower =
                        if known { minima.panels[p * minima.groups + g].0[r] } else { f32::NEG_INFINITY };
                    self.candidates.push(Candidate { panel: p as u32, lower });
                }
            }
            self.rows.push((row, if known { minima.tops[g].0[r] } else { f32::INFINITY }));
            self.counts.push((self.candidates.len() - before) as u32);
        }
    }
}

/// The lanes of a mask.
#[inline(always)]
fn lanes(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(lane)
    })
}
