//! Finds which clusters are near each other, from the distances that their rows computed.
//!
//! This is the estimate of Hirschberger et al. (equation 31): the distance of cluster `c'` from `c` is the
//! mean over the rows of `c` that evaluated `c'`. Rows are sorted by cluster with a counting sort, so the
//! time is proportional to the number of evaluations ("meetings").

use super::space::{NEIGHBORHOODS, Space, draws};
use crate::error::Result;
use crate::float::Float;
use crate::parallel::Executor;

/// Number of meetings (24 bytes each) that are kept before meetings of the same two clusters are combined:
/// about 100 MB. If twice the number left after the last combination is larger, that number is used.
const MOST_MEETINGS: usize = 1 << 22;

/// Number of clusters whose neighbors a worker finds at a time.
const CLUSTERS: usize = 256;

/// For each cluster: itself and the `size - 1` nearest others.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighborhoods {
    size: usize,
    ids: Vec<u32>,
}

impl Neighborhoods {
    /// For each of `k` clusters: itself and `size - 1` random others.
    pub(super) fn drawn(k: usize, size: usize, seed: u64) -> Self {
        let (mut space, mut ids) = (Space::default(), Vec::with_capacity(k * size));
        for c in 0..k {
            space.begin(k);
            space.extend(&[c as u32]);
            space.explore(size - 1, &mut draws(seed, NEIGHBORHOODS, c as u64));
            ids.extend_from_slice(&space.list);
        }
        Self { size, ids }
    }

    /// Creates neighborhoods from known members, `size` for each of `k` clusters. `None` if the members are
    /// invalid.
    pub(super) fn of(ids: Vec<u32>, k: usize, size: usize) -> Option<Self> {
        let mut space = Space::default();
        let sound =
            |(c, members): (usize, &[u32])| members[0] as usize == c && space.holds_distinct(k, members);
        let fits = size > 0 && ids.len() == k * size && ids.chunks_exact(size).enumerate().all(sound);
        fits.then_some(Self { size, ids })
    }

    /// Number of members of each neighborhood.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// All members, cluster by cluster.
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The neighborhood of a cluster, with the cluster itself first.
    #[inline]
    pub(super) fn of_cluster(&self, c: usize) -> &[u32] {
        &self.ids[c * self.size..][..self.size]
    }

    /// The rank per cluster in a depth-first order, in which neighbors mostly follow each other.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let k = self.ids.len() / self.size;
        let (mut ranks, mut next, mut stack) = (vec![u32::MAX; k], 0, Vec::new());
        for first in 0..k as u32 {
            stack.push(first);
            while let Some(c) = stack.pop() {
                let rank = &mut ranks[c as usize];
                if *rank == u32::MAX {
                    *rank = next;
                    next += 1;
                    // The nearest one is popped next.
                    stack.extend(self.of_cluster(c as usize)[1..].iter().rev());
                }
            }
        }
        ranks
    }

    /// Replaces neighbors by the nearest clusters that rows have met. If there are too few, old neighbors
    /// stay; a cluster without rows keeps its neighborhood.
    pub(super) fn follow(&mut self, meetings: &Meetings, cx: &Executor) -> Result<()> {
        let size = self.size;
        if size == 1 {
            return Ok(());
        }
        let parts = self.ids.chunks_mut(CLUSTERS * size).enumerate();
        cx.for_each(
            parts,
            || (Tally::default(), Vec::new()),
            |(part, ids), (tally, found)| {
                for (i, ids) in ids.chunks_exact_mut(size).enumerate() {
                    let c = part * CLUSTERS + i;
                    tally.begin(meetings.k);
                    meetings.lists.iter().for_each(|list| tally.add_all(list.of(c)));
                    found.clear();
                    found.extend(tally.met.iter().map(|met| (met.sum / met.weight, met.id)));
                    nearest_first(found, size - 1);
                    let fresh = found.len();
                    // Old members follow in their previous order.
                    let old = ids[1..].iter().filter(|j| found.iter().all(|(_, id)| id != *j));
                    let old: Vec<u32> = old.copied().take(size - 1 - fresh).collect();
                    let new = found.iter().map(|&(_, id)| id).chain(old);
                    ids[1..].iter_mut().zip(new).for_each(|(place, id)| *place = id);
                }
                Ok(())
            },
        )
    }
}

