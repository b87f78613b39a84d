//! The centers around each center, and how far they have moved since they were found.

use crate::data::Dense;
use crate::error::Result;
use crate::graph::tree_pays;
use crate::graph::{GraphMethod, knn_graph};
use crate::kernel::Compute;
use crate::matrix::MatRef;
use crate::parallel::Executor;

/// The lists of all centers: the center itself and those nearest to it, in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct CenterLists {
    /// Centers in a list.
    pub(super) width: usize,
    /// `width` centers per list; empty if every list holds all centers.
    pub(super) ids: Vec<u32>,
    /// Lower bounds on the distances to the centers outside the lists, when the lists were made.
    pub(super) reach: Vec<f64>,
    /// Per center: the length of its path since then.
    pub(super) drift: Vec<f64>,
    /// The sum over sweeps of the longest move of any center.
    pub(super) far: f64,
    /// Sweeps since the lists were made.
    pub(super) age: u64,
}

/// Relative rounding of lengths in `f64`, with room to spare.
const ROUNDING: f64 = 1e-9;

impl CenterLists {
    /// The lists of `m` centers around each center.
    pub(super) fn new<T: Compute>(centers: MatRef<'_, T>, m: usize, cx: &Executor) -> Result<Self> {
        let (k, dim) = (centers.rows(), centers.cols());
        let drift = vec![0.0; k];
        if m + 1 >= k {
            return Ok(Self { width: k, reach: vec![f64::INFINITY; k], drift, ..Self::default() });
        }
        let rows = Dense::new(centers.data(), dim)?;
        // The nearest center outside the list gives the reach.
        let found = m + 1;
        let method = if tree_pays(k as u64, dim) { GraphMethod::Tree } else { GraphMethod::Exact };
        let graph = knn_graph::<T>(&rows, found, method, 1.0, cx)?;
        let mut ids = Vec::with_capacity(k * (m + 1));
        for (j, near) in graph.neighbors().chunks_exact(found).enumerate() {
            let first = ids.len();
            ids.push(j as u32);
            ids.extend_from_slice(&near[..m]);
            ids[first..].sort_unstable();
        }
        let furthest = graph.sq_dists().chunks_exact(found).map(|near| near[m].sqrt() * (1.0 - ROUNDING));
        Ok(Self { width: m + 1, ids, reach: furthest.collect(), drift, ..Self::default() })
    }

    /// Writes the list of center `j`, or only itself and the members for which `wanted` holds.
    pub(super) fn write(&self, j: usize, wanted: impl Fn(usize) -> bool, list: &mut Vec<u32>) {
        let wanted = |&l: &u32| l as usize == j || wanted(l as usize);
        if self.ids.is_empty() {
            list.extend((0..self.width as u32).filter(wanted));
        } else {
            list.extend(self.ids[j * self.width..][..self.width].iter().copied().filter(wanted));
        }
    }

    /// A lower bound on the distances from center `j` to the centers outside its list, plus [`CenterLists::far`].
    pub(super) fn reach(&self, j: usize) -> f64 {
        self.reach[j] - self.drift[j]
    }

    /// Counts the moves of a sweep.
    pub(super) fn follow(&mut self, moves: impl Iterator<Item = f64>) {
        let mut most = 0.0f64;
        for (drift, length) in self.drift.iter_mut().zip(moves) {
            let length = length * (1.0 + ROUNDING);
            *drift += length;
            most = most.max(length);
        }
        self.far += most;
        self.age += 1;
    }
}
