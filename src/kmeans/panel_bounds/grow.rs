//! This module knows how bounds follow rows that are added, and memory that gets short.

use super::PanelBounds;
use crate::tuning::{bounded_chunk_rows, tile_rows};

/// The nearest `f32` that is not above.
fn down(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) > x { nearest.next_down() } else { nearest }
}

/// Start and length of the chunk that row `r` of `n` lies in, when `k` centers of `dim` columns are swept.
pub(super) fn chunk_of(r: usize, n: usize, (k, dim): (usize, usize)) -> (usize, usize) {
    let tile = r / tile_rows(k) * tile_rows(k);
    let rows = bounded_chunk_rows(dim);
    let start = tile + (r - tile) / rows * rows;
    let end = (start + rows).min(tile + tile_rows(k)).min(n);
    (start, end - start)
}

impl PanelBounds {
    /// Rows are added, of which nothing is known yet: there are `n` now, and what was row `i` is row `at(i)`, in the same order. Groups get
    /// wider where `budget` bytes ask for it; `false` where not even one bound a row fits any more.
    pub(in crate::kmeans) fn grow(&mut self, at: impl Fn(usize) -> usize, n: usize, budget: u64) -> bool {
        while self.n_groups as u64 > affordable(n, budget) {
            if self.n_groups == 1 {
                return false;
            }
            self.widen();
        }
        self.spread(at, n);
        true
    }

    /// Two groups become one. Its bound is the lower one of theirs, so that nothing is measured for it.
    fn widen(&mut self) {
        let (shape, n, old) = ((self.order.len(), self.dim), self.upper.len(), self.n_groups);
        self.group_panels *= 2;
        self.n_groups = old.div_ceil(2);
        let mut end = 0;
        let mut r = 0;
        while r < n {
            let (start, m) = chunk_of(r, n, shape);
            // What is written never overtakes what is still to be read.
            for group in 0..self.n_groups {
                for i in 0..m {
                    let bound = |group: usize| {
                        down(f64::from(self.lower[start * old + group * m + i]) - self.drift[group])
                    };
                    let first = bound(2 * group);
                    let both = if 2 * group + 1 < old { first.min(bound(2 * group + 1)) } else { first };
                    self.lower[end] = both;
                    end += 1;
                }
            }
            r = start + m;
        }
        self.lower.truncate(end);
        self.drift.clear();
        self.drift.resize(self.n_groups, 0.0);
        self.age = 0;
    }

    /// Makes room between the rows, from the last one to the first: in place, but for one chunk.
    fn spread(&mut self, at: impl Fn(usize) -> usize, n: usize) {
        let (shape, groups, old) = ((self.order.len(), self.dim), self.n_groups, self.upper.len());
        self.upper.reserve_exact(n - old);
        self.upper.resize(n, f32::INFINITY);
        self.lower.reserve_exact((n - old) * groups);
        self.lower.resize(n * groups, f32::NEG_INFINITY);
        for i in (0..old).rev() {
            let upper = std::mem::replace(&mut self.upper[i], f32::INFINITY);
            self.upper[at(i)] = upper;
        }
        let (mut new, mut held, mut held_start, mut held_len) = (Vec::new(), Vec::new(), old, 0);
        let (mut i, mut end) = (old, n);
        while end > 0 {
            let (start, m) = chunk_of(end - 1, n, shape);
            new.clear();
            new.resize(m * groups, f32::NEG_INFINITY);
            while i > 0 && at(i - 1) >= start {
                i -= 1;
                if i < held_start {
                    (held_start, held_len) = chunk_of(i, old, shape);
                    held.clear();
                    held.extend_from_slice(&self.lower[held_start * groups..][..held_len * groups]);
                }
                for group in 0..groups {
                    new[group * m + at(i) - start] = held[group * held_len + i - held_start];
                }
            }
            // The chunks that are still to be read lie before this one: rows only move backwards.
            self.lower[start * groups..][..m * groups].copy_from_slice(&new);
            end = start;
        }
    }
}

/// Lower bounds a row that fit into `budget` bytes, beside the upper one.
pub(super) fn affordable(n: usize, budget: u64) -> u64 {
    (budget / (4 * n.max(1) as u64)).saturating_sub(1)
}
