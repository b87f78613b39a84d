//! Outer loop of Laplacian K-modes as a solver: alternates responsibilities and modes.

use std::sync::Arc;
use std::time::Instant;

use super::affinity::Affinity;
use super::laplacian::{Problem, Relaxed, labels, ordered};
use super::model::{Fitted, KModesModel, PRECOMPUTED};
use super::modes::{Gauss, is_blind, nearness, shift, surest};
use super::outside::NeighborWeight;
use super::params::{Collapse, KModesParams, ModeUpdate, Shift};
use super::shares::Shares;
use crate::data::{Access, DataSource, take};
use crate::error::Result;
use crate::fit::{Facts, FitSolver, Metric, Snapshot, Solver, Step, StopReason, Timings, Typed};
use crate::kernel::{Compute, sq_dist};
use crate::parallel::Executor;

/// Bytes of responsibilities that fit into a near cache. If there are more, rows are ordered to keep
/// neighbors together: in the order of the data, two thirds of the time of an update were spent waiting for
/// the responsibilities of neighbors (70,000 rows, k = 10).
const NEAR_BYTES: usize = 128 << 10;

/// The run ends when the energy changes by less than this share.
const TOLERANCE: f64 = 1e-5;
/// Factor on the Laplacian's weight after a collapse.
const COLLAPSE_FACTOR: f64 = 0.8;
/// Maximum number of collapses; the weight is then nearly 0.
const MAX_COLLAPSES: u32 = 60;

/// Laplacian K-modes as a state, over rows as the fit sees them.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are what Python shows, one by one")]
pub struct KModesSolver<T> {
    pub(super) params: KModesParams,
    pub(super) dim: usize,
    /// Shared with the models.
    pub(crate) affinity: Option<Arc<Affinity>>,
    /// Neighbors per row of the graph; with a given affinity, of new rows.
    pub(crate) n_neighbors: usize,
    pub(crate) about: String,
    pub(crate) recall: f64,
    pub(crate) variance: f64,
    pub(super) modes: Vec<T>,
    /// The row numbers of the modes; empty if the modes are means.
    pub(crate) mode_rows: Vec<u64>,
    pub(crate) labels: Vec<u32>,
    /// Kernel values of all rows and modes; empty if they must be recomputed.
    pub(super) near: Vec<T>,
    pub(crate) z: Shares<T>,
    pub(super) spare: [Shares<T>; 2],
    /// The affinity in an order that keeps neighbors together, and that order; only for many rows.
    pub(super) local: Option<(Affinity, Vec<u32>)>,
    pub(crate) lambda: f64,
    /// Labels to start from; a row without one gets that of the nearest mode.
    pub(super) first: Vec<Option<u32>>,
    /// Whether an iteration starts from the previous responsibilities instead of from the modes.
    pub(super) warm_start: bool,
    /// Whether the diagonal is shifted, with [`Shift::Auto`].
    pub(crate) shifted: bool,
    /// `-sum z a - lambda sum w z.z` of the previous iteration.
    pub(super) expected: Option<f64>,
    pub(crate) relaxed: Vec<Vec<f64>>,
    pub(crate) energies: Vec<f64>,
    pub(crate) collapsed: bool,
    /// Whether the kernel was too narrow in some iteration.
    pub(crate) blind: bool,
    pub(super) begun: bool,
    pub(super) n_iter: u64,
    pub(super) rows_seen: u64,
    pub(super) seeded_by: String,
    pub(crate) timings: [f64; 3],
}

impl<T: Compute> KModesSolver<T> {
    /// Uses a given affinity instead of a neighbor graph.
    pub(super) fn take_affinity(&mut self, affinity: Affinity) {
        self.n_neighbors = self.n_neighbors.clamp(1, affinity.n_rows().max(2) - 1);
        self.affinity = Some(Arc::new(affinity));
        self.about = PRECOMPUTED.into();
    }

    fn model_with(&self, fitted: Fitted<T>, labels: Vec<u32>) -> KModesModel {
        let m = self.n_neighbors;
        let sum = self.affinity.as_ref().map_or(0.0, |affinity| affinity.sums().1);
        let given = self.about == PRECOMPUTED;
        let n = labels.len();
        KModesModel {
            typed: Typed::of_type::<T, Fitted<()>>(fitted),
            dim: self.dim,
            mode_rows: self.mode_rows.clone(),
            labels,
            energies: self.energies.clone(),
            relaxed: self.relaxed.clone(),
            n_iter: self.n_iter,
            normalize: self.params.scales(),
            n_neighbors: m,
            affinity: self.affinity.clone(),
            pull: if self.params.gaussian && !given {
                NeighborWeight::Kernel
            } else {
                NeighborWeight::mean(sum, n, m)
            },
            bandwidth: self.variance.sqrt(),
            lambda: self.lambda,
            graph_method: self.about.clone(),
            graph_recall: self.recall,
            collapsed: self.collapsed,
            shifted: self.shifted,
            seeded_by: self.seeded_by.clone(),
            timings: self.timings,
            threads: None,
        }
    }

