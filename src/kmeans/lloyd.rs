//! This module knows Lloyd's algorithm: label every row with its nearest center, move every center to the mean of its rows, repeat.
//!
//! Sources: Lloyd, "Least squares quantization in PCM", 1982; tolerance and empty clusters as in scikit-learn. With the cosine metric rows
//! come normalised and centers are put back on the unit sphere (Dhillon and Modha, 2001).

use std::time::Instant;

use super::assign::inertia;
use super::empty;
use super::model::KMeansModel;
use super::panel_bounds::{PanelBounds, Work};
use super::params::{Algorithm, KMeansParams, Metric};
use super::run::Snapshot;
use crate::data::{Access, DataSource};
use crate::error::{Error, Result};
use crate::kernel::{self, Compute, PackedCenters, Scratch};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::solver::sweep::{Chunk, Cut, Wide, sweep};
use crate::solver::{Solver, Start, Step, StopReason};
use crate::stats::ClusterSums;
use crate::tuning::{
    BOUNDED_CHANGES, CARRIED_CHANGES, CARRIED_ENERGY, CARRIED_SWEEPS, bounded_chunk_rows, bounds_pay,
    tile_rows,
};

/// Seconds spent in each phase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Choosing the first centers.
    pub seeding: f64,
    /// Sweeps.
    pub sweeps: f64,
    /// The last pass, which makes labels and inertia those of the centers.
    pub finish: f64,
}

/// Lloyd's algorithm as a state: centers, labels, counts. `O(n)` labels and `O(k d)` sums.
///
/// `Step::objective` is the inertia that the sweep measured: of its labels about the centers that it started from. Where few labels change
/// it is carried from sweep to sweep, and agrees with a sum over all rows to about 1e-12; the inertia of the model is always such a sum.
#[derive(Clone, Debug)]
pub struct Lloyd<T> {
    params: KMeansParams,
    dim: usize,
    centers: Vec<T>,
    labels: Vec<u32>,
    /// Weight of each cluster at the last sweep.
    weights: Vec<f64>,
    /// Of the last sweep; the inertia of the model when `current`.
    energy: f64,
    /// `energy` was summed row by row, not carried from sweep to sweep.
    exact: bool,
    /// Sums of the rows by `labels`, with their squared error about `centers` as far as it is known: what the next sweep may start from.
    carried: Option<Carried>,
    /// What bounded sweeps know of each row.
    bounds: Option<PanelBounds>,
    /// How sweeps find the nearest centers, [`Algorithm::Auto`] resolved.
    algorithm: Algorithm,
    /// Labels that changed in the last sweep.
    changed: u64,
    /// `labels`, `weights` and `energy` belong to `centers`.
    current: bool,
    /// A sweep was broken off: some labels are newer than others, and which of them change next says nothing.
    torn: bool,
    /// Squared length below which the centers' move ends the run; known after the first sweep.
    threshold: Option<f64>,
    iteration: u64,
    rows_seen: u64,
    seeded_by: String,
    timings: Timings,
}

/// Sums that outlive a sweep, so that the next one need only move the rows whose label changes.
#[derive(Clone, Debug)]
struct Carried {
    clusters: ClusterSums,
    /// Sweeps since they were made afresh: each adds its rounding.
    age: u32,
    /// The squared error when they were made afresh.
    energy_afresh: f64,
}

/// Labels as they were and as they are now, in a chunk.
struct Relabelled<'a> {
    old: &'a mut [u32],
    new: &'a [u32],
}

/// What a tile contributes to a sweep.
struct Part {
    clusters: ClusterSums,
    changed: u64,
    distances: u64,
    /// Rows come with weights.
    weighted: bool,
    /// All rows about one point, for the variance of the data; only in the first sweep.
    moments: Option<ClusterSums>,
}

impl Part {
    fn new(k: usize, dim: usize, moments: bool) -> Self {
        Self {
            clusters: ClusterSums::new(k, dim),
            changed: 0,
            distances: 0,
            weighted: false,
            moments: moments.then(|| ClusterSums::new(1, dim)),
        }
    }

    fn merge(&mut self, part: &mut Self) {
        self.clusters.merge(&mut part.clusters);
        self.changed += std::mem::take(&mut part.changed);
        self.distances += std::mem::take(&mut part.distances);
        self.weighted |= part.weighted;
        if let (Some(total), Some(part)) = (&mut self.moments, &mut part.moments) {
            total.merge(part);
        }
    }

