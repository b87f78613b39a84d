//! One level of the tree: all nodes with a quota above 1 are split by small k-means fits.

use std::collections::HashMap;
use std::ops::Range;

use super::clusters::Clusters;
use super::quotas::quotas;
use crate::data::{DataSource, Dense, Subset, Weighted, gather, row_bytes, row_values};
use crate::error::Result;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::pass::{Groups, for_each_window};
use crate::rng::{Purpose, Rng};
use crate::seeding::partition::{Start, partition};
use crate::stats::lightweight_coreset;

/// Largest number of children of a node of the tree of hierarchical k-means: two levels, of which the last splits
/// nodes of up to twice the mean quota at once.
fn branching(k: usize) -> usize {
    (2.0 * (k as f64).sqrt()).ceil().max(2.0) as usize
}

/// Rows of the coreset that a node with so many children is fitted to: 256 per child, as faiss trains inverted lists.
fn node_sample(children: usize) -> usize {
    256 * children
}

/// Most dimensions in which clusters are assumed to divide the squared error of a node, whatever the number of columns.
const MOST_DIMENSIONS: usize = 12;

/// A node's share of the clusters of its level, from its squared error `e` in `dim` columns.
///
/// `q` clusters leave a squared error of about `e q^(-2 / d)` in `d` dimensions. Its sum over all nodes is smallest
/// if each has a share of `e^(d / (d + 2))`. The exponent is rounded to eighths: square roots and products are the
/// same on every machine.
fn share_of(e: f64, dim: usize) -> f64 {
    let d = dim.min(MOST_DIMENSIONS) as f64;
    let (root, eighths) = (e.sqrt().sqrt().sqrt(), (8.0 * d / (d + 2.0)).round() as usize);
    (0..eighths).fold(1.0, |product, _| product * root)
}

/// Sweeps of the k-means fit of a node (40,000 SIFT descriptors, 4,000 clusters: 1, 2 and 6 sweeps end within 0.2%).
const NODE_SWEEPS: u64 = 6;

/// Products of a sweep over the rows of a node up to which one thread fits the node: a few milliseconds, of which the
/// start of the threads would be a large part. Threads share larger nodes.
pub(super) const SMALL_NODE_WORK: u64 = 1 << 27;

/// How a tree is grown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    pub(crate) n_clusters: usize,
    /// Largest number of children of a node, if it is given.
    pub(crate) branching: Option<usize>,
    pub(crate) seed: u64,
    /// Upper limit of the bytes of the rows that a node is fitted to.
    pub(crate) memory: u64,
    pub(crate) metric: Metric,
    /// Whether the fits of nodes begin by greedy k-means++, not by plain k-means++.
    pub(crate) greedy: bool,
}

/// The children of the nodes of a level.
pub(super) struct Level<T> {
    /// The centers of all children, node after node.
    pub(super) centers: Vec<T>,
    /// The first child per node, and their total number.
    pub(super) firsts: Vec<u32>,
    /// The largest number of rows that a node was fitted to, and computed distances.
    pub(super) sample_rows: u64,
    pub(super) distances: u64,
}

/// The children of one node.
#[derive(Default)]
struct Children<T> {
    centers: Vec<T>,
    counts: Vec<u32>,
    sample_rows: u64,
    distances: u64,
}

impl Growth {
    /// The number of children per node: 1 for a node that is not split.
    fn children(&self, clusters: &Clusters<impl Compute>, groups: &Groups) -> Vec<usize> {
        let caps: Vec<usize> =
            (0..groups.count()).map(|j| if clusters.energies[j] > 0.0 { groups.len(j) } else { 1 }).collect();
        let shares: Vec<f64> = clusters.energies.iter().map(|&e| share_of(e, clusters.dim)).collect();
        let quotas = quotas(&shares, &caps, self.n_clusters);
        quotas.into_iter().map(|quota| self.children_of(quota)).collect()
    }

    /// The number of children of a node with a quota.
    fn children_of(&self, quota: usize) -> usize {
        let most = self.branching.unwrap_or_else(|| branching(self.n_clusters));
        if quota <= most {
            return quota;
        }
        // All levels that are left get about the same number of children.
        let levels = (quota as f64).ln() / (most as f64).ln();
        ((quota as f64).powf(1.0 / levels.ceil().max(1.0)).ceil() as usize).min(most)
    }

    /// The visits of rows that a fit of `size` of `rows` rows to so many children counts, if no sweep is left out.
    fn visits(&self, rows: usize, size: usize, children: usize) -> u64 {
        let coreset = if size < rows { 2 * rows as u64 } else { 0 };
        let seeding = if self.greedy { 2 } else { 1 } * children as u64;
        coreset + size as u64 * (seeding + NODE_SWEEPS)
    }

    /// About how many visits of rows all levels count, in a tree of `n` rows whose nodes are equal: those of the fits,
    /// one to move a row to a child, and two for the means and squared errors of the children.
    pub(super) fn all_visits(&self, n: u64) -> u64 {
        let (mut nodes, mut visits) = (1, 0);
        while nodes < self.n_clusters {
            let children = self.children_of(self.n_clusters.div_ceil(nodes)).max(2);
            let rows = n as usize / nodes;
            visits += nodes as u64 * self.visits(rows, rows.min(node_sample(children)), children) + 3 * n;
            nodes *= children;
        }
        visits
    }