    pub(super) fn gauss(&self) -> Gauss {
        Gauss::new(self.variance)
    }

    /// Runs the inner loop for the current kernel values. With [`Shift::Auto`], repeats it with the shift if
    /// the objective rises.
    fn relax(&mut self, lambda: f64, continued: bool, shifted: &mut bool, cx: &Executor) -> Result<Relaxed> {
        let k = self.params.n_clusters;
        if self.local.is_none() && size_of_val(&self.near[..]) > NEAR_BYTES {
            let affinity = self.affinity.as_ref().expect("made at the beginning");
            let order = affinity.local_order((NEAR_BYTES / (k * size_of::<T>())).max(1));
            self.local = Some((affinity.in_order(&order), order));
        }
        let Self { local, affinity, near, spare, params, z, .. } = self;
        let affinity = local.as_ref().map(|(affinity, _)| affinity).or(affinity.as_deref());
        let affinity = affinity.expect("made at the beginning");
        let moved = local.as_ref().map(|(_, order)| ordered(near, order, k));
        let near = moved.as_deref().unwrap_or(near);
        let relaxed = loop {
            let shift = shift_of(params.shift, affinity, lambda, *shifted);
            let problem = Problem { near, k, affinity, lambda, shift: &shift };
            let leave = params.shift == Shift::Auto && !*shifted;
            if continued {
                spare[1].take_from(z, local.as_ref().map(|(_, order)| &order[..]))?;
            }
            match problem.relax(spare, continued, leave, cx) {
                Ok(relaxed) if relaxed.rose && leave => *shifted = true,
                ended => break ended?,
            }
        };
        if let Some((_, order)) = local {
            let [found, back] = spare;
            found.put_back(order, back);
            std::mem::swap(found, back);
        }
        Ok(relaxed)
    }

    /// One iteration. After an error the state is unchanged except for the kernel values, which are
    /// recomputed when needed.
    fn iterate(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let step = self.attempt(data, cx);
        if step.is_err() {
            self.near.clear();
        }
        step
    }

    fn attempt(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let k = self.params.n_clusters;
        let n = self.labels.len() as u64;
        let (mut modes, mut passes) = (self.modes.clone(), 1);
        if self.params.mode_update == ModeUpdate::MeanShift {
            passes += shift(data, &self.labels, &mut modes, self.gauss(), cx)? as u64;
            self.measure(&modes, data, cx)?;
        }
        let blind = self.blind || is_blind(&self.near, k);
        let (mut lambda, mut shifted, mut collapses) = (self.lambda, self.shifted, 0);
        let (relaxed, found) = loop {
            let relaxed = self.relax(lambda, self.warm_start, &mut shifted, cx)?;
            let found = labels(&self.spare[0]);
            let mut used = vec![false; k];
            for &label in &found {
                used[label as usize] = true;
            }
            if used.iter().all(|&used| used) {
                break (relaxed, found);
            }
            collapses += 1;
            if self.params.on_collapse == Collapse::Restore || collapses > MAX_COLLAPSES {
                return self.restored(&modes, (relaxed.watched, shifted, blind), data, cx);
            }
            lambda *= COLLAPSE_FACTOR;
        };
        let n_changed = found.iter().zip(&self.labels).filter(|(new, old)| new != old).count() as u64;
        let mut moved = modes != self.modes;
        let mut mode_rows = Vec::new();
        if self.params.mode_update == ModeUpdate::ByProduct {
            mode_rows = surest(&self.spare[0]);
            if mode_rows != self.mode_rows {
                modes = take(data, &mode_rows)?;
            }
            if modes != self.modes {
                moved = true;
                passes += 1;
                self.measure(&modes, data, cx)?;
            }
        }
        // Nothing below can fail.
        let before = std::mem::replace(&mut self.modes, modes);
        self.mode_rows = mode_rows;
        (self.lambda, self.shifted, self.blind) = (lambda, shifted, blind);
        self.collapsed |= collapses > 0;
        let Self { z, spare, .. } = self;
        std::mem::swap(z, &mut spare[0]);
        self.labels = found;
        self.relaxed.push(relaxed.watched);
        let energy = self.energy();
        self.energies.push(energy);
        let settled = self.expected.is_some_and(|old| (relaxed.energy - old).abs() <= TOLERANCE * old.abs());
        self.expected = Some(relaxed.energy);
        self.n_iter += 1;
        let pairs = before.chunks_exact(self.dim).zip(self.modes.chunks_exact(self.dim));
        let center_shift = pairs.map(|(old, new)| sq_dist(old, new)).sum::<f64>().sqrt();
        let stop_reason = if !moved && n_changed == 0 {
            Some(StopReason::LabelsStable)
        } else if !moved || settled {
            Some(StopReason::Tolerance)
        } else {
            StopReason::after(self.n_iter, self.params.max_iter)
        };
        self.rows_seen += passes * n;
        Ok(Step {
            iteration: self.n_iter,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: energy,
            center_shift,
            n_changed,
            n_distances: passes * n * k as u64,
            elapsed: 0.0,
            stop_reason,
        })
    }