    /// Takes the new labels of a chunk: sums of all its rows if `afresh`, else of those whose label changed.
    fn absorb<T: Compute>(
        &mut self,
        chunk: &Chunk<'_, T>,
        labels: Relabelled<'_>,
        packed: &PackedCenters<T>,
        afresh: bool,
    ) -> Result<()> {
        let Relabelled { old, new } = labels;
        self.changed += new.iter().zip(&*old).filter(|(new, old)| new != old).count() as u64;
        if afresh {
            self.clusters.absorb(chunk.rows, new, chunk.weights, packed);
        } else {
            self.clusters.reassign(chunk.rows, old, new, packed);
        }
        old.copy_from_slice(new);
        self.weighted |= chunk.weights.is_some();
        if self.clusters.energy().is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
    }
}

impl<T: Compute> Lloyd<T> {
    /// A plan: the first centers are chosen when it begins.
    pub(super) fn plan(params: KMeansParams) -> Self {
        let algorithm = match params.algorithm {
            Algorithm::Auto => Algorithm::Lloyd,
            named => named,
        };
        Self {
            params,
            algorithm,
            dim: 0,
            centers: Vec::new(),
            labels: Vec::new(),
            weights: Vec::new(),
            energy: f64::NAN,
            exact: false,
            carried: None,
            bounds: None,
            changed: 0,
            current: false,
            torn: false,
            threshold: None,
            iteration: 0,
            rows_seen: 0,
            seeded_by: String::new(),
            timings: Timings::default(),
        }
    }

    /// The centers as they are now: empty before the first step.
    pub fn centers(&self) -> &[T] {
        &self.centers
    }

    /// Columns of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// What "near" means.
    pub fn metric(&self) -> Metric {
        self.params.metric
    }

    /// The label of each row at the last sweep.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Weight of each cluster at the last sweep.
    pub fn cluster_weights(&self) -> &[f64] {
        &self.weights
    }

    /// Weighted sum of squared distances at the last sweep.
    pub fn inertia(&self) -> f64 {
        self.energy
    }

    /// Number of sweeps that moved the centers.
    pub fn n_iter(&self) -> u64 {
        self.iteration
    }

    /// How the first centers were chosen.
    pub fn seeded_by(&self) -> &str {
        &self.seeded_by
    }

