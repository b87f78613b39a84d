//! Spreads work over threads, with bit-identical results for any number of threads.
//!
//! Work is an ordered sequence of items (tiles of rows). Threads take the items in order, and
//! [`Executor::ordered_reduce`] merges their results strictly in item order, so that every floating-point sum
//! has one fixed shape. Exact sums need no order: see [`gather`](crate::pass::gather).

mod merger;

use std::cell::RefCell;
use std::env;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use merger::{Bail, Merger};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, InvalidParam, Result};
use crate::tuning::shared_rows;

/// Upper limit of the threads of an executor per core: more threads only take turns and memory. More than
/// one, since a thread may wait for a disk or a stream.
const THREADS_A_CORE: usize = 4;

/// Number of threads that any machine may start, so that tests can check that results do not depend on the
/// number of threads.
const THREADS_ANYWHERE: usize = 16;

/// Idle thread pools that are kept, in addition to the pool requested last: a caller that alternates between
/// two thread counts reuses both.
const IDLE_POOLS: usize = 1;

/// A flag that asks running work to stop. Clones share it, and work checks it at least once per tile.
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

    /// Clears the flag.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How far long work has come, for a thread that waits for it. Clones share it.
///
/// The caller of a pass names the phase and states the expected number of row visits. Passes count the rows that they
/// visit. Counts go to the display only: no result depends on them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    working: Mutex<Option<Working>>,
    done: AtomicU64,
}

/// What the work is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Working {
    /// The name of the phase; empty for a pass of a fit.
    pub(crate) name: &'static str,
    /// Visits of rows that the phase expects; 0 if unknown.
    pub(crate) total: u64,
}

impl Progress {
    /// The open phase, and the visits of rows so far.
    #[cfg(any(test, feature = "python"))]
    pub(crate) fn now(&self) -> Option<(Working, u64)> {
        let working = *lock(&self.0.working);
        working.map(|working| (working, self.0.done.load(Ordering::Relaxed)))
    }

    fn set(&self, working: Option<Working>) {
        *lock(&self.0.working) = working;
        self.0.done.store(0, Ordering::Relaxed);
    }
}

/// An open phase. Dropping it ends the phase.
pub(crate) struct Phase<'a> {
    of: &'a Progress,
    /// Whether this phase counts; if not, the enclosing phase does.
    counts: bool,
    /// The enclosing phase.
    before: Option<Working>,
}

impl Drop for Phase<'_> {
    fn drop(&mut self) {
        if self.counts {
            self.of.set(self.before);
        }
    }
}

/// A thread pool with an interrupt flag.
///
/// Executors with the same number of threads share one pool. A pool without executors is freed when pools of
/// other sizes are created.
///
/// ```
/// let two = shoal::Executor::new(Some(2)).unwrap();
/// assert_eq!(two.threads(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Executor {
    /// `None` for one thread: the thread of the caller.
    pool: Option<Arc<ThreadPool>>,
    interrupt: Interrupt,
    progress: Progress,
}

/// An executor on the threads of a pool of the caller, which other work may share. A pool of one thread stays idle:
/// work for one thread runs on the thread of the caller.
///
/// ```
/// use std::sync::Arc;
/// let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(2).build()?);
/// let cx = shoal::Executor::from(pool);
/// assert_eq!(cx.threads(), 2);
/// # Ok::<(), rayon::ThreadPoolBuildError>(())
/// ```
impl From<Arc<ThreadPool>> for Executor {
    fn from(pool: Arc<ThreadPool>) -> Self {
        Self { pool: Some(pool), interrupt: Interrupt::default(), progress: Progress::default() }
    }
}

thread_local! {
    /// The executor of [`Executor::install`].
    static INSTALLED: RefCell<Option<Executor>> = const { RefCell::new(None) };
}

/// Pools that can be reused.
static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Pools {
    /// The process that the threads belong to.
    process: u32,
    /// At most one pool per number of threads, the most recently used last.
    pools: Vec<Arc<ThreadPool>>,
}

