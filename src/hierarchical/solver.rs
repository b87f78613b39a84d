//! The solver: levels of the tree, then sweeps.

use std::time::Instant;

use super::HierarchicalParams;
use super::clusters::Clusters;
use super::ending::Finished;
use super::groups::Groups;
use super::lists::{Cells, Lists};
use super::relabel::{Compared, Relabeled};
use super::tree::{Growth, Level};
use crate::centers::{KMeansModel, LabelsRef, Snapshot};
use crate::data::{Access, DataSource, check_finite, count_rows};
use crate::error::Result;
use crate::fit::{Element, Facts, FitSolver, Solver, Step, StopReason, Timings};
use crate::kernel::{PackedCenters, sq_dist};
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::seeding::enough_rows;
use crate::tuning::{LIST_POOL, WIDE_SWEEPS, exact_lists_pay};

/// Hierarchical k-means as a state: labels, clusters, lists of centers.
///
/// `Step::objective` is the squared error of the rows about the means of their clusters: of the nodes of a level, or
/// after a sweep of the clusters.
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
    pub(super) lists: Option<Lists>,
    /// Clusters whose rows the last sweep changed, which moves their centers.
    pub(super) moved: Vec<bool>,
    /// Per row: how much nearer its center is than all centers outside the list of its center, plus
    /// [`Lists::far`]. Empty if the lists are approximate.
    pub(super) slacks: Vec<f32>,
    pub(super) rows_seen: u64,
    pub(super) seeded_by: String,
    pub(super) timings: Timings,
    pub(super) finished: Option<Finished>,
}

/// The result of a sweep.
struct Swept<T> {
    labels: Vec<u32>,
    clusters: Clusters<T>,
    slacks: Vec<f32>,
    /// Clusters whose rows changed.
    moved: Vec<bool>,
    changed: u64,
    distances: u64,
    /// Empty clusters that took a row of another cluster.
    repaired: usize,
}

impl<T: Element> HierarchicalSolver<T> {
    /// The state before the first step.
    pub(super) fn plan(params: HierarchicalParams) -> Self {
        Self {
            params,
            labels: Vec::new(),
            clusters: Clusters::default(),
            grown: false,
            levels: 0,
            sweeps: 0,
            sample_rows: 0,
            lists: None,
            moved: Vec::new(),
            slacks: Vec::new(),
            rows_seen: 0,
            seeded_by: String::new(),
            timings: Timings::default(),
            finished: None,
        }
    }

    /// The share of the rows whose label the lists of centers proved before the last pass compared the others with
    /// all centers. `None` before that pass.
    pub fn certified(&self) -> Option<f64> {
        self.finished.as_ref().map(|finished| finished.certified)
    }

