//! A fit in progress as the contents of a file, and how it is resumed.

use crate::kernel::Compute;
use std::sync::Arc;

use serde_json::{Value, json};

use super::driver::Driver;
use super::history::{history_of, keep_history, stop_reason_of};
use super::method::{FitSolver, Method, SolverState};
use super::run::{Run, access, columns};
use super::{Facts, Metric, Step, StopReason};
use crate::data::{Access, Source, ZeroRows, fingerprint};
use crate::error::{Error, Result};
use crate::float::either;
use crate::persist::kept::{bits, count, flag, keep, list, text};
use crate::persist::{Array, Contents};

/// A number that identifies the rows.
fn fingerprint_of<S: Source + ?Sized>(rows: &S) -> Result<u64> {
    either!(rows.any(), data => fingerprint(data))
}

#[expect(clippy::needless_pass_by_value, reason = "used in map_err")]
fn damaged(problem: String) -> Error {
    Error::Source(format!("the checkpoint: {problem}"))
}

/// The state in a checkpoint, which must be one of `n` rows of `d` columns.
fn solver_of<M: Method, T: Compute>(
    params: &M::Params,
    checkpoint: &Contents,
    (n, d): (Option<u64>, usize),
) -> Result<M::Solver<T>> {
    let solver = <M::Solver<T>>::restore(params, checkpoint).map_err(damaged)?;
    if solver.facts().dim == d && solver.fits(n) {
        Ok(solver)
    } else {
        Err(damaged("its per-row state does not fit the number of rows".into()))
    }
}

/// The metric of a checkpoint, if it names one.
fn metric_of(checkpoint: &Contents) -> Result<Option<Metric>> {
    let about = checkpoint.object("run").map_err(damaged)?;
    about.contains_key("metric").then(|| Metric::of_object(&about)).transpose().map_err(damaged)
}

/// Rows of zeros in a checkpoint: 64 rows to an entry.
const ZERO_PLACES: &str = "zero_row_places";
const ZERO_BITS: &str = "zero_row_bits";

/// The rows of zeros that the run had met.
fn zeros_of(checkpoint: &Contents) -> Result<ZeroRows, String> {
    if !checkpoint.arrays.contains_key(ZERO_PLACES) {
        return Ok(ZeroRows::default());
    }
    let (places, bits): (Vec<u64>, Vec<u64>) = (list(checkpoint, ZERO_PLACES)?, list(checkpoint, ZERO_BITS)?);
    if places.len() == bits.len() {
        Ok(ZeroRows::of_entries(places, bits))
    } else {
        Err(format!("its {ZERO_PLACES:?} and {ZERO_BITS:?} differ in length"))
    }
}

/// The name of a kind of access.
fn name_of(access: Access) -> &'static str {
    match access {
        Access::Once => "once",
        Access::Replay => "replay",
        Access::Random => "random",
    }
}

/// Returns an error if the rows do not match the checkpoint, else their fingerprint and the steps so far.
fn check_same_rows<S: Source + ?Sized>(
    checkpoint: &Contents,
    rows: &S,
    (n, d): (Option<u64>, usize),
) -> Result<KnownRun> {
    let about = checkpoint.object("run").map_err(damaged)?;
    let known = about.get("rows").and_then(Value::as_u64);
    let columns = count(&about, "columns").map_err(damaged)?;
    let wide = rows.any().is_wide();
    let kind = |wide: bool| if wide { "float64" } else { "float32" };
    let was_wide = flag(&about, "wide").map_err(damaged)?;
    let shown = |n: Option<u64>| n.map_or("?".into(), |n| n.to_string());
    if columns != d as u64 || known != n || was_wide != wide {
        return Err(Error::Source(format!(
            "`rows` do not match the checkpoint: the checkpoint is of {} x {columns} values computed as {}, `rows` have {} x {d} computed as {}",
            shown(known),
            kind(was_wide),
            shown(n),
            kind(wide)
        )));
    }
    let (was_read, is_read) = (text(&about, "access").map_err(damaged)?, name_of(access(rows)));
    if was_read != is_read {
        return Err(Error::Source(format!(
            "`rows` do not match the checkpoint: the checkpoint needs {was_read:?} access, `rows` have {is_read:?}: resume with the same kind of source"
        )));
    }
    let print = fingerprint_of(rows)?;
    if bits(&about, "fingerprint").map_err(damaged)? != print {
        return Err(Error::Source(
            "`rows` or `weights` do not match the checkpoint: the values differ".into(),
        ));
    }
    let reason = stop_reason_of(about.get("stop_reason")).map_err(damaged)?;
    let history = history_of(checkpoint, reason).map_err(damaged)?;
    let steps = about.get("steps").and_then(Value::as_u64);
    if steps.map_or(history.is_empty(), |steps| steps != history.len() as u64) {
        return Err(damaged("it does not hold all of its steps".into()));
    }
    let begun = !history.is_empty() || flag(&about, "begun").map_err(damaged)?;
    Ok(KnownRun { print, history, begun })
}