impl Pools {
    /// The pool of `n` threads. Drops idle pools except the most recent one.
    fn get(&mut self, n: usize) -> Result<Arc<ThreadPool>> {
        let process = std::process::id();
        if self.process != process {
            // A forked child has none of the threads of its parent, and dropping their pools would wait for
            // locks that they hold.
            std::mem::forget(std::mem::take(&mut self.pools));
            self.process = process;
        }
        let found = self.pools.iter().position(|pool| pool.current_num_threads() == n);
        let pool = if let Some(i) = found {
            self.pools.remove(i)
        } else {
            let pool = ThreadPoolBuilder::new().num_threads(n).thread_name(|i| format!("shoal-{i}")).build();
            Arc::new(pool.map_err(|e| refused_threads(n, &e))?)
        };
        let mut idle = self.pools.iter().filter(|pool| Arc::strong_count(pool) == 1).count();
        self.pools.retain(|pool| {
            let drop = Arc::strong_count(pool) == 1 && idle > IDLE_POOLS;
            idle -= usize::from(drop);
            !drop
        });
        self.pools.push(pool.clone());
        Ok(pool)
    }
}

/// The error for threads that the system does not start.
pub(crate) fn refused_threads(n: usize, cause: &dyn Display) -> Error {
    InvalidParam::new("threads", "as many as the system starts", n).with_remedy(cause.to_string()).into()
}

/// Cores that this process may use.
pub(crate) fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The number of threads of an executor for `n` requested threads, which is capped per core.
pub(crate) fn at_most_threads(n: usize) -> usize {
    // Counting the cores takes longer than small work.
    if n <= THREADS_ANYWHERE { n } else { n.min(THREADS_ANYWHERE.max(THREADS_A_CORE * available_threads())) }
}

/// The number of threads in the environment variable `SHOAL_NUM_THREADS`, else the first number in `OMP_NUM_THREADS`.
pub(crate) fn requested_threads() -> Result<Option<usize>> {
    let read = |name: &'static str| env::var_os(name).map(|text| (name, text.to_string_lossy().into_owned()));
    for (name, text) in [read("SHOAL_NUM_THREADS"), read("OMP_NUM_THREADS")].into_iter().flatten() {
        if let Some(n) = threads_in(name, &text)? {
            return Ok(Some(n));
        }
    }
    Ok(None)
}

