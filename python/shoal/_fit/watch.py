"""Calls of callbacks, in fits and in other work such as coresets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from shoal._checks import params as _params
from shoal._checks.warn import warn
from shoal._core import Step
from shoal._terminal.progress import report_progress
from shoal.callbacks import Callback, Checkpoint, ProgressBar, ValidationCurve


def leave(estimator: Any, watchers: list[Any], error: BaseException | None) -> None:
    """Call `leave` of the callbacks after the last step of a fit; `error` is what ended the fit, if any.

    An exception of a callback is raised, or becomes a warning if there is an `error`.
    """
    estimator._failed = isinstance(error, Exception)
    problems: list[Exception] = []
    for watcher in watchers:
        if isinstance(watcher, Callback):
            try:
                watcher.leave(estimator)
            except Exception as caught:  # noqa: BLE001 - raised or warned of below
                problems.append(caught)
    if problems and error is None:
        raise problems[0]
    for problem in problems:
        warn(f"a callback failed at the end of the run: {problem}", RuntimeWarning)


@contextmanager
def begin_and_end(watchers: list[Any], who: Any) -> Generator[None]:
    """Call `begin` of the callbacks, and `end` however the block ends."""
    callbacks = [watcher for watcher in watchers if isinstance(watcher, Callback)]
    try:
        for callback in callbacks:
            callback.begin(who)
        yield
    finally:
        for callback in callbacks:
            callback.end(who)


@contextmanager
def reporting_to(watchers: list[Any], estimator: Any) -> Generator[None]:
    """Report the progress of one step to the callbacks that show it."""
    shown = [
        watcher
        for watcher in watchers
        if isinstance(watcher, Callback) and type(watcher).working is not Callback.working
    ]
    if not shown:
        yield
        return

    def report(phase: str, share: float | None, seconds: float) -> None:
        for watcher in shown:
            watcher.working(estimator, phase, share, seconds)

    with report_progress(report):
        yield


@contextmanager
def watching(estimator: Any) -> Generator[list[Any]]:
    """Yield the callbacks of a fit, with the progress bar that `verbose` asks for."""
    watchers = _with_bar(estimator)
    with begin_and_end(watchers, estimator):
        yield watchers


@contextmanager
def watching_batches(estimator: Any) -> Generator[list[Any]]:
    """Yield the callbacks of `partial_fit`, as `watching` does; progress bars count rows."""
    watchers = _with_bar(estimator)
    if any(isinstance(watcher, Checkpoint) for watcher in watchers):
        raise _params.ParameterError(
            "`callbacks`: Checkpoint does not go with partial_fit, which has no fit to resume. Use save "
            "between batches instead."
        )
    with _counting(watchers, ("row", None)), begin_and_end(watchers, estimator):
        yield watchers


def _with_bar(estimator: Any) -> list[Any]:
    """Return the callbacks, after the progress bar that `verbose` asks for."""
    bar = [ProgressBar()] if _params.verbosity(estimator.verbose) else []
    return [*bar, *(estimator.callbacks or ())]


@contextmanager
def _counting(watchers: list[Any], counted: tuple[str, int | None]) -> Generator[None]:
    """Let progress bars count what `counted` says."""
    bars = [watcher for watcher in watchers if isinstance(watcher, ProgressBar)]
    try:
        for bar in bars:
            bar._counted = counted
        yield
    finally:
        for bar in bars:
            bar._counted = None


def asked_to_stop(watchers: list[Any], estimator: Any, step: Step) -> str | None:
    """Call the callbacks after a step; return the reason of the first one that ends the fit."""
    # All callbacks see every step, also if one of them ends the fit.
    wishes = [watcher for watcher in watchers if watcher(estimator, step)]
    if not wishes or step.stop_reason is not None:
        return None
    return wishes[0].reason if isinstance(wishes[0], Callback) else "callback"


def watchers_of(callbacks: Any, what: str = "a coreset") -> list[Any]:
    """Return the callbacks as a list; raise for callbacks that need a fit, because `what` has none."""
    given = [] if callbacks is None else list(callbacks)
    for callback in given:
        if not callable(callback):
            raise _params.ParameterError(f"`callbacks` must be callables, got {_params.shown(callback)}")
        if isinstance(callback, (Checkpoint, ValidationCurve)):
            raise _params.ParameterError(
                f"`callbacks`: {type(callback).__name__} does not go with {what}, which has neither a fit "
                "to store nor centers to score"
            )
    return given


@contextmanager
def watched(
    label: str,
    who: Any,
    progress: Any,
    callbacks: Any,
    what: str = "a coreset",
    counted: tuple[str, int | None] = ("row", None),
    *,
    single: bool = False,
) -> Generator[Callable[[int], bool]]:
    """Yield a function that reports progress in rows to the callbacks; it returns True to stop.

    Progress bars show `counted`: ``"row"``, or the name of a step, and how many there are, if known. If a
    `single` call does all of the work, callbacks that show long steps show how far it is.
    """
    watchers = watchers_of(callbacks, what)
    if _params.verbosity(progress, "progress"):
        watchers.insert(0, ProgressBar(label))
    started, steps, seen = time.monotonic(), 0, 0

    def tell(rows: int) -> bool:
        nonlocal steps, seen
        steps, seen = steps + 1, seen + rows
        step = Step(
            iteration=steps,
            rows_seen=seen,
            batch_size=rows,
            objective=math.nan,
            center_shift=0.0,
            n_changed=0,
            n_distances=0,
            elapsed=time.monotonic() - started,
            stop_reason=None,
        )
        wishes = [watcher(who, step) for watcher in watchers]
        return any(wishes)

    with (
        _counting(watchers, counted),
        begin_and_end(watchers, who),
        reporting_to(watchers if single else [], who),
    ):
        yield tell
