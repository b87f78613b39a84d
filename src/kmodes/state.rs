//! Writes the state of a fit to a checkpoint and reads it back.

use crate::kernel::Compute;
use std::sync::Arc;

use super::affinity::Affinity;
use super::params::{KModesParams, ModeUpdate};
use super::parts::NEIGHBORS;
use super::shares::Shares;
use super::solver::KModesSolver;
use crate::fit::SolverState;
use crate::persist::state::{StateReader, StateWriter, stored_fields};
use crate::persist::{Contents, schema::KMODES_CHECKPOINT};

/// Name of the array with the per-row responsibility of the clusters that are not stored.
pub(super) const RESTS: &str = "responsibilities_rest";

impl<T: Compute> KModesSolver<T> {
    stored_fields! {
        mode_rows, labels, energies, n_neighbors, found_by = about, recall, variance, lambda, expected, shifted, collapsed, blind,
        n_iter, rows_seen, seeded_by, warm_start, timings,
    }

    /// Returns an error for parts that do not match `n` rows, `k` clusters or each other.
    fn validate(&self, n: usize, k: usize) -> Result<(), String> {
        let modes = self.modes.len() == k * self.dim && self.mode_rows.iter().all(|&row| row < n as u64);
        let labels = self.labels.iter().all(|&label| (label as usize) < k);
        let by_product = self.params.mode_update == ModeUpdate::ByProduct;
        let rows = self.mode_rows.len() == if by_product { k } else { 0 };
        if modes && labels && rows && self.variance > 0.0 && self.lambda >= 0.0 {
            Ok(())
        } else {
            Err("its modes, labels and responsibilities do not match each other".into())
        }
    }
}

impl<T: Compute> SolverState for KModesSolver<T> {
    type Params = KModesParams;

    fn plan(params: &KModesParams) -> Self {
        Self {
            params: params.clone(),
            dim: 0,
            n_neighbors: params.n_neighbors.unwrap_or(NEIGHBORS[0]),
            about: String::new(),
            affinity: None,
            recall: 1.0,
            variance: 0.0,
            modes: Vec::new(),
            mode_rows: Vec::new(),
            labels: Vec::new(),
            near: Vec::new(),
            z: Shares::new(0, 0),
            spare: [Shares::new(0, 0), Shares::new(0, 0)],
            local: None,
            lambda: params.laplacian_weight.unwrap_or(0.0),
            first: Vec::new(),
            warm_start: false,
            shifted: false,
            expected: None,
            relaxed: Vec::new(),
            energies: Vec::new(),
            collapsed: false,
            blind: false,
            begun: false,
            n_iter: 0,
            rows_seen: 0,
            seeded_by: String::new(),
            timings: [0.0; 3],
        }
    }

    fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new(KMODES_CHECKPOINT);
        self.put_fields(&mut to);
        to.put_matrix("centers", &self.modes, self.dim);
        let (kept, clusters) = self.z.kept();
        to.put_matrix("responsibilities", &kept, kept.len() / self.labels.len().max(1));
        to.put_list("responsibilities_clusters", clusters);
        let rests = self.z.rests();
        if !rests.is_empty() {
            to.put_matrix(RESTS, &rests, 1);
        }
        if let Some(affinity) = &self.affinity {
            let (starts, columns, weights) = affinity.parts();
            to.put("affinity_starts", &starts.iter().map(|&start| start as u64).collect::<Vec<_>>());
            to.put_list("affinity_columns", columns);
            to.put_list("affinity_weights", weights);
        }
        to.put_list("watched", &self.relaxed.concat());
        to.put("loops", &self.relaxed.iter().map(|loop_of| loop_of.len() as u64).collect::<Vec<_>>());
        to.finish()
    }

    fn restore(params: &KModesParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(KMODES_CHECKPOINT)?;
        let from = StateReader::new(contents)?;
        let mut state = Self::plan(params);
        state.get_fields(&from)?;
        let &[_, dim] = contents.array("centers")?.shape() else {
            return Err("its \"centers\" are not a matrix".into());
        };
        (state.dim, state.modes) = (dim, from.finite_matrix("centers", dim)?);
        let (n, k) = (state.labels.len(), params.n_clusters);
        let starts: Vec<u64> = from.get("affinity_starts")?;
        let affinity = Affinity::of_parts(
            starts.iter().map(|&start| usize::try_from(start).unwrap_or(usize::MAX)).collect(),
            from.get("affinity_columns")?,
            from.get("affinity_weights")?,
        );
        state.affinity = Some(Arc::new(affinity.checked(n)?));
        let top = params.kept(n as u64, size_of::<T>());
        state.spare = [Shares::new(k, top), Shares::new(k, top)];
        let kept: Vec<T> = from.matrix("responsibilities", top)?;
        let z = if state.n_iter == 0 && kept.is_empty() {
            Some(Shares::new(k, top))
        } else {
            let some = contents.arrays.contains_key(RESTS);
            let rests = if some { from.matrix(RESTS, 1)? } else { Vec::new() };
            let z = Shares::of_kept(k, kept, from.get("responsibilities_clusters")?, n);
            z.filter(|z| z.is_whole() == (top == k)).and_then(|z| z.with_rests(&rests))
        };
        state.z = z.ok_or("its responsibilities are inconsistent")?;
        let mut watched = from.get::<Vec<f64>>("watched")?.into_iter();
        let lengths: Vec<u64> = from.get("loops")?;
        state.relaxed =
            lengths.iter().map(|&length| watched.by_ref().take(length as usize).collect()).collect();
        state.begun = true;
        state.validate(n, k)?;
        Ok(state)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        n.is_none_or(|n| self.labels.len() as u64 == n)
    }
}
