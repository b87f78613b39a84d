//! Writes the state of mini-batch k-means to a file and reads it back.

use serde_json::json;

use super::progress::Averages;
use super::state::State;
use crate::fit::Metric;
use crate::kernel::Compute;
use crate::kmeans::batches::Waiting;
use crate::matrix::MatRef;
use crate::persist::kept::{bits, count, figure, keep, matrix, rows, stored_rows, text};
use crate::persist::schema::MINIBATCH_STATE;
use crate::persist::{Array, Contents};
use crate::stats::ClusterSums;

impl<T: Compute> State<T> {
    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new(MINIBATCH_STATE);
        let k = self.clusters.weights().len();
        let cols = self.dim.max(1);
        let mut keep = |name: &str, array| keep(&mut contents, name, array);
        let typed = |values: &[T]| stored_rows(values, cols);
        keep("centers", typed(&self.centers));
        keep("sums", Array::new(&[k, cols], self.clusters.sums()));
        keep("weights", Array::new(&[k], self.clusters.weights()));
        self.waiting.to_file(&mut contents);
        // Stored as bits: the values may be infinite or NaN, and must come back exactly.
        let bits = |x: Option<f64>| x.map(f64::to_bits);
        let numbers = json!({
            "dim": self.dim,
            "seeded_by": self.seeded_by,
            "seed": self.seed,
            "n_steps": self.n_steps,
            "rows_seen": self.rows_seen,
            "n_iter": self.n_iter,
            "position": self.position,
            "since_reassigned": self.since_reassigned,
            "stalled": self.progress.stalled,
            "inertia": bits(self.progress.inertia),
            "lowest": bits(self.progress.lowest),
            "threshold": bits(self.threshold),
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
    }

    /// Reads what [`State::to_file`] wrote. The error says what is wrong.
    pub(super) fn of_file(contents: &Contents, metric: Metric) -> Result<Self, String> {
        let numbers = contents.object("state")?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "its \"dim\" is too large")?;
        let centers: Vec<T> = rows(contents, "centers", dim)?;
        let sums: Vec<f64> = matrix(contents, "sums", dim)?;
        let k = if centers.is_empty() { 0 } else { centers.len() / dim };
        let weights: Vec<f64> = contents.values("weights", &[k])?;
        if sums.len() != centers.len() {
            return Err("its \"sums\" do not belong to its \"centers\"".into());
        }
        let finite = |values: &[T]| values.iter().all(|x| x.finite());
        let sound = |values: &[f64]| values.iter().all(|x| x.is_finite() && *x >= 0.0);
        if !(finite(&centers) && sums.iter().all(|x| x.is_finite())) {
            return Err("it holds values that are not finite".into());
        }
        if !sound(&weights) {
            return Err("it holds a weight that is negative or not finite".into());
        }
        let clusters = ClusterSums::of(if k == 0 { 0 } else { dim }, sums, weights);
        if !clusters.have_means_at(MatRef::new(&centers, dim.max(1)), metric == Metric::Cosine) {
            return Err("its \"sums\" and \"weights\" do not match its \"centers\"".into());
        }
        Ok(Self {
            dim,
            metric,
            centers,
            clusters,
            waiting: Waiting::of_file(contents, dim)?,
            seeded_by: text(&numbers, "seeded_by")?,
            seed: bits(&numbers, "seed")?,
            n_steps: count(&numbers, "n_steps")?,
            rows_seen: count(&numbers, "rows_seen")?,
            n_iter: count(&numbers, "n_iter")?,
            position: count(&numbers, "position")?,
            since_reassigned: count(&numbers, "since_reassigned")?,
            progress: Averages {
                inertia: figure(&numbers, "inertia")?,
                lowest: figure(&numbers, "lowest")?,
                stalled: count(&numbers, "stalled")?,
            },
            threshold: figure(&numbers, "threshold")?,
        })
    }
}
