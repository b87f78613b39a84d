//! The solver: levels of the tree, then sweeps.

use std::time::Instant;

use super::lists::CenterLists;
use super::moves::{joining, leaving, move_rows};
use super::params::HierarchicalParams;
use crate::centers::{Cells, Desk, KMeansModel, LabelsRef, Snapshot, search_cut};
use crate::data::{Access, DataSource, check_finite, count_rows};
use crate::error::Result;
use crate::fit::{FitSolver, Metric, Solver, SolverState, Step, StopReason, Timings};
use crate::graph::tree_pays;
use crate::kernel::{self, Compute, PackedCenters, sq_dist};
use crate::parallel::Executor;
use crate::pass::{Chunk, Compared, Groups, sweep};
use crate::seeding::{Clusters, Grown, Growth, Nodes, enough_rows, packed};

/// Columns up to which the nodes of a tree of hierarchical k-means begin by greedy k-means++, where it takes less time
/// than the other steps. (SIFT descriptors, 20,000 clusters: four sweeps then end 0.6% lower, but the tree takes eight
/// times as long. Its sweeps gain more in this time.)
const GREEDY_NODE_COLUMNS: usize = 32;

/// Whether lists of the centers around each of `k` centers of `dim` columns cost little beside the last pass over `n`
/// rows, which compares most rows with all centers.
fn exact_lists_pay(k: usize, dim: usize, n: usize) -> bool {
    // A pair of centers takes about five times as long as a row and a center, because near ones are kept in order.
    tree_pays(k as u64, dim) || 50 * k <= n || k <= 1024
}

/// Default number of candidates of sweeps by lists: with up to `FEW_COLUMNS` columns, and with more. (`rare.py`,
/// hierarchical. 2,000 clusters of SIFT descriptors, 128 columns: 32 candidates end 0.6% higher than 128. In up to 38
/// columns they end equally low, in half to three quarters of the time.)
const FEW_LISTED: usize = 32;
const FEW_COLUMNS: usize = 64;
pub(super) const LISTED: usize = 128;

/// The same of sweeps by cells, and the share of the labels at which either end. With few rows per cluster flat k-means
/// is fast, and ends higher. (`rare.py`, hierarchical: 10 letters per cluster take a fifth of the time of 128 and 0.001,
/// and end 1.0% higher, which is 0.8% below flat k-means.)
const CELL_LISTED: usize = 32;
const LIST_TOLERANCE: f64 = 1e-3;
const CELL_TOLERANCE: f64 = 0.02;

/// Centers that a row is compared with in a sweep by cells, in multiples of the number of candidates. (200,000 SIFT
/// descriptors, 20,000 clusters, 20 sweeps: 1, 2 and 4 times 128 end 6.0%, 7.1% and 7.5% below flat k-means, in 9, 15
/// and 29 s.)
const CELL_CANDIDATES: usize = 2;

/// Nearest centers of a row, in such a sweep, among which the cluster is chosen that the row moves to. (The same with
/// 2: 6.9% instead of 7.1%, in 12 s instead of 15 s.)
const CELL_NEAREST: usize = 3;

/// Hierarchical k-means as a state: labels, clusters, lists of centers.
///
/// `Step::objective` is the squared error of the rows about the means of their clusters: of the nodes of a level, or
/// after a sweep of the clusters.
///
/// See [`Driver`](crate::fit::Driver) for an example of a solver.
#[derive(Clone, Debug)]
pub struct HierarchicalSolver<T> {
    pub(super) params: HierarchicalParams,
    /// The cluster per row; a node of the last level, while the tree grows.
    pub(super) labels: Vec<u32>,
    pub(super) clusters: Clusters<T>,
    /// The tree has all of its nodes.
    pub(super) grown: bool,
    /// Levels of the tree, and sweeps.
    pub(super) levels: u64,
    pub(super) sweeps: u64,
    /// The largest number of rows that a node was fitted to.
    pub(super) sample_rows: u64,
    pub(super) lists: Option<CenterLists>,
    /// Clusters whose rows the last sweep changed, which moves their centers.
    pub(super) moved: Vec<bool>,
    /// Per row: how much nearer its center is than all centers outside the list of its center, plus
    /// [`CenterLists::far`]. Empty without lists.
    pub(super) slacks: Vec<f32>,
    pub(super) rows_seen: u64,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
    pub(super) finished: Option<ExactLabels>,
}

/// Exact labels of the current centers.
#[derive(Clone, Debug)]
pub(super) struct ExactLabels {
    pub(super) labels: Vec<u32>,
    pub(super) weights: Vec<f64>,
    /// Squared errors of the clusters about their centers.
    pub(super) energies: Vec<f64>,
    /// Share of the rows whose label the lists proved.
    pub(super) certified: f64,
}

