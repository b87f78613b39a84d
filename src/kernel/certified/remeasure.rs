//! Rows in doubt, by `f32` tile values.
#![allow(unsafe_code)]

use super::decide::{Candidate, Doubts};
use super::pack::{LowCenters, PANEL};
use crate::kernel::arch::engine::{Engine, Line, Product};
use crate::kernel::doubt::Doubts as ArbiterDoubts;
use crate::kernel::frame::moved;
use crate::kernel::pack::PackedCenters;
use crate::kernel::simd::Simd;
use crate::matrix::MatRef;

/// Pairs of a row and a panel that are measured together: enough sums to hide the latency of an addition.
const TOGETHER: usize = 8;

/// Rows, and the centers that they are compared with.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) rows: MatRef<'a, f32>,
    pub(super) packed: &'a PackedCenters<f32>,
    /// The centers in low precision.
    pub(super) low: &'a LowCenters,
}

/// Buffers of one worker.
#[derive(Debug, Default)]
pub(super) struct Remeasured {
    /// The rows in doubt as `x'`.
    rows: Vec<f32>,
    /// By how much low-precision values exceed tile values, and the error of this number, per row in doubt.
    excess: Vec<(f64, f64)>,
    /// The two smallest tile values per row in doubt, and the center of the smallest.
    best: Vec<(f32, f32, u32)>,
    /// `|x'|^2` per row in doubt.
    sq_norms: Vec<f32>,
    /// Pairs of a panel and a row in doubt.
    pairs: Vec<(u32, u32)>,
}

impl Remeasured {
    /// Labels the rows in doubt: first by the most likely panel, then by the panels that its values do not exclude.
    /// Notes in `open` the rows whose tile values do not tell the nearest center.
    #[inline(always)]
    pub(super) fn label<E: Engine>(
        &mut self,
        engine: &E,
        problem: Problem<'_>,
        doubts: &Doubts,
        labels: &mut [u32],
        open: &mut ArbiterDoubts<f32>,
    ) {
        let Problem { packed, low, .. } = problem;
        let doubt = packed.doubt(low.dim);
        self.load(problem, doubts);
        self.pairs.clear();
        let likely = |candidates: &[Candidate]| {
            let least = candidates.iter().min_by(|a, b| a.lower.total_cmp(&b.lower));
            least.expect("a row in doubt has candidates").panel
        };
        self.pairs.extend(per_row(doubts).enumerate().map(|(i, candidates)| (likely(candidates), i as u32)));
        self.measure(engine, low);
        self.pairs.clear();
        for (i, candidates) in per_row(doubts).enumerate() {
            let (best, (excess, error)) = (f64::from(self.best[i].0), self.excess[i]);
            let measured = likely(candidates);
            debug_assert!(
                candidates
                    .iter()
                    .any(|c| { c.panel == measured && f64::from(c.lower) <= best + excess + error }),
                "a tile value is below its lower bound"
            );
            let doubt = doubt.of(self.sq_norms[i], self.best[i].0);
            let most = best + f64::from(doubt) + excess + error;
            let left = |c: &&Candidate| c.panel != measured && f64::from(c.lower) <= most;
            self.pairs.extend(candidates.iter().filter(left).map(|c| (c.panel, i as u32)));
        }
        self.measure(engine, low);
        for (i, (&(row, top), &(best, second, center))) in doubts.rows.iter().zip(&self.best).enumerate() {
            let (excess, error) = self.excess[i];
            debug_assert!(
                f64::from(best) + excess - error <= f64::from(top),
                "a tile value is above its bound"
            );
            labels[row as usize] = center.min(packed.k as u32 - 1);
            open.note(row as usize, best, second, doubt.of(self.sq_norms[i], best));
        }
    }

    /// Loads the rows in doubt.
    #[inline(always)]
    fn load(&mut self, Problem { rows, packed, low }: Problem<'_>, doubts: &Doubts) {
        let (dim, n) = (low.dim, doubts.rows.len());
        self.rows.resize(self.rows.len().max(n * dim), 0.0);
        self.excess.clear();
        self.best.clear();
        self.best.resize(n, (f32::INFINITY, f32::INFINITY, u32::MAX));
        self.sq_norms.clear();
        for (&(row, _), out) in doubts.rows.iter().zip(self.rows.chunks_exact_mut(dim)) {
            let x = rows.row(row as usize);
            for ((out, &x), &s) in out.iter_mut().zip(x).zip(&packed.shift) {
                *out = moved(x, s, packed.scale);
            }
            self.sq_norms.push(sq_norm(out));
            // The values in low precision exceed tile values by twice the product with the mean.
            let read = if low.product == Product::Bytes { x } else { &*out };
            self.excess.push(excess(read, &low.mean));
        }
    }

