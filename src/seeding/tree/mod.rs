//! A tree of small k-means fits: first centers for thousands of clusters.
//!
//! Each level splits the nodes of the tree. The number of clusters that a node may still get is its quota.
//! Quotas are assigned again at every level, to all nodes at once, so a node with too few distinct rows
//! leaves its share to the others. Quotas follow the squared errors of the nodes, not their weights. Large nodes
//! are fitted to lightweight coresets: uniform samples would miss rare groups. The last level then exchanges merges of
//! near clusters for splits of clusters with large squared errors.

mod clusters;
mod exchange;
mod level;
mod quotas;
mod repair;

pub(crate) use clusters::Clusters;
pub(crate) use level::Growth;
use level::Level;

use super::seeds::{Seeds, known};
use crate::data::{Access, DataSource, check_finite, take};
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::pass::{Compared, Groups};
use crate::rng::Rng;
use crate::tuning::DEFAULT_MEMORY;

/// Rows in nodes.
pub(crate) struct Nodes<T> {
    /// The node per row.
    pub(crate) labels: Vec<u32>,
    pub(crate) clusters: Clusters<T>,
}

/// A tree with one more level.
pub(crate) struct Grown<T> {
    pub(crate) nodes: Nodes<T>,
    /// The nodes are the clusters.
    pub(crate) complete: bool,
    /// The largest number of rows that a node was fitted to.
    pub(crate) sample_rows: u64,
    /// Rows whose node changed, and computed distances.
    pub(crate) changed: u64,
    pub(crate) distances: u64,
}

/// Centers for the rows of `data`, packed so that some of them can be chosen.
pub(crate) fn packed<T: Compute>(data: &dyn DataSource<T>, centers: &[T]) -> PackedCenters<T> {
    PackedCenters::for_rows(MatRef::new(centers, data.dim()), data.most_values().is_some()).with_rows()
}

impl<T: Compute> Nodes<T> {
    /// A tree of `n` rows that is only a root.
    pub(crate) fn root(n: u64, data: &dyn DataSource<T>) -> Result<Self> {
        let mut clusters = Clusters::new(data.dim(), take(data, &[0])?);
        // The squared error of the root is not needed to split it.
        clusters.energies[0] = 1.0;
        Ok(Self { labels: vec![0; n as usize], clusters })
    }
}

impl Growth {
    /// How the tree of a seeding is grown.
    fn of_seeding(n_clusters: usize, seed: u64) -> Self {
        let (memory, metric) = (DEFAULT_MEMORY, Metric::Euclidean);
        Self { n_clusters, branching: None, seed, memory, metric, greedy: true }
    }

