//! Pairs of near clusters become one where a cluster that is split in two saves more.
//!
//! The quotas of nodes follow their squared errors as if rows were spread evenly in them. Where they are not, as around
//! rare groups, some clusters keep a squared error that is many times that of others.

use std::collections::HashMap;

use super::clusters::Clusters;
use super::level::{SMALL_NODE_WORK, copies, with_rows};
use super::{Growth, Nodes};
use crate::data::{DataSource, Subset, row_bytes, row_values};
use crate::error::Result;
use crate::kernel::{Compute, sq_dist};
use crate::parallel::Executor;
use crate::pass::{Copies, Groups};
use crate::rng::{Purpose, Rng};
use crate::seeding::partition::{Start, partition};
use crate::tuning::GROUPED_ROWS;

/// Clusters on either side, by their numbers, that count as near in a tree: children of a node have consecutive
/// numbers.
const NEIGHBORS: usize = 16;

/// Clusters that are split before their savings are compared with the costs of merges.
const TOGETHER: usize = 16;

/// Most rounds. A cluster takes part in one exchange of a round.
const ROUNDS: u64 = 8;

/// What a split must save, relative to the cost of the merge. (`rare.py`, hierarchical: 1.2 ended up to 0.3% higher.)
const LEAST_GAIN: f64 = 1.05;

/// Sweeps of the fit that splits a cluster.
const SPLIT_SWEEPS: u64 = 2;

/// Adds the clusters with one of which a cluster may be merged; may add the cluster itself.
pub(crate) type Near<'a> = &'a (dyn Fn(usize, &mut Vec<u32>) + Sync);

/// Cluster `from` joins `to`, which raises the squared error by `cost`.
#[derive(Clone, Copy)]
struct Merge {
    cost: f64,
    from: usize,
    to: usize,
}

/// Two parts of a cluster.
#[derive(Clone)]
struct Split {
    /// How much lower the squared error is.
    gain: f64,
    /// The rows of the second part.
    second: Vec<u32>,
    distances: u64,
}

/// Copies of the rows of clusters that are split next. Only for files larger than memory, within `memory` bytes.
struct Ahead<T> {
    memory: u64,
    of_clusters: HashMap<usize, Vec<T>>,
}

