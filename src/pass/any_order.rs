//! Passes whose total is bit-identical for any order of merging: every worker has one partial result for the whole pass.

use std::sync::{Mutex, PoisonError};

use super::sweep::{Chunk, Cut, PerRow, Unread, sweep_unread};
use crate::data::DataSource;
use crate::error::Result;
use crate::float::Float;
use crate::parallel::Executor;

/// A partial result that goes back to its home when its worker ends.
struct Lent<'a, P> {
    part: Option<P>,
    home: &'a Mutex<Vec<P>>,
}

impl<P> Drop for Lent<'_, P> {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            self.home.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        }
    }
}

/// Like [`sweep()`](super::sweep()), for a total that is bit-identical for any order of merging. There are at most as many
/// partial results as threads.
#[expect(clippy::too_many_arguments, reason = "all of these define a pass")]
pub(crate) fn gather<T: Float, R: PerRow, P: Send, S>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    cut: impl Into<Cut>,
    state: R,
    total: &mut P,
    (empty, scratch): (impl Fn() -> P + Sync, impl Fn() -> S + Sync),
    absorb: impl Fn(Chunk<'_, T>, R, &mut P, &mut S) -> Result<()> + Sync,
    merge: impl Fn(&mut P, &mut P),
) -> Result<()> {
    let absorb = |mut chunk: Unread<'_, T>, state: R, part: &mut P, scratch: &mut S| {
        absorb(chunk.read()?, state, part, scratch)
    };
    gather_unread(data, cx, cut, state, total, (empty, scratch), absorb, merge)
}

/// Like [`gather`], but `absorb` decides which rows of a chunk to read.
#[expect(clippy::too_many_arguments, reason = "all of these define a pass")]
pub(crate) fn gather_unread<T: Float, R: PerRow, P: Send, S>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    cut: impl Into<Cut>,
    state: R,
    total: &mut P,
    (empty, scratch): (impl Fn() -> P + Sync, impl Fn() -> S + Sync),
    absorb: impl Fn(Unread<'_, T>, R, &mut P, &mut S) -> Result<()> + Sync,
    merge: impl Fn(&mut P, &mut P),
) -> Result<()> {
    let parts = Mutex::new(Vec::new());
    let lend = || {
        let part = parts.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Lent { part: Some(part.unwrap_or_else(&empty)), home: &parts }
    };
    let absorb = |chunk: Unread<'_, T>, state: R, (): &mut (), (lent, scratch): &mut (Lent<'_, P>, S)| {
        let part = lent.part.as_mut().expect("taken only when dropped");
        absorb(chunk, state, part, scratch)
    };
    sweep_unread(data, cx, cut, state, &mut (), (|| (), || (lend(), scratch())), absorb, |(), ()| ())?;
    for part in &mut parts.into_inner().unwrap_or_else(PoisonError::into_inner) {
        cx.check()?;
        merge(total, part);
    }
    Ok(())
}