    /// Seconds by phase.
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// What it shows between two steps.
    pub(super) fn snapshot(&self) -> Snapshot<'_, T> {
        Snapshot {
            dim: self.dim,
            metric: self.params.metric,
            centers: &self.centers,
            weights: &self.weights,
            labels: &self.labels,
            inertia: self.energy,
            n_iter: self.iteration,
            n_steps: self.iteration,
            seeded_by: &self.seeded_by,
            algorithm: self.algorithm.name(),
            timings: self.timings,
        }
    }

    /// Labels every row; gives the sums about the present centers and the number of labels that changed. With `carried`, the sums by the
    /// labels as they are, only rows whose label changes are summed.
    fn assign(
        &mut self,
        packed: &PackedCenters<T>,
        moments: Option<&PackedCenters<T>>,
        carried: Option<ClusterSums>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Part> {
        let (k, dim) = (packed.n_centers(), self.dim);
        if data.dim() != dim {
            return Err(Error::Shape(format!("X has {} columns, but the run began with {dim}", data.dim())));
        }
        let afresh = carried.is_none();
        let mut total = Part::new(k, dim, moments.is_some());
        if let Some(clusters) = carried {
            total.clusters = clusters;
        }
        if std::mem::replace(&mut self.torn, true) {
            self.labels.fill(u32::MAX);
        }
        let empty = || Part::new(k, dim, moments.is_some());
        let Some(bounds) = &mut self.bounds else {
            let absorb = |chunk: Chunk<'_, T>,
                          labels: &mut [u32],
                          part: &mut Part,
                          (scratch, new): &mut (Scratch<T>, Vec<u32>)| {
                new.resize(labels.len(), 0);
                kernel::nearest(chunk.rows, packed, new, scratch);
                part.distances += labels.len() as u64 * k as u64;
                part.absorb(&chunk, Relabelled { old: labels, new }, packed, afresh)?;
                if let (Some(all), Some(origin)) = (&mut part.moments, moments) {
                    new.fill(0);
                    all.absorb(chunk.rows, new, None, origin);
                }
                Ok(())
            };
            let make = (empty, <(Scratch<T>, Vec<u32>)>::default);
            sweep(data, cx, tile_rows(k), &mut self.labels[..], &mut total, make, absorb, Part::merge)?;
            return Ok(total);
        };
        let width = bounds.n_groups();
        let (mut upper, mut lower) = bounds.take_rows();
        let rules = bounds.rules(packed);
        let absorb = |chunk: Chunk<'_, T>,
                      (labels, (upper, lower)): (&mut [u32], (&mut [f32], Wide<'_, f32>)),
                      part: &mut Part,
                      (work, new): &mut (Work<T>, Vec<u32>)| {
            new.resize(labels.len(), 0);
            part.distances += rules.label(chunk.rows, labels, new, upper, lower.values, work);
            part.absorb(&chunk, Relabelled { old: labels, new }, packed, afresh)
        };
        let cut = Cut { tile_rows: tile_rows(k), chunk_rows: Some(bounded_chunk_rows(self.dim)) };
        let state = (&mut self.labels[..], (&mut upper[..], Wide { values: &mut lower, width }));
        sweep(
            data,
            cx,
            cut,
            state,
            &mut total,
            (empty, <(Work<T>, Vec<u32>)>::default),
            absorb,
            Part::merge,
        )?;
        bounds.put_rows(upper, lower);
        Ok(total)
    }

    /// The algorithm in use; of [`Algorithm::Auto`], what it has chosen so far.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    #[cfg(test)]
    pub(super) fn bounds(&self) -> Option<&PanelBounds> {
        self.bounds.as_ref()
    }

    /// Begins bounded sweeps, if it is time for them.
    fn choose_bounds(&mut self) {
        if self.torn {
            // Lost with the sweep that was broken off. The order in which they pack the centers must go with them.
            self.bounds = None;
            return;
        }
        let wanted = match self.params.algorithm {
            Algorithm::Lloyd => false,
            Algorithm::Yinyang => true,
            Algorithm::Auto => {
                let settled = self.changed as f64 <= BOUNDED_CHANGES * self.labels.len() as f64;
                settled && bounds_pay(self.dim, self.params.n_clusters / PackedCenters::<T>::panel_centers())
            }
        };
        if wanted && self.bounds.is_none() && self.iteration > 0 {
            let centers = MatRef::new(&self.centers, self.dim);
            self.bounds = PanelBounds::new(centers, self.labels.len(), self.params.bounds_memory);
            if self.bounds.is_some() {
                self.algorithm = Algorithm::Yinyang;
            }
        }
    }

    /// Sums of all rows by their present labels: a pass without distances to other centers.
    fn sum_afresh(
        &self,
        packed: &PackedCenters<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<ClusterSums> {
        let (k, dim) = (packed.n_centers(), self.dim);
        let mut total = ClusterSums::new(k, dim);
        let absorb = |chunk: Chunk<'_, T>, labels: &[u32], part: &mut ClusterSums, (): &mut ()| {
            part.absorb(chunk.rows, labels, chunk.weights, packed);
            if part.energy().is_finite() { Ok(()) } else { Err(chunk.not_finite()) }
        };
        let make = (|| ClusterSums::new(k, dim), || ());
        sweep(data, cx, tile_rows(k), &self.labels[..], &mut total, make, absorb, ClusterSums::merge)?;
        Ok(total)
    }

    /// Moves every center that has weight to the mean of its rows (or the direction of their sum); gives the squared length of all moves.
    /// The sums' squared error is then that about the new centers.
    fn update(&mut self, sums: &mut ClusterSums) -> f64 {
        let (mut moved, mut growth) = (0.0, 0.0);
        for (j, center) in self.centers.chunks_exact_mut(self.dim).enumerate() {
            let (sum, weight) = (sums.sum(j), sums.weights()[j]);
            let divisor = match self.params.metric {
                Metric::Euclidean => weight,
                Metric::Cosine => sum.iter().map(|s| s * s).sum::<f64>().sqrt(),
            };
            if weight > 0.0 && divisor > 0.0 {
                for (c, s) in center.iter_mut().zip(sum) {
                    let (old, new) = (c.to_f64(), T::from_f64(s / divisor));
                    let (to, mean) = (new.to_f64(), s / weight);
                    moved += (to - old).powi(2);
                    // Squared error about a point is that about the mean plus the weight times the squared distance to the mean.
                    growth += weight * (to - old) * ((to - mean) + (old - mean));
                    *c = new;
                }
            }
        }
        sums.grow_energy(growth);
        moved
    }
}

/// The mean over columns of the variance of all rows, from their sums about `origin`.
fn mean_variance<T: Compute>(all: &ClusterSums, origin: &[T]) -> f64 {
    let n = all.weights()[0];
    let offset: f64 = all.sum(0).iter().zip(origin).map(|(s, o)| (s / n - o.to_f64()).powi(2)).sum();
    ((all.energy() / n - offset) / origin.len() as f64).max(0.0)
}

impl<T: Compute> Solver<T> for Lloyd<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        Access::Replay
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let begun = Instant::now();
        self.current = false;
        self.choose_bounds();
        let centers = MatRef::new(&self.centers, self.dim);
        let packed = match &mut self.bounds {
            Some(bounds) => bounds.pack(centers),
            None => PackedCenters::new(centers),
        };
        let origin = self.centers[..self.dim].to_vec();
        let wanted = self.threshold.is_none() && self.params.tolerance > 0.0;
        let packed_origin = wanted.then(|| PackedCenters::new(MatRef::new(&origin, self.dim)));
        let carried = self.carried.take().filter(|carried| carried.age < CARRIED_SWEEPS);
        let (mut age, floor) =
            carried.as_ref().map_or((0, 0.0), |c| (c.age + 1, c.energy_afresh * CARRIED_ENERGY));
        let mut part =
            self.assign(&packed, packed_origin.as_ref(), carried.map(|carried| carried.clusters), data, cx)?;
        if part.clusters.energy() < floor {
            // What is left of the energy is no longer large against the rounding of what has gone.
            part.clusters = self.sum_afresh(&packed, data, cx)?;
            age = 0;
        }
        let energy_afresh = if age == 0 { part.clusters.energy() } else { floor / CARRIED_ENERGY };
        self.energy = part.clusters.energy();
        self.exact = age == 0;
        if self.threshold.is_none() {
            let variance = part.moments.as_ref().map_or(0.0, |all| mean_variance(all, &origin));
            self.threshold = Some(self.params.tolerance * variance);
        }
        let relocated = empty::relocate(data, cx, &packed, &self.labels, &mut part.clusters)?;
        self.torn = false;
        let before = self.bounds.is_some().then(|| self.centers.clone());
        let moved = self.update(&mut part.clusters);
        if let (Some(bounds), Some(before)) = (&mut self.bounds, before) {
            bounds.follow(MatRef::new(&before, self.dim), MatRef::new(&self.centers, self.dim));
        }
        self.weights = part.clusters.weights().to_vec();
        let n = self.labels.len() as u64;
        self.iteration += 1;
        self.changed = part.changed;
        self.rows_seen += n;
        // A changed row is summed twice. Sums of weights that are no whole numbers would leave residues in a cluster that empties.
        if !part.weighted && relocated == 0 && part.changed as f64 <= CARRIED_CHANGES * n as f64 {
            self.carried = Some(Carried { clusters: part.clusters, age, energy_afresh });
        }
        // Unchanged labels have unchanged means, bit for bit, unless the sums were made afresh, or `finish` changed the labels meanwhile.
        self.current = part.changed == 0 && moved == 0.0;
        self.timings.sweeps += begun.elapsed().as_secs_f64();
        let stop_reason = if self.current && relocated == 0 {
            Some(StopReason::LabelsStable)
        } else if self.threshold.is_some_and(|t| moved <= t) {
            Some(StopReason::Tolerance)
        } else {
            None
        };
        Ok(Step {
            iteration: self.iteration,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: self.energy,
            center_shift: moved.sqrt(),
            n_changed: part.changed,
            n_distances: part.distances,
            elapsed: 0.0,
            stop_reason,
        })
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> Start<T> for Lloyd<T> {
    fn begin(&self, start: u64, data: &dyn DataSource<T>, cx: &Executor) -> Result<Self> {
        let begun = Instant::now();
        let mut new = Self::plan(self.params.clone());
        new.dim = data.dim();
        let seeds = self.params.seeding.choose(data, self.params.n_clusters, self.params.seed, start, cx)?;
        new.seeded_by = seeds.method;
        new.centers = seeds.centers;
        if self.params.metric == Metric::Cosine {
            crate::data::normalize_rows(&mut new.centers, new.dim);
        }
        let n = crate::data::count_rows(data)?;
        crate::seeding::enough_rows(n, self.params.n_clusters)?;
        new.labels = vec![u32::MAX; n as usize];
        new.timings.seeding = begun.elapsed().as_secs_f64();
        Ok(new)
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        if !self.current {
            let packed = PackedCenters::new(MatRef::new(&self.centers, self.dim));
            (self.carried, self.bounds) = (None, None);
            let part = self.assign(&packed, None, None, data, cx)?;
            self.energy = part.clusters.energy();
            self.exact = true;
            self.weights = part.clusters.weights().to_vec();
            self.torn = false;
            self.current = true;
        } else if !self.exact {
            self.energy = inertia(&self.centers, Some(&self.labels), Metric::Euclidean, data, cx)?;
            self.exact = true;
        }
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(self.energy)
    }
}