    /// Ends the run with the state before a cluster lost its last row. If only modes were found so far,
    /// labels the rows without the affinity.
    fn restored(
        &mut self,
        tried: &[T],
        (watched, shifted, blind): (Vec<f64>, bool, bool),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Step> {
        if self.modes != tried {
            let modes = self.modes.clone();
            self.measure(&modes, data, cx)?;
        }
        if self.z.is_empty() {
            self.relax(0.0, false, &mut false, cx)?;
            let Self { z, spare, .. } = self;
            std::mem::swap(z, &mut spare[0]);
            self.labels = labels(&self.z);
        }
        // Nothing below can fail.
        self.relaxed.push(watched);
        (self.collapsed, self.shifted, self.blind) = (true, shifted, blind);
        let energy = self.energy();
        self.energies.push(energy);
        self.n_iter += 1;
        let n = self.labels.len() as u64;
        self.rows_seen += n;
        Ok(Step {
            iteration: self.n_iter,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: energy,
            n_distances: n * self.params.n_clusters as u64,
            stop_reason: Some(StopReason::Collapsed),
            ..Step::default()
        })
    }

    /// Computes the kernel values of `modes`. After an error there are none.
    fn measure(&mut self, modes: &[T], data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let mut near = std::mem::take(&mut self.near);
        near.resize(self.labels.len() * self.params.n_clusters, T::ZERO);
        nearness(data, modes, self.gauss(), &mut near, cx)?;
        self.near = near;
        Ok(())
    }

    /// The energy of the current labels and modes (equation 1).
    fn energy(&self) -> f64 {
        let k = self.params.n_clusters;
        let near = self.near.chunks_exact(k).zip(&self.labels);
        let close: f64 = near.map(|(near, &label)| near[label as usize].to_f64()).sum();
        let apart = self.affinity.as_ref().map_or(0.0, |affinity| affinity.between(&self.labels));
        self.lambda * apart - close
    }
}

impl<T: Compute> Solver<T> for KModesSolver<T> {
    type Model = KModesModel;

    fn needs(&self) -> Access {
        Access::Random
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if !self.begun {
            self.begin(data, cx)?;
        }
        let begun = Instant::now();
        if self.near.is_empty() {
            // After an interrupt or a resume.
            let modes = self.modes.clone();
            self.measure(&modes, data, cx)?;
        }
        let step = self.iterate(data, cx)?;
        self.timings[2] += begun.elapsed().as_secs_f64();
        Ok(step)
    }

    fn model(&self) -> KModesModel {
        let fitted = Fitted { modes: self.modes.clone(), responsibilities: self.z.clone() };
        self.model_with(fitted, self.labels.clone())
    }

    fn into_model(mut self) -> KModesModel {
        let (modes, responsibilities) =
            (std::mem::take(&mut self.modes), std::mem::replace(&mut self.z, Shares::new(0, 0)));
        let labels = std::mem::take(&mut self.labels);
        self.model_with(Fitted { modes, responsibilities }, labels)
    }
}

impl<T: Compute> FitSolver<T> for KModesSolver<T> {
    /// Modes in place of centers. Phases and energies are not those of a method with centers.
    fn snapshot(&self) -> Snapshot<'_, T> {
        Snapshot {
            dim: self.dim,
            metric: Metric::Euclidean,
            centers: &self.modes,
            weights: &[],
            labels: self.labels[..].into(),
            inertia: f64::NAN,
            n_iter: self.n_iter,
            n_steps: self.n_iter,
            seeded_by: &self.seeded_by,
            algorithm: "slk",
            timings: Timings::default(),
        }
    }

    fn facts(&self) -> Facts {
        let metric = if self.params.scales() { Metric::Cosine } else { Metric::Euclidean };
        Facts { dim: self.dim, metric, has_weight: true }
    }

    fn finish(&mut self, _data: &dyn DataSource<T>, _cx: &Executor) -> Result<f64> {
        Ok(self.energies.last().copied().unwrap_or(f64::NAN))
    }

    fn has_begun(&self) -> bool {
        self.begun
    }
}

/// Diagonal shift of the affinity per row.
fn shift_of(shift: Shift, affinity: &Affinity, lambda: f64, shifted: bool) -> Vec<f64> {
    match shift {
        Shift::By(0.0) => Vec::new(),
        Shift::By(shift) => vec![shift; affinity.n_rows()],
        Shift::Auto if shifted && lambda > 0.0 => {
            (0..affinity.n_rows()).map(|p| (affinity.degree(p) - 2.0 / lambda).max(0.0)).collect()
        }
        Shift::Auto => Vec::new(),
    }
}