    /// Measures all pairs.
    #[inline(always)]
    fn measure<E: Engine>(&mut self, engine: &E, low: &LowCenters) {
        self.pairs.sort_unstable();
        let (whole, rest) = self.pairs.as_chunks::<TOGETHER>();
        for pairs in whole {
            if pairs[0].0 == pairs[TOGETHER - 1].0 {
                absorb(
                    low,
                    pairs,
                    chains::<E, TOGETHER, true>(engine, low, &self.rows, pairs),
                    &mut self.best,
                );
            } else {
                absorb(
                    low,
                    pairs,
                    chains::<E, TOGETHER, false>(engine, low, &self.rows, pairs),
                    &mut self.best,
                );
            }
        }
        for pair in rest.as_chunks::<1>().0 {
            absorb(low, pair, chains::<E, 1, true>(engine, low, &self.rows, pair), &mut self.best);
        }
    }
}

/// `2 x.m`, and an upper limit of its error.
#[inline(always)]
pub(super) fn excess(x: &[f32], mean: &[f32]) -> (f64, f64) {
    const LANES: usize = 8;
    let (mut product, mut largest) = ([0.0; LANES], [0.0; LANES]);
    let (x_parts, x_rest) = x.as_chunks::<LANES>();
    let (m_parts, m_rest) = mean.as_chunks::<LANES>();
    for i in 0..x_parts.len().min(m_parts.len()) {
        for l in 0..LANES {
            let term = f64::from(x_parts[i][l]) * f64::from(m_parts[i][l]);
            product[l] += term;
            largest[l] += term.abs();
        }
    }
    for l in 0..x_rest.len().min(m_rest.len()) {
        let term = f64::from(x_rest[l]) * f64::from(m_rest[l]);
        product[l] += term;
        largest[l] += term.abs();
    }
    let (mut sum, mut most) = (0.0, 0.0);
    for l in 0..LANES {
        sum += product[l];
        most += largest[l];
    }
    // The sum in `f64` has a relative error far below 1e-9.
    (2.0 * sum, 1e-9 * most)
}

/// The candidates of the rows in doubt, row by row.
fn per_row(doubts: &Doubts) -> impl Iterator<Item = &[Candidate]> {
    let mut rest = &doubts.candidates[..];
    doubts.counts.iter().map(move |&count| {
        let (mine, others) = rest.split_at(count as usize);
        rest = others;
        mine
    })
}

/// The tile values of pairs of a panel and a row. `SAME` tells that all pairs have one panel.
#[inline(always)]
fn chains<E: Engine, const N: usize, const SAME: bool>(
    _engine: &E,
    low: &LowCenters,
    rows: &[f32],
    pairs: &[(u32, u32); N],
) -> [Line; N] {
    let dim = low.dim;
    let (mut panels, mut xs) = ([std::ptr::null::<f32>(); N], [std::ptr::null::<f32>(); N]);
    let mut out = [Line::ZERO; N];
    for (q, &(panel, row)) in pairs.iter().enumerate() {
        panels[q] = low.columns[panel as usize * dim..][..dim].as_ptr().cast();
        xs[q] = rows[row as usize * dim..][..dim].as_ptr();
        out[q] = low.norms[panel as usize];
    }
    for lane in (0..PANEL).step_by(E::Vectors::LANES) {
        // SAFETY: the engine shows that the processor has the vectors. A panel has `dim` lines, and a row `dim`
        // values, by the slices above. `lane` is the first of a vector within a line.
        unsafe {
            let mut sums = [E::Vectors::splat(0.0); N];
            for q in 0..N {
                sums[q] = E::Vectors::load(out[q].0.as_ptr().add(lane));
            }
            for t in 0..dim {
                for q in 0..N {
                    let c = E::Vectors::load(panels[if SAME { 0 } else { q }].add(t * PANEL + lane));
                    sums[q] = E::Vectors::fmadd(E::Vectors::splat(*xs[q].add(t)), c, sums[q]);
                }
            }
            for q in 0..N {
                E::Vectors::store(out[q].0.as_mut_ptr().add(lane), sums[q]);
            }
        }
    }
    out
}

/// `|x'|^2` of a row.
#[inline(always)]
fn sq_norm(x: &[f32]) -> f32 {
    let (parts, rest) = x.as_chunks::<16>();
    let mut squares = Line::ZERO;
    for x in parts {
        squares.0.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
    }
    rest.iter().fold(squares.sum(), |sum, &x| sum + x * x)
}

/// Takes the values of pairs into the two smallest of their rows.
#[inline(always)]
fn absorb<const N: usize>(
    low: &LowCenters,
    pairs: &[(u32, u32); N],
    values: [Line; N],
    best: &mut [(f32, f32, u32)],
) {
    for (&(panel, i), mut values) in pairs.iter().zip(values) {
        let least = values.smallest();
        let (best, second, center) = &mut best[i as usize];
        if least < *best {
            let lane = values.0.iter().position(|&v| v == least).unwrap_or(0);
            values.0[lane] = f32::INFINITY;
            let next = values.smallest();
            *second = if next < *best { next } else { *best };
            (*best, *center) = (least, low.order[panel as usize * PANEL + lane]);
        } else if least < *second {
            *second = least;
        }
    }
}
