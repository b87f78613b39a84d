//! This module knows a fit of Laplacian K-modes on its way: over rows of either type, a step at a time.

use super::affinity::Affinity;
use super::exponent::Exponent;
use super::laplacian::labels;
use super::outside::responsibilities;
use super::params::KModesParams;
#[cfg(feature = "python")]
use super::params::LaplacianKModes;
use super::shares::Shares;
use super::solver::KModesSolver;
#[cfg(feature = "python")]
use super::solver::Snapshot;
use crate::data::{Access, AnySource, DataSource, Normalized, Source};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::kernel::Compute;
use crate::kmeans::{check_same_rows, describe_rows, fingerprint_of, shape};
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::solver::{Run, Step, StopReason};

/// A fit on its way. It does not hold the data.
///
/// See [`KModesParams`] for an example.
pub struct KModesRun {
    typed: Typed,
    normalize: bool,
    n_clusters: usize,
    rows: u64,
    /// By which the rows are known again, once somebody has asked.
    print: Option<u64>,
}

enum Typed {
    F32(Run<KModesSolver<f32>>),
    F64(Run<KModesSolver<f64>>),
}

/// The same expression for either type of run.
macro_rules! either {
    ($typed:expr, $run:ident => $body:expr) => {
        match $typed {
            Typed::F32($run) => $body,
            Typed::F64($run) => $body,
        }
    };
}

/// Runs `f` on rows as the fit sees them.
pub(super) fn seen<T: Float, R>(
    normalize: bool,
    data: &dyn DataSource<T>,
    f: impl FnOnce(&dyn DataSource<T>) -> R,
) -> R {
    if normalize { f(&Normalized::new(data)) } else { f(data) }
}

#[cfg(feature = "python")]
impl LaplacianKModes {
    /// Runs `f` on rows as a fit sees them that normalises them or not.
    pub(crate) fn seen<T: Float, R>(
        normalize: bool,
        data: &dyn DataSource<T>,
        f: impl FnOnce(&dyn DataSource<T>) -> R,
    ) -> R {
        seen(normalize, data, f)
    }
}

impl KModesRun {
    pub(super) fn new<S: Source + ?Sized>(
        params: &KModesParams,
        rows: &S,
        affinity: Option<Affinity>,
    ) -> Result<Self> {
        let n = shape(rows, Access::Random)?.0.unwrap_or_default();
        params.check(n)?;
        if let Some(affinity) = affinity.as_ref().filter(|affinity| affinity.n_rows() as u64 != n) {
            return Err(Error::Shape(format!(
                "the affinity is of {} rows, and there are {n} rows of features",
                affinity.n_rows()
            )));
        }
        let typed = match rows.any() {
            AnySource::F32(_) => Typed::F32(Run::new(KModesSolver::new(params, affinity))),
            AnySource::F64(_) => Typed::F64(Run::new(KModesSolver::new(params, affinity))),
        };
        Ok(Self { typed, normalize: params.normalize, n_clusters: params.n_clusters, rows: n, print: None })
    }

    pub(super) fn resumed<S: Source + ?Sized>(
        params: &KModesParams,
        checkpoint: &Contents,
        rows: &S,
    ) -> Result<Self> {
        let (n, d) = shape(rows, Access::Random)?;
        let n = n.unwrap_or_default();
        params.check(n)?;
        let damaged = |problem: String| Error::Source(format!("the checkpoint: {problem}"));
        let (print, history) = check_same_rows(checkpoint, rows, (Some(n), d))?;
        let typed = match rows.any() {
            AnySource::F32(_) => Typed::F32(Run::resumed(
                KModesSolver::of_checkpoint(params, checkpoint, (n, d)).map_err(damaged)?,
                history,
            )),
            AnySource::F64(_) => Typed::F64(Run::resumed(
                KModesSolver::of_checkpoint(params, checkpoint, (n, d)).map_err(damaged)?,
                history,
            )),
        };
        Ok(Self {
            typed,
            normalize: params.normalize,
            n_clusters: params.n_clusters,
            rows: n,
            print: Some(print),
        })
    }

