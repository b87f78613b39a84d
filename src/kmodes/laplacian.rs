//! Inner loop: updates the responsibilities of all rows, each by minimizing a bound, until they converge.
//!
//! The update `z_p <- softmax(a_p + lambda sum_q w_pq z_q)` (equation 8 of the paper) is made for all rows at
//! once, so `Z` is held twice. It is the exact minimum of the tangent bound of
//! `R(Z) = sum z log z - sum z a - (lambda / 2) sum_pq w_pq z_p.z_q`, with half the weight that the paper
//! writes. `R` is the monitored objective. It never rises if `W` is symmetric and
//! `lambda max(0, -lambda_min(W)) <= 2`. A neighbor matrix need not meet this condition. Shifting its
//! diagonal ensures it; the shift slows the updates and does not change which labels are best. If only the
//! largest responsibilities of a row are kept, the objective may rise a little.

use super::affinity::Affinity;
use super::shares::{Shares, keep};
use crate::error::Result;
use crate::kernel::Compute;
use crate::parallel::Executor;

/// Maximum number of updates of a loop.
const MAX_UPDATES: usize = 1000;
/// A loop ends when the objective changes by less than this share.
const TOLERANCE: f64 = 1e-6;
/// Share by which the objective may rise if only the largest responsibilities are kept; up to 5e-5 was seen
/// on digits.
const TRUNCATED_SLACK: f64 = 1e-3;
/// Rows that one worker updates between two merges of sums.
const TILE_ROWS: usize = 1024;
/// Rows whose exponentials are computed together.
const GROUP_ROWS: usize = 64;

/// The inputs of a loop.
pub(super) struct Problem<'a, T> {
    /// Kernel values of all rows and modes, `k` per row.
    pub(super) near: &'a [T],
    pub(super) k: usize,
    pub(super) affinity: &'a Affinity,
    pub(super) lambda: f64,
    /// Diagonal shift per row; empty if there is none.
    pub(super) shift: &'a [f64],
}

/// The result of a loop. The responsibilities are in the first of its two buffers.
pub(super) struct Relaxed {
    /// The objective before the first update and after each.
    pub(super) watched: Vec<f64>,
    /// `- sum z a - lambda sum w z.z`.
    pub(super) energy: f64,
    /// Whether the objective rose. The loop stops at once if that was requested.
    pub(super) rose: bool,
}

/// A number of clusters, as a compile-time constant where it is small, so that loops over clusters are
/// unrolled.
trait ClusterCount: Copy + Sync {
    fn get(self) -> usize;
}

#[derive(Clone, Copy)]
struct KnownCount<const K: usize>;

impl<const K: usize> ClusterCount for KnownCount<K> {
    #[inline(always)]
    fn get(self) -> usize {
        K
    }
}

impl ClusterCount for usize {
    #[inline(always)]
    fn get(self) -> usize {
        self
    }
}

/// Sums of one update over all rows: of the responsibilities that it reads, and of those that it writes.
#[derive(Clone, Copy, Default)]
struct UpdateSums {
    /// `sum z.a` and `sum z.(W z)` of the old responsibilities, and the part of the diagonal shift in the
    /// latter.
    near: f64,
    smooth: f64,
    inert: f64,
    /// `sum z log z - z.a` of the new responsibilities.
    free: f64,
}

impl UpdateSums {
    /// Adds `part` and resets it.
    fn take(&mut self, part: &mut Self) {
        let Self { near, smooth, inert, free } = std::mem::take(part);
        self.near += near;
        self.smooth += smooth;
        self.inert += inert;
        self.free += free;
    }
}

