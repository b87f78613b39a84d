//! Writes the state of a fit to a checkpoint and reads it back.

use std::sync::Arc;

use serde_json::json;

use super::affinity::Affinity;
use super::params::{KModesParams, ModeUpdate};
use super::shares::Shares;
use super::solver::KModesSolver;
use crate::fit::Element;
use crate::persist::kept::{count, figure, flag, keep, list, number, rows as kept_values, stored_rows, text};
use crate::persist::{Array, Contents, schema::KMODES_CHECKPOINT};

/// Name of the array with the per-row responsibility of the clusters that are not stored.
pub(super) const RESTS: &str = "responsibilities_rest";

impl<T: Element> KModesSolver<T> {
    /// Everything that the next step depends on, except the rows.
    pub(super) fn to_file(&self) -> Contents {
        let n = self.labels.len();
        let mut contents = Contents::new(KMODES_CHECKPOINT);
        keep(&mut contents, "centers", stored_rows(&self.modes, self.dim.max(1)));
        keep(&mut contents, "mode_rows", Array::new(&[self.mode_rows.len()], &self.mode_rows));
        keep(&mut contents, "labels", Array::new(&[n], &self.labels));
        let (kept, clusters) = self.z.kept();
        keep(&mut contents, "responsibilities", stored_rows(&kept, (kept.len() / n.max(1)).max(1)));
        keep(&mut contents, "responsibilities_clusters", Array::new(&[clusters.len()], clusters));
        let rests = self.z.rests();
        if !rests.is_empty() {
            keep(&mut contents, RESTS, stored_rows(&rests, 1));
        }
        if let Some(affinity) = &self.affinity {
            let (starts, columns, weights) = affinity.parts();
            let starts: Vec<u64> = starts.iter().map(|&start| start as u64).collect();
            keep(&mut contents, "affinity_starts", Array::new(&[starts.len()], &starts));
            keep(&mut contents, "affinity_columns", Array::new(&[columns.len()], columns));
            keep(&mut contents, "affinity_weights", Array::new(&[weights.len()], weights));
        }
        let watched: Vec<f64> = self.relaxed.iter().flatten().copied().collect();
        let lengths: Vec<u64> = self.relaxed.iter().map(|loop_of| loop_of.len() as u64).collect();
        keep(&mut contents, "watched", Array::new(&[watched.len()], &watched));
        keep(&mut contents, "loops", Array::new(&[lengths.len()], &lengths));
        keep(&mut contents, "energies", Array::new(&[self.energies.len()], &self.energies));
        let about = json!({
            "found_by": self.about,
            "recall": self.recall.to_bits(),
            "variance": self.variance.to_bits(),
            "lambda": self.lambda.to_bits(),
            "expected": self.expected.map(f64::to_bits),
            "shifted": self.shifted,
            "collapsed": self.collapsed,
            "blind": self.blind,
            "n_iter": self.n_iter,
            "rows_seen": self.rows_seen,
            "seeded_by": self.seeded_by,
            "warm_start": self.warm_start,
            "timings": self.timings,
        });
        contents.meta.insert("solver".into(), about.to_string());
        contents
    }

    /// Reads what [`to_file`](Self::to_file) wrote.
    pub(super) fn of_checkpoint(params: &KModesParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(KMODES_CHECKPOINT)?;
        let known: Vec<u32> = list(contents, "labels")?;
        let &[_, dim] = contents.array("centers")?.shape() else {
            return Err("its \"centers\" are not a matrix".into());
        };
        let (n, k) = (known.len(), params.n_clusters);
        let about = contents.object("solver")?;
        let starts: Vec<u64> = list(contents, "affinity_starts")?;
        let affinity = Affinity::of_parts(
            starts.iter().map(|&start| usize::try_from(start).unwrap_or(usize::MAX)).collect(),
            list(contents, "affinity_columns")?,
            list(contents, "affinity_weights")?,
        );
        let top = params.kept(n as u64, size_of::<T>());
        let clusters: Vec<u32> = list(contents, "responsibilities_clusters")?;
        let kept = kept_values(contents, "responsibilities", top)?;
        let some = contents.arrays.contains_key(RESTS);
        let rests = if some { kept_values(contents, RESTS, 1)? } else { Vec::new() };
        let n_iter = count(&about, "n_iter")?;
        let z = if n_iter == 0 && kept.is_empty() {
            Some(Shares::new(k, top))
        } else {
            let z = Shares::of_kept(k, kept, clusters, n).filter(|z| z.is_whole() == (top == k));
            z.and_then(|z| z.with_rests(&rests))
        };
        let lengths: Vec<u64> = list(contents, "loops")?;
        let mut watched = list::<f64>(contents, "watched")?.into_iter();
        let relaxed: Vec<Vec<f64>> =
            lengths.iter().map(|&length| watched.by_ref().take(length as usize).collect()).collect();
        let solver = Self {
            dim,
            affinity: Some(Arc::new(affinity.checked(n)?)),
            about: text(&about, "found_by")?,
            recall: number(&about, "recall")?,
            variance: number(&about, "variance")?,
            modes: kept_values(contents, "centers", dim)?,
            mode_rows: list(contents, "mode_rows")?,
            labels: known,
            z: z.ok_or("its responsibilities are inconsistent")?,
            lambda: number(&about, "lambda")?,
            shifted: flag(&about, "shifted")?,
            expected: figure(&about, "expected")?,
            relaxed,
            energies: list(contents, "energies")?,
            collapsed: flag(&about, "collapsed")?,
            blind: flag(&about, "blind")?,
            begun: true,
            n_iter,
            rows_seen: count(&about, "rows_seen")?,
            seeded_by: text(&about, "seeded_by")?,
            warm_start: flag(&about, "warm_start")?,
            timings: std::array::from_fn(|at| about["timings"][at].as_f64().unwrap_or(0.0)),
            spare: [Shares::new(k, top), Shares::new(k, top)],
            ..Self::new(params)
        };
        let modes = solver.modes.len() == k * dim && solver.mode_rows.iter().all(|&row| row < n as u64);
        let labels = solver.labels.len() == n && solver.labels.iter().all(|&label| (label as usize) < k);
        let by_product = params.mode_update == ModeUpdate::ByProduct;
        let rows = solver.mode_rows.len() == if by_product { k } else { 0 };
        let finite = solver.variance > 0.0 && solver.lambda >= 0.0 && solver.modes.iter().all(|x| x.finite());
        if modes && labels && rows && finite {
            Ok(solver)
        } else {
            Err("its modes, labels and responsibilities do not match each other".into())
        }
    }
}
