//! A neighbor graph that does not fall apart: the default of `n_neighbors`.

use crate::data::{DataSource, count_rows};
use crate::error::Result;
use crate::graph::{GraphMethod, KnnGraph, knn_graph};
use crate::kernel::Compute;
use crate::parallel::Executor;

/// The fewest and the most neighbors of a graph of Laplacian K-modes, unless told otherwise. The fewest are those of
/// the paper. On the sets of shapes, 10 are always enough (`shapes.py`).
pub(super) const NEIGHBORS: [usize; 2] = [5, 40];

/// A connected component with fewer rows than this share of the mean cluster size is no cluster of its own. The same
/// number is in `_kmodes/spectral.py`.
const SMALL_PART: f64 = 0.1;

/// The share of true neighbors that an approximate graph of Laplacian K-modes must find.
pub(super) const GRAPH_RECALL: f64 = 0.95;

/// The connected components of a graph that gains edges.
struct Parts {
    /// A row of the same part, or the row itself; following them leads to the row that stands for the part.
    above: Vec<u32>,
    /// Rows of the part, for rows that stand for one.
    sizes: Vec<u32>,
}

impl Parts {
    fn new(n: usize) -> Self {
        Self { above: (0..n as u32).collect(), sizes: vec![1; n] }
    }

    /// The row that stands for the part of row `i`.
    fn of(&mut self, mut i: u32) -> u32 {
        while self.above[i as usize] != i {
            let next = self.above[i as usize];
            self.above[i as usize] = self.above[next as usize];
            i = next;
        }
        i
    }

    fn join(&mut self, i: u32, j: u32) {
        let (mut i, mut j) = (self.of(i), self.of(j));
        if i == j {
            return;
        }
        if self.sizes[i as usize] < self.sizes[j as usize] {
            (i, j) = (j, i);
        }
        self.above[j as usize] = i;
        self.sizes[i as usize] += self.sizes[j as usize];
    }

    /// Whether there are at most `k` parts that are not small, and at least half of the rows lie in them.
    fn suffice_for(&self, k: usize) -> bool {
        let n = self.above.len();
        let least = SMALL_PART * n as f64 / k as f64;
        let standing =
            self.above.iter().zip(&self.sizes).enumerate().filter(|&(i, (&above, _))| above as usize == i);
        let large = standing.map(|(_, (_, &size))| size as usize).filter(|&size| size as f64 >= least);
        let (count, rows) = large.fold((0, 0), |(count, rows), size| (count + 1, rows + size));
        count <= k && 2 * rows >= n
    }
}

/// The smallest number of neighbors, from `first` on, with which the graph does not fall apart; `None` if all of them
/// are too few.
fn enough(graph: &KnnGraph, first: usize, k: usize, cx: &Executor) -> Result<Option<usize>> {
    let (n, width) = (graph.n_rows(), graph.n_neighbors());
    let mut parts = Parts::new(n);
    for place in 0..width {
        cx.check()?;
        for (i, of_row) in graph.neighbors().chunks_exact(width).enumerate() {
            parts.join(i as u32, of_row[place]);
        }
        if place + 1 >= first && parts.suffice_for(k) {
            return Ok(Some(place + 1));
        }
    }
    Ok(None)
}

/// The graph with the smallest number of neighbors within [`NEIGHBORS`] that does not fall apart for `k` clusters; that
/// with the smallest number if all fall apart.
///
/// # Errors
/// As [`KnnGraph::of`].
pub(super) fn joined_graph<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    method: GraphMethod,
    cx: &Executor,
) -> Result<KnnGraph> {
    let others = usize::try_from(count_rows(data)?).unwrap_or(usize::MAX).saturating_sub(1).max(1);
    let [first, most] = NEIGHBORS.map(|m| m.min(others));
    let graph = knn_graph(data, first, method, GRAPH_RECALL, cx)?;
    if enough(&graph, first, k, cx)?.is_some() {
        return Ok(graph);
    }
    let mut width = first;
    while width < most {
        width = (2 * width).min(most);
        let wider = knn_graph(data, width, method, GRAPH_RECALL, cx)?;
        if let Some(m) = enough(&wider, first + 1, k, cx)? {
            return Ok(wider.nearest(m));
        }
    }
    Ok(graph)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;
    use crate::rng::{Purpose, Rng};

    /// Numbers of rows of the connected components of a graph, largest first, found by flooding.
    fn flooded(graph: &KnnGraph) -> Vec<usize> {
        let (n, m) = (graph.n_rows(), graph.n_neighbors());
        let mut beside = vec![Vec::new(); n];
        for (i, of_row) in graph.neighbors().chunks_exact(m).enumerate() {
            for &j in of_row {
                beside[i].push(j as usize);
                beside[j as usize].push(i);
            }
        }
        let (mut seen, mut sizes) = (vec![false; n], Vec::new());
        for start in 0..n {
            let (mut open, mut size) = (vec![start], 0);
            while let Some(i) = open.pop() {
                if !std::mem::replace(&mut seen[i], true) {
                    size += 1;
                    open.extend(&beside[i]);
                }
            }
            sizes.push(size);
        }
        sizes.retain(|&size| size > 0);
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    }

    fn falls_apart(graph: &KnnGraph, k: usize) -> bool {
        let least = SMALL_PART * graph.n_rows() as f64 / k as f64;
        let large: Vec<usize> = flooded(graph).into_iter().filter(|&size| size as f64 >= least).collect();
        large.len() > k || 2 * large.iter().sum::<usize>() < graph.n_rows()
    }

    #[test]
    fn a_graph_has_as_few_neighbors_as_it_needs() {
        let cx = Executor::new(Some(2)).unwrap();
        let mut rng = Rng::keyed(3, Purpose::Seeding, 0);
        let mut found = Vec::new();
        for (n, k) in [(40, 2), (200, 3), (300, 2), (600, 2), (900, 2), (600, 40)] {
            // On a line, graphs fall apart sooner than in a plane.
            let values: Vec<f64> = (0..n).map(|_| rng.unit()).collect();
            let data = Dense::new(&values, 1).unwrap();
            let exact = |m| knn_graph::<f64>(&data, m, GraphMethod::Exact, 1.0, &cx).unwrap();
            let graph = joined_graph::<f64>(&data, k, GraphMethod::Exact, &cx).unwrap();
            let m = graph.n_neighbors();
            assert_eq!(graph, exact(m));
            assert!(!falls_apart(&graph, k));
            assert!((NEIGHBORS[0]..m).all(|fewer| falls_apart(&exact(fewer), k)));
            found.push(m);
        }
        assert!(found.contains(&5) && found.iter().any(|&m| m > 5), "{found:?}");
    }

    #[test]
    fn a_graph_that_stays_apart_keeps_few_neighbors() {
        let cx = Executor::new(Some(1)).unwrap();
        // Fifty groups of more equal rows than the most neighbors.
        let values: Vec<f64> = (0..50 * 45).map(|i| f64::from(i % 50)).collect();
        let data = Dense::new(&values, 1).unwrap();
        let graph = joined_graph::<f64>(&data, 2, GraphMethod::Exact, &cx).unwrap();
        assert_eq!(graph, knn_graph::<f64>(&data, NEIGHBORS[0], GraphMethod::Exact, 1.0, &cx).unwrap());
        // Three rows have two neighbors.
        let few = Dense::new(&values[..3], 1).unwrap();
        assert_eq!(joined_graph::<f64>(&few, 2, GraphMethod::Exact, &cx).unwrap().n_neighbors(), 2);
    }
}