/// The number of threads in the value of an environment variable; `None` if the value is empty.
fn threads_in(name: &'static str, text: &str) -> Result<Option<usize>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    // One number per level of nesting; only the first level exists here.
    let first = if name == "OMP_NUM_THREADS" { text.split(',').next().unwrap_or_default() } else { text };
    match first.trim().parse() {
        Ok(n) if n > 0 => Ok(Some(n)),
        _ => {
            let problem = InvalidParam::new(name, "a number of threads of at least 1", format!("{text:?}"));
            Err(problem.with_remedy("change or unset this environment variable").into())
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Executor {
    /// Uses `threads` threads, capped at 4 per available core (at least 16).
    ///
    /// `None` takes the number in the environment variable `SHOAL_NUM_THREADS`, else the first number in
    /// `OMP_NUM_THREADS`, else the number of cores that this process may use.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] for 0 threads, for an environment variable that is not a number of threads, or
    /// when the system cannot start the threads.
    pub fn new(threads: Option<usize>) -> Result<Self> {
        let n = match threads {
            Some(0) => return Err(Error::param("threads", "at least 1", 0)),
            Some(n) => n,
            None => requested_threads()?.unwrap_or_else(available_threads),
        };
        let n = at_most_threads(n);
        let pool = if n > 1 { Some(lock(&POOLS).get(n)?) } else { None };
        Ok(Self { pool, interrupt: Interrupt::default(), progress: Progress::default() })
    }

    /// Runs `f` on this thread. Within it, methods that take no executor use this one: `fit`, `predict`, `nearest`,
    /// `update`, `find` and the like. They use its threads, whatever their own parameter says, and its interrupt stops
    /// them.
    ///
    /// ```
    /// use shoal::{Error, Executor, KMeans};
    /// let rows = [[0.0f64], [4.0]];
    /// let model = KMeans::params(2).fit(&rows)?;
    /// let cx = Executor::new(Some(2))?;
    /// let found = cx.install(|| model.nearest(&rows, 1))?;
    /// assert_eq!(found.0, model.labels());
    /// cx.interrupt().set(); // From another thread, while a call runs.
    /// assert!(matches!(cx.install(|| model.predict(&rows)), Err(Error::Interrupted)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn install<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<Executor>);
        impl Drop for Restore {
            fn drop(&mut self) {
                INSTALLED.set(self.0.take());
            }
        }
        let _restore = Restore(INSTALLED.replace(Some(self.clone())));
        f()
    }

    /// The executor of a call that takes none: the installed one, or a new one with `threads` threads.
    ///
    /// # Errors
    /// As [`Executor::new`].
    pub(crate) fn of_call(threads: Option<usize>) -> Result<Self> {
        match INSTALLED.with_borrow(Clone::clone) {
            Some(installed) => Ok(installed),
            None => Self::new(threads),
        }
    }

    /// The thread of the caller, for work that nothing interrupts.
    pub(crate) fn caller() -> &'static Self {
        static CALLER: LazyLock<Executor> = LazyLock::new(|| Executor {
            pool: None,
            interrupt: Interrupt::default(),
            progress: Progress::default(),
        });
        &CALLER
    }

    /// One thread that this executor's interrupt ends too, for work within its tasks.
    pub(crate) fn alone(&self) -> Self {
        Self { pool: None, interrupt: self.interrupt.clone(), progress: Progress::default() }
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.current_num_threads())
    }

    /// The flag that interrupts work on this executor.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The counts of the work on this executor.
    #[cfg(any(test, feature = "python"))]
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Opens a phase that expects so many visits of rows; 0 if their number is not known. Within a phase of
    /// unknown length, it gives that one its length. Within any other phase it does nothing.
    pub(crate) fn phase(&self, name: &'static str, total: u64) -> Phase<'_> {
        let before = *lock(&self.progress.0.working);
        let now = match before {
            None => Some(Working { name, total }),
            Some(open) if open.total == 0 && total > 0 => Some(Working { total, ..open }),
            Some(_) => None,
        };
        if now.is_some() {
            self.progress.set(now);
        }
        Phase { of: &self.progress, counts: now.is_some(), before }
    }

    /// Counts visits of rows.
    pub(crate) fn count(&self, rows: u64) {
        self.progress.0.done.fetch_add(rows, Ordering::Relaxed);
    }

    /// The pool, for a driver that waits outside it; `None` for one thread.
    #[cfg(feature = "python")]
    pub(crate) fn pool(&self) -> Option<&ThreadPool> {
        self.pool.as_deref()
    }

    /// Returns [`Error::Interrupted`] if the interrupt flag is set.
    pub fn check(&self) -> Result<()> {
        if self.interrupt.is_set() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Maps every item into a partial result and merges the partials into `total` in item order.
    ///
    /// `merge(total, part)` must leave `part` as `empty()` returns it. At most two partial results per thread
    /// exist at a time; every worker has one scratch.
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
        let merged = Merger::new(total);
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
        self.run(threads, worker);
        merged.result()
    }

    /// Runs `worker` on so many threads.
    fn run(&self, threads: usize, worker: impl Fn() + Sync) {
        match &self.pool {
            Some(pool) if threads > 1 => pool.scope(|s| (0..threads).for_each(|_| s.spawn(|_| worker()))),
            _ => worker(),
        }
    }

    /// Writes `f(i)` to every place `i`, as [`Executor::share`] does. A call takes about as long as `values` sums.
    pub(crate) fn fill<V: Send>(&self, out: &mut [V], values: usize, f: impl Fn(usize) -> V + Sync) {
        let part = shared_rows(values);
        self.share(out.chunks_mut(part).enumerate(), |(i, out)| {
            out.iter_mut().zip(i * part..).for_each(|(out, at)| *out = f(at));
        });
    }

    /// Calls `f` with every item, for short work between passes: it cannot fail, and does not stop at an interrupt.
    pub(crate) fn share<I>(&self, items: I, f: impl Fn(I::Item) + Sync)
    where
        I: ExactSizeIterator + Send,
        I::Item: Send,
    {
        let threads = self.threads().min(items.len());
        let items = Mutex::new(items);
        let next = || lock(&items).next();
        self.run(threads, || {
            while let Some(item) = next() {
                f(item);
            }
        });
    }

    /// Calls `f` with every item; every worker has one scratch.
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
    fn every_item_is_shared_once() {
        for threads in 1..5 {
            let cx = Executor::new(Some(threads)).unwrap();
            for n in [0, 1, 3, 1000] {
                let mut done = vec![0; n];
                cx.share(done.iter_mut().enumerate(), |(i, done)| *done += i + 1);
                assert!(done.into_iter().eq(1..=n), "{n} items, {threads} threads");
                let mut filled = vec![0; n];
                cx.fill(&mut filled, 4096, |i| i + 1);
                assert!(filled.into_iter().eq(1..=n), "{n} places, {threads} threads");
            }
        }
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

    #[test]
    fn calls_within_install_use_its_pool_and_its_interrupt() {
        let pool = Arc::new(ThreadPoolBuilder::new().num_threads(3).build().unwrap());
        let (cx, other) = (Executor::from(pool), Executor::new(Some(2)).unwrap());
        let threads = || Executor::of_call(Some(1)).unwrap().threads();
        let nested = || (threads(), other.install(threads), threads());
        assert_eq!((threads(), cx.install(nested), threads()), (1, (3, 2, 3), 1));
        let panics = std::panic::AssertUnwindSafe(|| cx.install(|| panic!("a panic ends it too")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(threads(), 1);
        cx.interrupt().set();
        let check = || Executor::of_call(None).and_then(|cx| cx.check());
        assert!(matches!(cx.install(check), Err(Error::Interrupted)));
        assert!(check().is_ok());
    }

    #[test]
    fn the_outer_phase_counts_unless_its_length_is_unknown() {
        let cx = Executor::new(Some(1)).unwrap();
        let now = || cx.progress().now().map(|(working, done)| (working.name, working.total, done));
        assert_eq!(now(), None);
        {
            let _outer = cx.phase("seeding", 10);
            cx.count(3);
            let inner = cx.phase("", 5);
            cx.count(1);
            drop(inner);
            assert_eq!(now(), Some(("seeding", 10, 4)));
        }
        let outer = cx.phase("labels", 0);
        assert_eq!(now(), Some(("labels", 0, 0)));
        let inner = cx.phase("", 7);
        cx.count(2);
        assert_eq!(now(), Some(("labels", 7, 2)));
        drop(inner);
        assert_eq!(now(), Some(("labels", 0, 0)));
        drop(outer);
        assert_eq!(now(), None);
    }

    #[test]
    fn unused_pools_are_dropped() {
        let mut pools = Pools::default();
        let sizes = |pools: &Pools| pools.pools.iter().map(|p| p.current_num_threads()).collect::<Vec<_>>();
        let held = pools.get(2).unwrap();
        for n in 3..12 {
            drop(pools.get(n).unwrap());
            let idle = if n == 3 { vec![2, 3] } else { vec![2, n - 1, n] };
            assert_eq!(sizes(&pools), idle);
        }
        let again = pools.get(2).unwrap();
        assert!(Arc::ptr_eq(&held, &again));
        drop((held, again));
        drop(pools.get(5).unwrap());
        assert_eq!(sizes(&pools), [2, 5]);
        // The threads of a parent are not waited for.
        pools.process ^= 1;
        drop(pools.get(3).unwrap());
        assert_eq!(sizes(&pools), [3]);
    }

    #[test]
    fn a_thousand_threads_are_a_few_for_each_core() {
        let many = Executor::new(Some(1_000_000)).unwrap().threads();
        assert_eq!(many, (THREADS_A_CORE * available_threads()).max(THREADS_ANYWHERE));
        assert_eq!(Executor::new(Some(1)).unwrap().threads(), 1);
    }

    #[test]
    fn variables_name_a_number_of_threads_or_are_refused() {
        let omp = |text: &str| threads_in("OMP_NUM_THREADS", text);
        assert_eq!((omp("3").unwrap(), omp(" 4 , 2").unwrap(), omp(" ").unwrap()), (Some(3), Some(4), None));
        for text in ["0", "-1", "many", "2.5", ",2", "99999999999999999999"] {
            let refused = omp(text).unwrap_err().to_string();
            assert!(
                refused.contains("OMP_NUM_THREADS must be a number of threads of at least 1"),
                "{refused}"
            );
            assert!(refused.contains(&format!("{text:?}")), "{refused}");
        }
        assert!(threads_in("SHOAL_NUM_THREADS", "4,2").is_err());
    }
}