    /// One more step over the rows that the run was made for; `None` once it is over. Its objective is the energy of the labels.
    ///
    /// # Errors
    /// [`Error::Source`] for rows of another type, [`Error::InvalidParam`] where neighbours have no distances or modes no rows, and those of
    /// the source.
    pub fn advance<S: Source + ?Sized>(&mut self, rows: &S, cx: &Executor) -> Result<Option<Step>> {
        match (&mut self.typed, rows.any()) {
            (Typed::F32(run), AnySource::F32(data)) => {
                seen(self.normalize, data, |data| run.advance(data, cx))
            }
            (Typed::F64(run), AnySource::F64(data)) => {
                seen(self.normalize, data, |data| run.advance(data, cx))
            }
            _ => Err(Error::Source("the run was made for rows of the other floating-point type".into())),
        }
    }

    /// Makes the neighbour graph now, not in the first step: for those who find labels in it to begin with. Does nothing where it is there.
    ///
    /// See [`KModesRun::begin_with`] for an example.
    ///
    /// # Errors
    /// As [`KModesRun::advance`].
    pub fn prepare<S: Source + ?Sized>(&mut self, rows: &S, cx: &Executor) -> Result<()> {
        match (&mut self.typed, rows.any()) {
            (Typed::F32(run), AnySource::F32(data)) => {
                seen(self.normalize, data, |data| run.solver_mut().prepare(data, cx))
            }
            (Typed::F64(run), AnySource::F64(data)) => {
                seen(self.normalize, data, |data| run.solver_mut().prepare(data, cx))
            }
            _ => Err(Error::Source("the run was made for rows of the other floating-point type".into())),
        }
    }

    /// The affinity of the rows; none before it is made.
    pub fn affinity(&self) -> Option<&Affinity> {
        either!(&self.typed, run => run.solver().snapshot().affinity)
    }

    /// Begins with labels instead of seeds: the first modes are the rows of the clusters where their rows are densest, and each iteration goes on from
    /// the responsibilities that the one before ended with. A row without a label gets that of the nearest mode.
    ///
    /// ```
    /// use shoal::kmodes::LaplacianKModes;
    /// use shoal::Executor;
    /// let rows = [[0.0f64, 1.0], [0.1, 1.0], [0.2, 1.0], [1.0, 0.0], [1.0, 0.1], [1.0, 0.2]];
    /// let cx = Executor::new(None).unwrap();
    /// let mut run = LaplacianKModes::params(2).n_neighbors(2).start(&rows, None).unwrap();
    /// run.prepare(&rows, &cx).unwrap();
    /// assert_eq!(run.affinity().unwrap().row(0).0, [1, 2]);
    /// run.begin_with(vec![Some(1), Some(1), None, Some(0), None, Some(0)]).unwrap();
    /// while run.advance(&rows, &cx).unwrap().is_some() {}
    /// assert_eq!(run.labels(), [1, 1, 1, 0, 0, 0]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of labels than of rows; [`Error::InvalidParam`] for a label that is no cluster, for a cluster without rows,
    /// and after the first step.
    pub fn begin_with(&mut self, labels: Vec<Option<u32>>) -> Result<()> {
        self.begin_with_named(labels, ("labels", 0.0))
    }

    /// The same with a name for how they were found, and the seconds that it took.
    pub(crate) fn begin_with_named(&mut self, labels: Vec<Option<u32>>, found: (&str, f64)) -> Result<()> {
        if labels.len() as u64 != self.rows {
            return Err(Error::Shape(format!(
                "there are {} labels to begin with, and {} rows",
                labels.len(),
                self.rows
            )));
        }
        if !self.history().is_empty() {
            return Err(Error::param("labels to begin with must come before the first step"));
        }
        let mut used = vec![false; self.n_clusters];
        for &label in labels.iter().flatten() {
            let Some(used) = used.get_mut(label as usize) else {
                return Err(Error::param(format!(
                    "labels to begin with must be below n_clusters={}, got {label}",
                    self.n_clusters
                )));
            };
            *used = true;
        }
        if let Some(l) = used.iter().position(|used| !used) {
            return Err(Error::param(format!(
                "labels to begin with must name every cluster, and none is {l}"
            )));
        }
        either!(&mut self.typed, run => run.solver_mut().begin_with(labels, found));
        Ok(())
    }

    /// Ends the run after its last step.
    pub fn end(&mut self, reason: StopReason) {
        either!(&mut self.typed, run => run.end(reason));
    }

