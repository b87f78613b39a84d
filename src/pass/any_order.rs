//! Passes whose total is bit-identical for any order of merging: every worker has one partial result for the whole
//! pass.

use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::sweep::{Absorb, Cut, PerRow, Unread, sweep};
use crate::data::{DataSource, row_values};
use crate::error::Result;
use crate::float::Float;
use crate::parallel::Executor;

/// Partial results that are merged between two checks for an interrupt.
const MERGED: usize = 8;

/// About how many multiplications a pass makes for each value of a row, at least.
const VALUE_WORK: usize = 16;

/// Partial results that workers borrow and give back.
pub(crate) struct Pool<P>(Mutex<Vec<P>>);

/// A partial result that goes back to its pool when it is dropped.
pub(crate) struct Loan<'a, P> {
    part: Option<P>,
    pool: &'a Pool<P>,
}

impl<P> Default for Pool<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P> Clone for Pool<P> {
    /// An empty pool.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<P> Debug for Pool<P> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} partial results", self.kept().len())
    }
}

impl<P> Pool<P> {
    /// A partial result of the pool, or a new one.
    pub(crate) fn lend(&self, empty: impl Fn() -> P) -> Loan<'_, P> {
        let kept = self.kept().pop();
        Loan { part: Some(kept.unwrap_or_else(empty)), pool: self }
    }

    /// Merges the partial results that are not lent into `total`, a few at a time.
    pub(crate) fn merge(&self, total: &mut P, merge: impl Fn(&mut P, &mut [P]), cx: &Executor) -> Result<()> {
        for parts in self.kept().chunks_mut(MERGED) {
            cx.check()?;
            merge(total, parts);
        }
        Ok(())
    }

    /// The partial results that are not lent.
    pub(crate) fn kept(&self) -> MutexGuard<'_, Vec<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P> Deref for Loan<'_, P> {
    type Target = P;

    fn deref(&self) -> &P {
        self.part.as_ref().expect("taken only when dropped")
    }
}

impl<P> DerefMut for Loan<'_, P> {
    fn deref_mut(&mut self) -> &mut P {
        self.part.as_mut().expect("taken only when dropped")
    }
}

impl<P> Drop for Loan<'_, P> {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            self.pool.kept().push(part);
        }
    }
}

/// Like [`sweep()`](super::sweep()), for a total that is bit-identical for any order of merging. There are at most as
/// many partial results as threads. `merge` adds all of them to the total.
pub(crate) fn gather<T: Float, R: PerRow, P: Send, S, C>(
    data: &dyn DataSource<T>,
    cx: &Executor,
    state: R,
    total: &mut P,
    (empty, scratch): (impl Fn() -> P + Sync, impl Fn() -> S + Sync),
    absorb: impl Absorb<T, R, P, S, C>,
    merge: impl Fn(&mut P, &mut [P]),
) -> Result<()> {
    let (parts, absorb) = (Pool::default(), absorb.of_unread());
    let absorb = |chunk: Unread<'_, T>, state: R, (): &mut (), (part, scratch): &mut (Loan<'_, P>, S)| {
        absorb(chunk, state, part, scratch)
    };
    let make = (|| (), || (parts.lend(&empty), scratch()));
    let cut = Cut::for_threads(data.rows(), VALUE_WORK * row_values(data), cx);
    sweep(data, cx, cut, state, &mut (), make, absorb, |(), ()| ())?;
    parts.merge(total, merge, cx)
}

#[cfg(test)]
mod tests {
    use super::super::TILE_ROWS;
    use super::*;

    #[test]
    fn partial_results_serve_the_next_pass() {
        let (rows, cx) = (vec![[1.0f64]; 3 * TILE_ROWS], Executor::new(Some(2)).unwrap());
        let (parts, made) = (Pool::default(), Mutex::new(0));
        let mut total = 0;
        for pass in 1..4 {
            let empty = || {
                *made.lock().unwrap() += 1;
                0
            };
            let absorb = |mut chunk: Unread<'_, f64>, (): (), (): &mut (), part: &mut Loan<'_, usize>| {
                **part += chunk.read()?.rows.rows();
                Ok(())
            };
            let make = (|| (), || parts.lend(empty));
            sweep(&rows, &cx, TILE_ROWS, (), &mut (), make, absorb, |(), ()| ()).unwrap();
            let merge = |total: &mut usize, parts: &mut [usize]| {
                *total += parts.iter_mut().map(std::mem::take).sum::<usize>();
            };
            parts.merge(&mut total, merge, &cx).unwrap();
            assert_eq!(total, pass * rows.len());
        }
        assert!((1..=2).contains(&*made.lock().unwrap()), "one for each thread");
        assert!(parts.clone().kept().is_empty() && !parts.kept().is_empty());
    }
}
