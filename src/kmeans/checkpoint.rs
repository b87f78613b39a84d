//! This module knows a fit on its way, of any k-means method, as the contents of a file, and how it goes on from there.

use serde_json::{Value, json};

use super::run::{CenterSolver, FitRun, Method, Typed, access};
use super::state::{count, flag, history_of, keep_history, text};
use crate::data::{Access, AnySource, Source, fingerprint};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::persist::Contents;
use crate::solver::{Run, Step, StopReason};

/// A number for the rows, by which they are known again.
pub(crate) fn fingerprint_of<S: Source + ?Sized>(rows: &S) -> Result<u64> {
    match rows.any() {
        AnySource::F32(data) => fingerprint(data),
        AnySource::F64(data) => fingerprint(data),
    }
}

/// The state that was kept, which must be one of `n` rows of `d` columns.
fn solver_of<M: Method, T: Compute>(
    params: &M::Params,
    checkpoint: &Contents,
    (n, d): (Option<u64>, usize),
) -> Result<M::Solver<T>, String> {
    let solver = M::of_checkpoint::<T>(params, checkpoint)?;
    if solver.snapshot().dim == d && solver.fits(n) {
        Ok(solver)
    } else {
        Err("what it holds of its rows does not fit to their number".into())
    }
}

/// The name of a way to read rows.
fn name_of(access: Access) -> &'static str {
    match access {
        Access::Once => "once",
        Access::Replay => "replay",
        Access::Random => "random",
    }
}

/// Keeps the steps so far, and what rows, `n` of `dim` columns, are known again by.
pub(crate) fn describe_rows<S: Source + ?Sized>(
    contents: &mut Contents,
    history: &[Step],
    (n, dim): (Option<u64>, usize),
    rows: &S,
    print: Option<u64>,
) {
    keep_history(contents, history);
    let about = json!({
        "rows": n,
        "columns": dim,
        "wide": matches!(rows.any(), AnySource::F64(_)),
        "access": name_of(access(rows)),
        "fingerprint": print,
        "stop_reason": history.last().and_then(|last| last.stop_reason).map(StopReason::name),
    });
    contents.meta.insert("run".into(), about.to_string());
}

/// Refuses rows that are not those of a checkpoint; gives what they are known by, and the steps so far.
pub(crate) fn check_same_rows<S: Source + ?Sized>(
    checkpoint: &Contents,
    rows: &S,
    (n, d): (Option<u64>, usize),
) -> Result<(u64, Vec<Step>)> {
    let damaged = |problem: String| Error::Source(format!("the checkpoint: {problem}"));
    let about = checkpoint.object("run").map_err(damaged)?;
    let known = about.get("rows").and_then(Value::as_u64);
    let columns = count(&about, "columns").map_err(damaged)?;
    let wide = matches!(rows.any(), AnySource::F64(_));
    let kind = |wide: bool| if wide { "float64" } else { "float32" };
    let was_wide = flag(&about, "wide").map_err(damaged)?;
    let shown = |n: Option<u64>| n.map_or("?".into(), |n| n.to_string());
    if columns != d as u64 || known != n || was_wide != wide {
        return Err(Error::Source(format!(
            "the checkpoint is of other rows: of {} x {columns} computed as {}, and X has {} x {d} computed as {}",
            shown(known),
            kind(was_wide),
            shown(n),
            kind(wide)
        )));
    }
    let (was_read, is_read) = (text(&about, "access").map_err(damaged)?, name_of(access(rows)));
    if was_read != is_read {
        return Err(Error::Source(format!(
            "the checkpoint is of rows with access {was_read:?}, and X has {is_read:?}: go on with the same kind of source"
        )));
    }
    let print = fingerprint_of(rows)?;
    if count(&about, "fingerprint").map_err(damaged)? != print {
        return Err(Error::Source(
            "the checkpoint is of other rows: their values, or sample_weight, differ from those of X".into(),
        ));
    }
    let reason = about.get("stop_reason").and_then(Value::as_str).and_then(StopReason::named);
    let history = history_of(checkpoint, reason).map_err(damaged)?;
    if history.is_empty() {
        return Err(damaged("it holds no step".into()));
    }
    Ok((print, history))
}

impl<M: Method> FitRun<M> {
    /// Looks at some of the rows of the run, so that [`FitRun::checkpoint`] need not, which may come in the midst of a pass over them.
    ///
    /// # Errors
    /// Those of the source.
    pub fn know_rows<S: Source + ?Sized>(&mut self, rows: &S) -> Result<()> {
        if self.print.is_none() {
            self.print = Some(fingerprint_of(rows)?);
        }
        Ok(())
    }

    /// All that the next step depends on, but for the rows: with the same rows and parameters the run can be gone on with, here or
    /// elsewhere. `rows` are those of the run; some of them are looked at once, so that others are refused later.
    ///
    /// See [`KMeansParams::resume_fit`](super::KMeansParams::resume_fit) for an example.
    ///
    /// # Errors
    /// [`Error::Source`] before the first step, and those of the source.
    pub fn checkpoint<S: Source + ?Sized>(&mut self, rows: &S) -> Result<Contents> {
        if self.history().is_empty() {
            return Err(Error::Source("no step was made yet: there is nothing to keep".into()));
        }
        self.know_rows(rows)?;
        let (mut contents, dim) = match &self.typed {
            Typed::F32(run) => (run.solver().checkpoint(), run.solver().snapshot().dim),
            Typed::F64(run) => (run.solver().checkpoint(), run.solver().snapshot().dim),
        };
        describe_rows(&mut contents, self.history(), (self.rows, dim), rows, self.print);
        Ok(contents)
    }

    /// A run that goes on from a checkpoint over `rows` of that shape; its parameters were checked.
    pub(crate) fn resumed<S: Source + ?Sized>(
        params: &M::Params,
        checkpoint: &Contents,
        rows: &S,
        (n, d): (Option<u64>, usize),
    ) -> Result<Self> {
        let damaged = |problem: String| Error::Source(format!("the checkpoint: {problem}"));
        let (print, history) = check_same_rows(checkpoint, rows, (n, d))?;
        let typed = if matches!(rows.any(), AnySource::F64(_)) {
            Typed::F64(Run::resumed(
                solver_of::<M, f64>(params, checkpoint, (n, d)).map_err(damaged)?,
                history,
            ))
        } else {
            Typed::F32(Run::resumed(
                solver_of::<M, f32>(params, checkpoint, (n, d)).map_err(damaged)?,
                history,
            ))
        };
        Ok(Self { typed, rows: n, print: Some(print) })
    }
}
