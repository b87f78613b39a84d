//! Writes a fit to a checkpoint and reads it back.

use super::lists::CenterLists;
use super::params::HierarchicalParams;
use super::solver::HierarchicalSolver;
use crate::fit::{SolverState, Timings};
use crate::kernel::Compute;
use crate::persist::Contents;
use crate::persist::schema::HIERARCHICAL_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter, are_weights, stored_fields};
use crate::seeding::Clusters;

impl<T: Compute> HierarchicalSolver<T> {
    stored_fields! {
        dim = clusters.dim, weights = clusters.weights, energies = clusters.energies,
        labels, slacks, moved, grown, levels, sweeps, sample_rows, rows_seen, seeded_by, timings,
    }

    /// Returns an error for parts that do not match each other.
    fn validate(&self) -> Result<(), String> {
        let (clusters, most) = (&self.clusters, self.params.n_clusters);
        let k = clusters.centers.len() / clusters.dim.max(1);
        if k == 0 || k > most || self.grown && k != most {
            return Err(format!("it holds {k} centers, but n_clusters={most}"));
        }
        for (name, values) in [("weights", &clusters.weights), ("energies", &clusters.energies)] {
            if values.len() != k || !are_weights(values) {
                return Err(format!("its {name:?} are not {k} finite numbers of at least 0"));
            }
        }
        if self.labels.is_empty() || !self.labels.iter().all(|&j| (j as usize) < k) {
            return Err("its \"labels\" do not match its \"centers\"".into());
        }
        if self.moved.len() != if self.grown { k } else { 0 } {
            return Err("its \"moved\" do not match its \"centers\"".into());
        }
        if self.lists.as_ref().is_some_and(|lists| !lists.belong_to(k)) {
            return Err("its \"lists\" do not match its \"centers\"".into());
        }
        let fits = self.slacks.len() == self.labels.len() || self.slacks.is_empty() && self.lists.is_none();
        if !fits || self.slacks.iter().any(|x| x.is_nan()) {
            return Err("its \"slacks\" do not match its \"labels\"".into());
        }
        Ok(())
    }
}

impl<T: Compute> SolverState for HierarchicalSolver<T> {
    type Params = HierarchicalParams;

    fn plan(params: &HierarchicalParams) -> Self {
        Self {
            params: params.clone(),
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

    fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new(HIERARCHICAL_CHECKPOINT);
        self.put_fields(&mut to);
        to.put_value("seed", self.params.rng_seed);
        to.put_matrix("centers", &self.clusters.centers, self.clusters.dim);
        if let Some(lists) = &self.lists {
            lists.put_fields(&mut to);
        }
        to.finish()
    }

    fn restore(params: &HierarchicalParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(HIERARCHICAL_CHECKPOINT)?;
        let from = StateReader::new(contents)?;
        let mut state = Self::plan(params);
        state.params.rng_seed = from.seed()?;
        state.get_fields(&from)?;
        state.clusters.centers = from.finite_matrix("centers", state.clusters.dim)?;
        if contents.arrays.contains_key("lists") {
            let mut lists = CenterLists::default();
            lists.get_fields(&from)?;
            state.lists = Some(lists);
        }
        state.validate()?;
        Ok(state)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        n.is_none_or(|n| self.labels.len() as u64 == n)
    }
}

impl CenterLists {
    stored_fields! { lists = ids, width, reach, drift, far, age }

    /// Whether these can be the lists of `k` centers.
    fn belong_to(&self, k: usize) -> bool {
        let complete = self.ids.is_empty() && self.width == k;
        let listed = self.width > 0 && self.ids.len() == k.saturating_mul(self.width);
        let own = |(j, list): (usize, &[u32])| {
            list.is_sorted_by(|a, b| a < b)
                && list.binary_search(&(j as u32)).is_ok()
                && (list[list.len() - 1] as usize) < k
        };
        let finite = |x: &f64| !x.is_nan() && *x >= 0.0;
        (complete || listed && self.ids.chunks_exact(self.width).enumerate().all(own))
            && self.reach.len() == k
            && self.drift.len() == k
            && self.reach.iter().chain(&self.drift).chain([&self.far]).all(finite)
    }
}
