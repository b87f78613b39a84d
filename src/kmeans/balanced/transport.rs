//! Rows of equal weight, assigned at the least total cost among their candidates: successive shortest paths.
//!
//! Every row begins at the candidate with the smallest squared distance plus price. A cluster above its upper limit
//! then sends rows along a path of clusters: a row moves to the next cluster, from which another row moves on, until a
//! cluster has room. The path with the lowest cost comes first. Clusters on the way become more expensive by as much as
//! the path costs more for those before them, so that every row stays at its cheapest candidate. At the end the prices
//! prove that no assignment to candidates costs less.
//!
//! All clusters send their rows on to a hub, between `least` and `most` of them. With the price 0 at the hub, a cluster
//! with a positive price is full, and one with a negative price has as few rows as it may.
//!
//! Source: Ahuja, Magnanti and Orlin, "Network flows", 1993, chapter 9.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::ascent::by_first;
use super::choices::Choices;
use super::limits::Weights;
use super::lists::CandidateLists;
use crate::error::Result;
use crate::parallel::Executor;

/// Rows that may move along an arc, the cheapest first, the lower row among equals.
type Movers = BinaryHeap<Reverse<(i64, u32)>>;

/// The flow of rows to clusters, and of clusters to the hub, which is the last node.
pub(super) struct Transport<'a> {
    lists: &'a CandidateLists,
    least: i64,
    most: i64,
    pub(super) labels: Vec<u32>,
    /// Per node; the hub's is not 0 until the end.
    pub(super) prices: Vec<f64>,
    /// The prices at first.
    begin: Vec<f64>,
    /// Arcs that cost more were left out at first.
    reach: f64,
    /// Rows that a cluster sends to the hub.
    flows: Vec<i64>,
    /// Rows that a node must send on.
    excess: Vec<i64>,
    arcs: Vec<Arcs>,
    search: PathSearch,
}

/// From a cluster to others, in ascending order.
#[derive(Default)]
struct Arcs {
    to: Vec<u32>,
    /// Per arc: the cost of the cheapest row, infinite if no row may move.
    costs: Vec<f64>,
    /// Per arc: the rows that may move. Those that have left the cluster are dropped once they are the cheapest.
    movers: Vec<Movers>,
}

impl Arcs {
    fn find(&self, to: u32) -> Option<usize> {
        self.to.binary_search(&to).ok()
    }

    /// Adds a row that may move along an arc.
    fn push(&mut self, to: u32, cost: i64, row: u32) {
        let at = self.to.binary_search(&to).unwrap_or_else(|at| {
            self.to.insert(at, to);
            self.costs.insert(at, f64::INFINITY);
            self.movers.insert(at, Movers::new());
            at
        });
        self.movers[at].push(Reverse((cost, row)));
        self.costs[at] = self.costs[at].min(value(cost));
    }

    /// The cheapest row of arc `at` that is still in cluster `from`. Drops those that are not.
    fn first(&mut self, at: usize, labels: &[u32], from: usize) -> Option<(i64, u32)> {
        let movers = &mut self.movers[at];
        while let Some(&Reverse(next)) = movers.peek() {
            if labels[next.1 as usize] as usize == from {
                self.costs[at] = value(next.0);
                return Some(next);
            }
            movers.pop();
        }
        self.costs[at] = f64::INFINITY;
        None
    }

    /// Takes up to `most` rows out of arc `at` that cost as little as the first.
    fn take(&mut self, at: usize, most: i64, labels: &[u32], from: usize) -> Vec<(i64, u32)> {
        let mut taken: Vec<(i64, u32)> = Vec::new();
        while let Some(next) = self.first(at, labels, from)
            && (taken.len() as i64) < most
            && taken.first().is_none_or(|first| first.0 == next.0)
        {
            self.movers[at].pop();
            // A row that has left and come back is listed twice.
            if taken.last() != Some(&next) {
                taken.push(next);
            }
        }
        taken
    }
}

/// A search for the shortest path.
struct PathSearch {
    lengths: Vec<f64>,
    before: Vec<usize>,
    settled: Vec<bool>,
    /// Nodes with a length, and nodes whose length is final.
    reached: Vec<usize>,
    order: Vec<usize>,
    queue: BinaryHeap<Reverse<(i64, usize)>>,
}

impl PathSearch {
    fn new(nodes: usize) -> Self {
        Self {
            lengths: vec![f64::INFINITY; nodes],
            before: vec![0; nodes],
            settled: vec![false; nodes],
            reached: Vec::new(),
            order: Vec::new(),
            queue: BinaryHeap::new(),
        }
    }

