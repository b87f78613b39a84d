//! Orthonormal directions: those in which rows differ most, random ones, and how orthonormal they are as rounded.
#![allow(unsafe_code)]

use super::multiply;
use crate::float::Float;
use crate::kernel::simd::Widen;
use crate::kernel::tier::{Operation, Tier, active};
use crate::parallel::Executor;
use crate::rng::Rng;

/// Steps of the iteration that finds the columns of sketches.
const SKETCH_ROUNDS: usize = 3;

/// Directions of the largest squared lengths of some rows, by subspace iteration.
pub(super) struct Leading<'a> {
    rows: &'a [f32],
    /// The same values column by column.
    columns: Vec<f32>,
    dim: usize,
    /// Orthonormal, a run of `dim` values each.
    pub(super) directions: Vec<f64>,
    /// Their share of the squared lengths.
    pub(super) energy: f64,
}

impl<'a> Leading<'a> {
    /// No directions yet.
    pub(super) fn of(rows: &'a [f32], dim: usize) -> Self {
        Self {
            rows,
            columns: by_column(rows, dim, rows.len() / dim),
            dim,
            directions: Vec::new(),
            energy: 0.0,
        }
    }

    /// Adds directions until there are `count`.
    pub(super) fn extend(&mut self, count: usize, rng: &mut Rng, cx: &Executor) {
        let (n, dim, known) = (self.rows.len() / self.dim, self.dim, self.directions.len());
        let new = count - known / dim;
        let (mut onto, mut back) = (vec![0.0f32; n * new], vec![0.0f32; dim * new]);
        let mut all = std::mem::take(&mut self.directions);
        all.extend(random(new * dim, rng));
        for _ in 0..SKETCH_ROUNDS {
            multiply_on(cx, self.rows, &by_column(&all[known..], dim, new), (dim, new), &mut onto);
            multiply_on(cx, &self.columns, &onto, (n, new), &mut back);
            all.truncate(known);
            all.extend(by_column(&back, new, dim).into_iter().map(f64::from));
            all = orthonormal(all, known / dim, dim, rng);
        }
        multiply_on(cx, self.rows, &by_column(&all[known..], dim, new), (dim, new), &mut onto);
        let squares = |values: &[f32]| values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>();
        self.energy += squares(&onto) / squares(self.rows).max(f64::MIN_POSITIVE);
        self.directions = all;
    }
}

/// Rows of a product that a thread computes at a time.
const PRODUCT_ROWS: usize = 48;

/// Like [`multiply`], on all threads.
fn multiply_on(cx: &Executor, left: &[f32], right: &[f32], (depth, cols): (usize, usize), out: &mut [f32]) {
    let parts = left.chunks(PRODUCT_ROWS * depth).zip(out.chunks_mut(PRODUCT_ROWS * cols));
    cx.share(parts, |(left, out)| multiply(left, right, (depth, cols), out));
}

/// The same subspace in other directions: `count` of them, mixed by a random rotation.
pub(super) fn rotated(directions: &[f64], dim: usize, count: usize, rng: &mut Rng) -> Vec<f64> {
    let rotation = orthonormal(random(count * count, rng), 0, count, rng);
    let rotation: Vec<f32> = rotation.iter().map(|&v| v as f32).collect();
    let mut mixed = vec![0.0; dim * count];
    multiply(&by_column(directions, dim, count), &rotation, (count, count), &mut mixed);
    by_column(&mixed, count, dim).iter().map(|&v| f64::from(v)).collect()
}

/// The transposed matrix: `values` are runs of `length`, and there are `count` of them.
fn by_column<V: Float>(values: &[V], length: usize, count: usize) -> Vec<f32> {
    let mut out = vec![0.0; values.len()];
    for (j, run) in values.chunks_exact(length).enumerate() {
        for (t, &v) in run.iter().enumerate() {
            out[t * count + j] = v.to_f32();
        }
    }
    out
}

/// Values of a bell-shaped distribution: sums of uniform draws.
pub(super) fn random(count: usize, rng: &mut Rng) -> Vec<f64> {
    (0..count).map(|_| (0..6).map(|_| rng.unit() - 0.5).sum()).collect()
}

/// Runs of `length` values, made orthonormal from the first to the last; the first `known` are so already. A run that
/// depends on those before it is drawn again.
pub(super) fn orthonormal(mut runs: Vec<f64>, known: usize, length: usize, rng: &mut Rng) -> Vec<f64> {
    let tier: Tier<f64> = active();
    for j in known..runs.len() / length {
        let (before, from_here) = runs.split_at_mut(j * length);
        let run = &mut from_here[..length];
        for _ in 0..4 {
            if tier.run(Normalized { before, run }) {
                break;
            }
            run.copy_from_slice(&random(length, rng));
        }
    }
    runs
}

/// Makes a run orthogonal to those before it, and its length 1. Returns false if the run depends on them.
struct Normalized<'a> {
    before: &'a [f64],
    run: &'a mut [f64],
}

impl Operation<f64> for Normalized<'_> {
    type Output = bool;

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn run<S: Widen<T = f64>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) -> bool {
        let Self { before, run } = self;
        let whole = dot(run, run).sqrt();
        let (mut rest, mut reached) = (whole, 0.0);
        // Once more where most of the run is gone, because that loses digits.
        while reached < 0.5 {
            let was = rest;
            for other in before.chunks_exact(run.len()) {
                let along = dot(other, run);
                run.iter_mut().zip(other).for_each(|(v, o)| *v -= along * o);
            }
            rest = dot(run, run).sqrt();
            reached = rest / was;
            // Not `rest > ...`, because of NaN.
            let is_new = whole.is_finite() && rest > 1e-6 * whole && rest > 0.0;
            if !is_new {
                return false;
            }
        }
        for v in run.iter_mut() {
            *v /= rest;
        }
        true
    }
}

/// How far the products of runs of `length` values are from those of orthonormal ones: the root of the sum of squares.
pub(super) fn defect_of(runs: &[f64], length: usize) -> f64 {
    let tier: Tier<f64> = active();
    tier.run(Defect { runs, length })
}

/// See [`defect_of`].
struct Defect<'a> {
    runs: &'a [f64],
    length: usize,
}

impl Operation<f64> for Defect<'_> {
    type Output = f64;

    /// # Safety
    /// The processor has the instruction set of `S`.
    #[inline(always)]
    unsafe fn run<S: Widen<T = f64>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) -> f64 {
        let mut sum = 0.0;
        for (j, a) in self.runs.chunks_exact(self.length).enumerate() {
            for (i, b) in self.runs.chunks_exact(self.length).enumerate().take(j + 1) {
                let off = dot(a, b) - f64::from(u8::from(i == j));
                sum += off * off * if i == j { 1.0 } else { 2.0 };
            }
        }
        sum.sqrt()
    }
}

/// The sum of products.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_tail) = a.as_chunks::<32>();
    let (b, b_tail) = b.as_chunks::<32>();
    let mut sums = [0.0; 32];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let tail: f64 = a_tail.iter().zip(b_tail).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + tail
}