impl<T: Compute> Ahead<T> {
    /// Copies the rows of as many of these clusters as fit, unless those of the first `needed` are here.
    fn read(
        &mut self,
        clusters: &[usize],
        needed: usize,
        groups: &Groups,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<()> {
        let bytes = |j: usize| (groups.len(j) * row_bytes(data)) as u64;
        let lacks = |&j: &usize| bytes(j) <= self.memory && !self.of_clusters.contains_key(&j);
        if self.memory == 0 || !clusters[..needed].iter().any(lacks) {
            return Ok(());
        }
        let mut left = self.memory;
        let mut fits = |j: usize| {
            let fits = bytes(j) <= left;
            left -= if fits { bytes(j) } else { 0 };
            fits
        };
        let some: Vec<usize> = clusters.iter().copied().filter(|&j| fits(j)).collect();
        self.of_clusters.clear();
        let copies = copies(groups, &some, data, self.memory, cx)?;
        self.of_clusters.extend(some.into_iter().zip(copies));
        Ok(())
    }
}

impl Growth {
    /// As [`Growth::exchange`], where clusters with near numbers are near.
    pub(super) fn exchange_siblings<T: Compute>(
        &self,
        nodes: &mut Nodes<T>,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<(u64, u64)> {
        let k = nodes.clusters.len();
        let near = |j: usize, near: &mut Vec<u32>| {
            near.extend(j.saturating_sub(NEIGHBORS) as u32..k.min(j + NEIGHBORS + 1) as u32);
        };
        self.exchange(nodes, (0, &near), data, cx)
    }

    /// Exchanges merges for splits as long as the squared error falls. Returns the numbers of rows whose cluster
    /// changed and of computed distances. Calls with other numbers split clusters from other first centers.
    pub(crate) fn exchange<T: Compute>(
        &self,
        nodes: &mut Nodes<T>,
        (number, near): (u64, Near<'_>),
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<(u64, u64)> {
        let (k, mut moved, mut distances) = (nodes.clusters.len(), 0, 0);
        // A third cluster is split when two are merged.
        let rounds = if k < 3 { 0 } else { ROUNDS };
        for round in 0..rounds {
            let old = &nodes.clusters;
            let mut labels = nodes.labels.clone();
            let mut stale = vec![false; k];
            let groups = Groups::new(&labels, k);
            let merges = merges(old, near, cx);
            let (mut merges, least) = (&merges[..], LEAST_GAIN * merges[0].cost);
            let mut order: Vec<usize> =
                (0..k).filter(|&j| old.energies[j] > least && groups.len(j) > 1).collect();
            order.sort_by(|&a, &b| old.energies[b].total_cmp(&old.energies[a]).then(a.cmp(&b)));
            let mut ahead = Ahead { memory: self.copied(data), of_clusters: HashMap::new() };
            let mut exchanged = true;
            while exchanged {
                order.retain(|&j| !stale[j]);
                let some: Vec<usize> = order.iter().copied().take(TOGETHER).collect();
                exchanged = false;
                ahead.read(&order, some.len(), &groups, data, cx)?;
                let splits =
                    self.splits_of(&some, number * ROUNDS + round, (old, &groups), (data, &ahead), cx)?;
                order.drain(..some.len());
                for (&j, Split { gain, second, distances: computed }) in some.iter().zip(&splits) {
                    distances += computed;
                    let is_open = |merge: &Merge| !stale[merge.from] && !stale[merge.to];
                    while merges.first().is_some_and(|merge| !is_open(merge)) {
                        merges = &merges[1..];
                    }
                    let serves = |merge: &&Merge| is_open(merge) && merge.from != j && merge.to != j;
                    let Some(&Merge { cost, from, to }) = merges.iter().find(serves) else { continue };
                    if !stale[j] && *gain > LEAST_GAIN * cost {
                        for &row in groups.of(from) {
                            labels[row as usize] = to as u32;
                        }
                        for &row in second {
                            labels[row as usize] = from as u32;
                        }
                        (stale[j], stale[from], stale[to]) = (true, true, true);
                        exchanged = true;
                    }
                }
            }
            drop((groups, ahead));
            if !stale.contains(&true) {
                break;
            }
            let mut clusters = old.clone();
            clusters.settle(data, &Groups::new(&labels, k), &stale, self.metric, self.memory, cx)?;
            // Means of directions do not follow the rule of means exactly.
            if clusters.energy() >= old.energy() {
                break;
            }
            moved += nodes.labels.iter().zip(&labels).filter(|(old, new)| old != new).count() as u64;
            (nodes.labels, nodes.clusters) = (labels, clusters);
        }
        Ok((moved, distances))
    }

    /// Splits each of `some` clusters in two. Large clusters take all threads, small ones one each.
    fn splits_of<T: Compute>(
        &self,
        some: &[usize],
        round: u64,
        (clusters, groups): (&Clusters<T>, &Groups),
        (data, ahead): (&dyn DataSource<T>, &Ahead<T>),
        cx: &Executor,
    ) -> Result<Vec<Split>> {
        let mut splits = vec![Split { gain: 0.0, second: Vec::new(), distances: 0 }; some.len()];
        let split = |j: usize, out: &mut Split, copies: &mut Copies<T>, cx: &Executor| {
            cx.check()?;
            let rng = &mut Rng::keyed(self.seed, Purpose::Exchange, round << 32 | j as u64);
            let rows: Vec<u64> = groups.of(j).iter().map(|&row| row.into()).collect();
            *out = with_rows(&Subset::new(data, &rows), ahead.of_clusters.get(&j), |rows| {
                self.split_in_two(rows, clusters.energies[j], rng, (cx, copies))
            })?;
            out.second.iter_mut().for_each(|row| *row = groups.of(j)[*row as usize]);
            Ok(())
        };
        let is_large = |j: usize| (2 * groups.len(j) * row_values(data)) as u64 > SMALL_NODE_WORK;
        let (large, small): (Vec<_>, Vec<_>) = some.iter().zip(&mut splits).partition(|(j, _)| is_large(**j));
        for (&j, out) in large {
            split(j, out, &mut Copies::default(), cx)?;
        }
        cx.for_each(small.into_iter(), Copies::default, |(&j, out), copies| {
            split(j, out, copies, &cx.alone())
        })?;
        Ok(splits)
    }

    /// Splits all rows of `data`, whose squared error is `energy`.
    fn split_in_two<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        energy: f64,
        rng: &mut Rng,
        (cx, copies): (&Executor, &mut Copies<T>),
    ) -> Result<Split> {
        let rows: Vec<u32> = (0..data.rows().unwrap_or(0) as u32).collect();
        let start = Start::PlusPlus { greedy: true };
        let (centers, distances) = partition(data, 2, start, SPLIT_SWEEPS, rng, cx)?;
        let mut parts = Clusters::new(data.dim(), centers);
        let (mut sides, mut near) = ([Vec::new(), Vec::new()], Vec::new());
        for some in rows.chunks(GROUPED_ROWS) {
            cx.check()?;
            copies.read(data, some)?;
            near.clear();
            copies.for_each_sq_dist(parts.centers().row(0), |_, sq_dist| near.push(sq_dist));
            copies.for_each_sq_dist(parts.centers().row(1), |i, sq_dist| {
                sides[usize::from(sq_dist < near[i])].push(some[i]);
            });
        }
        for (j, side) in sides.iter().enumerate() {
            parts.settle_one(j, data, side, self.metric)?;
        }
        let [_, second] = sides;
        let distances = distances + 2 * rows.len() as u64;
        Ok(Split { gain: energy - parts.energy(), second, distances })
    }
}

/// The cheapest merge of every cluster with one near it, in the order of their costs.
fn merges<T: Compute>(clusters: &Clusters<T>, near: Near<'_>, cx: &Executor) -> Vec<Merge> {
    let (k, weights, centers) = (clusters.len(), &clusters.weights, clusters.centers());
    // The squared error about the common mean is higher by this (Ward, 1963). A cluster without weight costs nothing.
    let cost = |a: usize, b: usize| {
        let (w, v) = (weights[a], weights[b]);
        if w > 0.0 && v > 0.0 { w * (v / (w + v)) * sq_dist(centers.row(a), centers.row(b)) } else { 0.0 }
    };
    let mut merges = vec![Merge { cost: 0.0, from: 0, to: 0 }; k];
    cx.fill(&mut merges, 2 * NEIGHBORS * clusters.dim, |from| {
        let mut others = Vec::new();
        near(from, &mut others);
        let others = others.into_iter().map(|to| to as usize).filter(|&to| to != from);
        others
            .map(|to| Merge { cost: cost(from, to), from, to })
            .min_by(|a, b| a.cost.total_cmp(&b.cost))
            .unwrap_or(Merge { cost: f64::INFINITY, from, to: from })
    });
    merges.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.from.cmp(&b.from)));
    merges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::data::{Dense, Weighted};
    use crate::fit::Metric;
    use crate::pass::Large;

