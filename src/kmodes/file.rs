//! Writes the state of a fit to a checkpoint and reads it back.

use std::sync::Arc;

use super::affinity::Affinity;
use super::params::{KModesParams, ModeUpdate};
use super::shares::Shares;
use super::solver::KModesSolver;
use crate::fit::Element;
use crate::persist::state::{StateReader, StateWriter, stored_fields};
use crate::persist::{Contents, schema::KMODES_CHECKPOINT};

/// Name of the array with the per-row responsibility of the clusters that are not stored.
pub(super) const RESTS: &str = "responsibilities_rest";

impl<T: Element> KModesSolver<T> {
    stored_fields! {
        mode_rows, labels, energies, found_by = about, recall, variance, lambda, expected, shifted, collapsed, blind,
        n_iter, rows_seen, seeded_by, warm_start, timings,
    }

    /// Everything that the next step depends on, except the rows.
    pub(super) fn to_file(&self) -> Contents {
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

    /// Reads what [`to_file`](Self::to_file) wrote.
    pub(super) fn of_checkpoint(params: &KModesParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(KMODES_CHECKPOINT)?;
        let from = StateReader::new(contents)?;
        let mut state = Self::new(params);
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