    /// Whether another level would split a node.
    pub(super) fn splits(&self, clusters: &Clusters<impl Compute>, groups: &Groups) -> bool {
        self.children(clusters, groups).iter().any(|&count| count > 1)
    }

    /// Splits all nodes with a quota above 1. `None` if there is none.
    pub(super) fn level<T: Compute>(
        &self,
        number: u64,
        data: &dyn DataSource<T>,
        clusters: &Clusters<T>,
        groups: &Groups,
        cx: &Executor,
    ) -> Result<Option<Level<T>>> {
        let counts = self.children(clusters, groups);
        if counts.iter().all(|&count| count <= 1) {
            return Ok(None);
        }
        let bytes = row_bytes(data) as u64;
        let sizes: Vec<usize> = (0..groups.count())
            .map(|j| {
                let fitting = (self.memory / bytes).max(counts[j] as u64);
                groups.len(j).min(node_sample(counts[j])).min(fitting as usize)
            })
            .collect();
        let split = (0..counts.len()).filter(|&j| counts[j] > 1);
        let _phase = cx.phase("", split.map(|j| self.visits(groups.len(j), sizes[j], counts[j])).sum());
        let plan = Plan { number, counts, sizes, groups };
        let mut all = Children::default();
        let most = self.copied(data);
        for nodes in plan.batches(data, most) {
            let copied = |j: usize| (1..=most).contains(&plan.bytes(j, data));
            let nodes_copied: Vec<usize> = nodes.clone().filter(|&j| copied(j)).collect();
            let copies = copies(groups, &nodes_copied, data, most, cx)?;
            let copies = nodes_copied.into_iter().zip(copies).collect();
            self.split_all(&plan, nodes, (data, &copies), clusters, &mut all, cx)?;
        }
        let mut firsts = Vec::with_capacity(plan.counts.len() + 1);
        firsts.push(0);
        all.counts.iter().for_each(|count| firsts.push(firsts[firsts.len() - 1] + count));
        Ok(Some(Level {
            centers: all.centers,
            firsts,
            sample_rows: all.sample_rows,
            distances: all.distances,
        }))
    }

    /// Bytes of rows of nodes that are copied together from a file larger than memory, because a pass over the scattered
    /// rows of a node would be slow: three quarters of what there is; the rest is for windows of the file. 0 for other
    /// sources. (Copies of sparse rows would be drawn in other chunks.)
    pub(super) fn copied<T: Compute>(&self, data: &dyn DataSource<T>) -> u64 {
        let free = data.scarce_memory().filter(|_| data.most_values().is_none());
        free.map_or(0, |free| self.memory.min(free / 2) / 4 * 3)
    }

    /// Appends the children of all `nodes` to `all`.
    fn split_all<T: Compute>(
        &self,
        plan: &Plan<'_>,
        nodes: Range<usize>,
        rows: (&dyn DataSource<T>, &HashMap<usize, Vec<T>>),
        clusters: &Clusters<T>,
        all: &mut Children<T>,
        cx: &Executor,
    ) -> Result<()> {
        let (data, copies) = rows;
        let Plan { counts, sizes, groups, .. } = plan;
        // A single node takes all threads too.
        let single = counts.iter().filter(|&&count| count > 1).count() == 1;
        let work = |j: usize| sizes[j] as u64 * counts[j] as u64 * row_values(data) as u64;
        let small = |j: &usize| !single && work(*j) <= SMALL_NODE_WORK;
        // A large node takes all threads, small nodes one each.
        let mut large = Vec::new();
        for j in nodes.clone().filter(|j| counts[*j] > 1 && !small(j)) {
            let mut children = Children::default();
            self.split(plan, j, (data, copies.get(&j)), cx, &mut children)?;
            large.push((j, children));
        }
        let mut large = large.into_iter().peekable();
        let mut first = nodes.start;
        while first < nodes.end {
            let next = large.peek().map_or(nodes.end, |(j, _)| *j);
            let part =
                (first..next).step_by(NODES_TOGETHER).map(|start| start..next.min(start + NODES_TOGETHER));
            let map = |nodes: Range<usize>, out: &mut Children<T>, (): &mut ()| {
                let one = cx.alone();
                for j in nodes {
                    cx.check()?;
                    if counts[j] > 1 {
                        self.split(plan, j, (data, copies.get(&j)), &one, out)?;
                        cx.count(self.visits(groups.len(j), sizes[j], counts[j]));
                    } else {
                        out.centers.extend_from_slice(clusters.centers().row(j));
                        out.counts.push(1);
                    }
                }
                Ok(())
            };
            cx.ordered_reduce(part, all, Children::default, || (), map, Children::merge)?;
            first = next;
            if let Some((_, mut children)) = large.next() {
                all.merge(&mut children);
                first += 1;
            }
        }
        Ok(())
    }