    fn clear(&mut self) {
        for v in self.reached.drain(..) {
            self.lengths[v] = f64::INFINITY;
            self.settled[v] = false;
        }
        self.order.clear();
        self.queue.clear();
    }

    fn reach(&mut self, v: usize, length: f64, before: usize) {
        if length < self.lengths[v] {
            if self.lengths[v] == f64::INFINITY {
                self.reached.push(v);
            }
            (self.lengths[v], self.before[v]) = (length, before);
            self.queue.push(Reverse((key(length), v)));
        }
    }

    /// The nearest node that is not settled, which it then is.
    fn next(&mut self) -> Option<usize> {
        while let Some(Reverse((_, v))) = self.queue.pop() {
            if !std::mem::replace(&mut self.settled[v], true) {
                self.order.push(v);
                return Some(v);
            }
        }
        None
    }
}

/// A whole number in the order of `f64`.
fn key(value: f64) -> i64 {
    // -0 and 0 are equal.
    let bits = (value + 0.0).to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// The value of a key.
fn value(key: i64) -> f64 {
    f64::from_bits((key ^ ((key >> 63) as u64 >> 1) as i64) as u64)
}

impl<'a> Transport<'a> {
    /// All rows at their choices. Clusters may have `least` to `most` rows. Rows may move to candidates that cost up to
    /// `reach` more.
    pub(super) fn new(
        lists: &'a CandidateLists,
        choices: &Choices,
        (least, most): (i64, i64),
        weights: &Weights,
        reach: f64,
    ) -> Self {
        let prices = &choices.prices;
        let (k, hub) = (prices.len(), prices.len());
        let (starts, rows) = by_first(&choices.rows, k);
        let mut counts = vec![0; k];
        let mut arcs: Vec<Arcs> = Vec::with_capacity(k);
        // Per cluster: the rows that may move there from the present one.
        let mut listed: Vec<Vec<Reverse<(i64, u32)>>> = vec![Vec::new(); k];
        for from in 0..k {
            let mut to: Vec<u32> = Vec::new();
            for &row in
                rows[starts[from]..starts[from + 1]].iter().filter(|&&row| weights.of(row as usize) > 0.0)
            {
                counts[from] += 1;
                if choices.rows[row as usize].regret > reach {
                    continue;
                }
                let own = lists.sq_dist(row as usize, from as u32);
                for (j, sq_dist) in lists.of(row as usize).filter(|&(j, _)| j != from) {
                    let cost = sq_dist - own;
                    if cost + prices[j] - prices[from] <= reach {
                        if listed[j].is_empty() {
                            to.push(j as u32);
                        }
                        listed[j].push(Reverse((key(cost), row)));
                    }
                }
            }
            to.sort_unstable();
            let movers: Vec<Movers> =
                to.iter().map(|&j| std::mem::take(&mut listed[j as usize]).into()).collect();
            let cheapest = |movers: &Movers| movers.peek().map_or(f64::INFINITY, |first| value(first.0.0));
            arcs.push(Arcs { costs: movers.iter().map(cheapest).collect(), to, movers });
        }
        let flow = |(&count, &price): (&i64, &f64)| match price {
            price if price > 0.0 => most,
            price if price < 0.0 => least,
            _ => count.clamp(least, most),
        };
        let flows: Vec<i64> = counts.iter().zip(prices).map(flow).collect();
        let mut excess: Vec<i64> = counts.iter().zip(&flows).map(|(count, flow)| count - flow).collect();
        excess.push(-excess.iter().sum::<i64>());
        let begin: Vec<f64> = prices.iter().copied().chain([0.0]).collect();
        Self {
            lists,
            least,
            most,
            labels: choices.rows.iter().map(|choice| choice.first).collect(),
            prices: begin.clone(),
            begin,
            reach,
            flows,
            excess,
            arcs,
            search: PathSearch::new(hub + 1),
        }
    }

    /// Moves rows until the limits are kept, or until the candidates lead no further. Returns whether the limits are
    /// kept; `None` if arcs that were left out would have been cheaper.
    pub(super) fn settle(&mut self, cx: &Executor) -> Result<Option<bool>> {
        // From here on, no path leads to a cluster with room.
        let mut closed = vec![false; self.excess.len()];
        for source in 0..self.excess.len() {
            while self.excess[source] > 0 && !closed[source] {
                cx.check()?;
                match self.find(source) {
                    Some(target) => {
                        if !self.send(source, target) {
                            return Ok(None);
                        }
                    }
                    None if self.reach.is_finite() => return Ok(None),
                    None => self.search.order.iter().for_each(|&v| closed[v] = true),
                }
            }
        }
        Ok(Some(!closed.contains(&true)))
    }

    /// The prices of the clusters, with the price 0 at the hub.
    pub(super) fn into_prices_and_labels(self) -> (Vec<f64>, Vec<u32>) {
        let hub = self.flows.len();
        let at_hub = self.prices[hub];
        let price = |(&price, &flow): (&f64, &i64)| match price - at_hub {
            // What is left here is rounding, or belongs to clusters that their candidates cannot fill.
            _ if self.least < flow && flow < self.most => 0.0,
            price => price,
        };
        (self.prices.iter().zip(&self.flows).map(price).collect(), self.labels)
    }

    /// The nearest node that lacks rows.
    fn find(&mut self, source: usize) -> Option<usize> {
        let (hub, search, prices) = (self.flows.len(), &mut self.search, &self.prices);
        search.clear();
        search.reach(source, 0.0, source);
        while let Some(v) = search.next() {
            if self.excess[v] < 0 {
                return Some(v);
            }
            // Rounding may make an arc slightly negative.
            let start = search.lengths[v] - prices[v];
            let mut reach = |to: usize, cost: f64| {
                let length = (start + cost + prices[to]).max(search.lengths[v]);
                search.reach(to, length, v);
            };
            if v == hub {
                (0..hub).filter(|&j| self.flows[j] > self.least).for_each(|j| reach(j, 0.0));
                continue;
            }
            if self.flows[v] < self.most {
                reach(hub, 0.0);
            }
            let Arcs { to, costs, .. } = &self.arcs[v];
            for (&to, &cost) in to.iter().zip(costs) {
                reach(to as usize, cost);
            }
        }
        None
    }

    /// Moves rows along the path that was found, as many as cost the same, and raises the prices before its end.
    /// Returns whether no arc that was left out has become cheaper than those that were used: it costs at least `reach`
    /// less the rise of the price where it begins.
    fn send(&mut self, source: usize, target: usize) -> bool {
        let hub = self.flows.len();
        let mut path = Vec::new();
        let mut v = target;
        while v != source {
            path.push((self.search.before[v], v));
            v = self.search.before[v];
        }
        let mut amount = self.excess[source].min(-self.excess[target]);
        for &(from, to) in &path {
            if to == hub {
                amount = amount.min(self.most - self.flows[from]);
            } else if from == hub {
                amount = amount.min(self.flows[to] - self.least);
            }
        }
        let mut moving = Vec::new();
        for &(from, to) in path.iter().filter(|&&(from, to)| from != hub && to != hub) {
            let arcs = &mut self.arcs[from];
            let at = arcs.find(to as u32).expect("the path took this arc");
            let rows = arcs.take(at, amount, &self.labels, from);
            amount = amount.min(rows.len() as i64);
            moving.push((from, to, at, rows));
        }
        for &(from, to) in &path {
            if to == hub {
                self.flows[from] += amount;
            } else if from == hub {
                self.flows[to] -= amount;
            }
        }
        for (from, to, at, rows) in moving {
            let (now, later) = rows.split_at(amount as usize);
            self.arcs[from].movers[at].extend(later.iter().copied().map(Reverse));
            for &(_, row) in now {
                self.labels[row as usize] = to as u32;
                for (next, cost) in costs(self.lists, row as usize, to as u32) {
                    self.arcs[to].push(next, cost, row);
                }
                // The row may have been the cheapest on other arcs.
                for (next, _) in self.lists.of(row as usize) {
                    if let Some(at) = self.arcs[from].find(next as u32) {
                        self.arcs[from].first(at, &self.labels, from);
                    }
                }
            }
        }
        self.excess[source] -= amount;
        self.excess[target] += amount;
        let whole = self.search.lengths[target];
        let mut exact = true;
        for &v in &self.search.order {
            self.prices[v] += (whole - self.search.lengths[v]).max(0.0);
            exact &= self.prices[v] - self.begin[v] <= self.reach;
        }
        exact
    }
}

/// What it costs to move a row from its cluster to each of its other candidates.
fn costs(lists: &CandidateLists, row: usize, label: u32) -> impl Iterator<Item = (u32, i64)> {
    let own = lists.sq_dist(row, label);
    let others = lists.of(row).filter(move |&(j, _)| j != label as usize);
    others.map(move |(j, sq_dist)| (j as u32, key(sq_dist - own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_their_values() {
        let values =
            [f64::NEG_INFINITY, -1e300, -2.0, -1.0, -1e-320, 0.0, 1e-320, 1.0, 1.5, 1e300, f64::INFINITY];
        assert!(values.windows(2).all(|two| key(two[0]) < key(two[1])));
        assert!(values.iter().all(|&v| value(key(v)) == v));
        assert_eq!(key(-0.0), key(0.0));
    }
}
