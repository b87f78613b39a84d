//! Entry point for long work from Python: releases the interpreter, runs on Rust threads, and handles Ctrl-C.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::parallel::{Executor, Interrupt, refused_threads};

/// Time between two checks for signals; Ctrl-C must take effect within 100 ms.
const POLL: Duration = Duration::from_millis(50);

/// Work with fewer multiplications runs on the calling thread alone. It takes about a millisecond, so that
/// Ctrl-C need not be checked and thread switches would cost too much. Results do not depend on the number of
/// threads.
const SHORT_WORK: f64 = 4e6;

thread_local! {
    /// The progress function of the user's thread.
    static REPORT: RefCell<Option<Py<PyAny>>> = const { RefCell::new(None) };

    /// The interrupt of the work on this thread, if this is a driver thread and another thread checks for
    /// signals.
    static STOP: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// Returns [`Error::Interrupted`] if the work on this thread was asked to stop. For code that waits without
/// an executor.
pub(super) fn check() -> Result<()> {
    STOP.with_borrow(|stop| match stop {
        Some(stop) if stop.is_set() => Err(Error::Interrupted),
        _ => Ok(()),
    })
}

/// The state behind a Python object, which messages call `what`. Waiting for it while attached to the interpreter would
/// deadlock with the thread that uses it.
///
/// # Errors
/// `RuntimeError` if another call is using the state, or if a call has panicked while it did.
pub(super) fn locked<'a, S>(state: &'a Mutex<S>, what: &str) -> PyResult<MutexGuard<'a, S>> {
    state.try_lock().map_err(|error| {
        PyRuntimeError::new_err(match error {
            TryLockError::WouldBlock => {
                format!("this {what} is in use by another call, for example in another thread")
            }
            TryLockError::Poisoned(_) => {
                format!("this {what} cannot be used after an earlier call failed because of a bug in shoal")
            }
        })
    })
}

/// Sets the progress function of this thread, and returns the previous one; `None` removes it. Long calls invoke it
/// about 20 times a second with the phase, the row visits so far, and the expected number of visits (0: unknown). An
/// exception in it interrupts the call.
#[pyfunction]
pub(super) fn report_to(function: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
    REPORT.replace(function)
}

/// Handles signals, and reports the progress of `cx`.
fn look_after(cx: &Executor, py: Python<'_>) -> PyResult<()> {
    py.check_signals()?;
    let report = REPORT.with_borrow(|report| report.as_ref().map(|function| function.clone_ref(py)));
    if let (Some(report), Some((working, done))) = (report, cx.progress().now()) {
        report.call1(py, (working.name, done, working.total))?;
    }
    Ok(())
}

type Outcome<R> = std::result::Result<Result<R>, Box<dyn Any + Send>>;

/// Runs `work` detached from the interpreter. `cost` is its approximate number of multiplications, infinite
/// if it waits for user code.
///
/// A Python signal sets the executor's interrupt; after the work has stopped, the handler's exception is
/// raised. A panic becomes a `RuntimeError`.
pub(super) fn enter<R: Send>(
    py: Python<'_>,
    threads: Option<usize>,
    cost: f64,
    work: impl FnOnce(&Executor) -> Result<R> + Send,
) -> PyResult<R> {
    // User code that other work waits for may call this function repeatedly.
    check()?;
    let short = cost < SHORT_WORK;
    let cx = Executor::new(if short { Some(1) } else { threads })?;
    let (outcome, signal) = py.detach(|| {
        if short {
            Ok((catch_unwind(AssertUnwindSafe(|| work(&cx))), None))
        } else {
            drive(&cx, cost.is_finite(), work)
        }
    })?;
    if let Some(signal) = signal {
        return Err(signal);
    }
    match outcome {
        Ok(result) => Ok(result?),
        Err(panic) => Err(PyRuntimeError::new_err(format!(
            "a bug in shoal, please report it: {}",
            panic_message(&*panic)
        ))),
    }
}

/// Runs `work` while this thread, detached, checks for signals. The work runs on the pool if `pooled`,
/// otherwise on a driver thread that uses the pool only for tiles.
///
/// Work that waits for user code must stay off the pool: user code may call shoal itself, which would wait
/// for the same threads.
fn drive<R: Send>(
    cx: &Executor,
    pooled: bool,
    work: impl FnOnce(&Executor) -> Result<R> + Send,
) -> Result<(Outcome<R>, Option<PyErr>)> {
    let (slot, done) = (Mutex::new(None), Condvar::new());
    let job = || {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(cx)));
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        done.notify_one();
    };
    let signal = if let Some(pool) = cx.pool().filter(|_| pooled) {
        pool.in_place_scope(|scope| {
            scope.spawn(|_| job());
            watch(cx, &slot, &done)
        })
    } else {
        let apart = || {
            STOP.set(Some(cx.interrupt().clone()));
            job();
        };
        thread::scope(|scope| {
            let started = thread::Builder::new().name("shoal-driver".into()).spawn_scoped(scope, apart);
            started.map_err(|e| refused_threads(1, &e))?;
            Ok::<_, Error>(watch(cx, &slot, &done))
        })?
    };
    let outcome = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((outcome.expect("the watch ends with an outcome"), signal))
}

/// Waits for the outcome. Returns the exception of a signal that arrived meanwhile, after asking the work to
/// stop.
fn watch<R>(cx: &Executor, slot: &Mutex<Option<Outcome<R>>>, done: &Condvar) -> Option<PyErr> {
    let lock = || slot.lock().unwrap_or_else(PoisonError::into_inner);
    let mut signal = None;
    let mut waiting = lock();
    while waiting.is_none() {
        waiting = done.wait_timeout(waiting, POLL).unwrap_or_else(PoisonError::into_inner).0;
        if waiting.is_none() && signal.is_none() {
            drop(waiting);
            signal = Python::attach(|py| look_after(cx, py)).err();
            // If user code made this call, the outer work that waits for it may have been asked to stop.
            if signal.is_some() || check().is_err() {
                cx.interrupt().set();
            }
            waiting = lock();
        }
    }
    signal
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "no message",
    }
}