    /// Fits the children of a node to its rows, of which there may be a copy, or to a coreset of them.
    fn split<T: Compute>(
        &self,
        plan: &Plan<'_>,
        j: usize,
        (data, copy): (&dyn DataSource<T>, Option<&Vec<T>>),
        cx: &Executor,
        out: &mut Children<T>,
    ) -> Result<()> {
        let (k, size) = (plan.counts[j], plan.sizes[j]);
        let rng = &mut Rng::keyed(self.seed, Purpose::Node, plan.number << 32 | j as u64);
        let rows: Vec<u64> = plan.groups.of(j).iter().map(|&row| row.into()).collect();
        // All rows with their own weights, if there are no more than `size`.
        let coreset = with_rows(&Subset::new(data, &rows), copy, |rows| {
            lightweight_coreset(rows, size, rng.bits(), cx)
        })?;
        let start = Start::PlusPlus { greedy: self.greedy };
        let (mut centers, distances) = partition(&coreset.weighted()?, k, start, NODE_SWEEPS, rng, cx)?;
        out.centers.append(&mut centers);
        out.distances += distances;
        out.counts.push(k as u32);
        out.sample_rows = out.sample_rows.max(size as u64);
        Ok(())
    }
}

/// How the nodes of level `number` are split: the rows of a node, how many of them it is fitted to, and the number of
/// its children.
struct Plan<'a> {
    number: u64,
    counts: Vec<usize>,
    sizes: Vec<usize>,
    groups: &'a Groups,
}

impl Plan<'_> {
    /// The bytes of the rows of a node, if it is split.
    fn bytes<T: Compute>(&self, j: usize, data: &dyn DataSource<T>) -> u64 {
        if self.counts[j] > 1 { (self.groups.len(j) * row_bytes(data)) as u64 } else { 0 }
    }

    /// All nodes, cut into batches of which at most `most` bytes of rows are copied together. A node with more rows is
    /// not copied.
    fn batches<T: Compute>(&self, data: &dyn DataSource<T>, most: u64) -> Vec<Range<usize>> {
        let (mut batches, mut first, mut together) = (Vec::new(), 0, 0);
        for j in 0..self.counts.len() {
            let bytes = Some(self.bytes(j, data)).filter(|&bytes| bytes <= most).unwrap_or(0);
            if bytes > most - together {
                batches.push(first..j);
                (first, together) = (j, 0);
            }
            together += bytes;
        }
        batches.push(first..self.counts.len());
        batches
    }
}

/// Calls `f` with the rows of a group, or with their copy if there is one.
pub(super) fn with_rows<T: Compute, R>(
    of_group: &Subset<'_, T>,
    copy: Option<&Vec<T>>,
    f: impl FnOnce(&dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    let Some(copy) = copy else { return f(of_group) };
    let copy = Dense::new(copy, of_group.dim())?;
    match of_group.weights() {
        Some(weights) => f(&Weighted::vouched(copy, weights)),
        None => f(&copy),
    }
}

/// Copies of the rows of some groups of a file larger than memory, within `memory` bytes; they must fit into as much.
/// None for a `memory` of 0.
pub(super) fn copies<T: Compute>(
    groups: &Groups,
    some: &[usize],
    data: &dyn DataSource<T>,
    memory: u64,
    cx: &Executor,
) -> Result<Vec<Vec<T>>> {
    if memory == 0 || some.is_empty() {
        return Ok(Vec::new());
    }
    let mut copies = vec![Vec::new(); some.len()];
    for (copy, &j) in copies.iter_mut().zip(some) {
        make_room(copy, "rows of a node", groups.len(j) as u64, data.dim())?;
    }
    let mut wanted = vec![false; groups.count()];
    for &j in some {
        wanted[j] = true;
    }
    for_each_window(data, groups, memory / 3, &|j| wanted[j], cx, |data, here| {
        cx.for_each(copies.iter_mut().zip(some), Vec::new, |(copy, &j), rows: &mut Vec<u64>| {
            cx.check()?;
            rows.clear();
            rows.extend(here.of(j).iter().map(|&row| u64::from(row)));
            gather(data, rows, copy)
        })
    })?;
    Ok(copies)
}

/// Small nodes that one thread splits between two merges.
const NODES_TOGETHER: usize = 4;

impl<T> Children<T> {
    fn merge(&mut self, part: &mut Self) {
        self.centers.append(&mut part.centers);
        self.counts.append(&mut part.counts);
        self.sample_rows = self.sample_rows.max(std::mem::take(&mut part.sample_rows));
        self.distances += std::mem::take(&mut part.distances);
    }
}

#[cfg(test)]
mod tests {
    use super::share_of;

    #[test]
    fn shares_grow_like_squared_errors_with_many_dimensions_only() {
        for (dim, power) in [(1, 0.375), (2, 0.5), (3, 0.625), (6, 0.75), (12, 0.875), (784, 0.875)] {
            let share = share_of(65_536.0, dim);
            assert!((share / 65_536f64.powf(power) - 1.0).abs() < 1e-12, "{dim}: {share}");
        }
        assert_eq!((share_of(0.0, 3), share_of(1.0, 9)), (0.0, 1.0));
    }
}
