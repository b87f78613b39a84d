//! The tree: nodes are split by small k-means fits, and the number of centers that a node may still get is its
//! quota.
//!
//! Quotas are given out anew at every level, to all nodes at once, so a node with too few distinct rows leaves its
//! share to the others. The squared error of a set of rows that is described by `q` centers falls like
//! `q^(-2 / d)`, so quotas follow the squared errors of the nodes, not their weights.

use super::clusters::Clusters;
use super::groups::{Copies, Groups};
use crate::data::{DataSource, Weighted, row_bytes};
use crate::error::Result;
use crate::fit::Element;
use crate::kernel::Compute;
use crate::kmeans::{Algorithm, KMeans};
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::{Seeding, draw};
use crate::tuning::{NODE_SWEEPS, SMALL_NODE_BYTES, branching, node_sample};

/// What a level of the tree is made with.
pub(super) struct Growth {
    pub(super) n_clusters: usize,
    /// Largest number of children of a node, if it is given.
    pub(super) branching: Option<usize>,
    pub(super) seed: u64,
    pub(super) level: u64,
    /// Upper limit of the bytes of the rows that a node is fitted to.
    pub(super) memory: u64,
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
        let quotas = quotas(&clusters.energies, &caps, self.n_clusters);
        let most = self.branching.unwrap_or_else(|| branching(self.n_clusters));
        let split = |quota: usize| {
            if quota <= most {
                return quota;
            }
            // All levels that are left get about the same number of children.
            let levels = (quota as f64).ln() / (most as f64).ln();
            ((quota as f64).powf(1.0 / levels.ceil().max(1.0)).ceil() as usize).min(most)
        };
        quotas.into_iter().map(split).collect()
    }

    /// Whether another level would split a node.
    pub(super) fn splits(&self, clusters: &Clusters<impl Compute>, groups: &Groups) -> bool {
        self.children(clusters, groups).iter().any(|&count| count > 1)
    }

    /// Splits all nodes with a quota above 1. `None` if there is none.
    pub(super) fn level<T: Element>(
        &self,
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
        // A single node takes all threads too.
        let single = counts.iter().filter(|&&count| count > 1).count() == 1;
        let small = |j: &usize| !single && sizes[*j] as u64 * bytes <= SMALL_NODE_BYTES;
        // A large node takes all threads, small nodes one each.
        let mut large = Vec::new();
        for j in (0..counts.len()).filter(|j| counts[*j] > 1 && !small(j)) {
            let mut children = Children::default();
            self.split(data, groups, j, (counts[j], sizes[j]), cx, &mut children)?;
            large.push((j, children));
        }
        let mut all = Children::default();
        let mut large = large.into_iter().peekable();
        let mut first = 0;
        while first < counts.len() {
            let next = large.peek().map_or(counts.len(), |(j, _)| *j);
            let part =
                (first..next).step_by(NODES_TOGETHER).map(|start| start..next.min(start + NODES_TOGETHER));
            let map = |nodes: std::ops::Range<usize>, out: &mut Children<T>, (): &mut ()| {
                let one = cx.alone();
                for j in nodes {
                    cx.check()?;
                    if counts[j] > 1 {
                        self.split(data, groups, j, (counts[j], sizes[j]), &one, out)?;
                    } else {
                        out.centers.extend_from_slice(clusters.centers().row(j));
                        out.counts.push(1);
                    }
                }
                Ok(())
            };
            cx.ordered_reduce(part, &mut all, Children::default, || (), map, Children::merge)?;
            first = next;
            if let Some((_, mut children)) = large.next() {
                all.merge(&mut children);
                first += 1;
            }
        }
        let mut firsts = Vec::with_capacity(counts.len() + 1);
        firsts.push(0);
        all.counts.iter().for_each(|count| firsts.push(firsts[firsts.len() - 1] + count));
        Ok(Some(Level {
            centers: all.centers,
            firsts,
            sample_rows: all.sample_rows,
            distances: all.distances,
        }))
    }

    /// Fits `k` children to `size` rows of node `j`.
    fn split<T: Element>(
        &self,
        data: &dyn DataSource<T>,
        groups: &Groups,
        j: usize,
        (k, size): (usize, usize),
        cx: &Executor,
        out: &mut Children<T>,
    ) -> Result<()> {
        let rng = &mut Rng::keyed(self.seed, Purpose::Node, self.level << 32 | j as u64);
        let mut copies = Copies::default();
        let all = groups.of(j);
        if size < all.len() {
            let mut drawn = draw(all.len() as u64, None, size, rng);
            drawn.sort_unstable();
            let rows: Vec<u32> = drawn.iter().map(|&i| all[i as usize]).collect();
            copies.read(data, &rows)?;
        } else {
            copies.read(data, all)?;
        }
        let params = KMeans::params(k)
            .seeding(Seeding::Random)
            .algorithm(Algorithm::Lloyd)
            .max_iter(NODE_SWEEPS)
            .tolerance(0.0)
            .rng_seed(rng.bits())
            .threads(Some(cx.threads()));
        let rows = &copies.rows;
        let weighted = copies.weights().filter(|weights| weights.iter().any(|&w| w > 0.0));
        let weighted = weighted.map(|weights| Weighted::vouched::<T>(rows, weights));
        let source = match &weighted {
            Some(weighted) => T::own(weighted),
            None => T::own(rows),
        };
        let mut run = params.start(source)?;
        while let Some(step) = run.advance_on(source, cx)? {
            out.distances += step.n_distances;
        }
        out.centers.append(&mut run.centers());
        out.counts.push(k as u32);
        out.sample_rows = out.sample_rows.max(size as u64);
        Ok(())
    }
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

