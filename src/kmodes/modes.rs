//! Modes: the first ones, the row with the largest responsibility per cluster, and mean shift.

use super::shares::Shares;
use crate::centers::nearest;
use crate::data::{DataSource, copy, take};
use crate::error::{Error, InvalidParam, Result};
use crate::fit::Metric;
use crate::kernel::{self, Compute, PackedCenters, Scratch, distances};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Chunk, TILE_ROWS, Wide, sweep};
use crate::tuning::{STRIP_ROWS, tile_rows};

/// Rows of a cluster that are compared with each other to find the densest: more rows take longer than the
/// iterations, and the first mode need not be the best.
const DENSITY_ROWS: usize = 1024;

/// Maximum number of mean-shift iterations.
const MAX_SHIFTS: usize = 1000;
/// A mean has converged when none of its values moves by more than this share of the largest value.
const TOLERANCE: f64 = 1e-5;

/// The Gaussian kernel of a squared distance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gauss {
    /// `-1 / (2 sigma^2)`.
    slope: f64,
}

impl Gauss {
    /// The kernel of variance `sigma^2`.
    pub(super) fn new(variance: f64) -> Self {
        Self { slope: -0.5 / variance }
    }

    pub(super) fn of(self, sq_dist: f64) -> f64 {
        (self.slope * sq_dist).exp()
    }
}

/// Packs modes for the rows of `data`.
pub(super) fn packed<T: Compute>(modes: &[T], data: &dyn DataSource<T>) -> PackedCenters<T> {
    PackedCenters::for_rows(MatRef::new(modes, data.dim()), data.most_values().is_some())
}

/// Writes the kernel of every row and mode to `near`, `k` values per row.
pub(super) fn nearness<T: Compute>(
    data: &dyn DataSource<T>,
    modes: &[T],
    gauss: Gauss,
    near: &mut [T],
    cx: &Executor,
) -> Result<()> {
    let packed = packed(modes, data);
    let k = packed.n_centers();
    let absorb = |chunk: Chunk<'_, T>,
                  out: Wide<'_, T>,
                  (): &mut (),
                  (scratch, sq_dists): &mut (Scratch<T>, Vec<f64>)| {
        for start in (0..chunk.rows.rows()).step_by(STRIP_ROWS) {
            let rows = chunk.rows.slice(start, chunk.rows.rows().min(start + STRIP_ROWS));
            sq_dists.resize(rows.rows() * k, 0.0);
            distances(rows, &packed, sq_dists, scratch);
            if sq_dists.iter().any(|sq_dist| !sq_dist.is_finite()) {
                return Err(chunk.not_finite());
            }
            let out = &mut out.values[start * k..][..sq_dists.len()];
            out.iter_mut().zip(&*sq_dists).for_each(|(out, &sq_dist)| *out = T::from_f64(gauss.of(sq_dist)));
        }
        Ok(())
    };
    let state = Wide { values: near, width: k };
    sweep(data, cx, TILE_ROWS, state, &mut (), (|| (), Default::default), absorb, |(), ()| ())
}

/// Rows by label, ascending; rows without a label are left out.
fn members(labels: &[Option<u32>], k: usize) -> Vec<Vec<u64>> {
    let mut of = vec![Vec::new(); k];
    for (i, label) in labels.iter().enumerate() {
        if let Some(label) = label {
            of[*label as usize].push(i as u64);
        }
    }
    of
}

/// Labels rows by the nearest first mode. A drawn mode that is nearest to no row, because it coincides with
/// another, is replaced by the row farthest from its own mode.
///
/// # Errors
/// [`Error::InvalidParam`] if a given mode is nearest to no row, or if there are fewer distinct rows than
/// modes. Errors of the source.
pub(super) fn first_labels<T: Compute>(
    data: &dyn DataSource<T>,
    modes: &mut [T],
    given: bool,
    cx: &Executor,
) -> Result<Vec<u32>> {
    let k = modes.len() / data.dim();
    loop {
        let (labels, sq_dists) = nearest(modes, 1, Metric::Euclidean, data, cx)?;
        let mut used = vec![false; k];
        for &label in &labels {
            used[label as usize] = true;
        }
        let Some(l) = used.iter().position(|used| !used) else { return Ok(labels) };
        let farther = |far: usize, (row, d): (usize, &f64)| if *d > sq_dists[far] { row } else { far };
        let far = sq_dists.iter().enumerate().fold(0, farther);
        if given || sq_dists[far] == 0.0 {
            return Err(without_rows(k, l));
        }
        modes[l * data.dim()..][..data.dim()].copy_from_slice(&take(data, &[far as u64])?);
    }
}

/// Whether the kernel is too narrow: for most rows that do not coincide with a mode, it is 0 for every mode.
pub(super) fn is_blind<T: Compute>(near: &[T], k: usize) -> bool {
    let (mut seen, mut unseen) = (0, 0);
    for row in near.chunks_exact(k) {
        if row.iter().any(|a| (f64::MIN_POSITIVE..1.0).contains(&a.to_f64())) {
            seen += 1;
        } else if row.iter().all(|&a| a == T::ZERO) {
            unseen += 1;
        }
    }
    unseen > seen
}

