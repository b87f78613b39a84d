//! This module knows the one door through which Python enters long work: off the interpreter, on threads of Rust, with Ctrl-C seen.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::parallel::{Executor, Interrupt, refused_threads};

/// Between two looks for signals; Ctrl-C has to be seen within 100 ms.
const POLL: Duration = Duration::from_millis(50);

/// Multiplications below which work runs at once on the calling thread, and on no other: a millisecond or so, in which nobody presses
/// Ctrl-C, and for which thread switches would be dear. Results do not depend on the number of threads.
const SHORT: f64 = 4e6;

thread_local! {
    /// What stops the work that this thread does, where it is one of its own, and another thread looks for signals meanwhile.
    static STOP: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// [`Error::Interrupted`] when the work that this thread does was asked to stop: for those who wait where no executor is at hand.
pub(super) fn check() -> Result<()> {
    STOP.with_borrow(|stop| match stop {
        Some(stop) if stop.is_set() => Err(Error::Interrupted),
        _ => Ok(()),
    })
}

type Outcome<R> = std::result::Result<Result<R>, Box<dyn Any + Send>>;

/// Runs `work`, which costs about `cost` multiplications, detached from the interpreter; without end where it waits for code of the user.
///
/// A Python signal sets the executor's interrupt, the work is waited for, and the handler's exception is raised. A panic becomes a
/// `RuntimeError`.
pub(super) fn enter<R: Send>(
    py: Python<'_>,
    threads: Option<usize>,
    cost: f64,
    work: impl FnOnce(&Executor) -> Result<R> + Send,
) -> PyResult<R> {
    // Code of the user that other work waits for may call this over and over.
    check()?;
    let short = cost < SHORT;
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
        Err(panic) => {
            Err(PyRuntimeError::new_err(format!("a bug in shoal, please report it: {}", said(&*panic))))
        }
    }
}

/// Runs `work` on the pool, or on a thread of its own that leaves tiles alone to the pool, if there is one, while this thread, detached, looks
/// for signals.
///
/// Work that waits for code of the user has to stay off the pool: that code may call shoal itself, which would wait for the same threads.
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

/// Waits until there is an outcome; the exception of a signal that came meanwhile, upon which the work was asked to stop.
fn watch<R>(cx: &Executor, slot: &Mutex<Option<Outcome<R>>>, done: &Condvar) -> Option<PyErr> {
    let lock = || slot.lock().unwrap_or_else(PoisonError::into_inner);
    let mut signal = None;
    let mut waiting = lock();
    while waiting.is_none() {
        waiting = done.wait_timeout(waiting, POLL).unwrap_or_else(PoisonError::into_inner).0;
        if waiting.is_none() && signal.is_none() {
            drop(waiting);
            #[expect(clippy::redundant_closure_for_method_calls, reason = "the path is not general enough")]
            let seen = Python::attach(|py| py.check_signals());
            signal = seen.err();
            // Where this is called by code that other work waits for, that work may have been asked to stop.
            if signal.is_some() || check().is_err() {
                cx.interrupt().set();
            }
            waiting = lock();
        }
    }
    signal
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "no message",
    }
}
