//! Writes a start of exact k-means to a checkpoint and reads it back. Bounds are not stored; they are
//! rebuilt.

use serde_json::json;

use super::Lloyd;
use crate::centers::{LabelList, NO_LABEL};
use crate::fit::{stored_timings, timings_of};
use crate::kernel::Compute;
use crate::kmeans::labels::Labels;
use crate::kmeans::params::{Algorithm, KMeansParams};
use crate::kmeans::state::{carried_of, check_carried, keep_carried};
use crate::matrix::MatRef;
use crate::persist::kept::{count, figure, flag, keep, list, number, rows, stored_rows, text};
use crate::persist::{Array, Contents};

impl<T: Compute> Lloyd<T> {
    pub(in crate::kmeans) fn to_file(&self) -> Contents {
        let mut contents = Contents::new("");
        let labels = self.labels.of_rows.view().to_vec();
        keep(&mut contents, "centers", stored_rows(&self.centers, self.dim.max(1)));
        keep(&mut contents, "labels", Array::new(&[labels.len()], &labels));
        keep(&mut contents, "weights", Array::new(&[self.weights.len()], &self.weights));
        if let Some(carried) = &self.carried {
            keep_carried(&mut contents, "carried", carried);
        }
        // Floats are stored as bits, so that a resumed fit is bit-identical.
        let numbers = json!({
            "dim": self.dim,
            "energy": self.energy.to_bits(),
            "exact": self.exact,
            "current": self.current,
            "algorithm": self.choice.algorithm.name(),
            "changed": self.choice.changed,
            "unbounded_until": self.choice.unbounded_until,
            "cost_factor": self.choice.cost_factor.to_bits(),
            "blurred": self.choice.blurred,
            "threshold": self.threshold.map(f64::to_bits),
            "iteration": self.iteration,
            "rows_seen": self.rows_seen,
            "seeded_by": self.seeded_by,
            "timings": stored_timings(self.timings),
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
    }

    /// Reads what [`Lloyd::to_file`] wrote, to resume with `params`. The error says what is wrong.
    pub(in crate::kmeans) fn of_file(params: KMeansParams, contents: &Contents) -> Result<Self, String> {
        let numbers = contents.object("state")?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "its \"dim\" is too large")?;
        let centers: Vec<T> = rows(contents, "centers", dim)?;
        let k = centers.len() / dim.max(1);
        if k != params.n_clusters {
            return Err(format!("it holds {k} centers, but n_clusters={}", params.n_clusters));
        }
        if !centers.iter().all(|x| x.finite()) {
            return Err("it holds centers that are not finite".into());
        }
        let of_rows: Vec<u32> = list(contents, "labels")?;
        if !of_rows.iter().all(|&j| (j as usize) < k || j == NO_LABEL) {
            return Err("its \"labels\" do not match its \"centers\"".into());
        }
        let weights: Vec<f64> = list(contents, "weights")?;
        if weights.len() > k || !weights.iter().all(|w| w.is_finite() && *w >= 0.0) {
            return Err("its \"weights\" do not match its \"centers\"".into());
        }
        let algorithm = text(&numbers, "algorithm")?.parse::<Algorithm>();
        // Carried sums are valid only if every row has a label.
        let carried = carried_of(contents, "carried", k, dim)?.filter(|_| !of_rows.contains(&NO_LABEL));
        if let Some(carried) = &carried {
            check_carried(carried, &of_rows, MatRef::new(&centers, dim), params.metric)?;
        }
        let mut new = Self::plan(params);
        new.choice.algorithm = algorithm.map_err(|_| "its \"algorithm\" is unknown")?;
        new.choice.changed = count(&numbers, "changed")?;
        new.choice.unbounded_until = count(&numbers, "unbounded_until")?;
        new.choice.blurred = flag(&numbers, "blurred")?;
        new.choice.cost_factor = number(&numbers, "cost_factor")?;
        if !(new.choice.cost_factor >= 1.0 && new.choice.cost_factor.is_finite()) {
            return Err("its \"cost_factor\" must be finite and at least 1".into());
        }
        Ok(Self {
            dim,
            centers,
            labels: Labels::of(LabelList::of(of_rows, k)),
            weights,
            energy: number(&numbers, "energy")?,
            exact: flag(&numbers, "exact")?,
            carried,
            current: flag(&numbers, "current")?,
            threshold: figure(&numbers, "threshold")?,
            iteration: count(&numbers, "iteration")?,
            rows_seen: count(&numbers, "rows_seen")?,
            seeded_by: text(&numbers, "seeded_by")?,
            timings: timings_of(&numbers)?,
            ..new
        })
    }
}
