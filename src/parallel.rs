//! This module knows how work is spread over threads so that the result never depends on their number.
//!
//! Work comes as an ordered sequence of items (tiles of rows). Threads take them in order; what they compute is merged strictly in item
//! order by [`Executor::ordered_reduce`], so that every floating-point sum has one fixed shape.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

/// A flag that asks running work to stop; cloning shares it. Polled at least once per tile.
///
/// ```
/// let stop = shoal::Interrupt::default();
/// stop.clone().set();
/// assert!(stop.is_set());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks the work to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Withdraws the request.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether the work was asked to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The threads that work runs on, with the means to interrupt it.
///
/// ```
/// let two = shoal::Executor::new(Some(2)).unwrap();
/// assert_eq!(two.threads(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Executor {
    pool: Arc<ThreadPool>,
    interrupt: Interrupt,
}

/// Pools by process and number of threads: a forked child must not wait for its parent's threads.
static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
type Pools = HashMap<(u32, usize), Arc<ThreadPool>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Executor {
    /// `threads` threads; `None` is as many as this process may use.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] for 0 threads or when the system refuses that many.
    pub fn new(threads: Option<usize>) -> Result<Self> {
        let n = match threads {
            Some(0) => return Err(Error::param("the number of threads must be at least 1, got 0")),
            Some(n) => n,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let mut pools = lock(&POOLS);
        let key = (std::process::id(), n);
        if let Some(pool) = pools.get(&key) {
            return Ok(Self { pool: pool.clone(), interrupt: Interrupt::default() });
        }
        let pool = ThreadPoolBuilder::new()
            .num_threads(n)
            .thread_name(|i| format!("shoal-{i}"))
            .build()
            .map_err(|e| Error::param(format!("the system refuses {n} threads: {e}")))?;
        let pool = Arc::new(pool);
        pools.insert(key, pool.clone());
        Ok(Self { pool, interrupt: Interrupt::default() })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// The flag that stops work on this executor.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The pool itself, for a driver that waits outside it.
    #[cfg(feature = "python")]
    pub(crate) fn pool(&self) -> &ThreadPool {
        &self.pool
    }

    /// [`Error::Interrupted`] when the work was asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.interrupt.is_set() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Maps every item into a partial result and merges the partials into `total` in item order.
    ///
    /// `merge(total, part)` must leave `part` as `empty()` makes it. At most two partials a thread are alive; every worker has one scratch.
    ///
    /// # Errors
    /// The error of the first item (in item order) that fails, or [`Error::Interrupted`].
    pub fn ordered_reduce<I, P, S>(
        &self,
        items: I,
        total: &mut P,
        empty: impl Fn() -> P + Sync,
        scratch: impl Fn() -> S + Sync,
        map: impl Fn(I::Item, &mut P, &mut S) -> Result<()> + Sync,
        merge: impl Fn(&mut P, &mut P) + Sync,
    ) -> Result<()>
    where
        I: Iterator + Send,
        I::Item: Send,
        P: Send,
    {
        // A single item needs no second thread.
        let threads = self.threads().min(items.size_hint().1.unwrap_or(usize::MAX)).max(1);
        let items = Mutex::new(items.enumerate());
        let merged = Merger {
            state: Mutex::new(Merged {
                next: 0,
                parked: BTreeMap::new(),
                free: Vec::new(),
                alive: 0,
                failed: None,
                total,
            }),
            freed: Condvar::new(),
        };
        let worker = || {
            let _bail = Bail(&merged);
            let mut mine = scratch();
            while let Some(mut part) = merged.buffer(2 * threads, &empty) {
                let Some((i, item)) = lock(&items).next() else { break };
                match self.check().and_then(|()| map(item, &mut part, &mut mine)) {
                    Ok(()) => merged.put(i, part, &merge),
                    Err(e) => return merged.fail(i, e),
                }
            }
        };
        if threads == 1 {
            worker();
        } else {
            self.pool.scope(|s| (0..threads).for_each(|_| s.spawn(|_| worker())));
        }
        match merged.state.into_inner().unwrap_or_else(PoisonError::into_inner).failed {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Runs `f` on every item; each worker has one scratch.
    ///
    /// # Errors
    /// As [`Executor::ordered_reduce`].
    pub fn for_each<I, S>(
        &self,
        items: I,
        scratch: impl Fn() -> S + Sync,
        f: impl Fn(I::Item, &mut S) -> Result<()> + Sync,
    ) -> Result<()>
    where
        I: Iterator + Send,
        I::Item: Send,
    {
        self.ordered_reduce(items, &mut (), || (), scratch, |item, (), s| f(item, s), |(), ()| ())
    }
}

struct Merged<'a, P> {
    /// The item whose partial is merged next.
    next: usize,
    /// Partials that wait for an earlier item.
    parked: BTreeMap<usize, P>,
    free: Vec<P>,
    alive: usize,
    failed: Option<(usize, Error)>,
    total: &'a mut P,
}

struct Merger<'a, P> {
    state: Mutex<Merged<'a, P>>,
    freed: Condvar,
}

impl<P> Merger<'_, P> {
    /// An empty partial, or `None` once some item has failed. It is taken before an item is: whoever holds the earliest unmerged item
    /// has a partial, so waiting here always ends.
    fn buffer(&self, most: usize, empty: impl Fn() -> P) -> Option<P> {
        let mut state = lock(&self.state);
        loop {
            if state.failed.is_some() {
                return None;
            }
            if let Some(part) = state.free.pop() {
                return Some(part);
            }
            if state.alive < most {
                state.alive += 1;
                drop(state);
                return Some(empty());
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, item: usize, part: P, merge: impl Fn(&mut P, &mut P)) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.parked.insert(item, part);
        while let Some(mut part) = state.parked.remove(&state.next) {
            merge(state.total, &mut part);
            state.next += 1;
            state.free.push(part);
        }
        self.freed.notify_all();
    }

    fn fail(&self, item: usize, error: Error) {
        let mut state = lock(&self.state);
        if state.failed.as_ref().is_none_or(|(earlier, _)| item < *earlier) {
            state.failed = Some((item, error));
        }
        self.freed.notify_all();
    }
}

/// Wakes the other workers when one panics, so that the panic is seen instead of a dead lock.
struct Bail<'a, 'b, P>(&'a Merger<'b, P>);

impl<P> Drop for Bail<'_, '_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(0, Error::Interrupted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(threads: usize) -> f64 {
        let mut total = 0.0;
        Executor::new(Some(threads))
            .unwrap()
            .ordered_reduce(
                1..=10_000u32,
                &mut total,
                || 0.0,
                || (),
                |i, part, ()| {
                    *part += 1.0 / f64::from(i);
                    Ok(())
                },
                |total, part| *total += std::mem::take(part),
            )
            .unwrap();
        total
    }

    #[test]
    fn same_bits_for_any_number_of_threads() {
        let one = sum(1);
        assert!((2..9).all(|t| sum(t).to_bits() == one.to_bits()));
    }

    #[test]
    fn the_first_error_wins() {
        let cx = Executor::new(Some(3)).unwrap();
        for _ in 0..50 {
            let e = cx.for_each(
                0..100,
                || (),
                |i, ()| if i >= 20 { Err(Error::Empty(i.to_string())) } else { Ok(()) },
            );
            assert_eq!(e.unwrap_err().to_string(), "20");
        }
    }

    #[test]
    fn interrupts_and_refuses_zero_threads() {
        let cx = Executor::new(Some(2)).unwrap();
        cx.interrupt().set();
        assert!(matches!(cx.for_each(0..10, || (), |_, ()| Ok(())), Err(Error::Interrupted)));
        assert!(Executor::new(Some(0)).is_err());
    }
}