impl<T: Compute> Problem<'_, T> {
    /// Whether no update can raise the objective, except by rounding: the shift ensures the condition row by
    /// row.
    fn goes_down(&self) -> bool {
        let n = self.affinity.n_rows();
        let enough =
            |(p, shift): (usize, &f64)| self.lambda * (self.affinity.degree(p) - shift) <= 2.0 + 1e-9;
        self.shift.len() == n && self.shift.iter().enumerate().all(enough)
    }

    /// Runs the loop, starting from `softmax(a)`, or from an update of the second buffer if `continued`.
    pub(super) fn relax(
        &self,
        buffers: &mut [Shares<T>; 2],
        continued: bool,
        leave_when_it_rises: bool,
        cx: &Executor,
    ) -> Result<Relaxed> {
        for z in &mut *buffers {
            z.resize(self.near.len() / self.k)?;
        }
        let slack = if buffers[0].is_whole() { T::EPSILON } else { TRUNCATED_SLACK };
        let sure = cfg!(debug_assertions) && buffers[0].is_whole() && self.goes_down();
        let [now, next] = buffers;
        let mut free = self.update(continued.then_some(&*next), now, cx)?.free;
        let mut watched: Vec<f64> = Vec::new();
        let mut rose = false;
        loop {
            // The update also computes the sums of the current responsibilities. Its own result is unused in
            // the last iteration.
            let sums = self.update(Some(now), next, cx)?;
            let value = free - 0.5 * self.lambda * (sums.smooth + sums.inert);
            let energy = -sums.near - self.lambda * sums.smooth;
            if let Some(&before) = watched.last() {
                rose |= value > before + slack * before.abs();
                debug_assert!(
                    !sure || value <= before + 1e3 * T::EPSILON * before.abs(),
                    "{value} > {before}"
                );
                if rose && leave_when_it_rises {
                    return Ok(Relaxed { watched, energy, rose });
                }
                watched.push(value);
                if (value - before).abs() <= TOLERANCE * before.abs() || watched.len() > MAX_UPDATES {
                    return Ok(Relaxed { watched, energy, rose });
                }
            } else {
                watched.push(value);
            }
            free = sums.free;
            std::mem::swap(now, next);
        }
    }

    /// One update of all rows, from `z` to `out`; without `z`, from the kernel values alone.
    fn update(&self, z: Option<&Shares<T>>, out: &mut Shares<T>, cx: &Executor) -> Result<UpdateSums> {
        macro_rules! widths {
            ($($k:literal)*) => {
                match self.k {
                    $($k => self.update_of(KnownCount::<$k>, z.map(Shares::whole), out.whole_mut(), cx),)*
                    k => self.update_of(k, z.map(Shares::whole), out.whole_mut(), cx),
                }
            };
        }
        if !out.is_whole() {
            return self.update_largest(z, out, cx);
        }
        widths!(2 3 4 5 6 7 8 9 10 12 16 20)
    }

    fn update_of(
        &self,
        width: impl ClusterCount,
        z: Option<&[T]>,
        out: &mut [T],
        cx: &Executor,
    ) -> Result<UpdateSums> {
        let mut total = UpdateSums::default();
        let tiles = out.chunks_mut(TILE_ROWS * self.k).enumerate();
        cx.ordered_reduce(
            tiles,
            &mut total,
            UpdateSums::default,
            Vec::new,
            |(tile, out), sums, wanted| {
                for (group, out) in out.chunks_mut(GROUP_ROWS * self.k).enumerate() {
                    let first = tile * TILE_ROWS + group * GROUP_ROWS;
                    if let Some(z) = z {
                        self.logits(width, z, first, out, sums);
                    } else {
                        out.copy_from_slice(&self.near[first * self.k..][..out.len()]);
                    }
                    self.softmax(width, first, out, sums, wanted);
                }
                Ok(())
            },
            UpdateSums::take,
        )?;
        Ok(total)
    }

    /// Like `update_of`, for rows that keep only their largest responsibilities.
    fn update_largest(
        &self,
        z: Option<&Shares<T>>,
        out: &mut Shares<T>,
        cx: &Executor,
    ) -> Result<UpdateSums> {
        let (k, n) = (self.k, self.affinity.n_rows());
        let mut total = UpdateSums::default();
        cx.ordered_reduce(
            out.parts(GROUP_ROWS).enumerate(),
            &mut total,
            UpdateSums::default,
            || (vec![T::ZERO; GROUP_ROWS * k], vec![T::ZERO; k], Vec::new(), Vec::new()),
            |(group, (values, clusters)), sums, (rows, own, wanted, order)| {
                let first = group * GROUP_ROWS;
                let count = GROUP_ROWS.min(n - first);
                let rows = &mut rows[..count * k];
                let near = &self.near[first * k..][..rows.len()];
                if let Some(z) = z {
                    for (i, row) in rows.chunks_exact_mut(k).enumerate() {
                        z.spread(first + i, own);
                        self.wish(first + i, own, row, sums, |q, w, out| z.add(q, w, out));
                    }
                } else {
                    rows.copy_from_slice(near);
                }
                self.softmax(k, first, rows, &mut UpdateSums::default(), wanted);
                let (width, top) = (values.len() / count, clusters.len() / count);
                let out = values.chunks_exact_mut(width).zip(clusters.chunks_exact_mut(top));
                for ((row, near), (values, clusters)) in
                    rows.chunks_exact_mut(k).zip(near.chunks_exact(k)).zip(out)
                {
                    keep(row, values, clusters, order);
                    let value = |(&z, &a): (&T, &T)| z.to_f64() * (z.to_f64().ln() - a.to_f64());
                    sums.free += row.iter().zip(near).map(value).sum::<f64>();
                }
                Ok(())
            },
            UpdateSums::take,
        )?;
        Ok(total)
    }

    /// Writes `a_p + lambda (sum_q w_pq z_q + shift_p z_p)` for the rows from `first` on.
    #[inline(always)]
    fn logits(&self, width: impl ClusterCount, z: &[T], first: usize, out: &mut [T], sums: &mut UpdateSums) {
        let k = width.get();
        for (i, out) in out.chunks_exact_mut(k).enumerate() {
            let p = first + i;
            self.wish(p, &z[p * k..(p + 1) * k], out, sums, |q, w, out| {
                let other = &z[q * k..(q + 1) * k];
                out.iter_mut().zip(other).for_each(|(out, &z)| *out = *out + w * z);
            });
        }
    }

    /// Like `logits`, for one row with the responsibilities `own`; `add` adds those of a neighbor.
    #[inline(always)]
    fn wish(
        &self,
        p: usize,
        own: &[T],
        out: &mut [T],
        sums: &mut UpdateSums,
        add: impl Fn(usize, T, &mut [T]),
    ) {
        let near = &self.near[p * own.len()..][..own.len()];
        out.fill(T::ZERO);
        let (columns, weights) = self.affinity.row(p);
        for (&q, &w) in columns.iter().zip(weights) {
            add(q as usize, T::from_f64(w), out);
        }
        let (mut close, mut smooth) = (0.0, 0.0);
        for ((&z, &a), &b) in own.iter().zip(near).zip(&*out) {
            close += z.to_f64() * a.to_f64();
            smooth += z.to_f64() * b.to_f64();
        }
        sums.near += close;
        sums.smooth += smooth;
        if let Some(&shift) = self.shift.get(p) {
            sums.inert += shift * own.iter().map(|z| z.to_f64() * z.to_f64()).sum::<f64>();
            let shift = T::from_f64(shift);
            out.iter_mut().zip(own).for_each(|(out, &z)| *out = *out + shift * z);
        }
        let lambda = T::from_f64(self.lambda);
        out.iter_mut().zip(near).for_each(|(out, &a)| *out = a + lambda * *out);
    }

    /// Turns these logits into responsibilities, in place.
    #[inline(always)]
    fn softmax(
        &self,
        width: impl ClusterCount,
        first: usize,
        out: &mut [T],
        sums: &mut UpdateSums,
        wanted: &mut Vec<T>,
    ) {
        let k = width.get();
        let mut most = [T::ZERO; GROUP_ROWS];
        wanted.clear();
        wanted.extend_from_slice(out);
        for (row, most) in out.chunks_exact_mut(k).zip(&mut most) {
            *most = row.iter().fold(row[0], |most, &x| if x > most { x } else { most });
            for x in row {
                *x = *x - *most;
            }
        }
        T::exp_all(out);
        let near = &self.near[first * k..][..out.len()];
        let rows = out.chunks_exact_mut(k).zip(wanted.chunks_exact(k)).zip(near.chunks_exact(k));
        for (((row, wanted), near), most) in rows.zip(most) {
            let sum: f64 = row.iter().map(|x| x.to_f64()).sum();
            let share = T::from_f64(1.0 / sum);
            let mut free = 0.0;
            for ((z, &wish), &a) in row.iter_mut().zip(wanted).zip(near) {
                *z = *z * share;
                free += z.to_f64() * (wish.to_f64() - a.to_f64());
            }
            sums.free += free - (most.to_f64() + sum.ln());
        }
    }
}

