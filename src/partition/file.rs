//! Saves and loads a partition.

use std::path::Path;

use serde_json::json;

use super::{Cells, Partition};
use crate::centers::KMeansModel;
use crate::error::Result;
use crate::fit::{Metric, Timings};
use crate::float::{Typed, either};
use crate::kernel::Compute;
use crate::persist::kept::Values;
use crate::persist::model::{CELL_IDS, ModelFile, model_contents};
use crate::persist::schema::HIERARCHICAL_MODEL;
use crate::persist::{self, Array};

impl Partition {
    /// Writes the partition to a safetensors file, which `shoal.load` of the Python package reads as a
    /// `HierarchicalKMeans`. An existing file is replaced atomically.
    ///
    /// ```
    /// use shoal::partition::Partition;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("partition.safetensors");
    /// let model = shoal::KMeans::params(2).fit(&[[0.0f64], [4.0]])?;
    /// let partition = Partition::from_model(&model)?;
    /// partition.save(&path)?;
    /// assert_eq!(Partition::load(&path)?, partition);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if writing fails. An existing file is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        either!(&self.cells, cells => cells.save(path.as_ref()))
    }

    /// Reads a partition that [`Partition::save`] wrote, or a `HierarchicalKMeans` of the Python package.
    ///
    /// See [`Partition::save`] for an example.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if reading fails. [`Error::Format`](crate::Error::Format), with the file and the
    /// problem, if the file is not a valid partition. As [`Partition::from_model`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let known = ModelFile::load(path, &[HIERARCHICAL_MODEL], |file| {
            if !file.contents.arrays.contains_key(CELL_IDS) {
                return Ok(None);
            }
            let (centers, k, dim) = file.centers("cluster_centers", "n_clusters")?;
            let cells = match centers {
                Values::F32(centers) => Typed::F32(Cells::of_file(file, centers, k, dim)?),
                Values::F64(centers) => Typed::F64(Cells::of_file(file, centers, k, dim)?),
            };
            Ok(Some(Self { cells, threads: None }))
        })?;
        match known {
            Some(partition) => Ok(partition),
            None => Self::from_model(&KMeansModel::load(path)?),
        }
    }
}

impl<T: Compute> Cells<T> {
    fn save(&self, path: &Path) -> Result<()> {
        let shape = [self.ids.len(), self.dim];
        let params = json!({ "n_clusters": shape[0], "metric": self.metric.name() });
        let inertia = Some(self.inertia).filter(|inertia| inertia.is_finite());
        let fitted = json!({
            "n_iter": 0,
            "inertia": inertia,
            "init": "partition",
            "timings": Timings::default().by_name(),
            "sample_rows": 0,
        });
        let mut contents = model_contents(HIERARCHICAL_MODEL, &params, fitted)?;
        let sizes: Vec<f64> = self.sizes.iter().map(|&size| size as f64).collect();
        let mut put = |name: &str, array: Array| contents.arrays.insert(name.into(), array);
        put("cluster_centers", Values::of(&self.centers).array(self.dim)?);
        put("counts", Array::new(&shape[..1], &sizes)?);
        put(CELL_IDS, Array::new(&shape[..1], &self.signed_ids())?);
        put("cell_shifts", Array::new(&shape, &self.shifts)?);
        put("cell_counts", Array::new(&[2], &[self.next_id.cast_signed(), self.target.cast_signed()])?);
        put("cell_inertia", Array::new(&[2], &[self.inertia, self.inertia_at_fit])?);
        persist::write(path, &contents)
    }

    /// The ids as NumPy users like them: signed integers do not turn to floats in sums with others.
    pub(crate) fn signed_ids(&self) -> Vec<i64> {
        self.ids.iter().map(|id| id.cast_signed()).collect()
    }

    fn of_file(file: &ModelFile, centers: Vec<T>, k: usize, dim: usize) -> Result<Self, String> {
        let contents = &file.contents;
        let [next_id, target]: [i64; 2] =
            contents.values("cell_counts", &[2])?.try_into().map_err(|_| "has no counts")?;
        let [inertia, inertia_at_fit]: [f64; 2] =
            contents.values("cell_inertia", &[2])?.try_into().map_err(|_| "has no inertia")?;
        Self {
            dim,
            metric: Metric::of_object(&file.params)?,
            target: target.cast_unsigned(),
            ids: contents.values::<i64>(CELL_IDS, &[k])?.into_iter().map(i64::cast_unsigned).collect(),
            next_id: next_id.cast_unsigned(),
            centers,
            sizes: file.counts(k)?.into_iter().map(|size| size as u64).collect(),
            shifts: contents.values("cell_shifts", &[k, dim])?,
            inertia,
            inertia_at_fit,
        }
        .checked()
    }

    /// The cells, or what is wrong with them.
    pub(crate) fn checked(self) -> Result<Self, String> {
        let most = i64::MAX as u64;
        if !self.ids.is_sorted_by(|a, b| a < b) || self.ids.last().is_some_and(|&last| last >= self.next_id) {
            return Err("its ids of cells do not ascend".into());
        }
        if self.next_id > most || self.target == 0 || self.target > most / 4 {
            return Err(format!("has a target of {} rows and a next id of {}", self.target, self.next_id));
        }
        if self.sizes.iter().any(|&size| size > most >> 20) || !self.shifts.iter().all(|x| x.is_finite()) {
            return Err("its cells have sizes or shifts that are not possible".into());
        }
        Ok(self)
    }
}
