//! What runs of Laplacian K-modes can do in addition: begin with a graph or with labels, and show modes.

use super::affinity::Affinity;
use super::params::{KModesParams, LaplacianKModes};
use crate::data::Source;
use crate::error::{Error, Result};
use crate::fit::{Run, either, over_rows};
use crate::float::Float;
use crate::kernel::Compute;
use crate::parallel::Executor;

/// A Laplacian K-modes fit in progress. It does not hold the data.
///
/// See [`KModesParams`] for an example.
pub type KModesRun = Run<LaplacianKModes>;

impl KModesParams {
    /// A run over `rows` with a given affinity instead of a neighbor graph.
    ///
    /// ```
    /// use shoal::kmodes::{Affinity, LaplacianKModes};
    /// let rows = [[0.0f64, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]];
    /// // Rows 0 and 1 are neighbors, and rows 2 and 3.
    /// let affinity = Affinity::symmetrized(&[0, 1, 2, 3, 4], &[1, 0, 3, 2], &[1.0; 4]).unwrap();
    /// let params = LaplacianKModes::params(2).n_neighbors(1);
    /// let mut run = params.start_with(&rows, affinity).unwrap();
    /// while run.advance(&rows).unwrap().is_some() {}
    /// assert_eq!(run.labels()[0], run.labels()[1]);
    /// ```
    ///
    /// # Errors
    /// As [`KModesParams::start`], and [`Error::Shape`] if the affinity has another number of rows.
    pub fn start_with<S: Source>(&self, rows: S, affinity: Affinity) -> Result<KModesRun> {
        let mut run = self.start(&rows)?;
        if Some(affinity.n_rows() as u64) != run.n_rows() {
            return Err(Error::Shape(format!(
                "the affinity must have as many rows as the data, {}, got {}",
                run.n_rows().unwrap_or_default(),
                affinity.n_rows()
            )));
        }
        either!(run.solver_mut(), solver => solver.take_affinity(affinity));
        Ok(run)
    }
}

impl KModesRun {
    /// Builds the neighbor graph now instead of in the first step, for callers that cluster it to find the
    /// first labels. Does nothing if the graph exists.
    ///
    /// See [`KModesRun::begin_with`] for an example.
    ///
    /// # Errors
    /// As [`Run::advance`](crate::fit::Run::advance).
    pub fn prepare<S: Source>(&mut self, rows: S) -> Result<()> {
        let threads = either!(self.solver(), solver => solver.params.threads);
        self.prepare_on(rows, &Executor::of_call(threads)?)
    }

    /// As [`KModesRun::prepare`], on the threads of `cx`.
    ///
    /// # Errors
    /// As [`KModesRun::prepare`]; [`Error::Interrupted`].
    pub fn prepare_on<S: Source>(&mut self, rows: S, cx: &Executor) -> Result<()> {
        over_rows!(&mut self.typed, rows, (self.rows, &self.zeros), |driver, data| {
            driver.note_shape(data)?;
            driver.solver_mut().prepare(data, cx)
        })
    }

    /// The affinity of the rows; `None` before it is built.
    pub fn affinity(&self) -> Option<&Affinity> {
        either!(self.solver(), solver => solver.affinity.as_deref())
    }

    /// Starts from labels instead of seeds. The first modes are the densest rows of the clusters, and each
    /// iteration continues from the responsibilities of the previous one. A row without a label gets the
    /// label of the nearest mode.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// let rows = [[0.0f64, 1.0], [0.1, 1.0], [0.2, 1.0], [1.0, 0.0], [1.0, 0.1], [1.0, 0.2]];
    /// let mut run = LaplacianKModes::params(2).n_neighbors(2).start(&rows).unwrap();
    /// run.prepare(&rows).unwrap();
    /// assert_eq!(run.affinity().unwrap().row(0).0, [1, 2]);
    /// run.begin_with(vec![Some(1), Some(1), None, Some(0), None, Some(0)]).unwrap();
    /// while run.advance(&rows).unwrap().is_some() {}
    /// assert_eq!(run.labels(), [1, 1, 1, 0, 0, 0]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of labels differs from the number of rows. [`Error::InvalidParam`] if a
    /// label is not a cluster, if a cluster has no rows, or after the first step.
    pub fn begin_with(&mut self, labels: Vec<Option<u32>>) -> Result<()> {
        self.begin_with_named(labels, ("labels", 0.0))
    }

    /// Like `begin_with`, with the name of the method that found the labels, and the seconds it took.
    pub(crate) fn begin_with_named(&mut self, labels: Vec<Option<u32>>, found: (&str, f64)) -> Result<()> {
        let n = self.n_rows().unwrap_or_default();
        if labels.len() as u64 != n {
            return Err(Error::Shape(format!(
                "labels must have one entry for each of the {n} rows, got {}",
                labels.len()
            )));
        }
        if !self.history().is_empty() {
            return Err(Error::param("labels", "given before the first step", "labels after it"));
        }
        let n_clusters = either!(self.solver(), solver => solver.params.n_clusters);
        let mut used = vec![false; n_clusters];
        for &label in labels.iter().flatten() {
            let Some(used) = used.get_mut(label as usize) else {
                return Err(Error::param("labels", format!("below n_clusters, {n_clusters}"), label));
            };
            *used = true;
        }
        if let Some(l) = used.iter().position(|used| !used) {
            return Err(Error::param("labels", "such that every cluster has a row", format!("no label {l}")));
        }
        either!(self.solver_mut(), solver => solver.begin_with(labels, found));
        Ok(())
    }

    /// The label of every row; empty before the first step.
    pub fn labels(&self) -> &[u32] {
        either!(self.solver(), solver => &solver.labels)
    }

    /// The modes, one per row, of rows as the fit sees them; empty before the first step.
    pub fn modes<T: Compute>(&self) -> Vec<T> {
        either!(self.solver(), solver => solver.modes.iter().map(|&x| T::from_f64(Float::to_f64(x))).collect())
    }

    /// The row numbers of the modes; empty if the modes are means.
    pub fn mode_rows(&self) -> &[u64] {
        either!(self.solver(), solver => &solver.mode_rows)
    }
}
