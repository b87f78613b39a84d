//! Saves and loads a fitted Laplacian K-modes model.

use crate::kernel::Compute;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::affinity::Affinity;
use super::model::{Fitted, KModesModel, PRECOMPUTED};
use super::outside::NeighborWeight;
use super::params::ModeUpdate;
use super::shares::Shares;
use super::state::RESTS;
use crate::error::{Error, Result};
use crate::fit::{Typed, either};
use crate::persist::kept::{Values, count, flag, rows, stored_rows, text};
use crate::persist::model::{ModelFile, measured, model_contents};
use crate::persist::schema::KMODES_MODEL;
use crate::persist::{self, Array, Number};

/// The names of the phases.
const PHASES: [&str; 3] = ["graph", "seeding", "iterations"];

impl KModesModel {
    /// Writes the model with its labels and affinity, but without the rows of the fit, to a safetensors file. An
    /// existing file is replaced atomically. `shoal.load` of the Python package reads the file too, but cannot predict
    /// without the rows.
    ///
    /// ```
    /// use shoal::kmodes::{KModesModel, LaplacianKModes};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("modes.safetensors");
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 7), f64::from(i % 11)]).collect();
    /// let model = LaplacianKModes::params(3).fit(&rows)?;
    /// model.save(&path)?;
    /// let again = KModesModel::load(&path)?;
    /// assert_eq!(again.predict(&[[2.0, 3.0]], &rows)?, model.predict(&[[2.0, 3.0]], &rows)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if writing fails, and [`Error::Source`] for the model of a run before its first
    /// step. An existing file is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        if self.n_clusters() == 0 {
            return Err(Error::no_step());
        }
        let by_product = !self.mode_rows.is_empty();
        let affinity = match self.pull {
            _ if self.graph_method == PRECOMPUTED => PRECOMPUTED,
            NeighborWeight::Kernel => "gaussian",
            NeighborWeight::Each(_) => "knn",
        };
        let mode_update = if by_product { ModeUpdate::ByProduct } else { ModeUpdate::MeanShift };
        let params = json!({
            "n_clusters": self.n_clusters(),
            "n_neighbors": self.n_neighbors,
            "normalize": self.normalize,
            "affinity": affinity,
            "mode_update": mode_update.name(),
        });
        let [graph, seeding, iterations] = self.timings;
        let fitted = json!({
            "n_iter": self.n_iter,
            "bandwidth": self.bandwidth,
            "laplacian_weight": self.lambda,
            "collapsed": self.collapsed,
            "shifted": self.shifted,
            "graph_method": self.graph_method,
            "graph_recall": self.graph_recall,
            "timings": { PHASES[0]: graph, PHASES[1]: seeding, PHASES[2]: iterations },
            "init": self.seeded_by,
        });
        let mut contents = model_contents(KMODES_MODEL, &params, fitted)?;
        let mut put = |name: &str, array: Result<Array>| -> Result<()> {
            contents.arrays.insert(name.into(), array?);
            Ok(())
        };
        put("labels", listed(self.labels.iter().map(|label| label.cast_signed())))?;
        if by_product {
            put("mode_indices", listed(self.mode_rows.iter().map(|row| row.cast_signed())))?;
        }
        either!(&self.typed, fitted => {
            put("modes", stored_rows(&fitted.modes, self.dim.max(1)))?;
            let (kept, clusters) = fitted.responsibilities.kept();
            put("responsibilities", stored_rows(&kept, (kept.len() / self.labels.len().max(1)).max(1)))?;
            if !fitted.responsibilities.is_whole() {
                put("responsibilities_clusters", listed(clusters.iter().map(|l| l.cast_signed())))?;
                // Not in files of Python, which recomputes the rest from the stored responsibilities.
                put(RESTS, stored_rows(&fitted.responsibilities.rests(), 1))?;
            }
        });
        let (starts, columns, weights) =
            self.affinity.as_ref().map_or((&[0][..], &[][..], &[][..]), |affinity| affinity.parts());
        put("affinity_starts", listed(starts.iter().map(|&start| start as i64)))?;
        put("affinity_columns", listed(columns.iter().map(|column| column.cast_signed())))?;
        put("affinity_weights", Array::new(&[weights.len()], weights))?;
        put("energies", Array::new(&[self.energies.len()], &self.energies))?;
        put("watched", listed(self.relaxed.iter().flatten().copied()))?;
        put("loops", listed(self.relaxed.iter().map(|values| values.len() as i64)))?;
        persist::write(path, &contents)
    }

    /// Reads a model that [`KModesModel::save`] or `LaplacianKModes` of the Python package wrote. Rows of the fit in
    /// the file are ignored.
    ///
    /// See [`KModesModel::save`] for an example.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if reading fails. [`Error::Format`](crate::Error::Format), with the file and the
    /// problem, if the file is not a valid model.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        ModelFile::load(path.as_ref(), &[KMODES_MODEL], Self::of_file)
    }

    fn of_file(file: &ModelFile) -> Result<Self, String> {
        let ModelFile { contents, params, fitted } = file;
        let (modes, k, dim) = file.centers("modes", "n_clusters")?;
        let &[n, top] = contents.array("responsibilities")?.shape() else {
            return Err("array \"responsibilities\" must be a matrix".into());
        };
        let typed = match modes {
            Values::F32(modes) => Typed::F32(fitted_of(file, modes, (k, n, top))?),
            Values::F64(modes) => Typed::F64(fitted_of(file, modes, (k, n, top))?),
        };
        let labels: Vec<i32> = contents.values("labels", &[n])?;
        let labels: Vec<u32> = labels.into_iter().map(i32::cast_unsigned).collect();
        let mode_update: Option<ModeUpdate> = text(params, "mode_update")?.parse().ok();
        let mode_rows: Vec<i64> = match mode_update.ok_or("has an unknown \"mode_update\"")? {
            ModeUpdate::ByProduct => contents.values("mode_indices", &[k])?,
            ModeUpdate::MeanShift => Vec::new(),
        };
        let mode_rows: Vec<u64> = mode_rows.into_iter().map(i64::cast_unsigned).collect();
        if labels.iter().any(|&label| label as usize >= k) || mode_rows.iter().any(|&row| row >= n as u64) {
            return Err("has a label or a row of a mode that is out of range".into());
        }
        let affinity = affinity_of(file, n)?;
        // Python stores what a fit chose in addition to the parameter.
        let of = |name| if fitted.contains_key(name) { fitted } else { params };
        let n_neighbors = count(of("n_neighbors"), "n_neighbors")?.clamp(1, n as u64) as usize;
        let pull = match &*text(params, "affinity")? {
            "gaussian" => NeighborWeight::Kernel,
            "knn" | PRECOMPUTED => NeighborWeight::mean(affinity.sums().1, n, n_neighbors),
            other => return Err(format!("has an affinity that this version does not support: {other:?}")),
        };
        let bandwidth = measured(fitted, "bandwidth")?;
        if !(bandwidth * bandwidth).is_normal() {
            return Err(format!("must have a bandwidth whose square is a number above 0, got {bandwidth:?}"));
        }
        Ok(Self {
            typed,
            dim,
            mode_rows,
            labels,
            energies: file.figures("energies")?,
            relaxed: relaxed_of(file)?,
            n_iter: file.n_iter()?,
            normalize: flag(of("normalize"), "normalize")?,
            n_neighbors,
            affinity: Some(Arc::new(affinity)),
            pull,
            bandwidth,
            lambda: measured(fitted, "laplacian_weight")?,
            graph_method: text(fitted, "graph_method")?,
            graph_recall: measured(fitted, "graph_recall")?,
            collapsed: flag(fitted, "collapsed")?,
            shifted: flag(fitted, "shifted")?,
            seeded_by: text(fitted, "init")?,
            timings: file.seconds(PHASES)?,
            threads: None,
        })
    }
}