/// Divides `k` among nodes in proportion to their squared errors, by largest remainders. Every node gets at least 1
/// and at most its cap. The sum is below `k` only if all caps are reached.
fn quotas(energies: &[f64], caps: &[usize], k: usize) -> Vec<usize> {
    let mut quotas: Vec<usize> = caps.iter().map(|&cap| cap.min(1)).collect();
    let mut left = k.saturating_sub(quotas.iter().sum());
    while left > 0 {
        let open: Vec<usize> = (0..caps.len()).filter(|&j| quotas[j] < caps[j]).collect();
        let total: f64 = open.iter().map(|&j| energies[j]).sum();
        if open.is_empty() {
            break;
        }
        let share = |j: usize| {
            let wanted = if total > 0.0 {
                left as f64 * (energies[j] / total)
            } else {
                left as f64 / open.len() as f64
            };
            wanted.min((caps[j] - quotas[j]) as f64)
        };
        let mut given = 0;
        let mut remainders: Vec<(f64, usize)> = Vec::with_capacity(open.len());
        let mut whole = Vec::with_capacity(open.len());
        for &j in &open {
            let share = share(j);
            given += share as usize;
            whole.push(share as usize);
            remainders.push((share - share.floor(), j));
        }
        open.iter().zip(whole).for_each(|(&j, whole)| quotas[j] += whole);
        left -= given.min(left);
        if given == 0 {
            // Less than one each: the largest shares get one.
            remainders.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for &(_, j) in remainders.iter().take(left) {
                quotas[j] += 1;
                left -= 1;
            }
        }
    }
    quotas
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotas_follow_the_squared_errors() {
        assert_eq!(quotas(&[1.0, 3.0, 0.0], &[50, 50, 1], 11), [3, 7, 1]);
        // What a node cannot use goes to the others.
        assert_eq!(quotas(&[100.0, 1.0, 1.0], &[2, 9, 9], 12), [2, 5, 5]);
        assert_eq!(quotas(&[1.0, 1.0], &[2, 1], 9), [2, 1]);
        assert_eq!(quotas(&[0.0, 0.0], &[1, 0], 9), [1, 0]);
    }

    proptest! {
        #[test]
        fn quotas_are_used_up_within_caps(
            nodes in prop::collection::vec((0.0f64..1e9, 0usize..40), 1..30), more in 0usize..500,
        ) {
            let (energies, caps): (Vec<f64>, Vec<usize>) = nodes.into_iter().unzip();
            let room: usize = caps.iter().sum();
            let k = caps.iter().filter(|&&cap| cap > 0).count() + more;
            let quotas = quotas(&energies, &caps, k);
            prop_assert_eq!(quotas.iter().sum::<usize>(), k.min(room));
            for (&quota, &cap) in quotas.iter().zip(&caps) {
                prop_assert!(quota <= cap && quota >= cap.min(1));
            }
        }
    }
}