/// Permutes rows of `k` values.
pub(super) fn ordered<T: Compute>(values: &[T], order: &[u32], k: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(values.len());
    for &row in order {
        out.extend_from_slice(&values[row as usize * k..][..k]);
    }
    out
}

/// The label of every row: the cluster with the largest responsibility, the lowest among equals.
pub(super) fn labels<T: Compute>(z: &Shares<T>) -> Vec<u32> {
    let mut found = Vec::with_capacity(z.n_rows());
    z.each(|_, row| {
        let mut best = 0;
        for (l, value) in row.iter().enumerate() {
            if *value > row[best] {
                best = l;
            }
        }
        found.push(best as u32);
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Rng};

    /// `R` by definition, with the shift.
    fn defined(problem: &Problem<'_, f64>, z: &[f64]) -> f64 {
        let k = problem.k;
        let mut value = 0.0;
        for p in 0..problem.affinity.n_rows() {
            for l in 0..k {
                let own = z[p * k + l];
                let (columns, weights) = problem.affinity.row(p);
                let pull: f64 = columns.iter().zip(weights).map(|(&q, w)| w * z[q as usize * k + l]).sum();
                let pull = pull + problem.shift.get(p).unwrap_or(&0.0) * own;
                value += own * own.ln() - own * problem.near[p * k + l] - 0.5 * problem.lambda * own * pull;
            }
        }
        value
    }

    /// A random symmetric matrix and kernel values.
    fn random(n: usize, k: usize, seed: u64) -> (Affinity, Vec<f64>) {
        let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
        let (mut starts, mut columns, mut weights) = (vec![0], Vec::new(), Vec::new());
        for i in 0..n {
            for j in 0..n {
                if i != j && rng.unit() < 0.3 {
                    columns.push(j as u32);
                    weights.push(rng.unit());
                }
            }
            starts.push(columns.len());
        }
        let near = (0..n * k).map(|_| rng.unit()).collect();
        (Affinity::symmetrized(&starts, &columns, &weights).unwrap(), near)
    }

    #[test]
    fn what_is_watched_is_what_is_defined_and_never_rises_with_the_shift() {
        let cx = Executor::new(Some(1)).unwrap();
        for seed in 0..1000 {
            let (affinity, near) = random(6 + (seed as usize % 9), 2 + (seed as usize % 3), seed);
            let (k, lambda) = (2 + (seed as usize % 3), 0.3 + 0.01 * (seed % 400) as f64);
            let n = affinity.n_rows();
            let shift: Vec<f64> = (0..n).map(|p| (affinity.degree(p) - 2.0 / lambda).max(0.0)).collect();
            let problem = Problem { near: &near, k, affinity: &affinity, lambda, shift: &shift };
            let mut buffers = [Shares::new(k, k), Shares::new(k, k)];
            let relaxed = problem.relax(&mut buffers, false, true, &cx).unwrap();
            assert!(!relaxed.rose && relaxed.watched.len() > 1, "{seed}");
            let last = *relaxed.watched.last().unwrap();
            assert!(
                (last - defined(&problem, buffers[0].whole())).abs() <= 1e-9 * last.abs().max(1.0),
                "{seed}"
            );
            assert!(buffers[0].whole().iter().all(|&z| z > 0.0));
            for row in buffers[0].whole().chunks_exact(k) {
                assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn without_neighbors_rows_ask_their_modes() {
        let near = [0.25f64, 0.5, 1.0, 0.0];
        let affinity = Affinity::symmetrized(&[0, 0, 0], &[], &[]).unwrap();
        let problem = Problem { near: &near, k: 2, affinity: &affinity, lambda: 3.0, shift: &[] };
        let mut buffers = [Shares::new(2, 2), Shares::new(2, 2)];
        problem.relax(&mut buffers, false, false, &Executor::new(Some(1)).unwrap()).unwrap();
        for (z, a) in buffers[0].whole().as_chunks::<2>().0.iter().zip(near.as_chunks::<2>().0) {
            assert!((z[1] - 1.0 / (1.0 + (a[0] - a[1]).exp())).abs() < 1e-15);
        }
        assert_eq!(labels(&buffers[0]), [1, 0]);
    }

    #[test]
    fn two_neighbors_that_swap_for_ever_are_noticed() {
        let near = [1.0f64, 0.0, 0.0, 1.0];
        let affinity = Affinity::symmetrized(&[0, 1, 2], &[1, 0], &[1.0, 1.0]).unwrap();
        let problem = Problem { near: &near, k: 2, affinity: &affinity, lambda: 20.0, shift: &[] };
        let mut buffers = [Shares::new(2, 2), Shares::new(2, 2)];
        let cx = Executor::new(Some(1)).unwrap();
        assert!(problem.relax(&mut buffers, false, false, &cx).unwrap().rose);
        let left = problem.relax(&mut buffers, false, true, &cx).unwrap();
        assert!(left.rose && left.watched.windows(2).all(|pair| pair[1] <= pair[0]));
    }
}