    /// All steps so far.
    pub fn history(&self) -> &[Step] {
        either!(&self.typed, run => run.history())
    }

    /// The label of every row; empty before the first step.
    pub fn labels(&self) -> &[u32] {
        either!(&self.typed, run => run.solver().snapshot().labels)
    }

    /// The modes, a row each, of rows as the fit sees them; empty before the first step.
    pub fn modes<T: Compute>(&self) -> Vec<T> {
        either!(&self.typed, run => run.solver().snapshot().modes.iter().map(|&x| T::from_f64(Float::to_f64(x))).collect())
    }

    /// The rows that the modes are; none where they are means.
    pub fn mode_rows(&self) -> &[u64] {
        either!(&self.typed, run => run.solver().snapshot().mode_rows)
    }

    /// The labels of rows that were not in the fit, through the modes and their neighbours among the rows of the fit, `fitted`.
    ///
    /// ```
    /// use shoal::{Executor, kmodes::LaplacianKModes};
    /// let rows: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i % 2), f64::from(1 - i % 2) + f64::from(i) * 1e-3]).collect();
    /// let run = LaplacianKModes::params(2).fit(&rows).unwrap();
    /// let cx = Executor::new(None).unwrap();
    /// assert_eq!(run.predict(&[[0.9, 0.1]], &rows, &cx).unwrap(), [run.labels()[1]]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Source`] for rows of the other type, [`Error::Shape`] for other rows than those of the fit, and those of the sources.
    pub fn predict<S: Source + ?Sized, F: Source + ?Sized>(
        &self,
        rows: &S,
        fitted: &F,
        cx: &Executor,
    ) -> Result<Vec<u32>> {
        fn of<T: Exponent>(
            run: &Run<KModesSolver<T>>,
            normalize: bool,
            rows: &dyn DataSource<T>,
            fitted: &dyn DataSource<T>,
            cx: &Executor,
        ) -> Result<Vec<u32>> {
            seen(normalize, rows, |rows| {
                seen(normalize, fitted, |fitted| {
                    let known = run.solver().known(fitted);
                    let z = responsibilities(rows, &known, cx)?;
                    Ok(labels(&Shares::whole_of(known.modes.len() / rows.dim(), z)))
                })
            })
        }
        match (&self.typed, rows.any(), fitted.any()) {
            (Typed::F32(run), AnySource::F32(rows), AnySource::F32(fitted)) => {
                of(run, self.normalize, rows, fitted, cx)
            }
            (Typed::F64(run), AnySource::F64(rows), AnySource::F64(fitted)) => {
                of(run, self.normalize, rows, fitted, cx)
            }
            _ => Err(Error::Source("the run was made for rows of the other floating-point type".into())),
        }
    }

    /// What `f` makes of the state in its own type.
    #[cfg(feature = "python")]
    pub(crate) fn with<R>(
        &self,
        narrow: impl FnOnce(Snapshot<'_, f32>) -> R,
        wide: impl FnOnce(Snapshot<'_, f64>) -> R,
    ) -> R {
        match &self.typed {
            Typed::F32(run) => narrow(run.solver().snapshot()),
            Typed::F64(run) => wide(run.solver().snapshot()),
        }
    }

    /// Looks at some of the rows of the run, so that [`KModesRun::checkpoint`] need not.
    ///
    /// # Errors
    /// Those of the source.
    pub fn know_rows<S: Source + ?Sized>(&mut self, rows: &S) -> Result<()> {
        if self.print.is_none() {
            self.print = Some(fingerprint_of(rows)?);
        }
        Ok(())
    }

    /// All that the next step depends on, but for the rows.
    ///
    /// See [`KModesParams::resume`] for an example.
    ///
    /// # Errors
    /// [`Error::Source`] before the first step, and those of the source.
    pub fn checkpoint<S: Source + ?Sized>(&mut self, rows: &S) -> Result<Contents> {
        if self.history().is_empty() {
            return Err(Error::Source("no step was made yet: there is nothing to keep".into()));
        }
        self.know_rows(rows)?;
        let mut contents = either!(&self.typed, run => run.solver().checkpoint());
        let dim = either!(&self.typed, run => run.solver().snapshot().dim);
        describe_rows(&mut contents, self.history(), (Some(self.rows), dim), rows, self.print);
        Ok(contents)
    }
}