    fn exchanged(
        rows: &dyn DataSource<f64>,
        (labels, k): (&[u32], usize),
        metric: Metric,
        threads: usize,
    ) -> (Nodes<f64>, f64) {
        let cx = Executor::new(Some(threads)).unwrap();
        let growth = Growth { metric, ..Growth::of_seeding(k, 7) };
        let mut clusters = Clusters::new(rows.dim(), vec![0.0; k * rows.dim()]);
        let groups = Groups::new(labels, k);
        clusters.settle(rows, &groups, &vec![true; k], metric, u64::MAX, &cx).unwrap();
        let before = clusters.energy();
        let mut nodes = Nodes { labels: labels.to_vec(), clusters };
        growth.exchange_siblings(&mut nodes, rows, &cx).unwrap();
        (nodes, before)
    }

    #[test]
    fn rare_groups_in_one_cluster_get_clusters_of_their_own() {
        // Ten pairs of rows far from each other share a cluster; 2,000 rows near the origin have 30.
        let mut rng = Rng::keyed(1, Purpose::Seeding, 0);
        let mut values: Vec<f64> = (0..4000).map(|_| rng.unit()).collect();
        let mut labels: Vec<u32> = (0..2000).map(|row| row % 30).collect();
        for pair in 0..10 {
            values.extend([1e3 * f64::from(pair), 1e4, 1e3 * f64::from(pair) + 1.0, 1e4]);
            labels.extend([30, 30]);
        }
        let data = Dense::new(&values, 2).unwrap();
        let (nodes, before) = exchanged(&data, (&labels, 31), Metric::Euclidean, 1);
        assert!(before > 1e8 && nodes.clusters.energy() < 400.0, "{}", nodes.clusters.energy());
        let of_pairs: Vec<u32> = nodes.labels[2000..].iter().step_by(2).copied().collect();
        assert!((0..10).all(|pair| nodes.labels[2001 + 2 * pair] == of_pairs[pair]));
        let mut different = of_pairs.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 10);
        // Copies of all clusters, of some, and of none fit beside a file.
        let bytes = values.len() as u64 * 8;
        let large = [20 * bytes, bytes / 4, 100].map(|memory| Large::new(&data, memory));
        let sources: [&dyn DataSource<f64>; 4] = [&data, &large[0], &large[1], &large[2]];
        for source in sources {
            let (again, _) = exchanged(source, (&labels, 31), Metric::Euclidean, 3);
            assert_eq!(
                (again.labels, again.clusters.centers),
                (nodes.labels.clone(), nodes.clusters.centers.clone())
            );
        }
    }

    proptest! {
        #[test]
        fn exchanges_lower_the_squared_error_and_keep_the_clusters(
            n in 3usize..80, dim in 1usize..4, k in 1usize..12,
            cosine in any::<bool>(), weighted in any::<bool>(), seed in any::<u64>(),
        ) {
            let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
            let mut values: Vec<f64> = (0..n * dim).map(|_| 1.0 + rng.below(50) as f64).collect();
            if cosine {
                for row in values.chunks_exact_mut(dim) {
                    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
                    for x in row {
                        *x /= length;
                    }
                }
            }
            let weights: Vec<f64> = (0..n).map(|i| if weighted { (i % 3) as f64 } else { 1.0 }).collect();
            let labels: Vec<u32> = (0..n).map(|_| rng.below(k as u64) as u32).collect();
            let data = Weighted::new::<f64>(Dense::new(&values, dim).unwrap(), weights).unwrap();
            let metric = if cosine { Metric::Cosine } else { Metric::Euclidean };
            let (nodes, before) = exchanged(&data, (&labels, k), metric, 1);
            prop_assert!(nodes.clusters.energy() <= before);
            let mut settled = nodes.clusters.clone();
            let groups = Groups::new(&nodes.labels, k);
            settled.settle(&data, &groups, &vec![true; k], metric, u64::MAX, Executor::caller()).unwrap();
            prop_assert_eq!(&settled.energies, &nodes.clusters.energies);
            prop_assert_eq!(&settled.weights, &nodes.clusters.weights);
        }
    }
}