/// Values as an array of one dimension.
fn listed<E: Number>(values: impl Iterator<Item = E>) -> Result<Array> {
    let values: Vec<E> = values.collect();
    Array::new(&[values.len()], &values)
}

/// The modes with the responsibilities of `n` rows for `k` clusters, of which `top` are stored for each row.
fn fitted_of<T: Compute>(
    file: &ModelFile,
    modes: Vec<T>,
    (k, n, top): (usize, usize, usize),
) -> Result<Fitted<T>, String> {
    let kept: Vec<T> = rows(&file.contents, "responsibilities", top)?;
    let whole = !file.contents.arrays.contains_key("responsibilities_clusters");
    let clusters: Vec<u32> = if whole {
        Vec::new()
    } else {
        let clusters: Vec<i32> = file.contents.values("responsibilities_clusters", &[kept.len()])?;
        clusters.into_iter().map(i32::cast_unsigned).collect()
    };
    let some = !whole && file.contents.arrays.contains_key(RESTS);
    let rests: Vec<T> = if some { rows(&file.contents, RESTS, 1)? } else { Vec::new() };
    let sound = n > 0
        && (if whole { top == k } else { (1..k).contains(&top) })
        && kept.iter().chain(&rests).all(|z| z.finite() && *z >= T::ZERO)
        && clusters.chunks(top.max(1)).all(|of_row| of_row.is_sorted_by(|a, b| a < b));
    let shares = Shares::of_kept(k, kept, clusters, n).filter(|_| sound);
    let shares = if some { shares.and_then(|shares| shares.with_rests(&rests)) } else { shares };
    let responsibilities = shares.ok_or("its responsibilities do not fit together")?;
    Ok(Fitted { modes, responsibilities })
}

/// The affinity of `n` rows.
fn affinity_of(file: &ModelFile, n: usize) -> Result<Affinity, String> {
    let starts: Vec<i64> = file.contents.values("affinity_starts", &[n + 1])?;
    let weights = file.figures("affinity_weights")?;
    let columns: Vec<i32> = file.contents.values("affinity_columns", &[weights.len()])?;
    // Negative numbers become large ones, which fail the check below.
    let starts = starts.into_iter().map(|start| usize::try_from(start).unwrap_or(usize::MAX)).collect();
    Affinity::of_parts(starts, columns.into_iter().map(i32::cast_unsigned).collect(), weights).checked(n)
}

/// The objective of each inner loop after each of its updates.
fn relaxed_of(file: &ModelFile) -> Result<Vec<Vec<f64>>, String> {
    let watched = file.figures("watched")?;
    let &[loops] = file.contents.array("loops")?.shape() else {
        return Err("array \"loops\" must be a list".into());
    };
    let mut left = &watched[..];
    let mut relaxed = Vec::new();
    for length in file.contents.values::<i64>("loops", &[loops])? {
        let parts = usize::try_from(length).ok().and_then(|length| left.split_at_checked(length));
        let (values, others) = parts.ok_or("its energies do not fit together")?;
        relaxed.push(values.to_vec());
        left = others;
    }
    if left.is_empty() { Ok(relaxed) } else { Err("its energies do not fit together".into()) }
}
