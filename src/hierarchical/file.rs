//! Writes a fit to a checkpoint and reads it back.

use serde_json::json;

use super::lists::CenterLists;
use super::{HierarchicalParams, HierarchicalSolver};
use crate::fit::{Element, stored_timings, timings_of};
use crate::persist::kept::{bits, count, flag, keep, list, number, rows, stored_rows, text};
use crate::persist::schema::HIERARCHICAL_CHECKPOINT;
use crate::persist::{Array, Contents};
use crate::seeding::Clusters;

impl<T: Element> HierarchicalSolver<T> {
    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new(HIERARCHICAL_CHECKPOINT);
        let Clusters { dim, centers, weights, energies } = &self.clusters;
        keep(&mut contents, "centers", stored_rows(centers, (*dim).max(1)));
        keep(&mut contents, "weights", Array::new(&[weights.len()], weights));
        keep(&mut contents, "energies", Array::new(&[energies.len()], energies));
        keep(&mut contents, "labels", Array::new(&[self.labels.len()], &self.labels));
        keep(&mut contents, "slacks", Array::new(&[self.slacks.len()], &self.slacks));
        let moved: Vec<u8> = self.moved.iter().map(|&moved| moved.into()).collect();
        keep(&mut contents, "moved", Array::new(&[moved.len()], &moved));
        if let Some(lists) = &self.lists {
            keep(&mut contents, "lists", Array::new(&[lists.ids.len()], &lists.ids));
            keep(&mut contents, "reach", Array::new(&[lists.reach.len()], &lists.reach));
            keep(&mut contents, "drift", Array::new(&[lists.drift.len()], &lists.drift));
        }
        let numbers = json!({
            "dim": dim,
            "seed": self.params.rng_seed,
            "grown": self.grown,
            "levels": self.levels,
            "sweeps": self.sweeps,
            "sample_rows": self.sample_rows,
            "width": self.lists.as_ref().map_or(0, |lists| lists.width),
            // Floats are stored as bits, so that a resumed fit is bit-identical.
            "far": self.lists.as_ref().map_or(0.0, |lists| lists.far).to_bits(),
            "age": self.lists.as_ref().map_or(0, |lists| lists.age),
            "rows_seen": self.rows_seen,
            "seeded_by": self.seeded_by,
            "timings": stored_timings(self.timings),
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents
    }

    /// Reads what [`HierarchicalSolver::to_file`] wrote, to resume with `params`. The error says what is wrong.
    pub(super) fn of_file(mut params: HierarchicalParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(HIERARCHICAL_CHECKPOINT)?;
        let numbers = contents.object("state")?;
        let size = |name: &str| {
            usize::try_from(count(&numbers, name)?).map_err(|_| format!("its {name:?} is too large"))
        };
        let (dim, grown) = (size("dim")?, flag(&numbers, "grown")?);
        params.rng_seed = bits(&numbers, "seed")?;
        let centers: Vec<T> = rows(contents, "centers", dim)?;
        let k = centers.len() / dim.max(1);
        if k == 0 || k > params.n_clusters || grown && k != params.n_clusters {
            return Err(format!("it holds {k} centers, but n_clusters={}", params.n_clusters));
        }
        if !centers.iter().all(|x| x.finite()) {
            return Err("it holds centers that are not finite".into());
        }
        let of_clusters = |name: &str| {
            let values: Vec<f64> = contents.values(name, &[k])?;
            let fits = values.iter().all(|x| x.is_finite() && *x >= 0.0);
            if fits { Ok(values) } else { Err(format!("its {name:?} are negative or not finite")) }
        };
        let (weights, energies) = (of_clusters("weights")?, of_clusters("energies")?);
        let labels: Vec<u32> = list(contents, "labels")?;
        if labels.is_empty() || !labels.iter().all(|&j| (j as usize) < k) {
            return Err("its \"labels\" do not match its \"centers\"".into());
        }
        let slacks: Vec<f32> = list(contents, "slacks")?;
        let moved: Vec<u8> = contents.values("moved", &[if grown { k } else { 0 }])?;
        let lists = if contents.arrays.contains_key("lists") {
            let lists = CenterLists {
                width: size("width")?,
                ids: list(contents, "lists")?,
                reach: list(contents, "reach")?,
                drift: contents.values("drift", &[k])?,
                far: number(&numbers, "far")?,
                age: count(&numbers, "age")?,
            };
            if !lists.belong_to(k) {
                return Err("its \"lists\" do not match its \"centers\"".into());
            }
            Some(lists)
        } else {
            None
        };
        let fits = slacks.len() == labels.len() || slacks.is_empty() && lists.is_none();
        if !fits || slacks.iter().any(|x| x.is_nan()) {
            return Err("its \"slacks\" do not match its \"labels\"".into());
        }
        Ok(Self {
            labels,
            clusters: Clusters { dim, centers, weights, energies },
            grown,
            levels: count(&numbers, "levels")?,
            sweeps: count(&numbers, "sweeps")?,
            sample_rows: count(&numbers, "sample_rows")?,
            lists,
            moved: moved.into_iter().map(|moved| moved != 0).collect(),
            slacks,
            rows_seen: count(&numbers, "rows_seen")?,
            seeded_by: text(&numbers, "seeded_by")?,
            timings: timings_of(&numbers)?,
            ..Self::plan(params)
        })
    }
}

impl CenterLists {
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
            && self.reach.iter().chain(&self.drift).chain([&self.far]).all(finite)
    }
}