impl ExactLabels {
    /// The squared error of all rows.
    pub(super) fn energy(&self) -> f64 {
        self.energies.iter().sum()
    }
}

/// Whether lists of this age are made again before the next sweep: when the number of sweeps has doubled.
fn is_expired(age: u64, sweeps: u64) -> bool {
    2 * age > sweeps
}

/// The result of a sweep.
struct SweptClusters<T> {
    labels: Vec<u32>,
    clusters: Clusters<T>,
    slacks: Vec<f32>,
    /// Clusters whose rows changed.
    moved: Vec<bool>,
    changed: u64,
    distances: u64,
    /// A center was moved elsewhere: that of an empty cluster, or of one that was merged.
    relocated: bool,
}

impl<T: Compute> HierarchicalSolver<T> {
    /// The share of the rows whose label the lists of centers proved before the last pass compared the others with
    /// all centers. `None` before that pass.
    pub fn certified(&self) -> Option<f64> {
        self.finished.as_ref().map(|finished| finished.certified)
    }

    /// The largest number of rows that a node of the tree was fitted to.
    pub fn sample_rows(&self) -> u64 {
        self.sample_rows
    }

    /// The state of a tree that is only a root.
    fn begin(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Self> {
        let n = count_rows(data)?;
        enough_rows(n, self.params.n_clusters)?;
        check_finite(data, cx)?;
        let Nodes { labels, clusters } = Nodes::root(n, data)?;
        Ok(Self { labels, clusters, ..Self::plan(&self.params) })
    }

    fn growth(&self) -> Growth {
        Growth {
            n_clusters: self.params.n_clusters,
            branching: self.params.branching_factor,
            seed: self.params.rng_seed,
            memory: self.params.memory_limit,
            metric: self.params.metric,
            greedy: self.clusters.dim <= GREEDY_NODE_COLUMNS,
        }
    }

    /// Adds a level to the tree.
    fn grow(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let grown = self.growth().grow(self.levels, (&self.labels, &self.clusters), data, cx)?;
        let Grown { nodes: Nodes { labels, clusters }, complete, sample_rows, changed, distances } = grown;
        (self.labels, self.clusters, self.grown) = (labels, clusters, complete);
        self.sample_rows = self.sample_rows.max(sample_rows);
        self.levels += 1;
        if self.grown {
            self.moved = vec![true; self.clusters.len()];
        }
        let levels = self.levels;
        self.seeded_by = format!("tree of {levels} level{}", if levels == 1 { "" } else { "s" });
        let stop = if self.grown { StopReason::after(0, self.params.max_iter) } else { None };
        Ok(self.step_of(changed, distances, 0.0, stop))
    }

    /// Compares rows with the centers around their own: rows of a center that has not moved only with those that have.
    /// Calls `found` as [`Compared::relabel`] does, and returns the number of distances.
    pub(super) fn compare(
        &self,
        lists: &CenterLists,
        fresh: bool,
        all: &PackedCenters<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
        found: impl FnMut(u32, u32, f32),
    ) -> Result<u64> {
        let list = |j: usize, list: &mut Vec<u32>| {
            let every = fresh || self.moved[j];
            lists.write(j, |l| every || self.moved[l], list);
            if !every && list.len() == 1 {
                list.clear();
            }
        };
        let reach = |j: usize| lists.reach(j);
        let memory = self.params.memory_limit;
        let compared = Compared { all, list: &list, longest: lists.width, reach: Some(&reach), memory };
        compared.relabel(data, &Groups::new(&self.labels, self.clusters.len()), cx, found)
    }

    /// Compares all rows with their own center and with the centers in the cells nearest to them. Writes the clusters
    /// to which moving a row alone lowers the squared error most, and returns the number of distances.
    fn compare_by_cells(
        &self,
        all: &PackedCenters<T>,
        labels: &mut [u32],
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<u64> {
        let cells = Cells::new(all, cx)?;
        let n_probes = cells.with_centers(CELL_CANDIDATES * self.params.n_candidates.unwrap_or(CELL_LISTED));
        let m = CELL_NEAREST.min(self.clusters.len());
        let weights = &self.clusters.weights;
        // Means of directions do not follow the rule of means.
        let alone = self.params.metric == Metric::Euclidean;
        let absorb =
            |chunk: Chunk<'_, T>,
             labels: &mut [u32],
             distances: &mut u64,
             (desk, found, own, near): &mut (Desk<T>, Vec<u32>, Vec<f64>, Vec<f64>)| {
                let rows = labels.len();
                found.resize(rows * m, 0);
                near.resize(rows * m, 0.0);
                own.resize(rows, 0.0);
                kernel::sq_dists(chunk.rows, labels, all, own);
                *distances += cells.search(chunk.rows, n_probes, found, near, desk, cx)?;
                let each = found.chunks_exact(m).zip(near.chunks_exact(m)).zip(&*own);
                for (i, (label, ((found, near), &own))) in labels.iter_mut().zip(each).enumerate() {
                    let weight = chunk.weights.map_or(1.0, |weights| weights[i]);
                    let of = weights[*label as usize];
                    let (mut best, mut least) = (*label, if alone { leaving(of, weight) * own } else { own });
                    for (&j, &sq_dist) in found.iter().zip(near).filter(|(j, _)| *j != label) {
                        let raised =
                            if alone { joining(weights[j as usize], weight) * sq_dist } else { sq_dist };
                        if raised < least {
                            (best, least) = (j, raised);
                        }
                    }
                    *label = best;
                }
                Ok(())
            };
        let desk = || (cells.desk(), Vec::new(), Vec::new(), Vec::new());
        let merge = |total: &mut u64, part: &mut u64| *total += std::mem::take(part);
        let mut distances = 0;
        sweep(data, cx, search_cut(data), labels, &mut distances, (|| 0, desk), absorb, merge)?;
        Ok(distances)
    }

    /// One sweep.
    fn sweep(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let k = self.clusters.len();
        let all = packed(data, &self.clusters.centers);
        let (n, dim) = (self.labels.len(), self.clusters.dim);
        let m = self.params.n_candidates.unwrap_or(if dim <= FEW_COLUMNS { FEW_LISTED } else { LISTED });
        let kept = self.lists.take().filter(|lists| !is_expired(lists.age, self.sweeps));
        let fresh = kept.is_none();
        let mut lists = match kept {
            Some(lists) => Some(lists),
            None if m + 1 < k && !exact_lists_pay(k, dim, n) => None,
            None => Some(CenterLists::new(self.clusters.centers(), m, cx)?),
        };
        let by_cells = lists.is_none();
        let swept = self.swept(lists.as_ref(), fresh, &all, data, cx).and_then(|mut swept| {
            let stop = self.stop_after(&swept, by_cells);
            // With all centers in the lists, sweeps are those of exact k-means.
            let near = lists.as_ref().filter(|lists| lists.width < k);
            let due = near.filter(|lists| is_expired(lists.age + 1, self.sweeps + 1));
            if let Some(lists) = due.filter(|_| stop.is_none() && !swept.relocated) {
                self.exchange(&mut swept, lists, data, cx)?;
            }
            Ok((swept, stop))
        });
        let (swept, stop) = match swept {
            Ok(swept) => swept,
            Err(error) => {
                // Lists of this sweep can be made again from the same centers.
                self.lists = lists.filter(|_| !fresh);
                return Err(error);
            }
        };
        let SweptClusters { labels, clusters, slacks, moved, changed, distances, relocated } = swept;
        let moves: Vec<f64> = self
            .clusters
            .centers()
            .iter()
            .zip(clusters.centers().iter())
            .map(|(old, new)| if old == new { 0.0 } else { sq_dist(old, new).sqrt().max(f64::MIN_POSITIVE) })
            .collect();
        self.moved = moved;
        if let Some(lists) = lists.as_mut() {
            lists.follow(moves.iter().copied());
        }
        // A center that was moved elsewhere has no valid list.
        self.lists = lists.filter(|_| !relocated);
        (self.labels, self.clusters, self.slacks) = (labels, clusters, slacks);
        self.sweeps += 1;
        let shift = moves.iter().map(|length| length * length).sum::<f64>().sqrt();
        Ok(self.step_of(changed, distances, shift, stop))
    }

    /// Whether the fit ends after a sweep.
    fn stop_after(&self, swept: &SweptClusters<T>, by_cells: bool) -> Option<StopReason> {
        let default = if by_cells { CELL_TOLERANCE } else { LIST_TOLERANCE };
        let tolerance = self.params.tolerance.unwrap_or(default);
        let few = swept.changed as f64 <= tolerance * self.labels.len() as f64;
        if swept.changed == 0 && !swept.relocated {
            Some(StopReason::LabelsStable)
        } else if few && !swept.relocated && tolerance > 0.0 {
            Some(StopReason::Tolerance)
        } else {
            StopReason::after(self.sweeps + 1, self.params.max_iter)
        }
    }

    /// Merges near clusters where splitting others lowers the squared error more: sweeps move no center over others.
    fn exchange(
        &self,
        swept: &mut SweptClusters<T>,
        lists: &CenterLists,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        let near = |j: usize, near: &mut Vec<u32>| lists.write(j, |_| true, near);
        let (labels, clusters) = (std::mem::take(&mut swept.labels), std::mem::take(&mut swept.clusters));
        let mut nodes = Nodes { labels, clusters };
        let (exchanged, distances) =
            self.growth().exchange(&mut nodes, (self.sweeps + 1, &near), data, cx)?;
        (swept.labels, swept.clusters) = (nodes.labels, nodes.clusters);
        swept.changed = self.labels.iter().zip(&swept.labels).filter(|(old, new)| old != new).count() as u64;
        swept.distances += distances;
        swept.relocated = exchanged > 0;
        Ok(())
    }

    /// The result of a sweep. The state does not change.
    fn swept(
        &self,
        lists: Option<&CenterLists>,
        fresh: bool,
        all: &PackedCenters<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<SweptClusters<T>> {
        let k = self.clusters.len();
        let (mut labels, mut slacks) = (self.labels.clone(), Vec::new());
        let distances = if let Some(lists) = lists {
            slacks.clone_from(&self.slacks);
            slacks.resize(labels.len(), f32::NEG_INFINITY);
            self.compare(lists, fresh, all, data, cx, |row, label, slack| {
                labels[row as usize] = label;
                if !slack.is_nan() {
                    slacks[row as usize] = slack;
                }
            })?
        } else {
            let mut wanted = self.labels.clone();
            let distances = self.compare_by_cells(all, &mut wanted, data, cx)?;
            if self.params.metric == Metric::Euclidean {
                move_rows(&mut self.clusters.clone(), &mut labels, &wanted, data, cx)?;
            } else {
                labels = wanted;
            }
            distances
        };
        let (mut stale, mut changed) = (vec![false; k], 0);
        for (&old, &label) in self.labels.iter().zip(&labels).filter(|(old, label)| old != label) {
            changed += 1;
            (stale[old as usize], stale[label as usize]) = (true, true);
        }
        let groups = Groups::new(&labels, k);
        let mut clusters = self.clusters.clone();
        clusters.settle(data, &groups, &stale, self.params.metric, self.params.memory_limit, cx)?;
        let repaired = clusters.repair(data, &mut labels, &groups, self.params.metric, cx)?;
        let relocated = repaired > 0;
        Ok(SweptClusters { labels, clusters, slacks, moved: stale, changed, distances, relocated })
    }

    fn step_of(&mut self, changed: u64, distances: u64, shift: f64, stop_reason: Option<StopReason>) -> Step {
        let n = self.labels.len() as u64;
        self.rows_seen += n;
        Step {
            iteration: self.levels + self.sweeps,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: self.clusters.energy(),
            center_shift: shift,
            n_changed: changed,
            n_distances: distances,
            elapsed: 0.0,
            stop_reason,
        }
    }
}

impl<T: Compute> Solver<T> for HierarchicalSolver<T> {
    type Model = KMeansModel;

    fn needs(&self) -> Access {
        Access::Random
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let begun = Instant::now();
        let step = if self.labels.is_empty() {
            let mut new = self.begin(data, cx)?;
            let step = new.grow(data, cx)?;
            *self = new;
            step
        } else if self.grown {
            self.sweep(data, cx)?
        } else {
            self.grow(data, cx)?
        };
        self.finished = None;
        let seconds = begun.elapsed().as_secs_f64();
        if self.sweeps == 0 {
            self.timings.seeding += seconds;
        } else {
            self.timings.sweeps += seconds;
        }
        Ok(step)
    }

    fn model(&self) -> KMeansModel {
        KMeansModel::new(&self.snapshot())
    }
}

impl<T: Compute> FitSolver<T> for HierarchicalSolver<T> {
    fn snapshot(&self) -> Snapshot<'_, T> {
        let (labels, weights, energy) = match &self.finished {
            Some(finished) => (&finished.labels[..], &finished.weights, finished.energy()),
            None if self.params.compute_labels => {
                (&self.labels[..], &self.clusters.weights, self.clusters.energy())
            }
            None => (&[][..], &self.clusters.weights, f64::NAN),
        };
        Snapshot {
            dim: self.clusters.dim,
            metric: self.params.metric,
            centers: &self.clusters.centers,
            weights,
            labels: LabelsRef::from(labels),
            inertia: energy,
            n_iter: self.sweeps,
            n_steps: self.levels + self.sweeps,
            seeded_by: &self.seeded_by,
            algorithm: "hierarchical",
            timings: self.timings,
        }
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        let finished = match self.finished.take() {
            Some(finished) => finished,
            None => self.exact(data, cx)?,
        };
        let energy = finished.energy();
        self.finished = Some(finished);
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(energy)
    }

    fn conclude(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let begun = Instant::now();
        self.fill(data, cx)?;
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(())
    }
}