    /// Adds level `number` to the tree.
    pub(crate) fn grow<T: Compute>(
        &self,
        number: u64,
        (labels, clusters): (&[u32], &Clusters<T>),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Grown<T>> {
        let groups = Groups::new(labels, clusters.len());
        let level = self.level(number, data, clusters, &groups, cx)?;
        let mut grown = if let Some(level) = level {
            self.with_level(level, (labels, clusters), groups, data, cx)?
        } else {
            // One cluster, or rows that are all equal.
            let mut nodes = Nodes { labels: labels.to_vec(), clusters: clusters.clone() };
            let all = vec![true; groups.count()];
            nodes.clusters.settle(data, &groups, &all, self.metric, self.memory, cx)?;
            Grown { nodes, complete: true, sample_rows: labels.len() as u64, changed: 0, distances: 0 }
        };
        if grown.complete {
            let Nodes { labels, clusters } = &mut grown.nodes;
            clusters.extend_to(self.n_clusters);
            let groups = Groups::new(labels, clusters.len());
            clusters.repair(data, labels, &groups, self.metric, cx)?;
            let (moved, distances) = self.exchange_siblings(&mut grown.nodes, data, cx)?;
            grown.changed += moved;
            grown.distances += distances;
        }
        Ok(grown)
    }

    /// Gives every row of a split node to the nearest of its children, and moves the children to the means of their
    /// rows.
    fn with_level<T: Compute>(
        &self,
        level: Level<T>,
        (labels, old): (&[u32], &Clusters<T>),
        groups: Groups,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Grown<T>> {
        let Level { centers, firsts, sample_rows, distances } = level;
        let all = packed(data, &centers);
        let split = |j: usize| firsts[j + 1] - firsts[j] > 1;
        let list = |j: usize, list: &mut Vec<u32>| {
            if split(j) {
                list.extend(firsts[j]..firsts[j + 1]);
            }
        };
        let longest = firsts.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(1) as usize;
        let compared = Compared { all: &all, list: &list, longest, reach: None, memory: self.memory };
        let changed = (0..groups.count()).filter(|&j| split(j)).map(|j| groups.len(j) as u64).sum();
        let mut labels = labels.to_vec();
        let compared = compared.relabel(data, &groups, cx, |row, child, _| {
            let label = &mut labels[row as usize];
            *label = if split(*label as usize) { child } else { firsts[*label as usize] };
        })?;
        let distances = distances + compared;
        drop(groups);
        let mut clusters = Clusters::new(data.dim(), centers);
        let mut stale = vec![true; clusters.len()];
        for j in (0..old.len()).filter(|&j| !split(j)) {
            let child = firsts[j] as usize;
            stale[child] = false;
            clusters.weights[child] = old.weights[j];
            clusters.energies[child] = old.energies[j];
        }
        let groups = clusters.without_empty(&mut labels, &mut stale);
        clusters.settle(data, &groups, &stale, self.metric, self.memory, cx)?;
        let more = clusters.len() > old.len();
        let complete = !more || !self.splits(&clusters, &groups);
        Ok(Grown { nodes: Nodes { labels, clusters }, complete, sample_rows, changed, distances })
    }
}

/// Chooses `k` centers: the means of the leaves of a tree.
///
/// # Errors
/// [`Error::Source`] for a source without random access. Errors of the source.
pub(super) fn tree<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    rng: &mut Rng,
    cx: &Executor,
) -> Result<Seeds<T>> {
    if data.access() < Access::Random {
        return Err(Error::Source(
            "the seeding \"hierarchical\" reads rows one by one: write them to a .npy file and open that, or use \
             \"afk-mc2\" or \"k-means||\" instead"
                .into(),
        ));
    }
    let n = known(data, k)?;
    check_numbers(n)?;
    check_finite(data, cx)?;
    let growth = Growth::of_seeding(k, rng.bits());
    let _phase = cx.phase("seeding", growth.all_visits(n));
    let (mut nodes, mut n_distances) = (Nodes::root(n, data)?, 0);
    for level in 0.. {
        let grown = growth.grow(level, (&nodes.labels, &nodes.clusters), data, cx)?;
        nodes = grown.nodes;
        n_distances += grown.distances;
        if grown.complete {
            break;
        }
    }
    let centers = nodes.clusters.centers;
    Ok(Seeds { centers, rows: Vec::new(), method: "hierarchical".into(), n_distances })
}

/// Returns an error if row numbers and labels need more than 32 bits.
fn check_numbers(n: u64) -> Result<()> {
    let most = u64::from(u32::MAX) - 1;
    if n > most { Err(Error::param("number of rows", format!("at most {most}"), n)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::rng::Purpose;

    #[test]
    fn a_tree_counts_about_the_visits_that_it_expects() {
        let mut rng = Rng::keyed(0, Purpose::Seeding, 0);
        let values: Vec<f32> = (0..60_000).map(|_| rng.below(1 << 20) as f32).collect();
        let rows = Dense::new(&values, 3).unwrap();
        for (k, threads) in [(40, 1), (700, 2)] {
            let cx = Executor::new(Some(threads)).unwrap();
            // The phases of the tree lie within this one, which counts all visits.
            let _outer = cx.phase("", u64::MAX);
            tree(&rows, k, &mut rng, &cx).unwrap();
            let (_, found) = cx.progress().now().unwrap();
            let share = found as f64 / Growth::of_seeding(k, 0).all_visits(20_000) as f64;
            assert!((0.5..1.5).contains(&share), "{share} of the expected visits for {k} clusters");
        }
    }
}