/// Keeps the `n` smallest, in order; the lower index first among equals.
fn nearest_first(found: &mut Vec<(f64, u32)>, n: usize) {
    let order = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    if found.len() > n {
        if n > 0 {
            found.select_nth_unstable_by(n - 1, order);
        }
        found.truncate(n);
    }
    found.sort_unstable_by(order);
}

/// Sums over the rows of one cluster that evaluated another cluster.
#[derive(Clone, Copy, Debug)]
struct Met {
    id: u32,
    weight: f64,
    sum: f64,
}

/// Sums for one cluster, with one entry per other cluster.
#[derive(Debug, Default)]
struct Tally {
    /// For each cluster: the value of `now` at its last entry, and the position of the entry in `met`.
    stamps: Vec<(u32, u32)>,
    now: u32,
    met: Vec<Met>,
}

impl Tally {
    fn begin(&mut self, k: usize) {
        if self.stamps.len() != k || self.now == u32::MAX {
            self.stamps.clear();
            self.stamps.resize(k, (0, 0));
            self.now = 0;
        }
        self.now += 1;
        self.met.clear();
    }

    #[inline]
    fn add(&mut self, id: u32, weight: f64, sum: f64) {
        let (stamp, at) = &mut self.stamps[id as usize];
        if *stamp == self.now {
            let met = &mut self.met[*at as usize];
            met.weight += weight;
            met.sum += sum;
        } else {
            (*stamp, *at) = (self.now, self.met.len() as u32);
            self.met.push(Met { id, weight, sum });
        }
    }

    fn add_all(&mut self, met: &[Met]) {
        for met in met {
            self.add(met.id, met.weight, met.sum);
        }
    }
}

/// The meetings of some rows, cluster by cluster.
#[derive(Clone, Debug, Default)]
struct List {
    starts: Vec<u32>,
    met: Vec<Met>,
}

impl List {
    fn of(&self, c: usize) -> &[Met] {
        &self.met[self.starts[c] as usize..self.starts[c + 1] as usize]
    }
}

/// All meetings of a sweep, as lists of some rows each, in row order.
#[derive(Debug)]
pub(super) struct Meetings {
    k: usize,
    lists: Vec<List>,
    /// Number of meetings in all lists. `most` is the limit at which lists are combined.
    kept: usize,
    most: usize,
}

impl Meetings {
    pub(super) fn new(k: usize) -> Self {
        Self { k, lists: Vec::new(), kept: 0, most: MOST_MEETINGS }
    }

    /// Adds the meetings of `part`, whose rows come after these, and leaves `part` empty. The time is
    /// proportional to the number of meetings.
    pub(super) fn merge(&mut self, part: &mut Self, cx: &Executor) {
        self.lists.append(&mut part.lists);
        self.kept += std::mem::take(&mut part.kept);
        if self.lists.len() > 1 && self.kept > self.most {
            self.put_together(cx);
        }
    }

    /// Combines all lists into one. Stops on an interrupt, which the sweep reports later.
    fn put_together(&mut self, cx: &Executor) {
        let longest = self.lists.iter().map(|list| list.met.len()).max().unwrap_or(0);
        let mut all = List { starts: Vec::with_capacity(self.k + 1), met: Vec::with_capacity(longest) };
        all.starts.push(0);
        let mut tally = Tally::default();
        for c in 0..self.k {
            if c.is_multiple_of(CLUSTERS) && cx.check().is_err() {
                return;
            }
            tally.begin(self.k);
            self.lists.iter().for_each(|list| tally.add_all(list.of(c)));
            all.met.extend_from_slice(&tally.met);
            all.starts.push(all.met.len() as u32);
        }
        self.kept = all.met.len();
        // Without a growing limit, every new part would combine a long list again.
        self.most = self.most.max(2 * self.kept);
        self.lists = vec![all];
    }