/// The part of a checkpoint that is not the state of its solver.
struct KnownRun {
    /// The fingerprint of the rows.
    print: u64,
    history: Vec<Step>,
    /// Whether it holds the state of a solver; without one, the run begins anew.
    begun: bool,
}

impl<M: Method> Run<M> {
    /// Returns an error if `rows` are not those of a checkpoint.
    #[cfg(feature = "python")]
    pub(crate) fn compare_rows<S: Source + ?Sized>(&mut self, checkpoint: &Contents, rows: &S) -> Result<()> {
        let known = check_same_rows(checkpoint, rows, (self.rows, columns(rows)))?;
        self.fingerprint = Some(known.print);
        Ok(())
    }

    /// Computes the fingerprint of the rows now. [`Run::checkpoint`] then does not read them, so it can be
    /// called during a pass.
    ///
    /// # Errors
    /// Those of the source.
    pub fn know_rows<S: Source>(&mut self, rows: S) -> Result<()> {
        if self.fingerprint.is_none() {
            self.fingerprint = Some(fingerprint_of(&rows)?);
        }
        Ok(())
    }

    /// Returns the state of the run, without the rows. With the same rows and parameters the run can be
    /// resumed, also on another machine. `rows` must be the rows of the run. Some of them are read once for a
    /// fingerprint, so that resuming with other rows is an error.
    ///
    /// Before the first step, the state is that of the initial centers, if they are chosen. Otherwise it holds
    /// nothing but the fingerprint, and the resumed run begins with the seeding.
    ///
    /// See [`KMeansParams::resume_fit`](crate::kmeans::KMeansParams::resume_fit) for an example.
    ///
    /// # Errors
    /// Those of the source.
    pub fn checkpoint<S: Source>(&mut self, rows: S) -> Result<Contents> {
        self.know_rows(&rows)?;
        let (mut contents, begun, Facts { metric, .. }) = either!(
            &self.typed,
            driver => (driver.solver().checkpoint(), driver.solver().has_begun(), driver.solver().facts())
        );
        let history = self.history();
        if !begun && history.is_empty() {
            contents = Contents::new(&contents.kind);
        }
        keep_history(&mut contents, history);
        let about = json!({
            "rows": self.rows,
            "columns": columns(&rows),
            "metric": metric.name(),
            "begun": begun,
            "steps": history.len(),
            "wide": rows.any().is_wide(),
            "access": name_of(access(&rows)),
            "fingerprint": self.fingerprint,
            "stop_reason": history.last().and_then(|last| last.stop_reason).map(StopReason::name),
        });
        contents.meta.insert("run".into(), about.to_string());
        let (places, bits) = self.zeros.entries();
        if !places.is_empty() {
            keep(&mut contents, ZERO_PLACES, Array::new(&[places.len()], &places));
            keep(&mut contents, ZERO_BITS, Array::new(&[bits.len()], &bits));
        }
        Ok(contents)
    }

    /// A run that continues from a checkpoint over `rows`.
    pub(crate) fn resumed<S: Source + ?Sized>(
        params: &M::Params,
        checkpoint: &Contents,
        rows: &S,
    ) -> Result<Self> {
        let known = metric_of(checkpoint)?;
        let settled = M::settled(params, rows.any(), known)?;
        let params = settled.as_ref().unwrap_or(params);
        let (new, columns) = Self::checked(params, rows)?;
        let shape = (new.rows, columns);
        let KnownRun { print, history, begun } = check_same_rows(checkpoint, rows, shape)?;
        known.map_or(Ok(()), |known| known.must_be(new.metric())).map_err(damaged)?;
        if !begun {
            let kind = either!(&new.typed, driver => driver.solver().checkpoint().kind);
            checkpoint.must_be(&kind).map_err(damaged)?;
            return Ok(Self { fingerprint: Some(print), ..new });
        }
        let typed = either!(
            rows.any(),
            _ => Typed(Driver::resumed(solver_of::<M, _>(params, checkpoint, shape)?, history))
        );
        let mut run = Self::of(typed, (shape.0, Some(shape.1)), Some(print), new.threads);
        run.zeros = Arc::new(zeros_of(checkpoint).map_err(damaged)?);
        Ok(run)
    }
}