    /// The largest number of rows that a node of the tree was fitted to.
    pub fn sample_rows(&self) -> u64 {
        self.sample_rows
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_, T> {
        let (labels, weights, energy) = match &self.finished {
            Some(finished) => (&finished.labels, &finished.weights, finished.energy),
            None => (&self.labels, &self.clusters.weights, self.clusters.energy()),
        };
        Snapshot {
            dim: self.clusters.dim,
            metric: self.params.metric,
            centers: &self.clusters.centers,
            weights,
            labels: LabelsRef::from(&labels[..]),
            inertia: energy,
            n_iter: self.sweeps,
            n_steps: self.levels + self.sweeps,
            seeded_by: &self.seeded_by,
            algorithm: "hierarchical",
            timings: self.timings,
        }
    }

    /// The state of a tree that is only a root.
    fn begin(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Self> {
        let n = count_rows(data)?;
        enough_rows(n, self.params.n_clusters)?;
        check_finite(data, cx)?;
        let mut new = Self::plan(self.params.clone());
        new.labels = vec![0; n as usize];
        new.clusters = Clusters::new(data.dim(), crate::data::take(data, &[0])?);
        // The squared error of the root is not needed to split it.
        new.clusters.energies[0] = 1.0;
        Ok(new)
    }

    fn growth(&self) -> Growth {
        Growth {
            n_clusters: self.params.n_clusters,
            branching: self.params.branching_factor,
            seed: self.params.rng_seed,
            level: self.levels,
            memory: self.params.memory_limit,
        }
    }

    /// Adds a level to the tree.
    fn grow(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let n = self.labels.len();
        let groups = Groups::new(&self.labels, self.clusters.len());
        let growth = self.growth();
        let level = growth.level(data, &self.clusters, &groups, cx)?;
        let mut next = self.clone_small();
        let (mut changed, mut distances) = (0, 0);
        if let Some(Level { centers, firsts, sample_rows, distances: fitted }) = level {
            let all = self.packed(data, &centers);
            let split = |j: usize| firsts[j + 1] - firsts[j] > 1;
            let list = |j: usize, list: &mut Vec<u32>| {
                if split(j) {
                    list.extend(firsts[j]..firsts[j + 1]);
                }
            };
            let longest = firsts.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(1) as usize;
            let compared = Compared { all: &all, list: &list, longest, reach: None };
            let found = compared.relabel(data, &groups, cx)?;
            distances = fitted + found.distances;
            let mut labels = vec![0; n];
            for (j, &first) in firsts.iter().enumerate().take(groups.count()) {
                for (&row, &label) in groups.of(j).iter().zip(&found.labels[groups.start(j)..]) {
                    labels[row as usize] = if split(j) { label } else { first };
                }
                changed += if split(j) { groups.len(j) as u64 } else { 0 };
            }
            drop((found, groups));
            let mut clusters = Clusters::new(self.clusters.dim, centers);
            let mut stale = vec![true; clusters.len()];
            for j in (0..self.clusters.len()).filter(|&j| !split(j)) {
                let child = firsts[j] as usize;
                stale[child] = false;
                clusters.weights[child] = self.clusters.weights[j];
                clusters.energies[child] = self.clusters.energies[j];
            }
            let groups = clusters.without_empty(&mut labels, &mut stale);
            clusters.settle(data, &groups, &stale, self.params.metric, cx)?;
            let more = clusters.len() > self.clusters.len();
            (next.labels, next.clusters) = (labels, clusters);
            next.sample_rows = self.sample_rows.max(sample_rows);
            next.levels += 1;
            next.grown = !more || !next.growth().splits(&next.clusters, &groups);
        } else {
            // One cluster, or rows that are all equal.
            next.labels.clone_from(&self.labels);
            next.clusters = self.clusters.clone();
            next.clusters.settle(data, &groups, &vec![true; groups.count()], self.params.metric, cx)?;
            next.levels += 1;
            next.sample_rows = n as u64;
            next.grown = true;
        }
        if next.grown {
            next.clusters.extend_to(self.params.n_clusters);
            let groups = Groups::new(&next.labels, next.clusters.len());
            next.clusters.repair(data, &mut next.labels, &groups, self.params.metric, cx)?;
            next.moved = vec![true; next.clusters.len()];
        }
        let levels = next.levels;
        next.seeded_by = format!("tree of {levels} level{}", if levels == 1 { "" } else { "s" });
        let ended = next.grown && self.params.max_iter == 0;
        *self = next;
        Ok(self.step_of(changed, distances, 0.0, ended.then_some(StopReason::MaxIterations)))
    }

    /// This state without what a step replaces.
    fn clone_small(&self) -> Self {
        Self {
            grown: self.grown,
            levels: self.levels,
            sweeps: self.sweeps,
            sample_rows: self.sample_rows,
            rows_seen: self.rows_seen,
            timings: self.timings,
            ..Self::plan(self.params.clone())
        }
    }

    pub(super) fn packed(&self, data: &dyn DataSource<T>, centers: &[T]) -> PackedCenters<T> {
        let centers = crate::matrix::MatRef::new(centers, self.clusters.dim);
        PackedCenters::for_rows(centers, data.most_values().is_some()).with_rows()
    }

    /// Compares rows with the centers around their own: rows of a center that has not moved only with those that have.
    pub(super) fn compare(
        &self,
        lists: &Lists,
        fresh: bool,
        all: &PackedCenters<T>,
        groups: &Groups,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Relabeled> {
        let list = |j: usize, list: &mut Vec<u32>| {
            let every = fresh || self.moved[j];
            lists.write(j, |l| every || self.moved[l], list);
            if !every && list.len() == 1 {
                list.clear();
            }
        };
        let reach = |j: usize| lists.reach(j);
        let compared = Compared {
            all,
            list: &list,
            longest: lists.width,
            reach: lists.certify().then_some(&reach as &(dyn Fn(usize) -> f64 + Sync)),
        };
        compared.relabel(data, groups, cx)
    }

    /// Compares all rows with the centers in the cells around the cell of their own center. Returns the rows by cells.
    fn compare_widely(
        &self,
        all: &PackedCenters<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<(Groups, Relabeled)> {
        let cells = Cells::new(all, LIST_POOL * (self.params.n_candidates + 1), cx)?;
        let of_rows: Vec<u32> = self.labels.iter().map(|&j| cells.of[j as usize]).collect();
        let groups = Groups::new(&of_rows, cells.count());
        let list = |cell: usize, list: &mut Vec<u32>| cells.write(cell, list);
        let compared = Compared { all, list: &list, longest: cells.longest(), reach: None };
        let found = compared.relabel(data, &groups, cx)?;
        Ok((groups, found))
    }

    /// One sweep.
    fn sweep(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let k = self.clusters.len();
        let all = self.packed(data, &self.clusters.centers);
        let (n, dim, m) = (self.labels.len(), self.clusters.dim, self.params.n_candidates);
        let wide = self.sweeps < WIDE_SWEEPS && m + 1 < k && !exact_lists_pay(k, dim, n);
        if wide {
            self.lists = None;
        }
        let kept = self.lists.take().filter(|lists| 2 * lists.age <= self.sweeps);
        let fresh = kept.is_none();
        let mut lists = match kept {
            Some(lists) => Some(lists),
            None if wide => None,
            None => Some(Lists::new(self.clusters.centers(), &all, m, n, cx)?),
        };
        let swept = self.swept(lists.as_ref(), fresh, &all, data, cx);
        let Swept { labels, clusters, slacks, moved, changed, distances, repaired } = match swept {
            Ok(swept) => swept,
            Err(error) => {
                // Fresh lists are made again: they are those of the same centers.
                self.lists = lists.filter(|_| !fresh);
                return Err(error);
            }
        };
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
        // Lists are of no use to a center that was put elsewhere.
        self.lists = lists.filter(|_| repaired == 0);
        (self.labels, self.clusters, self.slacks) = (labels, clusters, slacks);
        self.sweeps += 1;
        let few = changed as f64 <= self.params.tolerance * self.labels.len() as f64;
        let stop = if changed == 0 && repaired == 0 {
            Some(StopReason::LabelsStable)
        } else if few && repaired == 0 && self.params.tolerance > 0.0 {
            Some(StopReason::Tolerance)
        } else if self.sweeps >= self.params.max_iter {
            Some(StopReason::MaxIterations)
        } else {
            None
        };
        let shift = moves.iter().map(|length| length * length).sum::<f64>().sqrt();
        Ok(self.step_of(changed, distances, shift, stop))
    }

    /// What a sweep finds; this state stays as it is.
    fn swept(
        &self,
        lists: Option<&Lists>,
        fresh: bool,
        all: &PackedCenters<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Swept<T>> {
        let k = self.clusters.len();
        let (groups, found) = match lists {
            Some(lists) => {
                let groups = Groups::new(&self.labels, k);
                let found = self.compare(lists, fresh, all, &groups, data, cx)?;
                (groups, found)
            }
            None => self.compare_widely(all, data, cx)?,
        };
        let (mut labels, mut stale, mut changed) = (self.labels.clone(), vec![false; k], 0);
        for (&row, &label) in groups.rows().iter().zip(&found.labels) {
            let old = std::mem::replace(&mut labels[row as usize], label);
            if old != label {
                changed += 1;
                (stale[old as usize], stale[label as usize]) = (true, true);
            }
        }
        let mut slacks = Vec::new();
        if !found.slacks.is_empty() {
            slacks.clone_from(&self.slacks);
            slacks.resize(labels.len(), f32::NEG_INFINITY);
            for (&row, &slack) in groups.rows().iter().zip(&found.slacks).filter(|(_, slack)| !slack.is_nan())
            {
                slacks[row as usize] = slack;
            }
        }
        let distances = found.distances;
        drop((groups, found));
        let groups = Groups::new(&labels, k);
        let mut clusters = self.clusters.clone();
        clusters.settle(data, &groups, &stale, self.params.metric, cx)?;
        let repaired = clusters.repair(data, &mut labels, &groups, self.params.metric, cx)?;
        Ok(Swept { labels, clusters, slacks, moved: stale, changed, distances, repaired })
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

impl<T: Element> Solver<T> for HierarchicalSolver<T> {
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

impl<T: Element> FitSolver<T> for HierarchicalSolver<T> {
    fn facts(&self) -> Facts {
        self.snapshot().facts()
    }

    fn finish(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<f64> {
        let begun = Instant::now();
        let finished = match self.finished.take() {
            Some(finished) => finished,
            None => self.exact(data, cx)?,
        };
        let energy = finished.energy;
        self.finished = Some(finished);
        self.timings.finish += begun.elapsed().as_secs_f64();
        Ok(energy)
    }

    fn conclude(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        self.fill(data, cx)
    }

    fn checkpoint(&self) -> Contents {
        self.to_file()
    }

    fn fits(&self, n: Option<u64>) -> bool {
        n.is_none_or(|n| self.labels.len() as u64 == n)
    }
}