    /// Adds the meetings of some rows.
    pub(super) fn note<T: Float>(&mut self, rows: &mut Encounters<T>) {
        if !rows.of_rows.is_empty() {
            let list = rows.by_cluster(self.k);
            self.kept += list.met.len();
            self.lists.push(list);
        }
    }
}

/// The clusters that rows evaluated, and their distances, row by row.
#[derive(Debug, Default)]
pub(super) struct Encounters<T> {
    /// Nearest cluster, weight, and the end of the row's entries.
    of_rows: Vec<(u32, f64, u32)>,
    ids: Vec<u32>,
    far: Vec<T>,
    order: Vec<u32>,
    counts: Vec<u32>,
    tally: Tally,
}

impl<T: Float> Encounters<T> {
    /// Adds a row.
    #[inline]
    pub(super) fn push(&mut self, nearest: u32, weight: f64, ids: &[u32], far: &[T]) {
        self.ids.extend_from_slice(ids);
        self.far.extend_from_slice(far);
        self.of_rows.push((nearest, weight, self.ids.len() as u32));
    }

    /// Groups the entries by cluster and clears them.
    fn by_cluster(&mut self, k: usize) -> List {
        let Self { of_rows, ids, far, order, counts, tally } = self;
        sort_by_key(of_rows.iter().map(|row| row.0), k, counts, order);
        let mut list = List { starts: Vec::with_capacity(k + 1), met: Vec::new() };
        list.starts.push(0);
        let mut at = 0;
        for c in 0..k {
            tally.begin(k);
            while at < order.len() && of_rows[order[at] as usize].0 == c as u32 {
                let row = order[at] as usize;
                let weight = of_rows[row].1;
                let start = if row == 0 { 0 } else { of_rows[row - 1].2 as usize };
                let met = start..of_rows[row].2 as usize;
                for (&id, far) in ids[met.clone()].iter().zip(&far[met]) {
                    let far = far.to_f64();
                    // A cluster that is infinitely far away or dead is not a neighbor.
                    if id != c as u32 && far < f64::INFINITY {
                        tally.add(id, weight, weight * far);
                    }
                }
                at += 1;
            }
            list.met.extend_from_slice(&tally.met);
            list.starts.push(list.met.len() as u32);
        }
        of_rows.clear();
        ids.clear();
        far.clear();
        list
    }
}