/// The densest row per cluster: the row with the largest sum of kernels to the other rows. An evenly spaced
/// sample represents a large cluster.
///
/// # Errors
/// Errors of the source.
///
/// # Panics
/// If a cluster has no rows.
pub(super) fn densest<T: Compute>(
    data: &dyn DataSource<T>,
    labels: &[Option<u32>],
    k: usize,
    gauss: Gauss,
    cx: &Executor,
) -> Result<Vec<u64>> {
    let mut found = Vec::with_capacity(k);
    for all in members(labels, k) {
        let count = all.len().min(DENSITY_ROWS);
        let some: Vec<u64> = (0..count).map(|i| all[i * all.len() / count]).collect();
        let rows = copy(data, &some)?;
        let packed = packed(&take(data, &some)?, data);
        let mut densities = vec![0.0; count];
        cx.for_each(
            densities.chunks_mut(STRIP_ROWS).enumerate(),
            <(Scratch<T>, Vec<f64>)>::default,
            |(strip, out), (scratch, sq_dists)| {
                let first = strip * STRIP_ROWS;
                sq_dists.resize(out.len() * count, 0.0);
                distances(rows.rows().slice(first, first + out.len()), &packed, sq_dists, scratch);
                for (out, row) in out.iter_mut().zip(sq_dists.chunks_exact(count)) {
                    *out = row.iter().map(|&sq_dist| gauss.of(sq_dist)).sum();
                }
                Ok(())
            },
        )?;
        let mut best = 0;
        for (i, &density) in densities.iter().enumerate() {
            if density > densities[best] {
                best = i;
            }
        }
        found.push(some[best]);
    }
    Ok(found)
}

fn without_rows(k: usize, l: usize) -> Error {
    let problem = InvalidParam::new("n_clusters", "at most the number of distinct rows", k);
    problem.with_remedy(format!("no row is nearest to first mode {l}, and first modes must differ")).into()
}

/// The row with the largest responsibility for each cluster (equation 10), the lowest index among equals.
/// Compares the sum of the other responsibilities, which still differs where the responsibility itself rounds
/// to 1.
pub(super) fn surest<T: Compute>(z: &Shares<T>) -> Vec<u64> {
    let k = z.k();
    let mut best = vec![(f64::INFINITY, 0); k];
    let mut after = vec![0.0; k + 1];
    z.each(|p, row| {
        for l in (0..k).rev() {
            after[l] = after[l + 1] + row[l].to_f64();
        }
        let mut before = 0.0;
        for (l, best) in best.iter_mut().enumerate() {
            let others = before + after[l + 1];
            if others < best.0 {
                *best = (others, p as u64);
            }
            before += row[l].to_f64();
        }
    });
    best.into_iter().map(|(_, p)| p).collect()
}

/// Sums over rows, per cluster.
struct Shifted {
    sums: Vec<f64>,
    weights: Vec<f64>,
}

/// Moves each mode to the kernel-weighted mean of its rows (equation 9) until it converges. Returns the
/// number of iterations.
pub(super) fn shift<T: Compute>(
    data: &dyn DataSource<T>,
    labels: &[u32],
    modes: &mut [T],
    gauss: Gauss,
    cx: &Executor,
) -> Result<usize> {
    let d = data.dim();
    let k = modes.len() / d;
    let mut moving = vec![true; k];
    let mut shifts = 0;
    let make = || Shifted { sums: vec![0.0; k * d], weights: vec![0.0; k] };
    while moving.contains(&true) && shifts < MAX_SHIFTS {
        let packed = packed(modes, data);
        let mut total = make();
        let absorb =
            |chunk: Chunk<'_, T>,
             labels: &[u32],
             part: &mut Shifted,
             (sq_dists, weights, energies): &mut (Vec<f64>, Vec<f64>, Vec<f64>)| {
                sq_dists.resize(labels.len(), 0.0);
                energies.resize(k, 0.0);
                kernel::sq_dists(chunk.rows, labels, &packed, sq_dists);
                weights.clear();
                // Rows of converged modes get weight 0.
                weights.extend(
                    sq_dists.iter().zip(labels).map(|(&sq_dist, &label)| {
                        if moving[label as usize] { gauss.of(sq_dist) } else { 0.0 }
                    }),
                );
                let Shifted { sums, weights: totals } = part;
                kernel::accumulate(chunk.rows, labels, Some(weights), &packed, sums, totals, energies);
                Ok(())
            };
        let merge = |total: &mut Shifted, part: &mut Shifted| {
            let add = |(total, part): (&mut f64, &mut f64)| *total += std::mem::take(part);
            total.sums.iter_mut().zip(&mut part.sums).for_each(add);
            total.weights.iter_mut().zip(&mut part.weights).for_each(add);
        };
        sweep(data, cx, tile_rows(k), labels, &mut total, (make, Default::default), absorb, merge)?;
        for (l, mode) in modes.chunks_exact_mut(d).enumerate() {
            if !moving[l] {
                continue;
            }
            let weight = total.weights[l];
            if weight == 0.0 {
                // The kernel is 0 for every row: the mode stays.
                moving[l] = false;
                continue;
            }
            let (mut most, mut move_of) = (0.0f64, 0.0f64);
            for (m, sum) in mode.iter_mut().zip(&total.sums[l * d..]) {
                let new = T::from_f64(sum / weight);
                move_of = move_of.max((new.to_f64() - m.to_f64()).abs());
                most = most.max(new.to_f64().abs());
                *m = new;
            }
            moving[l] = move_of >= TOLERANCE * most && move_of > 0.0;
        }
        shifts += 1;
    }
    Ok(shifts)
}
