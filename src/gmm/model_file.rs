//! Saves and loads a fitted Gaussian mixture.

use std::path::Path;

use serde_json::json;

use super::covariance::Covariance;
use super::model::{GaussianMixture, KnownComponents};
use crate::error::{Error, Result};
use crate::fit::{Metric, Timings};
use crate::persist::kept::{Values, count, flag, text};
use crate::persist::model::{ModelFile, model_contents};
use crate::persist::schema::MIXTURE_MODEL;
use crate::persist::{self, Array};

impl GaussianMixture {
    /// Writes the model to a safetensors file, which `shoal.load` of the Python package reads too. An existing file is
    /// replaced atomically.
    ///
    /// ```
    /// use shoal::{GaussianMixture, TruncatedGaussianMixture};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("mixture.safetensors");
    /// let rows = [[0.0f64], [1.0], [8.0], [9.0]];
    /// let model = TruncatedGaussianMixture::params(2).fit(&rows)?;
    /// model.save(&path)?;
    /// let again = GaussianMixture::load(&path)?;
    /// assert_eq!(again.log_densities(&rows)?, model.log_densities(&rows)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if writing fails, and [`Error::Source`] for the model of a run before its first
    /// step. An existing file is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        if self.n_components() == 0 {
            return Err(Error::no_step());
        }
        let shape = [self.n_components(), self.dim];
        let (size, ids) = self.neighbors();
        let mut params = json!({
            "n_components": shape[0],
            "n_active": self.n_active(),
            "n_neighbors": size,
            "covariance_type": self.covariance.name(),
            "metric": self.metric.name(),
        });
        if self.n_factors() > 0 {
            params["n_factors"] = json!(self.n_factors());
        }
        let fitted = json!({
            "n_iter": self.n_iter(),
            "inertia": self.inertia,
            "init": self.seeded_by,
            "timings": self.timings.by_name(),
            "converged": self.converged,
        });
        let mut contents = model_contents(MIXTURE_MODEL, &params, fitted)?;
        let means = match &self.means {
            Values::F32(values) => Array::new(&shape, values)?,
            Values::F64(values) => Array::new(&shape, values)?,
        };
        let mut put = |name: &str, array: Array| contents.arrays.insert(name.into(), array);
        put("cluster_centers", means);
        for (name, values) in [
            ("counts", &self.counts),
            ("variances", &self.variances),
            ("weights", &self.weights),
            ("lower_bounds", &self.bounds),
        ] {
            put(name, Array::new(&[values.len()], values)?);
        }
        if self.n_factors() > 0 {
            put("loadings", Array::new(&[self.loadings.len()], &self.loadings)?);
        }
        let ids: Vec<i32> = ids.iter().map(|id| id.cast_signed()).collect();
        put("neighbors", Array::new(&[shape[0], size], &ids)?);
        persist::write(path, &contents)
    }

    /// Reads a model that [`GaussianMixture::save`] or `TruncatedGaussianMixture` of the Python package wrote.
    ///
    /// See [`GaussianMixture::save`] for an example.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if reading fails. [`Error::Format`](crate::Error::Format), with the file and the
    /// problem, if the file is not a valid mixture.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        ModelFile::load(path.as_ref(), &[MIXTURE_MODEL], Self::of_file)
    }

    fn of_file(file: &ModelFile) -> Result<Self, String> {
        let (means, k, dim) = file.centers("cluster_centers", "n_components")?;
        let covariance: Option<Covariance> = text(&file.params, "covariance_type")?.parse().ok();
        let covariance = covariance.ok_or("has a covariance type that this version does not support")?;
        let (variances, weights) = (file.figures("variances")?, file.figures("weights")?);
        let known = file.contents.arrays.contains_key("loadings");
        let loadings =
            if known || covariance == Covariance::Factor { file.figures("loadings")? } else { Vec::new() };
        if weights.len() != k {
            return Err(format!("has {} weights for {k} components", weights.len()));
        }
        let active = count(&file.params, "n_active")?.clamp(1, k as u64) as usize;
        let &[_, size] = file.contents.array("neighbors")?.shape() else {
            return Err("array \"neighbors\" must be a matrix".into());
        };
        let neighbors: Vec<i32> = file.contents.values("neighbors", &[k, size])?;
        // Negative numbers become large ones, which fail the check below.
        let neighbors = neighbors.into_iter().map(i32::cast_unsigned).collect();
        let bounds = file.figures("lower_bounds")?;
        if bounds.is_empty() || bounds.len() as u64 != file.n_iter()? {
            return Err("must have a lower bound for each of its iterations, and at least one".into());
        }
        let neighbors = Some((neighbors, size));
        let components =
            KnownComponents { means, dim, covariance, variances, weights, loadings, active, neighbors };
        Ok(Self {
            metric: Metric::of_object(&file.params)?,
            counts: file.counts(k)?,
            bounds,
            converged: flag(&file.fitted, "converged")?,
            inertia: file.inertia()?,
            seeded_by: text(&file.fitted, "init")?,
            timings: Timings::of(file.seconds(Timings::PHASES)?),
            ..Self::of_known(components).map_err(|e| e.to_string())?
        })
    }
}