/// The positions of `keys`, all below `k`, sorted by key: a stable counting sort.
pub(super) fn sort_by_key(
    keys: impl Iterator<Item = u32> + Clone,
    k: usize,
    counts: &mut Vec<u32>,
    order: &mut Vec<u32>,
) {
    counts.clear();
    counts.resize(k + 1, 0);
    let mut n = 0;
    for key in keys.clone() {
        counts[key as usize + 1] += 1;
        n += 1;
    }
    for c in 0..k {
        counts[c + 1] += counts[c];
    }
    order.clear();
    order.resize(n, 0);
    for (i, key) in keys.enumerate() {
        let at = &mut counts[key as usize];
        order[*at as usize] = i as u32;
        *at += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rng::{Purpose, Rng};

    #[test]
    fn neighbors_are_the_nearest_on_average_however_rows_are_cut() {
        let (k, size) = (17, 5);
        let mut rng = Rng::keyed(1, Purpose::Exploring, 0);
        let mut rows = Vec::new();
        for _ in 0..400 {
            // Cluster 16 has no rows, and cluster 15 has few.
            let nearest = if rows.is_empty() { 15 } else { rng.below(15) as u32 };
            let mut space = Space::default();
            space.begin(k);
            space.extend(&[nearest]);
            space.explore(if nearest == 15 { 2 } else { 6 }, &mut rng);
            let far: Vec<f64> = space.list.iter().map(|&j| f64::from(j) + rng.unit() * 9.0).collect();
            rows.push((nearest, 0.5 + rng.unit(), space.list.clone(), far));
        }
        let mut truth = BTreeMap::<(u32, u32), (f64, f64)>::new();
        for (c, weight, list, far) in &rows {
            for (&j, far) in list.iter().zip(far).filter(|(j, _)| *j != c) {
                let entry = truth.entry((*c, j)).or_default();
                *entry = (entry.0 + weight * far, entry.1 + weight);
            }
        }
        let before = Neighborhoods::drawn(k, size, 3);
        let cx = Executor::new(Some(2)).unwrap();
        for (cut, most) in [(1, MOST_MEETINGS), (1, 100), (7, 20), (400, MOST_MEETINGS)] {
            let mut all = Meetings { most, ..Meetings::new(k) };
            for rows in rows.chunks(cut) {
                let (mut part, mut met) = (Meetings::new(k), Encounters::default());
                for (c, weight, list, far) in rows {
                    met.push(*c, *weight, list, far);
                }
                part.note(&mut met);
                assert!(met.ids.is_empty() && met.of_rows.is_empty());
                all.merge(&mut part, &cx);
            }
            let mut after = before.clone();
            after.follow(&all, &cx).unwrap();
            assert!(Neighborhoods::of(after.ids.clone(), k, size).is_some());
            assert_eq!(after.of_cluster(16), before.of_cluster(16));
            for c in 0..16u32 {
                let mut met: Vec<(f64, u32)> = truth
                    .range((c, 0)..(c + 1, 0))
                    .map(|((_, j), (sum, weight))| (sum / weight, *j))
                    .collect();
                nearest_first(&mut met, size - 1);
                let expected: Vec<u32> = met.iter().map(|&(_, j)| j).collect();
                let found = &after.of_cluster(c as usize)[1..];
                assert_eq!(&found[..expected.len()], expected, "{c} {cut}");
                let kept = |j: &&u32| before.of_cluster(c as usize).contains(j);
                assert!(found[expected.len()..].iter().all(|j| kept(&j)));
            }
        }
    }

    #[test]
    fn meetings_are_put_together_seldom_and_not_after_an_interrupt() {
        let (k, cx) = (40, Executor::new(Some(1)).unwrap());
        let mut all = Meetings { most: 100, ..Meetings::new(k) };
        let part = || {
            let (mut part, mut met) = (Meetings::new(k), Encounters::default());
            let ids: Vec<u32> = (0..k as u32).collect();
            (0..k as u32).for_each(|c| met.push(c, 1.0, &ids, &vec![1.0; k]));
            part.note(&mut met);
            part
        };
        let mut lists = Vec::new();
        for _ in 0..9 {
            all.merge(&mut part(), &cx);
            assert_eq!(all.kept, all.lists.iter().map(|list| list.met.len()).sum::<usize>());
            lists.push(all.lists.len());
        }
        // All pairs have met: the lists may double before they are combined again.
        assert_eq!(lists, [1, 1, 2, 1, 2, 1, 2, 1, 2]);
        cx.interrupt().set();
        all.merge(&mut part(), &cx);
        assert_eq!((all.lists.len(), all.kept), (3, 3 * k * (k - 1)));
    }

    #[test]
    fn ranks_are_an_order_in_which_the_nearest_follows() {
        let (k, size) = (50, 4);
        let neighbors = Neighborhoods::drawn(k, size, 1);
        let mut ranks = neighbors.ranks();
        let second = neighbors.of_cluster(0)[1];
        assert_eq!((ranks[0], ranks[second as usize]), (0, 1));
        ranks.sort_unstable();
        assert!(ranks.into_iter().eq(0..k as u32));
    }

    #[test]
    fn what_is_no_neighborhood_is_refused() {
        assert!(Neighborhoods::of(vec![0, 1, 1, 0], 2, 2).is_some());
        for bad in [vec![0, 1, 0, 1], vec![0, 0, 1, 0], vec![0, 2, 1, 0], vec![0, 1]] {
            assert!(Neighborhoods::of(bad, 2, 2).is_none());
        }
    }
}
